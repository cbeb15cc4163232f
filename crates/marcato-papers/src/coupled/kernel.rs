//! Coupled mode above the kernel's TCP, in a lab: a message of 20 kB at P0 beside background data that
//! always waits, by `marcato-net` with TLS.
//!
//! A ratio is the time from `send` to `recv`, divided by the physical limit: one-way delay, serialisation
//! of the message's packets, and one packet, which may have begun to leave.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use marcato_lab::Lab;
use marcato_net::{
    ClientSecurity, Config, Connection, CoupledStats, Coupling, Endpoint, Engine, Identity, Message, Remote,
    ServerSecurity, TcpCongestion, Trust,
};
use marcato_sched::coupled::Mode;
use marcato_units::{Bytes, Priority, Rate, Seed};

use crate::error::SimulationError;
use crate::lab::{failed, joined, on_host};

/// Name in the server's certificate.
const NAME: &str = "coupled.marcato";
const PORT: u16 = 443;
/// Length of an urgent message, and of one of the background.
const URGENT: u64 = 20_000;
const BACKGROUND: usize = 8 << 10;
/// Mean time between urgent messages. It is at least half of that: none waits for the one before.
const EVERY: Duration = Duration::from_secs(1);
/// Time after the last urgent message.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of a packet, and of those its headers with TCP's timestamps, and what TLS adds to a record.
const PACKET: u64 = 1500;
const HEADERS: u64 = 20 + 32;
const RECORD: u64 = 5 + 1 + 16;

/// Link with a congestion control.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) mbit: u64,
    /// Base round trip in ms.
    pub(crate) rtt: u64,
    /// Buffer in bandwidth-delay products.
    pub(crate) bdp: u64,
    pub(crate) congestion: TcpCongestion,
}

impl Cell {
    /// All cells: three links, each with two congestion controls.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let links = [(2, 100, 2), (10, 40, 4), (30, 20, 2)];
        links.into_iter().flat_map(|(mbit, rtt, bdp)| {
            [TcpCongestion::Cubic, TcpCongestion::Bbr].map(|congestion| Self { mbit, rtt, bdp, congestion })
        })
    }

    /// Least completion time of an urgent message.
    fn limit(&self) -> Duration {
        let packets = URGENT.div_ceil(PACKET - HEADERS - RECORD);
        let bytes = Bytes::new(URGENT + packets * (HEADERS + RECORD) + PACKET);
        let serialisation = Rate::from_mbps(self.mbit).transmission_time(bytes);
        Duration::from_millis(self.rtt) / 2 + serialisation
    }

    fn scenario(&self, seed: u64) -> String {
        let Self { mbit, rtt, bdp, .. } = self;
        let queue = Rate::from_mbps(*mbit).bytes_in(Duration::from_millis(rtt * bdp)).get();
        format!(
            r#"
            name = "coupled"
            duration = "1 s"
            seed = {seed}
            nodes = ["sender", "receiver"]
            link = [{{ name = "bottleneck", between = ["sender", "receiver"], rate = "{mbit} Mbit/s",
                      delay = "{} us", queue = {{ kind = "droptail", limit = "{queue} B" }} }}]
            [[flow]]
            name = "messages"
            kind = "tcp"
            from = "sender"
            to = "receiver"
            "#,
            rtt * 500
        )
    }

    fn config(&self, coupled: Coupling) -> Config {
        let mut config = Config::new(Engine::Tcp);
        config.tcp.congestion = Some(self.congestion.clone());
        config.coupled = coupled;
        config
    }
}

/// Measurements of a run, after its warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Ratios of all urgent messages, in ascending order; infinite if a message did not arrive.
    pub(crate) ratios: Vec<f64>,
    /// Rate at which background data arrived.
    pub(crate) goodput: Rate,
    /// Processor time of the sender's thread over the whole run, system calls included.
    pub(crate) processor: Duration,
    /// Final state of coupled mode; `None` if it never acted.
    pub(crate) coupled: Option<CoupledStats>,
}

