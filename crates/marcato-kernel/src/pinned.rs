//! Attachments of all devices and network namespaces, as their pins show them.
//!
//! Pins outlive the device: a program's link then has no device, and the tracepoints see packets of the whole
//! system for nothing. A network namespace is known by its number only, so a link is asked where it is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, PinnedLink};

use crate::attachment::{CLASS, CLASSIFIERS, TRACEPOINTS};
use crate::device::{self, Device};
use crate::error::AttachError;
use crate::hook;
use crate::maps::Maps;

/// Inode number of the first process namespace, in which /proc shows all processes (`PROC_PID_INIT_INO`).
const ALL_PROCESSES: u64 = 0xefff_fffc;

/// Pins of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Number of the device in it.
    pub ifindex: u32,
    directory: PathBuf,
}

/// Condition of an attachment: on its device, or left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// The programs are on their device.
    Attached,
    /// The device is gone, or its network namespace is.
    Gone,
    /// Programs or maps are missing: a process was killed while it attached or detached them.
    Incomplete,
    /// The device of the other direction is gone: the programs judge no flow of TCP.
    OneWay,
    /// The device is in another network namespace, where a kernel before 6.6 does not let this process look.
    Elsewhere,
}

impl Pinned {
    /// Pins of the attachment of a device, if it has one.
    pub fn of(pins: &Path, device: &Device) -> Option<Self> {
        let (netns, ifindex) = (device.netns, device.ifindex);
        let directory = pins.join(name(netns, ifindex));
        directory.exists().then_some(Self { netns, ifindex, directory })
    }

    /// Returns whether these are the pins of a device.
    pub const fn is_of(&self, device: &Device) -> bool {
        self.netns == device.netns && self.ifindex == device.ifindex
    }

    /// Checks that this process may look into a directory of pins, if it is there.
    ///
    /// # Errors
    /// [`AttachError`] if it may not.
    pub fn permitted(pins: &Path) -> Result<(), AttachError> {
        match fs::read_dir(pins) {
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                Err(AttachError::Directory { path: pins.to_owned(), source })
            }
            _ => Ok(()),
        }
    }

    /// Pins of all attachments in a directory, by namespace and device.
    ///
    /// # Errors
    /// [`AttachError`] if the directory is there and cannot be read.
    pub fn all(pins: &Path) -> Result<Vec<Self>, AttachError> {
        let failed = |source| AttachError::Directory { path: pins.to_owned(), source };
        let entries = match fs::read_dir(pins) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if let Some((netns, ifindex)) = entry.file_name().to_str().and_then(numbers) {
                all.push(Self { netns, ifindex, directory: entry.path() });
            }
        }
        all.sort_by_key(|pinned| (pinned.netns, pinned.ifindex));
        Ok(all)
    }

    /// Returns the condition of the attachment.
    pub fn whereabouts(&self) -> Whereabouts {
        let pin = |name: &str| self.directory.join(name);
        let [egress, ingress] = CLASSIFIERS.map(|(name, _)| pin(name));
        let is_whole =
            Maps::NAMES.iter().chain(TRACEPOINTS.iter().map(|(name, _)| name)).all(|name| pin(name).exists());
        if hook::has_tcx() {
            let places = [egress, ingress]
                .map(|path| PinnedLink::from_pin(path).ok().and_then(|it| device_of(&it.into())));
            // Filters of classes have no links: there is the other direction's only.
            let is_below = pin(CLASS).exists();
            return match places {
                [None, Some(0)] if is_below && !self.has_reverse() => Whereabouts::Gone,
                [None, Some(0)] if is_below && (self.is_without_device() || is_lost(self.netns)) => {
                    Whereabouts::Gone
                }
                [None, Some(0)] if is_below => Whereabouts::OneWay,
                [None, Some(_)] if is_below && is_whole => Whereabouts::Attached,
                // A link loses its device when that is deleted.
                [Some(0), _] => Whereabouts::Gone,
                [Some(_), Some(0)] => Whereabouts::OneWay,
                [Some(_), Some(_)] if is_whole => Whereabouts::Attached,
                _ if self.is_without_device() => Whereabouts::Gone,
                _ => Whereabouts::Incomplete,
            };
        }
        match device::namespace() {
            Ok(netns) if netns == self.netns => match self.is_without_device() {
                true => Whereabouts::Gone,
                false if is_whole && self.is_without_reverse() => Whereabouts::OneWay,
                false if is_whole => Whereabouts::Attached,
                false => Whereabouts::Incomplete,
            },
            _ if is_lost(self.netns) => Whereabouts::Gone,
            _ => Whereabouts::Elsewhere,
        }
    }

    /// Returns whether the attachment is of the caller's network namespace, and its device is not there.
    fn is_without_device(&self) -> bool {
        device::namespace().is_ok_and(|netns| netns == self.netns)
            && device::numbers().is_ok_and(|numbers| !numbers.contains(&self.ifindex))
    }

    /// Returns whether the other direction leaves by another device.
    fn has_reverse(&self) -> bool {
        Maps::open(&self.directory).is_ok_and(|maps| maps.reverse().is_some())
    }

    /// Returns whether the device of the other direction is not in the caller's network namespace.
    fn is_without_reverse(&self) -> bool {
        let reverse = Maps::open(&self.directory).ok().and_then(|maps| maps.reverse());
        reverse.is_some_and(|reverse| device::numbers().is_ok_and(|numbers| !numbers.contains(&reverse)))
    }

    /// Text that was kept with the attachment, if it can be read.
    pub fn note(&self) -> Option<String> {
        Maps::open(&self.directory).ok()?.note().ok()
    }

    /// Removes the pins: the kernel then frees the programs and maps. Filters of a kernel without tcx, which are
    /// no pins, went with their device.
    ///
    /// # Errors
    /// [`AttachError`] if a pin cannot be removed.
    pub fn remove(&self) -> Result<(), AttachError> {
        let failed = |source| AttachError::Directory { path: self.directory.clone(), source };
        // Classifiers first: no packet is tagged that nobody follows.
        for (name, _) in CLASSIFIERS {
            hook::unpin(name, &self.directory.join(name))?;
        }
        let entries = match fs::read_dir(&self.directory) {
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            fs::remove_file(entry.map_err(failed)?.path()).map_err(failed)?;
        }
        fs::remove_dir(&self.directory).map_err(failed)
    }
}

