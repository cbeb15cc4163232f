//! Tests of two lanes on one path, one of which the network serves first: PLT.
//!
//! Unless stated otherwise the path has 50 Mbit/s and a round trip of 80 ms. A class's buffer holds
//! their product (417 packets of 1200 bytes). The server sends without end.

use marcato_queue::{Discipline, Fate, Filtered, Strict};
use marcato_quic::{
    BaseScheduler, Event, LaneLoss, LaneState, LowLaneChange, LowLanes, PathScheduler, PriorityTest, Session,
    SessionConfig,
};
use marcato_sched::schedule::{CwrConfig, LayeredConfig};
use marcato_sim::{
    Bulk, Congestion, FlowId, LinkConfig, Loss, Network, NodeId, Packet, Route, Side, Tcp, TcpFlow,
};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Time};
use proptest::prelude::*;

use crate::common::*;

const BUFFER: u64 = 417;

/// Filter that drops all of a layer between two times.
fn dropping(layer: Layer, from: Time, until: Time) -> impl FnMut(Time, &mut Packet) -> Fate {
    move |now, packet| {
        let concerned = marcato_queue::Packet::layer(packet) == layer;
        if concerned && from <= now && now < until { Fate::Drop } else { Fate::Pass }
    }
}

/// Treatment of the low layer at the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Queueing {
    /// Serves the high layer first.
    Strict,
    /// Treats both layers alike.
    Shared,
    /// Serves the high layer first, but drops the low one between these times.
    Drops(Time, Time),
    /// Treats both layers alike, until it drops the high one from this time on.
    SharedUntil(Time),
}

/// Server and client behind a bottleneck that they share with others.
struct World {
    pair: Pair,
    others: [NodeId; 2],
}

struct Setting {
    mbps: u64,
    one_way: Duration,
    buffer: u64,
    queueing: Queueing,
    loss: f64,
    /// Loss of the link between the server and the bottleneck.
    lossy_access: f64,
    lanes: usize,
    seed: u64,
    config: SessionConfig,
}

impl Setting {
    fn new(queueing: Queueing, lanes: usize) -> Self {
        let config = SessionConfig { path_scheduler: PathScheduler::LowRtt, ..Default::default() };
        Self {
            mbps: 50,
            one_way: ms(40),
            buffer: BUFFER,
            queueing,
            loss: 0.0,
            lossy_access: 0.0,
            lanes,
            seed: 1,
            config: config.layered(),
        }
    }

    fn queue(&self) -> Box<dyn Discipline<Packet>> {
        let tail = || short_queue(self.buffer);
        let strict = || Strict::of(tail(), tail());
        match self.queueing {
            Queueing::Strict => Box::new(strict()),
            Queueing::Shared => Box::new(tail()),
            Queueing::Drops(from, until) => {
                Box::new(Filtered::of(strict(), dropping(Layer::Low, from, until)))
            }
            Queueing::SharedUntil(cut) => {
                Box::new(Filtered::of(tail(), dropping(Layer::High, cut, Time::MAX)))
            }
        }
    }

    fn build(self, client: Peer, server: Peer) -> World {
        let mut net = Network::new(Seed::new(self.seed));
        let [client_node, server_node, near, far, other, source] =
            ["client", "server", "near", "far", "other", "source"].map(|name| net.node(name));
        let quick = || LinkConfig::new(Rate::from_mbps(10_000), Duration::from_micros(1));
        for (a, b) in [(client_node, near), (other, near), (server_node, far), (source, far)] {
            let loss = if a == server_node { self.lossy_access } else { 0.0 };
            net.link(a, b, quick().loss(Loss::Random(loss)), quick());
        }
        let link = || LinkConfig::new(Rate::from_mbps(self.mbps), self.one_way);
        let (down, up) = net.link(
            far,
            near,
            link().queue(self.queue()).loss(Loss::Random(self.loss)),
            link().queue(self.queue()),
        );
        let mut routes = vec![Route::new(client_node, server_node)];
        routes.resize(self.lanes, Route::new(client_node, server_node).layer(Layer::Low));
        let pair = Setup::new(self.seed, &self.config).over(net, vec![(up, down)], routes, client, server);
        World { pair, others: [source, other] }
    }

    /// Server that sends until a time.
    fn filled(self, until: Time) -> World {
        self.build(Peer::new(), Peer::new().filling(Priority::P3, until))
    }
}

