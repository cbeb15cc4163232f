//! Wiring of a host: its devices, addresses, routes and names.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use marcato_units::Bytes;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::rule::RuleAction;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    unmount,
};

use crate::buffers;
use crate::leftover::hosts_file;
use crate::plan::{HostPlan, NodePlan};
use crate::tun::Tun;

/// Index of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;
/// Main routing table.
const MAIN: u32 = 254;
/// Number of the first routing table that belongs to a node.
const FIRST_TABLE: u32 = 1000;
/// Frames that wait for the emulator in a device. It reads them at once; the link's own queue is the
/// one that counts.
const DEVICE_QUEUE: u32 = 10_000;

/// Error returned if a host cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// The kernel refuses a device.
    #[error("cannot create the tun device {device}: {source}; give access to /dev/net/tun")]
    Device {
        /// Name of the device.
        device: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The kernel refuses an address, a route or a rule.
    #[error("cannot {what}: {source}")]
    Netlink {
        /// Action that failed.
        what: String,
        /// Error of the kernel.
        source: rtnetlink::Error,
    },
    /// Another call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// Action that failed.
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> WiringError {
    move |source| WiringError::System { what, source }
}

fn netlink(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> WiringError {
    let what = what.into();
    move |source| WiringError::Netlink { what, source }
}

/// Device of a host, to be created.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) mtu: Bytes,
    /// Passes segments of up to 64 kB, with checksums left to the receiver.
    pub(crate) offload: bool,
}

/// Sets up a host in the namespace of this thread, whose connections may have buffers of this size. Returns its
/// devices in their order.
pub(crate) fn wire(
    host: &HostPlan,
    devices: &[Device],
    names: &str,
    buffer: Bytes,
) -> Result<Vec<Tun>, WiringError> {
    set_parameters(buffer).map_err(system("set the parameters of the network namespace"))?;
    name_hosts(names).map_err(system("put the names of the hosts into /etc/hosts"))?;
    show_own_devices().map_err(system("mount the /sys of the network namespace"))?;
    let mut tuns = Vec::new();
    for Device { name, mtu, offload } in devices {
        let refused = |source| WiringError::Device { device: name.clone(), source };
        tuns.push(Tun::open(name, *mtu, *offload).map_err(refused)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.map_err(system("start a runtime"))?.block_on(configure(host, devices))?;
    Ok(tuns)
}

/// Lets the host forward packets, and keeps the kernel from sending any by itself.
fn set_parameters(buffer: Bytes) -> io::Result<()> {
    let root = Path::new("/proc/sys/net");
    for (name, value) in
        [("ipv4/ip_forward", "1"), ("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/default/rp_filter", "0")]
    {
        fs::write(root.join(name), value)?;
    }
    for name in ["ipv4/tcp_rmem", "ipv4/tcp_wmem"] {
        let file = root.join(name);
        // A kernel before 4.15 has one limit for all namespaces, and shows it in none but the first.
        let Ok(values) = fs::read_to_string(&file) else { continue };
        if let Some(values) = buffers::raised(&values, buffer) {
            fs::write(file, values)?;
        }
    }
    // Any user may send echo requests: `ping` needs no privileges. In a user namespace with one
    // group, only that one can be named.
    let groups = root.join("ipv4/ping_group_range");
    fs::write(&groups, "0 2147483647").or_else(|_| fs::write(groups, "0 0"))?;
    // A kernel without IPv6 lacks these.
    if root.join("ipv6").exists() {
        for (name, value) in [
            ("ipv6/conf/all/forwarding", "1"),
            // No link-local addresses, so no multicast reports and no router solicitations.
            ("ipv6/conf/default/addr_gen_mode", "1"),
            ("ipv6/conf/default/accept_dad", "0"),
        ] {
            fs::write(root.join(name), value)?;
        }
    }
    Ok(())
}

/// Puts the names of all hosts into this thread's copy of `/etc/hosts`.
fn name_hosts(names: &str) -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    // Its name is a mark of the lab, by which processes are found that have no other.
    let mut file = tempfile::Builder::new().prefix(&hosts_file()).tempfile()?;
    file.write_all(names.as_bytes())?;
    file.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    // The file needs no name once it is mounted. In a lab inside another one, that is so for the outer lab's, and
    // nothing can be mounted over a file without a name: this copy of the mounts does without it.
    match mount_bind(file.path(), "/etc/hosts") {
        Err(Errno::NOENT) => {
            unmount("/etc/hosts", UnmountFlags::DETACH)?;
            Ok(mount_bind(file.path(), "/etc/hosts")?)
        }
        mounted => Ok(mounted?),
    }
}

/// Gives this thread's view of files a `/sys` with the devices of its own network namespace, and no others.
///
/// Where the system does not allow it, as it may not in a user namespace, the machine's stays.
fn show_own_devices() -> io::Result<()> {
    let kept = tempfile::tempdir()?;
    // File systems below, of control groups and of eBPF programs for example, belong to no network namespace.
    let mut below = Vec::new();
    for name in ["fs", "kernel"] {
        let (from, to) = (Path::new("/sys").join(name), kept.path().join(name));
        if from.exists() {
            fs::create_dir(&to)?;
            mount_bind_recursive(&from, &to)?;
            below.push((from, to));
        }
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let own = mount("sysfs", "/sys", "sysfs", flags, None);
    for (from, to) in below {
        if own.is_ok() {
            mount_bind_recursive(&to, &from)?;
        }
        unmount(&to, UnmountFlags::DETACH)?;
    }
    match own {
        Err(Errno::PERM | Errno::ACCESS) => Ok(()),
        done => Ok(done?),
    }
}

async fn configure(host: &HostPlan, devices: &[Device]) -> Result<(), WiringError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(system("open a netlink socket"))?;
    let connection = tokio::spawn(connection);
    let configured = configure_by(&handle, host, devices).await;
    connection.abort();
    configured
}

async fn configure_by(handle: &Handle, host: &HostPlan, devices: &[Device]) -> Result<(), WiringError> {
    let up = handle.link().set(LinkUnspec::new_with_index(LOOPBACK).up().build());
    up.execute().await.map_err(netlink("bring up the loopback device"))?;
    let mut indexes = BTreeMap::new();
    let socket = socket().map_err(|error| system("open a socket")(error.into()))?;
    for Device { name, mtu, .. } in devices {
        let index = rustix::net::netdevice::name_to_index(&socket, name);
        indexes.insert(name, index.map_err(|error| system("find a device")(error.into()))?);
        let mtu = u32::try_from(mtu.get()).unwrap_or(u32::MAX).min(65_535);
        let device = LinkUnspec::new_with_name(name).mtu(mtu).txqueuelen(DEVICE_QUEUE).up();
        let up = handle.link().set(device.build());
        up.execute().await.map_err(netlink(format!("bring up {name}")))?;
    }
    for NodePlan { name, addresses: (v4, v6), .. } in &host.nodes {
        for (address, len) in [(IpAddr::V4(*v4), 32), (IpAddr::V6(*v6), 128)] {
            let mut add = handle.address().add(LOOPBACK, address, len);
            // Nobody else can have the address, and an unconfirmed one cannot be that of a route.
            add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
            add.execute().await.map_err(netlink(format!("give {name} the address {address}")))?;
        }
    }
    for (table, node) in (FIRST_TABLE..).zip(&host.nodes) {
        for route in &node.routes {
            let device = indexes.get(&route.device).copied().ok_or(io::ErrorKind::NotFound.into());
            let device = device.map_err(system("find a device"))?;
            let mut tables = vec![table];
            if host.is_best(node, route) {
                tables.push(MAIN);
            }
            for table in tables {
                let what = || format!("add a route from {} to {}", node.name, route.to.0);
                let add = RouteMessageBuilder::<Ipv4Addr>::new()
                    .destination_prefix(route.to.0, 32)
                    .output_interface(device)
                    .pref_source(node.addresses.0)
                    .table_id(table);
                handle.route().add(add.build()).execute().await.map_err(netlink(what()))?;
                let add = RouteMessageBuilder::<Ipv6Addr>::new()
                    .destination_prefix(route.to.1, 128)
                    .output_interface(device)
                    .pref_source(node.addresses.1)
                    .table_id(table);
                handle.route().add(add.build()).execute().await.map_err(netlink(what()))?;
            }
        }
        if host.nodes.len() > 1 {
            // What has the address of an interface leaves by that interface.
            let what = || format!("add the rules of {}", node.name);
            let rule = handle.rule().add().v4().source_prefix(node.addresses.0, 32).table_id(table);
            let rule = rule.action(RuleAction::ToTable).priority(table);
            rule.execute().await.map_err(netlink(what()))?;
            let rule = handle.rule().add().v6().source_prefix(node.addresses.1, 128).table_id(table);
            let rule = rule.action(RuleAction::ToTable).priority(table);
            rule.execute().await.map_err(netlink(what()))?;
        }
    }
    Ok(())
}

/// Returns a socket, for calls that need one of any kind.
fn socket() -> rustix::io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}
