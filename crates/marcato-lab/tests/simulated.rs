//! A link of the lab and one of the simulator treat the same packets alike.
#![expect(clippy::unwrap_used, reason = "tests")]

use marcato_lab::{Datagram, Jitter, Link, LinkChange, LinkConfig, LinkCounters, Loss, Trace};
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
    /// Changes, in order of their times in microseconds.
    changes: Vec<(u64, Changed)>,
}

/// Change of both links.
#[derive(Clone, Debug)]
enum Changed {
    Rate(u64),
    Up(bool),
    Delay { delay: Duration, reorder: bool },
    Loss(Loss),
    Codel,
    DropTail,
}

/// Time of a change: one of no other event.
fn moment(micros: u64) -> Time {
    Time::from_micros(micros) + Duration::from_nanos(77)
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

/// Counters that both types of links have.
macro_rules! counted {
    ($counters:ident) => {
        [$counters.offered, $counters.dropped, $counters.lost, $counters.duplicated, $counters.delivered]
    };
}

/// Measurements of a link at the end of the packets.
#[derive(Debug, PartialEq)]
struct Measured {
    counters: [u64; 5],
    /// Packets that left the queue, and the sum of their sojourn times.
    left: (u64, Duration),
    longest: Option<Duration>,
    marked: u64,
    /// Share of the capacity that was used; `None` without capacity.
    utilisation: Option<f64>,
}

/// Time of the measurement: one of no other event.
fn end() -> Time {
    departures().last().unwrap() + Duration::from_nanos(501)
}

fn simulated(settings: &Settings) -> (UdpStats, Measured) {
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
    let link = network.one_way(a, b, config);
    network.watch_queue(link);
    let begun = network.link_load(link);
    for (at, change) in &settings.changes {
        let at = moment(*at);
        let change = match change.clone() {
            Changed::Rate(mbps) => {
                network.set_rate_at(link, at, Rate::from_mbps(mbps));
                continue;
            }
            Changed::Up(up) => {
                network.set_link_up_at(link, at, up);
                continue;
            }
            Changed::Delay { delay, reorder } => marcato_sim::LinkChange::Delay { delay, reorder },
            Changed::Loss(loss) => marcato_sim::LinkChange::Loss(loss),
            Changed::Codel => {
                let queue = Box::new(Codel::new(CodelConfig::default()).unwrap());
                marcato_sim::LinkChange::Queue { queue, low: None }
            }
            Changed::DropTail => {
                marcato_sim::LinkChange::Queue { queue: Box::new(settings.drop_tail()), low: None }
            }
        };
        network.change_link_at(link, at, change);
    }
    let stop = departures().last().unwrap() + Duration::from_nanos(1);
    let flow = UdpFlow { start: START, stop, ..UdpFlow::new(a, b, SENDER, PAYLOAD) };
    let flow = network.udp(flow).unwrap();
    network.run_until(end());
    let (counters, delays) = (network.link_counters(link), network.queue_delays(link).unwrap());
    let measured = Measured {
        counters: counted!(counters),
        left: (delays.packets, delays.sum),
        longest: delays.spans().and_then(|spans| spans.max()),
        marked: network.queue_counters(link).0.marked.packets,
        utilisation: network.link_load(link).utilisation_since(begun),
    };
    network.run_until(Time::from_secs(600));
    (network.udp_stats(flow).unwrap(), measured)
}

/// Creates the link of the lab.
fn emulated_link(settings: &Settings) -> Link<Datagram> {
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
    for (at, change) in &settings.changes {
        let change = match change.clone() {
            Changed::Rate(mbps) => LinkChange::Rate(Rate::from_mbps(mbps)),
            Changed::Up(up) => LinkChange::Up(up),
            Changed::Delay { delay, reorder } => LinkChange::Delay { delay, reorder },
            Changed::Loss(loss) => LinkChange::Loss(loss),
            Changed::Codel => LinkChange::Queue(Box::new(Codel::new(CodelConfig::default()).unwrap())),
            Changed::DropTail => LinkChange::Queue(Box::new(settings.drop_tail())),
        };
        link.change_at(moment(*at), change);
    }
    link
}

/// Creates the packet with this number.
fn packet(number: u32) -> Datagram {
    let mut payload = vec![0; 972];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    Datagram::new(FlowKey::new(0), payload)
}

fn emulated(settings: &Settings) -> (UdpStats, Measured) {
    let mut link = emulated_link(settings);
    let begun = link.measurement(Time::ZERO).load;
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
        link.send(at, packet(number));
        take(&mut link, at);
    }
    while let Some(now) = link.next_event().filter(|next| *next <= end()) {
        take(&mut link, now);
    }
    let (measurement, sojourns) = (link.measurement(end()), link.sojourns(end()));
    let counters = link.counters();
    let measured = Measured {
        counters: counted!(counters),
        left: (sojourns.packets, sojourns.sum),
        longest: sojourns.histogram.max(),
        marked: measurement.marked,
        utilisation: measurement.load.utilisation_since(begun),
    };
    while let Some(now) = link.next_event() {
        take(&mut link, now);
    }
    (stats, measured)
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
    let changed = prop_oneof![
        (0u64..9).prop_map(Changed::Rate),
        any::<bool>().prop_map(Changed::Up),
        ((0u64..50_000).prop_map(Duration::from_micros), any::<bool>())
            .prop_map(|(delay, reorder)| Changed::Delay { delay, reorder }),
        (0.0..0.3f64).prop_map(|loss| Changed::Loss(Loss::Random(loss))),
        Just(Changed::Codel),
        Just(Changed::DropTail),
    ];
    let changes = prop::collection::vec((0u64..2_500_000, changed), 0..5).prop_map(|mut changes| {
        changes.sort_by_key(|(at, _)| *at);
        changes.dedup_by_key(|(at, _)| *at);
        changes
    });
    let others =
        (changes, 0u64..40, prop_oneof![Just(0.0), 0.0..0.3f64], any::<bool>(), 1u64..30, any::<u64>());
    (1u64..9, trace, micros(50_000), jitter, loss, others).prop_map(
        |(mbps, trace, delay, jitter, loss, others)| {
            let (mut changes, framing, duplication, codel, packets, seed) = others;
            if trace.is_some() {
                changes.retain(|(_, change)| !matches!(change, Changed::Rate(_)));
            }
            Settings { mbps, trace, delay, jitter, framing, loss, duplication, codel, packets, seed, changes }
        },
    )
}

/// Returns the counters of a link that is polled after `every` packets, and at the end.
fn polled(settings: &Settings, every: u32) -> LinkCounters {
    let mut link = emulated_link(settings);
    for (number, at) in (0u32..).zip(departures()) {
        link.send(at, packet(number));
        while number % every == 0 && link.poll(at).is_some() {}
    }
    while link.poll(Time::from_secs(600)).is_some() {}
    *link.counters()
}

proptest! {
    #[test]
    fn late_polls_change_nothing(settings in settings(), every in 2u32..500) {
        prop_assert_eq!(polled(&settings, every), polled(&settings, 1));
    }

    #[test]
    fn the_same_packets_arrive_at_the_same_times(settings in settings()) {
        prop_assert_eq!(emulated(&settings), simulated(&settings));
    }
}
