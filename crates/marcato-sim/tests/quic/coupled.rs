//! Tests of coupled mode: background data of a session that waits in the sender, and not in the
//! bottleneck's queue.
//!
//! Unless stated otherwise the path has 10 Mbit/s, a round trip of 100 ms, and a drop-tail buffer of
//! four times their product. The client keeps P3 busy without end; from 8 s on it sends 20 kB at P0
//! now and then.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_quic::{Congestion, Coupling, Event, LaneCoupling, Message, SessionConfig};
use marcato_sched::coupled::Mode;
use marcato_sim::{LinkConfig, Loss, Network, Packet, Route, Side};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Time};
use proptest::prelude::*;

use crate::common::*;

/// Bytes of an urgent message.
const URGENT: usize = 20_000;
/// Bytes of a full packet with its headers of UDP and IPv4, once its size has been discovered.
const PACKET: u64 = 1452 + 28;
/// Bytes of a full packet that carry no message data: those headers, QUIC's, and the room kept for
/// an acknowledgement.
const HEADERS: u64 = 28 + 80;
const FROM: u64 = 8000;
const UNTIL: u64 = 60_000;

fn buffer(bytes: Bytes) -> DropTail<Packet> {
    DropTail::new(DropTailConfig { limit: Limit::Bytes(bytes) }).unwrap()
}

/// Path with a drop-tail buffer of some bandwidth-delay products, at least three packets.
fn deep(mbps: u64, one_way_ms: u64, products: u64) -> PathSpec {
    let product = Rate::from_mbps(mbps).bytes_in(ms(2 * one_way_ms)) * products;
    path(mbps, one_way_ms).map(|link| link.queue(buffer(product.max(Bytes::new(PACKET * 3)))))
}

/// Late urgent messages at irregular intervals.
fn late() -> impl Iterator<Item = (Time, Message)> {
    (0..60u64).map(|index| {
        let when = at(FROM + index * 800 + index * index * 97 % 500);
        (when, Message::new(body(index, URGENT)).with_priority(Priority::P0))
    })
}

fn config(congestion: Congestion, coupled: Coupling) -> SessionConfig {
    SessionConfig { congestion, coupled, ..Default::default() }
}

/// Results of a run.
#[derive(Debug)]
struct Outcome {
    /// Delays of the urgent messages, as ratios to the physical limit, in ascending order.
    ratios: Vec<f64>,
    /// Background data delivered from the first urgent message on.
    background: u64,
    lanes: Vec<LaneCoupling>,
    window: Bytes,
}

impl Outcome {
    fn p50(&self) -> f64 {
        self.ratios[self.ratios.len() / 2]
    }

    fn max(&self) -> f64 {
        self.ratios[self.ratios.len() - 1]
    }
}

