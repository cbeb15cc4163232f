//! Tests of worlds built from experiments against the same networks built by hand.

use marcato_queue::{Class, Codel, CodelConfig, DropTail, DropTailConfig, FqCodelConfig, Limit};
use marcato_scenario::Experiment;
use marcato_scenario::flow::{
    Feeder, Flow, FlowKind, Listed, Messages, PacketArrivals, Payload, RequestResponse, TcpEnds, TcpFlow,
    TcpProcess, UdpFlow,
};
use marcato_scenario::link::{Capacity, Change, Direction, Link, Loss, PeriodicLoss, RandomLoss, Way};
use marcato_scenario::queue::{self, Queue};
use marcato_scenario::quic::{
    Controller, Growth, NewReno, Pacing, Path, Quic, Reserving, Scheduler, StreamUse,
};
use marcato_scenario::record::{CaptureFormat, FlowMetric, LinkMetric, Pcap, Record, Series};
use marcato_scenario::sizes::SizeList;
use marcato_scenario::tcp::{Congestion, LowLayer, Tcp};
use marcato_scenario::traffic::{
    Arrivals, Bulk, DebtRules, Message, Messaging, OnOff, Pause, Preset, Redundancy, Release, Size, Source,
};
use marcato_sim::scenario::{BuildError, Outcome, Traces, Warning, Watcher, build};
use marcato_sim::{LinkChange, LinkConfig, LinkId, Network, Side, TcpFlow as Transfer, UdpFlow as Packets};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Time};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn way(mbps: u64, delay: Duration) -> Direction {
    Direction {
        rate: Capacity::Rate(Rate::from_mbps(mbps)),
        delay,
        framing: Bytes::ZERO,
        queue: Queue::default(),
        loss: Loss::None,
        jitter: None,
        duplication: 0.0,
        bleach_ecn: false,
    }
}

fn link(name: &str, between: [&str; 2], there: Direction, back: Direction) -> Link {
    let between = between.map(str::to_owned);
    Link { name: name.into(), between, mtu: Bytes::new(1500), there, back, changes: vec![] }
}

fn flow(name: &str, ends: [&str; 2], kind: FlowKind) -> Flow {
    let [from, to] = ends.map(str::to_owned);
    Flow {
        name: name.into(),
        from,
        to,
        also: vec![],
        count: 1,
        stagger: Duration::ZERO,
        start: Time::ZERO,
        start_jitter: Duration::ZERO,
        stop: None,
        layer: Layer::High,
        kind,
    }
}

fn tcp(congestion: Congestion, size: Option<Bytes>) -> FlowKind {
    let tcp = Tcp::with(congestion);
    FlowKind::Tcp(TcpFlow {
        tcp: TcpEnds { from: tcp.clone(), to: tcp },
        size,
        ..TcpFlow::new(TcpEnds::default())
    })
}

fn experiment(nodes: &[&str], links: Vec<Link>, flows: Vec<Flow>) -> Experiment {
    Experiment {
        name: "test".into(),
        about: String::new(),
        duration: 20 * SECOND,
        warm_up: 5 * SECOND,
        seed: Seed::new(7),
        nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
        links,
        flows,
        record: Record::default(),
    }
}

fn run(experiment: &Experiment) -> Outcome {
    build(experiment, &Traces::new()).unwrap().run(&mut |_: Time| ()).unwrap()
}

/// Two TCP flows and a UDP flow through a lossy CoDel bottleneck whose rate changes, behind a fast
/// link.
fn mixed() -> Experiment {
    let codel = CodelConfig {
        target: 5 * MS,
        interval: 100 * MS,
        limit: queue::Limit::Packets(500),
        maxpacket: Bytes::new(1514),
        ecn: false,
    };
    let there = Direction {
        queue: Queue::Codel(codel),
        loss: Loss::Random(RandomLoss { probability: 0.001 }),
        ..way(10, 15 * MS)
    };
    let back = Direction {
        queue: Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(50) }),
        ..way(10, 15 * MS)
    };
    let mut bottleneck = link("bottleneck", ["router", "server"], there, back);
    bottleneck.changes = vec![
        Change { rate: Some(Rate::from_mbps(4)), ..Change::new(Time::from_secs(8), Way::There) },
        Change { up: Some(false), ..Change::new(Time::from_secs(12), Way::Both) },
        Change { up: Some(true), ..Change::new(Time::from_secs(13), Way::Both) },
    ];
    let access = link("access", ["client", "router"], way(100, MS), way(100, MS));
    let ends = ["client", "server"];
    let mut twins = flow("twins", ends, tcp(Congestion::CUBIC, None));
    twins.count = 2;
    twins.stagger = SECOND;
    let packets = UdpFlow {
        rate: Rate::from_mbps(1),
        payload: Bytes::new(972).into(),
        arrivals: PacketArrivals::Poisson,
        on_off: None,
    };
    let mut udp = flow("udp", ends, FlowKind::Udp(packets));
    (udp.start, udp.stop) = (Time::from_secs(2), Some(Time::from_secs(15)));
    experiment(&["client", "router", "server"], vec![access, bottleneck], vec![twins, udp])
}

#[test]
fn a_scenario_is_the_same_network_as_one_built_by_hand() {
    let mut net = Network::new(Seed::new(7));
    let [client, router, server] = ["client", "router", "server"].map(|name| net.node(name));
    let quick = || LinkConfig::new(Rate::from_mbps(100), MS).mtu(Bytes::new(1500));
    let (first, first_back) = net.link(client, router, quick(), quick());
    let slow = || LinkConfig::new(Rate::from_mbps(10), 15 * MS).mtu(Bytes::new(1500));
    let codel = CodelConfig { limit: Limit::Packets(500), ..CodelConfig::default() };
    let droptail = DropTailConfig { limit: Limit::Packets(50) };
    let there = slow().queue(Codel::new(codel).unwrap()).loss(marcato_sim::Loss::Random(0.001));
    let back = slow().queue(DropTail::new(droptail).unwrap());
    let (second, second_back) = net.link(router, server, there, back);
    net.set_rate_at(second, Time::from_secs(8), Rate::from_mbps(4));
    for id in [second, second_back] {
        net.set_link_up_at(id, Time::from_secs(12), false);
        net.set_link_up_at(id, Time::from_secs(13), true);
    }
    let config = Tcp::with(Congestion::CUBIC);
    let bulk =
        || Transfer::new(client, server, config.clone(), marcato_sim::Bulk::endless()).start(Time::ZERO);
    let one = net.tcp(bulk()).unwrap();
    let two = net.tcp(bulk().start(Time::from_secs(1))).unwrap();
    let udp = Packets {
        start: Time::from_secs(2),
        stop: Time::from_secs(15),
        arrivals: marcato_sim::Arrivals::Poisson,
        ..Packets::new(client, server, Rate::from_mbps(1), Bytes::new(972))
    };
    let udp = net.udp(udp).unwrap();
    net.run_until(Time::from_secs(5));
    let links = [first, first_back, second, second_back];
    let at_five = links.map(|id| net.link_counters(id));
    let bytes_at_five = [one, two].map(|flow| net.reception(flow, Side::Server).bytes);
    net.run_until(Time::from_secs(20));

    let experiment = mixed();
    let world = build(&experiment, &Traces::new()).unwrap();
    assert_eq!(world.link("bottleneck"), Some([second, second_back]));
    assert_eq!(
        [world.flow("twins-1"), world.flow("twins-2"), world.flow("udp")],
        [Some(one), Some(two), Some(udp)]
    );
    let outcome = world.run(&mut |_: Time| ()).unwrap();
    assert_eq!(outcome.events, net.events());
    for ((id, before), seen) in links.into_iter().zip(at_five).zip(&outcome.links) {
        let counters = net.link_counters(id);
        assert_eq!(seen.offered, counters.offered - before.offered);
        assert_eq!(seen.bytes, counters.delivered_bytes - before.delivered_bytes);
        assert_eq!(
            (seen.drops, seen.losses),
            (counters.dropped - before.dropped, counters.lost - before.lost)
        );
    }
    for (place, flow) in [one, two].into_iter().enumerate() {
        let stats = net.tcp_stats(flow, Side::Client).unwrap();
        let seen = &outcome.flows[place];
        assert_eq!(seen.bytes, net.reception(flow, Side::Server).bytes - bytes_at_five[place]);
        assert_eq!(seen.min_rtt, stats.min_rtt.map(|rtt| rtt.as_secs_f64() * 1e3));
    }
    let udp = net.udp_stats(udp).unwrap();
    assert!(outcome.flows[2].bytes < udp.bytes && udp.bytes < outcome.flows[2].bytes + Bytes::kb(500));
}

