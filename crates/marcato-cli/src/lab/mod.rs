//! `marcato lab`: real programs on the network of a scenario.

mod compare;
mod error;
mod proxy;
mod record;
mod selftest;
mod shape;
mod statistics;
mod trial;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use marcato_lab::{HostError, Lab, LabOptions, Leftover, enter_host, enter_user_namespace};
use marcato_scenario::{Experiment, Overrides, Scenario};
use marcato_units::Time;

pub(crate) use self::error::LabError;
use self::record::Record;
use self::statistics::{Live, Log};
use crate::Status;
use crate::arguments::{LabAction, LabExec, LabNetwork, LabRun, LabShell};
use crate::interrupt::Interrupt;
use crate::output;

/// Interval at which a running command is looked at.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn run(action: &LabAction, stdout: &mut dyn Write) -> Result<Status, LabError> {
    match action {
        LabAction::Run(LabRun { network, command }) => on_host(network, given(command)?),
        LabAction::Shell(LabShell { network }) => {
            let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
            on_host(network, Command::new(shell))
        }
        LabAction::Exec(LabExec { host, command }) => exec(host, command),
        LabAction::Proxy(asked) => proxy::run(asked, stdout),
        LabAction::Trial(asked) => trial::run(asked, stdout),
        LabAction::Compare(asked) => compare::run(asked, stdout),
        LabAction::Clean(asked) => clean(asked.dry_run, stdout),
        LabAction::Selftest(asked) => {
            privileges();
            selftest::run(asked, stdout)
        }
    }
}

/// Reads a scenario; `-` is the standard input.
fn load_scenario(file: &Path, overrides: Overrides) -> Result<Scenario, LabError> {
    Ok(match file.as_os_str() == "-" {
        true => Scenario::load_from(std::io::stdin().lock(), &overrides)?,
        false => Scenario::load(file, &overrides)?,
    })
}

