//! `marcato papers`.

use std::fs::DirEntry;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use marcato_papers::{
    Experiment, Files, FilesError, Registry, RunError, RunOptions, SeedError, SelectError, Shelf,
};
use marcato_report::{AtomicFile, COMMIT, Document, Report, VERSION, World, WriteError};
use ring::digest::{SHA256, digest};
use thiserror::Error;

use crate::Status;
use crate::arguments::{Format, Papers};
use crate::interrupt::EndsOnInterrupt;
use crate::output::{self, Directory};
use crate::progress::Bar;

/// Error of running experiments or of writing their results.
#[derive(Debug, Error)]
pub(crate) enum PapersError {
    #[error(transparent)]
    Select(#[from] SelectError),
    #[error(transparent)]
    Seeds(#[from] SeedError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot write `{}`: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(
        "no row of `{0}` is measured by a scenario file: give a paper that has some (cats), or a directory"
    )]
    NoFiles(String),
    #[error("a directory runs in virtual time: leave out --world, or give a file to `marcato lab trial`")]
    World,
    #[error("cannot write to standard output: {0}")]
    Print(io::Error),
    #[error("cannot listen for interrupts: {0}")]
    Interrupt(io::Error),
}

pub(crate) fn run(
    registry: &Registry,
    asked: &Papers,
    stdout: &mut dyn Write,
) -> Result<Status, PapersError> {
    let options = asked.runs.options()?.in_world(asked.world.into());
    let is_directory = !registry.names().contains(&asked.paper.as_str()) && Path::new(&asked.paper).is_dir();
    if asked.explain.is_some() || asked.export.is_some() {
        let files = files(registry, asked, is_directory)?;
        let text = match (&asked.explain, &asked.export) {
            (Some(row), _) => files.explain(row)?,
            (None, Some(directory)) => files.export(directory).map(|()| String::new())?,
            (None, None) => String::new(),
        };
        output::print(stdout, &text).map_err(PapersError::Print)?;
        return Ok(Status::Ok);
    }
    if is_directory {
        return of_directory(asked, &options, stdout);
    }
    let chosen = registry.select(&asked.paper)?;
    let options = match &asked.out {
        Some(out) => options.kept_on(Shelf::new(out.join("runs"), program())),
        None => options,
    };
    // All papers of a world are those that run in it, if any does.
    let chosen =
        if asked.paper == Registry::ALL && chosen.iter().any(|one| one.worlds().contains(&options.world)) {
            chosen.into_iter().filter(|one| one.worlds().contains(&options.world)).collect()
        } else {
            chosen
        };
    let kept = asked.out.as_ref().map(|out| out.join("runs"));
    let directory = directory(asked.out.as_deref())?;
    let reports = {
        let made = Arc::clone(&directory);
        let say = move || {
            let said = what_is_kept(kept.as_deref());
            if let Some(kept) = &kept {
                // It fails if a completed run is kept, and then it is to stay.
                let _ = std::fs::remove_dir(kept);
            }
            made.iter().for_each(Directory::leave);
            said
        };
        // Files written after this block take little time, and each is written atomically. An
        // interrupt then needs no message.
        let _ends = EndsOnInterrupt::saying(say).map_err(PapersError::Interrupt)?;
        run_each(&chosen, &options)?
    };
    let document = match reports.as_slice() {
        [one] if asked.paper != Registry::ALL => one.document().clone(),
        parts => {
            let parts: Vec<&Document> = parts.iter().map(Report::document).collect();
            Document::join(Registry::ALL, &options, &parts)
        }
    };
    // Rows that cannot be written are printed nevertheless.
    let written = write(asked, &reports, &document);
    let printed = match asked.runs.format {
        Format::Text => reports.iter().map(Report::to_text).collect::<Vec<_>>().join("\n"),
        Format::Json => document.to_json(),
        Format::Csv => document.to_csv(),
    };
    output::print(stdout, &printed).map_err(PapersError::Print)?;
    written?;
    Ok(if document.holds() { Status::Ok } else { Status::Outside })
}

/// Returns the scenario files of a paper or of a directory.
fn files(registry: &Registry, asked: &Papers, is_directory: bool) -> Result<Files, PapersError> {
    if is_directory {
        return Ok(Files::read(Path::new(&asked.paper))?);
    }
    let chosen = registry.select(&asked.paper)?;
    let files = chosen.iter().find_map(|experiment| experiment.files());
    files.ok_or_else(|| PapersError::NoFiles(asked.paper.clone()))
}

