//! Scenario: an experiment, with the settings that vary.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use marcato_document::{AddedKinds, Faults, Item, Place, Sources, Table, Value, no_table};
use marcato_units::{Rate, Seed};

use crate::claim::{self, Claim, Points};
use crate::experiment::Experiment;
use crate::fault::ScenarioError;
use crate::figure::{self, Figure};
use crate::grid::{self, Grid};
use crate::limit::{MAX_FAULTS, MAX_FILE, MAX_RUNS, MAX_TRACE};
use crate::read::FORMAT;
use crate::reader::Reader;
use crate::setting::{self, Set, When};
use crate::sizes::{SizeList, SizeListError};
use crate::trace::{Trace, TraceError};
use crate::{check, quick, read, topology};

/// Settings from the command line, in addition to the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Settings as `KEY=VALUE`, for example `link.bottleneck.rate=5 Mbit/s`. The grid does not vary
    /// these keys.
    pub set: Vec<String>,
    /// Seed that replaces the file's; the grid then varies no seeds.
    pub seed: Option<u64>,
    /// Applies the settings of `[quick]`, before those of the command line.
    pub quick: bool,
}

/// Scenario file: an experiment, with the settings that vary.
///
/// ```
/// use marcato_scenario::Scenario;
/// let text = r#"
///   name = "one-flow"
///   duration = "10 s"
///   nodes = ["client", "server"]
///
///   [[link]]
///   between = ["client", "server"]
///   rate = "10 Mbit/s"
///   delay = "20 ms"
///
///   [[flow]]
///   name = "bulk"
///   kind = "tcp"
///   from = "client"
///   to = "server"
///
///   [grid]
///   seeds = 2
///   vary = { "flow.bulk.congestion" = ["reno", "cubic"] }
/// "#;
/// let scenario = Scenario::parse("one-flow.toml", text)?;
/// let ids: Vec<String> = scenario.runs().map(|run| run.id).collect();
/// assert_eq!(ids[0], "congestion=reno,seed=1");
/// assert_eq!(ids.len(), 4);
/// let run = scenario.runs().nth(3).unwrap();
/// assert_eq!(scenario.one_line(&run), "marcato sim one-flow.toml --set flow.bulk.congestion=cubic --seed 2");
/// # Ok::<(), marcato_scenario::ScenarioError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scenario {
    file: String,
    root: Table,
    /// Settings of `[quick]`, if they apply.
    quick: Vec<Set>,
    /// Settings of the command line, parsed and as written.
    given: Vec<Set>,
    said: Vec<String>,
    plugins: Rc<AddedKinds>,
    /// Texts of the file and of the settings, for positions.
    sources: Rc<Sources>,
    grid: Grid,
    claims: Vec<Claim>,
    figures: Vec<Figure>,
    experiment: Experiment,
    /// Notes on events of the file after the end of `experiment`.
    notes: Vec<String>,
    /// Mean rates of the traces that have been read, by path.
    trace_rates: BTreeMap<String, Rate>,
    /// Contents of the files of sizes that have been read, by path.
    sizes: BTreeMap<String, SizeList>,
}

/// Varied setting, with its value in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Key, for example `link.bottleneck.rate`.
    pub key: String,
    /// Value, as a user writes it after `--set KEY=`.
    pub value: String,
}

/// One run of a scenario.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name among the scenario's runs, fit for a file name: `rate=5Mbit-s,congestion=reno,seed=3`.
    pub id: String,
    /// Varied settings with their values in this run, without the seed.
    pub settings: Vec<Setting>,
    /// Seed of the run.
    pub seed: Seed,
    /// Experiment to run.
    pub experiment: Experiment,
    /// Notes on events of the file that are left out because `--set` or the grid ends the run
    /// earlier.
    pub notes: Vec<String>,
}

/// Iterator over the runs of a scenario. The first varied key changes slowest, the seed fastest.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    scenario: &'a Scenario,
    next: usize,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let run = self.scenario.run(self.next)?;
        self.next += 1;
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.scenario.count() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Runs<'_> {}

