//! Examination of this machine's kernel.
//!
//! An examination changes nothing: queues are tried at the loopback device of a network namespace that ends with
//! it, programs of eBPF are loaded and dropped, sockets are closed. Modules that are not loaded yet are looked up
//! in `/lib/modules` instead of being tried, which would load them.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aya::programs::{ProgramError, ProgramType, SchedClassifier, TcAttachType};
use aya::sys::{SyscallError, is_program_supported};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::fs::{Access, access};

use crate::feature::Feature;
use crate::requirements::Missing;

/// Directory at which the file system of programs is expected.
const BPF_FS: &str = "/sys/fs/bpf";

/// Answer of the examination of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The feature works for this process.
    Yes,
    /// The kernel lacks it.
    No,
    /// This process may not use it, or may not ask.
    Denied,
    /// A tool is missing to ask by.
    Unknown,
}

/// Result of the examination of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The feature.
    pub feature: Feature,
    /// The answer.
    pub state: State,
    /// Facts by which the answer was found.
    pub found: String,
}

/// Answer with its facts.
type Answer = (State, String);

fn answer(state: State, found: impl Into<String>) -> Answer {
    (state, found.into())
}

/// Examines every feature of this machine's kernel, in the order of [`Feature::ALL`].
pub fn examine() -> Vec<Finding> {
    let release = read("/proc/sys/kernel/osrelease");
    let modules = read(&format!("/lib/modules/{}/modules.dep", release.trim()));
    let loaded = read("/proc/modules");
    let waits = |feature: Feature| feature.module().filter(|name| is_waiting(&modules, &loaded, name));
    let disciplines: Vec<Feature> = Feature::ALL
        .into_iter()
        .filter(|feature| feature.discipline().is_some() && waits(*feature).is_none())
        .collect();
    let mut queues = try_disciplines(&disciplines);
    Feature::ALL
        .into_iter()
        .map(|feature| {
            let (state, found) = match waits(feature) {
                Some(module) => answer(State::Yes, format!("by the module {module}, when it is first used")),
                None => queues.remove(&feature).unwrap_or_else(|| probe(feature)),
            };
            Finding { feature, state, found }
        })
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns whether a module can be loaded and is not.
fn is_waiting(available: &str, loaded: &str, module: &str) -> bool {
    let named = |line: &str| {
        let file = line.split(':').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        file.split('.').next().is_some_and(|name| name == module)
    };
    available.lines().any(named) && !loaded.lines().any(|line| line.split(' ').next() == Some(module))
}

/// Examines a feature that is no queue discipline.
fn probe(feature: Feature) -> Answer {
    match feature {
        Feature::Bpf => bpf(),
        Feature::Btf => exists("/sys/kernel/btf/vmlinux"),
        Feature::BpfFs => {
            let is_there = Missing::has_pin_directory(Path::new(BPF_FS));
            answer(if is_there { State::Yes } else { State::No }, BPF_FS)
        }
        Feature::CgroupV2 => cgroup(&read("/proc/self/mounts")),
        Feature::Tcx => tcx(),
        Feature::Bbr => bbr(&read("/proc/sys/net/ipv4/tcp_available_congestion_control")),
        Feature::Tun => tun(),
        Feature::UserNamespaces => user_namespaces(),
        Feature::Mptcp => mptcp(),
        Feature::TxTime | Feature::UdpGso | Feature::UdpGro => udp(feature),
        // `examine` has tried these already.
        Feature::Clsact | Feature::Htb | Feature::Codel | Feature::FqCodel | Feature::Fq => {
            answer(State::Unknown, "not tried")
        }
    }
}

fn exists(path: &str) -> Answer {
    answer(if Path::new(path).exists() { State::Yes } else { State::No }, path)
}

fn bpf() -> Answer {
    let missing = Missing::privileges();
    let lacks: Vec<&str> = missing
        .iter()
        .filter_map(|one| if let Missing::Capability(name) = one { Some(*name) } else { None })
        .collect();
    if !lacks.is_empty() {
        return answer(State::Denied, format!("without {}", lacks.join(", ")));
    }
    match is_program_supported(ProgramType::SchedClassifier) {
        Ok(true) => answer(State::Yes, "a program was loaded"),
        Ok(false) => answer(State::No, "the kernel knows no such program"),
        Err(error) => of_program(&error),
    }
}

/// Answer that an error of the loader gives.
fn of_program(error: &ProgramError) -> Answer {
    let io = match error {
        ProgramError::SyscallError(SyscallError { io_error, .. })
        | ProgramError::LoadError { io_error, .. } => Some(io_error),
        ProgramError::IOError(io_error) => Some(io_error),
        _ => None,
    };
    let denied = io.is_some_and(|io| io.kind() == ErrorKind::PermissionDenied);
    answer(if denied { State::Denied } else { State::No }, io.map_or(error.to_string(), ToString::to_string))
}

/// Mount points of the second version of control groups.
pub(crate) fn cgroup_mount(mounts: &str) -> Option<PathBuf> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut of_kind = fields.filter(|fields| fields.get(2) == Some(&"cgroup2"));
    of_kind.find_map(|fields| Some(PathBuf::from(fields.get(1)?)))
}

