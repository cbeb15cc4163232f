//! `marcato sim`: runs scenarios and writes their results.

mod capture;
mod error;
mod explained;
pub(crate) mod grid;
mod handover;
mod judgement;
mod runs;
pub(crate) mod store;
mod summary;
pub(crate) mod text;

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use marcato_papers::Progress as _;
use marcato_results::claims::{Cell, measure};
use marcato_results::{Claims, Numbers, Tables, document, numbers, parquet};
use marcato_scenario::{Overrides, Run, Scenario, explain};
use marcato_sim::scenario::{Advance, Outcome, Traces, World, build};

use self::capture::Captures;
use self::error::Kept;
pub(crate) use self::error::SimError;
use self::handover::HandoverError;
use self::judgement::Judgement;
pub(crate) use self::judgement::check;
use self::store::{Manifest, Store};
use crate::Status;
use crate::arguments::{Format, Sim};
use crate::interrupt::Interrupt;
use crate::output::{self, Directory};
use crate::progress::Bar;

pub(crate) fn run(asked: &Sim, stdout: &mut dyn Write) -> Result<Status, SimError> {
    let overrides = Overrides { set: asked.set.clone(), seed: asked.seed, quick: asked.quick };
    let scenario = match asked.file.as_os_str() == "-" {
        true => Scenario::load_from(std::io::stdin().lock(), &overrides)?,
        false => Scenario::load(&asked.file, &overrides)?,
    };
    if asked.explain {
        let explained = match asked.format {
            Format::Text => explain(&scenario),
            Format::Json => explained::to_json(&scenario),
            Format::Csv => return Err(SimError::ExplainTable),
        };
        output::print(stdout, &explained).map_err(SimError::Print)?;
        return Ok(Status::Ok);
    }
    if let Some(id) = &asked.claim {
        return one_claim(asked, &scenario, id, stdout);
    }
    if asked.resume && asked.out.is_none() {
        return Err(SimError::ResumeWhat);
    }
    if asked.runs_on.is_some() && scenario.file() == "-" {
        return Err(HandoverError::Input.into());
    }
    let traces = marcato_results::traces(&scenario)?;
    let claims = check(&scenario, &traces)?;
    if asked.claims && claims.is_empty() {
        return Err(SimError::NoClaims);
    }
    let Printed { text, written, status } = match scenario.run(0).filter(|_| scenario.count() == 1) {
        Some(_) if asked.resume => return Err(SimError::ResumeOne),
        Some(_) if asked.runs_on.is_some() => return Err(HandoverError::OneRun.into()),
        Some(one) => single(asked, &one, &manifest(&scenario, &traces), &traces, &claims)?,
        None => every(asked, &scenario, &traces, &claims)?,
    };
    output::print(stdout, &text).map_err(SimError::Print)?;
    written.map(|()| status)
}

/// Judges one claim, and runs only what it needs.
fn one_claim(asked: &Sim, scenario: &Scenario, id: &str, stdout: &mut dyn Write) -> Result<Status, SimError> {
    let traces = marcato_results::traces(scenario)?;
    let scenario = scenario.with_claim(id).map_err(SimError::NoClaim)?;
    let claims = check(&scenario, &traces)?;
    let mut done: Vec<Option<Numbers>> = vec![None; scenario.count()];
    for number in claims.runs() {
        let Some(run) = scenario.run(number) else { continue };
        let failed = |problem: String| SimError::Run { id: run.id.clone(), problem };
        done[number] = Some(measure(&run, &traces).map_err(failed)?);
    }
    let judgement = Judgement::of(&claims, |run| done[run].as_ref().map_or(Cell::LeftOut, Cell::Done));
    output::print(stdout, &judgement.format(asked.format)).map_err(SimError::Print)?;
    Ok(judgement.status())
}

/// Results to print, and the status of the command.
struct Printed {
    text: String,
    /// Error of failed runs, or of writing the results to a directory: they are printed nevertheless.
    written: Result<(), SimError>,
    status: Status,
}

