//! Scenarios.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use marcato_results::fingerprint;
use marcato_scenario::plugin::PluginKind;
use marcato_scenario::record::Record;
use marcato_scenario::{Experiment, Number, Overrides, Reader, Run, ScenarioError, Setting, explain};
use marcato_sim::Trace;
use marcato_sim::scenario::Traces;
use marcato_units::Seed;
use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::error;
use crate::plugin::{self, PluginClass};
use crate::result::{Result as Outcome, metrics, simulate};

/// Text of a scenario with everything that it needs, so that it can be read anywhere.
///
/// The scenario itself is read anew for each call: it belongs to the thread that reads it.
#[derive(Clone)]
pub(crate) struct Source {
    /// Path in messages.
    name: String,
    text: String,
    overrides: Overrides,
    /// Contents of the files that the scenario names.
    files: BTreeMap<String, String>,
    /// Classes that the scenario may name.
    plugins: Arc<Vec<PluginClass>>,
}

impl Source {
    /// Reads the scenario.
    fn read(&self) -> Result<marcato_scenario::Scenario, ScenarioError> {
        let names = plugin::names(&self.plugins).unwrap_or_default();
        let reader = Reader::new().overrides(&self.overrides).files(self.files.clone());
        reader.plugins(&names).read(&self.name, &self.text)
    }

    /// Returns the traces that links may follow. They were checked when the scenario was read.
    fn traces(&self) -> Traces {
        let parsed = self.files.iter().filter_map(|(path, text)| Some((path.clone(), text.parse().ok()?)));
        parsed.collect::<BTreeMap<String, Trace>>()
    }
}

/// Setting of a run: its key, its value as written, and as a number with a unit if it is one.
pub(crate) type Said = (String, String, Option<(&'static str, f64)>);

/// Run of a scenario: its name, settings, seed, and the identity of its experiment without the seed.
type Listed = (String, Vec<Said>, u64, String);

/// Scenario that was read and checked.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Scenario {
    source: Source,
    /// Experiment without the settings of the grid.
    experiment: Experiment,
    count: usize,
}

impl Scenario {
    fn new(py: Python<'_>, mut source: Source) -> PyResult<Self> {
        let read = py.detach(move || {
            let scenario = source.read()?;
            let dir = scenario.dir();
            let missing: Vec<String> = scenario
                .named_files()
                .filter(|path| !source.files.contains_key(*path))
                .map(str::to_owned)
                .collect();
            for path in missing {
                let text = std::fs::read_to_string(dir.join(&path))
                    .map_err(|error| Failed::File(path.clone(), error))?;
                source.files.insert(path, text);
            }
            let (experiment, count) = (scenario.experiment().clone(), scenario.count());
            Ok(Self { source, experiment, count })
        });
        read.map_err(|failed: Failed| failed.raised(py))
    }

    fn again(&self, py: Python<'_>) -> PyResult<marcato_scenario::Scenario> {
        self.source.read().map_err(|error| error::faults(py, &error))
    }
}

/// Class of a plug-in: its kind, name, parameters, itself, and the text of its code.
type Parts = (String, String, Vec<String>, Py<PyAny>, String);

/// Returns classes of plug-ins, if their names can be used.
fn classes(plugins: Vec<Parts>) -> PyResult<Vec<PluginClass>> {
    let class = |(kind, name, parameters, class, code): Parts| {
        let kind = match kind.as_str() {
            "congestion" => PluginKind::Congestion,
            "scheduler" => PluginKind::Scheduler,
            "workload" => PluginKind::Workload,
            other => return Err(PyValueError::new_err(format!("`{other}` is no kind of plug-in"))),
        };
        Ok(PluginClass { kind, name, parameters, class, code })
    };
    let classes = plugins.into_iter().map(class).collect::<PyResult<Vec<_>>>()?;
    plugin::names(&classes).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(classes)
}

/// Error of reading a scenario and its files.
enum Failed {
    Scenario(ScenarioError),
    File(String, std::io::Error),
}

impl From<ScenarioError> for Failed {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

impl Failed {
    fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Scenario(error) => error::faults(py, &error),
            Self::File(path, source) => PyOSError::new_err(format!(
                "`{path}` cannot be read: {source} (its name is relative to the directory of the scenario file)"
            )),
        }
    }
}

/// Returns a setting with its number, in a unit that does not depend on other values.
fn said(Setting { key, value }: &Setting) -> Said {
    let setting = Setting { key: key.clone(), value: value.clone() };
    let number = setting.number().map(|number| match number {
        Number::Plain(number) => ("", number),
        Number::Rate(rate) => ("mbit_per_s", rate.as_mbps_f64()),
        Number::Size(size) => ("bytes", size.get() as f64),
        Number::Packets(packets) => ("packets", packets as f64),
        Number::Span(span) => ("ms", span.as_nanos() as f64 / 1e6),
        Number::PerSecond(number) => ("per_s", number),
    });
    (key.clone(), value.clone(), number)
}

/// Returns a setting with its number, if its value is a quantity.
#[pyfunction]
pub(crate) fn setting(key: String, value: String) -> Said {
    said(&Setting { key, value })
}

#[pymethods]
impl Scenario {
    /// Reads a scenario from `text`; `name` is its path in messages.
    #[new]
    fn read(
        py: Python<'_>,
        name: String,
        text: String,
        set: Vec<String>,
        seed: Option<u64>,
        files: BTreeMap<String, String>,
        plugins: Vec<Parts>,
    ) -> PyResult<Self> {
        let plugins = Arc::new(classes(plugins)?);
        Self::new(py, Source { name, text, overrides: Overrides { set, seed, quick: false }, files, plugins })
    }