impl World {
    /// Adds a transfer that shares the bottleneck.
    fn bystander(&mut self, congestion: Congestion, start: Time) -> FlowId {
        let [source, other] = self.others;
        let config = Tcp::with(congestion);
        self.pair.net.tcp(TcpFlow::new(source, other, config, Bulk::endless()).start(start)).unwrap()
    }

    fn received(&self) -> u64 {
        self.pair.peer(Side::Client).bytes.iter().sum()
    }

    /// Returns the goodput of the server's application between two times, in Mbit/s.
    fn goodput(&mut self, from: Time, to: Time) -> f64 {
        self.pair.net.run_until(from);
        let before = self.received();
        self.pair.net.run_until(to);
        (self.received() - before) as f64 * 8e-6 / to.since(from).as_secs_f64()
    }

    fn changes(&self, side: Side) -> Vec<(Time, LowLaneChange)> {
        let change = |(at, event): &(Time, Event)| match event {
            Event::LowLane { change, .. } => Some((*at, *change)),
            _ => None,
        };
        self.pair.peer(side).events.iter().filter_map(change).collect()
    }
}

fn secs(secs: u64) -> Time {
    Time::from_secs(secs)
}

/// Returns the state of the low lane at the server.
fn low(world: &World) -> Option<(LaneState, marcato_quic::LaneStats)> {
    let mut lanes = world.pair.session(Side::Server).lanes();
    lanes.find(|(view, ..)| view.layer == Layer::Low).map(|(_, state, stats)| (state, stats))
}

/// Goodput in Mbit/s, measured from 2 s to 30 s, with one lane and two, and buffers of 417 and of
/// 41 packets:
///
/// | loss | one lane | two lanes | one, short | two, short |
/// |---|---|---|---|---|
/// | 0 | 47.3 | 47.7 | 43.5 | 46 |
/// | 1e-4 | 18 | 46 | 17 | 44.7 |
/// | 1e-3 | 5.4 | 46.3 | 4.2 | 44.5 |
///
/// The bounds below are for at least two-thirds of the difference.
fn takes_what_losses_keep_the_high_lane_from(buffer: u64) {
    for (loss, most, least) in [(0.0, 48.0, 43.0), (1e-4, 25.0, 42.0), (1e-3, 8.0, 42.0)] {
        let goodput = |lanes| {
            let setting = Setting { loss, buffer, ..Setting::new(Queueing::Strict, lanes) };
            let mut world = setting.filled(secs(30));
            let goodput = world.goodput(secs(2), secs(30));
            assert_eq!(world.changes(Side::Server), [], "no false alarm");
            world.pair.net.run_until(secs(45));
            world.pair.assert_delivered(Side::Server);
            assert_eq!(world.pair.session(Side::Server).queued().messages, 0);
            goodput
        };
        let (one, two) = (goodput(1), goodput(2));
        assert!(one < most, "loss {loss}, buffer {buffer}: {one} with one lane");
        assert!(two > least && two > one * 0.98, "loss {loss}, buffer {buffer}: {one} and {two}");
    }
}

#[test]
fn a_low_lane_takes_what_losses_keep_the_high_one_from() {
    takes_what_losses_keep_the_high_lane_from(BUFFER);
}

#[test]
#[ignore = "8 s of CPU: one of the long tests"]
fn with_a_short_buffer_a_low_lane_fills_what_losses_leave_free() {
    takes_what_losses_keep_the_high_lane_from(BUFFER / 10);
}

#[test]
fn data_beyond_the_first_high_window_goes_low_in_that_flight() {
    // 60 kB, and a first window of 12 kB, released when both lanes are up.
    let took = |lanes| {
        let message = every(secs(1), ms(1000), 1, Priority::P0, 60_000);
        let mut world =
            Setting::new(Queueing::Strict, lanes).build(Peer::new(), Peer::new().sending(message));
        world.pair.net.run_until(secs(3));
        world.pair.delays(Side::Server, Priority::P0)[0]
    };
    // One way takes 40 ms, and 60 kB take 10 ms; one lane needs three flights.
    let (one, two) = (took(1), took(2));
    assert!(one > ms(190), "{one:?}");
    assert!(two < ms(85), "{two:?}");
}

