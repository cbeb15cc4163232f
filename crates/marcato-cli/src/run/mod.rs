//! `marcato run`: commands whose sockets are marked.
//!
//! The command runs in a control group of its own, whose programs of eBPF mark sockets. This process waits outside of it,
//! and passes signals on. What it made goes with it: the programs even if it is killed, the group with the next run.

mod error;
mod peers;
mod rules;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

use marcato_kernel::{Group, MarkCounter, MarkError, Marking, Missing, OptionCounter, PriorityOption};
use rustix::process::{Pid, PidfdFlags, Signal, getpgrp, pidfd_open, pidfd_send_signal};
use rustix::termios::tcgetpgrp;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

pub(crate) use self::error::RunError;
pub(crate) use self::rules::{OfLevel, of_level};
use crate::Status;
use crate::arguments::{OutputFormat, Run};
use crate::interrupt::ignores;
use crate::output;
use crate::table::Table;

/// Signals that are passed on to the command.
const PASSED: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

pub(crate) fn run(asked: &Run, stdout: &mut dyn Write) -> Result<Status, RunError> {
    if asked.list {
        return list(asked.format, stdout);
    }
    let marks = rules::marks(asked)?;
    let mut command = given(&asked.command)?;
    let missing = Missing::of_marks();
    if !missing.is_empty() {
        return Err(RunError::Missing(missing));
    }
    // What killed runs have left is of no use to anybody; a failure is not this run's.
    let _ = Group::sweep();
    let group = Group::create()?;
    let marking = Marking::attach(group.path(), &marks)?;
    let mut option = match asked.priority.filter(|_| asked.option) {
        Some(priority) => Some(PriorityOption::attach(group.path(), priority)?),
        None => None,
    };
    if let (Some(option), Some(path)) = (&mut option, &asked.option_peers) {
        for (peer, lasts) in peers::read(path)? {
            option.remember(peer, lasts).map_err(MarkError::from)?;
        }
    }
    let passing = Passing::begin().map_err(RunError::Signals)?;
    let mut child = group.spawn(&mut command)?;
    let status = passing.until_it_ends(&mut child)?;
    if !asked.quiet {
        for note in notes(&marking).into_iter().chain(option.iter().flat_map(notes_of_option)) {
            eprintln!("note: {note}");
        }
    }
    if let (Some(option), Some(path)) = (&option, &asked.option_peers) {
        peers::write(path, &option.refusing().map_err(MarkError::from)?)?;
    }
    drop((marking, option));
    group.remove()?;
    Ok(Status::OfCommand(code(status)))
}

fn given(command: &[OsString]) -> Result<Command, RunError> {
    let (program, arguments) = command.split_first().ok_or(RunError::NoCommand)?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Exit status of a command: its own, or 128 and the signal that ended it, as in shells.
fn code(status: ExitStatus) -> u8 {
    let signal = || std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
    status.code().or_else(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Facts that a user should know after a run.
fn notes(marking: &Marking) -> Vec<String> {
    let count = |counter| marking.counter(counter).unwrap_or(0);
    let (mapped, failed) = (count(MarkCounter::Mapped), count(MarkCounter::Failed));
    let mut notes = Vec::new();
    if mapped > 0 {
        notes.push(format!(
            "{mapped} sockets of IPv6 spoke IPv4, and had no code point: let the program use IPv4 for it, often -4"
        ));
    }
    if failed > 0 {
        notes.push(format!("the kernel refused {failed} marks: `--rules` may ask for less"));
    }
    notes
}

/// Facts about the TCP option that a user should know after a run.
fn notes_of_option(option: &PriorityOption) -> Vec<String> {
    let count = |counter| option.counter(counter).unwrap_or(0);
    let agreed = count(OptionCounter::Agreed);
    let without = count(OptionCounter::Refused) + count(OptionCounter::Remembered);
    let [holes, crowded] = [OptionCounter::BlackHoles, OptionCounter::NoRoom].map(count);
    let mut notes = Vec::new();
    if without > 0 {
        notes.push(format!(
            "{without} connections had no option, as their peers do not know it; {agreed} had it"
        ));
    }
    if holes > 0 {
        notes.push(format!("{holes} connections went on without the option: their paths seem to drop it"));
    }
    if crowded > 0 {
        notes.push(format!("{crowded} segments had no room for the option"));
    }
    notes
}

/// Passes signals on to a command.
struct Passing {
    signals: signal_hook::iterator::Signals,
}

impl Passing {
    /// Keeps signals for the command from now on. Those that this process ignores, as below nohup, stay ignored.
    fn begin() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let heard = PASSED.into_iter().filter(|signal| !ignores(&status, *signal));
        Ok(Self { signals: signal_hook::iterator::Signals::new(heard)? })
    }

    /// Waits for the end of the command.
    fn until_it_ends(mut self, child: &mut Child) -> Result<ExitStatus, RunError> {
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // By this descriptor no signal reaches another process with the same number.
        let process = id.ok_or(rustix::io::Errno::SRCH).and_then(|id| pidfd_open(id, PidfdFlags::empty()));
        let process = process.map_err(|error| RunError::Signals(error.into()))?;
        let handle = self.signals.handle();
        let thread: JoinHandle<()> = std::thread::spawn(move || {
            for signal in self.signals.forever() {
                pass(&process, signal);
            }
        });
        let ended = child.wait().map_err(RunError::Wait);
        handle.close();
        // The thread cannot panic.
        let _ = thread.join();
        ended
    }
}

fn pass(process: &OwnedFd, signal: i32) {
    if matches!(signal, SIGINT | SIGQUIT) && is_of_terminal() {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The command may just have ended.
        let _ = pidfd_send_signal(process, signal);
    }
}

/// Returns whether a terminal sends its interrupts to this process: it then sends them to the command as well, which
/// would take a second one as more urgent.
fn is_of_terminal() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// Run that goes on, as `--list` shows it.
#[derive(Debug, Serialize)]
struct Row {
    run: u32,
    /// `false` if it was killed, and its command goes on without marks for new sockets.
    marks: bool,
    processes: Vec<u32>,
    command: String,
    group: String,
}

fn list(format: OutputFormat, stdout: &mut dyn Write) -> Result<Status, RunError> {
    let rows = Group::all()?.into_iter().map(|(path, run, processes)| {
        let line = std::fs::read(format!("/proc/{run}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
        Row { run, marks: !line.is_empty(), processes, command, group: path.display().to_string() }
    });
    let mut text = String::new();
    match format {
        OutputFormat::Json => {
            for row in rows {
                text += &serde_json::to_string(&row).map_err(|error| RunError::Print(error.into()))?;
                text.push('\n');
            }
        }
        OutputFormat::Text => {
            let mut table = Table::new(["run", "processes", "command"]).words(3);
            for Row { run, marks, processes, command, .. } in rows {
                let processes: Vec<String> = processes.iter().map(ToString::to_string).collect();
                let command = if marks { command } else { "(killed: new sockets have no mark)".to_owned() };
                table.row([run.to_string(), processes.join(" "), command]);
            }
            text = table.to_string();
        }
    }
    output::print(stdout, &text).map_err(RunError::Print)?;
    Ok(Status::Ok)
}
