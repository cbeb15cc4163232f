//! Transfers over QUIC, in connections whose spin bit spins.

use std::time::Instant;

use bytes::Bytes as Payload;
use marcato_queue::trap::TrapConfig;
use marcato_queue::{Crq, CrqConfig};
use marcato_quic::{
    Congestion, Event, Identity, Message, Pacing, PathScheduler, Piece, SessionConfig, Trust,
};
use marcato_sched::conductor::{Config, Debt};
use marcato_sim::quic::{QuicApp, QuicContext, QuicHost, QuicRole};
use marcato_sim::{DatagramFlow, LinkConfig, Network, NodeId, Packet, Route, Side};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

use super::published::Control;
use crate::error::SimulationError;

/// UDP payload of a full packet: an Ethernet frame without IPv4 and UDP headers, less what picoquic
/// leaves unused. The paper does not give it.
const PACKET: u16 = 1440;
/// Size of a message. Each has its own stream, so that no stream waits for its flow-control window.
const MESSAGE: Bytes = Bytes::kb(1000);

/// Sends its bytes as soon as the session accepts them.
struct Sender {
    left: Bytes,
    body: Payload,
}

impl Sender {
    fn new(bytes: Bytes) -> Self {
        let len = usize::try_from(MESSAGE.min(bytes).get()).unwrap_or(0);
        Self { left: bytes, body: vec![0; len].into() }
    }
}

impl QuicApp for Sender {
    fn idle(&mut self, context: &mut QuicContext<'_>) -> bool {
        let now = context.now();
        if self.left.is_zero() {
            return false;
        }
        let len = self.left.min(MESSAGE);
        let body = self.body.slice(..usize::try_from(len.get()).unwrap_or(0));
        let taken = context.session().send(now, Message::new(body).with_priority(Priority::P2)).is_ok();
        if taken {
            self.left -= len;
        }
        taken
    }
}

/// Counts received bytes, with the times of the connection and of the last byte.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    pub(super) connected_at: Option<Time>,
    pub(super) bytes: Bytes,
    pub(super) last_at: Option<Time>,
}

impl QuicApp for Receiver {
    fn event(&mut self, event: &Event, context: &mut QuicContext<'_>) {
        if *event == Event::Connected {
            self.connected_at = Some(context.now());
        }
    }

    fn received(&mut self, piece: Piece, context: &mut QuicContext<'_>) {
        self.bytes += Bytes::new(piece.bytes.len() as u64);
        self.last_at = Some(context.now());
    }
}

fn session(control: Control, window: Bytes) -> SessionConfig {
    SessionConfig {
        conductor: Config::with_debt(Debt::strict()),
        path_scheduler: PathScheduler::LowRtt,
        congestion: match control {
            Control::Cubic => Congestion::Cubic,
            Control::Bbr => Congestion::Bbr3,
        },
        // Both congestion controllers of picoquic pace.
        pacing: Pacing::Strict,
        initial_mtu: PACKET,
        mtu_discovery: false,
        max_lanes: 1,
        receive_window: window,
        send_window: window,
        ..SessionConfig::default()
    }
}

/// Seeds of a connection's two ends.
pub(super) type EndSeeds = [Seed; 2];

/// Flow in which `server` sends `bytes` to `client`, at most `window` of them unacknowledged.
pub(super) fn transfer(
    control: Control,
    bytes: Bytes,
    window: Bytes,
    [client, server]: [NodeId; 2],
    seeds: EndSeeds,
) -> Result<DatagramFlow, SimulationError> {
    let identity = Identity::self_signed("server")?;
    let trust =
        Trust::Certificate(identity.certificate().ok_or(SimulationError::Missing("certificate"))?.clone());
    // The engine needs instants, but nothing depends on their origin.
    let epoch = Instant::now();
    let role = QuicRole::Client { trust, name: "server".to_owned() };
    let [of_client, of_server] = seeds;
    let receiver = QuicHost::new(role, session(control, window), epoch, Receiver::default())
        .tuned(move |config| config.seed = Some(of_client));
    let sender =
        QuicHost::new(QuicRole::Server { identity }, session(control, window), epoch, Sender::new(bytes))
            .tuned(move |config| config.seed = Some(of_server));
    Ok(DatagramFlow::new(receiver, sender, vec![Route::new(client, server)]))
}

/// Seeds of a connection that spins, with the number of connections skipped for it.
///
/// RFC 9000 §17.4 requires endpoints to disable the bit in at least one of 16 connections. The
/// engine's ends do so in one of eight, each by a separate draw, and then flip the bit at random.
/// Connections that clear the fixed bit of their first packets (RFC 9287) are skipped as well,
/// because a queue does not recognise them as QUIC.
pub(super) fn spinning(seed: u64, flow: usize) -> Result<(EndSeeds, u64), SimulationError> {
    for skipped in 0..64 {
        let mut stream = Seed::new(seed).stream(&format!("crq/quic/{flow}/{skipped}"));
        let seeds = [Seed::new(stream.next_u64()), Seed::new(stream.next_u64())];
        if spins(seeds)? {
            return Ok((seeds, skipped));
        }
    }
    Err(SimulationError::Missing("connection that spins"))
}

/// Returns true if a trap that rejects noise sees round trips in a short transfer.
fn spins(seeds: EndSeeds) -> Result<bool, SimulationError> {
    let mut net = Network::new(Seed::new(0));
    let [client, server] = ["client", "server"].map(|name| net.node(name));
    let (rate, delay) = (Rate::from_mbps(100), Duration::from_millis(5));
    let config = CrqConfig { trap: TrapConfig::marcato(), ..CrqConfig::new(rate, 2 * delay, false) };
    let queue = Crq::<Packet>::new(config)?;
    let (down, _) = net.link(
        server,
        client,
        LinkConfig::new(rate, delay).queue(queue).observing(),
        LinkConfig::new(rate, delay),
    );
    let flow = net.datagrams(transfer(
        Control::Cubic,
        Bytes::kb(600),
        Bytes::new(64 << 20),
        [client, server],
        seeds,
    )?)?;
    net.run_until(Time::from_millis(200));
    let queue: &Crq<Packet> = net.queue(down).ok_or(SimulationError::Missing("queue"))?;
    // A random bit may hold its value for some packets by chance, but not for a round trip.
    Ok(queue.flow(flow.key(Side::Server)).is_some_and(|flow| flow.round_trip > 2 * delay * 9 / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_spin_and_many_do_not() {
        let count = 60;
        let spinning = (0..count).filter(|&seed| {
            let seeds = [Seed::new(2 * seed), Seed::new(2 * seed + 1)];
            spins(seeds).unwrap()
        });
        // Both of two draws of 7/8 would be 46 of 60, less the connections that clear the fixed
        // bit.
        let spinning = spinning.count();
        assert!((15..=50).contains(&spinning), "{spinning} of {count}");
    }
}
