use std::env;
use std::fs;
use std::path::Path;

/// CAP_NET_ADMIN and CAP_SYS_ADMIN: without them there are no interfaces and no mounts to make.
const NET_AND_SYS_ADMIN: u64 = 1 << 12 | 1 << 21;

/// Something that a test needs of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Capabilities of an administrator of the network and the system, in the initial user namespace.
    Root,
    /// A user namespace for a process without privileges.
    UserNamespaces,
    /// The privileges of a lab that this process opens: those of an administrator in its user namespace, and access to
    /// `/dev/net/tun`.
    Lab,
    /// The privileges of a lab that a process of its own opens, which may be in a user namespace that it makes.
    LabProcess,
    /// A program on the search path.
    Program(&'static str),
    /// At least one of these programs on the search path.
    OneOf(&'static [&'static str]),
    /// Types of the running kernel (BTF), without which programs of eBPF cannot be loaded.
    KernelTypes,
    /// Compiled programs of eBPF, which a build without clang leaves empty.
    Programs(&'static [u8]),
}

impl Need {
    /// Returns why this machine lacks it; `None` if it does not.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!(is_administrator() && is_initial())).then(|| "needs root".to_owned()),
            Self::UserNamespaces => {
                (!has_user_namespaces()).then(|| "needs user namespaces without privileges".to_owned())
            }
            Self::Lab => tun()
                .or_else(|| (!is_administrator()).then(|| "needs root, also of a user namespace".to_owned())),
            Self::LabProcess => tun().or_else(|| {
                let possible = is_administrator() || has_user_namespaces();
                (!possible).then(|| "needs root, or user namespaces".to_owned())
            }),
            Self::Program(name) => (!is_on_path(name)).then(|| format!("needs the program `{name}`")),
            Self::OneOf(names) => {
                let found = names.iter().any(|name| is_on_path(name));
                (!found).then(|| format!("needs one of the programs `{}`", names.join("`, `")))
            }
            Self::KernelTypes => {
                let path = "/sys/kernel/btf/vmlinux";
                (!Path::new(path).exists()).then(|| format!("needs the kernel's types (BTF) in {path}"))
            }
            Self::Programs(object) => {
                object.is_empty().then(|| "needs programs of eBPF, and this build had no clang".to_owned())
            }
        }
    }
}

/// Returns whether this process is an administrator of its user namespace.
fn is_administrator() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    bits & NET_AND_SYS_ADMIN == NET_AND_SYS_ADMIN
}

/// Returns whether this process is in the initial user namespace, which maps all numbers of users.
fn is_initial() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.contains("4294967295"))
}

/// Returns why the device of emulated links cannot be opened.
fn tun() -> Option<String> {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    device.err().map(|error| format!("needs /dev/net/tun: {error}"))
}

/// Returns whether a process of this user may have a user namespace: asked by making one.
fn has_user_namespaces() -> bool {
    let made = std::process::Command::new("unshare").args(["-Urn", "true"]).output();
    made.is_ok_and(|made| made.status.success())
}

fn is_on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::Need;

    #[test]
    fn needs_are_missing_or_not() {
        assert_eq!(Need::Program("sh").missing(), None);
        let why = Need::Program("no-such-program").missing().unwrap();
        assert!(why.contains("`no-such-program`"), "{why}");
        assert_eq!(Need::Programs(b"object").missing(), None);
        assert!(Need::Programs(b"").missing().is_some());
    }
}
