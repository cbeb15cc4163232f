//! Experiments as files: scenarios with claims, each with its text beside it.

use std::fs;
use std::path::{Path, PathBuf};

use marcato_report::{AtomicFile, Document, Report};
use marcato_results::claims::{Cell, measure};
use marcato_results::{Claims, Judged, Numbers, TraceFileError, Verdict, figures, traces};
use marcato_scenario::claim::Point;
use marcato_scenario::{Overrides, Reader, Run, Scenario, ScenarioError, Setting};
use thiserror::Error;

use crate::answer::Answer;
use crate::{Progress, RunError, RunOptions, over_seeds, pool, prose};

/// Name of the experiments of a directory in messages.
const DIRECTORY: &str = "the directory";

/// Scenario file with its text.
#[derive(Clone, Debug)]
pub struct File {
    /// Path of the scenario, as in messages and commands.
    pub path: String,
    /// Scenario.
    pub scenario: String,
    /// Text of its section, as Markdown without markup; may be empty.
    pub text: String,
}

/// Scenario files of a directory, or of the program.
#[derive(Clone, Debug)]
pub struct Files {
    name: String,
    files: Vec<File>,
}

/// Error of an experiment that consists of files.
#[derive(Debug, Error)]
pub enum FilesError {
    /// A directory or file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// There is nothing to run.
    #[error("`{}` has no scenario with claims: add files *.toml that have [[claim]]", .0.display())]
    Nothing(PathBuf),
    /// A scenario is wrong.
    #[error("the scenario cannot be run:\n{0}")]
    Scenario(#[from] ScenarioError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// A run failed.
    #[error("the run {id} of `{path}` failed: {problem}")]
    Run {
        /// Path of the scenario.
        path: String,
        /// Name of the run.
        id: String,
        /// Cause.
        problem: String,
    },
    /// Two files have a claim of the same name.
    #[error("`{second}` has a claim `{id}`, as `{first}` has: rename one")]
    Twice {
        /// Name of the claims.
        id: String,
        /// Path of the first file.
        first: String,
        /// Path of the second file.
        second: String,
    },
    /// No file has the claim.
    #[error("no file has a claim `{id}`: {advice}")]
    NoSuchRow {
        /// Name of the claim.
        id: String,
        /// Nearest name.
        advice: String,
    },
}

impl File {
    fn read(&self, seed: Option<u64>, quick: bool) -> Result<Scenario, FilesError> {
        let overrides = Overrides { seed, quick, ..Overrides::default() };
        Ok(Reader::new().overrides(&overrides).read(&self.path, &self.scenario)?)
    }

    /// Runs what the claims need, and answers with their rows and figures. The seeds are those of the
    /// file without a `seed`.
    pub(crate) fn answer(&self, seed: Option<u64>, quick: bool, jobs: usize) -> Result<Answer, FilesError> {
        let scenario = self.read(seed, quick)?;
        let traces = traces(&scenario)?;
        let claims = Claims::check(&scenario, &traces)?;
        let runs: Vec<(usize, Run)> =
            claims.runs().into_iter().filter_map(|number| Some((number, scenario.run(number)?))).collect();
        let mut done: Vec<Option<Numbers>> = vec![None; scenario.count()];
        let run = |(_, run): &(usize, Run)| {
            let (path, id) = (self.path.clone(), run.id.clone());
            measure(run, &traces).map_err(|problem| FilesError::Run { path, id, problem })
        };
        pool::spread(jobs, &runs, run, |(number, _), numbers| done[*number] = Some(numbers))?;
        let judged = claims.judge(|run| done[run].as_ref().map_or(Cell::LeftOut, Cell::Done));
        let rows = judged.iter().filter(|one| one.verdict != Verdict::LeftOut).map(|one| one.row.clone());
        let about = &scenario.experiment().about;
        let title = if about.is_empty() { &scenario.experiment().name } else { about };
        let mut answer = Answer::new(title, prose::text(&self.text), rows.collect());
        answer.section = drawn(&scenario, &judged).fold(answer.section, marcato_report::Section::figure);
        Ok(answer)
    }
}

fn drawn(scenario: &Scenario, judged: &[Judged]) -> impl Iterator<Item = marcato_report::Figure> + use<> {
    figures::of(scenario, judged).into_iter()
}

impl Files {
    /// Creates the files of an experiment of the program.
    pub(crate) fn built_in(name: &str, files: Vec<File>) -> Self {
        Self { name: name.to_owned(), files }
    }

