//! Experiments of the papers.

use std::path::PathBuf;

use marcato_papers::{Experiment, Files, Registry, RunOptions, Silent, Validate, registry};
use marcato_report::{Figure, Report};
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
                Ok(reported(&report))
            })
            .collect()
    })
}

fn reported(report: &Report) -> Reported {
    let document = report.document();
    let figures = Figure::images(report.figures());
    (document.paper().to_owned(), document.to_json(), document.to_csv(), report.to_html(), figures)
}

/// Runs the scenarios of a directory that have claims. Without seeds, each file has its own.
#[pyfunction]
pub(crate) fn experiment(
    py: Python<'_>,
    directory: PathBuf,
    quick: bool,
    seeds: Option<Vec<u64>>,
) -> PyResult<Reported> {
    py.detach(|| {
        let options = seeds.map_or(Ok(RunOptions::default()), RunOptions::seeded);
        let options = options.map_err(|error| PyValueError::new_err(error.to_string()))?.shortened(quick);
        let files = Files::read(&directory).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let report = files.report(&options, &mut Silent);
        report.map(|report| reported(&report)).map_err(|error| Python::attach(|py| error::run(py, error)))
    })
}