#[test]
fn delay_loss_and_queue_change_at_the_set_time_and_direction() {
    let jitter = marcato_scenario::link::Jitter {
        added: marcato_scenario::link::Added::Uniform { least: 2 * MS, most: 3 * MS },
        reorder: false,
    };
    let there = Direction { jitter: Some(jitter), ..way(10, 15 * MS) };
    let mut bottleneck = link("bottleneck", ["client", "server"], there, way(10, 15 * MS));
    let at = Time::from_secs;
    let tail = |packets| Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(packets) });
    bottleneck.changes = vec![
        Change { queue: Some(tail(10)), ..Change::new(at(3), Way::There) },
        Change { delay: Some(40 * MS), ..Change::new(at(6), Way::Both) },
        Change { loss: Some(Loss::Every(PeriodicLoss { packets: 100 })), ..Change::new(at(9), Way::Back) },
        Change { delay: Some(5 * MS), reorder: false, ..Change::new(at(12), Way::Back) },
    ];
    let bulk = flow("bulk", ["client", "server"], tcp(Congestion::CUBIC, None));
    let outcome = run(&experiment(&["client", "server"], vec![bottleneck], vec![bulk]));

    let mut net = Network::new(Seed::new(7));
    let (client, server) = (net.node("client"), net.node("server"));
    let slow = |delay| LinkConfig::new(Rate::from_mbps(10), delay).mtu(Bytes::new(1500));
    let jittered = slow(17 * MS).jitter(marcato_sim::Jitter::uniform(MS));
    let (there, back) = net.link(client, server, jittered, slow(15 * MS));
    let tail = || Box::new(DropTail::new(DropTailConfig { limit: Limit::Packets(10) }).unwrap());
    net.change_link_at(there, at(3), LinkChange::Queue { queue: tail(), low: None });
    // The constant part of the jitter stays.
    net.change_link_at(there, at(6), LinkChange::Delay { delay: 42 * MS, reorder: true });
    net.change_link_at(back, at(6), LinkChange::Delay { delay: 40 * MS, reorder: true });
    net.change_link_at(back, at(9), LinkChange::Loss(marcato_sim::Loss::Every(100)));
    net.change_link_at(back, at(12), LinkChange::Delay { delay: 5 * MS, reorder: false });
    let config = Tcp::with(Congestion::CUBIC);
    net.tcp(Transfer::new(client, server, config, marcato_sim::Bulk::endless())).unwrap();
    net.run_until(at(5));
    let before = [there, back].map(|link| net.link_counters(link));
    net.run_until(at(20));
    assert_eq!(outcome.events, net.events());
    for ((id, before), seen) in [there, back].into_iter().zip(before).zip(&outcome.links) {
        let counters = net.link_counters(id);
        assert_eq!(seen.bytes, counters.delivered_bytes - before.delivered_bytes);
        assert_eq!(
            (seen.drops, seen.losses),
            (counters.dropped - before.dropped, counters.lost - before.lost)
        );
    }
    // After the warm-up, only the new queue holds packets.
    assert_eq!(outcome.links[0].waiting.most_packets, 10);
    assert!(outcome.links[0].drops > 0 && outcome.links[1].losses > 10);
}

#[test]
fn marks_and_verdicts_of_a_replaced_queue_still_count() {
    let codel = CodelConfig {
        target: MS,
        interval: 20 * MS,
        limit: queue::Limit::Packets(1000),
        maxpacket: Bytes::new(1514),
        ecn: true,
    };
    let crq = queue::Crq {
        codel,
        standard: queue::Standard::Codel,
        responsive: queue::Responsive::Codel,
        young: None,
        preset: Preset::Marcato,
        sharing: queue::Sharing::Weighted,
        flows: 64,
    };
    let mut slow = link(
        "slow",
        ["client", "server"],
        Direction { queue: Queue::Crq(crq), ..way(10, 10 * MS) },
        way(10, 10 * MS),
    );
    let to = |queue, secs| Change { queue: Some(queue), ..Change::new(Time::from_secs(secs), Way::There) };
    slow.changes = vec![to(Queue::Codel(codel), 10), to(Queue::Crq(crq), 15)];
    let tcp = Tcp { congestion: Congestion::Reno, ecn: true, ..Tcp::default() };
    let kind = FlowKind::Tcp(TcpFlow::new(TcpEnds { from: tcp.clone(), to: tcp }));
    let mut experiment =
        experiment(&["client", "server"], vec![slow], vec![flow("bulk", ["client", "server"], kind)]);
    let marks = Series::Link { link: "slow".into(), back: false, metric: LinkMetric::Marks };
    experiment.record.series = vec![marks];
    experiment.record.every = SECOND;
    let outcome = run(&experiment);
    let points: Vec<f64> = outcome.series[0].points.iter().map(|point| point.1.unwrap()).collect();
    assert!(points.is_sorted() && points[9] < points[14] && points[14] < points[19], "{points:?}");
    let responsive = outcome.links[0].responsive.unwrap();
    // Of the bytes under CRQ all but those before a verdict, at the start and after the change. One clear response gives
    // a verdict: slow start's takes a quarter of a second each time.
    assert!((0.95..=0.99).contains(&responsive), "{responsive}");
}

#[test]
fn looking_changes_nothing_and_returns_the_state() {
    let mut experiment = mixed();
    // A link with random loss is full in each of the samples below as long as both flows keep to their reductions:
    // where some are undone, CoDel drops more at once, and one sample of 70 ms is at 0.895.
    if let FlowKind::Tcp(twins) = &mut experiment.flows[0].kind {
        (twins.tcp.from.undo, twins.tcp.to.undo) = (false, false);
    }
    let silent = run(&experiment);
    let of_flow = |metric: &FlowMetric| Series::Flow { flow: "twins".into(), metric: *metric };
    let of_link =
        |metric: &LinkMetric| Series::Link { link: "bottleneck".into(), back: false, metric: *metric };
    experiment.record.series = FlowMetric::ALL.iter().map(of_flow).collect();
    experiment.record.series.extend(LinkMetric::ALL.iter().map(of_link));
    experiment.record.every = 70 * MS;
    let outcome = run(&experiment);
    assert_eq!(Outcome { series: vec![], ..outcome.clone() }, silent);
    assert_eq!(outcome.series.len(), 2 * FlowMetric::ALL.len() + LinkMetric::ALL.len());
    let series = |name: &str| &outcome.series.iter().find(|series| series.name == name).unwrap().points;
    assert_eq!(series("flow.twins-1.cwnd").len(), 285);
    assert_eq!(series("flow.twins-1.cwnd")[1].0, Time::from_millis(140));
    let total = |name: &str| series(name).iter().map(|point| point.1.unwrap()).sum::<f64>();
    // Over all samples, the rates add up to what the flow and the link carried, except for the last
    // 50 ms.
    let carried = total("link.bottleneck.throughput") * 0.07 / 8.0;
    assert!((13.0..16.5).contains(&carried), "{carried} MB");
    // At 13 to 20 s the rate is 4 Mbit/s and the link full.
    let used = series("link.bottleneck.utilisation");
    let late: Vec<f64> = used[250..].iter().map(|point| point.1.unwrap()).collect();
    assert!(late.iter().all(|used| (0.9..=1.0).contains(used)), "{late:?}");
}

#[test]
fn a_full_buffer_is_seen_as_such() {
    let there = Direction {
        queue: Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(40) }),
        ..way(10, 10 * MS)
    };
    let slow = link("slow", ["a", "b"], there, way(10, 10 * MS));
    let udp = UdpFlow {
        rate: Rate::from_mbps(20),
        payload: Bytes::new(1222).into(),
        arrivals: PacketArrivals::Constant,
        on_off: None,
    };
    let mut experiment =
        experiment(&["a", "b"], vec![slow], vec![flow("flood", ["a", "b"], FlowKind::Udp(udp))]);
    let metric = LinkMetric::QueueDelay;
    experiment.record.series =
        [false, true].map(|back| Series::Link { link: "slow".into(), back, metric }).to_vec();
    let outcome = run(&experiment);
    let slow = &outcome.links[0];
    assert_eq!(slow.waiting.most_packets, 40);
    assert!((39.0..=40.0).contains(&slow.waiting.mean_packets), "{:?}", slow.waiting);
    assert!((0.999..=1.001).contains(&slow.utilisation.unwrap()));
    // 40 packets of 1 ms, and the rest of the one in transmission.
    let waited = slow.queue_delay.unwrap();
    assert!((39 * MS..=40 * MS).contains(&waited.mean), "{waited:?}");
    assert!(waited.max <= 40 * MS && waited.p50 >= 38 * MS, "{waited:?}");
    assert_eq!(waited.count, 15_000);
    // The link back carried nothing, so it has no delay.
    assert_eq!(outcome.links[1].queue_delay, None);
    let seen: Vec<f64> = outcome.series[0].points.iter().map(|point| point.1.unwrap()).collect();
    assert!(seen[5..].iter().all(|delay| (39.0..=40.0).contains(delay)), "{seen:?}");
    assert!(outcome.series[1].points.iter().all(|point| point.1.is_none()));
    // 40 packets of 1 ms and one in transmission, then 10 ms of propagation: 50 to 51 ms.
    let delay = outcome.flows[0].delay.unwrap();
    assert!((50.0..=51.1).contains(&delay), "{delay}");
    assert!((slow.drops as i64 - 15_000).abs() < 10, "{}", slow.drops);
}

