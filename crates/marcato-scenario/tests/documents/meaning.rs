//! Tests of the experiment that a file describes.

use marcato_queue::DropTailConfig;
use marcato_scenario::flow::FlowKind;
use marcato_scenario::link::{Capacity, Loss};
use marcato_scenario::queue::{Limit, Queue};
use marcato_scenario::quic::{Reserving, Scheduler};
use marcato_scenario::tcp::LowLayer;
use marcato_scenario::traffic::Release;
use marcato_scenario::{Experiment, Scenario};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Time};

/// Scenario of this topology, with a flow between these nodes.
fn of_topology(topology: &str, from: &str, to: &str) -> Scenario {
    let text = format!(
        "name = \"t\"\nduration = \"10 s\"\n[topology]\n{topology}\n[[flow]]\nname = \"f\"\nkind = \"tcp\"\nfrom = \"{from}\"\nto = \
         \"{to}\"\n"
    );
    Scenario::parse("t.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the names of the links on the flow's route.
fn way(experiment: &Experiment) -> Vec<&str> {
    let flow = &experiment.flows[0];
    let route = experiment.route(&flow.from, &flow.to).expect("links lead there");
    route.hops.iter().map(|hop| hop.link.name.as_str()).collect()
}

/// Scenario of one link and one flow with these settings.
fn simple(link: &str, flow: &str) -> Scenario {
    let delay = if link.contains("delay") { "" } else { "delay = \"1 ms\"\n" };
    let text = format!(
        "name = \"t\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\n{delay}{link}\n[[flow]]\nname = \
         \"f\"\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
    );
    Scenario::parse("t.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_dumbbell_has_one_bottleneck() {
    let topology = "kind = \"dumbbell\"\npairs = 2\nrate = \"8 Mbit/s\"\ndelay = \"10 ms\"\naccess-rate = \"1 Gbit/s\"\nmtu = \"1400 B\"";
    let text = format!(
        "name = \"t\"\nduration = \"10 s\"\n[topology]\n{topology}\n[[flow]]\nname = \"f\"\nkind = \"udp\"\nrate = \"1 \
         Mbit/s\"\nfrom = \"client-2\"\nto = \"server-1\"\n"
    );
    let scenario = Scenario::parse("t.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let experiment = scenario.experiment();
    assert_eq!(experiment.nodes, ["client-1", "client-2", "left", "right", "server-1", "server-2"]);
    assert_eq!(way(experiment), ["client-2-left", "bottleneck", "right-server-1"]);
    let route = experiment.route("client-2", "server-1").unwrap();
    let (hop, rate) = route.bottleneck().unwrap();
    assert_eq!((hop.link.name.as_str(), rate), ("bottleneck", Rate::from_mbps(8)));
    assert_eq!((route.delay(), route.mtu()), (Duration::from_millis(10), Bytes::new(1400)));
    assert_eq!(experiment.link("client-1-left").unwrap().back.rate, Capacity::Rate(Rate::from_mbps(1000)));
}

#[test]
fn a_parking_lot_is_crossed_by_all_or_at_one_hop() {
    let topology = "kind = \"parking-lot\"\nhops = 3\nrate = \"8 Mbit/s\"";
    let long = of_topology(topology, "client", "server");
    assert_eq!(way(long.experiment()), ["client-router-0", "hop-1", "hop-2", "hop-3", "router-3-server"]);
    let short = of_topology(topology, "client-2", "server-2");
    assert_eq!(way(short.experiment()), ["client-2-router-1", "hop-2", "router-2-server-2"]);
}

#[test]
fn paths_differ_in_what_they_say_themselves() {
    let topology = "kind = \"multipath\"\nrate = \"8 Mbit/s\"\ndelay = \"10 ms\"\npaths = [{ delay = \"30 ms\" }, { trace = \"x.trace\" }]";
    let scenario = of_topology(topology, "client-2", "server-2");
    let [one, two] = scenario.experiment().links.as_slice() else { panic!("two paths") };
    assert_eq!(
        (&one.there.rate, one.there.delay),
        (&Capacity::Rate(Rate::from_mbps(8)), Duration::from_millis(30))
    );
    // A trace replaces a rate.
    assert_eq!(
        (&two.there.rate, two.there.delay),
        (&Capacity::Trace("x.trace".to_owned()), Duration::from_millis(10))
    );
    assert_eq!(
        of_topology("kind = \"multipath\"\ndelay = \"1 ms\"\npaths = 3", "client-3", "server-3")
            .experiment()
            .links
            .len(),
        3
    );
}

#[test]
fn an_asymmetric_line_is_slow_upwards() {
    let topology =
        "kind = \"asymmetric\"\nrate = \"50 Mbit/s\"\nup-rate = \"5 Mbit/s\"\nup-queue = \"codel\"";
    let scenario = of_topology(topology, "server", "client");
    let access = scenario.experiment().link("access").unwrap();
    assert_eq!(access.there.rate, Capacity::Rate(Rate::from_mbps(50)));
    assert_eq!(access.back.rate, Capacity::Rate(Rate::from_mbps(5)));
    assert_eq!((access.there.queue.kind(), access.back.queue.kind()), ("droptail", "codel"));
}

#[test]
fn links_made_by_a_topology_can_be_varied() {
    let text = "name = \"t\"\nduration = \"10 s\"\n[topology]\nkind = \"dumbbell\"\nrate = \"8 Mbit/s\"\n[[flow]]\nname = \"f\"\nkind = \
                \"tcp\"\nfrom = \"client-1\"\nto = \"server-1\"\n[grid]\nvary = { topology.rate = [\"1 Mbit/s\"], \
                link.bottleneck.delay = [\"1 ms\", \"2 ms\"] }\n";
    let scenario = Scenario::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let runs: Vec<_> = scenario.runs().collect();
    assert_eq!(
        runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(),
        ["rate=1Mbit-s,delay=1ms,seed=1", "rate=1Mbit-s,delay=2ms,seed=1"]
    );
    let bottleneck = runs[1].experiment.link("bottleneck").unwrap();
    assert_eq!(bottleneck.there.rate, Capacity::Rate(Rate::from_mbps(1)));
    assert_eq!(bottleneck.back.delay, Duration::from_millis(2));
}

#[test]
fn a_limit_in_time_is_what_the_link_carries_in_it() {
    let scenario = simple(
        "rate = \"8 Mbit/s\"\nqueue = { kind = \"droptail\", limit = \"50 ms\" }\nback = { rate = \"800 kbit/s\" }",
        "kind = \"tcp\"",
    );
    let link = &scenario.experiment().links[0];
    assert_eq!(link.there.queue, Queue::DropTail(DropTailConfig { limit: Limit::Bytes(Bytes::kb(50)) }));
    assert_eq!(link.back.queue, Queue::DropTail(DropTailConfig { limit: Limit::Bytes(Bytes::kb(5)) }));
}

#[test]
fn a_queue_limit_in_time_uses_the_rate_in_force_when_it_starts() {
    let scenario = simple(
        "rate = \"8 Mbit/s\"\nchanges = [{ at = \"3 s\", queue = { kind = \"droptail\", limit = \"50 ms\" } }, { at = \"1 s\", \
         queue = { kind = \"droptail\", limit = \"50 ms\" } }, { at = \"2 s\", rate = \"16 Mbit/s\" }]",
        "kind = \"tcp\"",
    );
    let tail = |kb| Some(Queue::DropTail(DropTailConfig { limit: Limit::Bytes(Bytes::kb(kb)) }));
    let queues: Vec<_> =
        scenario.experiment().links[0].changes.iter().map(|change| change.queue.clone()).collect();
    assert_eq!(queues, [tail(50), None, tail(100)]);
}

#[test]
fn the_mean_of_bursty_loss_is_what_was_asked_for() {
    let scenario = simple("loss = { kind = \"gilbert-elliott\", mean = 0.02, burst = 4 }", "kind = \"tcp\"");
    let Loss::GilbertElliott(chain) = &scenario.experiment().links[0].there.loss else { panic!("a chain") };
    assert!((chain.mean_loss() - 0.02).abs() < 1e-12 && chain.r == 0.25, "{chain:?}");
}

#[test]
fn the_far_end_is_set_up_like_the_near_one_but_for_what_is_said() {
    let scenario = simple(
        "",
        "kind = \"tcp\"\ncongestion = \"reno\"\ntcp = { initial-window = 4, receive-buffer = \"1 MB\" }\ntcp-to = { \
         receive-buffer = \"2 MB\" }",
    );
    let ends = scenario.experiment().flows[0].kind.tcp().unwrap().clone();
    assert_eq!((ends.from.initial_window, ends.to.initial_window), (4, 4));
    assert_eq!((ends.from.receive_buffer, ends.to.receive_buffer), (Bytes::kb(1000), Bytes::kb(2000)));
    assert_eq!(ends.to.congestion, ends.from.congestion);
}

#[test]
fn one_way_delay_is_recorded_for_udp_and_quic_but_not_for_tcp() {
    let record = "\n[record]\nseries = \"all\"\n";
    let delays = |flow: &str| {
        let scenario = simple("rate = \"8 Mbit/s\"", &format!("{flow}{record}"));
        scenario.experiment().record.series.iter().filter(|it| it.to_string() == "flow.f.delay").count()
    };
    assert_eq!(delays("kind = \"udp\"\nrate = \"1 Mbit/s\""), 1);
    assert_eq!(delays("kind = \"quic\"\nbulk = \"p3\""), 1);
    assert_eq!(delays("kind = \"tcp\""), 0);
}

#[test]
fn instances_are_numbered_and_staggered() {
    let scenario = simple("", "kind = \"tcp\"\ncount = 3\nstagger = \"2 s\"\nstart = \"1 s\"");
    let flow = &scenario.experiment().flows[0];
    assert_eq!(flow.instances(), ["f-1", "f-2", "f-3"]);
    assert_eq!(flow.start_of(2), Time::from_secs(5));
}

#[test]
fn load_and_arrivals_say_the_same() {
    let gap = |how: &str| {
        let scenario = simple("", &format!("kind = \"tcp-process\"\nsize = \"100 kB\"\n{how}"));
        let FlowKind::TcpProcess(process) = &scenario.experiment().flows[0].kind else { panic!("a process") };
        process.mean_gap()
    };
    assert_eq!(gap("arrivals = \"10 /s\""), Duration::from_millis(100));
    assert_eq!(gap("arrivals = \"100 ms\""), Duration::from_millis(100));
    assert_eq!(gap("load = \"8 Mbit/s\""), Duration::from_millis(100));
}

#[test]
fn a_session_has_lanes_on_layers_and_sources_of_its_own() {
    let text = "name = \"t\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"1 ms\"\n[[flow]]\nname = \
                \"f\"\nkind = \"quic\"\npaths = [[\"a\", \"b\"], { from = \"a\", to = \"b\", layer = \"low\" }]\nscheduler = { kind = \
                \"cwr\", preset = \"paper\" }\nsources = [{ period = \"1 s\", size = \"1 kB\", jitter = \"10 ms\" }]\n";
    let scenario = Scenario::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let flow = &scenario.experiment().flows[0];
    let FlowKind::Quic(quic) = &flow.kind else { panic!("a session") };
    assert_eq!((flow.from.as_str(), flow.to.as_str()), ("a", "b"));
    assert_eq!(quic.paths.iter().map(|path| path.layer).collect::<Vec<_>>(), [Layer::High, Layer::Low]);
    assert_eq!(quic.scheduler, Scheduler::Cwr(Reserving::PAPER));
    let source = quic.messaging.sources[0];
    assert_eq!(
        (source.release, source.priority),
        (Release::Jittered(Duration::from_millis(10)), Priority::P0)
    );
}

#[test]
fn runs_come_in_order_and_their_names_fit_files() {
    let long = "x".repeat(60);
    let text = format!(
        "name = \"t\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"1 ms\"\n[[flow]]\nname = \"f\"\nkind = \
         \"tcp\"\nfrom = \"a\"\nto = \"b\"\n[grid]\nseeds = [5, 3]\nvary = {{ about = [\"{long}1\", \"{long}2\"], \
         \"link.a-b.queue\" = [\"codel\", {{ kind = \"droptail\", limit = \"7 packets\" }}] }}\n"
    );
    let scenario = Scenario::parse("t.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let runs: Vec<_> = scenario.runs().collect();
    assert_eq!((runs.len(), scenario.runs().len()), (8, 8));
    assert_eq!(runs.iter().map(|run| run.seed.get()).collect::<Vec<_>>(), [5, 3, 5, 3, 5, 3, 5, 3]);
    let mut ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    for id in &ids {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._+-,=".contains(c);
        assert!(id.len() <= 140 && id.chars().all(fits), "{id}");
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8);
}

#[test]
fn a_low_layer_is_a_kind_with_optional_changes_at_both_ends() {
    let low = |tcp: &str| {
        let text = format!(
            "name = \"t\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"1 ms\"\n[[flow]]\nname = \
             \"f\"\nkind = \"tcp\"\nfrom = \"a\"\nto = \"b\"\ntcp = {{ {tcp} }}\n[record]\nseries = \"all\"\n"
        );
        let scenario = Scenario::parse("t.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let experiment = scenario.experiment();
        let ends = experiment.flows[0].kind.tcp().unwrap();
        assert_eq!(ends.from, ends.to);
        // A flow without a low layer has no low window.
        let recorded =
            experiment.record.series.iter().any(|series| series.to_string() == "flow.f.low-window");
        assert_eq!(recorded, ends.from.low_layer.is_some());
        ends.from.low_layer
    };
    assert_eq!(low(""), None);
    assert_eq!(low("low-layer = \"none\""), None);
    assert_eq!(low("low-layer = \"paper\""), Some(LowLayer::PAPER));
    assert_eq!(low("low-layer = \"marcato\""), Some(LowLayer::MARCATO));
    assert_eq!(
        low("low-layer = { kind = \"paper\", target = \"found\", high-for = \"p1\", ack-layer = \"high\" }"),
        Some(LowLayer {
            target: None,
            high_for: Some(Priority::P1),
            ack_layer: Layer::High,
            ..LowLayer::PAPER
        })
    );
    assert_eq!(
        low("low-layer = { kind = \"marcato\", target = 0.01, epoch = \"50 ms\", most-window = 200 }"),
        Some(LowLayer {
            target: Some(0.01),
            epoch: Some(Duration::from_millis(50)),
            most_window: 200,
            ..LowLayer::MARCATO
        })
    );
}
