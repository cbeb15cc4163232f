//! Opening of a trial.

use marcato_lab::{LabOptions, Traces};
use marcato_scenario::Experiment;
use marcato_sim::scenario::{Plugins, World, build_on};

use crate::error::TrialError;
use crate::ground::Ground;
use crate::settings;

/// Opens the lab of an experiment, with its flows ready to run. [`World::run`] runs them in real time.
///
/// # Errors
///
/// If the lab cannot be opened, or a flow asks for what the kernel does not have.
pub fn open(
    experiment: &Experiment,
    traces: &Traces,
    options: LabOptions,
) -> Result<World<Ground>, TrialError> {
    let ground = Ground::open(experiment, traces, options)?;
    let mut world = build_on(experiment, ground, &Plugins::default())?;
    for warning in settings::warnings(experiment) {
        world.warn(warning);
    }
    Ok(world)
}
