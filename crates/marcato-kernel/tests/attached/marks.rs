//! Marks of sockets, as packets on the wire show them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use marcato_kernel::{CodePoints, Dscp, MARKS_OBJECT, Mark, MarkCounter, MarkRule, Marking, Marks};
use marcato_testing::{Need, absent};
use marcato_units::Priority;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket, sockopt as options};

use super::net::{Net, Offloads, run};

/// Addresses of the server, one of each family.
const SERVER: [&str; 2] = ["10.9.8.2", "fd09::2"];
/// All of this process is in the group meanwhile, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Control group of the test, in a hierarchy that it mounts for itself.
pub(super) struct Marked {
    pub(super) net: Net,
    hierarchy: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
    wire: OwnedFd,
}

/// Packet that has reached the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    protocol: u8,
    ports: [u16; 2],
    /// DSCP and ECN.
    field: u8,
    /// Flags of TCP.
    flags: u8,
}

impl Marked {
    pub(super) fn new(name: &str) -> Option<Self> {
        Self::with(name, Offloads::Off)
    }

    pub(super) fn with(name: &str, offloads: Offloads) -> Option<Self> {
        if absent!(Need::Root, Need::Programs(MARKS_OBJECT)) {
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let net = Net::with(name, offloads)?;
        for (end, device, address) in [(0, "wan", "fd09::1"), (1, "eth0", SERVER[1])] {
            run("ip", &format!("-n {} addr add {address}/64 dev {device} nodad", net.names[end])).unwrap();
        }
        let hierarchy = tempfile::tempdir().unwrap();
        run("mount", &format!("-t cgroup2 cgroup2 {}", hierarchy.path().display())).unwrap();
        let wire = net.on(1, || {
            // ETH_P_ALL, in the order of the wire.
            let all = Protocol::from_raw(u32::from(3_u16.to_be()).try_into().unwrap());
            socket(AddressFamily::PACKET, SocketType::DGRAM, Some(all)).unwrap()
        });
        let timeout = Some(Duration::from_secs(10));
        // Whole transfers, until the test reads them.
        setsockopt(&wire, sockopt::RcvBufForce, &(16 << 20)).unwrap();
        options::set_socket_timeout(&wire, options::Timeout::Recv, timeout).unwrap();
        let marked = Self { net, hierarchy, _turn: turn, wire };
        std::fs::create_dir(marked.group()).unwrap();
        Some(marked)
    }

    pub(super) fn group(&self) -> PathBuf {
        self.hierarchy.path().join(format!("marcato-test.{}", std::process::id()))
    }

    fn attach(&self, marks: &Marks) -> Marking {
        Marking::attach(&self.group(), marks).unwrap()
    }

    /// Opens sockets of the router's namespace as a member of the group.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.inside_on(0, work)
    }

    /// Opens sockets of a namespace as a member of the group.
    pub(super) fn inside_on<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        let home = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let home = home.lines().find_map(|line| line.strip_prefix("0::/")).unwrap().to_owned();
        let enter = |group: PathBuf| std::fs::write(group.join("cgroup.procs"), "0").unwrap();
        enter(self.group());
        let done = self.net.on(end, work);
        enter(self.hierarchy.path().join(home));
        done
    }

    /// Opens the ports of the server to which datagrams are sent: a refusal would fail the sender's next call.
    fn open(&self, server: &str) -> Vec<UdpSocket> {
        let open = |port| self.net.on(1, || UdpSocket::bind(at(server, port)).unwrap());
        (9000..=9004).map(open).collect()
    }

    /// Waits for a packet at the server, and returns it from its IP header on.
    pub(super) fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0; 70_000];
        let Ok((_, length)) = recv(&self.wire, &mut packet[..], RecvFlags::empty()) else {
            panic!("no such packet in ten seconds");
        };
        packet.truncate(length);
        packet
    }

    /// Waits for a packet to a port of the server, or from it. Others are passed over.
    fn next(&self, mut fits: impl FnMut(&Seen) -> bool) -> Seen {
        loop {
            if let Some(seen) = read(&self.packet()).filter(&mut fits) {
                return seen;
            }
        }
    }

    /// Waits for the next packet to a port, and returns its code point.
    fn dscp_to(&self, port: u16) -> u8 {
        self.next(|seen| seen.ports[1] == port).field >> 2
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(self.group());
        let _ = run("umount", &self.hierarchy.path().display().to_string());
    }
}

