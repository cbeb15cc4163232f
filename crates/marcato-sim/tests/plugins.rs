//! Congestion controls, queues, lane schedulers and workloads of other crates. Each example is one,
//! and runs here too.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};

use marcato_scenario::Reader;
use marcato_scenario::plugin::{Parameters, Plugin, PluginNameError};
use marcato_sim::scenario::{
    BuildError, FlowOutcome, PluginError, Plugins, Release, Traces, Workload, build, build_with,
};
use marcato_sim::tcp::congestion::CongestionFactory;
use marcato_sim::{
    Bulk, Congestion, FlowError, LinkConfig, Network, Side, Tcp, TcpConfigError, TcpEnd, TcpFlow,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Stream, Time};

#[allow(dead_code, reason = "main() prints what the test checks")]
#[path = "../examples/own_congestion_control.rs"]
mod own_congestion_control;
#[allow(dead_code, reason = "main() prints what the test checks")]
#[path = "../examples/own_lane_scheduler.rs"]
mod own_lane_scheduler;
#[allow(dead_code, reason = "main() prints what the test checks")]
#[path = "../examples/own_queue.rs"]
mod own_queue;
#[allow(dead_code, reason = "main() prints what the test checks")]
#[path = "../examples/own_workload.rs"]
mod own_workload;

#[test]
fn an_own_congestion_control_runs_from_a_scenario_file() {
    let runs = own_congestion_control::compare().unwrap();
    let [(first, reno), (second, own)] = &runs[..] else { panic!("{runs:?}") };
    assert!(first.contains("reno") && second.contains("aimd"), "{first} {second}");
    // A window that falls by a fifth leaves the link idle for less time than one that is halved.
    assert!(own.goodput > 1.05 * reno.goodput, "{} {}", own.goodput, reno.goodput);
    assert!(own.goodput < 9.7 && reno.losses > 0 && own.losses > 0);
}

#[test]
fn an_own_queue_that_drops_its_head_delays_less() {
    let runs = own_queue::compare().unwrap();
    let [(_, tail), (_, head)] = &runs[..] else { panic!("{runs:?}") };
    let of = |flow: &marcato_sim::scenario::FlowOutcome| flow.delay.unwrap() - 20.0;
    // Under twice the link's rate, each packet sent comes with one that is displaced ahead of it,
    // so a packet waits for half the queue.
    let ratio = of(head) / of(tail);
    assert!((0.45..0.55).contains(&ratio), "{ratio}");
    assert!((head.goodput / tail.goodput - 1.0).abs() < 0.01);
}

#[test]
fn an_own_lane_scheduler_sends_on_the_lane_it_names() {
    let runs = own_lane_scheduler::compare().unwrap();
    let [(first, built_in), (second, own)] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!([first.as_str(), second.as_str()], ["low-rtt", "cheapest"]);
    // The built-in one prefers the quicker lane and uses both. Of the other lane, the own one
    // leaves unused all except what opens the path and keeps it alive.
    let share = |lanes: &[marcato_sim::scenario::LaneOutcome]| {
        let total: u64 = lanes.iter().map(|lane| lane.bytes.get()).sum();
        lanes[0].bytes.get() as f64 / total as f64
    };
    assert!(share(built_in) < 0.5, "{}", share(built_in));
    assert!(share(own) > 0.95, "{}", share(own));
}

#[test]
fn an_own_workload_shows_what_order_does_for_its_documents() {
    let runs = own_workload::compare().unwrap();
    let [(first, queue), (second, conducted)] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!([first.as_str(), second.as_str()], ["fifo", "conductor"]);
    let names = |flow: &FlowOutcome| flow.times.iter().map(|times| times.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(queue), names(conducted)), (vec![P0.to_owned(), P3.to_owned()], names(queue)));
    // Both get the same messages: six images for each document, as far as the run goes.
    let released = |flow: &FlowOutcome| [flow.times[0].released, flow.times[1].released];
    let [documents, images] = released(queue);
    assert_eq!(released(conducted), [documents, images]);
    assert!(
        documents > 50 && images <= 6 * documents && images > 6 * (documents - 1),
        "{documents} {images}"
    );
    let mean = |flow: &FlowOutcome| flow.times[0].done.iter().sum::<f64>() / documents as f64;
    assert!(mean(conducted) < 0.5 * mean(queue), "{} {}", mean(conducted), mean(queue));
}

