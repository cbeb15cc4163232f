//! Privileges and features of the system that the programs need.

use std::fs;
use std::path::Path;

use crate::feature::Feature;
use crate::{MARKS_OBJECT, OBJECT};

/// Privileges that are needed, by number. capabilities(7).
const CAPABILITIES: [(u8, &str); 3] = [(12, "CAP_NET_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];
/// Oldest version of Linux that the programs are written for.
const OLDEST: (u32, u32) = (5, 15);
/// Number by which statfs(2) names a file system of type bpf.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// Privilege or feature that is missing. Its text says how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A capability of the process.
    Capability(&'static str),
    /// A kernel of the oldest version or later; this is its release.
    Kernel(String),
    /// The kernel's description of its own types.
    Btf,
    /// A file system of type bpf at the directory of pins.
    PinDirectory(String),
    /// The eBPF programs themselves.
    Programs,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Capability(name) => write!(f, "the privilege {name}: run as root"),
            Self::Kernel(release) => {
                write!(f, "Linux {}.{} or later: this is {release}", OLDEST.0, OLDEST.1)
            }
            Self::Btf => write!(f, "/sys/kernel/btf/vmlinux: {}", Feature::Btf.remedy()),
            Self::PinDirectory(path) => write!(
                f,
                "a file system of type bpf at {path}: mount -t bpf bpf {path}. `ip netns exec` hides the system's"
            ),
            Self::Programs => {
                f.write_str("eBPF programs in this build: install clang and libbpf-dev, and build again")
            }
        }
    }
}

impl Missing {
    /// Returns the privileges that this process lacks.
    pub fn privileges() -> Vec<Self> {
        Self::in_status(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    /// Returns what this process and build lack to mark sockets.
    pub fn of_marks() -> Vec<Self> {
        let mut missing = Self::privileges();
        if MARKS_OBJECT.is_empty() {
            missing.push(Self::Programs);
        }
        missing
    }

    /// Returns what is missing on this system. `pins` is the directory of pins, or will be.
    pub fn all(pins: &Path) -> Vec<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let mut missing = Self::privileges();
        missing.extend(Self::kernel(&read("/proc/sys/kernel/osrelease")));
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            missing.push(Self::Btf);
        }
        if !Self::has_pin_directory(pins) {
            missing.push(Self::PinDirectory(there(pins).display().to_string()));
        }
        if OBJECT.is_empty() {
            missing.push(Self::Programs);
        }
        missing
    }

    /// Returns whether pins can be kept in this directory, which need not be there yet.
    pub(crate) fn has_pin_directory(pins: &Path) -> bool {
        rustix::fs::statfs(there(pins)).is_ok_and(|fs| is_bpf(fs.f_type))
    }

    /// Returns the missing privileges of a process with this `/proc/self/status`.
    fn in_status(status: &str) -> Vec<Self> {
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
        let lacks = |number: u8| effective >> number & 1 == 0;
        CAPABILITIES
            .into_iter()
            .filter(|(number, _)| lacks(*number))
            .map(|(_, name)| Self::Capability(name))
            .collect()
    }

    /// Returns whether a kernel of this release is too old.
    fn kernel(release: &str) -> Option<Self> {
        let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse().ok());
        let version: (u32, u32) = (numbers.next()?, numbers.next()?);
        (version < OLDEST).then(|| Self::Kernel(release.trim().to_owned()))
    }
}

/// Returns the directory, or the nearest above it that is there: its file system is then that of the directory.
fn there(pins: &Path) -> &Path {
    pins.ancestors().find(|path| path.exists()).unwrap_or(pins)
}

/// Returns whether statfs(2) names a file system of type bpf. Its number has 32 bits, and may come with a sign.
fn is_bpf(kind: impl TryInto<i64>) -> bool {
    kind.try_into().is_ok_and(|kind: i64| kind & 0xffff_ffff == BPF_FS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_privilege_has_its_name() {
        let names = |mask: &str| {
            let missing = Missing::in_status(&format!("Name:\tmarcato\nCapEff:\t{mask}\nSeccomp:\t0\n"));
            missing.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names("000001ffffffffff"), Vec::<String>::new());
        assert_eq!(names("0000008000000000").len(), 2);
        assert!(names("0000008000001000")[0].contains("CAP_PERFMON"));
        assert_eq!(names("0000000000000000").len(), 3);
        assert_eq!(names("?").len(), 3);
    }

    #[test]
    fn old_kernels_are_told_apart() {
        for (release, fits) in
            [("5.15.0-91-generic\n", true), ("6.1.0-18-cloud-amd64", true), ("6.18", true), ("unknown", true)]
        {
            assert_eq!(Missing::kernel(release).is_none(), fits, "{release}");
        }
        assert_eq!(Missing::kernel("5.4.0-1\n"), Some(Missing::Kernel("5.4.0-1".to_owned())));
    }

    #[test]
    fn an_ordinary_directory_keeps_no_pins() {
        let missing = Missing::all(&std::env::temp_dir().join("no-such-directory/marcato"));
        assert!(missing.iter().any(|it| matches!(it, Missing::PinDirectory(_))), "{missing:?}");
    }
}
