//! Tests of sending times: pacing, batches, reservations, repairs, marks.

use marcato_queue::{Codel, CodelConfig};
use marcato_quic::{Batch, Congestion, Event, Growth, Pacing, PathScheduler, SessionConfig, WindowChange};
use marcato_sched::schedule::CwrConfig;
use marcato_sim::quic::{Background, MessageCollector, Periodic, QuicHost, QuicRole, Traffic};
use marcato_sim::{DatagramFlow, FlowId, LinkId, Loss, Network, Route, Side};
use marcato_units::{Bytes, Duration, Priority, Seed, Time};

use crate::common::*;

/// Server that sends `traffic` over these paths, and the resulting arrivals.
struct Run {
    net: Network,
    flow: FlowId,
    links: Vec<(LinkId, LinkId)>,
}

impl Run {
    fn new(seed: u64, config: &SessionConfig, paths: Vec<PathSpec>, traffic: Traffic) -> Self {
        let mut net = Network::new(Seed::new(seed));
        let far = net.node("server");
        let (mut links, mut routes) = (Vec::new(), Vec::new());
        for (index, path) in paths.into_iter().enumerate() {
            let near = net.node(&format!("client/{index}"));
            links.push(net.link(near, far, path.up, path.down));
            routes.push(Route::new(near, far));
        }
        let (identity, trust) = identity();
        let epoch = std::time::Instant::now();
        let role = QuicRole::Client { trust, name: "server".to_owned() };
        let client = QuicHost::new(role, config.clone(), epoch, MessageCollector::default());
        let server = QuicHost::new(QuicRole::Server { identity }, config.clone(), epoch, traffic);
        let flow = net.datagrams(DatagramFlow::new(client, server, routes)).unwrap();
        Self { net, flow, links }
    }

    /// Returns the times from release to arrival, in the order of release.
    fn delays(&self) -> Vec<Duration> {
        let client: &QuicHost = self.net.host(self.flow, Side::Client).unwrap();
        let collector: &MessageCollector = client.app().unwrap();
        let mut all: Vec<_> =
            collector.completions.iter().map(|it| (it.sequence, it.completed - it.created)).collect();
        all.sort();
        all.into_iter().map(|(_, delay)| delay).collect()
    }

    fn server(&self) -> &marcato_quic::Session {
        self.net.host::<QuicHost>(self.flow, Side::Server).unwrap().session().unwrap()
    }
}

/// Source of 10 kB every 50 ms from 2 s on, with saturating background data.
fn periodic(declared: bool, until: Time) -> Traffic {
    let source = Periodic { first: at(2000), declared, ..Periodic::new(ms(50), Bytes::kb(10)) };
    Traffic::new(vec![source]).background(Background::default()).until(until)
}

#[test]
fn each_of_1000_messages_of_a_reserved_source_leaves_at_once() {
    for (declared, learned_after) in [(true, 0), (false, 20)] {
        // 1 Gbit/s, so that nothing waits in the network, and 100 ms, so that the window decides.
        // One early loss ends slow start. From then on the window grows by a packet per round trip,
        // without further loss.
        let config = SessionConfig {
            congestion: Congestion::RENO,
            pacing: Pacing::Off,
            path_scheduler: PathScheduler::Cwr(CwrConfig { learn: !declared, ..CwrConfig::paper() }),
            ..Default::default()
        };
        let PathSpec { up, down } = path(1000, 50);
        let down = down.loss(Loss::Script(vec![60]));
        let mut run = Run::new(1, &config, vec![PathSpec { up, down }], periodic(declared, at(52_000)));
        run.net.run_until(at(53_000));
        let delays = run.delays();
        assert_eq!(delays.len(), 1000);
        let lost: u64 = run.server().lanes().map(|(.., stats)| stats.lost).sum();
        assert_eq!(lost, 1);
        let late: Vec<_> = delays[learned_after..].iter().filter(|delay| **delay > ms(50) + ms(1)).collect();
        // One way, nine packets of 12 us, and those in transmission: at most ten packets.
        let bound = ms(50) + Duration::from_micros(12 * 20);
        assert!(delays[learned_after..].iter().all(|delay| *delay <= bound), "{late:?}");
        // Without reservation, background data fills the window, and messages wait for
        // acknowledgements.
        let unused = run.server().unused();
        assert!(unused.refusals > 1000, "{unused:?}");
    }
}

