//! Errors of `marcato crq`.

use std::io;
use std::path::PathBuf;

use marcato_kernel::{AttachError, ClassId, DeviceError, Missing, ParentError, TcError};
use thiserror::Error;

/// Error of CRQ on a device.
#[derive(Debug, Error)]
pub(crate) enum CrqError {
    #[error("this system lacks what CRQ needs:{}\n{}", .0.iter().map(|it| format!("\n  {it}")).collect::<String>(), crate::doctor::HINT)]
    Missing(Vec<Missing>),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{origin}: {why}")]
    Settings { origin: String, why: String },
    #[error("the settings cannot be read: {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "no rate was given: set `--rate`, such as 95mbit, somewhat below what the line carries; or name a class of an HTB, as with `--parent 1:10`"
    )]
    NoRate,
    #[error("nothing was given to change: name a setting, such as --share 60")]
    NoChange,
    #[error(
        "`{device}` is only watched: `marcato crq detach {device}`, then `marcato crq attach {device} --rate RATE`"
    )]
    Watched { device: String },
    #[error("the number of flows cannot change while CRQ is attached: detach it, and attach it again")]
    Flows,
    #[error(
        "the device of the other direction cannot change while CRQ is attached: detach it, and attach it again"
    )]
    Reverse,
    #[error("the subscribers cannot be read: {path}: {source}")]
    Subscribers { path: PathBuf, source: io::Error },
    #[error("{}", .0.join("\n"))]
    List(Vec<String>),
    #[error("subscribers share the rate of a device: set `--rate`, such as 950mbit")]
    SharedRate,
    #[error("a device has either classes of your own tree (`parent`) or subscribers: leave one away")]
    Both,
    #[error(
        "`{device}` has no subscribers: put CRQ on it with `marcato crq attach {device} --subscribers FILE`"
    )]
    NoSubscribers { device: String },
    #[error("`{device}` has no subscriber `{name}`: `marcato crq status {device} --top 0` lists them")]
    NoSubscriber { device: String, name: String },
    #[error(
        "whether a device has subscribers, and their direction, cannot change while CRQ is attached: detach it, and attach it again"
    )]
    Direction,
    #[error("the classes that have CRQ cannot change while it is attached: detach it, and attach it again")]
    Parents,
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Parent(Vec<ParentError>),
    #[error("the rate of the class {class} of `{device}` cannot be read: set `--rate`")]
    ClassRate { device: String, class: ClassId },
    #[error(
        "CRQ's queues on `{device}` have been removed ({lost}): attach it again, or `marcato crq detach {device}`"
    )]
    Lost { device: String, lost: String },
    #[error(
        "`{device}` meets one direction of its flows only, and packets of {} are redirected to it: name the device by which the other direction leaves, as with `--reverse eth0`",
        match found.as_slice() { [] => "no device that `tc` knows".to_owned(), found => found.join(" and ") }
    )]
    OneDirection { device: String, found: Vec<String> },
    #[error(
        "`{device}` has a queue of its own at the root (`{kind} {handle}`), which CRQ would remove: allow it with `--replace`"
    )]
    OtherQueue { device: String, kind: String, handle: String },
    #[error("CRQ is not on `{device}`: nothing to take off")]
    Nothing { device: String },
    #[error(
        "CRQ is on no device of this network namespace: put it on one with `marcato crq attach`, or watch one with `monitor`. `marcato crq status --all` lists other namespaces"
    )]
    NoDevice,
    #[error(transparent)]
    Tc(#[from] TcError),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error("the report cannot be written: {path}: {source}; choose another place with `--report`")]
    Report { path: PathBuf, source: io::Error },
    #[error("cannot listen for interrupts: {0}")]
    Interrupt(io::Error),
    #[error("cannot serve metrics at {at}: {source}; choose another address or port with `--listen`")]
    Serve { at: std::net::SocketAddr, source: io::Error },
    #[error("cannot write to standard output: {0}")]
    Print(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_privilege_points_at_the_examination() {
        let text = CrqError::Missing(vec![Missing::Capability("CAP_BPF"), Missing::Btf]).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[1], "  the privilege CAP_BPF: run as root");
        assert_eq!(lines[3], crate::doctor::HINT);
    }
}
