//! Errors as exceptions of the package.

use std::fmt::Display;

use marcato_scenario::ScenarioError;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

/// Returns an exception that the package defines in `marcato._errors`.
fn exception<'py>(py: Python<'py>, class: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let made =
        || -> PyResult<Bound<'py, PyAny>> { py.import("marcato._errors")?.getattr(class)?.call1(arguments) };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for the faults of a scenario.
pub(crate) fn faults(py: Python<'_>, error: &ScenarioError) -> PyErr {
    let faults: Vec<_> = error
        .faults()
        .iter()
        .map(|fault| {
            let at = (fault.file.as_str(), fault.line, fault.column, fault.width);
            (at.0, at.1, at.2, at.3, fault.problem.as_str(), fault.text.as_str())
        })
        .collect();
    exception(py, "ScenarioError", (error.to_string(), faults))
}

/// Returns the exception for a run that failed.
pub(crate) fn run(py: Python<'_>, error: impl Display) -> PyErr {
    exception(py, "RunError", (error.to_string(),))
}