fn costs_one_pause_and_is_tried_again(from: u64, loss: f64) {
    let run = |lanes| {
        let setting = Setting { loss, ..Setting::new(Queueing::Drops(secs(from), secs(30)), lanes) };
        let mut world = setting.filled(secs(75));
        let without = world.goodput(secs(12), secs(30));
        (without, world.goodput(secs(65), secs(75)), world)
    };
    let what = format!("dropped from {from} s, loss {loss}");
    let ((one, ..), (two, after, mut world)) = (run(1), run(2));
    // At a loss of 1e-3 a mean over 18 s varies by a fifth between runs.
    assert!(two > one * if loss > 0.0 { 0.6 } else { 0.97 }, "{what}: {one} and {two}");
    let server = world.pair.peer(Side::Server);
    if from > 0 && loss > 0.0 {
        let stalled = |event: &Event| matches!(event, Event::LaneStalled(_));
        let stalled = server.events.iter().find(|(at, event)| *at >= secs(from) && stalled(event));
        // Two and a half round trips, and the delay of the low queue, at most 100 ms.
        assert!(stalled.is_some_and(|(at, _)| *at < secs(from) + ms(700)), "{what}: {stalled:?}");
    }
    if loss > 0.0 {
        // Probed after 1, 2, 4, 8, 16 s, and again 32 s later at the latest.
        assert!(after > 42.0, "{what}: {after} when it no longer is");
        assert_eq!(low(&world).map(|(state, _)| state), Some(LaneState::Up), "{what}");
    }
    assert_eq!(world.changes(Side::Server), [], "{what}");
    world.pair.net.run_until(secs(90));
    world.pair.assert_delivered(Side::Server);
}

#[test]
fn a_network_that_drops_the_low_layer_costs_a_pause_and_a_retry() {
    costs_one_pause_and_is_tried_again(10, 1e-3);
}

#[test]
#[ignore = "20 s of CPU: one of the long tests"]
fn a_low_layer_drop_costs_one_pause_at_any_start_and_loss_rate() {
    for (from, loss) in [(0, 0.0), (0, 1e-3), (10, 0.0)] {
        costs_one_pause_and_is_tried_again(from, loss);
    }
}

/// With a buffer of a round trip, detection is by delay: measured after 6 to 9 s. With a tenth of
/// it, by losses: measured after 23 to 40 s.
fn is_noticed_within(buffer: u64, loss: f64, bystander: bool, within: u64) {
    let run = |lanes, until| {
        let setting = Setting { loss, buffer, ..Setting::new(Queueing::Shared, lanes) };
        let mut world = setting.filled(secs(until));
        let flow = bystander.then(|| world.bystander(Congestion::CUBIC, Time::ZERO));
        world.pair.net.run_until(secs(within));
        let bytes =
            |world: &World| flow.map_or(0, |flow| world.pair.net.reception(flow, Side::Server).bytes.get());
        let before = bytes(&world);
        world.pair.net.run_until(secs(until));
        (world.changes(Side::Server), bytes(&world) - before, world)
    };
    let until = within + 30;
    let what = format!("buffer {buffer}, loss {loss}, bystander {bystander}");
    let (changes, beside_two, mut world) = run(2, until);
    let [(at, LowLaneChange::Unprioritised)] = changes[..] else { panic!("{what}: {changes:?}") };
    assert!(at < secs(within), "{what}: {at:?}");
    // Only keep-alives since.
    let sent = low(&world).unwrap().1.packets;
    world.pair.net.run_until(secs(until + 2));
    assert!(low(&world).unwrap().1.packets < sent + 5, "{what}");
    if bystander {
        // The other flow has its share again. Two CUBIC flows share unevenly for many seconds.
        let (_, beside_one, _) = run(1, until);
        assert!(beside_two * 10 > beside_one * 7, "{what}: {beside_one} and {beside_two} bytes");
    }
    world.pair.net.run_until(secs(until + 15));
    world.pair.assert_delivered(Side::Server);
}

#[test]
fn a_network_that_serves_both_layers_alike_is_noticed() {
    is_noticed_within(BUFFER, 0.0, true, 12);
    is_noticed_within(BUFFER / 10, 1e-3, false, 60);
}

#[test]
#[ignore = "8 s of CPU: one of the long tests"]
fn equal_layer_service_is_noticed_with_or_without_cross_traffic() {
    is_noticed_within(BUFFER, 0.0, false, 12);
    is_noticed_within(BUFFER, 1e-3, true, 12);
    is_noticed_within(BUFFER / 10, 0.0, true, 60);
}