/// Reads an experiment from `root` with these settings applied.
fn build<'a>(
    root: &Table,
    sets: impl Iterator<Item = &'a Set> + Clone,
    faults: &Faults,
) -> (Experiment, Vec<String>) {
    let varied = grid::varied(root);
    let mut root = root.clone();
    varied.iter().for_each(|set| set.note(&mut root));
    for set in sets.clone() {
        set.make(&mut root, When::BeforeTopology, faults);
    }
    topology::spell_out(&mut root, faults);
    // The links of a topology exist only from here on.
    varied.iter().filter(|set| set.key.name.starts_with("link.")).for_each(|set| set.note(&mut root));
    for set in sets {
        set.make(&mut root, When::AfterTopology, faults);
    }
    read::experiment(&root, faults)
}

impl Scenario {
    /// Reads a scenario from text. Errors refer to it as `name`. Traces are not read.
    ///
    /// # Errors
    /// All faults of the scenario, each with its place.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(name, text, &Overrides::default())
    }

    /// Reads a scenario from text, with settings from the command line.
    ///
    /// The file must be valid without its grid, and so must every combination of the grid.
    ///
    /// # Errors
    /// All faults of the scenario or of the settings, each with its place.
    pub fn parse_with(name: &str, text: &str, overrides: &Overrides) -> Result<Self, ScenarioError> {
        Reader::new().overrides(overrides).parse(name, text)
    }

    /// Reads a scenario from text, without the files that it names.
    pub(crate) fn parse_by(reader: &Reader, name: &str, text: &str) -> Result<Self, ScenarioError> {
        let (scenario, faults) = Self::read(name, text, reader)?;
        faults.into_result()?;
        Ok(scenario)
    }

    fn read(name: &str, text: &str, reader: &Reader) -> Result<(Self, Faults), ScenarioError> {
        let Reader { overrides, plugins, .. } = reader;
        if text.len() > MAX_FILE {
            let problem = format!("the file has {} bytes, but at most {MAX_FILE} are possible", text.len());
            return Err(ScenarioError::unreadable(name, &problem));
        }
        let shown = if name == STDIN { "<stdin>" } else { name };
        let mut sources = Sources(vec![(shown.to_owned(), text.to_owned())]);
        for set in &overrides.set {
            let key = set.split('=').next().unwrap_or_default().trim();
            sources.0.push((format!("--set {}", shorten(key)), set.clone()));
        }
        sources.0.extend(overrides.seed.map(|seed| ("--seed".to_owned(), seed.to_string())));
        let sources = Rc::new(sources);
        let faults = Faults::new(&FORMAT, &sources).knowing(plugins);
        let (mut root, readable) =
            marcato_document::parse(0, text, &["link", "flow", "claim", "figure"], |place, problem| {
                faults.add(place, problem);
            });
        if !readable {
            // After an error of TOML's grammar, further faults would be misleading.
            faults.into_result()?;
            return Err(ScenarioError::unreadable(shown, "this is not TOML"));
        }
        list_tables(&mut root, &faults);
        for (index, set) in overrides.set.iter().enumerate() {
            if set.len() > MAX_FILE {
                faults.add(
                    Place { source: index + 1, start: 0, end: 0 },
                    "this setting is too long".to_owned(),
                );
            }
        }
        let given: Vec<Set> = (1..)
            .zip(&overrides.set)
            .filter_map(|(source, set)| setting::read(source, set, &faults))
            .collect();
        if let Some(seed) = overrides.seed.filter(|seed| *seed > Seed::MAX) {
            let place = Place { source: sources.0.len() - 1, start: 0, end: seed.to_string().len() };
            faults.add(place, format!("a seed is 0 to {}, not {seed}", Seed::MAX));
        }
        let quick = quick::read(&root, &faults);
        let all: Vec<Set> = match overrides.quick {
            true => quick.iter().chain(&given).cloned().collect(),
            false => given.clone(),
        };
        let (mut experiment, notes) = build(&root, all.iter(), &faults);
        note_settings(&root, &all, &overrides.set, &faults);
        if !reader.without_flows {
            read::need_traffic(&root, &faults);
        }
        if !overrides.quick {
            check_quick(&root, &quick, &given, &faults);
        }
        let seeds = quick::seeds(&root).filter(|_| overrides.quick);
        let grid = grid::read(&root, experiment.seed, &all, overrides.seed, seeds, &faults);
        let claims = claim::claims(&root, &Points::new(&root, &grid), &faults);
        let figures = figure::figures(&root, &claims, &faults);
        if let Some(seed) = overrides.seed {
            experiment.seed = Seed::new(seed);
        }
        let most = most_combinations(&experiment, text);
        if grid.combinations() > most {
            let problem = "so many combinations of so large a file take too long to check: split the grid into several files";
            faults.add(root.place_of("grid"), problem.to_owned());
        }
        let scenario = Self {
            file: name.to_owned(),
            root,
            quick: if overrides.quick { quick } else { Vec::new() },
            given,
            said: overrides.set.clone(),
            plugins: Rc::clone(plugins),
            sources,
            grid,
            claims,
            figures,
            experiment,
            notes,
            trace_rates: BTreeMap::new(),
            sizes: BTreeMap::new(),
        };
        if !scenario.grid.axes.is_empty() {
            scenario.check_combinations(&faults, most);
        }
        Ok((scenario, faults))
    }

    /// Reads a scenario from a file, and the traces that it names.
    ///
    /// # Errors
    /// As [`parse_with`](Self::parse_with); or if the file or a trace cannot be read.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, ScenarioError> {
        Reader::new().overrides(overrides).load(path)
    }

    /// Reads a scenario from a file, and the files that it names.
    pub(crate) fn load_by(reader: &Reader, path: &Path) -> Result<Self, ScenarioError> {
        let name = path.display().to_string();
        let unreadable = |problem: String| ScenarioError::unreadable(&name, &problem);
        let file =
            std::fs::File::open(path).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
        let bytes = read_bounded(file, MAX_FILE).map_err(unreadable)?;
        Self::load_bytes(&name, bytes, reader)
    }

    /// Reads a scenario from `input`, for example the standard input, and the traces that it names,
    /// relative to the working directory.
    ///
    /// Its [`file`](Self::file) is `-`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_from(input: impl std::io::Read, overrides: &Overrides) -> Result<Self, ScenarioError> {
        Reader::new().overrides(overrides).load_from(input)
    }

    /// Reads a scenario from `input`, and the files that it names.
    pub(crate) fn load_from_by(reader: &Reader, input: impl std::io::Read) -> Result<Self, ScenarioError> {
        let unreadable = |problem: String| ScenarioError::unreadable("<stdin>", &problem);
        Self::load_bytes(STDIN, read_bounded(input, MAX_FILE).map_err(unreadable)?, reader)
    }

    fn load_bytes(name: &str, bytes: Vec<u8>, reader: &Reader) -> Result<Self, ScenarioError> {
        let shown = if name == STDIN { "<stdin>" } else { name };
        let text = marcato_document::text(bytes).map_err(|wrong| ScenarioError::no_text(shown, &wrong))?;
        Self::read_by(reader, name, &text)
    }

    /// Reads a scenario from text, and the files that it names.
    pub(crate) fn read_by(reader: &Reader, name: &str, text: &str) -> Result<Self, ScenarioError> {
        let (mut scenario, faults) = Self::read(name, text, reader)?;
        let mut named = Vec::new();
        find_paths(&scenario.root, "trace", false, &mut named);
        for set in &scenario.given {
            walk(&set.item, "trace", is_path(&set.key.name, "trace"), &mut named);
        }
        let named: Vec<(String, Place)> =
            named.iter().filter_map(|item| Some((item.as_str()?.to_owned(), item.place))).collect();
        for (trace, place) in named {
            let rate = reader
                .text(&scenario.dir(), &trace)
                .and_then(|text| text.parse().map_err(|error: TraceError| error.to_string()))
                .map(|trace: Trace| trace.mean_rate());
            match rate {
                Ok(rate) => drop(scenario.trace_rates.insert(trace, rate)),
                Err(problem) => faults.add(place, format!("the trace `{trace}`: {problem}")),
            }
        }
        scenario.load_sizes(reader, &faults);
        faults.into_result()?;
        Ok(scenario)
    }

    /// Reads the files from which UDP flows take their sizes.
    fn load_sizes(&mut self, reader: &Reader, faults: &Faults) {
        let mut named = Vec::new();
        find_paths(&self.root, "file", false, &mut named);
        for set in &self.given {
            walk(&set.item, "file", is_path(&set.key.name, "file"), &mut named);
        }
        let named: Vec<(String, Place)> =
            named.iter().filter_map(|item| Some((item.as_str()?.to_owned(), item.place))).collect();
        for (file, place) in named {
            let list = reader
                .text(&self.dir(), &file)
                .and_then(|text| text.parse().map_err(|error: SizeListError| error.to_string()));
            match list {
                Ok(list) => drop(self.sizes.insert(file, list)),
                Err(problem) => faults.add(place, format!("the sizes `{file}`: {problem}")),
            }
        }
        self.experiment.take_sizes(&self.sizes);
        check::check_packets(&self.experiment, &self.root, faults);
    }

    /// Returns the contents of the files from which UDP flows take their sizes, by path; files not
    /// yet read are omitted.
    pub fn size_lists(&self) -> &BTreeMap<String, SizeList> {
        &self.sizes
    }

    /// Returns the paths of the traces and files of sizes that have been read, as the scenario names
    /// them.
    pub fn named_files(&self) -> impl Iterator<Item = &str> {
        self.trace_rates.keys().chain(self.sizes.keys()).map(String::as_str)
    }

    /// Returns the path of the file; `-` for another source.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the directory of the file, to which the paths of traces are relative.
    pub fn dir(&self) -> PathBuf {
        Path::new(&self.file).parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// Returns the file's experiment with the settings of the command line, and without the grid's.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Returns notes on events after the end of [`experiment`](Self::experiment), whose duration
    /// was set.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the mean rate of a trace, if it has been read.
    pub(crate) fn trace_rate(&self, path: &str) -> Option<Rate> {
        self.trace_rates.get(path).copied()
    }

    /// Returns the claims, in the order of the file.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Returns the scenario with one of its claims alone, and without figures.
    ///
    /// # Errors
    /// If it has no such claim: the name, and advice.
    pub fn with_claim(&self, id: &str) -> Result<Self, String> {
        let Some(claim) = self.claims.iter().find(|claim| claim.id == id) else {
            let names = self.claims.iter().map(|claim| claim.id.as_str());
            return Err(format!("`{id}`: {}", marcato_document::nearest::hint(id, names)));
        };
        Ok(Self { claims: vec![claim.clone()], figures: Vec::new(), ..self.clone() })
    }

    /// Returns the figures, in the order of the file.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Returns the seeds of each combination.
    pub fn seeds(&self) -> &[u64] {
        &self.grid.seeds
    }

    /// Returns the error for faults that are found after the file was read; `None` without any.
    pub fn refused(&self, faults: impl IntoIterator<Item = (Place, String)>) -> Option<ScenarioError> {
        let all = Faults::new(&FORMAT, &self.sources);
        faults.into_iter().for_each(|(place, problem)| all.add(place, problem));
        all.into_result().err().map(ScenarioError::from)
    }

    /// Returns the settings that all runs share: those of `[quick]`, then those of the command line.
    fn fixed(&self) -> impl Iterator<Item = &Set> + Clone {
        self.quick.iter().chain(&self.given)
    }

    pub(crate) fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Returns the kind of the topology that was expanded, if any.
    pub(crate) fn topology(&self) -> Option<&str> {
        let topology = self.root.get("topology")?;
        topology.as_str().or_else(|| topology.as_table()?.get("kind")?.as_str())
    }

    /// Returns the number of runs.
    pub fn count(&self) -> usize {
        self.grid.combinations() * self.grid.seeds.len()
    }

    /// Returns every combination of the varied settings with every seed, each as a run with its
    /// settings applied.
    pub fn runs(&self) -> Runs<'_> {
        Runs { scenario: self, next: 0 }
    }

    /// Returns a run, counted from 0; `None` if the number is too large.
    pub fn run(&self, number: usize) -> Option<Run> {
        if number >= self.count() {
            return None;
        }
        let (combination, seed) = (number / self.grid.seeds.len(), number % self.grid.seeds.len());
        let sets = self.grid.combination(combination);
        // Every combination was checked when the file was read, so new faults are impossible.
        let (mut experiment, notes) = build(
            &self.root,
            self.fixed().chain(&sets),
            &Faults::new(&FORMAT, &self.sources).knowing(&self.plugins),
        );
        let seed = Seed::new(self.grid.seeds[seed]);
        experiment.seed = seed;
        experiment.take_sizes(&self.sizes);
        let setting = |set: Set| Setting { value: set.item.spoken(), key: set.key.name };
        let settings: Vec<Setting> = sets.into_iter().map(setting).collect();
        Some(Run { id: self.id(&settings, seed), settings, seed, experiment, notes })
    }

    /// Returns the command line that repeats exactly this run.
    ///
    /// The command knows no plug-ins. A comment of the shell at the end names those that the run
    /// needs: a program that registers them repeats it.
    pub fn one_line(&self, run: &Run) -> String {
        let mut line = format!("marcato sim {}", shell(&self.file));
        if !self.quick.is_empty() {
            line += " --quick";
        }
        let varied: HashSet<&str> = run.settings.iter().map(|setting| setting.key.as_str()).collect();
        for (said, set) in self.said.iter().zip(&self.given) {
            if !varied.contains(set.key.name.as_str()) {
                let value = said.split_once('=').map_or("", |(_, value)| value);
                line += &format!(" --set {}={}", set.key.name, shell(value));
            }
        }
        for Setting { key, value } in &run.settings {
            line += &format!(" --set {key}={}", shell(value));
        }
        line += &format!(" --seed {}", run.seed.get());
        let plugins = run.experiment.plugins();
        let needed: Vec<String> =
            plugins.iter().map(|(kind, name)| format!("{} {name}", kind.noun())).collect();
        match needed.len() {
            0 => line,
            1 => format!("{line} # with the plug-in {}", needed[0]),
            _ => format!("{line} # with the plug-ins {}", needed.join(", ")),
        }
    }

    /// Returns the name of a run: its varied settings, with each key cut to a suffix that
    /// identifies it.
    fn id(&self, settings: &[Setting], seed: Seed) -> String {
        let keys: Vec<&str> = self.grid.axes.iter().map(|axis| axis.key.name.as_str()).collect();
        let mut parts = Vec::new();
        let mut exact = true;
        for Setting { key, value } in settings {
            let (value, same) = plain(value);
            exact &= same;
            parts.push(format!("{}={value}", shortest(key, &keys)));
        }
        parts.push(format!("seed={}", seed.get()));
        let id = parts.join(",");
        if exact && id.len() <= LONGEST_ID {
            return id;
        }
        // A hash of all settings distinguishes runs whose shortened names are equal.
        let all: Vec<String> =
            settings.iter().map(|setting| format!("{}={}", setting.key, setting.value)).collect();
        let short: String = parts[..parts.len() - 1].join(",").chars().take(LONGEST_ID - 40).collect();
        format!("{short}-{:08x},seed={}", hash(&all.join("\n")), seed.get())
    }

    /// Reads each combination and reports its faults, each once with the first combination that has
    /// it.
    ///
    /// Above `most` or [`MAX_RUNS`] combinations, it reads each value separately.
    fn check_combinations(&self, faults: &Faults, most: usize) {
        let most = most.min(MAX_RUNS);
        let is_each = self.grid.combinations() <= most;
        let mut told: HashSet<(Place, String)> = faults.so_far().into_iter().collect();
        // A fault of the file itself recurs in every combination, and was already reported.
        let wrong: HashSet<Place> = told.iter().map(|(place, _)| *place).collect();
        let before = told.len();
        let mut ids: HashMap<String, usize> = HashMap::new();
        for (number, sets) in self.grid.samples(most).enumerate() {
            let found = faults.fresh();
            build(&self.root, self.fixed().chain(&sets), &found);
            let setting = |set: &Set| Setting { value: set.item.spoken(), key: set.key.name.clone() };
            let settings: Vec<Setting> = sets.iter().map(setting).collect();
            let id = self.id(&settings, Seed::new(0));
            if let Some(other) = ids.insert(id.clone(), number).filter(|_| is_each) {
                let place = sets.first().map_or(Place::START, |set| set.key.place);
                found.add(
                    place,
                    format!("the runs {other} and {number} would have the same name, {id}: make one longer"),
                );
            }
            let with: Vec<String> =
                settings.iter().map(|one| format!("{} = {}", one.key, one.value)).collect();
            let note = format!(" (in the runs with {})", with.join(", "));
            for ((place, problem), (_, noted)) in found.noted(&note) {
                // A fault inside the grid already shows the setting, so it needs no note.
                let in_grid = sets.iter().any(|set| place == set.item.place || place == set.key.place);
                if (in_grid || !wrong.contains(&place)) && told.insert((place, problem.clone())) {
                    faults.add(place, if in_grid { problem } else { noted });
                }
            }
            if told.len() - before > MAX_FAULTS {
                return;
            }
        }
    }
}

