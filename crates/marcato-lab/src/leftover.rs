//! Commands that outlived their lab.

use std::fs;
use std::io;

use rustix::process::{Pid, Signal, kill_process};

/// Environment variable of the commands in a lab: the process of the lab, and when it began.
pub const VARIABLE: &str = "MARCATO_LAB";

/// Beginning of the name of the file that is `/etc/hosts` in a lab; the lab's mark follows. A program that rewrites
/// its title writes over its environment, but not over its mounts.
const HOSTS_FILE: &str = "marcato-lab-";
/// End of the mark in that name.
const END_OF_MARK: char = '.';

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
        // The innermost lab is the one that matters, if there are several.
        Self::of(|marks| marks.first().is_some_and(|mark| !is_alive(mark)))
    }

    /// Returns the commands of which this holds: they have marks of all labs around them, from the innermost on.
    pub(crate) fn of(is_one: impl Fn(&[String]) -> bool) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process may end meanwhile, and those of other users are not ours.
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
            if is_one(&marks(&environment, &mounts)) {
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

/// Name of the file that is `/etc/hosts` in the labs of this process: up to what makes it the only one.
pub(crate) fn hosts_file() -> String {
    format!("{HOSTS_FILE}{}{END_OF_MARK}", mark())
}

/// Marks of the labs in which a process is, by its environment and by its mounts, from the innermost on.
fn marks(environment: &[u8], mounts: &str) -> Vec<String> {
    let of_environment = environment.split(|byte| *byte == 0).find_map(|pair| {
        let value = pair.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()
    });
    // The fourth field is the file, and the fifth where it is mounted (proc_pid_mountinfo(5)).
    let of_mounts = mounts.lines().rev().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (file, at) = (fields.next()?, fields.next()?);
        let (_, name) = file.rsplit_once(HOSTS_FILE)?;
        (at == "/etc/hosts").then(|| name.split(END_OF_MARK).next())?
    });
    let mut marks: Vec<String> = Vec::new();
    for mark in of_environment.into_iter().chain(of_mounts) {
        if !marks.iter().any(|known| known == mark) {
            marks.push(mark.to_owned());
        }
    }
    marks
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
    fn marks_are_found_in_the_environment_and_among_the_mounts() {
        let mount = |mark: &str| {
            format!(
                "512 88 254:0 /tmp/{HOSTS_FILE}{mark}{END_OF_MARK}x7Gk//deleted /etc/hosts rw - ext4 /dev/vda rw\n"
            )
        };
        let mounts = format!("24 1 0:22 / /proc rw - proc proc rw\n{}{}", mount("7-100"), mount("9-200"));
        assert_eq!(marks(b"A=1\0MARCATO_LAB=9-200\0", &mounts), ["9-200", "7-100"]);
        assert_eq!(marks(b"nginx: master process", &mounts), ["9-200", "7-100"]);
        assert_eq!(marks(b"MARCATO_LAB=7-100", ""), ["7-100"]);
        assert_eq!(marks(b"", &mount("7-100").replace(" /etc/hosts ", " /mnt ")), Vec::<String>::new());
    }

    #[test]
    fn a_mark_is_that_of_one_process() {
        assert!(is_alive(&mark()));
        let (process, start) = mark().split_once('-').map(|(p, s)| (p.to_owned(), s.to_owned())).unwrap();
        assert!(!is_alive(&format!("{process}-{start}0")));
        assert!(!is_alive("no mark") && !is_alive(""));
    }
}
