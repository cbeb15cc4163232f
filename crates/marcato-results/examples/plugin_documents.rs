//! Documents of the scenarios with plug-ins in `marcato-sim/examples`, as JSON: by the names of their runs.
//!
//! The tests of the Python package compare these bytes with those of the same plug-ins in Python.

use std::collections::BTreeMap;
use std::error::Error;

use marcato_results::{Tables, document};
use marcato_scenario::record::Record;
use marcato_scenario::{Experiment, Run, Scenario};
use marcato_sim::scenario::{Plugins, Traces, build_with};
use marcato_units::Time;

#[allow(dead_code, reason = "an example of its own")]
#[path = "../../marcato-sim/examples/own_congestion_control.rs"]
mod own_congestion_control;
#[allow(dead_code, reason = "an example of its own")]
#[path = "../../marcato-sim/examples/own_lane_scheduler.rs"]
mod own_lane_scheduler;
#[allow(dead_code, reason = "an example of its own")]
#[path = "../../marcato-sim/examples/own_workload.rs"]
mod own_workload;

fn main() -> Result<(), Box<dyn Error>> {
    let mut documents = BTreeMap::new();
    let all = [
        (own_congestion_control::scenario()?, own_congestion_control::plugins()?),
        (own_lane_scheduler::scenario()?, own_lane_scheduler::plugins()?),
        (own_workload::scenario()?, own_workload::plugins()?),
    ];
    for (scenario, plugins) in &all {
        add(&mut documents, scenario, plugins)?;
    }
    println!("{}", serde_json::to_string(&documents)?);
    Ok(())
}

fn add(
    documents: &mut BTreeMap<String, String>,
    scenario: &Scenario,
    plugins: &Plugins,
) -> Result<(), Box<dyn Error>> {
    for run in scenario.runs() {
        let run =
            Run { experiment: Experiment { record: Record::default(), ..run.experiment.clone() }, ..run };
        let outcome = build_with(&run.experiment, &Traces::new(), plugins)?.run(&mut |_: Time| ())?;
        documents.insert(run.id.clone(), document::json(&run, &outcome, &Tables::of(&outcome)));
    }
    Ok(())
}