/// File name of a scenario from the standard input.
const STDIN: &str = "-";

impl Reader {
    /// Returns the text of a file that a scenario in `dir` names.
    fn text(&self, dir: &Path, path: &str) -> Result<String, String> {
        match self.files.get(path) {
            Some(text) => Ok(text.clone()),
            None => read_text(&dir.join(path)),
        }
    }
}

/// Reads the text of a file that a scenario names.
fn read_text(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    marcato_document::text(read_bounded(file, MAX_TRACE)?)
        .map_err(|wrong| format!("line {}, column {}: {wrong}", wrong.line, wrong.column))
}

/// Reads at most `most` bytes; more are an error.
fn read_bounded(input: impl std::io::Read, most: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = input.take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > most {
        return Err(format!("it is longer than {most} bytes, the most that is possible"));
    }
    Ok(bytes)
}

/// Normalises tables written as lists and lists written as tables, with a fault for each, so that
/// the remaining faults are found as well.
fn list_tables(root: &mut Table, faults: &Faults) {
    for name in ["topology", "record", "grid", "quick"] {
        let Some(item) = root.get_mut(name) else { continue };
        let Value::Array(items) = &item.value else { continue };
        let Some(first) = items.iter().find(|item| item.as_table().is_some()).cloned() else { continue };
        faults.add(item.place, no_table(name, item));
        *item = first;
    }
    for name in ["link", "flow", "claim", "figure"] {
        let Some(item) = root.get_mut(name).filter(|item| item.as_table().is_some()) else { continue };
        faults.add(
            item.place,
            format!("`{name}` is a list of tables: write [[{name}]] above each, in double brackets"),
        );
        let alone = item.clone();
        item.value = Value::Array(vec![alone]);
    }
}

