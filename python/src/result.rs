//! Results of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::time::Duration;

use marcato_report::{AtomicFile, Figure};
use marcato_results::{FileError, Frame, Numbers, Tables, chart, document, numbers, parquet, report};
use marcato_scenario::Run;
use marcato_scenario::record::Record;
use marcato_sim::scenario::{Outcome, Traces, Watcher, build_with};
use marcato_units::Time;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use tempfile::TempDir;

use crate::error;
use crate::plugin::{self, Exceptions, PluginClass};
use crate::table::Table;
use crate::watch::Watch;

/// Results of one run.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Result {
    run: Run,
    outcome: Outcome,
    tables: Tables,
    messages: Frame,
    json: String,
    /// Captures, until the result is dropped.
    captures: Option<TempDir>,
}

/// Runs a run in virtual time, and for at most `limit` of wall-clock time.
pub(crate) fn simulate(
    run: Run,
    traces: &Traces,
    classes: &Arc<Vec<PluginClass>>,
    limit: Option<Duration>,
) -> PyResult<Result> {
    let failed = |problem: String| Python::attach(|py| error::run(py, problem));
    let captures = match run.experiment.record.pcap.links.is_empty() {
        true => None,
        false => Some(tempfile::Builder::new().prefix("marcato-").tempdir()?),
    };
    let exceptions = Exceptions::default();
    let plugins = plugin::plugins(classes, &exceptions).map_err(|error| failed(error.to_string()))?;
    let world = build_with(&run.experiment, traces, &plugins)
        .map_err(|error| exceptions.take().unwrap_or_else(|| failed(error.to_string())))?;
    // Workloads are called while the world is built.
    if let Some(exception) = exceptions.take() {
        return Err(exception);
    }
    let mut watch = Watch::new(captures.as_ref().map(TempDir::path), limit, &exceptions);
    let outcome = world.run(&mut watch).map_err(|error| failed(error.to_string()))?;
    if let Some(exception) = exceptions.take() {
        return Err(exception);
    }
    if let Some(interrupt) = watch.interrupt() {
        return Err(interrupt);
    }
    if let Some(files) = watch.files {
        files.finish().map_err(os_error)?;
    }
    let messages = watch.completions.frame();
    let tables = Tables::of(&outcome);
    let json = document::json(&run, &outcome, &tables);
    Ok(Result { run, outcome, tables, messages, json, captures })
}

/// Observer that stops a run at its first instant.
struct AtOnce;

impl Watcher for AtOnce {
    fn time(&mut self, _now: Time) {}
    fn captured(&mut self, _link: &str, _back: bool, _part: &[u8]) {}
    fn is_stopped(&self) -> bool {
        true
    }
}