/// Reads a packet from its IP header on.
fn read(packet: &[u8]) -> Option<Seen> {
    let (protocol, field, rest) = match packet.first()? >> 4 {
        4 => (packet[9], packet[1], &packet[usize::from(packet[0] & 15) * 4..]),
        6 => (packet[6], packet[0] << 4 | packet[1] >> 4, &packet[40..]),
        _ => return None,
    };
    // The checksum of an ICMP error would stand where a port does.
    if ![6, 17].contains(&protocol) {
        return None;
    }
    let port = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    let flags = if protocol == 6 { *rest.get(13)? } else { 0 };
    Some(Seen { protocol, ports: [port(0)?, port(2)?], field, flags })
}

fn mark(priority: Priority) -> Mark {
    Mark::of(priority, &CodePoints::default())
}

fn all(mark: Mark) -> Marks {
    Marks { rules: Vec::new(), standard: Some(mark) }
}

fn rule(mark: Mark) -> MarkRule {
    MarkRule { protocol: None, to: None, ports: 0..=u16::MAX, fwmark: None, mark }
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), port)
}

/// Sockets of UDP for the server of either family.
fn datagrams(marked: &Marked, server: &str) -> UdpSocket {
    let any = if server.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    marked.inside(|| UdpSocket::bind(any).unwrap())
}

const AF41: u8 = 34;
const SYN: u8 = 2;
const SYN_ACK: u8 = 18;