/// Appends the responsible settings to each fault that the file alone does not have.
fn note_settings(root: &Table, given: &[Set], said: &[String], faults: &Faults) {
    if given.is_empty() || faults.so_far().iter().all(|(place, _)| place.source != 0) {
        return;
    }
    let alone = faults.fresh();
    build(root, std::iter::empty(), &alone);
    let alone: HashSet<(Place, String)> = alone.so_far().into_iter().collect();
    let said: Vec<String> = said.iter().map(|set| format!("--set {}", shorten(set))).collect();
    let note = format!(" (with {})", said.join(" "));
    faults.annotate(|place, problem| {
        let is_own = place.source != 0 || alone.contains(&(place, problem.to_owned()));
        (!is_own).then(|| note.clone())
    });
}

/// Reports the faults of a quick run that the run itself does not have.
fn check_quick(root: &Table, quick: &[Set], given: &[Set], faults: &Faults) {
    if quick.is_empty() {
        return;
    }
    let known: HashSet<(Place, String)> = faults.so_far().into_iter().collect();
    let found = faults.fresh();
    build(root, quick.iter().chain(given), &found);
    for (fault, (place, noted)) in found.noted(" (with --quick)") {
        if !known.contains(&fault) {
            faults.add(place, noted);
        }
    }
}

