//! Reads of a file that do not wait for a disk, and reads that may.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Result of a read that does not wait.
#[derive(Debug)]
pub(super) enum Now {
    /// Bytes at the beginning of the buffer; none at the end of the file.
    Read(usize),
    /// The bytes are not in the page cache.
    WouldBlock,
    /// The file system or kernel has no such reads.
    Unsupported,
}

/// Reads what the page cache has, at most the length of the buffer.
///
/// # Errors
/// That of the file.
#[cfg(target_os = "linux")]
pub(super) fn read_now(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<Now> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    let mut buffers = [io::IoSliceMut::new(buffer)];
    match preadv2(file, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(Now::Read(read)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Now::WouldBlock),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => Ok(Now::Unsupported),
        Err(error) => Err(error.into()),
    }
}

/// Returns that there is no such read.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub(super) fn read_now(_: &File, _: u64, _: &mut [u8]) -> io::Result<Now> {
    Ok(Now::Unsupported)
}

/// Reads at least one byte, and waits for it. Returns 0 only at the end of the file.
///
/// # Errors
/// That of the file.
pub(super) fn read_waiting(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
