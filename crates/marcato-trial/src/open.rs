//! Opening of a trial.

use marcato_lab::{Lab, LabOptions, Traces};
use marcato_scenario::Experiment;
use marcato_sim::scenario::{Plugins, World, build_on};

use crate::error::TrialError;
use crate::settings;
use crate::socket_fabric::SocketFabric;

/// Opens the lab of an experiment, with its flows ready to run. [`World::run`] runs them in real time.
///
/// # Errors
///
/// If the lab cannot be opened, or a flow asks for what the kernel does not have.
pub fn open(
    experiment: &Experiment,
    traces: &Traces,
    options: LabOptions,
) -> Result<World<SocketFabric>, TrialError> {
    // Before the lab is: it takes seconds, and a right that not everybody has.
    settings::check_coupled(experiment)?;
    open_in(experiment, Lab::open(experiment, traces, options)?)
}

/// Readies the flows of an experiment in its lab, whose hosts may have been changed since it was opened,
/// for example by `tc`.
///
/// # Errors
///
/// If the hosts cannot be set up, or a flow asks for what the kernel does not have.
pub fn open_in(experiment: &Experiment, lab: Lab) -> Result<World<SocketFabric>, TrialError> {
    settings::check_coupled(experiment)?;
    let fabric = SocketFabric::new(experiment, lab)?;
    let mut world = build_on(experiment, fabric, &Plugins::default())?;
    for warning in settings::warnings(experiment) {
        world.warn(warning);
    }
    Ok(world)
}
