//! Hook of a device at which a classifier meets packets: tcx, or clsact on kernels before 6.6.

use std::io;
use std::path::Path;

use aya::Ebpf;
use aya::programs::links::{FdLink, Link as _, PinnedLink};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle};
use aya::programs::{LinkOrder, ProgramError, TcAttachType};
use aya::util::KernelVersion;
use rustix::io::Errno;

use crate::error::{AttachError, LoadError};
use crate::programs;
use crate::queues::Queue;

/// First kernel with tcx.
const TCX: KernelVersion = KernelVersion::new(6, 6, 0);
/// Preference of filters at clsact, by which they are found again: "c4" for CRQ.
const PREFERENCE: u16 = 0xc400;

/// Hook of a device.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Name of the device.
    pub(crate) device: String,
    pub(crate) direction: TcAttachType,
    /// Number of the device whose flows are watched, if that is another one.
    pub(crate) of: Option<u32>,
}

impl Place {
    /// Handle of a filter, by which it is found again. That of each watched device is its own.
    fn handle(&self) -> TcHandle {
        let bytes = self.of.unwrap_or(0).to_be_bytes();
        // The kernel has 31 bits for a handle of cls_bpf.
        let major = u16::from_be_bytes([bytes[0], bytes[1]]) & 0x7fff;
        TcHandle::new(major, if self.of.is_some() { u16::from_be_bytes([bytes[2], bytes[3]]) } else { 0xc4 })
    }
}

/// Returns whether this kernel has tcx.
pub(crate) fn has_tcx() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= TCX)
}

/// Classifier at a hook.
pub(crate) enum Hook {
    /// Link of tcx, which can be pinned.
    Tcx(FdLink),
    /// Filter at clsact, which stays until it is removed.
    Filter(SchedClassifierLink),
}

/// Attaches a program of the object to the packets of a place.
pub(crate) fn attach(ebpf: &mut Ebpf, name: &'static str, place: &Place) -> Result<Hook, AttachError> {
    let has_tcx = has_tcx();
    let failed = |source| LoadError::Program { name, source };
    let program = programs::load_classifier(ebpf, name)?;
    let options = if has_tcx {
        TcAttachOptions::TcxOrder(LinkOrder::default())
    } else {
        // The kernel takes filters of packets that leave for the queue `ingress` too, and runs them on those that enter.
        if Queue::all(&place.device).is_ok_and(|queues| queues.iter().any(|queue| queue.kind == "ingress")) {
            return Err(AttachError::Ingress { device: place.device.clone() });
        }
        add_clsact(&place.device).map_err(|source| AttachError::Hook { name, source })?;
        TcAttachOptions::Netlink(NlOptions { priority: PREFERENCE, handle: place.handle(), classid: None })
    };
    let id = program.attach_with_options(&place.device, place.direction, options).map_err(failed)?;
    let link = program.take_link(id).map_err(failed)?;
    if has_tcx {
        let link = link.try_into().map_err(|source| AttachError::Link { name, source })?;
        return Ok(Hook::Tcx(link));
    }
    Ok(Hook::Filter(link))
}

/// Attaches a program of the object to the packets of queues with these handles. The filters stay as long as their
/// queues do, and choose classes of these.
pub(crate) fn filter(
    ebpf: &mut Ebpf,
    name: &'static str,
    device: &str,
    handles: &[u16],
) -> Result<(), AttachError> {
    let program = programs::load_classifier(ebpf, name)?;
    let failed = |source| LoadError::Program { name, source };
    for &handle in handles {
        let options = NlOptions {
            priority: PREFERENCE,
            handle: TcHandle::new(0, 0xc4),
            // The kernel takes the major number of a class from here. cls_bpf.
            classid: Some(TcHandle::new(handle, 0)),
        };
        let queue = TcAttachType::Custom(u32::from(handle) << 16);
        let id =
            program.attach_with_options(device, queue, TcAttachOptions::Netlink(options)).map_err(failed)?;
        // Its drop would remove the filter.
        std::mem::forget(program.take_link(id).map_err(failed)?);
    }
    Ok(())
}

/// Adds the queue of clsact to a device, unless it is there. It is left there: others may use it, and it
/// does nothing by itself.
fn add_clsact(device: &str) -> Result<(), io::Error> {
    match tc::qdisc_add_clsact(device) {
        Ok(()) | Err(TcError::AlreadyAttached) => Ok(()),
        Err(TcError::IoError(source)) => Err(source),
        Err(TcError::NetlinkError(error)) => {
            let error =
                error.raw_os_error().map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error);
            if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

impl Hook {
    /// Lets the classifier stay when this process ends. A link is pinned at `path`.
    pub(crate) fn keep(self, name: &'static str, path: &Path) -> Result<(), AttachError> {
        match self {
            Self::Tcx(link) => {
                link.pin(path).map_err(|source| AttachError::Pin { name, source })?;
            }
            // Its drop would remove the filter.
            Self::Filter(link) => std::mem::forget(link),
        }
        Ok(())
    }
}

/// Takes a classifier that was kept off its device, if it is there. A filter went with a device that is gone.
pub(crate) fn remove(name: &'static str, path: &Path, place: &Place) -> Result<(), AttachError> {
    if has_tcx() {
        return unpin(name, path);
    }
    let link =
        match SchedClassifierLink::attached(&place.device, place.direction, PREFERENCE, place.handle(), None)
        {
            Err(error) if is_absent(error.raw_os_error()) => return Ok(()),
            link => link.map_err(|source| AttachError::Hook { name, source })?,
        };
    match link.detach() {
        Err(ProgramError::NetlinkError(error)) if is_absent(error.raw_os_error()) => Ok(()),
        done => done.map_err(|source| LoadError::Program { name, source }.into()),
    }
}

/// Returns whether an error of the kernel says that there is no such filter, no clsact, or no such device.
fn is_absent(code: Option<i32>) -> bool {
    [Errno::NOENT, Errno::INVAL, Errno::NODEV].into_iter().any(|absent| code == Some(absent.raw_os_error()))
}

/// Ends a pinned link, if it is there.
pub(crate) fn unpin(name: &'static str, path: &Path) -> Result<(), AttachError> {
    if !path.exists() {
        return Ok(());
    }
    let gone = |source| AttachError::Directory { path: path.to_owned(), source };
    let link = PinnedLink::from_pin(path).map_err(|source| AttachError::Link { name, source })?;
    link.unpin().map(drop).map_err(gone)
}