    /// Reads a scenario from a file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, plugins: Vec<Parts>) -> PyResult<Self> {
        // The reader names a file that cannot be read, or is not text, as the command line does.
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(_) => {
                let read = py.detach(|| Reader::new().load(&path).map(drop));
                return match read {
                    Err(error) => Err(error::faults(py, &error)),
                    // The file appeared in between.
                    Ok(()) => Self::load(py, path, plugins),
                };
            }
        };
        let plugins = Arc::new(classes(plugins)?);
        Self::new(py, Source { name, text, overrides: Overrides::default(), files: BTreeMap::new(), plugins })
    }

    /// Returns the arguments that create the same scenario.
    fn parts(&self) -> (&str, &str, &[String], Option<u64>, BTreeMap<String, String>) {
        let Source { name, text, overrides, files, .. } = &self.source;
        (name, text, &overrides.set, overrides.seed, files.clone())
    }

    /// Returns the classes that the scenario may name.
    fn plugins(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.source.plugins.iter().map(|one| one.class.clone_ref(py)).collect()
    }

    /// Returns a copy with more settings, each as `KEY=VALUE`, or another seed.
    fn with_settings(&self, py: Python<'_>, set: Vec<String>, seed: Option<u64>) -> PyResult<Self> {
        let mut source = self.source.clone();
        source.overrides.set.extend(set);
        source.overrides.seed = seed.or(source.overrides.seed);
        Self::new(py, source)
    }

    /// Name of the scenario.
    #[getter]
    fn name(&self) -> &str {
        &self.experiment.name
    }

    /// Description of the scenario; may be empty.
    #[getter]
    fn about(&self) -> &str {
        &self.experiment.about
    }

    /// Duration of a run, in seconds of virtual time.
    #[getter]
    fn duration_s(&self) -> f64 {
        self.experiment.duration.as_secs_f64()
    }

    /// Seed of the file, or the one that replaced it.
    #[getter]
    fn seed(&self) -> u64 {
        self.experiment.seed.get()
    }

    /// Number of runs: every combination of the grid with every seed.
    #[getter]
    fn count(&self) -> usize {
        self.count
    }

    /// Whether anything in the run depends on its seed.
    #[getter]
    fn is_random(&self) -> bool {
        self.experiment.is_random()
    }

    /// Identity of the experiment, without the settings of the grid and without the seed.
    #[getter(identity)]
    fn own_identity(&self) -> String {
        self.identity(&self.experiment)
    }

    /// Experiment with every default, as a scenario file.
    #[getter]
    fn toml(&self) -> String {
        self.experiment.to_toml()
    }

    /// Returns the names of the numbers that the first run has at its first instant, which are those at its end.
    fn metrics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let scenario = self.again(py)?;
        let first = scenario.run(0).ok_or_else(|| PyIndexError::new_err("there is no run"))?;
        metrics(first, &self.source.traces(), &self.source.plugins)
    }

    /// Returns the description of what would run.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        Ok(explain(&self.again(py)?))
    }

    /// Returns each run: its name, settings, seed, and the identity of its experiment without the
    /// seed.
    fn runs(&self, py: Python<'_>) -> PyResult<Vec<Listed>> {
        let scenario = self.again(py)?;
        let mut identities: HashMap<Vec<(String, String)>, String> = HashMap::new();
        let listed = scenario.runs().map(|Run { id, settings, seed, experiment, .. }| {
            let key = settings.iter().map(|one| (one.key.clone(), one.value.clone())).collect();
            let identity = identities.entry(key).or_insert_with(|| self.identity(&experiment)).clone();
            (id, settings.iter().map(said).collect(), seed.get(), identity)
        });
        Ok(listed.collect())
    }

    /// Runs the scenario's run of this number.
    ///
    /// With `is_recorded`, series and captures are kept as the scenario says. They change no other
    /// value. The run may take `limit_ns` of wall-clock time.
    #[pyo3(signature = (number, is_recorded, limit_ns = None))]
    fn run(
        &self,
        py: Python<'_>,
        number: usize,
        is_recorded: bool,
        limit_ns: Option<u64>,
    ) -> PyResult<Outcome> {
        let go = || {
            let scenario =
                self.source.read().map_err(|error| Python::attach(|py| error::faults(py, &error)))?;
            let mut run = scenario
                .run(number)
                .ok_or_else(|| PyIndexError::new_err(format!("there is no run {number}")))?;
            if !is_recorded {
                run.experiment.record = Record::default();
            }
            simulate(run, &self.source.traces(), &self.source.plugins, limit_ns.map(Duration::from_nanos))
        };
        // Classes are called for each packet: attaching for each call would give the lock to other threads, and wait
        // for it to come back.
        if self.source.plugins.is_empty() { py.detach(go) } else { go() }
    }
}

impl Scenario {
    /// Returns the SHA-256 of all that determines a run of this experiment, except for its seed.
    fn identity(&self, experiment: &Experiment) -> String {
        // Records do not change a run.
        let bare = Experiment { seed: Seed::new(0), record: Record::default(), ..experiment.clone() };
        let text = bare.to_toml();
        let files = self.source.files.iter().flat_map(|(path, text)| [path.as_str(), text.as_str()]);
        let used = experiment.plugins();
        let code = self.source.plugins.iter().filter(|one| used.contains(&(one.kind, one.name.as_str())));
        let code = code.map(|one| one.code.as_str());
        fingerprint([text.as_str()].into_iter().chain(files).chain(code))
    }
}