fn cgroup(mounts: &str) -> Answer {
    let Some(path) = cgroup_mount(mounts) else { return answer(State::No, "not mounted") };
    let writable = access(&path, Access::WRITE_OK).is_ok();
    let shown = path.display();
    if writable {
        answer(State::Yes, format!("{shown}"))
    } else {
        answer(State::Denied, format!("{shown} is read-only here"))
    }
}

fn tcx() -> Answer {
    match SchedClassifier::query_tcx("lo", TcAttachType::Egress) {
        Ok(_) => answer(State::Yes, "the kernel lists programs of lo"),
        // There is none at the device yet.
        Err(ProgramError::SyscallError(SyscallError { io_error, .. }))
            if io_error.kind() == ErrorKind::NotFound =>
        {
            answer(State::Yes, "the kernel lists programs of lo")
        }
        Err(error) => of_program(&error),
    }
}

fn bbr(available: &str) -> Answer {
    let names: Vec<&str> = available.split_whitespace().collect();
    let state = if names.contains(&"bbr") { State::Yes } else { State::No };
    answer(state, format!("available: {}", names.join(", ")))
}

fn tun() -> Answer {
    const DEVICE: &str = "/dev/net/tun";
    if !Path::new(DEVICE).exists() {
        return answer(State::No, format!("no {DEVICE}"));
    }
    // Where the module waits, `examine` does not come here.
    match access(DEVICE, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => answer(State::Yes, DEVICE),
        Err(error) => answer(State::Denied, format!("{DEVICE}: {error}")),
    }
}

fn user_namespaces() -> Answer {
    let settings = [
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
        ("user/max_user_namespaces", "0"),
    ];
    for (name, forbids) in settings {
        if read(&format!("/proc/sys/{name}")).trim() == forbids {
            let name = name.replace('/', ".");
            return answer(State::Denied, format!("{name} = {forbids}"));
        }
    }
    let tried = Command::new("unshare").args(["-Urn", "true"]).stdin(Stdio::null()).output();
    match tried {
        Err(error) => {
            answer(State::Unknown, format!("`unshare` cannot be run ({error}): install util-linux"))
        }
        Ok(output) if output.status.success() => answer(State::Yes, "one was made"),
        Ok(output) => answer(State::Denied, first_line(&output.stderr)),
    }
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().trim().to_owned()
}

fn mptcp() -> Answer {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    match socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP)) {
        Ok(_) => answer(State::Yes, "a socket was opened"),
        Err(error) if !Path::new("/proc/sys/net/mptcp/enabled").exists() => {
            answer(State::No, error.to_string())
        }
        Err(error) => answer(State::Denied, format!("net.mptcp.enabled: {error}")),
    }
}

fn udp(feature: Feature) -> Answer {
    /// Any size of datagrams: none is sent.
    const SEGMENT: i32 = 1200;
    let socket = match UdpSocket::bind("127.0.0.1:0") {
        Ok(socket) => socket,
        Err(error) => return answer(State::Unknown, format!("no socket of UDP: {error}")),
    };
    let set = match feature {
        Feature::UdpGso => setsockopt(&socket, sockopt::UdpGsoSegment, &SEGMENT),
        Feature::UdpGro => setsockopt(&socket, sockopt::UdpGroSegment, &true),
        // The clock of fq, and the only one that needs no privilege.
        _ => {
            let time = libc::sock_txtime { clockid: libc::CLOCK_MONOTONIC, flags: 0 };
            setsockopt(&socket, sockopt::TxTime, &time)
        }
    };
    match set {
        Ok(()) => answer(State::Yes, "the option was set"),
        Err(error) => answer(State::No, error.desc()),
    }
}