#[test]
fn only_preemption_keeps_a_high_flow_unchanged_by_a_low_one() {
    let bounded =
        |packets| Box::new(Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(packets) }));
    let goodput = |preempt, with_low: bool| {
        let queue = Queue::Strict(queue::Strict { high: bounded(20), low: bounded(20), preempt });
        let there = Direction { queue, ..way(10, Duration::from_millis(10)) };
        let link = link("bottleneck", ["client", "server"], there, way(10, Duration::from_millis(10)));
        let (rate, payload) = (Rate::from_mbps(6), Bytes::new(500).into());
        let packets =
            FlowKind::Udp(UdpFlow { rate, payload, arrivals: PacketArrivals::Poisson, on_off: None });
        let high = flow("high", ["client", "server"], packets);
        let low = flow("low", ["client", "server"], tcp(Congestion::Reno, None));
        let low = with_low.then_some(Flow { layer: Layer::Low, ..low });
        let flows = [high].into_iter().chain(low).collect();
        let outcome = run(&experiment(&["client", "server"], vec![link], flows));
        (outcome.flows[0].clone(), outcome.links[0].waiting.most_packets)
    };
    let (alone, beside) = (goodput(true, false), goodput(true, true));
    assert_eq!(alone.0, beside.0);
    assert!(alone.1 < 20 && beside.1 > 20, "both queues count: {} and {}", alone.1, beside.1);
    assert_ne!(goodput(false, false).0, goodput(false, true).0);
}

#[test]
fn a_low_layer_fills_a_link_too_lossy_for_reno_and_is_counted() {
    let bounded = || Box::new(Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(200) }));
    let reno = |low_layer| {
        let queue = Queue::Strict(queue::Strict { high: bounded(), low: bounded(), preempt: false });
        let loss = Loss::Random(RandomLoss { probability: 0.002 });
        let there = Direction { queue, loss, ..way(20, Duration::from_millis(40)) };
        let link = link("bottleneck", ["client", "server"], there, way(20, Duration::from_millis(40)));
        let buffer = Bytes::new(64 << 20);
        let tcp = Tcp {
            congestion: Congestion::Reno,
            send_buffer: buffer,
            receive_buffer: buffer,
            low_layer,
            ..Tcp::default()
        };
        let kind = FlowKind::Tcp(TcpFlow::new(TcpEnds { from: tcp.clone(), to: tcp }));
        let flows = vec![flow("bulk", ["client", "server"], kind)];
        let mut experiment = experiment(&["client", "server"], vec![link], flows);
        let metric = FlowMetric::LowWindow;
        experiment.record.series = vec![Series::Flow { flow: "bulk".into(), metric }];
        run(&experiment)
    };
    let alone = reno(None);
    assert!(alone.flows[0].goodput < 8.0, "{}", alone.flows[0].goodput);
    assert_eq!(alone.flows[0].low, None);
    assert!(alone.series[0].points.iter().all(|point| point.1.is_none()));
    // The paper's first window is for a path of 2500 packets; here there is room for 134 and a
    // buffer.
    for low_layer in [LowLayer { initial_window: 134, ..LowLayer::PAPER }, LowLayer::MARCATO] {
        let layered = reno(Some(low_layer));
        let bulk = &layered.flows[0];
        let low = bulk.low.unwrap();
        assert!(bulk.goodput > 17.0, "{}", bulk.goodput);
        assert!(
            low.packets > 10_000 && low.lost > 0 && low.repairs > 0 && low.repairs <= low.lost,
            "{low:?}"
        );
        // The low layer carried part of the data: it counts data out of order too, so it may be
        // slightly ahead.
        assert!(low.bytes > bulk.bytes / 2 && low.bytes < bulk.bytes + Bytes::kb(1000), "{low:?}");
        assert!(
            layered.series[0].points.iter().any(|point| point.1.is_some_and(|window| window > 100_000.0))
        );
    }
}

#[test]
fn fq_codel_keeps_a_trickle_from_waiting_behind_bulk_data() {
    let codel = CodelConfig {
        target: MS * 5,
        interval: MS * 100,
        limit: queue::Limit::Packets(1000),
        maxpacket: Bytes::new(1514),
        ecn: false,
    };
    let delay = |queue: Queue| {
        let there = Direction { queue, ..way(10, Duration::from_millis(10)) };
        let link = link("bottleneck", ["client", "server"], there, way(10, Duration::from_millis(10)));
        let (rate, payload) = (Rate::from_bps(80_000), Bytes::new(172).into());
        let trickle =
            FlowKind::Udp(UdpFlow { rate, payload, arrivals: PacketArrivals::Poisson, on_off: None });
        let flows = vec![
            flow("bulk", ["client", "server"], tcp(Congestion::CUBIC, None)),
            flow("trickle", ["client", "server"], trickle),
        ];
        let outcome = run(&experiment(&["client", "server"], vec![link], flows));
        outcome.flows[1].delay.unwrap()
    };
    let fair = delay(Queue::FqCodel(FqCodelConfig {
        codel,
        flows: 1024,
        quantum: Bytes::new(1514),
        perturbation: 0,
    }));
    let one = delay(Queue::Codel(codel));
    // 10 ms of propagation, 0.16 ms of its own, and at most the bulk packet in transmission: 1.2
    // ms.
    assert!(fair < 11.5 && one > 13.0, "{fair} and {one}");
}

#[test]
fn crq_keeps_a_flow_that_answers_from_one_that_does_not() {
    let codel = CodelConfig {
        target: MS * 5,
        interval: MS * 100,
        limit: queue::Limit::Packets(200),
        maxpacket: Bytes::new(1514),
        ecn: false,
    };
    let crq = queue::Crq {
        codel,
        standard: queue::Standard::Codel,
        responsive: queue::Responsive::Codel,
        young: None,
        preset: Preset::Marcato,
        sharing: queue::Sharing::Weighted,
        flows: 64,
    };
    let beside_a_flood = |queue: Queue| {
        let there = Direction { queue, ..way(20, Duration::from_millis(10)) };
        let link = link("bottleneck", ["client", "server"], there, way(100, Duration::from_millis(10)));
        let (rate, payload) = (Rate::from_mbps(18), Bytes::new(1200).into());
        let flood =
            FlowKind::Udp(UdpFlow { rate, payload, arrivals: PacketArrivals::Constant, on_off: None });
        let flood = Flow { start: Time::from_secs(3), ..flow("flood", ["client", "server"], flood) };
        let flows = vec![flow("bulk", ["client", "server"], tcp(Congestion::CUBIC, None)), flood];
        let mut experiment = experiment(&["client", "server"], vec![link], flows);
        experiment.duration = Duration::from_secs(30);
        experiment.warm_up = Duration::from_secs(10);
        let outcome = run(&experiment);
        let reports = [0, 1].map(|flow| outcome.flows[flow].report);
        (outcome.flows[0].goodput, outcome.links[0].responsive, reports)
    };
    let (alone, nobody, silent) = beside_a_flood(Queue::Codel(codel));
    let (fair, responsive, reports) = beside_a_flood(Queue::Crq(crq));
    assert_eq!(silent, [None, None]);
    let [bulk, flood] = reports.map(Option::unwrap);
    assert!(bulk.responsive().unwrap() > 0.5 && bulk.class == Class::Responsive, "{bulk:?}");
    assert!(flood.responsive().is_none() && flood.class == Class::Standard, "{flood:?}");
    assert!(alone < 5.0 && nobody.is_none(), "{alone} and {nobody:?}");
    // Half of the link, minus headers; the flood offers more than passes.
    let responsive = responsive.unwrap();
    assert!(fair > 9.0 && (0.3..0.4).contains(&responsive), "{fair} and {responsive}");
}

#[test]
fn a_transfer_reports_completion_time_and_goodput_of_its_span() {
    let bottleneck = link("l", ["a", "b"], way(8, 5 * MS), way(8, 5 * MS));
    let mut transfer = flow("t", ["a", "b"], tcp(Congestion::Reno, Some(Bytes::kb(2_000))));
    transfer.start = Time::from_secs(6);
    let mut stopped = flow("s", ["a", "b"], tcp(Congestion::Reno, None));
    (stopped.start, stopped.stop) = (Time::from_secs(12), Some(Time::from_secs(14)));
    let outcome = run(&experiment(&["a", "b"], vec![bottleneck], vec![transfer, stopped]));
    let [transfer, stopped] = &outcome.flows[..] else { panic!("two flows") };
    // 2 MB and headers at 8 Mbit/s: 2072 ms, after a handshake and a slow start of few rounds.
    let [fct] = transfer.times[0].done[..] else { panic!("one transfer") };
    assert!((2_070.0..2_200.0).contains(&fct), "{fct}");
    assert_eq!(transfer.bytes, Bytes::kb(2_000));
    assert!((transfer.goodput - 16_000.0 / fct).abs() < 0.01);
    assert!(stopped.finished.unwrap() > Time::from_secs(14));
    assert!(stopped.times.is_empty());
}

fn messages(feeder: Feeder, size: u64) -> FlowKind {
    let tcp = Tcp { send_buffer: Bytes::new(131_072), ..Tcp::default() };
    FlowKind::Messages(Box::new(Messages {
        tcp: TcpEnds { from: tcp.clone(), to: tcp },
        feeder,
        messaging: Messaging {
            coupled: Default::default(),
            preset: DebtRules::Marcato,
            chunk: Bytes::new(1448),
            messages: vec![Message {
                name: None,
                after: 8 * SECOND,
                size: Bytes::kb(3),
                priority: Priority::P1,
                lifetime: None,
            }],
            sources: vec![source(size)],
            bulk: vec![Bulk { priority: Priority::P4, size: Bytes::kb(100) }],
            workload: None,
        },
    }))
}