impl Measured {
    /// Share of the time in which coupled mode had no cap, in percent.
    pub(crate) fn compete(&self) -> f64 {
        100.0 * self.coupled.as_ref().and_then(|stats| stats.counters.share(Mode::Compete)).unwrap_or(0.0)
    }

    /// Ratio that this share of the messages does not exceed (nearest rank).
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.ratios.len() as f64).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
        let at = (rank as usize).saturating_sub(1).min(self.ratios.len().saturating_sub(1));
        self.ratios.get(at).copied().unwrap_or(f64::INFINITY)
    }
}

/// State of a sender at its end.
struct Sent {
    /// Times at which urgent messages were sent.
    urgent: Vec<Instant>,
    began: Instant,
    processor: Duration,
    coupled: Option<CoupledStats>,
}

/// Arrivals at a receiver.
struct Arrived {
    /// Urgent messages by number.
    urgent: Vec<(usize, Instant)>,
    /// Bytes of the background and their times, when a message of it was complete.
    background: Vec<(Instant, u64)>,
}

/// Times of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Time until measuring begins. Urgent messages are sent from its first second on.
    pub(crate) warm: Duration,
    /// Time of measuring.
    pub(crate) span: Duration,
}

impl Times {
    /// Time of the whole run.
    pub(crate) fn whole(self) -> Duration {
        self.warm + self.span
    }
}

impl Default for Times {
    fn default() -> Self {
        Self { warm: Duration::from_secs(5), span: Duration::from_secs(40) }
    }
}