fn given(command: &[OsString]) -> Result<Command, LabError> {
    let (program, arguments) = command.split_first().ok_or(LabError::NoCommand)?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Becomes a command on another host of the lab in which this process was started.
fn exec(host: &str, command: &[OsString]) -> Result<Status, LabError> {
    let mut command = given(command)?;
    enter_host(host)?;
    let source = std::os::unix::process::CommandExt::exec(&mut command);
    let program = command.get_program().to_string_lossy().into_owned();
    Err(HostError::Command { program, host: host.to_owned(), source }.into())
}

/// Asks for a user namespace if this process is not root. The lab reports it if that has failed.
pub(crate) fn privileges() {
    if !rustix::process::geteuid().is_root() {
        let _ = enter_user_namespace();
    }
}

/// Runs a command on a host of a scenario's network, and prints what its links carried.
fn on_host(network: &LabNetwork, command: Command) -> Result<Status, LabError> {
    let LabNetwork { host, set, seed, offload, quiet, stats, every, live, pcap, pcap_link, packets, .. } =
        network;
    let overrides = Overrides { set: set.clone(), seed: *seed, ..Overrides::default() };
    let (scenario, disorder) = shape::load(network, overrides)?;
    let run = scenario.run(0).ok_or(LabError::NoRun)?;
    if scenario.count() > 1 && !quiet {
        eprintln!(
            "the network is that of {}, the first of {} runs of this scenario",
            run.id,
            scenario.count()
        );
    }
    let traces =
        marcato_results::traces(&scenario).map_err(|error| LabError::Trace(Box::new(error.into())))?;
    privileges();
    // An interrupt is for the command, which the terminal sends it as well.
    let _interrupt = Interrupt::listen_to_terminal().map_err(LabError::Interrupt)?;
    if std::env::var_os(marcato_lab::VARIABLE).is_some() && !quiet {
        eprintln!(
            "this lab is inside another one: the links of the outer lab do not add to its own; to have several links \
             in a row, repeat --link"
        );
    }
    let lab = Lab::open_with(&run.experiment, &traces, LabOptions { offload: *offload }, &disorder)?;
    let chosen = host.is_some();
    let host = host.as_deref().unwrap_or_else(|| first_host(&run.experiment));
    let log = stats.as_deref().map(|path| Log::create(path, *every, &lab)).transpose();
    let mut log = log.map_err(LabError::Stats)?;
    let links = run.experiment.links.iter().map(|link| link.name.as_str());
    if let Some(name) = pcap_link.iter().find(|name| links.clone().all(|link| link != name.as_str())) {
        return Err(LabError::NoLink { name: name.clone(), known: links.collect::<Vec<_>>().join(", ") });
    }
    let record = Record::create(pcap.as_deref(), pcap_link, packets.as_deref(), &lab, links);
    let mut record = record.map_err(LabError::Record)?;
    let mut live = live.then(|| Live::new(*every, &lab));
    let mut command = command;
    if let Some(path) = path_to_this_program() {
        command.env("PATH", path);
    }
    if !quiet && !chosen {
        // A program that connects to its own host measures loopback.
        match run.experiment.flows.is_empty() {
            false => {
                eprintln!("the command runs on {host}, where the first flow begins; --host chooses another");
            }
            true => {
                let others = lab.hosts().filter(|other| *other != host).collect::<Vec<_>>().join(", ");
                eprintln!(
                    "the command runs on {host}; `marcato lab exec` reaches the other hosts ({others}), and --host \
                     chooses another one"
                );
            }
        }
    }
    let child = lab.spawn(host, command)?;
    let mut look = |until| {
        if let Some(live) = &mut live {
            live.look(&lab);
        }
        if let Some(record) = &mut record {
            record.look(until).map_err(LabError::Record)?;
        }
        log.as_mut().map_or(Ok(()), |log| log.look(&lab)).map_err(LabError::Stats)
    };
    let status = until_it_ends(child, || look(lab.settled()))?;
    look(Time::MAX)?;
    // A server in the background would keep a network without links.
    lab.end_commands().map_err(LabError::Clean)?;
    drop(live);
    if let Some(missed) = record.map(|record| record.missed()).filter(|missed| *missed > 0) {
        eprintln!("{missed} packets came too fast to be written");
    }
    if !quiet {
        eprint!("{}", statistics::table(&lab));
    }
    Ok(status)
}

/// Returns directories of programs with that of this one, so that commands of a lab find `marcato lab exec`. It is the
/// last: programs of the same name that were found before still are.
fn path_to_this_program() -> Option<OsString> {
    let own = std::env::current_exe().ok()?.parent()?.to_owned();
    let path = std::env::var_os("PATH")?;
    std::env::join_paths(std::env::split_paths(&path).chain([own])).ok()
}

/// Host at which the first flow begins; without flows, the first one.
fn first_host(experiment: &Experiment) -> &str {
    let first = experiment.flows.first().map(|flow| &flow.from);
    first.or(experiment.nodes.first()).map_or("", String::as_str)
}

/// Waits for a command, and calls `look` meanwhile.
fn until_it_ends(
    mut child: Child,
    mut look: impl FnMut() -> Result<(), LabError>,
) -> Result<Status, LabError> {
    loop {
        look()?;
        if let Some(ended) = child.try_wait().map_err(LabError::Wait)? {
            // As shells do: 128 and the signal.
            let signal = || std::os::unix::process::ExitStatusExt::signal(&ended).map(|signal| 128 + signal);
            let code = ended.code().or_else(signal).and_then(|code| u8::try_from(code).ok());
            return Ok(Status::OfCommand(code.unwrap_or(u8::MAX)));
        }
        std::thread::sleep(LOOK);
    }
}

fn clean(dry: bool, stdout: &mut dyn Write) -> Result<Status, LabError> {
    let found = Leftover::find().map_err(LabError::Clean)?;
    let mut said = String::new();
    for leftover in &found {
        if !dry {
            leftover.kill().map_err(LabError::Clean)?;
        }
        let did = if dry { "would kill" } else { "killed" };
        said += &format!("{did} {} ({})\n", leftover.process, leftover.program);
    }
    if found.is_empty() {
        said += "no lab has left anything\n";
    }
    output::print(stdout, &said).map_err(LabError::Print)?;
    Ok(Status::Ok)
}