/// A transfer next to a session with one lane or two. The session loses 1e-3 before the bottleneck,
/// so that its high lane takes a tenth of the rate. The transfer takes half, 250 kB in each round
/// trip, and loses nothing of its own. It begins after the session's slow start. A low packet can
/// delay the transfer only by being in transmission when one of its packets arrives: 0.23 ms in 80.
#[test]
fn a_concurrent_transfer_keeps_its_goodput() {
    let goodput = |lanes| {
        let setting = Setting { lossy_access: 1e-3, ..Setting::new(Queueing::Strict, lanes) };
        let mut world = setting.filled(secs(30));
        let [source, other] = world.others;
        let config = Tcp { receive_buffer: Bytes::kb(250), congestion: Congestion::CUBIC, ..Tcp::default() };
        let flow =
            world.pair.net.tcp(TcpFlow::new(source, other, config, Bulk::endless()).start(secs(5))).unwrap();
        let own = world.goodput(secs(7), secs(30));
        let stats = world.pair.net.tcp_stats(flow, Side::Client).unwrap();
        assert_eq!(stats.retransmissions, 0, "with {lanes} lanes");
        (own, world.pair.net.reception(flow, Side::Server).bytes.get() as f64)
    };
    let ((one, beside_one), (two, beside_two)) = (goodput(1), goodput(2));
    assert!(one < 8.0 && two > 18.0, "the low lane takes what is left: {one} and {two}");
    assert!(beside_two > beside_one * 0.995, "{beside_one} and {beside_two}");
}

#[test]
fn when_all_high_lanes_are_down_the_low_one_carries_everything() {
    // Each lane has its own path here, so that one can be cut.
    let mut net = Network::new(Seed::new(3));
    let far = net.node("server");
    let (mut links, mut routes) = (Vec::new(), Vec::new());
    for (name, layer) in [("a", Layer::High), ("b", Layer::Low)] {
        let near = net.node(name);
        let link = || LinkConfig::new(Rate::from_mbps(20), ms(20));
        links.push(net.link(near, far, link(), link()));
        routes.push(Route::new(near, far).layer(layer));
    }
    let config = SessionConfig::default().layered();
    let server = Peer::new().sending(every(at(200), ms(50), 100, Priority::P1, 20_000));
    let mut pair = Setup::new(3, &config).over(net, links, routes, Peer::new(), server);
    let (up, down) = pair.links[0];
    for link in [up, down] {
        pair.net.set_link_up_at(link, secs(2), false);
        pair.net.set_link_up_at(link, secs(4), true);
    }
    pair.run(30_000);
    pair.assert_delivered(Side::Server);
    let server = pair.peer(Side::Server);
    let change =
        |what| server.first(|event| matches!(event, Event::LowLane { change, .. } if *change == what));
    let (alone, relieved) = (change(LowLaneChange::Alone), change(LowLaneChange::Relieved));
    assert!(alone.is_some_and(|at| at > secs(2) && at < secs(2) + ms(500)), "{alone:?}");
    assert!(relieved.is_some_and(|at| at > secs(4)), "{relieved:?}");
    let worst = pair.delays(Side::Server, Priority::P1).into_iter().max().unwrap();
    assert!(worst < ms(500), "{worst:?}");
}

/// Harm to others is better than no lane at all.
#[test]
fn a_low_lane_that_does_harm_carries_all_once_it_is_alone() {
    let cut = secs(15);
    let mut world =
        Setting { mbps: 10, buffer: 83, ..Setting::new(Queueing::SharedUntil(cut), 2) }.filled(secs(21));
    world.pair.net.run_until(cut);
    let [(_, LowLaneChange::Unprioritised)] = world.changes(Side::Server)[..] else {
        panic!("{:?}", world.changes(Side::Server))
    };
    let goodput = world.goodput(secs(17), secs(20));
    assert!(goodput > 8.0, "{goodput}");
    assert!(matches!(world.changes(Side::Server)[1..], [(_, LowLaneChange::Alone), ..]));
}

/// To the nanosecond, and not with the next packet.
#[test]
fn a_low_lane_that_does_harm_is_tried_again_at_its_time() {
    let retest = Duration::from_secs(5);
    let mut setting = Setting { mbps: 10, buffer: 83, ..Setting::new(Queueing::Shared, 2) };
    let test = Some(PriorityTest { retest, ..PriorityTest::default() });
    setting.config.low_lanes = setting.config.low_lanes.map(|low| LowLanes { test, ..low });
    let mut world = setting.filled(secs(22));
    world.pair.net.run_until(secs(20));
    let changes = world.changes(Side::Server);
    let [(stopped, LowLaneChange::Unprioritised), (retried, LowLaneChange::Retried), ..] = changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(retried.since(stopped), retest);
}