/// Runs a cell for a time, with coupled mode or without.
pub(crate) fn measure(
    cell: &Cell,
    coupled: Coupling,
    times: Times,
    seed: u64,
) -> Result<Measured, SimulationError> {
    let experiment = crate::lab::experiment(&cell.scenario(seed))?;
    let lab = Lab::open(&experiment, &Default::default(), Default::default()).map_err(failed)?;
    let config = cell.config(coupled);
    let identity = Identity::self_signed(NAME).map_err(failed)?;
    let trust = identity.certificate().cloned().ok_or(SimulationError::Missing("certificate"))?;
    let (address, _) = lab.addresses("sender").ok_or(SimulationError::Missing("sender"))?;
    let Times { warm, span } = times;
    let patience = warm + span + Duration::from_secs(30);

    let (ready, listens) = sync_channel(1);
    let settings = config.clone();
    let server = on_host(&lab, "sender", patience, move || async move {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let endpoint = Endpoint::listen(&settings, &[at.into()], &ServerSecurity::Tls(identity)).await;
        let endpoint = endpoint.map_err(failed)?;
        let _ = ready.send(());
        let connection = endpoint.accept().await.map_err(failed)?;
        send(&connection, warm + span, seed).await
    })?;
    // If the server cannot listen, its thread says why.
    let _ = listens.recv();
    let client = on_host(&lab, "receiver", patience, move || async move {
        let security = ClientSecurity::trusting(NAME, Trust::Certificate(trust));
        let remote = Remote::new(SocketAddr::new(IpAddr::V4(address), PORT), security);
        let connection = Endpoint::connect(&config, remote).await.map_err(failed)?;
        Ok(receive(&connection).await)
    })?;
    let (sent, arrived) = (joined(server)?, joined(client)?);

    let limit = cell.limit().as_secs_f64();
    let from = sent.began + warm;
    let until = from + span;
    let mut ratios: Vec<f64> = sent
        .urgent
        .iter()
        .enumerate()
        .filter(|(_, at)| **at >= from)
        .map(|(number, at)| {
            let arrival = arrived.urgent.iter().find(|(other, _)| *other == number);
            arrival.map_or(f64::INFINITY, |(_, arrival)| (*arrival - *at).as_secs_f64() / limit)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let within = arrived.background.iter().filter(|(at, _)| (from..until).contains(at));
    let bytes = Bytes::new(within.map(|(_, bytes)| bytes).sum());
    let goodput = Rate::from_bytes_over(bytes, span);
    Ok(Measured { ratios, goodput, processor: sent.processor, coupled: sent.coupled })
}

/// Sends background data without a pause, and urgent messages at random times.
async fn send(connection: &Connection, span: Duration, seed: u64) -> Result<Sent, SimulationError> {
    let began = Instant::now();
    let over = began + span;
    let background = async {
        loop {
            let message = Message::new(vec![0; BACKGROUND]).with_priority(Priority::P3);
            if connection.send(message).await.is_err() {
                return;
            }
        }
    };
    let mut urgent = Vec::new();
    let mut gaps = Seed::new(seed).stream("coupled.urgent");
    let urgent_messages = async {
        tokio::time::sleep(EVERY).await;
        while Instant::now() + GRACE < over {
            let mut body = vec![0; usize::try_from(URGENT).unwrap_or(0)];
            body[..8].copy_from_slice(&(urgent.len() as u64).to_be_bytes());
            urgent.push(Instant::now());
            let message = Message::new(body).with_priority(Priority::P0);
            connection.send(message).await.map_err(failed)?;
            tokio::time::sleep(EVERY.mul_f64(0.5 + gaps.unit())).await;
        }
        tokio::time::sleep_until(over.into()).await;
        Ok::<_, SimulationError>(())
    };
    tokio::select! {
        () = background => return Err(SimulationError::Missing("connection to its end")),
        done = urgent_messages => done?,
    }
    let coupled = connection.stats().coupled;
    let processor = processor_time();
    connection.abort();
    Ok(Sent { urgent, began, processor, coupled })
}

/// Receives until the sender ends the connection.
async fn receive(connection: &Connection) -> Arrived {
    let mut arrived = Arrived { urgent: Vec::new(), background: Vec::new() };
    while let Ok(message) = connection.recv().await {
        let now = Instant::now();
        if message.priority == Priority::P0 {
            let number = message.bytes.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
            arrived.urgent.push((usize::try_from(number).unwrap_or(usize::MAX), now));
        } else {
            arrived.background.push((now, message.bytes.len() as u64));
        }
    }
    arrived
}

/// Processor time of this thread; zero if the kernel does not tell.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use marcato_testing::{Need, absent, timely};

    use super::*;

    /// Runs a cell; `None` where there can be no lab.
    fn measured(cell: &Cell, coupled: Coupling, times: Times) -> Option<Measured> {
        (!absent!(Need::Lab)).then(|| measure(cell, coupled, times, 1).unwrap())
    }

    #[test]
    fn coupled_mode_acts_on_a_kernels_connection_and_says_so() {
        let cell = Cell { mbit: 30, rtt: 20, bdp: 2, congestion: TcpCongestion::Cubic };
        let times = Times { warm: EVERY, span: GRACE + EVERY };
        // Urgent messages are sent for a second: a sender that is woken later than that sends none.
        let run = timely(env!("CARGO_PKG_NAME"), EVERY / 2, || measured(&cell, Coupling::Auto, times));
        let Some(Some(run)) = run else { return };
        assert!(!run.ratios.is_empty() && run.quantile(1.0).is_finite(), "{run:?}");
        assert!(run.goodput > Rate::ZERO && run.goodput < Rate::from_mbps(cell.mbit), "{run:?}");
        assert!(run.coupled.is_some_and(|stats| stats.counters.rounds > 0 && stats.looks > 0), "{run:?}");
    }

    #[test]
    fn the_limit_is_delay_and_packets() {
        let cell = Cell { mbit: 10, rtt: 40, bdp: 4, congestion: TcpCongestion::Cubic };
        // 20 kB in 15 packets of 74 B overhead, and one packet of 1500 B: 22 610 B.
        assert_eq!(cell.limit(), Duration::from_micros(20_000 + 18_088));
    }
}