/// Tries queue disciplines at the loopback device of a network namespace that ends with this call.
fn try_disciplines(features: &[Feature]) -> HashMap<Feature, Answer> {
    let names = features.iter().filter_map(|feature| feature.discipline());
    let script: String = names
        .map(|name| {
            let place = if name == "clsact" { name.to_owned() } else { format!("root {name}") };
            format!(
                "tc qdisc add dev lo {place} 2>&1; echo \"= $?\"; tc qdisc del dev lo {place} 2>/dev/null\n"
            )
        })
        .collect();
    let own = if rustix::process::geteuid().is_root() { "-n" } else { "-Urn" };
    let ran = Command::new("unshare").args([own, "sh", "-c", &script]).stdin(Stdio::null()).output();
    let all = |state, why: String| features.iter().map(|feature| (*feature, (state, why.clone()))).collect();
    match ran {
        Err(error) => all(State::Unknown, format!("`unshare` cannot be run ({error}): install util-linux")),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let answers = of_script(&text);
            if answers.len() != features.len() {
                let why = first_line(&output.stderr);
                return all(State::Denied, format!("no network namespace to try it in: {why}"));
            }
            features.iter().copied().zip(answers).collect()
        }
    }
}

/// Answers of a script: for each discipline the message of `tc`, and a line `= STATUS`.
fn of_script(text: &str) -> Vec<Answer> {
    let (mut answers, mut said) = (Vec::new(), String::new());
    for line in text.lines() {
        let Some(status) = line.strip_prefix("= ") else {
            if said.is_empty() {
                line.trim().clone_into(&mut said);
            }
            continue;
        };
        let said = std::mem::take(&mut said);
        answers.push(match status {
            "0" => answer(State::Yes, "it was added in a namespace"),
            // The shell's status of a program that is not there.
            "127" => answer(State::Unknown, "`tc` cannot be run: install iproute2"),
            _ if said.contains("not permitted") => answer(State::Denied, said),
            _ => answer(State::No, said),
        });
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_not_loaded_is_not_tried() {
        let available = "kernel/net/sched/sch_codel.ko.xz: kernel/lib/a.ko\nkernel/net/ipv4/tcp_bbr.ko:\n";
        assert!(is_waiting(available, "tcp_bbr 20480 1 - Live 0x0\n", "sch_codel"));
        assert!(!is_waiting(available, "tcp_bbr 20480 1 - Live 0x0\n", "tcp_bbr"));
        assert!(!is_waiting(available, "", "sch_fq_codel"));
        assert!(!is_waiting("", "", "sch_codel"));
    }

    #[test]
    fn answers_of_tc_are_told_apart() {
        let text = "= 0\nError: Specified qdisc kind is unknown.\n= 2\nRTNETLINK answers: Operation not permitted\n= 2\nsh: 1: tc: not found\n= 127\n";
        let states: Vec<State> = of_script(text).into_iter().map(|(state, _)| state).collect();
        assert_eq!(states, [State::Yes, State::No, State::Denied, State::Unknown]);
        assert_eq!(of_script(text)[1].1, "Error: Specified qdisc kind is unknown.");
    }

    #[test]
    fn the_second_version_of_cgroups_is_found_among_others() {
        let mounts =
            "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(cgroup_mount(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(cgroup("tmpfs /run tmpfs rw 0 0\n").0, State::No);
        assert_eq!(bbr("reno cubic bbr\n").0, State::Yes);
        assert_eq!(bbr("reno cubic\n"), (State::No, "available: reno, cubic".to_owned()));
    }

    #[test]
    fn every_feature_is_examined_and_nothing_is_left() {
        let devices = || read("/proc/net/dev").lines().count();
        let before = devices();
        let found = examine();
        assert_eq!(found.iter().map(|finding| finding.feature).collect::<Vec<_>>(), Feature::ALL);
        for Finding { feature, state, found } in &found {
            assert!(!found.is_empty(), "{feature:?}: {state:?}");
            assert!(found != "not tried", "{feature:?}");
        }
        // Found by other means than the examination's own.
        let state = |feature| found.iter().find(|finding| finding.feature == feature).unwrap().state;
        assert_eq!(state(Feature::Btf) == State::Yes, Path::new("/sys/kernel/btf/vmlinux").exists());
        assert_eq!(state(Feature::Bpf) == State::Denied, !Missing::privileges().is_empty());
        assert_eq!(devices(), before);
    }
}