fn source(size: u64) -> Source {
    Source {
        period: 100 * MS,
        size: Bytes::new(size),
        priority: Priority::P0,
        first: SECOND,
        release: Release::Periodic,
        redundancy: Redundancy::Once,
        lifetime: None,
        declared: true,
        named: true,
    }
}

#[test]
fn urgent_messages_pass_bulk_only_with_a_conductor() {
    let mean = |feeder| {
        let queue = Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(20) });
        let there = Direction { queue, ..way(4, 10 * MS) };
        let bottleneck = link("l", ["a", "b"], there, way(4, 10 * MS));
        let kind = messages(feeder, 500);
        let outcome = run(&experiment(&["a", "b"], vec![bottleneck], vec![flow("m", ["a", "b"], kind)]));
        let flow = &outcome.flows[0];
        // The bulk data fills the link with every order.
        assert!((3.6..3.9).contains(&flow.goodput), "{feeder:?} {}", flow.goodput);
        let [source, single, bulk] = &flow.times[..] else { panic!("three kinds") };
        assert_eq!([&*source.name, &*single.name, &*bulk.name], ["source-1", "messages", "bulk-1"]);
        assert_eq!((source.released, single.released), (150, 1));
        assert!(bulk.done.len() > 60);
        assert_eq!(source.refused + bulk.refused, 0);
        source.done.iter().sum::<f64>() / source.done.len() as f64
    };
    let [conducted, greedy, writers, fifo] =
        [Feeder::Conductor, Feeder::Greedy, Feeder::Writers, Feeder::Fifo].map(mean);
    // All of them wait for what is in the network; all except the first also for the send buffer of
    // 131 kB.
    assert!(conducted + 50.0 < greedy, "{conducted} {greedy}");
    assert!(conducted + 50.0 < writers && writers < fifo, "{conducted} {writers} {fifo}");
}

/// Four messages in sequence. The second and the last have names, and the last comes too late.
fn four(names: bool) -> Vec<Message> {
    let message = |name: Option<&str>, at: u32, size: u64| Message {
        name: name.filter(|_| names).map(str::to_owned),
        after: at * MS,
        size: Bytes::new(size),
        priority: Priority::P1,
        lifetime: None,
    };
    vec![
        message(None, 6_000, 10_000),
        message(Some("page"), 7_000, 50_000),
        message(None, 8_000, 20_000),
        // At the end of the run it is younger than the page's completion time: it might still
        // complete in time.
        message(Some("late"), 19_950, 50_000_000),
    ]
}

#[test]
fn naming_a_message_adds_its_own_line_and_keeps_the_flow_times() {
    let over_tcp = |names| match messages(Feeder::Conductor, 500) {
        FlowKind::Messages(mut kind) => {
            (kind.messaging.messages, kind.messaging.bulk) = (four(names), vec![]);
            FlowKind::Messages(kind)
        }
        kind => kind,
    };
    let over_quic = |names| {
        let path = Path { from: "a".into(), to: "b".into(), layer: Layer::High };
        let mut quic = session(vec![path]);
        (quic.messaging.messages, quic.messaging.bulk) = (four(names), vec![]);
        FlowKind::Quic(Box::new(quic))
    };
    let ran = |kind| {
        let bottleneck = link("l", ["a", "b"], way(8, 10 * MS), way(8, 10 * MS));
        let outcome = run(&experiment(&["a", "b"], vec![bottleneck], vec![flow("m", ["a", "b"], kind)]));
        outcome.flows[0].clone()
    };
    for (named, unnamed) in [(over_tcp(true), over_tcp(false)), (over_quic(true), over_quic(false))] {
        let (named, unnamed) = (ran(named), ran(unnamed));
        let singles: Vec<_> = named.times.iter().filter(|times| !times.name.starts_with("source")).collect();
        let names: Vec<&str> = singles.iter().map(|times| times.name.as_str()).collect();
        assert_eq!(names, ["messages", "page", "late"], "{}", named.kind);
        assert_eq!((singles[0].released, singles[0].done.len()), (2, 2));
        // 50 kB at 8 Mbit/s take 50 ms and the headers, and 10 ms of propagation.
        let page = singles[1].alone.unwrap();
        let took = page.completed.unwrap() - page.released;
        assert_eq!(page.released, Time::from_secs(7));
        assert!(took > 60 * MS && took < 300 * MS, "{took:?}");
        assert_eq!(singles[1].done, [took.as_secs_f64() * 1e3]);
        assert_eq!(singles[1].priority, Some(Priority::P1));
        let late = singles[2].alone.unwrap();
        assert_eq!((late.released, late.completed), (Time::from_millis(19_950), None));
        let sorted = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all
        };
        assert_eq!(sorted(named.completions()), sorted(unnamed.completions()));
        assert_eq!(unnamed.times.last().unwrap().released, 4);
    }
}

/// Session with bulk data.
fn session(paths: Vec<Path>) -> Quic {
    Quic {
        paths,
        scheduler: Scheduler::Cwr(Reserving::PAPER),
        layered: false,
        controller: Controller::NewReno(NewReno { loss_reduction: 0.7 }),
        initial_window: None,
        messaging: Messaging {
            coupled: Default::default(),
            preset: DebtRules::Marcato,
            chunk: Bytes::new(1460),
            messages: vec![],
            sources: vec![],
            bulk: vec![Bulk { priority: Priority::P4, size: Bytes::kb(1_000) }],
            workload: None,
        },
        pacing: Pacing::Off,
        growth: Growth::Acknowledged,
        streams: StreamUse::PerMessage,
        batch: 1,
        initial_mtu: Bytes::new(1350),
        mtu_discovery: false,
        packet_threshold: 3,
        time_threshold: 1.125,
        initial_rtt: Duration::from_millis(333),
    }
}

#[test]
fn where_losses_limit_a_high_lane_a_low_one_raises_goodput() {
    let bounded = || Box::new(Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(150) }));
    let goodput = |layers: &[Layer]| {
        let path = |&layer| Path { from: "client".into(), to: "server".into(), layer };
        let paths = layers.iter().map(path).collect();
        let quic = Quic { layered: layers.len() == 2, pacing: Pacing::Session, ..session(paths) };
        let queue = Queue::Strict(queue::Strict { high: bounded(), low: bounded(), preempt: false });
        let there =
            Direction { queue, loss: Loss::Random(RandomLoss { probability: 0.002 }), ..way(20, 30 * MS) };
        let link = link("bottleneck", ["client", "server"], there, way(20, 30 * MS));
        let flows = vec![flow("session", ["client", "server"], FlowKind::Quic(Box::new(quic)))];
        let outcome = run(&experiment(&["client", "server"], vec![link], flows));
        (outcome.flows[0].goodput, outcome.flows[0].lanes.iter().map(|lane| lane.bytes).max().unwrap())
    };
    let (one, all) = goodput(&[Layer::High]);
    let (two, most) = goodput(&[Layer::High, Layer::Low]);
    assert!(one < 10.0 && two > 16.0 && most > all, "{one} and {two}: {all} and {most}");
}

#[test]
fn two_paths_carry_a_session_and_its_urgent_messages_in_time() {
    let paths = |name: &str| Path { from: name.into(), to: "server".into(), layer: Layer::High };
    let mut quic = session(vec![paths("wifi"), paths("cellular")]);
    quic.messaging.messages = vec![Message {
        name: None,
        after: 9 * SECOND,
        size: Bytes::kb(5),
        priority: Priority::P1,
        lifetime: None,
    }];
    quic.messaging.sources = vec![source(10_000)];
    let queue = Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(60) });
    let radio = || Direction { queue: queue.clone(), ..way(10, 25 * MS) };
    let links = vec![
        link("wifi", ["wifi", "server"], radio(), radio()),
        link("lte", ["cellular", "server"], radio(), radio()),
    ];
    let session = flow("session", ["wifi", "server"], FlowKind::Quic(Box::new(quic)));
    let mut experiment = experiment(&["wifi", "cellular", "server"], links, vec![session]);
    experiment.duration = 10 * SECOND;
    experiment.record.series = vec![Series::Flow { flow: "session".into(), metric: FlowMetric::Cwnd }];
    experiment.record.series.push(Series::Flow { flow: "session".into(), metric: FlowMetric::Delay });
    let [outcome, again] = [(), ()].map(|()| run(&experiment));
    assert_eq!(outcome, again);
    let session = &outcome.flows[0];
    assert!((14.0..20.0).contains(&session.goodput), "{}", session.goodput);
    let [source, single] = &session.times[..] else { panic!("two kinds") };
    assert_eq!((source.released, source.refused, single.done.len()), (50, 0, 1));
    // 25 ms of propagation, up to 66 ms in a full queue and 9 ms of its own; if a packet is lost,
    // one and a half round trips more.
    let in_time = |most: f64| source.done.iter().filter(|&&took| (25.0..most).contains(&took)).count();
    assert!(
        source.done.len() >= 49 && in_time(100.0) >= 45 && in_time(276.0) == source.done.len(),
        "{source:?}"
    );
    assert_eq!(session.lanes.len(), 2);
    assert!(session.lanes.iter().all(|lane| lane.bytes > Bytes::kb(1_000)), "{:?}", session.lanes);
    assert!(outcome.series[0].points.last().unwrap().1.unwrap() > 50_000.0);
    // 25 ms of propagation, up to 1.1 ms of its own, and up to 66 ms in the queue; after the
    // warm-up every sample has a value.
    let delays: Vec<f64> = outcome.series[1].points.iter().skip(50).map(|point| point.1.unwrap()).collect();
    assert!(delays.len() == 50 && delays.iter().all(|delay| (25.0..93.0).contains(delay)), "{delays:?}");
}