#[test]
fn without_reservation_messages_wait_for_the_window() {
    let config = SessionConfig {
        congestion: Congestion::RENO,
        pacing: Pacing::Off,
        path_scheduler: PathScheduler::LowRtt,
        ..Default::default()
    };
    let PathSpec { up, down } = path(1000, 50);
    let down = down.loss(Loss::Script(vec![60]));
    let mut run = Run::new(1, &config, vec![PathSpec { up, down }], periodic(true, at(12_000)));
    run.net.run_until(at(13_000));
    let late = run.delays().iter().filter(|delay| **delay > ms(51)).count();
    assert!(late > 150, "{late} of 200");
}

#[test]
fn credited_growth_lets_a_reserved_lane_grow_as_a_full_one() {
    let window = |scheduler, growth| {
        let config = SessionConfig {
            congestion: Congestion::RENO,
            pacing: Pacing::Off,
            path_scheduler: scheduler,
            growth,
            ..Default::default()
        };
        let PathSpec { up, down } = path(1000, 50);
        let down = down.loss(Loss::Script(vec![60]));
        let mut run = Run::new(2, &config, vec![PathSpec { up, down }], periodic(true, at(20_000)));
        run.net.run_until(at(20_000));
        run.server().lanes().next().unwrap().0.cwnd
    };
    let cwr = PathScheduler::Cwr(CwrConfig { learn: false, ..CwrConfig::paper() });
    let full = window(PathScheduler::LowRtt, Growth::Acknowledged);
    let reserved = window(cwr, Growth::Acknowledged);
    let credited = window(cwr, Growth::Credited);
    // 18 s are 180 round trips, each worth a packet.
    assert!(reserved + Bytes::kb(10) < full, "{reserved} against {full}");
    let (low, high) = (full - full / 20, full + full / 20);
    assert!(credited > low && credited < high, "{credited} against {full}");
}

/// Returns the mean queue of a bottleneck of 20 Mbit/s and 20 ms one way after slow start, in
/// packets, and the throughput.
fn mean_queue(congestion: Congestion, pacing: Pacing) -> (u64, Bytes) {
    let config =
        SessionConfig { congestion, pacing, path_scheduler: PathScheduler::LowRtt, ..Default::default() };
    let paths = vec![path(20, 20).map(|link| link.queue(short_queue(1000)))];
    let mut run = Run::new(3, &config, paths, Traffic::new(vec![]).background(Background::default()));
    let (mut sum, mut before) = (0, Bytes::ZERO);
    let down = run.links[0].1;
    for step in 0..5000 {
        run.net.run_until(at(2000 + 2 * step));
        sum += run.net.queue_counters(down).1.packets;
        if step == 0 {
            before = run.net.link_counters(down).delivered_bytes;
        }
    }
    (sum / 5000, run.net.link_counters(down).delivered_bytes - before)
}

#[test]
fn pacing_keeps_the_queue_of_a_model_based_controller_short() {
    let (paced, through) = mean_queue(Congestion::Bbr3, Pacing::Session);
    let (unpaced, _) = mean_queue(Congestion::Bbr3, Pacing::Off);
    // The path holds 68 packets. Unpaced, a window of twice that is always full; paced, only while
    // it probes.
    assert!(paced <= 15 && unpaced >= 60, "{paced} against {unpaced}");
    // 10 s at 20 Mbit/s are 25 MB.
    assert!(through > Bytes::kb(21_000), "{through}");
}