/// Returns the names of the numbers of a run, which is stopped at its first instant.
pub(crate) fn metrics(
    mut run: Run,
    traces: &Traces,
    classes: &Arc<Vec<PluginClass>>,
) -> PyResult<Vec<String>> {
    let failed = |problem: String| Python::attach(|py| error::run(py, problem));
    run.experiment.record = Record::default();
    let exceptions = Exceptions::default();
    let plugins = plugin::plugins(classes, &exceptions).map_err(|error| failed(error.to_string()))?;
    let world = build_with(&run.experiment, traces, &plugins)
        .map_err(|error| exceptions.take().unwrap_or_else(|| failed(error.to_string())))?;
    let outcome = world.run(&mut AtOnce).map_err(|error| failed(error.to_string()))?;
    if let Some(exception) = exceptions.take() {
        return Err(exception);
    }
    let json = document::json(&run, &outcome, &Tables::of(&outcome));
    Ok(numbers(&json).into_iter().map(|(name, _)| name).collect())
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function of map_err")]
fn os_error(error: FileError) -> PyErr {
    PyOSError::new_err(error.to_string())
}

fn write(path: &Path, content: &[u8]) -> PyResult<()> {
    AtomicFile::write(path, content).map_err(|source| os_error(FileError { path: path.to_owned(), source }))
}

impl Result {
    /// Returns the files of the captures, by name.
    fn captured(&self) -> PyResult<Vec<PathBuf>> {
        let Some(captures) = &self.captures else { return Ok(Vec::new()) };
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(captures.path())?.map(|entry| Ok(entry?.path())).collect::<PyResult<_>>()?;
        paths.sort();
        Ok(paths)
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &Frame)> {
        self.tables.named().into_iter().chain([("completions", &self.messages)])
    }
}

#[pymethods]
impl Result {
    /// Name of the run among those of its scenario.
    #[getter]
    fn id(&self) -> &str {
        &self.run.id
    }

    /// Name of the scenario.
    #[getter]
    fn scenario(&self) -> &str {
        &self.run.experiment.name
    }

    /// Description of the scenario.
    #[getter]
    fn about(&self) -> String {
        report::about(&self.run.experiment)
    }

    /// Seed of the run.
    #[getter]
    fn seed(&self) -> u64 {
        self.run.seed.get()
    }

    /// Number of events that the simulator processed.
    #[getter]
    fn events(&self) -> u64 {
        self.outcome.events
    }

    /// Warnings that the run may not have done what was intended.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.outcome.warnings.iter().map(ToString::to_string).collect()
    }

    /// Document of the run as JSON, byte for byte that of `marcato sim --format json`.
    #[getter]
    fn json(&self) -> &str {
        &self.json
    }

    /// Returns every number of the run with its name; a missing one is not a number.
    fn numbers(&self) -> Numbers {
        numbers(&self.json)
    }

    /// Returns a table by its name.
    fn table(&self, name: &str) -> PyResult<Table> {
        if name == "summary" {
            let (metrics, values): (Vec<String>, Vec<f64>) = self.numbers().into_iter().unzip();
            return Table::of(&Frame::new().text("metric", metrics).number("value", values));
        }
        let found = self.named().find(|(other, _)| *other == name);
        let (_, frame) = found.ok_or_else(|| PyValueError::new_err(format!("there is no table `{name}`")))?;
        Table::of(frame)
    }

    /// Returns the report as a page of HTML.
    fn report(&self) -> String {
        report::of(&self.run, &self.outcome, &self.tables).to_html()
    }

    /// Returns the figures: id, SVG and caption of each.
    fn figures(&self) -> Vec<(String, String, String)> {
        let figures = chart::series(&self.outcome).into_iter().chain(chart::completions(&self.outcome.flows));
        Figure::images(&figures.collect::<Vec<_>>())
    }

    /// Writes a Parquet file for each table with rows, and returns their paths.
    fn to_parquet(&self, py: Python<'_>, directory: PathBuf) -> PyResult<Vec<PathBuf>> {
        py.detach(|| {
            std::fs::create_dir_all(&directory)?;
            let mut paths = Vec::new();
            for (name, frame) in self.named().filter(|(_, frame)| !frame.is_empty()) {
                let path = directory.join(format!("{name}.parquet"));
                let bytes = parquet::of(frame).map_err(|error| PyOSError::new_err(error.to_string()))?;
                write(&path, &bytes)?;
                paths.push(path);
            }
            Ok(paths)
        })
    }

    /// Copies the captures into a directory, and returns their paths.
    fn pcap(&self, py: Python<'_>, directory: PathBuf) -> PyResult<Vec<PathBuf>> {
        py.detach(|| {
            let mut paths = Vec::new();
            for from in self.captured()? {
                std::fs::create_dir_all(&directory)?;
                let Some(name) = from.file_name() else { continue };
                let to = directory.join(name);
                std::fs::copy(&from, &to)?;
                paths.push(to);
            }
            Ok(paths)
        })
    }

    /// Writes the files of `marcato sim --out`.
    fn save(&self, py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        py.detach(|| {
            std::fs::create_dir_all(&directory)?;
            marcato_results::write(&directory, &self.run, &self.outcome, &self.tables, &self.json)
                .map_err(os_error)?;
            if !self.messages.is_empty() {
                write(&directory.join("completions.csv"), self.messages.to_csv().as_bytes())?;
            }
            Ok::<(), PyErr>(())
        })?;
        self.to_parquet(py, directory.clone())?;
        self.pcap(py, directory)?;
        Ok(())
    }
}