/// Groups of messages in results.
const P0: &str = "messages-p0";
const P3: &str = "messages-p3";

/// Workload that releases equal messages at equal gaps.
#[derive(Debug)]
struct Ticks {
    gap: Duration,
    size: Bytes,
    /// Number of messages that are yet to be released.
    left: u64,
    /// Times that it was told.
    told: Arc<Mutex<Vec<Time>>>,
}

impl Workload for Ticks {
    fn next(&mut self, now: Time, _random: &mut Stream) -> Option<Release> {
        self.told.lock().unwrap().push(now);
        self.left = self.left.checked_sub(1)?;
        Some(Release::new(self.gap, self.size, Priority::P0))
    }
}

/// Runs a flow with this workload, which begins after a second.
fn ticking(kind: &str, keys: &str, numbers: [u64; 3]) -> (Result<FlowOutcome, String>, Vec<Time>) {
    ticking_after(0, kind, keys, numbers)
}

/// Runs a flow with this workload, with a warm-up in seconds.
fn ticking_after(
    warm_up: u64,
    kind: &str,
    keys: &str,
    [gap, size, left]: [u64; 3],
) -> (Result<FlowOutcome, String>, Vec<Time>) {
    let told: Arc<Mutex<Vec<Time>>> = Arc::default();
    let make = {
        let told = Arc::clone(&told);
        move |_: &Parameters| -> Result<Box<dyn Workload>, PluginError> {
            let (gap, size) = (Duration::from_millis(gap), Bytes::new(size));
            Ok(Box::new(Ticks { gap, size, left, told: Arc::clone(&told) }))
        }
    };
    let plugins = Plugins::new().workload("ticks", &[], make).unwrap();
    let text = format!(
        r#"name = "own"
           duration = "5 s"
           warm-up = "{warm_up} s"
           nodes = ["client", "server"]
           link = [{{ between = ["client", "server"], rate = "10 Mbit/s", delay = "5 ms" }}]
           flow = [{{ name = "own", kind = "{kind}", from = "client", to = "server", start = "1 s", workload = "ticks"{keys} }}]"#
    );
    let scenario = Reader::new().plugins(plugins.names()).parse("own.toml", &text).unwrap();
    let run = || -> Result<FlowOutcome, Box<dyn std::error::Error>> {
        let world = build_with(scenario.experiment(), &Traces::new(), &plugins)?;
        Ok(world.run(&mut |_: Time| ())?.flows[0].clone())
    };
    let outcome = run().map_err(|error| error.to_string());
    let told = told.lock().unwrap().clone();
    (outcome, told)
}

#[test]
fn a_workload_releases_until_the_flow_stops() {
    for kind in ["messages", "quic"] {
        let (outcome, told) = ticking(kind, "", [100, 1000, 1_000_000]);
        let times = &outcome.unwrap().times[0];
        // The fortieth is due at the end of the run.
        assert_eq!((times.name.as_str(), times.released), (P0, 39), "{kind}");
        let due: Vec<Time> = (0..40).map(|number| Time::from_millis(1000 + 100 * number)).collect();
        assert_eq!(told, due, "{kind}");
        let (outcome, _) = ticking(kind, ", stop = \"2 s\"", [100, 1000, 1_000_000]);
        assert_eq!(outcome.unwrap().times[0].released, 9, "{kind}");
        let (outcome, told) = ticking(kind, "", [100, 1000, 7]);
        assert_eq!((outcome.unwrap().times[0].released, told.len()), (7, 8), "{kind}");
    }
}

#[test]
fn messages_of_a_workload_count_from_the_end_of_the_warm_up() {
    for kind in ["messages", "quic"] {
        let named =
            ", messages = [{ name = \"one\", after = \"250 ms\", size = \"1 kB\", priority = \"p1\" }]";
        let (outcome, _) = ticking_after(2, kind, named, [100, 1000, 1_000_000]);
        let times = outcome.unwrap().times;
        // Those of 2.0 to 4.9 s. One with a name always counts.
        assert_eq!((times[0].released, times[1].released), (30, 1), "{kind}");
    }
}

