//! A lane scheduler of one's own: it always takes the cheapest lane, and waits while that is full.
//!
//! `cargo run --release -p marcato-sim --example own_lane_scheduler` compares it with the built-in
//! scheduler of the lowest round-trip time. Over real sockets, the same factory goes into
//! `SessionConfig::own_scheduler`.

use std::error::Error;

use marcato_quic::SchedulerFactory;
use marcato_scenario::{Reader, Scenario};
use marcato_sched::schedule::{Choice, LaneScheduler, eligible, fastest, one_or_wait};
use marcato_sched::{LaneSet, LaneView, Purpose};
use marcato_sim::scenario::{LaneOutcome, Plugins, Traces, build_with};
use marcato_units::{Bytes, Time};

/// Takes the cheapest lane that is usable. Paths cost more from the first to the last, as in a
/// session that begins on Wi-Fi and has a mobile path in reserve.
#[derive(Debug)]
struct Cheapest;

impl LaneScheduler for Cheapest {
    fn choose(&mut self, _now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        let among = eligible(lanes).without(purpose.barred());
        let cheapest = lanes.iter().filter(|lane| among.contains(lane.id)).min_by_key(|lane| lane.path);
        let only = cheapest.map_or(LaneSet::EMPTY, |lane| LaneSet::one(lane.id));
        one_or_wait(fastest(lanes, only, len, |_| Bytes::ZERO), only)
    }
}

/// A session on a slow path and a quick one, which sends 6 Mbit/s; either path could carry it.
const SCENARIO: &str = r#"
    name = "own-lane-scheduler"
    duration = "10 s"
    nodes = ["wifi", "mobile", "server-1", "server-2"]

    [[link]]
    between = ["wifi", "server-1"]
    rate = "20 Mbit/s"
    delay = "30 ms"

    [[link]]
    between = ["mobile", "server-2"]
    rate = "20 Mbit/s"
    delay = "10 ms"

    [[flow]]
    name = "session"
    kind = "quic"
    paths = [["wifi", "server-1"], ["mobile", "server-2"]]
    sources = [{ period = "20 ms", size = "15 kB", priority = "p1" }]

    [grid]
    vary = { "flow.session.scheduler" = ["low-rtt", "cheapest"] }
"#;

/// Scheduler of a run, and the results of the lanes.
type Run = (String, Vec<LaneOutcome>);

/// Returns the registry with the scheduler.
pub(crate) fn plugins() -> Result<Plugins, Box<dyn Error>> {
    let plugins = Plugins::new().scheduler("cheapest", &[], |_parameters| {
        Ok(SchedulerFactory::new("cheapest", |_framing| Box::new(Cheapest)))
    })?;
    Ok(plugins)
}

/// Reads the scenario, which names the plug-in.
pub(crate) fn scenario() -> Result<Scenario, Box<dyn Error>> {
    Ok(Reader::new().plugins(plugins()?.names()).parse("own_lane_scheduler", SCENARIO)?)
}

/// Runs the scenario with each scheduler.
pub(crate) fn compare() -> Result<Vec<Run>, Box<dyn Error>> {
    let (plugins, scenario) = (plugins()?, scenario()?);
    let run = |run: marcato_scenario::Run| {
        let outcome = build_with(&run.experiment, &Traces::new(), &plugins)?.run(&mut |_: Time| ())?;
        Ok((run.settings[0].value.clone(), outcome.flows[0].lanes.clone()))
    };
    scenario.runs().map(run).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    for (scheduler, lanes) in compare()? {
        for lane in lanes {
            println!("{scheduler:<10} {:<18} {:>6} kB", lane.name, lane.bytes.get() / 1000);
        }
    }
    Ok(())
}
