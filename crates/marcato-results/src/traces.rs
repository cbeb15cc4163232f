//! Traces that a scenario's links follow.

use std::collections::BTreeSet;
use std::fmt;

use marcato_scenario::Scenario;
use marcato_sim::scenario::Traces;

/// Error of reading a trace.
#[derive(Debug)]
pub struct TraceFileError {
    /// Path as in the scenario.
    path: String,
    problem: String,
}

impl fmt::Display for TraceFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the trace `{}` cannot be read: {}", self.path, self.problem)
    }
}

impl std::error::Error for TraceFileError {}

/// Reads the traces that any of the runs follows.
///
/// # Errors
/// If a trace cannot be read.
pub fn traces(scenario: &Scenario) -> Result<Traces, TraceFileError> {
    let mut named = BTreeSet::new();
    for run in scenario.runs() {
        named.extend(run.experiment.traces().into_iter().map(str::to_owned));
    }
    let read = |path: String| {
        let failed = |problem: String| TraceFileError { path: path.clone(), problem };
        let text =
            std::fs::read_to_string(scenario.dir().join(&path)).map_err(|error| failed(error.to_string()))?;
        let trace = text.parse().map_err(|error: marcato_sim::TraceError| failed(error.to_string()))?;
        Ok((path, trace))
    };
    named.into_iter().map(read).collect()
}