#[test]
fn messages_of_file_and_workload_are_sent_in_order_of_time() {
    let named = ", messages = [{ name = \"one\", after = \"250 ms\", size = \"1 kB\", priority = \"p1\" }]";
    for kind in ["messages", "quic"] {
        let (outcome, _) = ticking(kind, named, [100, 1000, 5]);
        let times = outcome.unwrap().times;
        assert_eq!([times[0].name.as_str(), times[1].name.as_str()], [P0, "one"]);
        assert_eq!(times[1].alone.map(|alone| alone.released), Some(Time::from_millis(1250)), "{kind}");
        // Nothing waits for anything else, so all take the same time.
        assert_eq!(times[0].done.len(), 5);
        assert!(times[0].done.iter().all(|done| (5.0..20.0).contains(done)), "{:?}", times[0].done);
    }
}

#[test]
fn a_workload_that_cannot_be_sent_is_an_error_of_the_flow() {
    let error = |numbers| ticking("messages", "", numbers).0.unwrap_err();
    assert_eq!(
        error([100, 15, 1]),
        "the workload `ticks` of the flow `own`: a message has at least 16 B, not 15 B"
    );
    let endless = "the workload `ticks` of the flow `own`: it releases more than 1000000 messages: let it release fewer";
    assert_eq!(error([0, 16, u64::MAX]), endless);
    assert!(ticking("messages", "", [0, 16, 1000]).0.is_ok());
}

/// A scenario with a TCP flow, a queue and a session.
fn scenario(queue: &str, congestion: &str, scheduler: &str) -> String {
    format!(
        r#"name = "own"
           duration = "1 s"
           nodes = ["client", "server"]
           link = [{{ between = ["client", "server"], rate = "10 Mbit/s", delay = "5 ms", queue = {queue} }}]
           flow = [
             {{ name = "bulk", kind = "tcp", from = "client", to = "server", congestion = {congestion} }},
             {{ name = "session", kind = "quic", from = "client", to = "server", scheduler = {scheduler}, bulk = "p4" }},
           ]"#
    )
}

fn plugins() -> Plugins {
    Plugins::new()
        .congestion("picky", &["gain"], |parameters| {
            parameters.number("gain", 0.0..=1.0)?;
            Err("nothing suits it: use another".into())
        })
        .and_then(|plugins| plugins.queue("picky", &[], |_, _| Err("nothing suits it".into())))
        .and_then(|plugins| plugins.scheduler("picky", &[], |_| Err("nothing suits it".into())))
        .unwrap()
}

#[test]
fn an_error_of_a_constructor_names_its_place_and_plugin() {
    let plugins = plugins();
    let error = |queue: &str, congestion: &str, scheduler: &str| {
        let text = scenario(queue, congestion, scheduler);
        let scenario = Reader::new().plugins(plugins.names()).parse("own.toml", &text).unwrap();
        build_with(scenario.experiment(), &Traces::new(), &plugins).err().unwrap().to_string()
    };
    for (queue, congestion, scheduler, expected) in [
        (
            "\"codel\"",
            "{ kind = \"picky\", gain = 2 }",
            "\"cwr\"",
            "the congestion control `picky` of the flow `bulk`: `gain` is 0 to 1, not 2",
        ),
        (
            "\"codel\"",
            "\"picky\"",
            "\"cwr\"",
            "the congestion control `picky` of the flow `bulk`: nothing suits it: use another",
        ),
        (
            "\"picky\"",
            "\"reno\"",
            "\"cwr\"",
            "the queue `picky` of the link `client-server`: nothing suits it",
        ),
        (
            "\"codel\"",
            "\"reno\"",
            "\"picky\"",
            "the lane scheduler `picky` of the flow `session`: nothing suits it",
        ),
    ] {
        let own = [queue, congestion, scheduler].into_iter().find(|value| value.contains("picky")).unwrap();
        let text = scenario(queue, congestion, scheduler);
        let (before, _) = text.split_once(own).unwrap();
        let (line, column) = (before.lines().count(), before.lines().last().unwrap().len() + 1);
        let place = format!("own.toml:{line}:{column}");
        assert_eq!(error(queue, congestion, scheduler), format!("{place}: {expected}"));
    }
}