/// Shortens a text to the number of characters that an error shows of a setting.
fn shorten(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}

/// Longest name of a run that is not cut.
const LONGEST_ID: usize = 120;

/// Returns the number of combinations that can be checked before that takes minutes, from the cost
/// of reading the file and of finding routes.
fn most_combinations(experiment: &Experiment, text: &str) -> usize {
    const MOST: usize = 200_000_000;
    let size = experiment.nodes.len() + experiment.links.len();
    let routes: usize = experiment.flows.iter().map(|flow| 1 + flow.also.len()).sum();
    let once = text.len() / 4 + size * (1 + routes);
    MOST / once.max(1)
}

/// Returns whether this is the key of a path to a trace or to a file of sizes.
fn is_path(key: &str, what: &str) -> bool {
    key.strip_suffix(what).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Collects the strings under every key `what`, including those in lists, as grids have them.
fn find_paths<'a>(table: &'a Table, what: &str, under: bool, found: &mut Vec<&'a Item>) {
    for (key, item) in &table.entries {
        let is_it = under && matches!(item.value, Value::Array(_)) || is_path(&key.name, what);
        walk(item, what, is_it, found);
    }
}

fn walk<'a>(item: &'a Item, what: &str, is_it: bool, found: &mut Vec<&'a Item>) {
    match &item.value {
        Value::String(_) if is_it => found.push(item),
        Value::Array(items) => items.iter().for_each(|item| walk(item, what, is_it, found)),
        Value::Table(table) => find_paths(table, what, is_it, found),
        _ => {}
    }
}

