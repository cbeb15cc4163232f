//! Processes of a server, and what they use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::error::SimulationError;
use crate::lab::failed;

/// Calls that write to sockets, as strace names them.
const WRITES: &str = "write,writev,sendto,sendmsg,sendmmsg";
/// Time for a tracer to attach to all threads.
const ATTACH: Duration = Duration::from_secs(10);

/// A server with its children. It ends when this is dropped.
pub(super) struct Process {
    child: Child,
    _files: TempDir,
    signal: Signal,
}

impl Process {
    /// Starts a command whose files are in a directory. The signal ends it at once.
    pub(super) fn start(
        mut command: Command,
        files: TempDir,
        signal: Signal,
    ) -> Result<Self, SimulationError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: command.spawn().map_err(failed)?, _files: files, signal })
    }

    /// Number of the process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Numbers of the process and of all that it has started.
    fn all(&self) -> Vec<u32> {
        let mut all = vec![self.id()];
        let mut next = 0;
        while let Some(parent) = all.get(next).copied() {
            let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
            for children in tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok()) {
                all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            }
            next += 1;
        }
        all
    }

    /// Processor time so far, of user and system.
    pub(super) fn cpu(&self) -> Result<Duration, SimulationError> {
        let each = self.all().into_iter().map(|process| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).map_err(failed)?;
            ticks(&stat).ok_or(SimulationError::Missing("processor time"))
        });
        let ticks = each.sum::<Result<u64, _>>()?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Memory that belongs to the processes alone, in bytes.
    pub(super) fn memory(&self) -> Result<u64, SimulationError> {
        let each = self.all().into_iter().map(|process| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).map_err(failed)?;
            anonymous(&status).ok_or(SimulationError::Missing("size of a process"))
        });
        each.sum()
    }

    /// Counts the calls that write, from now until [`Trace::end`]. Needs strace.
    pub(super) fn trace(&self) -> Result<Trace, SimulationError> {
        let counts = tempfile::NamedTempFile::new().map_err(failed)?.into_temp_path();
        let mut command = Command::new("strace");
        command.args(["-f", "-q", "-c", "-e", &format!("trace={WRITES}"), "-o"]).arg(&counts);
        let processes = self.all();
        processes.iter().for_each(|process| _ = command.args(["-p", &process.to_string()]));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        let until = Instant::now() + ATTACH;
        while !processes.iter().all(|process| is_traced(*process)) {
            if Instant::now() > until {
                return Err(SimulationError::Lab("strace does not attach to the server".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Trace { child, counts: counts.to_path_buf(), _file: counts })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), self.signal);
        let _ = self.child.wait();
    }
}

/// Trace of the calls of a server.
pub(super) struct Trace {
    child: Child,
    counts: PathBuf,
    _file: tempfile::TempPath,
}

impl Trace {
    /// Ends the trace, and returns the number of calls.
    pub(super) fn end(mut self) -> Result<u64, SimulationError> {
        kill_process(Pid::from_child(&self.child), Signal::INT).map_err(failed)?;
        self.child.wait().map_err(failed)?;
        Ok(calls(&fs::read_to_string(Path::new(&self.counts)).map_err(failed)?))
    }
}

/// True if all threads of a process are traced.
fn is_traced(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).all(|status| {
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    })
}

/// Ticks of user and system in `/proc/PID/stat`: its 14th and 15th field. The second is a name in brackets,
/// which may contain blanks.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Bytes of anonymous memory in `/proc/PID/status`.
fn anonymous(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(1024 * line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?)
}

/// Sum of the column `calls` of strace's table.
fn calls(table: &str) -> u64 {
    let names: Vec<&str> = WRITES.split(',').collect();
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = lines.filter(|words| words.last().is_some_and(|name| names.contains(name)));
    own.filter_map(|words| words.get(3)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 2 0 0 0 31 11 5 5 20 0 4 0 9 1 1";
        assert_eq!(ticks(stat), Some(42));
        assert!(ticks(&fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }

    #[test]
    fn memory_is_that_of_the_process_alone() {
        assert_eq!(anonymous("VmRSS:\t 9 kB\nRssAnon:\t  3 kB\n"), Some(3072));
        assert!(anonymous(&fs::read_to_string("/proc/self/status").unwrap()).is_some());
    }

    #[test]
    fn calls_are_summed_over_those_that_write() {
        let table = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 48.69    0.003059          12       250           writev
  0.24    0.000015           1        10         2 write
  0.00    0.000000           0       100       100 futex
------ ----------- ----------- --------- --------- ----------------
100.00    0.003074          11       260           total
";
        assert_eq!(calls(table), 260);
    }

    #[test]
    fn processes_are_counted_with_their_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]);
        let process = Process::start(command, tempfile::tempdir().unwrap(), Signal::TERM).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while process.all().len() < 2 {
            assert!(Instant::now() < until, "{:?}", process.all());
            std::thread::yield_now();
        }
        process.all()[1..].iter().for_each(|child| {
            let child = Pid::from_raw(i32::try_from(*child).unwrap()).unwrap();
            kill_process(child, Signal::TERM).unwrap();
        });
    }
}