/// Executes the only run of a scenario.
fn single(
    asked: &Sim,
    one: &Run,
    manifest: &Manifest,
    traces: &Traces,
    claims: &Claims<'_>,
) -> Result<Printed, SimError> {
    let out = asked.out.as_deref();
    if let Some(out) = out {
        manifest.check(out)?;
    }
    let mut experiment = one.experiment.clone();
    if out.is_none() {
        // Without a directory, captures would be discarded.
        experiment.record.pcap.links.clear();
    }
    let world = build(&experiment, traces)?;
    let interrupt = Interrupt::listen().map_err(SimError::Interrupt)?;
    let mut result = execute(one, world, out, "simulated seconds", &interrupt)?;
    let judgement = result.judge(claims);
    let write = |out| {
        manifest.write(out)?;
        result.write(out, one)?;
        judgement.write(out)
    };
    let written = out.map_or(Ok(()), write);
    let text = match asked.claims {
        true => judgement.format(asked.format),
        false => result.format(one, asked.format, &judgement),
    };
    Ok(Printed { text, written, status: judgement.status() })
}

/// Result of one run.
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) tables: Tables,
    /// Document of the run.
    pub(crate) json: String,
}

/// Executes a run in its world, in virtual or in real time, with a bar that counts `seconds`. What is
/// recorded during the run is written into `out`.
pub(crate) fn execute<F: Advance>(
    one: &Run,
    world: World<F>,
    out: Option<&Path>,
    seconds: &str,
    interrupt: &Interrupt,
) -> Result<Done, SimError>
where
    SimError: From<F::Error>,
{
    let open = |out: &Path| Directory::open(out).map_err(SimError::file(out));
    let directory = out.map(open).transpose()?;
    let mut bar = Bar::new();
    let of = one.experiment.duration.as_secs();
    bar.begin(seconds, Some(of));
    let mut captures = Captures::new(out, &mut bar, interrupt);
    let outcome = world.run(&mut captures)?;
    if interrupt.came() {
        return Err(SimError::Interrupted(Kept::Nothing { seconds: captures.seconds(), of }));
    }
    captures.finish()?;
    let tables = Tables::of(&outcome);
    let json = document::json(one, &outcome, &tables);
    if let Some(directory) = directory {
        directory.keep();
    }
    Ok(Done { outcome, tables, json })
}

impl Done {
    /// Writes the files of the run.
    pub(crate) fn write(&self, out: &Path, one: &Run) -> Result<(), SimError> {
        Ok(marcato_results::write(out, one, &self.outcome, &self.tables, &self.json)?)
    }

    /// Judges the claims of its scenario, of which it is the first run, and adds them to the document.
    pub(crate) fn judge(&mut self, claims: &Claims<'_>) -> Judgement {
        let numbers = numbers(&self.json);
        let cell = |run: usize| if run == 0 { Cell::Done(&numbers) } else { Cell::LeftOut };
        let judgement = Judgement::of(claims, cell);
        self.json = judgement.added_to(&self.json);
        judgement
    }

    /// Returns the text to print.
    pub(crate) fn format(self, one: &Run, format: Format, judgement: &Judgement) -> String {
        match format {
            Format::Text => after(text::of_run(one, &self.outcome), &judgement.text()),
            Format::Json => self.json,
            Format::Csv => self.tables.flows.to_csv(),
        }
    }

    /// Returns its numbers by name.
    #[cfg(target_os = "linux")]
    pub(crate) fn numbers(&self) -> Numbers {
        numbers(&self.json)
    }
}

/// Returns a text with another after an empty line, if there is another.
fn after(text: String, other: &str) -> String {
    if other.is_empty() { text } else { format!("{text}\n{other}") }
}