/// Returns the shortest suffix of whole parts of a key that no other key shares.
fn shortest<'k>(key: &'k str, keys: &[&str]) -> &'k str {
    let starts = key.match_indices('.').map(|(at, _)| at + 1).rev().chain([0]);
    let ends_alike = |tail: &str| {
        keys.iter().filter(|other| **other == tail || other.ends_with(&format!(".{tail}"))).count() > 1
    };
    starts.map(|start| &key[start..]).find(|tail| !ends_alike(tail)).unwrap_or(key)
}

/// Returns a value in a form fit for a file name.
///
/// The flag says whether the form is unambiguous, as far as values that are likely to vary are
/// concerned.
fn plain(value: &str) -> (String, bool) {
    let mut exact = true;
    let mut out = String::new();
    for c in value.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '+' | '-' => out.push(c),
            ' ' => {}
            '/' => out.push('-'),
            _ => exact = false,
        }
    }
    exact &= !out.is_empty() && out.len() <= 40;
    (out.chars().take(40).collect(), exact)
}

/// FNV-1a, folded to 32 bits.
fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (hash ^ hash >> 32) & 0xffff_ffff
}

/// Quotes a word for a shell where necessary.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "./_-+:,=@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.contains(['"', '$', '`', '\\', '!']) {
        format!("'{}'", word.replace('\'', "'\\''"))
    } else {
        format!("\"{word}\"")
    }
}
