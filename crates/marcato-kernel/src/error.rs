//! Errors of the loader, one per operation.

use std::io;
use std::path::PathBuf;

use crate::tree::ClassId;

/// Error returned when the programs cannot be loaded, or a map of theirs not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// This program was built without a compiler for eBPF.
    #[error("this build has no eBPF programs: install clang and libbpf-dev, and build again")]
    NotBuilt,
    /// The object cannot be loaded.
    #[error(
        "the kernel does not load the eBPF programs ({0}): run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, on Linux 5.15 or later with BTF"
    )]
    Object(#[from] aya::EbpfError),
    /// A program cannot be loaded or run.
    #[error("the eBPF program {name}: {source}")]
    Program {
        /// Name of the program.
        name: &'static str,
        /// Error of the loader.
        #[source]
        source: aya::programs::ProgramError,
    },
    /// A map cannot be read or written.
    #[error(
        "the eBPF map {name}: {source}; run as root, or with CAP_BPF, and by the version that attached it"
    )]
    Map {
        /// Name of the map.
        name: &'static str,
        /// Error of the loader.
        #[source]
        source: aya::maps::MapError,
    },
    /// The object has no such program or map.
    #[error("the object has no {0}: build it from the sources of this version")]
    Missing(&'static str),
    /// The note is too long for its map.
    #[error("the note is longer than {most} bytes: shorten it")]
    Note {
        /// Largest number of bytes.
        most: usize,
    },
    /// The kernel does not describe its own types.
    #[error("the kernel's BTF: {source}; use a kernel with CONFIG_DEBUG_INFO_BTF")]
    Btf {
        /// Error of the loader.
        #[source]
        source: aya::BtfError,
    },
}

/// Error returned when the sockets of a control group cannot be marked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The control group cannot be opened.
    #[error("{path}: {source}; run as root")]
    Open {
        /// Directory of the group.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// There are more rules than the programs have room for.
    #[error("there are {given} rules: write {most} at most")]
    Rules {
        /// Number of rules.
        given: usize,
        /// Largest number.
        most: usize,
    },
    /// The programs cannot be loaded or attached.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Error returned when a device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no iproute2.
    #[error("`ip` cannot be run: {0}; install iproute2")]
    NoIp(#[source] io::Error),
    /// There is no such device.
    #[error("there is no device `{name}` in this network namespace ({why}): `ip link` lists them")]
    Unknown {
        /// Name given.
        name: String,
        /// Message of iproute2.
        why: String,
    },
    /// The output of iproute2 is not as it should be.
    #[error("the output of `ip` for `{name}` cannot be read: use iproute2 5.0 or later")]
    Unreadable {
        /// Name given.
        name: String,
    },
    /// The device has another kind of link layer.
    #[error(
        "`{name}` has a link layer of kind `{kind}`: use a device with Ethernet, or one that carries plain IP"
    )]
    Kind {
        /// Name given.
        name: String,
        /// Kind of the link layer.
        kind: String,
    },
    /// The system does not name the network namespace.
    #[error("the network namespace has no number: {0}; mount /proc")]
    Namespace(#[source] io::Error),
}

/// Error returned when iproute2's `tc` does not do what it is asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcError {
    /// There is no `tc`.
    #[error("`tc` cannot be run: {0}; install iproute2")]
    NoTc(#[source] io::Error),
    /// The kernel has no such discipline.
    #[error(
        "`{command}` fails: the kernel has no such queue; load its module (sch_htb, sch_codel, sch_fq_codel), or choose `droptail`"
    )]
    Kind {
        /// The command.
        command: String,
    },
    /// The caller may not change queues.
    #[error("`{command}` fails: it is not permitted; run as root, or with CAP_NET_ADMIN")]
    Privilege {
        /// The command.
        command: String,
    },
    /// The kernel refuses a command.
    #[error("`{command}` fails: {why}")]
    Refused {
        /// The command.
        command: String,
        /// Message of `tc`.
        why: String,
    },
    /// The output of `tc` is not as it should be.
    #[error("the output of `{command}` cannot be read: use iproute2 5.0 or later")]
    Unreadable {
        /// The command.
        command: String,
    },
}

