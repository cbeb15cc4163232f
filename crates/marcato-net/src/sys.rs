//! System calls without a safe interface: sending and receiving datagrams with their TOS octet and
//! in segments, the choice among sockets of one address, and TCP's measurements. All unsafe code of
//! this crate is here.
//!
//! Crates for the sockets of QUIC do not fit: with each datagram they set the TOS octet to its two ECN bits, and so
//! erase the DSCP that marks the low layer (RFC 8622).
//!
//! Linux only. Elsewhere datagrams travel one by one and unmarked, and TCP reports no measurements.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
use marcato_units::{Bytes, Duration, Rate};
use marcato_wire::Dscp;

/// Result of one receiving call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) from: SocketAddr,
    /// Address that they were sent to, if the socket is bound to no particular one.
    pub(crate) to: Option<IpAddr>,
    /// Bytes of all datagrams together.
    pub(crate) len: usize,
    /// Length of every datagram except the last.
    pub(crate) segment: usize,
    /// TOS octet or traffic class.
    pub(crate) tos: u8,
}

impl Incoming {
    /// Returns whether the same call could have received `next`, which arrived afterwards.
    pub(crate) fn is_continued_by(&self, next: &Self) -> bool {
        let alike =
            (self.from, self.to, self.tos, self.segment) == (next.from, next.to, next.tos, next.segment);
        // A datagram shorter than the segment size ends its call.
        let whole = |incoming: &Self| incoming.len > 0 && incoming.len.is_multiple_of(incoming.segment);
        alike && whole(self) && next.len > 0
    }
}

/// Instruction of classic BPF, as the kernel lays it out (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    /// Instructions to skip if a condition holds, and if not.
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) value: u32,
}

/// Measurements of a TCP connection by Linux (`TCP_INFO`). Fields that an older kernel lacks are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Smoothed round-trip time; zero before the first measurement.
    pub srtt: Duration,
    /// Least round-trip time; the most that 32 bits of microseconds hold before the first measurement.
    pub min_rtt: Duration,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Congestion window.
    pub cwnd_segments: u32,
    /// Slow-start threshold; at least 2^31 - 1 if there is none.
    pub ssthresh_segments: u32,
    /// Segments sent and not acknowledged.
    pub in_flight_segments: u32,
    /// Those of them that have arrived out of order (selectively acknowledged).
    pub sacked_segments: u32,
    /// Those of them that count as lost.
    pub lost_segments: u32,
    /// Retransmissions that are on their way.
    pub resent_segments: u32,
    /// Retransmissions so far.
    pub retransmitted_segments: u32,
    /// Expiries of the retransmission timer so far. Linux 6.7 and later.
    pub timeouts: u16,
    /// Segments sent, including those without data.
    pub segments_out: u32,
    /// Segments received, including those without data.
    pub segments_in: u32,
    /// Data segments sent, including retransmissions; `bytes_out` are their bytes.
    pub data_segments_out: u32,
    /// Bytes of the data segments sent.
    pub bytes_out: Bytes,
    /// Bytes never sent yet.
    pub unsent: Bytes,
    /// Latest delivery rate; zero if there is none yet.
    pub delivery_rate: Rate,
    /// Pacing rate; `None` if the connection is not paced.
    pub pacing_rate: Option<Rate>,
    /// Bytes acknowledged by the peer.
    pub acked: Bytes,
    /// Time since the peer's last segment.
    pub silence: Duration,
    /// Keep-alive and zero-window probes sent since then.
    pub unanswered_probes: u8,
}