#[test]
fn plugins_that_were_read_but_not_handed_over_are_refused() {
    let plugins = plugins();
    for (queue, congestion, scheduler, expected) in [
        ("\"picky\"", "\"reno\"", "\"cwr\"", "the link `client-server` names the queue `picky`"),
        ("\"codel\"", "\"picky\"", "\"cwr\"", "the flow `bulk` names the congestion control `picky`"),
        ("\"codel\"", "\"reno\"", "\"picky\"", "the flow `session` names the lane scheduler `picky`"),
    ] {
        let text = scenario(queue, congestion, scheduler);
        let scenario = Reader::new().plugins(plugins.names()).parse("own.toml", &text).unwrap();
        let error = build(scenario.experiment(), &Traces::new()).err().unwrap();
        assert!(matches!(error, BuildError::NoSuchPlugin { .. }), "{error}");
        let advice = ", which is not registered: add it to the plug-ins";
        assert_eq!(error.to_string(), format!("{expected}{advice}"));
    }
}

#[test]
fn a_built_in_name_cannot_be_registered() {
    let error = Plugins::new().congestion("reno", &[], |_| Err("unused".into())).err().unwrap();
    assert!(matches!(error, PluginNameError::BuiltIn { .. }), "{error}");
    let error = plugins().queue("picky", &[], |_, _| Err("unused".into())).err().unwrap();
    assert!(matches!(error, PluginNameError::Twice { .. }), "{error}");
}

#[test]
fn a_connection_takes_its_own_congestion_control() {
    let rate = |own_congestion| {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || LinkConfig::new(Rate::from_mbps(100), Duration::from_millis(50));
        net.link(client, server, link(), link());
        let config = TcpEnd { own_congestion, ..Tcp::with(Congestion::Reno).into() };
        let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless())).unwrap();
        net.run_until(Time::from_secs(5));
        Rate::from_bytes_over(net.reception(flow, Side::Server).bytes, Duration::from_secs(5)).as_bps()
    };
    // A constant window: ten segments of 1448 bytes in each round trip of 100 ms.
    let constant = CongestionFactory::new("constant", |config, _| Box::new(Constant(config.initial_cwnd())));
    assert_eq!(format!("{constant:?}"), "CongestionFactory(\"constant\")");
    let own = rate(Some(constant)) as f64;
    assert!((1.05e6..1.16e6).contains(&own), "{own}");
    assert!(rate(None) > 10_000_000);
}

#[test]
fn a_plugin_of_a_file_runs_only_with_its_factory() {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || LinkConfig::new(Rate::from_mbps(100), Duration::from_millis(50));
    net.link(client, server, link(), link());
    let config = Tcp::with(Congestion::Plugin(Plugin::new("constant")));
    let refused = net.tcp(TcpFlow::new(client, server, config, Bulk::endless())).unwrap_err();
    assert_eq!(refused, FlowError::Config(TcpConfigError::NoFactory));
}

/// Window that never changes.
#[derive(Debug)]
struct Constant(u64);

impl marcato_sim::tcp::congestion::CongestionControl for Constant {
    fn on_ack(&mut self, _: &marcato_sim::tcp::congestion::AckEvent) {}
    fn on_congestion(&mut self, _: Time, _: u64, _: marcato_sim::tcp::congestion::Signal) {}
    fn on_recovered(&mut self, _: Time) {}
    fn on_rto(&mut self, _: Time, _: u64, _: bool) {}
    fn on_idle_restart(&mut self, _: Time, _: bool, _: bool) {}
    fn on_established(&mut self, _: Time, _: Option<Duration>) {}

    fn cwnd(&self) -> u64 {
        self.0
    }

    fn ssthresh(&self) -> u64 {
        self.0
    }
}