#[test]
fn a_name_that_does_not_exist_is_reported() {
    let plain = || link("l", ["a", "b"], way(8, MS), way(8, MS));
    let said = |experiment: &Experiment| match build(experiment, &Traces::new()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it was built"),
    };
    let lost =
        experiment(&["a", "b"], vec![plain()], vec![flow("f", ["a", "c"], tcp(Congestion::Reno, None))]);
    assert_eq!(said(&lost), "flow `f` names the node `c`, which does not exist: add it to the nodes");
    let mut traced = experiment(&["a", "b"], vec![plain()], vec![]);
    traced.links[0].there.rate = Capacity::Trace("lte.up".into());
    assert_eq!(
        said(&traced),
        "the link `l` follows the trace `lte.up`, which was not loaded: pass it in the traces"
    );
    traced.links[0] = plain();
    traced.links[0].there.queue = Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(0) });
    let Err(BuildError::Queue { link, source }) = build(&traced, &Traces::new()) else {
        panic!("it was built")
    };
    assert!(link == "l" && source.is::<marcato_queue::LimitError>(), "{link}: {source}");
    let mut recorded = experiment(&["a", "b"], vec![plain()], vec![]);
    recorded.record.series = vec![Series::Flow { flow: "g".into(), metric: FlowMetric::Cwnd }];
    assert!(said(&recorded).contains("`flow.g.cwnd` is recorded, which does not exist"));
}

#[test]
fn links_have_names_and_directions() {
    let outcome = run(&mixed());
    let names: Vec<(&str, bool)> = outcome.links.iter().map(|link| (&*link.name, link.back)).collect();
    assert_eq!(names, [("access", false), ("access", true), ("bottleneck", false), ("bottleneck", true)]);
    let world = build(&mixed(), &Traces::new()).unwrap();
    assert_eq!(world.link("none"), None::<[LinkId; 2]>);
    assert_eq!(world.duration(), 20 * SECOND);
}

#[test]
fn connections_that_come_and_go_and_questions_are_timed_each() {
    let bottleneck = link("l", ["a", "b"], way(10, 10 * MS), way(10, 10 * MS));
    let ends = TcpEnds::default();
    let process = TcpProcess {
        tcp: ends.clone(),
        arrivals: Arrivals::Load(Rate::from_mbps(3)),
        size: Size::Pareto { shape: 1.5, mean: Bytes::kb(30), most: Bytes::kb(600) },
        most_open: 100,
    };
    let asking = RequestResponse {
        tcp: ends,
        request: Bytes::new(200),
        response: Size::Constant(Bytes::kb(20)),
        think: Pause::Constant(80 * MS),
        requests: None,
    };
    let web = flow("web", ["a", "b"], FlowKind::TcpProcess(process));
    let mut ask = flow("ask", ["b", "a"], FlowKind::RequestResponse(asking));
    ask.stop = Some(Time::from_secs(15));
    let mut experiment = experiment(&["a", "b"], vec![bottleneck], vec![web, ask]);
    experiment.duration = 60 * SECOND;
    let outcome = run(&experiment);
    let [web, ask] = &outcome.flows[..] else { panic!("two flows") };
    let [transfers] = &web.times[..] else { panic!("one kind") };
    // 3 Mbit/s in files of 27.6 kB (30 kB without the cap): 13.6 per second for 55 s, 747 in all,
    // with a deviation of 27; five of them.
    assert!((610..890).contains(&transfers.released), "{}", transfers.released);
    assert_eq!(transfers.done.len() + transfers.open.len(), usize::try_from(transfers.released).unwrap());
    // At least two round trips.
    assert!(transfers.done.iter().all(|&took| took > 30.0));
    let [responses] = &ask.times[..] else { panic!("one kind") };
    // From 5 s to 15 s, each after 80 ms and a round trip or slightly more.
    assert!((75..100).contains(&responses.done.len()), "{}", responses.done.len());
    assert!(responses.done.iter().all(|took| (20.0..400.0).contains(took)), "{responses:?}");
    assert_eq!(ask.bytes.get() / 20_000, responses.done.len() as u64);
}

/// Watcher that keeps all captures.
#[derive(Default)]
struct Kept {
    files: std::collections::BTreeMap<(String, bool), Vec<u8>>,
    together: Vec<u8>,
    secrets: String,
    at: Time,
}

impl Watcher for Kept {
    fn time(&mut self, now: Time) {
        self.at = now;
    }

    fn captured(&mut self, link: &str, back: bool, part: &[u8]) {
        self.files.entry((link.to_owned(), back)).or_default().extend_from_slice(part);
    }

    fn captured_together(&mut self, part: &[u8]) {
        self.together.extend_from_slice(part);
    }

    fn secrets(&mut self, lines: &str) {
        self.secrets += lines;
    }
}

#[test]
fn packets_of_a_link_are_captured_in_both_directions() {
    let mut experiment = mixed();
    let silent = run(&experiment);
    experiment.record.pcap.links = vec!["bottleneck".into()];
    let mut kept = Kept::default();
    assert_eq!(build(&experiment, &Traces::new()).unwrap().run(&mut kept).unwrap(), silent);
    assert_eq!((kept.files.len(), kept.at), (2, Time::from_secs(20)));
    assert!(kept.together.is_empty() && kept.secrets.is_empty());
    for file in kept.files.values() {
        assert_eq!(file[..4], 0xa1b2_3c4d_u32.to_le_bytes());
        assert!(file.len() > 100_000);
    }
    experiment.record.pcap.links = vec!["none".into()];
    assert!(build(&experiment, &Traces::new()).is_err());
}

/// Session of two seconds over a link that is captured.
fn captured_session(pcap: Pcap) -> Kept {
    let paths = vec![Path { from: "client".into(), to: "server".into(), layer: Layer::High }];
    let session = flow("session", ["client", "server"], FlowKind::Quic(Box::new(session(paths))));
    let access = link("access", ["client", "router"], way(100, 4 * MS), way(100, 4 * MS));
    let core = link("core", ["router", "server"], way(10, 13 * MS), way(10, 13 * MS));
    let mut experiment = experiment(&["client", "router", "server"], vec![access, core], vec![session]);
    (experiment.duration, experiment.warm_up) = (2 * SECOND, Duration::ZERO);
    let silent = run(&experiment);
    experiment.record.pcap = pcap;
    let mut kept = Kept::default();
    assert_eq!(build(&experiment, &Traces::new()).unwrap().run(&mut kept).unwrap(), silent);
    kept
}

#[test]
fn a_session_capture_puts_secrets_before_packets_they_decrypt() {
    let links = vec!["access".to_owned(), "core".to_owned()];
    let pcap = Pcap { links, snaplen: None, format: CaptureFormat::PcapNg };
    let kept = captured_session(pcap.clone());
    assert!(kept.files.is_empty());
    // draft-ietf-tls-keylogfile: label, client random, secret.
    let mut labels = Vec::new();
    for line in kept.secrets.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        assert!(parts.len() == 3 && parts[1].len() == 64 && parts[2].len() >= 64, "{line}");
        labels.push(parts[0]);
    }
    for secret in [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ] {
        assert_eq!(labels.iter().filter(|label| **label == secret).count(), 1, "{labels:?}");
    }
    // In the file: a section, four interfaces, the client's hello alone before the secrets, and all
    // other packets after them.
    let long = |at: usize| u32::from_le_bytes(kept.together[at..at + 4].try_into().unwrap());
    let (mut at, mut kinds) = (0, Vec::new());
    while at < kept.together.len() {
        kinds.push(long(at));
        let len = long(at + 4) as usize;
        assert_eq!(long(at + len - 4) as usize, len);
        at += len;
    }
    assert_eq!(kinds[..5], [0x0a0d_0d0a, 1, 1, 1, 1]);
    let secrets = kinds.iter().position(|&kind| kind == 10).unwrap();
    assert!(kinds[5..secrets].iter().all(|&kind| kind == 6) && secrets <= 8, "{:?}", &kinds[..20]);
    assert!(kinds[secrets + 1..].iter().all(|&kind| kind == 6) && kinds.len() > 500);
    // Separate files have the same packets.
    let apart = captured_session(Pcap { format: CaptureFormat::Pcap, ..pcap });
    assert!(apart.together.is_empty() && !apart.secrets.is_empty());
    let bytes: usize = apart.files.values().map(|file| file.len() - 24).sum();
    let packets = kinds.iter().filter(|&&kind| kind == 6).count();
    // Each packet has 16 bytes before it here and 32 around it there, and padding to a multiple of
    // four.
    let padded = kept.together.len() - 28 - 4 * 20 - 24 * 2;
    assert!(
        bytes + 16 * packets <= padded && padded <= bytes + 19 * packets + 4000,
        "{bytes} {padded} {packets}"
    );
}