    /// Reads the scenarios of a directory that have claims, in the order of their names, each with the
    /// text of the file `NAME.md` beside it.
    ///
    /// # Errors
    /// If something cannot be read, or no scenario has a claim.
    pub fn read(directory: &Path) -> Result<Self, FilesError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FilesError::Read { path, source }
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory).map_err(failed(directory))? {
            let path = entry.map_err(failed(directory))?.path();
            if path.extension().is_some_and(|end| end == "toml") {
                paths.push(path);
            }
        }
        paths.sort();
        let mut files = Vec::new();
        for path in paths {
            let scenario = fs::read_to_string(&path).map_err(failed(&path))?;
            let beside = path.with_extension("md");
            let text = match beside.exists() {
                true => fs::read_to_string(&beside).map_err(failed(&beside))?,
                false => String::new(),
            };
            let file = File { path: path.display().to_string(), scenario, text };
            if !file.read(None, false)?.claims().is_empty() {
                files.push(file);
            }
        }
        let name = directory.file_name().map_or_else(|| "experiments".into(), |name| name.to_string_lossy());
        match files.is_empty() {
            true => Err(FilesError::Nothing(directory.to_owned())),
            false => Ok(Self { name: name.into_owned(), files }),
        }
    }

    /// Runs everything. With the default seed 1 alone, each file has its own seeds.
    ///
    /// # Errors
    /// If a file is wrong, or a run fails.
    pub fn report(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        let failed = |error: FilesError| RunError::failed(DIRECTORY, error);
        self.check().map_err(failed)?;
        let mut document = Document::new(&self.name, options);
        let mut sections = Vec::new();
        let own = options.seeds() == [1];
        for file in &self.files {
            progress.begin(&file.path, Some(options.seeds().len() as u64));
            let mut first = None;
            let mut answer = |seed| {
                let answer = file.answer(seed, options.quick, options.jobs()).map_err(failed)?;
                first.get_or_insert(answer.section);
                Ok(answer.rows)
            };
            let rows = match own {
                true => answer(None)?,
                false => over_seeds(options, progress, |seed, progress| {
                    let rows = answer(Some(seed))?;
                    progress.advance(1);
                    Ok(rows)
                })?,
            };
            document = document.with_rows(rows);
            sections.extend(first);
        }
        let about = format!("{} scenarios with claims", self.files.len());
        Ok(sections.into_iter().fold(Report::new(&self.name, about, document), Report::section))
    }

    /// Checks that no two files have a claim of one name.
    fn check(&self) -> Result<(), FilesError> {
        let mut seen: Vec<(String, &File)> = Vec::new();
        for file in &self.files {
            for claim in file.read(None, false)?.claims() {
                if let Some((_, first)) = seen.iter().find(|(id, _)| *id == claim.id) {
                    let (first, second) = (first.path.clone(), file.path.clone());
                    return Err(FilesError::Twice { id: claim.id.clone(), first, second });
                }
                seen.push((claim.id.clone(), file));
            }
        }
        Ok(())
    }

    /// Explains a row: its file, its point of the grid, and the command that runs only it.
    ///
    /// # Errors
    /// If no file has the row.
    pub fn explain(&self, id: &str) -> Result<String, FilesError> {
        let mut ids = Vec::new();
        for file in &self.files {
            let scenario = file.read(None, false)?;
            let Some(claim) = scenario.claims().iter().find(|claim| claim.id == id) else {
                ids.extend(scenario.claims().iter().map(|claim| claim.id.clone()));
                continue;
            };
            let line = |name: &str, value: &str| format!("{name:<9} {value}\n");
            let mut text = line("row", id) + &line("what", &claim.what) + &line("file", &file.path);
            text += &line("metric", &claim.metric);
            let points =
                [("at", Some(&claim.at)), ("minus", claim.minus.as_ref()), ("over", claim.over.as_ref())];
            for (name, point) in points {
                text += &point.map_or_else(String::new, |point| line(name, &listed(point)));
            }
            if let Some(published) = claim.published {
                text += &line("published", &format!("{published} {}", claim.source));
            }
            text += &line("command", &format!("marcato sim {} --claim {id}", file.path));
            return Ok(text);
        }
        let advice = marcato_scenario::nearest::hint(id, ids.iter().map(String::as_str));
        Err(FilesError::NoSuchRow { id: id.to_owned(), advice })
    }

    /// Writes the files into a directory, which is created if it is missing.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn export(&self, directory: &Path) -> Result<(), FilesError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FilesError::Write { path, source }
        };
        fs::create_dir_all(directory).map_err(failed(directory))?;
        for file in &self.files {
            let path = directory.join(Path::new(&file.path).file_name().unwrap_or_default());
            AtomicFile::write(&path, &file.scenario).map_err(failed(&path))?;
            if !file.text.is_empty() {
                let path = path.with_extension("md");
                AtomicFile::write(&path, &file.text).map_err(failed(&path))?;
            }
        }
        Ok(())
    }
}

fn listed(point: &Point) -> String {
    let settings = point.settings.iter().map(|Setting { key, value }| format!("{key} = {value}"));
    let listed = settings.collect::<Vec<_>>().join(", ");
    if listed.is_empty() { "the only point".to_owned() } else { listed }
}
