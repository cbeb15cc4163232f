//! TUN device of one end of a link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use marcato_units::Bytes;
use rustix::buffer::spare_capacity;

use crate::sys;

/// TUN device. It disappears with this value.
#[derive(Debug)]
pub(crate) struct Tun {
    fd: OwnedFd,
    pub(crate) offload: bool,
    /// Longest frame in bytes.
    longest: usize,
}

/// Longest frame in bytes with offload: a segment of 64 kB behind its header.
const MAX_FRAME: usize = 65_535 + 10;

impl Tun {
    /// Creates a device in the network namespace of this thread, which will have this MTU.
    pub(crate) fn open(name: &str, mtu: Bytes, offload: bool) -> io::Result<Self> {
        let longest = usize::try_from(mtu.get()).unwrap_or(MAX_FRAME).min(MAX_FRAME);
        let longest = if offload { MAX_FRAME } else { longest };
        Ok(Self { fd: sys::open_tun(name, offload)?, offload, longest })
    }

    /// Reads a frame in place of what `frame` holds. Returns whether there was one.
    pub(crate) fn read(&self, frame: &mut Vec<u8>) -> io::Result<bool> {
        frame.clear();
        frame.reserve(self.longest);
        match rustix::io::read(&self.fd, spare_capacity(frame)) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a frame. Returns whether the kernel took it.
    pub(crate) fn write(&self, frame: &[u8]) -> bool {
        rustix::io::write(&self.fd, frame).is_ok()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