/// Runs the session. Its very first urgent message, long before the others, makes it couple in any
/// case.
fn saturated(congestion: Congestion, coupled: Coupling) -> Outcome {
    let first = (at(500), Message::new(body(1 << 50, URGENT)).with_priority(Priority::P0));
    let client = Peer::new().sending(late().chain([first])).filling(Priority::P3, at(UNTIL));
    let mut pair = Pair::new(1, &config(congestion, coupled), vec![deep(10, 50, 4)], client, Peer::new());
    pair.run(FROM);
    let before = pair.peer(Side::Server).bytes[3];
    pair.run(UNTIL);
    let background = pair.peer(Side::Server).bytes[3] - before;
    // One way, all of its bytes at the rate of the link, and the packet that it finds there.
    let packets = (URGENT as u64).div_ceil(PACKET - HEADERS);
    let wire = Bytes::new(URGENT as u64 + HEADERS * packets + PACKET);
    let limit = ms(50) + Rate::from_mbps(10).transmission_time(wire);
    let delays = pair.delays(Side::Client, Priority::P0);
    assert_eq!(delays.len(), 61);
    let mut ratios: Vec<_> = delays.iter().skip(1).map(|it| it.as_secs_f64() / limit.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let session = pair.session(Side::Client);
    let lanes = session.coupling().map(|(_, state)| state).collect();
    Outcome { ratios, background, lanes, window: session.lanes().next().unwrap().0.cwnd }
}

#[test]
fn late_urgent_data_behind_background_is_near_the_limit() {
    for congestion in CONTROLLERS {
        let alone = saturated(congestion, Coupling::Off);
        assert!(alone.lanes.is_empty());
        // Without, it waits in a queue of the controller's making. BBR's is short, except when BBR
        // probes for more, or for the least round trip.
        assert!(alone.max() > 1.4, "{congestion:?}: {alone:?}");
        assert!(alone.p50() > 3.0 || congestion == Congestion::Bbr3, "{congestion:?}: {alone:?}");
        for coupling in [Coupling::Auto, Coupling::On] {
            let coupled = saturated(congestion, coupling);
            let cost = 1.0 - coupled.background as f64 / alone.background as f64;
            let what = format!("{congestion:?} {coupling:?}: cost {cost:.4}, {coupled:?}");
            assert!(coupled.p50() <= 1.15 && coupled.max() <= 1.4, "{what}");
            assert!(cost <= 0.015, "{what}");
            if congestion == Congestion::Bbr3 {
                // BBR may just have given up its window to measure.
                continue;
            }
            // The controller keeps a window beyond the cap, and grows no further.
            let cap = coupled.lanes[0].cap.unwrap();
            assert!(coupled.window > cap && coupled.window < cap * 4, "{what}");
        }
    }
}

/// Time at which the whole of a page has arrived whose groups are handed over at once, from P0 to P4.
fn page(spec: PathSpec, from: Time, seed: u64, coupled: Coupling) -> Duration {
    const GROUPS: [usize; Priority::COUNT] = [8_000, 25_000, 40_000, 60_000, 150_000];
    let groups = Priority::ALL.into_iter().zip(GROUPS).map(|(level, len)| {
        let body = body(level.index() as u64, len);
        (from, Message::new(body).with_priority(level))
    });
    let config = config(Congestion::Cubic, coupled);
    let mut pair = Pair::new(seed, &config, vec![spec], Peer::new().sending(groups), Peer::new());
    pair.run(60_000);
    pair.assert_delivered(Side::Client);
    Priority::ALL.into_iter().flat_map(|level| pair.delays(Side::Client, level)).max().unwrap()
}

/// Nothing urgent comes later, so coupled mode can gain nothing here.
#[test]
fn a_page_alone_takes_no_longer() {
    for (mbps, one_way) in [(2, 10), (2, 50), (2, 150), (10, 20), (10, 50), (50, 20)] {
        for products in [1, 4] {
            // Handed over with the handshake, and on a connection that has discovered the size of its packets.
            for from in [0, 800] {
                let [plain, coupled] = [Coupling::Off, Coupling::On]
                    .map(|coupled| page(deep(mbps, one_way, products), at(from), 4, coupled));
                let ratio = coupled.as_secs_f64() / plain.as_secs_f64();
                assert!(ratio <= 1.05, "{mbps} Mbit/s, {one_way} ms, {products}, from {from} ms: {ratio:.3}");
            }
        }
    }
}

/// Shorter round trips and faster links still cost up to a quarter (docs/coupled.md).
#[test]
fn acknowledgements_that_wait_are_no_slow_bottleneck() {
    for (mbps, one_way) in [(10, 20), (10, 50), (50, 20)] {
        let [plain, coupled] = [Coupling::Off, Coupling::On].map(|coupled| {
            let down = || LinkConfig::new(Rate::from_kbps(200), ms(one_way));
            let spec = || PathSpec { down: down(), ..deep(mbps, one_way, 4) };
            (1..=3).map(|seed| page(spec(), at(0), seed, coupled).as_secs_f64()).sum::<f64>()
        });
        assert!(coupled <= plain * 1.05, "{mbps} Mbit/s, {one_way} ms: {coupled} s, {plain} s without");
    }
}

#[test]
fn losses_cost_a_page_no_more_in_coupled_mode() {
    for loss in [0.002, 0.01] {
        let [plain, coupled] = [Coupling::Off, Coupling::On].map(|coupled| {
            let lossy = || deep(2, 50, 1).map(|link| link.loss(Loss::Random(loss)));
            (1..=16).map(|seed| page(lossy(), at(0), seed, coupled).as_secs_f64()).sum::<f64>()
        });
        assert!(coupled <= plain * 1.03, "{loss}: {coupled} s, {plain} s without");
    }
}

#[test]
fn data_of_one_level_is_not_delayed() {
    // BBR draws from the engine's own generator, so no two runs with it are equal.
    for congestion in [Congestion::RENO, Congestion::Cubic] {
        for level in [Priority::P0, Priority::P3] {
            let delays = |coupled| {
                let plan = every(at(200), ms(90), 100, level, 150_000);
                let client = Peer::new().sending(plan);
                let config = config(congestion, coupled);
                let mut pair = Pair::new(2, &config, vec![deep(10, 50, 4)], client, Peer::new());
                pair.run(60_000);
                pair.assert_delivered(Side::Client);
                pair.delays(Side::Client, level)
            };
            assert_eq!(delays(Coupling::Auto), delays(Coupling::Off), "{congestion:?} {level}");
        }
    }
}

#[test]
fn each_high_lane_has_its_own_cap() {
    for congestion in [Congestion::RENO, Congestion::Cubic] {
        let client = Peer::new().sending(late()).filling(Priority::P3, at(UNTIL));
        let paths = vec![deep(10, 20, 4), deep(5, 80, 4)];
        let mut pair = Pair::new(3, &config(congestion, Coupling::On), paths, client, Peer::new());
        pair.run(UNTIL);
        let lanes: Vec<_> = pair.session(Side::Client).coupling().collect();
        // The products, and up to six packets in the queue. Acknowledgements of both lanes return
        // by the first, so that the second has a round trip of 100 ms.
        for ((_, state), product) in lanes.iter().zip([50_000, 62_500]) {
            let cap = state.cap.unwrap().get();
            assert!(cap > product * 95 / 100 && cap < product + 6 * PACKET, "{congestion:?} {lanes:?}");
            assert_eq!(state.mode, Mode::Steady, "{congestion:?}");
            assert!(state.counters.time[Mode::Steady as usize] > ms(UNTIL / 2), "{lanes:?}");
        }
        let changes = |event: &Event| matches!(event, Event::Coupled { .. });
        let transitions: u64 = lanes.iter().map(|(_, state)| state.counters.transitions).sum();
        assert_eq!(pair.peer(Side::Client).count(changes) as u64, transitions);
        assert!(transitions >= 2);
    }
}

#[test]
fn low_lanes_have_no_cap() {
    let mut net = Network::new(Seed::new(4));
    let (near, far) = (net.node("client"), net.node("server"));
    let PathSpec { up, down } = deep(10, 50, 4);
    let links = vec![net.link(near, far, up, down)];
    let routes = vec![Route::new(near, far), Route::new(near, far).layer(Layer::Low)];
    let client = Peer::new().sending(late()).filling(Priority::P3, at(20_000));
    let config = config(Congestion::Cubic, Coupling::On);
    let mut pair = Setup::new(4, &config).over(net, links, routes, client, Peer::new());
    pair.run(20_000);
    let session = pair.session(Side::Client);
    let high: Vec<_> = session.lanes().filter(|(view, ..)| view.layer == Layer::High).collect();
    assert_eq!((session.lanes().count(), high.len()), (2, 1));
    let coupled: Vec<_> = session.coupling().map(|(lane, _)| lane).collect();
    assert_eq!(coupled, [high[0].0.id]);
}

/// Session over a random path.
#[derive(Clone, Debug)]
struct World {
    seed: u64,
    /// Rate in Mbit/s, one-way delay in ms, loss in thousandths, and buffer in packets.
    paths: Vec<(u64, u64, u32, u64)>,
    /// Time, level and length of each message.
    messages: Vec<(u64, u8, usize)>,
    congestion: usize,
    coupled: Coupling,
    both: bool,
}

fn worlds() -> impl Strategy<Value = World> {
    let message = (0..4000u64, 0..5u8, prop_oneof![1..100usize, 1000..30_000usize, 50_000..400_000usize]);
    (
        any::<u64>(),
        prop::collection::vec((1..60u64, 1..150u64, 0..30u32, 2..300u64), 1..3),
        prop::collection::vec(message, 1..40),
        0..CONTROLLERS.len(),
        prop_oneof![Just(Coupling::Auto), Just(Coupling::On)],
        any::<bool>(),
    )
        .prop_map(|(seed, paths, messages, congestion, coupled, both)| World {
            seed,
            paths,
            messages,
            congestion,
            coupled,
            both,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn all_offered_data_arrives_and_no_session_stands_still(world in worlds()) {
        let plan = |odd: u64| {
            let own = world.messages.iter().enumerate().filter(|(index, _)| *index as u64 % 2 == odd || !world.both);
            let all: Vec<_> = own.map(|(index, &(when, level, len))| {
                let level = Priority::from_index(usize::from(level)).unwrap();
                (at(when), Message::new(body(index as u64, len)).with_priority(level))
            }).collect();
            Peer::new().sending(all)
        };
        let server = if world.both { plan(1) } else { Peer::new() };
        let paths = world.paths.iter().map(|&(mbps, delay, loss, packets)| {
            path(mbps, delay).map(|link| {
                link.queue(short_queue(packets)).loss(Loss::Random(f64::from(loss) / 1000.0))
            })
        });
        let config = config(CONTROLLERS[world.congestion], world.coupled);
        let mut pair = Pair::new(world.seed, &config, paths.collect(), plan(0), server);
        pair.run(4000);
        let arrived = |pair: &Pair| -> u64 {
            [Side::Client, Side::Server].iter().flat_map(|side| pair.peer(*side).bytes).sum()
        };
        let unfinished = |pair: &Pair| -> usize {
            [Side::Client, Side::Server].iter().map(|side| pair.session(*side).unfinished()).sum()
        };
        let (mut now, mut before) = (4000, arrived(&pair));
        while unfinished(&pair) > 0 {
            // Longer than any series of probe timeouts at these losses.
            now += 10_000;
            pair.run(now);
            prop_assert!(arrived(&pair) > before || unfinished(&pair) == 0, "stands still at {now} ms");
            before = arrived(&pair);
        }
        pair.assert_delivered(Side::Client);
        pair.assert_delivered(Side::Server);
        // Copies of what has arrived may still be under way.
        pair.run(now + 10_000);
        pair.assert_clean();
    }
}
