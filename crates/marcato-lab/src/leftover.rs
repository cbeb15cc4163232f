//! Commands that outlived their lab.

use std::fs;
use std::io;

use rustix::process::{Pid, Signal, kill_process};

/// Environment variable of the commands in a lab: the process of the lab, and when it began.
pub const VARIABLE: &str = "MARCATO_LAB";

/// Command that outlived its lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its process.
    pub process: u32,
    /// Its program.
    pub program: String,
}

impl Leftover {
    /// Returns the commands of labs whose process has ended. The kernel kills the commands that a
    /// lab started, but not those that they started in turn.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read.
    pub fn find() -> io::Result<Vec<Self>> {
        Self::of(|mark| !is_alive(mark))
    }

    /// Returns the commands whose mark is one of these.
    pub(crate) fn of(is_one: impl Fn(&str) -> bool) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process may end meanwhile, and those of other users are not ours.
            let Ok(environment) = fs::read(format!("/proc/{process}/environ")) else { continue };
            let mark = environment.split(|byte| *byte == 0).find_map(|pair| {
                let value = pair.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"=")?;
                std::str::from_utf8(value).ok()
            });
            if mark.is_some_and(&is_one) {
                let program = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                found.push(Self { process, program: program.trim().to_owned() });
            }
        }
        Ok(found)
    }

    /// Kills the command.
    ///
    /// # Errors
    ///
    /// If the kernel does not allow it.
    pub fn kill(&self) -> io::Result<()> {
        let process = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        match kill_process(process.ok_or(io::ErrorKind::NotFound)?, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Mark of the commands of this process's labs: its number and start, which no later process has
/// both.
pub(crate) fn mark() -> String {
    let process = std::process::id();
    format!("{process}-{}", started(process).unwrap_or_default())
}

/// Returns whether the process that made this mark still runs.
pub(crate) fn is_alive(mark: &str) -> bool {
    let Some((process, start)) = mark.split_once('-') else { return false };
    process.parse().ok().and_then(started).is_some_and(|now| now.to_string() == start)
}

/// Start of a process in clock ticks since the system's, if it runs.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may contain anything. The start is the twentieth field after it.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_that_of_one_process() {
        assert!(is_alive(&mark()));
        let (process, start) = mark().split_once('-').map(|(p, s)| (p.to_owned(), s.to_owned())).unwrap();
        assert!(!is_alive(&format!("{process}-{start}0")));
        assert!(!is_alive("no mark") && !is_alive(""));
    }
}
