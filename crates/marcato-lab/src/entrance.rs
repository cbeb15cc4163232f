//! Entrance of a host, by which a command of a lab gets to another one.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::lab::HostError;
use crate::leftover::{VARIABLE, is_alive};

/// Environment variable of the commands in a lab: its hosts, each with the thread of the lab that keeps
/// its namespaces, as `name=thread name=thread`.
pub(crate) const HOSTS: &str = "MARCATO_LAB_HOSTS";

/// Error returned when a process cannot enter a host.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The process was not started by a lab, or by a command of one.
    #[error("this is not inside a lab: start it below `marcato lab run` or `marcato lab shell`")]
    Outside,
    /// The lab of the process has ended.
    #[error("the lab of this process has ended: open another one")]
    Ended,
    /// The lab has no such host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The kernel refuses it.
    #[error("cannot enter host {host}: {source}")]
    Refused {
        /// Name of the host.
        host: String,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Moves this thread to a host of the lab in which its process was started: to its network, and its view
/// of files, in which `/etc/hosts` names the hosts.
///
/// # Errors
///
/// If the process is not in a lab, the lab has no such host or has ended, or the process has other
/// threads.
pub fn enter_host(name: &str) -> Result<(), EnterError> {
    let mark = env::var(VARIABLE).map_err(|_| EnterError::Outside)?;
    let hosts = env::var(HOSTS).map_err(|_| EnterError::Outside)?;
    let (process, _) = mark.split_once('-').ok_or(EnterError::Outside)?;
    if !is_alive(&mark) {
        return Err(EnterError::Ended);
    }
    let Some(task) = task(&hosts, name) else {
        let known = listed(&hosts).map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        return Err(HostError::Unknown { name: name.to_owned(), known }.into());
    };
    let refused = |source| EnterError::Refused { host: name.to_owned(), source };
    enter(process, task).map_err(refused)
}

fn enter(process: &str, task: i32) -> io::Result<()> {
    let open = |kind| File::open(format!("/proc/{process}/task/{task}/ns/{kind}"));
    let (network, mounts, name) = (open("net")?, open("mnt")?, open("uts")?);
    // Another view of files begins at its root.
    let directory = env::current_dir();
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    move_into_link_name_space(name.as_fd(), Some(LinkNameSpaceType::HostNameAndNISDomainName))?;
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    directory.and_then(env::set_current_dir)
}

/// Value of [`HOSTS`].
pub(crate) fn host_list(hosts: &[(&str, i32)]) -> String {
    hosts.iter().map(|(name, task)| format!("{name}={task}")).collect::<Vec<_>>().join(" ")
}

fn listed(hosts: &str) -> impl Iterator<Item = (&str, i32)> {
    hosts.split(' ').filter_map(|entry| {
        let (name, task) = entry.rsplit_once('=')?;
        Some((name, task.parse().ok()?))
    })
}

fn task(hosts: &str, name: &str) -> Option<i32> {
    listed(hosts).find(|(other, _)| *other == name).map(|(_, task)| task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_its_name() {
        let hosts = host_list(&[("left", 7), ("a=b", 8)]);
        assert_eq!((task(&hosts, "left"), task(&hosts, "a=b")), (Some(7), Some(8)));
        assert_eq!((task(&hosts, "a"), task("", "left"), task("left", "left")), (None, None, None));
    }
}
