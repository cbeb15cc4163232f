//! Experiments of the papers.

use marcato_papers::{Experiment, Registry, RunOptions, Silent, Validate, registry};
use marcato_report::Figure;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;

/// Figure: its id, SVG and caption.
type Drawn = (String, String, String);

/// Report of a paper: its name, document as JSON, document as CSV, page, and figures.
type Reported = (String, String, String, String, Vec<Drawn>);

/// Runs the experiments of a paper, of `all`, or `validate`, in virtual time.
#[pyfunction]
pub(crate) fn papers(py: Python<'_>, paper: &str, quick: bool, seeds: Vec<u64>) -> PyResult<Vec<Reported>> {
    py.detach(|| {
        let wrong = |problem: String| PyValueError::new_err(problem);
        let options = RunOptions::seeded(seeds).map_err(|error| wrong(error.to_string()))?.shortened(quick);
        let registry = registry();
        let chosen: Vec<&dyn Experiment> = match paper {
            "validate" => vec![&Validate],
            name => registry.select(name).map_err(|error| wrong(error.to_string()))?,
        };
        // All papers are those of this world.
        let chosen =
            chosen.into_iter().filter(|one| paper != Registry::ALL || one.worlds().contains(&options.world));
        chosen
            .map(|experiment| {
                let report = Registry::run(experiment, &options, &mut Silent)
                    .map_err(|error| Python::attach(|py| error::run(py, error)))?;
                let figures = Figure::images(report.figures());
                let document = report.document();
                Ok((
                    document.paper().to_owned(),
                    document.to_json(),
                    document.to_csv(),
                    report.to_html(),
                    figures,
                ))
            })
            .collect()
    })
}