#[test]
fn a_sender_that_is_on_and_off_sends_while_it_is_on() {
    let FlowKind::Tcp(mut bulk) = tcp(Congestion::Reno, None) else { panic!("tcp") };
    let pause = Pause::Constant(SECOND);
    bulk.on_off = Some(OnOff { on: pause, off: pause });
    bulk.tcp.from.notsent_lowat = Some(Bytes::kb(6));
    let queue = Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(20) });
    let bottleneck = link("l", ["a", "b"], Direction { queue, ..way(8, 5 * MS) }, way(8, 5 * MS));
    let mut experiment =
        experiment(&["a", "b"], vec![bottleneck], vec![flow("f", ["a", "b"], FlowKind::Tcp(bulk))]);
    experiment.record.series = vec![Series::Flow { flow: "f".into(), metric: FlowMetric::Throughput }];
    experiment.record.every = SECOND;
    let outcome = run(&experiment);
    for (at, rate) in &outcome.series[0].points {
        let is_on = at.as_nanos() / 1_000_000_000 % 2 == 1;
        assert!(rate.is_some_and(|rate| if is_on { rate > 5.0 } else { rate < 1.0 }), "{at} {rate:?}");
    }
}

#[test]
fn flows_spread_over_pairs_share_only_their_common_links() {
    // Two separate pairs of nodes and four flows: each link carries two of them.
    let separate = |name: &str, ends| link(name, ends, way(10, 10 * MS), way(10, 10 * MS));
    let links = vec![separate("one", ["a", "b"]), separate("two", ["c", "d"])];
    let mut spread = flow("f", ["a", "b"], tcp(Congestion::CUBIC, None));
    (spread.also, spread.count) = (vec![["c".into(), "d".into()]], 4);
    let session = |count| {
        let path = Path { from: "a".into(), to: "b".into(), layer: Layer::High };
        let kind = FlowKind::Quic(Box::new(session(vec![path])));
        Flow { also: vec![["c".into(), "d".into()]], count, ..flow("q", ["a", "b"], kind) }
    };
    let outcome = run(&experiment(&["a", "b", "c", "d"], links.clone(), vec![spread]));
    let goodput = |of: usize| outcome.flows[of].goodput;
    for pair in [[0, 2], [1, 3]] {
        let sum = goodput(pair[0]) + goodput(pair[1]);
        assert!((9.0..10.0).contains(&sum), "{pair:?}: {sum}");
    }
    let outcome = run(&experiment(&["a", "b", "c", "d"], links, vec![session(2)]));
    let lanes: Vec<&str> = outcome.flows.iter().map(|flow| flow.lanes[0].name.as_str()).collect();
    assert_eq!(lanes, ["a>b", "c>d"]);
    assert!(outcome.flows.iter().all(|flow| flow.goodput > 8.0), "{:?}", outcome.flows);
}

/// Scenario of a client and a server on one link with these keys.
fn parsed(link: &str, flow: &str) -> Result<Experiment, marcato_scenario::ScenarioError> {
    let text = format!(
        "name = \"one\"\nduration = \"5 s\"\nnodes = [\"client\", \"server\"]\n[[link]]\nbetween = [\"client\", \"server\"]\n{link}\n\
         [[flow]]\nname = \"flow\"\nfrom = \"client\"\nto = \"server\"\n{flow}\n"
    );
    marcato_scenario::Scenario::parse("one.toml", &text).map(|scenario| scenario.experiment().clone())
}

#[test]
fn a_loop_that_takes_no_time_ends_the_run_with_an_error() {
    let free = || Direction { rate: Capacity::Unlimited, delay: Duration::ZERO, ..way(1, MS) };
    let tcp = Tcp { receive_buffer: Bytes::kb(30), ..Tcp::default() };
    let ends = TcpEnds { from: tcp.clone(), to: tcp };
    let kind = FlowKind::Tcp(TcpFlow::new(ends));
    let mut endless = flow("endless", ["a", "b"], kind);
    endless.start = Time::ZERO + MS;
    let experiment = experiment(&["a", "b"], vec![link("free", ["a", "b"], free(), free())], vec![endless]);
    let stopped = build(&experiment, &Traces::new()).unwrap().run(&mut |_: Time| ()).unwrap_err();
    assert_eq!(stopped.at, Time::ZERO + MS);
    assert!((1_000_000..1_100_000).contains(&stopped.events), "{stopped}");
}

#[test]
fn a_million_packets_at_one_instant_are_no_standstill() {
    let mut net = Network::new(Seed::new(1));
    let [a, b, c] = ["a", "b", "c"].map(|name| net.node(name));
    let free = || LinkConfig::delay_only(Duration::ZERO).queue(DropTail::default());
    net.link(a, b, free(), free());
    net.link(b, c, free(), free());
    // Clock that ticks once a second, and then owes 1.25 million packets.
    let arrivals = marcato_sim::Arrivals::Ticks { every: SECOND, slack: Duration::ZERO };
    let stop = Time::from_millis(1500);
    let packets = Packets { arrivals, stop, ..Packets::new(a, c, Rate::from_mbps(1000), Bytes::new(72)) };
    let flow = net.udp(packets).unwrap();
    assert_eq!(net.try_run_until(Time::from_secs(2)), Ok(()));
    assert_eq!(net.udp_stats(flow).unwrap().packets, 1_250_001);
}

#[test]
fn the_largest_valid_segment_arrives_and_a_larger_is_refused() {
    for option in ["none", "short", "authors", "rfc6994"] {
        for (timestamps, mtu) in [(true, 1500u32), (false, 1500), (true, 600), (false, 81)] {
            let of = |mss: u32| {
                let flow = format!(
                    "kind = \"tcp\"\ntcp = {{ mss = \"{mss} B\", priority-option = \"{option}\", timestamps = {timestamps} }}"
                );
                let lossy = "loss = { kind = \"random\", probability = 0.01 }";
                parsed(&format!("rate = \"2 Mbit/s\"\ndelay = \"5 ms\"\nmtu = \"{mtu} B\"\n{lossy}"), &flow)
            };
            let largest = (1..mtu).rev().find(|&mss| of(mss).is_ok()).unwrap();
            let said = of(largest + 1).unwrap_err().faults()[0].problem.clone();
            assert!(said.contains(&format!("lower `mss` to {largest} B")), "{said}");
            let outcome = run(&of(largest).unwrap());
            assert_eq!(outcome.warnings, [], "{option} {timestamps} {mtu}");
            let most = u64::from(mtu);
            let full = outcome.links[0].bytes.get() as f64 / outcome.links[0].delivered as f64;
            assert!(full > 0.9 * most as f64, "{full} of {most}");
        }
    }
}

#[test]
fn a_run_warns_of_undelivered_flows_and_packets_above_the_mtu() {
    let udp = |payload| UdpFlow {
        rate: Rate::from_mbps(1),
        payload: Bytes::new(payload).into(),
        arrivals: PacketArrivals::Constant,
        on_off: None,
    };
    let big = flow("big", ["a", "b"], FlowKind::Udp(udp(1473)));
    let fitting = flow("fitting", ["a", "b"], FlowKind::Udp(udp(1472)));
    let links = vec![link("slow", ["a", "b"], way(10, MS), way(10, MS))];
    let outcome = run(&experiment(&["a", "b"], links, vec![fitting, big]));
    let packets = outcome.links[0].too_big + 5_000_000 / (1501 * 8) + 1;
    let expected = [
        Warning::NothingDelivered { flow: "big".into() },
        Warning::TooBig { link: "slow".into(), back: false, packets },
    ];
    assert_eq!(outcome.warnings, expected);
}

#[test]
fn a_run_repeats_the_warnings_about_its_scenario() {
    let link = "rate = \"2 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"codel\"";
    let experiment = parsed(link, "kind = \"tcp\"\ntcp = { ecn = true }").unwrap();
    let [ref warning] = experiment.warnings()[..] else { panic!("{:?}", experiment.warnings()) };
    assert_eq!(run(&experiment).warnings, [Warning::Scenario(warning.clone())]);
}

