//! Experiments in a lab, beside those of virtual time.

use std::thread::JoinHandle;

use marcato_lab::Lab;
use marcato_report::{Row, World};
use marcato_scenario::{Experiment, Scenario};
use marcato_sim::scenario::{Outcome, build};
use marcato_units::{Duration, Time};

use crate::error::SimulationError;
use crate::plan::{Plan, Runs};
use crate::{Progress, RunOptions};

/// Error of a lab, or of a scenario that was to run in one.
pub(crate) fn failed(error: impl std::fmt::Display) -> SimulationError {
    SimulationError::Lab(error.to_string())
}

/// Reads the first run of a scenario.
pub(crate) fn experiment(scenario: &str) -> Result<Experiment, SimulationError> {
    let scenario = Scenario::parse("lab.toml", scenario).map_err(failed)?;
    Ok(scenario.run(0).ok_or(SimulationError::Missing("run"))?.experiment)
}

/// Runs the first run of a scenario in a world.
pub(crate) fn run(world: World, scenario: &str) -> Result<Outcome, SimulationError> {
    match world {
        World::Virtual => {
            let world = build(&experiment(scenario)?, &Default::default()).map_err(failed)?;
            world.run(&mut |_: Time| ()).map_err(failed)
        }
        World::Lab => run_prepared(scenario, |_| Ok(())),
    }
}

/// Runs the first run of a scenario in a lab whose hosts are changed before.
pub(crate) fn run_prepared(
    scenario: &str,
    prepare: impl FnOnce(&Lab) -> Result<(), SimulationError>,
) -> Result<Outcome, SimulationError> {
    let experiment = experiment(scenario)?;
    let lab = Lab::open(&experiment, &Default::default(), Default::default()).map_err(failed)?;
    prepare(&lab)?;
    let world = marcato_trial::open_in(&experiment, lab).map_err(failed)?;
    world.run(&mut |_: Time| ()).map_err(failed)
}

/// Runs a program on a host of a lab, on a thread and runtime of its own, for as long as there is patience.
pub(crate) fn on_host<T, F>(
    lab: &Lab,
    host: &str,
    patience: Duration,
    program: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<Result<T, SimulationError>>, SimulationError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, SimulationError>>,
{
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(async { tokio::time::timeout(patience, program()).await.map_err(failed)? })
    };
    lab.thread(host, run).map_err(failed)
}

/// Result of a program on a host, when it has ended.
pub(crate) fn joined<T>(thread: JoinHandle<Result<T, SimulationError>>) -> Result<T, SimulationError> {
    thread.join().map_err(|_| SimulationError::Missing("end of a thread"))?
}

/// Runs a plan whose setups belong to a world.
pub(crate) fn run_plan<Scale>(
    plan: &Plan<Scale>,
    paper: &str,
    world: World,
    options: &RunOptions,
    progress: &mut dyn Progress,
) -> Result<Runs, SimulationError> {
    match world {
        World::Virtual => plan.run(&format!("{paper}, simulated seconds"), options, progress),
        // Runs in real time would disturb each other.
        World::Lab => plan.run_on(1, &format!("{paper}, seconds in the lab"), options, progress),
    }
}

/// Reason for claiming nothing about single values.
pub(crate) const SHORT: &str =
    "a run in real time is short, and its values are shown beside those of the same time in virtual time";

/// Puts the simulation's values beside those of the lab. The bands of virtual time say nothing about a
/// kernel, so their claims are withdrawn.
pub(crate) fn beside(real: Vec<Row>, simulated: &[Row]) -> impl Iterator<Item = Row> {
    real.into_iter().map(move |row| {
        let same = simulated.iter().find(|other| other.id() == row.id()).and_then(Row::measured_value);
        same.into_iter().fold(row.withdrawn_because(SHORT), Row::virtual_)
    })
}

#[cfg(test)]
mod tests {
    use marcato_report::Unit;

    use super::*;

    #[test]
    fn values_of_both_worlds_share_a_row_that_claims_nothing() {
        let row = |id: &str, value| Row::new(id, "", Unit::Ms).measured(value);
        let real = vec![row("a", 1.0).at_most(0.5), row("b", 2.0)];
        let rows: Vec<Row> = beside(real, &[row("b", 3.0), row("a", 4.0)]).collect();
        let values: Vec<_> = rows.iter().map(|row| (row.measured_value(), row.virtual_value())).collect();
        assert_eq!(values, [(Some(1.0), Some(4.0)), (Some(2.0), Some(3.0))]);
        assert_eq!((rows[0].ok(), rows[0].why_unclaimed()), (None, Some(SHORT)));
    }
}