#[test]
fn connections_are_marked_from_their_first_packet() {
    let Some(marked) = Marked::new("tcp") else { return };
    let marking = marked.attach(&all(mark(Priority::P0)));
    for server in SERVER {
        let listener = marked.net.on(1, || TcpListener::bind(at(server, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        let mut stream = marked.inside(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        stream.write_all(&[7; 5000]).unwrap();
        drop(stream);
        listener.accept().unwrap().0.read_to_end(&mut Vec::new()).unwrap();
        // The SYN, every segment, and the FIN.
        let mut packets = 0;
        loop {
            let seen = marked.next(|seen| seen.ports.contains(&port));
            let outward = seen.ports[1] == port;
            assert_eq!(seen.field, if outward { AF41 << 2 } else { 0 }, "{server}: {seen:?}");
            assert!(packets > 0 || seen.flags == SYN, "{seen:?}");
            packets += 1;
            if outward && seen.flags & 1 == 1 {
                break;
            }
        }
        assert!(packets > 5, "{packets}");
    }
    let counter = |counter| marking.counter(counter).unwrap();
    assert_eq!(
        [MarkCounter::Set, MarkCounter::Replaced, MarkCounter::Failed, MarkCounter::Mapped].map(counter),
        [2, 0, 0, 0]
    );
}

#[test]
fn accepted_connections_are_marked_from_their_answer() {
    let Some(marked) = Marked::new("accept") else { return };
    let _marking = marked.attach(&all(mark(Priority::P4)));
    for own in ["10.9.8.1", "fd09::1"] {
        let listener = marked.inside(|| TcpListener::bind(at(own, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        let mut peer = marked.net.on(1, || TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"greeting").unwrap();
        peer.read_exact(&mut [0; 8]).unwrap();
        for flags in [SYN_ACK, 24] {
            let seen = marked.next(|seen| seen.ports[0] == port && seen.flags == flags);
            assert_eq!(seen.field >> 2, Dscp::LOWER_EFFORT.get(), "{own}: {seen:?}");
        }
        assert_eq!(nix::sys::socket::getsockopt(&stream, sockopt::Priority), Ok(1));
    }
}

#[test]
fn rules_know_accepted_connections_by_own_port_and_peer() {
    let Some(marked) = Marked::new("served") else { return };
    let own = ["10.9.8.1", "fd09::1"];
    let rules = |port: u16| {
        let to = |text: &str| Some(text.parse().unwrap());
        let served = |peer| MarkRule { ports: port..=port, to: to(peer), ..rule(mark(Priority::P0)) };
        Marks { rules: SERVER.map(served).to_vec(), standard: None }
    };
    for (address, port) in own.into_iter().zip([7001, 7002]) {
        let _marking = marked.attach(&rules(7001));
        let listener = marked.inside(|| TcpListener::bind(at(address, port)).unwrap());
        let mut peer = marked.net.on(1, || TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"greeting").unwrap();
        peer.read_exact(&mut [0; 8]).unwrap();
        // The answer to the SYN comes before the peer has a socket of its own.
        let [answer, greeting] =
            [SYN_ACK, 24].map(|flags| marked.next(|seen| seen.ports[0] == port && seen.flags == flags));
        let expected = if port == 7001 { AF41 } else { 0 };
        assert_eq!((answer.field >> 2, greeting.field >> 2), (0, expected), "{address}");
    }
}

#[test]
fn datagrams_are_marked_with_and_without_a_connection() {
    let Some(marked) = Marked::new("udp") else { return };
    let _marking = marked.attach(&all(mark(Priority::P1)));
    for server in SERVER {
        let _open = marked.open(server);
        let connected = datagrams(&marked, server);
        connected.connect(at(server, 9001)).unwrap();
        connected.send(b"one").unwrap();
        assert_eq!(marked.dscp_to(9001), 18, "{server}");
        let bound = datagrams(&marked, server);
        bound.send_to(b"one", at(server, 9002)).unwrap();
        assert_eq!(marked.dscp_to(9002), 18, "{server}");
        // Neither bound nor connected: some kernels have read the code point before.
        let family = if server.contains(':') { AddressFamily::INET6 } else { AddressFamily::INET };
        let plain: UdpSocket = marked.inside(|| socket(family, SocketType::DGRAM, None).unwrap()).into();
        for _ in 0..2 {
            plain.send_to(b"one", at(server, 9003)).unwrap();
        }
        let first = marked.dscp_to(9003);
        assert!([0, 18].contains(&first), "{server}: {first}");
        assert_eq!(marked.dscp_to(9003), 18, "{server}");
    }
}

#[test]
fn options_of_the_program_give_way_and_ecn_stays() {
    let Some(marked) = Marked::new("own") else { return };
    let marking = marked.attach(&all(mark(Priority::P0)));
    let _open = SERVER.map(|server| marked.open(server));
    let [v4, v6] = SERVER.map(|server| {
        let socket = datagrams(&marked, server);
        socket.connect(at(server, 9001)).unwrap();
        socket
    });
    // CS1 and ECT(0), as a program sets it that marks by itself.
    let own = 8 << 2 | 2;
    setsockopt(&v4, sockopt::Ipv4Tos, &own).unwrap();
    setsockopt(&v6, sockopt::Ipv6TClass, &own).unwrap();
    setsockopt(&v6, sockopt::Priority, &1).unwrap();
    for socket in [&v4, &v6] {
        socket.send(b"one").unwrap();
        assert_eq!(marked.next(|seen| seen.ports[1] == 9001).field, AF41 << 2 | 2);
        assert_eq!(nix::sys::socket::getsockopt(socket, sockopt::Priority), Ok(6));
    }
    // A socket of IPv6 may have both fields: the type of service is for packets of IPv4.
    setsockopt(&v6, sockopt::Ipv4Tos, &own).unwrap();
    assert_eq!(nix::sys::socket::getsockopt(&v6, sockopt::Ipv4Tos), Ok((AF41 << 2 | 2).into()));
    // The default of a traffic class has no ECN field.
    setsockopt(&v6, sockopt::Ipv6TClass, &-1).unwrap();
    v6.send(b"one").unwrap();
    assert_eq!(marked.next(|seen| seen.ports[1] == 9001).field, AF41 << 2);
    assert_eq!(marking.counter(MarkCounter::Replaced).unwrap(), 5);
    // Other options, also long ones, pass as they are given.
    setsockopt(&v4, sockopt::RcvBuf, &40_000).unwrap();
    assert_eq!(nix::sys::socket::getsockopt(&v4, sockopt::RcvBuf), Ok(80_000));
    assert_eq!(marking.counter(MarkCounter::Failed).unwrap(), 0);
}

#[test]
fn the_first_rule_that_fits_decides_and_others_are_unmarked() {
    let Some(marked) = Marked::new("rules") else { return };
    let [urgent, low] = [Priority::P0, Priority::P4].map(mark);
    let nqb = Mark::of_dscp("nqb".parse().unwrap());
    let rules = vec![
        MarkRule { fwmark: Some(7), ..rule(nqb) },
        MarkRule { ports: 9001..=9002, protocol: Some(marcato_kernel::Protocol::Udp), ..rule(urgent) },
        // The neighbouring blocks.
        MarkRule { to: Some("10.9.8.128/25".parse().unwrap()), ..rule(nqb) },
        MarkRule { to: Some("fd09::8/125".parse().unwrap()), ..rule(nqb) },
        MarkRule { to: Some("10.9.8.0/30".parse().unwrap()), ports: 9003..=9003, ..rule(low) },
        MarkRule { to: Some("fd09::2".parse().unwrap()), ports: 9003..=9003, ..rule(urgent) },
        MarkRule { protocol: Some(marcato_kernel::Protocol::Tcp), ..rule(low) },
    ];
    let _marking = marked.attach(&Marks { rules, standard: None });
    for (server, low_or_urgent) in SERVER.into_iter().zip([1, AF41]) {
        let _open = marked.open(server);
        for (port, dscp) in [(9000, 0), (9001, AF41), (9002, AF41), (9003, low_or_urgent), (9004, 0)] {
            let socket = datagrams(&marked, server);
            socket.connect(at(server, port)).unwrap();
            socket.send(b"one").unwrap();
            assert_eq!(marked.dscp_to(port), dscp, "{server} {port}");
        }
        // One socket, whose mark follows its destination, and goes.
        let socket = datagrams(&marked, server);
        for (port, dscp) in [(9001, AF41), (9000, 0), (9003, low_or_urgent), (9000, 0)] {
            socket.connect(at(server, port)).unwrap();
            socket.send(b"one").unwrap();
            assert_eq!(marked.dscp_to(port), dscp, "{server} {port}");
        }
        setsockopt(&socket, sockopt::Mark, &7).unwrap();
        socket.connect(at(server, 9001)).unwrap();
        socket.send(b"one").unwrap();
        assert_eq!(marked.dscp_to(9001), 45, "{server}");
        let listener = marked.net.on(1, || TcpListener::bind(at(server, 9001)).unwrap());
        let _stream = marked.inside(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        assert_eq!(marked.next(|seen| seen.flags == SYN).field >> 2, 1, "{server}");
    }
}

#[test]
fn sockets_of_ipv6_that_speak_ipv4_are_counted() {
    let Some(marked) = Marked::new("mapped") else { return };
    let marking = marked.attach(&all(mark(Priority::P0)));
    let listener = marked.net.on(1, || TcpListener::bind(at(SERVER[0], 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let mapped = at(&format!("::ffff:{}", SERVER[0]), port);
    let stream = marked.inside(|| TcpStream::connect(mapped).unwrap());
    assert_eq!(marked.dscp_to(port), 0, "the kernel refuses it");
    assert_eq!(nix::sys::socket::getsockopt(&stream, sockopt::Priority), Ok(6));
    assert_eq!(marking.counter(MarkCounter::Mapped).unwrap(), 1);
}

#[test]
fn sockets_of_others_and_after_the_end_have_no_mark() {
    let Some(marked) = Marked::new("others") else { return };
    let marking = marked.attach(&all(mark(Priority::P0)));
    let sent = |socket: &UdpSocket| {
        socket.send_to(b"one", at(SERVER[0], 9001)).unwrap();
        marked.dscp_to(9001)
    };
    let outside = marked.net.on(0, || UdpSocket::bind("0.0.0.0:0").unwrap());
    assert_eq!(sent(&outside), 0);
    let inside = datagrams(&marked, SERVER[0]);
    assert_eq!(sent(&inside), AF41);
    drop(marking);
    assert_eq!(sent(&inside), AF41, "a mark stays with its socket");
    assert_eq!(sent(&datagrams(&marked, SERVER[0])), 0);
}