/// Error returned when a class can have no queue of CRQ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParentError {
    /// There is no such class.
    #[error("`{device}` has no class {class}: {}", named(there, &format!("`tc class show dev {device}` lists none of htb")))]
    Unknown {
        /// Name of the device.
        device: String,
        /// The class.
        class: ClassId,
        /// Classes that are there, and can have a queue.
        there: Vec<ClassId>,
    },
    /// The class is one of another discipline.
    #[error("the class {class} of `{device}` is one of `{kind}`: CRQ goes below a class of `htb`")]
    NotHtb {
        /// Name of the device.
        device: String,
        /// The class.
        class: ClassId,
        /// Its discipline.
        kind: String,
    },
    /// The class has classes below it.
    #[error("the class {class} of `{device}` has classes below it: name these instead, as {}", list(below))]
    Inner {
        /// Name of the device.
        device: String,
        /// The class.
        class: ClassId,
        /// Classes below it.
        below: Vec<ClassId>,
    },
    /// The class belongs to CRQ.
    #[error("the class {class} of `{device}` is CRQ's own: name a class of another tree")]
    Own {
        /// Name of the device.
        device: String,
        /// The class.
        class: ClassId,
    },
    /// The class has a queue that cannot be put back.
    #[error(
        "the class {class} of `{device}` has {} (`{kind} {handle}`): {}allow CRQ to remove it with `--replace`; `detach` then leaves the class with HTB's default queue",
        if *is_classful { "a queue with classes of its own" } else { "a queue that CRQ cannot put back" },
        if *is_classful { "name one of these, or " } else { "" },
    )]
    Queue {
        /// Name of the device.
        device: String,
        /// The class.
        class: ClassId,
        /// Discipline of the queue.
        kind: String,
        /// Handle of the queue.
        handle: String,
        /// Set if the queue has classes.
        is_classful: bool,
    },
    /// The device has as many queues as CRQ has handles for.
    #[error("CRQ is below as many classes of `{device}` as it can be: name 256 at most")]
    Many {
        /// Name of the device.
        device: String,
    },
}

/// Names of some classes.
fn list(classes: &[ClassId]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = classes.iter().take(SHOWN).map(ToString::to_string).collect();
    let rest = if classes.len() > SHOWN { " and others" } else { "" };
    format!("{}{rest}", names.join(", "))
}

/// Text about the classes that can be named, or that there are none.
fn named(classes: &[ClassId], none: &str) -> String {
    if classes.is_empty() { none.to_owned() } else { format!("{} can be named", list(classes)) }
}

/// Error returned when programs cannot be attached to a device, or their attachment not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The device has an attachment.
    #[error(
        "CRQ is on `{device}` already: change it with `marcato crq set`, or take it off with `marcato crq detach`"
    )]
    Attached {
        /// Name of the device.
        device: String,
    },
    /// The device has no attachment.
    #[error("CRQ is not on `{device}`: put it there with `marcato crq attach`, or watch with `monitor`")]
    Detached {
        /// Name of the device.
        device: String,
    },
    /// A directory of pins cannot be used.
    #[error(
        "{path}: {source}; {}",
        match source.kind() {
            io::ErrorKind::PermissionDenied => "run as root",
            _ => "it must be below a file system of type bpf: mount -t bpf bpf /sys/fs/bpf",
        }
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// An object of the kernel cannot be pinned.
    #[error(
        "{name} cannot be pinned ({source}): mount a file system of type bpf, as with mount -t bpf bpf /sys/fs/bpf"
    )]
    Pin {
        /// Name of the program or map.
        name: &'static str,
        /// Error of the loader.
        #[source]
        source: aya::pin::PinError,
    },
    /// A program's link to the device cannot be kept.
    #[error(
        "{name} cannot stay on the device, or be taken off it ({source}): run as root, or with CAP_BPF and CAP_NET_ADMIN"
    )]
    Link {
        /// Name of the program.
        name: &'static str,
        /// Error of the loader.
        #[source]
        source: aya::programs::links::LinkError,
    },
    /// The device has no hook for a program.
    #[error(
        "{name} finds no hook at the device ({source}): load the module sch_ingress, or use Linux 6.6 or later"
    )]
    Hook {
        /// Name of the program.
        name: &'static str,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The device has a queue that leaves no hook for packets that leave.
    #[error(
        "`{device}` has the queue `ingress`, with which Linux before 6.6 has no hook for packets that leave: `tc qdisc del dev {device} ingress`, then `tc qdisc add dev {device} clsact`, and add its filters again"
    )]
    Ingress {
        /// Name of the device.
        device: String,
    },
    /// The device of the other direction is gone.
    #[error(
        "there is no device with the number {ifindex}, by which the other direction should leave: name another one"
    )]
    Reverse {
        /// Number of the device.
        ifindex: u32,
    },
    /// The programs cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}
