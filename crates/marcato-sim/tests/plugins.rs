//! Congestion controls, queues and lane schedulers of other crates. Each example is one, and runs
//! here too.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use marcato_scenario::Reader;
use marcato_scenario::plugin::PluginNameError;
use marcato_sim::scenario::{BuildError, Plugins, Traces, build, build_with};
use marcato_sim::tcp::congestion::CongestionFactory;
use marcato_sim::{Bulk, LinkConfig, Network, Side, TcpConfig, TcpFlow};
use marcato_units::{Duration, Rate, Seed, Time};

#[allow(dead_code, reason = "main() prints what the test checks")]
#[path = "../examples/own_congestion_control.rs"]
mod own_congestion_control;
#[allow(dead_code, reason = "main() prints what the test checks")]
#[path = "../examples/own_lane_scheduler.rs"]
mod own_lane_scheduler;
#[allow(dead_code, reason = "main() prints what the test checks")]
#[path = "../examples/own_queue.rs"]
mod own_queue;

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
        let config = TcpConfig { own_congestion, ..TcpConfig::default() };
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