#[test]
fn a_run_without_randomness_is_the_same_with_any_seed() {
    let link =
        "rate = \"2 Mbit/s\"\ndelay = \"5 ms\"\nqueue = { kind = \"droptail\", limit = \"20 packets\" }\n";
    let udp = "kind = \"udp\"\nrate = \"3 Mbit/s\"\n";
    let cases = [
        (false, "", "kind = \"tcp\""),
        (false, "", "kind = \"tcp\"\ncongestion = \"reno\"\ntcp = { low-layer = \"marcato\" }"),
        (false, "", "kind = \"tcp\"\non = \"1 s\"\noff = \"300 ms\""),
        (true, "", "kind = \"tcp\"\non = \"1 s\"\noff = { kind = \"exponential\", mean = \"300 ms\" }"),
        (true, "", "kind = \"tcp\"\ncongestion = \"bbr\""),
        (true, "", "kind = \"tcp\"\nstart-jitter = \"10 ms\""),
        (
            false,
            "",
            "kind = \"tcp\"\ntcp = { sack = false, loss-detection = \"dup-thresh\", growth = \"acks\" }",
        ),
        (false, "loss = { kind = \"every\", packets = 100 }", "kind = \"tcp\""),
        (false, "loss = { kind = \"random\", probability = 0 }", "kind = \"tcp\""),
        (true, "loss = { kind = \"random\", probability = 0.01 }", "kind = \"tcp\""),
        (true, "loss = { kind = \"gilbert-elliott\", mean = 0.01, burst = 2 }", "kind = \"tcp\""),
        (true, "jitter = { kind = \"uniform\", most = \"2 ms\" }", "kind = \"tcp\""),
        (false, "queue = \"fq-codel\"", "kind = \"tcp\"\ncount = 5"),
        (false, "queue = \"crq\"", "kind = \"tcp\"\ncount = 5"),
        (true, "queue = \"red\"", "kind = \"tcp\"\ncount = 5"),
        (true, "queue = \"pie\"", "kind = \"tcp\"\ncount = 5"),
        (true, "queue = { kind = \"strict\", high = \"pie\" }", "kind = \"tcp\"\ncount = 5"),
        (false, "queue = { kind = \"strict\", high = \"codel\" }", "kind = \"tcp\"\ncount = 5"),
        (true, "duplication = 0.01", "kind = \"tcp\""),
        (false, "duplication = 1", "kind = \"tcp\""),
        (
            true,
            "changes = [{ at = \"2 s\", loss = { kind = \"random\", probability = 0.01 } }]",
            "kind = \"tcp\"",
        ),
        (true, "changes = [{ at = \"2 s\", queue = \"pie\" }]", "kind = \"tcp\"\ncount = 5"),
        (false, "changes = [{ at = \"2 s\", queue = \"codel\", delay = \"9 ms\" }]", "kind = \"tcp\""),
        (false, "", udp),
        (false, "", "kind = \"udp\"\nrate = \"3 Mbit/s\"\narrivals = \"ticks\""),
        (true, "", "kind = \"udp\"\nrate = \"3 Mbit/s\"\narrivals = \"poisson\""),
        (
            true,
            "",
            "kind = \"udp\"\nrate = \"3 Mbit/s\"\npayload = { kind = \"exponential\", mean = \"500 B\" }",
        ),
        (true, "", "kind = \"tcp-process\"\narrivals = \"5 /s\"\nsize = \"20 kB\""),
        (false, "", "kind = \"request-response\"\nresponse = \"20 kB\""),
        (true, "", "kind = \"request-response\"\nresponse = { kind = \"exponential\", mean = \"20 kB\" }"),
        (
            false,
            "",
            "kind = \"messages\"\nbulk = \"p4\"\nsources = [{ period = \"20 ms\", size = \"300 B\" }]",
        ),
        (
            true,
            "",
            "kind = \"messages\"\nsources = [{ period = \"20 ms\", size = \"300 B\", jitter = \"3 ms\" }]",
        ),
    ];
    for (is_random, more, flow) in cases {
        // A later `queue` replaces the first one.
        let link = if more.starts_with("queue") { link.split("queue").next().unwrap() } else { link };
        let experiment = parsed(&format!("{link}{more}"), flow).unwrap();
        assert_eq!(experiment.is_random(), is_random, "{more} {flow}");
        let [one, other] =
            [1, 2].map(|seed| run(&Experiment { seed: Seed::new(seed), ..experiment.clone() }));
        assert_eq!(one != other, is_random, "{more} {flow}");
    }
}

#[test]
fn arrivals_after_a_flow_has_stopped_do_not_raise_its_goodput() {
    let deep =
        "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = { kind = \"droptail\", limit = \"100000 packets\" }";
    // A second at twice the link's rate takes two seconds to arrive.
    let udp = "kind = \"udp\"\nrate = \"20 Mbit/s\"\npayload = \"1222 B\"\nstop = \"1 s\"";
    let flow = &run(&parsed(deep, udp).unwrap()).flows[0];
    let goodput = 10.0 * 1222.0 / 1250.0;
    assert!((flow.goodput / goodput - 1.0).abs() < 0.01, "{}", flow.goodput);
    let tcp = "kind = \"tcp\"\ncongestion = \"reno\"\nstop = \"1 s\"\ntcp = { initial-window = 1000 }";
    let flow = &run(&parsed(deep, tcp).unwrap()).flows[0];
    assert!(flow.goodput < 10.0 && flow.goodput > 8.0, "{}", flow.goodput);
}

#[test]
fn a_packet_that_is_still_being_sent_has_used_the_link_in_part() {
    // 12 s for each packet, of which the run covers five.
    let flow = "kind = \"udp\"\nrate = \"10 kbit/s\"\npayload = \"1472 B\"\nstart = \"1 s\"";
    let slow = parsed("rate = \"1 kbit/s\"\ndelay = \"5 ms\"", flow).unwrap();
    let used = run(&slow).links[0].utilisation.unwrap();
    assert!((used - 0.8).abs() < 1e-9, "{used}");
    let late = Experiment { warm_up: 3 * SECOND, ..slow };
    assert_eq!(run(&late).links[0].utilisation, Some(1.0));
}