#[test]
fn pacing_spreads_a_window_over_its_round_trip() {
    // Sender with a window of 100 packets after an idle time: unpaced, all are in the queue at
    // once.
    let deepest = |pacing, priority| {
        let config = SessionConfig {
            pacing,
            initial_window: Some(Bytes::kb(140)),
            path_scheduler: PathScheduler::LowRtt,
            ..Default::default()
        };
        let server = Peer::new().sending(every(at(1000), ms(0), 1, priority, 100_000));
        let mut pair = Pair::new(4, &config, vec![path(50, 50)], Peer::new(), server);
        let mut deepest = 0;
        for step in 0..4000 {
            pair.net.run_until(at(900) + Duration::from_micros(100 * step));
            deepest = deepest.max(pair.net.queue_counters(pair.links[0].1).1.packets);
        }
        pair.run(3000);
        pair.assert_delivered(Side::Server);
        deepest
    };
    let off = deepest(Pacing::Off, Priority::P2);
    let session = deepest(Pacing::Session, Priority::P2);
    let urgent = deepest(Pacing::Session, Priority::P0);
    let strict = deepest(Pacing::Strict, Priority::P0);
    // 74 packets leave. A burst is ten; urgent data leaves in batches of ten, which are charged to
    // pacing afterwards.
    assert!(off >= 70 && urgent >= 70, "{off} {urgent}");
    assert!(session <= 10 && strict <= 20, "{session} {strict}");
}

#[test]
fn a_retransmission_under_strict_pacing_does_not_wait_for_ever() {
    let config = SessionConfig { pacing: Pacing::Strict, ..Default::default() };
    let paths = vec![path(20, 20).map(|link| link.loss(Loss::Random(0.05)))];
    let server = Peer::new().sending(every(at(300), ms(30), 100, Priority::P0, 4000));
    let mut pair = Pair::new(5, &config, paths, Peer::new(), server);
    pair.run(10_000);
    pair.assert_delivered(Side::Server);
    pair.assert_clean();
}

#[test]
fn marks_shrink_the_window_without_any_loss() {
    let marking = || {
        let config = CodelConfig { ecn: true, target: ms(2), interval: ms(50), ..Default::default() };
        Codel::new(config).unwrap()
    };
    for congestion in [Congestion::RENO, Congestion::Cubic] {
        let config = SessionConfig {
            congestion,
            trace_windows: true,
            path_scheduler: PathScheduler::LowRtt,
            ..Default::default()
        };
        let PathSpec { up, down } = path(20, 20);
        let paths = vec![PathSpec { up, down: down.queue(marking()) }];
        let server = Peer::new().filling(Priority::P4, at(10_000));
        let mut pair = Pair::new(6, &config, paths, Peer::new(), server);
        pair.run(12_000);
        let route = pair.route(0);
        let marked = pair.net.route_stats(pair.flow, Side::Server, route).unwrap().marked;
        let (_, _, stats) = pair.session(Side::Server).lanes().next().unwrap();
        let reduced = pair
            .peer(Side::Server)
            .count(|event| matches!(event, Event::Window { change: WindowChange::Reduced, .. }));
        assert!(marked > 0 && stats.reductions > 0 && reduced as u64 == stats.reductions);
        assert_eq!(stats.lost, 0);
        pair.assert_delivered(Side::Server);
    }
}

/// Returns the sizes of the datagrams that leave together when a server sends 500 kB of a level.
fn batches(batch: Batch, priority: Priority, window: u64) -> Vec<Vec<usize>> {
    use std::num::NonZeroUsize;
    let mut wire = crate::sessions::Wire::fast(SessionConfig {
        batch,
        pacing: Pacing::Off,
        initial_window: Some(Bytes::new(window)),
        ..Default::default()
    });
    wire.batches(NonZeroUsize::new(10).unwrap(), priority)
}