/// Executes every combination with every seed.
fn every(
    asked: &Sim,
    scenario: &Scenario,
    traces: &Traces,
    claims: &Claims<'_>,
) -> Result<Printed, SimError> {
    // The package writes documents of runs, so it needs a directory.
    let temporary = match (&asked.out, &asked.runs_on) {
        (None, Some(_)) => Some(tempfile::tempdir().map_err(SimError::file(&std::env::temp_dir()))?),
        _ => None,
    };
    let directory = asked.out.as_deref().or(temporary.as_ref().map(tempfile::TempDir::path));
    let store = match directory {
        None => None,
        Some(out) => Some(Store::open(out, &manifest(scenario, traces), asked.resume)?),
    };
    let threads =
        asked.jobs.map_or_else(|| thread::available_parallelism().map_or(1, NonZeroUsize::get), usize::from);
    let interrupt = Interrupt::listen().map_err(SimError::Interrupt)?;
    if let (Some(engine), Some(store)) = (&asked.runs_on, &store) {
        handover::fill(asked, engine, scenario, store, &interrupt)?;
    }
    let (documents, failed) =
        grid::run(scenario, traces, store.as_ref(), threads, &mut Bar::new(), &interrupt)?;
    let numbered: Vec<Option<Numbers>> =
        documents.iter().map(|document| document.as_deref().map(numbers)).collect();
    let cell = |run: usize| match numbered.get(run) {
        Some(Some(numbers)) => Cell::Done(numbers),
        Some(None) => Cell::Failed,
        None => Cell::LeftOut,
    };
    let judgement = Judgement::of(claims, cell);
    if let Some(failed) = failed {
        // Means over the seeds that are left would be taken for means over all: only claims are printed.
        let text = if claims.is_empty() { String::new() } else { judgement.format(asked.format) };
        return Ok(Printed { text, written: Err(failed), status: Status::Error });
    }
    let documents: Vec<String> = documents.into_iter().flatten().collect();
    let done = grid::done(scenario, &documents);
    let points = grid::points(scenario, &done);
    let frame = grid::frame(&points);
    let json = judgement.added_to(&grid::to_json(scenario, &points, &frame));
    let write = |store: &Store| {
        store.file("grid.json", json.as_bytes())?;
        store.file("grid.csv", frame.to_csv().as_bytes())?;
        store.file("grid.parquet", &parquet::of(&frame)?)?;
        let runs = runs::frame(&done);
        store.file("runs.csv", runs.to_csv().as_bytes())?;
        store.file("runs.parquet", &parquet::of(&runs)?)?;
        judgement.write(store.directory())?;
        let page = summary::of(scenario, &points, &judgement);
        store.file("report.html", page.to_html().as_bytes())?;
        page.images().into_iter().try_for_each(|(id, svg)| store.file(&format!("{id}.svg"), svg.as_bytes()))
    };
    let written = store.as_ref().map_or(Ok(()), write);
    let text = match asked.format {
        _ if asked.claims => judgement.format(asked.format),
        Format::Text => after(text::of_grid(&scenario.experiment().name, &points), &judgement.text()),
        Format::Json => json,
        Format::Csv => frame.to_csv(),
    };
    Ok(Printed { text, written, status: judgement.status() })
}

/// Returns the manifest of a scenario, from its resolved runs and its traces.
fn manifest(scenario: &Scenario, traces: &Traces) -> Manifest {
    let runs: Vec<[String; 2]> = scenario.runs().map(|run| [run.id, run.experiment.to_toml()]).collect();
    let said: Vec<String> = traces.values().map(|trace| format!("{:?}", trace.millis())).collect();
    let listed: Vec<String> =
        scenario.size_lists().iter().map(|(file, list)| format!("{file}: {:?}", list.as_slice())).collect();
    let names = traces.keys().map(String::as_str);
    Manifest::of(
        runs.iter()
            .flatten()
            .map(String::as_str)
            .chain(names)
            .chain(said.iter().chain(&listed).map(String::as_str)),
    )
}