#[test]
fn a_session_does_not_begin_with_a_low_lane() {
    let setting = Setting::new(Queueing::Strict, 1);
    let mut net = Network::new(Seed::new(1));
    let [near, far] = ["client", "server"].map(|name| net.node(name));
    let link = || LinkConfig::new(Rate::from_mbps(50), ms(40));
    net.link(near, far, link(), link());
    let routes = vec![Route::new(near, far).layer(Layer::Low)];
    let mut pair = Setup::new(1, &setting.config).over(net, vec![], routes, Peer::new(), Peer::new());
    pair.run(100);
    let error = pair.host(Side::Client).error().unwrap();
    assert!(error.contains("connect with one of the high layer"), "{error}");
}

#[test]
fn a_low_lane_that_its_owner_removes_stays_away() {
    let mut world = Setting { loss: 1e-3, ..Setting::new(Queueing::Strict, 2) }.filled(secs(8));
    world.pair.net.run_until(secs(2));
    let id = |session: &Session| {
        session.lanes().find(|(view, ..)| view.layer == Layer::Low).map(|(view, ..)| view.id)
    };
    let low = id(world.pair.session(Side::Client)).unwrap();
    world.pair.with(Side::Client, |session, now| session.remove_lane(now, low)).unwrap();
    world.pair.net.run_until(secs(30));
    for side in [Side::Client, Side::Server] {
        assert_eq!(id(world.pair.session(side)), None);
        let down = |event: &Event| matches!(event, Event::LaneDown { .. });
        assert_eq!(world.pair.peer(side).count(down), 1);
    }
    let reason = |event: &Event| matches!(event, Event::LaneDown { reason: LaneLoss::Closed, .. });
    assert_eq!(world.pair.peer(Side::Client).count(reason), 1);
    world.pair.assert_delivered(Side::Server);
    world.pair.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(12), max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn everything_arrives_once_however_the_low_layer_fares(
        seed in 0u64..1000,
        mbps in 2u64..30,
        one_way in 2u64..80,
        buffer in 10u64..200,
        loss in prop_oneof![Just(0.0), Just(1e-3), Just(0.03)],
        queueing in prop_oneof![
            Just(Queueing::Strict),
            Just(Queueing::Shared),
            (0u64..6, 0u64..6).prop_map(|(from, span)| Queueing::Drops(secs(from), secs(from + span))),
        ],
        policy in 0usize..3,
        base in 0usize..3,
        up in any::<bool>(),
    ) {
        let layers = [LayeredConfig::paper(), LayeredConfig::marcato(), LayeredConfig::cats()][policy];
        let base = [
            BaseScheduler::LowRtt,
            BaseScheduler::RoundRobin,
            BaseScheduler::Cwr(CwrConfig::marcato()),
        ][base];
        let mut setting =
            Setting { seed, mbps, one_way: ms(one_way), buffer, loss, ..Setting::new(queueing, 2) };
        setting.config.path_scheduler = PathScheduler::Layered(base, layers);
        let busy = || {
            let urgent = every(at(700), ms(130), 40, Priority::P0, 3_000);
            let bulk = every(at(600), ms(60), 60, Priority::P3, 30_000);
            Peer::new().sending(urgent.chain(bulk))
        };
        let (client, server) = if up { (busy(), busy()) } else { (Peer::new(), busy()) };
        let mut world = setting.build(client, server);
        // 1.9 MB each way: 8 s at 2 Mbit/s; a lossy lane is slower than its link.
        world.pair.net.run_until(secs(120));
        for side in [Side::Client, Side::Server] {
            world.pair.assert_delivered(side);
            let load = world.pair.session(side).load();
            prop_assert_eq!((load.unfinished, load.in_flight, load.retransmissions, load.repairs), (0, 0, 0, 0));
        }
        // Acknowledgements leave on the first path, which is of the high layer.
        let first = world.pair.session(Side::Client).lanes().min_by_key(|(view, ..)| view.path).unwrap().0;
        prop_assert_eq!(first.layer, Layer::High);
        world.pair.net.check_conservation().unwrap();
    }
}
