//! `marcato lab trial`: the flows of a scenario over the kernel's sockets.

use std::io::Write;
use std::path::Path;

use marcato_lab::LabOptions;
use marcato_scenario::{Overrides, Run, Scenario};
use marcato_sim::scenario::Traces;

use super::{LabError, load_scenario, privileges};
use crate::Status;
use crate::arguments::LabTrial;
use crate::interrupt::Interrupt;
use crate::output;
use crate::sim::{Done, SimError, check, execute};

pub(super) fn run(asked: &LabTrial, stdout: &mut dyn Write) -> Result<Status, LabError> {
    let (scenario, traces) = load(asked)?;
    let run = scenario.run(0).ok_or(LabError::NoRun)?;
    if scenario.count() > 1 {
        eprintln!("this is {}, the first of {} runs of this scenario", run.id, scenario.count());
    }
    let claims = check(&scenario, &traces).map_err(failed)?;
    privileges();
    let interrupt = Interrupt::listen().map_err(LabError::Interrupt)?;
    let out = asked.out.as_deref();
    let mut done = in_lab(&run, &traces, asked.offload, out, &interrupt).map_err(failed)?;
    let judgement = done.judge(&claims);
    // Results that cannot be written are printed nevertheless.
    let written = out.map_or(Ok(()), |out| done.write(out, &run).and_then(|()| judgement.write(out)));
    let text = done.format(&run, asked.format, &judgement);
    output::print(stdout, &text).map_err(LabError::Print)?;
    written.map_err(failed)?;
    Ok(judgement.status())
}

/// Reads a scenario and the traces that its links follow.
pub(super) fn load(asked: &LabTrial) -> Result<(Scenario, Traces), LabError> {
    let overrides = Overrides { set: asked.set.clone(), seed: asked.seed, quick: false };
    let scenario = load_scenario(&asked.file, overrides)?;
    let traces =
        marcato_results::traces(&scenario).map_err(|error| LabError::Trace(Box::new(error.into())))?;
    Ok((scenario, traces))
}

pub(super) fn failed(error: SimError) -> LabError {
    LabError::Run(Box::new(error))
}

/// Executes a run in a lab.
pub(super) fn in_lab(
    run: &Run,
    traces: &Traces,
    offload: bool,
    out: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<Done, SimError> {
    let mut experiment = run.experiment.clone();
    if out.is_none() {
        // Without a directory, captures would be discarded.
        experiment.record.pcap.links.clear();
    }
    let world = marcato_trial::open(&experiment, traces, LabOptions { offload })?;
    execute(run, world, out, "seconds in the lab", interrupt)
}
