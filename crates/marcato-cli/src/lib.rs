//! The command `marcato`, as a function of its arguments, so that tests can call it.
//!
//! Results go to standard output, progress and errors to standard error. The exit status is 0 when
//! every row lies in its band, and 1 when one does not. It is 2 when the command was wrong or could
//! not be carried out, and 130 when it was interrupted.
#![forbid(unsafe_code)]

mod arguments;
#[cfg(target_os = "linux")]
mod crq;
mod demo;
#[cfg(target_os = "linux")]
mod doctor;
mod interrupt;
#[cfg(target_os = "linux")]
mod lab;
mod output;
mod papers;
pub mod perf;
mod progress;
#[cfg(target_os = "linux")]
mod run;
mod serve;
mod sim;
mod table;
mod validate;
mod words;

/// Quick start of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use marcato_papers::Registry;

/// Result of a command, which determines the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success: every row lies in its band, or help was requested. Exit status 0.
    Ok,
    /// Completed command with a row outside its band. Exit status 1.
    Outside,
    /// Wrong command, or one that could not be carried out. Exit status 2.
    Error,
    /// Interrupt (Ctrl-C) before the end of the command. Exit status 130.
    Interrupted,
    /// End of a command in a lab or of a run, with its own exit status.
    OfCommand(u8),
}

impl From<Status> for u8 {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => 0,
            Status::Outside => 1,
            Status::Error => 2,
            Status::Interrupted => interrupt::STATUS,
            Status::OfCommand(code) => code,
        }
    }
}

/// Runs the command with `arguments`, the program's name first, and the experiments of `registry`.
///
/// Results are written to `stdout`, errors to `stderr`. Progress is shown on the process's standard
/// error if that is a terminal.
///
/// A broken pipe at `stdout` is no error: its reader chose to stop.
pub fn run<I>(registry: &Registry, arguments: I, stdout: &mut dyn Write, stderr: &mut dyn Write) -> Status
where
    I: IntoIterator<Item = OsString>,
{
    let command = match arguments::parse(registry, arguments) {
        Ok(command) => command,
        Err(error) => return said(&error, stdout, stderr),
    };
    let written = reports(registry, &command);
    let result = match command {
        arguments::Command::Papers(asked) => {
            papers::run(registry, &asked, stdout).map_err(|error| error.to_string())
        }
        arguments::Command::Validate(asked) => {
            validate::run(&marcato_papers::Validate, &asked, stdout).map_err(|error| error.to_string())
        }
        arguments::Command::Demo(asked) => demo::run(&asked, stdout).map_err(|error| error.to_string()),
        arguments::Command::Sim(asked) => match sim::run(&asked, stdout) {
            Err(error @ sim::SimError::Interrupted(_)) => {
                // If standard error fails, no report is possible.
                let _ = writeln!(stderr, "{error}");
                Ok(Status::Interrupted)
            }
            done => done.map_err(|error| error.to_string()),
        },
        arguments::Command::Perf(asked) => {
            let done = match asked.role {
                arguments::PerfRole::Server(asked) => perf::server(&asked, stdout),
                arguments::PerfRole::Client(asked) => perf::client(&asked, stdout),
            };
            match done {
                Err(error @ perf::PerfError::Interrupted) => {
                    // As above.
                    let _ = writeln!(stderr, "the run is incomplete: {error}");
                    Ok(Status::Interrupted)
                }
                Err(error @ perf::PerfError::NothingMeasured) => {
                    // As above.
                    let _ = writeln!(stderr, "{error}");
                    Ok(Status::Interrupted)
                }
                done => done.map_err(|error| error.to_string()),
            }
        }
        #[cfg(target_os = "linux")]
        arguments::Command::Lab(asked) => match lab::run(&asked.action, stdout) {
            Err(error) if error.is_interruption() => {
                // As above.
                let _ = writeln!(stderr, "{error}");
                Ok(Status::Interrupted)
            }
            Err(error) if asked.action.runs_a_command() => {
                // As above.
                let _ = writeln!(stderr, "error: {error}");
                Ok(Status::OfCommand(error.status_of_no_command()))
            }
            done => done.map_err(|error| error.to_string()),
        },
        #[cfg(target_os = "linux")]
        arguments::Command::Crq(asked) => crq::run(&asked.action, stdout).map_err(|error| error.to_string()),
        #[cfg(target_os = "linux")]
        arguments::Command::Doctor(asked) => doctor::run(&asked, stdout).map_err(|error| error.to_string()),
        #[cfg(target_os = "linux")]
        arguments::Command::Run(asked) => run::run(&asked, stdout).map_err(|error| error.to_string()),
        arguments::Command::Serve(asked) => serve::run(asked, stdout).map_err(|error| error.to_string()),
        arguments::Command::Completions(asked) => {
            let mut script = Vec::new();
            clap_complete::generate(asked.shell, &mut arguments::command(registry), "marcato", &mut script);
            let printed = output::forgive_broken_pipe(stdout.write_all(&script));
            printed.map(|()| Status::Ok).map_err(|error| format!("cannot write to standard output: {error}"))
        }
        arguments::Command::Manual(asked) => manual(registry, &asked.directory)
            .map(|()| Status::Ok)
            .map_err(|error| format!("cannot write into `{}`: {error}", asked.directory.display())),
    };
    match result {
        Ok(status @ (Status::Ok | Status::Outside)) => {
            for path in written.iter().filter(|path| path.exists()) {
                // As below.
                let _ = writeln!(stderr, "report: {}", path.display());
            }
            status
        }
        Ok(status) => status,
        Err(error) => {
            // If standard error fails, no report is possible.
            let _ = writeln!(stderr, "error: {error}");
            Status::Error
        }
    }
}