/// Name of the directory of an attachment.
pub(crate) fn name(netns: u32, ifindex: u32) -> String {
    format!("crq-{netns}-{ifindex}")
}

/// Namespace and device in the name of a directory.
fn numbers(name: &str) -> Option<(u32, u32)> {
    let (netns, ifindex) = name.strip_prefix("crq-")?.split_once('-')?;
    Some((netns.parse().ok()?, ifindex.parse().ok()?))
}

/// Number of the device that a link of tcx is on; 0 if that is gone, `None` if the kernel does not tell.
///
/// The kernel tells it of an open file of this process (`tcx_link_fdinfo`).
fn device_of(link: &FdLink) -> Option<u32> {
    let id = link.info().ok()?.id();
    let files = fs::read_dir("/proc/thread-self/fdinfo").ok()?;
    files.flatten().find_map(|file| device_in(&fs::read_to_string(file.path()).ok()?, id))
}

/// Device of the link `id` in the kernel's description of an open file, if that is this link.
fn device_in(description: &str, id: u32) -> Option<u32> {
    let field = |name: &str| {
        let mut lines = description.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(of, value)| (of == name).then(|| value.trim().parse::<u32>().ok()).flatten())
    };
    if field("link_id") == Some(id) { field("ifindex") } else { None }
}

/// Returns whether no process and no mount holds a network namespace. `false` where not all processes can be seen.
fn is_lost(netns: u32) -> bool {
    let inode = |path: &Path| fs::metadata(path).map(|it| it.ino());
    if !inode(Path::new("/proc/self/ns/pid")).is_ok_and(|inode| inode == ALL_PROCESSES) {
        return false;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let is_in = |process: &Path| inode(&process.join("ns/net")).is_ok_and(|inode| inode == u64::from(netns));
    let held = processes.flatten().any(|process| is_in(&process.path()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    !held && !mounts.contains(&format!(" net:[{netns}] "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_attachments_are_told_from_others() {
        assert_eq!(numbers(&name(4_026_531_840, 7)), Some((4_026_531_840, 7)));
        for other in ["crq-7", "crq-x-7", "crq-1-2-3", "cats-1-2", "crq-1-"] {
            assert_eq!(numbers(other), None, "{other}");
        }
    }

    #[test]
    fn a_link_tells_its_device_or_that_it_has_none() {
        let text = |ifindex| {
            format!(
                "pos:\t0\nlink_type:\ttcx\nlink_id:\t12\nprog_id:\t5\nifindex:\t{ifindex}\nattach_type:\ttcx_egress (47)\n"
            )
        };
        assert_eq!(device_in(&text(7), 12), Some(7));
        assert_eq!(device_in(&text(0), 12), Some(0));
        assert_eq!(device_in(&text(7), 1), None);
        assert_eq!(device_in("pos:\t0\nflags:\t02\n", 12), None);
    }

    #[test]
    fn a_network_namespace_of_this_process_is_not_lost() {
        assert!(!is_lost(device::namespace().unwrap()));
    }
}
