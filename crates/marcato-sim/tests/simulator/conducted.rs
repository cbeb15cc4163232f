//! Tests of a Conductor that drives a simulated TCP like a real socket.

use marcato_sched::conductor::Removal;
use marcato_sched::coupled::{CoupledConfig, Mode, Transition};
use marcato_sched::{Conductor, Config, Debt, Feeder};
use marcato_sim::{
    Collector, Conducted, Congestion, Coupled, DelayedAck, FlowId, LinkConfig, Network, Planned,
    PriorityOption, Side, Tag, Tcp, TcpFlow,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

const CHUNK: Bytes = Bytes::new(1000);

fn tcp() -> Tcp {
    Tcp {
        mss: 1000,
        notsent_lowat: Some(CHUNK),
        priority_option: Some(PriorityOption::Short),
        ..Tcp::with(Congestion::Reno)
    }
}

/// Sender with this plan over 2 Mbit/s and 25 ms one way.
fn network(tcp: Tcp, feeder: Feeder, plan: Vec<Planned>) -> (Network, FlowId) {
    let mut net = Network::new(Seed::new(1));
    let (sender, receiver) = (net.node("sender"), net.node("receiver"));
    let link = || LinkConfig::new(Rate::from_mbps(2), Duration::from_millis(25));
    net.link(sender, receiver, link(), link());
    let config = Config { chunk: CHUNK, ..Config::with_debt(Debt::authors()) };
    let app = Conducted::new(Conductor::new(config).unwrap(), feeder, plan);
    let flow = TcpFlow::new(sender, receiver, tcp, app).server_app(Collector::logging());
    let flow = net.tcp(flow).unwrap();
    (net, flow)
}

fn urgent_beside_bulk() -> Vec<Planned> {
    vec![
        Planned::now(Bytes::kb(600), Priority::P4),
        Planned::now(Bytes::kb(2), Priority::P0).after(Duration::from_millis(900)),
    ]
}

#[test]
fn a_lean_feeder_never_leaves_more_than_a_chunk_unsent() {
    let (mut net, flow) = network(tcp(), Feeder::lean(CHUNK), urgent_beside_bulk());
    let mut most = Bytes::ZERO;
    for step in 0..3000 {
        net.run_until(Time::from_millis(step));
        most = most.max(net.tcp_stats(flow, Side::Client).unwrap().unsent);
    }
    assert!(most <= CHUNK, "{most} unsent");
    assert_eq!(net.reception(flow, Side::Server).bytes, Bytes::kb(602));
}

#[test]
fn an_urgent_message_waits_only_for_unsent_and_in_flight_data() {
    let (mut net, flow) = network(tcp(), Feeder::lean(CHUNK), urgent_beside_bulk());
    net.run_until(Time::from_millis(899));
    let ahead = net.tcp_stats(flow, Side::Client).unwrap().in_flight + CHUNK;
    net.run_until(Time::from_secs(10));
    let collector: &Collector = net.app(flow, Side::Server).unwrap();
    let log = collector.log();
    let urgent = log.iter().position(|&(_, tag, _)| tag == Tag(1)).unwrap();
    let offered_at = Time::from_millis(900);
    let before: Bytes = log[..urgent].iter().filter(|(at, ..)| *at >= offered_at).map(|d| d.2).sum();
    assert!(before <= ahead, "{before} arrived first, of which {ahead} were out of reach");
    // The background loses nothing: the link stays busy until everything has arrived.
    let last = log.last().unwrap().0;
    let carried = Rate::from_mbps(2).transmission_time(Bytes::new(602 * 1056));
    assert!(last - Time::ZERO < carried + Duration::from_millis(400), "{last}");
}

#[test]
fn urgent_messages_with_coupling_find_the_queue_empty() {
    let run = |couple: fn(Conducted) -> Conducted| {
        let mut net = Network::new(Seed::new(1));
        let (sender, receiver) = (net.node("sender"), net.node("receiver"));
        let link = || LinkConfig::new(Rate::from_mbps(2), Duration::from_millis(25));
        net.link(sender, receiver, link(), link());
        let plan = vec![
            Planned::now(Bytes::kb(1000), Priority::P4),
            Planned::now(Bytes::kb(2), Priority::P0).after(Duration::from_millis(2000)),
        ];
        let config = Config { chunk: CHUNK, ..Config::with_debt(Debt::authors()) };
        let app = couple(Conducted::new(Conductor::new(config).unwrap(), Feeder::lean(CHUNK), plan));
        let flow = TcpFlow::new(sender, receiver, tcp(), app).server_app(Collector::logging());
        let flow = net.tcp(flow).unwrap();
        net.run_until(Time::from_secs(10));
        let app: &Conducted = net.app(flow, Side::Client).unwrap();
        let transitions = app.coupled().map(|coupled| coupled.transitions().to_vec());
        let collector: &Collector = net.app(flow, Side::Server).unwrap();
        (collector.complete(Tag(1), Bytes::kb(2)).unwrap() - Time::from_millis(2000), transitions)
    };
    let (plain, none) = run(|app| app);
    let (coupled, transitions) =
        run(|app| app.coupled_by(Coupled::new(CoupledConfig::new(Bytes::new(1000)))));
    // One way, three packets of the queue, two of its own and the one that is being sent: 4.2 ms each.
    assert!(coupled < Duration::from_millis(55), "{coupled:?}");
    assert!(plain > coupled * 2, "{plain:?}, coupled {coupled:?}");
    assert_eq!(none, None);
    let first = transitions.unwrap()[0];
    assert!(matches!(first, Transition { from: Mode::Startup, to: Mode::Steady, .. }), "{first:?}");
}

#[test]
fn a_greedy_feeder_delays_an_urgent_message_by_its_whole_buffer() {
    let delay = |feeder: Feeder, lowat: Option<Bytes>| {
        // BBR, because no feeder can overtake the queue that Reno builds at the bottleneck.
        let congestion = Congestion::Bbr;
        let tcp = Tcp { notsent_lowat: lowat, send_buffer: Bytes::new(131_072), congestion, ..tcp() };
        let (mut net, flow) = network(tcp, feeder, urgent_beside_bulk());
        net.run_until(Time::from_secs(10));
        let collector: &Collector = net.app(flow, Side::Server).unwrap();
        collector.complete(Tag(1), Bytes::kb(2)).unwrap() - Time::from_millis(900)
    };
    let lean = delay(Feeder::lean(CHUNK), Some(CHUNK));
    let greedy = delay(Feeder::greedy(CHUNK), None);
    // 131 segments of 1056 bytes take 553 ms.
    assert!(greedy > Duration::from_millis(500), "{greedy:?}");
    assert!(lean < greedy / 2, "{lean:?} against {greedy:?}");
}

#[test]
fn a_receiver_may_acknowledge_urgent_segments_without_delay() {
    let finished = |urgent_at_once: bool, priority: Priority| {
        let delayed_ack = DelayedAck { first_at_once: false, urgent_at_once, ..DelayedAck::default() };
        let tcp = Tcp { delayed_ack, ..tcp() };
        let (mut net, flow) =
            network(tcp, Feeder::lean(CHUNK), vec![Planned::now(Bytes::new(500), priority)]);
        let mut at = Duration::ZERO;
        while net.tcp_stats(flow, Side::Client).unwrap().delivered.is_zero() {
            at += Duration::from_millis(1);
            net.run_until(Time::ZERO + at);
        }
        at
    };
    let patient = finished(false, Priority::P0);
    assert!(patient >= finished(true, Priority::P0) + Duration::from_millis(39));
    assert_eq!(patient, finished(true, Priority::P2));
}

#[test]
fn an_evicted_message_is_reported_and_the_urgent_one_arrives() {
    let mut net = Network::new(Seed::new(1));
    let (sender, receiver) = (net.node("sender"), net.node("receiver"));
    let link = || LinkConfig::new(Rate::from_mbps(2), Duration::from_millis(25));
    net.link(sender, receiver, link(), link());
    let config = Config { chunk: CHUNK, max_queued: Bytes::kb(100), ..Config::with_debt(Debt::authors()) };
    let plan = vec![
        Planned::now(Bytes::kb(60), Priority::P3),
        Planned::now(Bytes::kb(40), Priority::P4),
        Planned::now(Bytes::kb(30), Priority::P1).after(Duration::from_millis(1)),
    ];
    let app = Conducted::new(Conductor::new(config).unwrap(), Feeder::lean(CHUNK), plan);
    let flow = TcpFlow::new(sender, receiver, tcp(), app).server_app(Collector::logging());
    let flow = net.tcp(flow).unwrap();
    net.run_until(Time::from_secs(10));
    let app: &Conducted = net.app(flow, Side::Client).unwrap();
    assert_eq!(app.removed(), [(Tag(1), Removal::Evicted)]);
    assert!(app.refused().is_empty());
    let collector: &Collector = net.app(flow, Side::Server).unwrap();
    for (tag, size, arrives) in [(0, 60, true), (1, 40, false), (2, 30, true)] {
        assert_eq!(collector.complete(Tag(tag), Bytes::kb(size)).is_some(), arrives, "message {tag}");
    }
}
