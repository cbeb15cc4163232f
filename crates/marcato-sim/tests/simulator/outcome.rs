//! Results of a scenario as a file has it.

use marcato_scenario::Scenario;
use marcato_sim::scenario::{Outcome, Traces, build};
use marcato_units::Time;

/// Runs the first run of a file in virtual time.
pub(crate) fn outcome(text: &str) -> Outcome {
    let experiment = Scenario::parse("test.toml", text).unwrap().run(0).unwrap().experiment;
    build(&experiment, &Traces::new()).unwrap().run(&mut |_: Time| ()).unwrap()
}