#[test]
fn a_batch_holds_the_equal_datagrams_a_lane_sends_in_its_span() {
    // Round trips on this wire take 2 ms, so these windows are 2 Gbit/s and 48 Mbit/s. 200 us of
    // the latter are less than two packets.
    for (batch, priority, window, most) in [
        (Batch::default(), Priority::P2, 500_000, 10),
        (Batch::default(), Priority::P2, 12_000, 1),
        // P0: as many as the window holds.
        (Batch::default(), Priority::P0, 12_000, 8),
        (Batch::ONE, Priority::P2, 500_000, 1),
        (Batch::ONE, Priority::P0, 500_000, 1),
    ] {
        let batches = batches(batch, priority, window);
        let longest = batches.iter().map(Vec::len).max().unwrap();
        assert_eq!(longest, most, "{batch:?} {priority} {window}");
        for batch in &batches {
            let (last, first) = batch.split_last().unwrap();
            assert!(first.windows(2).all(|pair| pair[0] == pair[1]), "{batch:?}");
            assert!(first.first().is_none_or(|len| last <= len), "{batch:?}");
        }
    }
}
#[test]
fn urgent_data_that_was_lost_is_repaired_before_background_data() {
    // Queues of 30 packets, 18 ms, which background data overflows from slow start on. A loss at
    // the end of the slower lane's queue is known when the next packet is acknowledged. Its repair
    // arrives at most as long again after that.
    let bound = ms(30 + 18 + 30) + ms(30 + 18) + ms(5);
    for scheduler in [PathScheduler::LowRtt, PathScheduler::Cwr(CwrConfig::marcato())] {
        for congestion in [Congestion::RENO, Congestion::Cubic] {
            let config = SessionConfig { path_scheduler: scheduler, congestion, ..Default::default() };
            let paths = [path(20, 10), path(20, 30)].map(|path| path.map(|link| link.queue(short_queue(30))));
            let source = Periodic { first: at(200), ..Periodic::new(ms(50), Bytes::kb(10)) };
            let traffic = Traffic::new(vec![source]).background(Background::default()).until(at(9000));
            let mut run = Run::new(1, &config, paths.into(), traffic);
            run.net.run_until(at(10_000));
            let delays = run.delays();
            assert_eq!(delays.len(), 176);
            let worst = delays.into_iter().max().unwrap();
            let lost: u64 = run.server().lanes().map(|(.., stats)| stats.lost).sum();
            assert!(lost > 100 && worst <= bound, "{scheduler:?} {congestion:?}: {worst:?}, {lost} lost");
        }
    }
}

#[test]
fn a_receive_window_grows_for_a_large_bdp_but_not_a_small_one() {
    // Returns the data that endless background brings in five seconds, and the greatest amount in
    // flight.
    let carried = |one_way: u64, from: Option<Bytes>| {
        let config = SessionConfig { receive_window_from: from, ..Default::default() };
        let traffic = Traffic::new(Vec::new()).background(Background::default()).until(at(5000));
        let mut run = Run::new(1, &config, vec![path(200, one_way)], traffic);
        let mut most = Bytes::ZERO;
        for tick in 30..=500 {
            run.net.run_until(at(10 * tick));
            let flight: Bytes = run.server().lanes().map(|(view, ..)| view.in_flight).sum();
            most = most.max(flight);
        }
        (run.net.link_counters(run.links[0].1).delivered_bytes, most)
    };
    // 200 Mbit/s and 100 ms hold 2.5 MB, of which the first window is a twelfth.
    let small = Some(Bytes::kb(200));
    let ((grown, _), (whole, _)) = (carried(50, small), carried(50, None));
    assert!(grown.get() * 100 >= whole.get() * 95, "{grown} of {whole}");
    // 200 Mbit/s and 1 ms hold 25 kB: more would wait in a queue.
    let ((near, most), (fast, _)) = (carried(0, small), carried(0, None));
    assert!(near.get() * 100 >= fast.get() * 99, "{near} of {fast}");
    assert!(most <= Bytes::kb(250), "{most} in flight");
}