#[cfg(target_os = "linux")]
impl TcpInfo {
    /// Takes the measurements of a socket.
    ///
    /// # Errors
    ///
    /// If it is no TCP socket.
    pub fn of(socket: &impl std::os::fd::AsFd) -> io::Result<Self> {
        tcp_info(&socket2::SockRef::from(socket))
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{
    bound_backoff, limit_backlog, mark_tcp, poll_writable, prepare_udp, recv, send, share_port, steer,
    tcp_info, unsent,
};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{
    bound_backoff, limit_backlog, mark_tcp, poll_writable, prepare_udp, recv, send, share_port, steer,
    tcp_info, unsent,
};

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::{MaybeUninit, size_of};
    use std::os::fd::AsRawFd;

    use libc::{c_int, c_void};
    use socket2::{SockAddr, SockRef};

    use super::*;

    /// Buffer for control messages, suitably aligned: TOS as an integer (24 bytes), a segment size
    /// (24), and a source address (32 for IPv4, 40 for IPv6).
    #[repr(align(8))]
    struct Control([u8; 128]);

    impl Control {
        const fn new() -> Self {
            Self([0; 128])
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the sizes of C's own structures fit C's own types")]
    const fn socklen(len: usize) -> libc::socklen_t {
        len as libc::socklen_t
    }

    fn set_int(socket: &SockRef<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        // SAFETY: `value` lives through the call, and its length is given with it.
        let done = unsafe {
            let value: *const c_void = (&raw const value).cast();
            libc::setsockopt(socket.as_raw_fd(), level, name, value, socklen(size_of::<c_int>()))
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Prepares a UDP socket. Received datagrams carry their TOS octet and may arrive several of
    /// one size at once; sent ones are not fragmented. `unbound` ones carry the address that they
    /// were sent to. Returns whether datagrams can be sent in segments.
    pub(crate) fn prepare_udp(socket: &SockRef<'_>, v6: bool, unbound: bool) -> io::Result<bool> {
        let (level, option) = match v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            false => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        };
        set_int(socket, level, option, c_int::from(unbound))?;
        if v6 {
            set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        } else {
            set_int(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            set_int(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        }
        // Kernels before 5.0 have no GRO, and before 4.18 no GSO. Without them, datagrams travel
        // one at a time.
        let _ = set_int(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        Ok(set_int(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok())
    }

    /// Lets further sockets of the same user be bound to a socket's address.
    pub(crate) fn share_port(socket: &SockRef<'_>) -> io::Result<()> {
        socket.set_reuse_port(true)
    }

    /// Lets a program choose among the sockets that share an address. It sees the UDP payload, and
    /// returns the place of a socket in the order in which they were bound.
    pub(crate) fn steer(socket: &SockRef<'_>, program: &[Instruction]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
        // SAFETY: the pointer and the length are those of a slice that lives through the call, whose
        // elements have the layout of `sock_filter`. The kernel only reads them.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                (&raw const program).cast(),
                socklen(size_of::<libc::sock_fprog>()),
            )
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Limits the bytes that the kernel holds of a UDP socket's data. It takes more once it holds
    /// less than half.
    pub(crate) fn limit_backlog(socket: &SockRef<'_>, limit: Bytes) {
        // The kernel doubles the value for its own overhead. That of a batch is a fifth, that of a
        // single packet as much as the packet. If it refuses, the limit stays as it was.
        let limit = usize::try_from(limit.get() * 2 / 3).unwrap_or(usize::MAX);
        let _ = socket.set_send_buffer_size(limit.min(1 << 30));
    }

    /// Sends `payload`, in datagrams of `segment` bytes if that is given, from the address `from`
    /// or the socket's own.
    pub(crate) fn send(
        socket: &SockRef<'_>,
        from: Option<IpAddr>,
        to: SocketAddr,
        payload: &[u8],
        segment: Option<u16>,
        tos: u8,
    ) -> io::Result<usize> {
        let name = SockAddr::from(to);
        let mut iov = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
        let mut control = Control::new();
        // SAFETY: all zeros is a valid `msghdr`: null pointers and lengths of zero.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len();
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control.0).cast();
        header.msg_controllen = control.0.len() as _;
        let (level, kind) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        // SAFETY: `control` is aligned for `cmsghdr` and holds all three messages: CMSG_SPACE of an
        // int is 24, of a u16 24, of the longer source address 40, of 128. The macros stay within
        // `msg_controllen`, and each pointer that they give is checked before it is written to.
        // Each message's data is written with its own type, unaligned.
        let used = unsafe {
            let mut at = libc::CMSG_FIRSTHDR(&raw const header);
            if at.is_null() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            put(at, level, kind, c_int::from(tos));
            let mut used = libc::CMSG_SPACE(socklen(size_of::<c_int>()));
            if let Some(segment) = segment {
                at = libc::CMSG_NXTHDR(&raw const header, at);
                if at.is_null() {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                put(at, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
                used += libc::CMSG_SPACE(socklen(size_of::<u16>()));
            }
            if let Some(from) = from {
                at = libc::CMSG_NXTHDR(&raw const header, at);
                if at.is_null() {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                match from {
                    IpAddr::V4(from) => {
                        let source = libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
                        let none = libc::in_addr { s_addr: 0 };
                        let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: none };
                        put(at, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
                        used += libc::CMSG_SPACE(socklen(size_of::<libc::in_pktinfo>()));
                    }
                    IpAddr::V6(from) => {
                        let source = libc::in6_addr { s6_addr: from.octets() };
                        let info = libc::in6_pktinfo { ipi6_addr: source, ipi6_ifindex: 0 };
                        put(at, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
                        used += libc::CMSG_SPACE(socklen(size_of::<libc::in6_pktinfo>()));
                    }
                }
            }
            used
        };
        header.msg_controllen = used as _;
        // SAFETY: all that `header` points to (the name, the payload, the control messages) lives
        // through the call, and the kernel only reads it.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Writes a control message.
    ///
    /// # Safety
    ///
    /// From `at` on, CMSG_SPACE of `T` bytes can be written.
    unsafe fn put<T>(at: *mut libc::cmsghdr, level: c_int, kind: c_int, value: T) {
        // SAFETY: as the caller has promised; `cmsghdr` is aligned because the buffer is and all
        // messages have lengths that are multiples of its alignment.
        unsafe {
            (*at).cmsg_level = level;
            (*at).cmsg_type = kind;
            (*at).cmsg_len = libc::CMSG_LEN(socklen(size_of::<T>())) as _;
            std::ptr::write_unaligned(libc::CMSG_DATA(at).cast(), value);
        }
    }

    /// Receives a datagram, or several of one size from one peer, and appends them to `buf`. Bytes
    /// beyond its room are lost.
    pub(crate) fn recv(socket: &SockRef<'_>, buf: &mut BytesMut) -> io::Result<Incoming> {
        let room = buf.spare_capacity_mut();
        let mut iov = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let mut control = Control::new();
        // SAFETY: all zeros is a valid `msghdr`.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control.0).cast();
        header.msg_controllen = control.0.len() as _;
        // SAFETY: the kernel writes no more than the lengths given into the name, the buffer and
        // the control messages, all of which live through the call; and it sets `msg_namelen` to
        // what it has written of the name.
        let received = unsafe {
            SockAddr::try_init(|name, len| {
                header.msg_name = name.cast();
                header.msg_namelen = *len;
                let received = libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0);
                *len = header.msg_namelen;
                usize::try_from(received).map_err(|_| io::Error::last_os_error())
            })
        };
        let (len, from) = received?;
        let from = from.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        let filled = buf.len() + len;
        // SAFETY: the kernel has written `len` bytes where the buffer's were to end, into room that
        // the buffer has.
        unsafe { buf.set_len(filled) };
        let (mut tos, mut segment, mut to) = (0, len, None);
        // SAFETY: `header` describes control messages that the kernel has written into `control`,
        // which still lives. The macros stay within `msg_controllen`. Data is read unaligned, as
        // much as the message says that there is.
        unsafe {
            let mut at = libc::CMSG_FIRSTHDR(&raw const header);
            while let Some(message) = at.as_ref() {
                let data = libc::CMSG_DATA(at);
                #[allow(clippy::unnecessary_cast, reason = "not of the same type in every C library")]
                let has = (message.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                match (message.cmsg_level, message.cmsg_type) {
                    // IPv4 gives an octet, IPv6 an integer.
                    (libc::IPPROTO_IP, libc::IP_TOS) if has >= 1 => tos = data.read(),
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if has >= size_of::<c_int>() => {
                        tos = u8::try_from(data.cast::<c_int>().read_unaligned()).unwrap_or(0);
                    }
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) if has >= size_of::<libc::in_pktinfo>() => {
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        to = Some(IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()));
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if has >= size_of::<libc::in6_pktinfo>() => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        to = Some(IpAddr::from(info.ipi6_addr.s6_addr));
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) if has >= size_of::<c_int>() => {
                        segment = usize::try_from(data.cast::<c_int>().read_unaligned()).unwrap_or(len);
                    }
                    _ => {}
                }
                at = libc::CMSG_NXTHDR(&raw const header, at);
            }
        }
        Ok(Incoming { from, to, len, segment: segment.clamp(1, len.max(1)), tos })
    }

    /// Returns the bytes that the kernel holds of a socket's data (`SIOCOUTQ`): over UDP those that have
    /// not left, its own overhead included; over TCP those that have not been acknowledged.
    pub(crate) fn unsent(socket: &SockRef<'_>) -> io::Result<Bytes> {
        let mut queued: c_int = 0;
        // SAFETY: the kernel writes one `int`, which lives through the call.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Bytes::new(u64::try_from(queued).unwrap_or(0)))
    }

    /// Marks what a TCP connection sends from now on: with a code point, and with the priority of its packets in the queues
    /// of this host. The kernel keeps its own ECN bits.
    pub(crate) fn mark_tcp(socket: &SockRef<'_>, dscp: Dscp, priority: u8) -> io::Result<()> {
        let peer = socket.peer_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        let field = c_int::from(dscp.get() << 2);
        // A socket of IPv6 may speak IPv4, and then sends with the field of IPv4.
        match peer.ip().to_canonical() {
            IpAddr::V4(_) => set_int(socket, libc::IPPROTO_IP, libc::IP_TOS, field)?,
            IpAddr::V6(_) => set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, field)?,
        }
        // After IP_TOS, which sets a priority of its own. ip(7).
        set_int(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, c_int::from(priority))
    }

    /// Returns whether a TCP socket has less unsent than its low-water mark. If not, the call also
    /// asks the kernel for a notification. Without that, a socket never seen full would not be
    /// reported as writable again.
    pub(crate) fn poll_writable(socket: &SockRef<'_>) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one `pollfd`, which lives through the call; it does not wait.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
        }
        Ok(ready > 0)
    }

    /// Returns the measurements of a TCP connection. Offsets are those of `struct tcp_info` in
    /// Linux's `include/uapi/linux/tcp.h`, which only grows at its end; fields that an older kernel
    /// lacks are zero.
    pub(crate) fn tcp_info(socket: &SockRef<'_>) -> io::Result<TcpInfo> {
        let mut raw = [0u8; 256];
        let mut len = socklen(raw.len());
        // SAFETY: the kernel writes at most `len` bytes, which is how long `raw` is.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut raw).cast(),
                &raw mut len,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        let word = |at: usize| {
            raw.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_ne_bytes)
        };
        let long = |at: usize| {
            raw.get(at..at + 8).and_then(|long| long.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        Ok(TcpInfo {
            mss: Bytes::from(word(16)),
            min_rtt: Duration::from_micros(u64::from(word(148))),
            rto: Duration::from_micros(u64::from(word(8))),
            ssthresh_segments: word(76),
            in_flight_segments: word(24),
            sacked_segments: word(28),
            lost_segments: word(32),
            resent_segments: word(36),
            timeouts: raw.get(240..242).and_then(|half| half.try_into().ok()).map_or(0, u16::from_ne_bytes),
            segments_out: word(136),
            segments_in: word(140),
            pacing_rate: Some(long(104))
                .filter(|rate| *rate < u64::MAX)
                .map(|rate| Rate::from_bps(rate.saturating_mul(8))),
            srtt: Duration::from_micros(u64::from(word(68))),
            cwnd_segments: word(80),
            retransmitted_segments: word(100),
            data_segments_out: word(156),
            bytes_out: Bytes::new(long(200)),
            unsent: Bytes::from(word(144)),
            delivery_rate: Rate::from_bps(long(160).saturating_mul(8)),
            acked: Bytes::new(long(120)),
            // Segments with data and segments with acknowledgements have separate times.
            silence: Duration::from_millis(u64::from(word(52).min(word(56)))),
            unanswered_probes: raw[3],
        })
    }

    /// Bounds the time between retransmissions, and between zero-window probes, of a TCP
    /// connection (`TCP_RTO_MAX_MS`). The kernel accepts 1 s to 120 s; kernels before 6.15 have no
    /// such option.
    pub(crate) fn bound_backoff(socket: &SockRef<'_>, most: Duration) -> io::Result<()> {
        // From `include/uapi/linux/tcp.h`; the crate `libc` does not have it.
        const TCP_RTO_MAX_MS: c_int = 44;
        let most = c_int::try_from(most.as_millis()).unwrap_or(c_int::MAX).clamp(1000, 120_000);
        set_int(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, most)
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use socket2::{SockAddr, SockRef};

    use super::*;

    pub(crate) fn prepare_udp(_: &SockRef<'_>, _: bool, _: bool) -> io::Result<bool> {
        Ok(false)
    }

    pub(crate) fn limit_backlog(_: &SockRef<'_>, _: Bytes) {}

    pub(crate) fn share_port(socket: &SockRef<'_>) -> io::Result<()> {
        #[cfg(unix)]
        return socket.set_reuse_port(true);
        #[cfg(not(unix))]
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn steer(_: &SockRef<'_>, _: &[Instruction]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn send(
        socket: &SockRef<'_>,
        _: Option<IpAddr>,
        to: SocketAddr,
        payload: &[u8],
        _: Option<u16>,
        _: u8,
    ) -> io::Result<usize> {
        socket.send_to(payload, &SockAddr::from(to))
    }

    pub(crate) fn recv(socket: &SockRef<'_>, buf: &mut BytesMut) -> io::Result<Incoming> {
        let from = socket.peek_sender()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        // One task alone reads the socket, so this is the datagram of the sender found above.
        let filled = buf.len();
        buf.resize(buf.capacity(), 0);
        let read = io::Read::read(&mut &**socket, &mut buf[filled..]);
        buf.truncate(filled + *read.as_ref().unwrap_or(&0));
        let len = read?;
        Ok(Incoming { from, to: None, len, segment: len.max(1), tos: 0 })
    }

    pub(crate) fn unsent(_: &SockRef<'_>) -> io::Result<Bytes> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn mark_tcp(_: &SockRef<'_>, _: Dscp, _: u8) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn poll_writable(_: &SockRef<'_>) -> io::Result<bool> {
        Ok(true)
    }

    pub(crate) fn tcp_info(_: &SockRef<'_>) -> io::Result<TcpInfo> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn bound_backoff(_: &SockRef<'_>, _: Duration) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::net::UdpSocket;

    fn pair(local: &str) -> (UdpSocket, UdpSocket) {
        let bind = || {
            let socket = UdpSocket::bind(local).unwrap();
            assert!(prepare_udp(&SockRef::from(&socket), local.starts_with('['), false).unwrap());
            socket
        };
        (bind(), bind())
    }

    #[test]
    fn a_datagram_keeps_its_mark_over_both_kinds_of_ip() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (a, b) = pair(local);
            // DSCP LE with ECT(0).
            let tos = 1 << 2 | 0b10;
            send(&SockRef::from(&a), None, b.local_addr().unwrap(), b"hello", None, tos).unwrap();
            let mut buf = BytesMut::with_capacity(100);
            let came = recv(&SockRef::from(&b), &mut buf).unwrap();
            assert_eq!(came, Incoming { from: a.local_addr().unwrap(), to: None, len: 5, segment: 5, tos });
            assert_eq!(buf, b"hello"[..]);
        }
    }

    #[test]
    fn segments_arrive_as_datagrams_of_their_size() {
        let (a, b) = pair("127.0.0.1:0");
        let payload: Vec<u8> = (0..=255).cycle().take(5 * 1000 + 300).collect();
        send(&SockRef::from(&a), None, b.local_addr().unwrap(), &payload, Some(1000), 0).unwrap();
        let mut all = BytesMut::with_capacity(65_536);
        while all.len() < payload.len() {
            let came = recv(&SockRef::from(&b), &mut all).unwrap();
            assert!(came.segment == 1000 || came.len == came.segment, "{came:?}");
        }
        assert_eq!(all, payload);
    }

    #[test]
    fn only_datagrams_of_equal_length_peer_and_tos_are_coalesced() {
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let first = Incoming { from, to: None, len: 2400, segment: 1200, tos: 2 };
        let next = Incoming { len: 1200, ..first };
        assert!(first.is_continued_by(&next));
        // The last datagram of a call may be shorter; alone in its call, it gives its own length as
        // the segment size.
        assert!(first.is_continued_by(&Incoming { len: 1300, ..next }));
        assert!(!Incoming { len: 2500, ..first }.is_continued_by(&next));
        for other in [
            Incoming { segment: 500, len: 500, ..next },
            Incoming { tos: 3, ..next },
            Incoming { from: SocketAddr::from(([127, 0, 0, 1], 2)), ..next },
            Incoming { len: 0, segment: 1, ..next },
            Incoming { to: Some([127, 0, 0, 2].into()), ..next },
        ] {
            assert!(!first.is_continued_by(&other), "{other:?}");
        }
    }

    #[test]
    fn a_socket_that_was_not_used_holds_nothing() {
        let (a, _) = pair("127.0.0.1:0");
        assert_eq!(unsent(&SockRef::from(&a)).unwrap(), Bytes::ZERO);
    }

    #[test]
    fn a_tcp_connection_reports_its_state() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = tcp_info(&SockRef::from(&stream)).unwrap();
        assert!(info.mss >= Bytes::new(536) && info.mss <= Bytes::new(65_535), "{info:?}");
        assert!(info.cwnd_segments >= 1 && info.cwnd_segments < 1000, "{info:?}");
        assert_eq!(info.unsent, Bytes::ZERO);
        assert!(info.srtt < Duration::from_secs(1));
        assert!(poll_writable(&SockRef::from(&stream)).unwrap());
    }
}
