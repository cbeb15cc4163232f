//! A link of the lab and one of the simulator treat the same packets alike.
#![expect(clippy::unwrap_used, reason = "tests")]

use marcato_lab::{Datagram, Jitter, Link, LinkConfig, Loss, Trace};
use marcato_queue::{Codel, CodelConfig, DropTail, DropTailConfig, FlowKey, Limit, Packet};
use marcato_sim::{GilbertElliott, Network, UdpFlow, UdpStats};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};
use proptest::prelude::*;

/// Payload of each packet, and its length with the headers of IPv4 and UDP.
const PAYLOAD: Bytes = Bytes::new(972);
const LEN: Bytes = Bytes::new(1000);

/// Settings of both links.
#[derive(Clone, Debug)]
struct Settings {
    mbps: u64,
    /// Transmission by a trace instead of the rate.
    trace: Option<Vec<u32>>,
    delay: Duration,
    jitter: Option<Jitter>,
    framing: u64,
    loss: Loss,
    duplication: f64,
    codel: bool,
    packets: u64,
    seed: u64,
}

impl Settings {
    fn trace(&self) -> Option<Trace> {
        let millis = self.trace.clone()?;
        Some(Trace::from_millis(millis).unwrap())
    }

    fn rate(&self) -> Option<Rate> {
        self.trace.is_none().then_some(Rate::from_mbps(self.mbps))
    }

    fn drop_tail<P: Packet>(&self) -> DropTail<P> {
        DropTail::new(DropTailConfig { limit: Limit::Packets(self.packets) }).unwrap()
    }
}

/// Rate of the sender: a packet in about 2 ms. None leaves at the very time of an event of the
/// link, because such events have no common order in the two.
const SENDER: Rate = Rate::from_bps(3_999_983);
const START: Time = Time::from_nanos(333);

/// Times at which 1000 packets leave the sender.
fn departures() -> impl Iterator<Item = Time> {
    let gap = SENDER.transmission_time(LEN);
    (0..1000u32).map(move |number| START + gap * number)
}

fn simulated(settings: &Settings) -> UdpStats {
    let mut network = Network::new(Seed::new(settings.seed));
    let (a, b) = (network.node("a"), network.node("b"));
    let config = marcato_sim::LinkConfig {
        rate: settings.rate(),
        trace: settings.trace(),
        jitter: settings.jitter,
        framing: Bytes::new(settings.framing),
        loss: settings.loss.clone(),
        duplication: settings.duplication,
        ..marcato_sim::LinkConfig::delay_only(settings.delay)
    };
    let config = if settings.codel {
        config.queue(Codel::new(CodelConfig::default()).unwrap())
    } else {
        config.queue(settings.drop_tail())
    };
    network.one_way(a, b, config);
    let stop = departures().last().unwrap() + Duration::from_nanos(1);
    let flow = UdpFlow { start: START, stop, ..UdpFlow::new(a, b, SENDER, PAYLOAD) };
    let flow = network.udp(flow).unwrap();
    network.run_until(Time::from_secs(600));
    network.udp_stats(flow).unwrap()
}

fn emulated(settings: &Settings) -> UdpStats {
    let config = LinkConfig {
        rate: settings.rate(),
        trace: settings.trace(),
        jitter: settings.jitter,
        framing: Bytes::new(settings.framing),
        loss: settings.loss.clone(),
        duplication: settings.duplication,
        ..LinkConfig::delay_only(settings.delay)
    };
    let config = if settings.codel {
        config.queue(Codel::new(CodelConfig::default()).unwrap())
    } else {
        config.queue(settings.drop_tail())
    };
    let mut link = Link::new("a>b", config, Seed::new(settings.seed)).unwrap();
    let mut stats = UdpStats::default();
    let sent: Vec<Time> = departures().collect();
    let mut take = |link: &mut Link<Datagram>, now| {
        while let Some(packet) = link.poll(now) {
            let number = u32::from_be_bytes(packet.payload()[..4].try_into().unwrap());
            let delay = now.since(sent[usize::try_from(number).unwrap()]);
            stats.packets += 1;
            stats.bytes += PAYLOAD;
            stats.delay_sum += delay;
            stats.delay_max = stats.delay_max.max(delay);
            stats.last_at = Some(now);
        }
    };
    for (number, at) in (0u32..).zip(departures()) {
        while let Some(now) = link.next_event().filter(|next| *next < at) {
            take(&mut link, now);
        }
        let mut payload = vec![0; 972];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        link.send(at, Datagram::new(FlowKey::new(0), payload));
        take(&mut link, at);
    }
    while let Some(now) = link.next_event() {
        take(&mut link, now);
    }
    stats
}

fn settings() -> impl Strategy<Value = Settings> {
    let loss = prop_oneof![
        Just(Loss::None),
        (0.0..0.3f64).prop_map(Loss::Random),
        (0u64..20).prop_map(Loss::Every),
        Just(Loss::GilbertElliott(GilbertElliott::bursts(0.05, 4.0).unwrap())),
    ];
    let micros = |most: u64| (0..most).prop_map(Duration::from_micros);
    let jitter = prop_oneof![
        Just(None),
        (1u64..9000, any::<bool>()).prop_map(|(most, reorder)| {
            Some(Jitter::uniform(Duration::from_micros(most)).reorder(reorder))
        }),
    ];
    let trace = prop::option::of(prop::collection::vec(0u32..9, 1..6).prop_map(|mut millis| {
        millis.sort_unstable();
        millis.push(9);
        millis
    }));
    let others = (0u64..40, prop_oneof![Just(0.0), 0.0..0.3f64], any::<bool>(), 1u64..30, any::<u64>());
    (1u64..9, trace, micros(50_000), jitter, loss, others).prop_map(
        |(mbps, trace, delay, jitter, loss, others)| {
            let (framing, duplication, codel, packets, seed) = others;
            Settings { mbps, trace, delay, jitter, framing, loss, duplication, codel, packets, seed }
        },
    )
}

proptest! {
    #[test]
    fn the_same_packets_arrive_at_the_same_times(settings in settings()) {
        prop_assert_eq!(emulated(&settings), simulated(&settings));
    }
}