/// Returns the paths of the reports that a command may write.
///
/// Only users of text output are shown these paths. Programs that read JSON or CSV know them.
fn reports(registry: &Registry, command: &arguments::Command) -> Vec<PathBuf> {
    #[cfg(target_os = "linux")]
    use arguments::LabAction;
    use arguments::{Command, Format, PerfRole};
    let (out, format, name) = match command {
        Command::Papers(asked) => (&asked.out, asked.runs.format, "report.html"),
        Command::Validate(asked) => (&asked.out, asked.runs.format, "report.html"),
        Command::Demo(asked) => (&asked.out, asked.format, "report.html"),
        Command::Sim(asked) if !asked.explain => (&asked.out, asked.format, "report.html"),
        Command::Perf(asked) => match &asked.role {
            PerfRole::Client(asked) => (&asked.out, asked.format(), "result.txt"),
            PerfRole::Server(_) => return Vec::new(),
        },
        #[cfg(target_os = "linux")]
        Command::Lab(asked) => match &asked.action {
            LabAction::Trial(asked) | LabAction::Compare(asked) => (&asked.out, asked.format, "report.html"),
            LabAction::Run(_)
            | LabAction::Shell(_)
            | LabAction::Exec(_)
            | LabAction::Clean(_)
            | LabAction::Proxy(_)
            | LabAction::Selftest(_) => return Vec::new(),
        },
        #[cfg(target_os = "linux")]
        Command::Crq(_) | Command::Doctor(_) | Command::Run(_) => return Vec::new(),
        Command::Sim(_) | Command::Serve(_) | Command::Completions(_) | Command::Manual(_) => {
            return Vec::new();
        }
    };
    let (Some(out), Format::Text) = (out, format) else { return Vec::new() };
    match command {
        Command::Papers(asked) if asked.paper == Registry::ALL => {
            registry.iter().map(|one| out.join(one.name()).join(name)).collect()
        }
        _ => vec![out.join(name)],
    }
}

/// Writes a page for each command that is not hidden.
fn manual(registry: &Registry, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(arguments::command(registry), directory)
}

/// Returns the command line's definition, for manual pages and for tests of the documentation.
pub fn command(registry: &Registry) -> clap::Command {
    arguments::command(registry)
}

/// Prints a message of clap. Help and version count as success, everything else as an error.
fn said(error: &clap::Error, stdout: &mut dyn Write, stderr: &mut dyn Write) -> Status {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match output::forgive_broken_pipe(
                write!(stdout, "{}", error.render()).and_then(|()| stdout.flush()),
            ) {
                Ok(()) => Status::Ok,
                Err(error) => {
                    let _ = writeln!(stderr, "error: cannot write to standard output: {error}");
                    Status::Error
                }
            }
        }
        _ => {
            let _ = write!(stderr, "{}", error.render());
            Status::Error
        }
    }
}

/// Runs the command as a process: with its real arguments and streams, and with every experiment
/// that is built in.
pub fn run_process() -> Status {
    let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr());
    run(&marcato_papers::registry(), std::env::args_os(), &mut stdout, &mut stderr)
}
