//! Calls of the operating system that have no safe form.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::process::Signal;
use rustix::thread::UnshareFlags;

/// `TUNSETIFF` of `linux/if_tun.h`, which names the device of a descriptor.
const SET_DEVICE: Opcode = opcode::write::<i32>(b'T', 202);
/// `TUNSETOFFLOAD` of `linux/if_tun.h`.
const SET_OFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);

const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
/// Checksums, and segmentation of TCP over IPv4 and IPv6, with ECN.
const OFFLOADS: usize = 0x01 | 0x02 | 0x04 | 0x08;

/// Longest name of a device, with its final zero.
const NAME: usize = 16;

/// `struct ifreq` of `linux/if.h`, as far as `TUNSETIFF` uses it.
#[repr(C)]
struct DeviceRequest {
    name: [u8; NAME],
    flags: i16,
    unused: [u8; 22],
}

/// Creates a TUN device in the network namespace of this thread. It lives as long as the descriptor.
pub(crate) fn open_tun(name: &str, offload: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    let name = name.as_bytes_with_nul();
    let mut request = DeviceRequest { name: [0; NAME], flags: IFF_TUN | IFF_NO_PI, unused: [0; 22] };
    request.name.get_mut(..name.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(name);
    if offload {
        request.flags |= IFF_VNET_HDR;
    }
    // SAFETY: `TUNSETIFF` reads a `struct ifreq` of 40 bytes, which `DeviceRequest` has.
    unsafe { ioctl(&fd, Setter::<SET_DEVICE, DeviceRequest>::new(request)) }?;
    if offload {
        // SAFETY: `TUNSETOFFLOAD` takes its argument by value.
        unsafe { ioctl(&fd, rustix::ioctl::IntegerSetter::<SET_OFFLOAD>::new_usize(OFFLOADS)) }?;
    }
    Ok(fd)
}

/// Gives this thread a network namespace and a name of the host of its own, and a private copy of the mounts.
pub(crate) fn leave_namespaces() -> io::Result<()> {
    let flags = UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
    // SAFETY: no flag unshares file descriptors, which other threads may own.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Makes this process root of a user namespace of its own, while it has one thread.
pub(crate) fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // SAFETY: as above.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // An unprivileged process may map its groups only after it has given up `setgroups`.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Has the kernel kill the command when the thread that starts it ends, however that comes about.
pub(crate) fn bind_to_thread(command: &mut Command) -> &mut Command {
    let bind = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: between fork and exec, `bind` makes one system call and allocates nothing.
    unsafe { command.pre_exec(bind) }
}
