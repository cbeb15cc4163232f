//! Control groups of commands whose sockets are marked.
//!
//! A group is a directory of the second version's hierarchy, named after the process that made it. It begins with no
//! process. [`Group::spawn`] enters it, starts a command, and leaves it: so the command is a member before its first
//! instruction. A group that is made inside another stands beside that one, so that one run's marks count and not both.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::probe::cgroup_mount;

/// Begin of the name of each group, before the number of its process.
const NAME: &str = "marcato-run.";
/// Attempts to move members that start others meanwhile.
const ATTEMPTS: usize = 100;

/// Error returned when a control group cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// There is no hierarchy of the second version.
    #[error("no hierarchy of cgroup v2 is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")]
    NoHierarchy,
    /// This process is outside the part of the hierarchy that it sees.
    #[error("the control group of this process is not visible here: enter the host's cgroup namespace")]
    Hidden,
    /// A directory or file of the hierarchy cannot be used.
    #[error(
        "{path}: {source}{}",
        if source.kind() == ErrorKind::PermissionDenied { "; run as root" } else { "" }
    )]
    Path {
        /// The directory or file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The command cannot be started.
    #[error("`{program}` cannot be run: {source}")]
    Command {
        /// Name of the program.
        program: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> GroupError {
    move |source| GroupError::Path { path: path.to_owned(), source }
}

/// Control group of a command and its descendants.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    /// Group of the process that made it.
    home: PathBuf,
}

impl Group {
    /// Makes a group for this process's commands.
    ///
    /// # Errors
    /// [`GroupError`] if there is no hierarchy of the second version, or this process may not write to it.
    pub fn create() -> Result<Self, GroupError> {
        let (_, home) = home()?;
        let parent = beside(&home);
        // A killed run with the number of this process has left its group: nobody else would remove it.
        let path = parent.join(format!("{NAME}{}", std::process::id()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let _ = fs::remove_dir(&path);
                fs::create_dir(&path)
            }
            made => made,
        }
        .map_err(failed(&path))?;
        Ok(Self { path, home })
    }

    /// Returns its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a command as a member. This process, with all its threads, is a member meanwhile.
    ///
    /// # Errors
    /// [`GroupError`] if this process may not enter the group, or the command cannot be started.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, GroupError> {
        enter(&self.path, "0")?;
        let child = command.spawn();
        let left = enter(&self.home, "0");
        let program = || command.get_program().to_string_lossy().into_owned();
        let child = child.map_err(|source| GroupError::Command { program: program(), source })?;
        left.map(|()| child)
    }

    /// Removes the group. Members that go on are moved to where this process is; their sockets keep their marks.
    ///
    /// # Errors
    /// [`GroupError`] if the group cannot be removed.
    pub fn remove(&self) -> Result<(), GroupError> {
        for _ in 0..ATTEMPTS {
            // Groups of members' own, which stand below it, go with it.
            for group in below(&self.path) {
                for member in members(&group) {
                    // It may have ended, and its new place may be gone with another run.
                    let _ = enter(&self.home, &member.to_string())
                        .or_else(|_| enter(&beside(&self.path), &member.to_string()));
                }
                match fs::remove_dir(&group) {
                    Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&group)(error)),
                    _ if group == self.path => return Ok(()),
                    _ => {}
                }
            }
        }
        Err(failed(&self.path)(ErrorKind::ResourceBusy.into()))
    }

    /// Groups of all runs: directory, process that made it, and members. The most recent first.
    ///
    /// # Errors
    /// [`GroupError`] if there is no hierarchy of the second version.
    pub fn all() -> Result<Vec<(PathBuf, u32, Vec<u32>)>, GroupError> {
        let mount = cgroup_mount(&read("/proc/self/mounts")).ok_or(GroupError::NoHierarchy)?;
        let mut found: Vec<_> = below(&mount)
            .into_iter()
            .filter_map(|path| {
                let run = maker(&path)?;
                let members = below(&path).iter().flat_map(|group| members(group)).collect();
                Some((path, run, members))
            })
            .collect();
        found.sort_by_key(|(_, run, _)| std::cmp::Reverse(*run));
        Ok(found)
    }

    /// Removes groups whose run was killed and which have no member left. Returns how many there were.
    ///
    /// # Errors
    /// [`GroupError`] if there is no hierarchy of the second version.
    pub fn sweep() -> Result<usize, GroupError> {
        let is_over = |run: u32| !Path::new(&format!("/proc/{run}")).exists();
        let left = Self::all()?.into_iter().filter(|(_, run, members)| members.is_empty() && is_over(*run));
        Ok(left.filter(|(path, ..)| fs::remove_dir(path).is_ok()).count())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.path.exists() {
            // The caller that wants to know has removed it already.
            let _ = self.remove();
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Mount point of the hierarchy, and the group of this process.
fn home() -> Result<(PathBuf, PathBuf), GroupError> {
    let mount = cgroup_mount(&read("/proc/self/mounts")).ok_or(GroupError::NoHierarchy)?;
    let home = own(&mount, &read("/proc/self/cgroup"))?;
    Ok((mount, home))
}

/// Group of a process with this `/proc/PID/cgroup`.
fn own(mount: &Path, cgroup: &str) -> Result<PathBuf, GroupError> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::")).ok_or(GroupError::NoHierarchy)?;
    if path.starts_with("/..") {
        return Err(GroupError::Hidden);
    }
    Ok(mount.join(path.trim_start_matches('/')))
}

/// Number of the process that made a group, for groups of runs.
fn maker(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(NAME)?.parse().ok()
}

/// Group below which a new one stands: this one, or that in which the outermost run around it was made.
fn beside(home: &Path) -> PathBuf {
    let outermost = home.ancestors().filter(|path| maker(path).is_some()).last();
    outermost.and_then(Path::parent).unwrap_or(home).to_owned()
}

/// A group and all below it, the innermost first.
fn below(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut all: Vec<PathBuf> = directories.flat_map(|entry| below(&entry.path())).collect();
    all.push(path.to_owned());
    all
}

fn members(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Moves a process into a group; 0 is the calling one.
fn enter(group: &Path, process: &str) -> Result<(), GroupError> {
    let file = group.join("cgroup.procs");
    fs::write(&file, process).map_err(failed(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_inside_another_stands_beside_it() {
        let mount = Path::new("/sys/fs/cgroup");
        let group = |text: &str| own(mount, text).map(|home| beside(&home)).unwrap();
        assert_eq!(group("4:memory:/a\n0::/user.slice/s\n"), mount.join("user.slice/s"));
        assert_eq!(group("0::/\n"), mount);
        assert_eq!(group("0::/user.slice/marcato-run.7\n"), mount.join("user.slice"));
        assert_eq!(group("0::/marcato-run.7/x/marcato-run.9\n"), mount);
        assert_eq!(group("0::/marcato-run.x\n"), mount.join("marcato-run.x"));
        assert!(matches!(own(mount, "0::/../a\n"), Err(GroupError::Hidden)));
        assert!(matches!(own(mount, "4:memory:/a\n"), Err(GroupError::NoHierarchy)));
    }
}