/// Flow of the property below: its kind, its start, and the time for which it sends, in ms.
fn any_flow() -> impl Strategy<Value = (usize, u64, u64, u64)> {
    (0..5usize, 64u64..1400, 0u64..3000, 1u64..3000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn goodput_never_exceeds_the_link_rate_nor_utilisation_one(
        rates in [1u64..20_000, 0u64..20_000],
        change in 0u64..4000,
        (limit, framing, warm_up) in (1u64..3000, 0u64..40, 0u32..3),
        of in prop::collection::vec(any_flow(), 1..4),
    ) {
        let queue = Queue::DropTail(DropTailConfig { limit: queue::Limit::Packets(limit) });
        let there = Direction {
            rate: Capacity::Rate(Rate::from_kbps(rates[0])),
            framing: Bytes::new(framing),
            queue,
            ..way(1, MS)
        };
        let mut slow = link("slow", ["a", "b"], there.clone(), there);
        let (at, rate) = (Time::from_millis(change), Some(Rate::from_kbps(rates[1])));
        slow.changes = vec![Change { rate, ..Change::new(at, Way::Both) }];
        let flows = of.iter().enumerate().map(|(place, &(kind, payload, start, span))| {
            let udp = |arrivals| FlowKind::Udp(UdpFlow {
                rate: Rate::from_kbps(20 * payload),
                payload: Bytes::new(payload).into(),
                arrivals,
                on_off: None,
            });
            let kind = match kind {
                0 => udp(PacketArrivals::Constant),
                1 => udp(PacketArrivals::Poisson),
                2 => udp(PacketArrivals::Ticks { every: 20 * MS }),
                3 => tcp(Congestion::Reno, None),
                _ => tcp(Congestion::CUBIC, Some(Bytes::kb(payload))),
            };
            let mut flow = flow(&format!("flow-{place}"), ["a", "b"], kind);
            flow.start = Time::from_millis(start);
            flow.stop = Some(Time::from_millis(start + span));
            flow
        });
        let of_link = |metric| Series::Link { link: "slow".into(), back: false, metric };
        let mut experiment = experiment(&["a", "b"], vec![slow], flows.collect());
        experiment.duration = 4 * SECOND;
        experiment.warm_up = warm_up * SECOND / 2;
        experiment.record =
            Record { every: 70 * MS, series: vec![of_link(LinkMetric::Utilisation)], pcap: Pcap::default() };
        let outcome = run(&experiment);
        let fastest = *rates.iter().max().unwrap() as f64 * 1e-3;
        for flow in &outcome.flows {
            // A packet counts when its last bit has arrived, and TCP data when the gap before it
            // has been filled. So data sent before the end of the warm-up may count after it.
            let before = match (warm_up, flow.kind) {
                (0, _) => 0.0,
                (_, "udp") => 1400.0 * 8e-6,
                _ => f64::INFINITY,
            };
            let span = flow.bytes.get() as f64 * 8e-6 / flow.goodput.max(f64::MIN_POSITIVE);
            prop_assert!(flow.goodput <= fastest * (1.0 + 1e-9) + before / span.max(1e-9), "{flow:?}");
        }
        for link in &outcome.links {
            prop_assert!(link.utilisation.is_none_or(|used| (0.0..=1.0).contains(&used)), "{link:?}");
        }
        for &(at, used) in &outcome.series[0].points {
            prop_assert!(used.is_none_or(|used| (0.0..=1.0).contains(&used)), "{used:?} at {at}");
        }
    }
}

#[test]
fn each_flow_starts_by_a_draw_of_its_own_within_its_jitter() {
    let starts = |seed, flows: &[(&str, u32)]| {
        let flows = flows.iter().map(|&(name, count)| {
            let mut flow = flow(name, ["a", "b"], tcp(Congestion::Reno, Some(Bytes::kb(1))));
            (flow.count, flow.start, flow.start_jitter) = (count, Time::from_secs(1), 100 * MS);
            flow
        });
        let links = vec![link("slow", ["a", "b"], way(10, MS), way(10, MS))];
        let experiment =
            Experiment { seed: Seed::new(seed), ..experiment(&["a", "b"], links, flows.collect()) };
        run(&experiment).flows.iter().map(|flow| flow.start).collect::<Vec<_>>()
    };
    let many = starts(1, &[("many", 50)]);
    let span = Time::from_secs(1)..Time::from_millis(1100);
    assert!(many.iter().all(|start| span.contains(start)), "{many:?}");
    let early = many.iter().filter(|&&start| start < Time::from_millis(1050)).count();
    assert!((15..=35).contains(&early), "{early} of 50 in the first half");
    assert_ne!(starts(2, &[("many", 50)]), many);
    // Another flow draws from a stream of its own.
    assert_eq!(starts(1, &[("other", 1), ("many", 50)])[1..], many);
}

#[test]
fn a_series_exists_while_its_flow_does() {
    let mut file = flow("file", ["a", "b"], tcp(Congestion::Reno, Some(Bytes::kb(500))));
    file.start = Time::from_secs(2);
    let mut trickle = flow(
        "trickle",
        ["a", "b"],
        FlowKind::Udp(UdpFlow {
            rate: Rate::from_mbps(1),
            payload: Bytes::new(1000).into(),
            arrivals: PacketArrivals::Constant,
            on_off: None,
        }),
    );
    (trickle.start, trickle.stop) = (Time::from_secs(1), Some(Time::from_secs(3)));
    let links = vec![link("slow", ["a", "b"], way(10, MS), way(10, MS))];
    let mut experiment = experiment(&["a", "b"], links, vec![file, trickle]);
    let of = |flow: &str, metric| Series::Flow { flow: flow.into(), metric };
    experiment.record = Record {
        every: 100 * MS,
        series: vec![
            of("file", FlowMetric::Cwnd),
            of("file", FlowMetric::Throughput),
            of("file", FlowMetric::Losses),
            of("trickle", FlowMetric::Throughput),
        ],
        pcap: Pcap::default(),
    };
    let outcome = run(&experiment);
    let finished = outcome.flows[0].finished.unwrap();
    for (place, (from, until)) in
        [(2.0, finished.as_secs_f64()); 3].into_iter().chain([(1.0, 3.1)]).enumerate()
    {
        for &(at, value) in &outcome.series[place].points {
            let at = at.as_secs_f64();
            // A sample covers the time since the previous one, so the interval in which the flow
            // ends has a value.
            let exists = at > from + 1e-9 && at < until + 0.1 - 1e-9;
            assert_eq!(value.is_some(), exists, "{} at {at}", outcome.series[place].name);
        }
    }
    let rates = outcome.series[1].points.iter().filter_map(|point| point.1);
    assert!((rates.sum::<f64>() * 0.1 / 8.0 - 0.5).abs() < 1e-9, "all 500 kB are in the series");
}

#[test]
fn instances_and_connections_of_a_process_are_summed_up() {
    let process = TcpProcess {
        tcp: TcpEnds::default(),
        arrivals: Arrivals::Every(100 * MS),
        size: Size::Constant(Bytes::kb(20)),
        most_open: 100,
    };
    let mut four = flow("four", ["a", "b"], tcp(Congestion::CUBIC, None));
    four.count = 4;
    let alone = flow("alone", ["a", "b"], tcp(Congestion::CUBIC, None));
    let web = flow("web", ["a", "b"], FlowKind::TcpProcess(process));
    let bottleneck = link("l", ["a", "b"], way(20, 10 * MS), way(20, 10 * MS));
    let outcome = run(&experiment(&["a", "b"], vec![bottleneck], vec![four, alone, web]));
    let [four, web] = &outcome.groups[..] else { panic!("two groups") };
    let goodputs: Vec<f64> = outcome.flows[..4].iter().map(|flow| flow.goodput).collect();
    assert_eq!((four.name.as_str(), four.kind, &four.members), ("four", "tcp", &goodputs));
    let sum: f64 = goodputs.iter().sum();
    assert!((four.goodput - sum).abs() < 1e-9, "all four have the same span: {} {sum}", four.goodput);
    let squares: f64 = goodputs.iter().map(|goodput| goodput * goodput).sum();
    assert!((four.jain().unwrap() - sum * sum / (4.0 * squares)).abs() < 1e-12);
    assert!(four.completions.is_empty());
    // Each complete connection of a process is a member, with 20 kB over its completion time.
    let transfers = &outcome.flows[5].times[0];
    assert_eq!((web.name.as_str(), web.members.len()), ("web", transfers.done.len()));
    let mut expected: Vec<f64> = transfers.done.iter().map(|ms| 20_000.0 * 8e-3 / ms).collect();
    let mut members = web.members.clone();
    expected.sort_by(f64::total_cmp);
    members.sort_by(f64::total_cmp);
    assert!(members.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9), "{members:?} {expected:?}");
    assert_eq!(web.completions.len(), transfers.samples().count());
    assert_eq!(web.goodput, outcome.flows[5].goodput);
}

/// Runs a UDP flow of 1 Mbit/s with these payloads for 15 s, together with a slow flow.
fn udp_beside(payload: Payload) -> Outcome {
    let of = |payload, arrivals| UdpFlow { rate: Rate::from_mbps(1), payload, arrivals, on_off: None };
    let sizes = flow("sizes", ["a", "b"], FlowKind::Udp(of(payload, PacketArrivals::Constant)));
    let poisson =
        flow("poisson", ["a", "b"], FlowKind::Udp(of(Bytes::new(500).into(), PacketArrivals::Poisson)));
    let quick = link("l", ["a", "b"], way(100, MS), way(100, MS));
    run(&experiment(&["a", "b"], vec![quick], vec![sizes, poisson]))
}

#[test]
fn listed_payloads_come_in_turn_or_at_random_and_keep_the_rate() {
    let list: SizeList = "72\n972\n1472\n".parse().unwrap();
    let listed = |is_random| {
        udp_beside(Payload::Listed(Listed { file: "x".into(), is_random, list: Some(list.clone()) }))
    };
    let [in_turn, at_random] = [listed(false), listed(true)];
    // 1 Mbit/s of IP for 15 s are 1.875 MB: 72, 972 and 1472 B with 28 B each take 2600 B per
    // cycle.
    let flow = &in_turn.flows[0];
    assert!(flow.sent.abs_diff(3 * 1_875_000 / 2600) <= 3, "{}", flow.sent);
    assert!(
        (flow.bytes.get() as f64 / (1_875_000.0 * 2516.0 / 2600.0) - 1.0).abs() < 0.002,
        "{}",
        flow.bytes
    );
    // Random sizes give the same on average: 2163 packets whose sizes vary by 0.68 of their mean.
    let other = &at_random.flows[0];
    assert!((other.bytes.get() as f64 / flow.bytes.get() as f64 - 1.0).abs() < 0.01, "{}", other.bytes);
    assert!(other.sent != flow.sent && other.sent.abs_diff(flow.sent) < 200, "{}", other.sent);
    // Sizes have a random stream of their own.
    assert_eq!(in_turn.flows[1].sent, at_random.flows[1].sent);
    assert_eq!(at_random, listed(true));
}

#[test]
fn drawn_payloads_have_their_mean_and_respect_their_maximum() {
    let drawn = |most| {
        let size = Size::Exponential { mean: Bytes::new(300) };
        udp_beside(Payload::Drawn { size, most: Bytes::new(most) }).flows[0].clone()
    };
    // An exponential size capped at m has the mean 300 x (1 - exp(-m / 300)): 297.8 at 1472, and
    // 85.0 at 100.
    for (most, mean) in [(1472, 297.8), (100, 85.0)] {
        let flow = drawn(most);
        let payload = flow.bytes.get() as f64 / flow.sent as f64;
        assert!((payload / mean - 1.0).abs() < 0.04, "{most}: {payload}");
        // The packets still have the configured rate.
        let ip = flow.bytes.get() + 28 * flow.sent;
        assert!((ip as f64 / 1_875_000.0 - 1.0).abs() < 0.01, "{ip}");
    }
}

#[test]
fn sizes_that_were_not_read_are_missed() {
    let payload = Payload::Listed(Listed { file: "x.txt".into(), is_random: false, list: None });
    let udp = UdpFlow { rate: Rate::from_mbps(1), payload, arrivals: PacketArrivals::Constant, on_off: None };
    let link = link("l", ["a", "b"], way(100, MS), way(100, MS));
    let experiment = experiment(&["a", "b"], vec![link], vec![flow("f", ["a", "b"], FlowKind::Udp(udp))]);
    let Err(error) = build(&experiment, &Traces::new()) else { panic!("not read") };
    assert_eq!(
        error.to_string(),
        "the flow `f` takes its sizes from `x.txt`, which was not loaded: load the scenario from its file"
    );
}