/// Runs the scenarios of a directory.
fn of_directory(asked: &Papers, options: &RunOptions, stdout: &mut dyn Write) -> Result<Status, PapersError> {
    if options.world != World::Virtual {
        return Err(PapersError::World);
    }
    let files = Files::read(Path::new(&asked.paper))?;
    let made = directory(asked.out.as_deref())?;
    let report = {
        let left = Arc::clone(&made);
        let say = move || {
            left.iter().for_each(Directory::leave);
            what_is_kept(None)
        };
        let _ends = EndsOnInterrupt::saying(say).map_err(PapersError::Interrupt)?;
        files.report(options, &mut Bar::new())?
    };
    hand_over(&report, asked.out.as_deref(), asked.runs.format, stdout)
}

/// Writes a report, and prints it: rows that cannot be written are printed nevertheless.
pub(crate) fn hand_over(
    report: &Report,
    out: Option<&Path>,
    format: Format,
    stdout: &mut dyn Write,
) -> Result<Status, PapersError> {
    let written = out.map_or(Ok(()), |out| report.write(out));
    let document = report.document();
    let printed = match format {
        Format::Text => report.to_text(),
        Format::Json => document.to_json(),
        Format::Csv => document.to_csv(),
    };
    output::print(stdout, &printed).map_err(PapersError::Print)?;
    written?;
    Ok(if document.holds() { Status::Ok } else { Status::Outside })
}

/// Opens the directory of `--out` before work begins. The message after an interrupt shares it, since the process
/// then exits without dropping anything.
pub(crate) fn directory(out: Option<&Path>) -> Result<Arc<Option<Directory>>, PapersError> {
    let open = |out: &Path| {
        Directory::open(out).map_err(|source| PapersError::File { path: out.to_owned(), source })
    };
    Ok(Arc::new(out.map(open).transpose()?))
}

/// Returns the message after an interrupt: the runs that were kept, and the command that resumes.
fn what_is_kept(runs: Option<&Path>) -> String {
    let Some(runs) = runs else {
        return "nothing is kept; with --out DIR, long experiments keep completed runs".to_owned();
    };
    let is_run = |entry: &DirEntry| entry.path().extension().is_some_and(|it| it == "json");
    let count = std::fs::read_dir(runs).map_or(0, |entries| entries.flatten().filter(is_run).count());
    match count {
        0 => {
            "no report was written and no completed run is kept; the same command starts again from the beginning".to_owned()
        }
        _ => format!(
            "no report was written; completed runs, {count}, are kept in `{}`: run the same command again to continue",
            runs.display()
        ),
    }
}

/// Returns the identity of the program, which keys the runs kept from earlier invocations.
fn program() -> String {
    // Builds of one commit may differ by uncommitted changes, so the executable is hashed as well.
    let build = match std::env::current_exe().and_then(std::fs::read) {
        Ok(program) => digest(&SHA256, &program).as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
        // Without a hash, the process number makes the identity unique: no kept runs are reused.
        Err(_) => format!("process {}", std::process::id()),
    };
    format!("{VERSION} ({COMMIT}) {build}")
}

fn run_each(chosen: &[&dyn Experiment], options: &RunOptions) -> Result<Vec<Report>, RunError> {
    // All options are checked first, as each experiment may take an hour.
    chosen.iter().try_for_each(|&experiment| Registry::check(experiment, options))?;
    let mut progress = Bar::new();
    chosen.iter().map(|&experiment| Registry::run(experiment, options, &mut progress)).collect()
}

/// Writes the files of the reports. Those of one paper go into the directory itself. With `all`,
/// each paper has a subdirectory, and the directory has the rows of all papers.
fn write(asked: &Papers, reports: &[Report], document: &Document) -> Result<(), PapersError> {
    let Some(out) = &asked.out else { return Ok(()) };
    if asked.paper != Registry::ALL {
        return Ok(reports.iter().try_for_each(|report| report.write(out))?);
    }
    for report in reports {
        report.write(&out.join(report.document().paper()))?;
    }
    for (name, text) in [("rows.json", document.to_json()), ("rows.csv", document.to_csv())] {
        let path = out.join(name);
        AtomicFile::write(&path, text).map_err(|source| PapersError::File { path, source })?;
    }
    Ok(())
}
