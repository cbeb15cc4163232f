//! UDP socket of a lane.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::BytesMut;
use marcato_units::{Bytes, Layer};
use marcato_wire::{Dscp, Ecn};
use socket2::{Domain, Protocol, SockRef, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::sys::{self, Incoming, Instruction};

/// Source and destination of datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    /// Source; `None` for the socket's own address, or the system's choice.
    pub(super) from: Option<IpAddr>,
    pub(super) to: SocketAddr,
}

/// Returns whether the error of a batch may mean that the system or the device cannot segment: no
/// checksum offload (EIO), or an option that it does not know.
fn may_refuse_segments(error: &io::Error) -> bool {
    let codes = [libc::EIO, libc::EINVAL, libc::EOPNOTSUPP, libc::ENOPROTOOPT];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Socket of the lanes at one local address.
#[derive(Debug)]
pub(super) struct Socket {
    udp: UdpSocket,
    pub(super) addr: SocketAddr,
    pub(super) layer: Layer,
    /// Set if the system splits a buffer into datagrams (GSO).
    segments: AtomicBool,
}

impl Socket {
    /// Binds a socket to an address that no other has.
    pub(super) fn bind(addr: SocketAddr, layer: Layer, buffer: Bytes) -> io::Result<Self> {
        Self::bound(addr, layer, buffer, false)
    }

    /// Lets further sockets share the address. The first of them was bound to it alone: two sockets
    /// that were to share from the start would also share with those of another endpoint.
    pub(super) fn share(&self) -> io::Result<()> {
        sys::share_port(&SockRef::from(&self.udp))
    }

    /// Binds a further socket to the address of one that shares it.
    pub(super) fn another(&self, buffer: Bytes) -> io::Result<Self> {
        Self::bound(self.addr, self.layer, buffer, true)
    }

    /// Lets the kernel choose among the sockets that share the address by the owners of datagrams.
    pub(super) fn steer(&self, program: &[Instruction]) -> io::Result<()> {
        sys::steer(&SockRef::from(&self.udp), program)
    }

    fn bound(addr: SocketAddr, layer: Layer, buffer: Bytes, shares: bool) -> io::Result<Self> {
        let v6 = addr.is_ipv6();
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = socket2::Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if v6 {
            // A lane has one address family, and so do its marks.
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        if shares {
            sys::share_port(&SockRef::from(&socket))?;
        }
        socket.bind(&addr.into())?;
        // The system grants less if its limit is lower.
        let size = usize::try_from(buffer.get()).unwrap_or(usize::MAX);
        let _ = socket.set_recv_buffer_size(size);
        let _ = socket.set_send_buffer_size(size);
        let unbound = addr.ip().is_unspecified();
        let segments = AtomicBool::new(sys::prepare_udp(&SockRef::from(&socket), v6, unbound)?);
        let udp = UdpSocket::from_std(socket.into())?;
        let addr = udp.local_addr()?;
        Ok(Self { udp, addr, layer, segments })
    }

    /// Returns the TOS octet or traffic class of packets that leave here. Those of the low layer are of lower effort,
    /// for all data: RFC 8622 §3.
    const fn tos(&self, dscp: Dscp, ecn: Ecn) -> u8 {
        let dscp = match self.layer {
            Layer::High => dscp,
            Layer::Low => Dscp::LOWER_EFFORT,
        };
        dscp.get() << 2 | ecn.to_bits()
    }

    /// Sends datagrams of `segment` bytes, except the last, from `payload`. Returns the number of
    /// bytes that the system accepted, which are whole datagrams.
    pub(super) fn send(
        &self,
        route: Route,
        payload: &[u8],
        segment: usize,
        dscp: Dscp,
        ecn: Ecn,
    ) -> io::Result<usize> {
        let Route { from, to } = route;
        let tos = self.tos(dscp, ecn);
        let mut sent = 0;
        // Set once the system has refused this batch as a whole.
        let mut singly = false;
        while sent < payload.len() {
            let rest = &payload[sent..];
            let whole = !singly && self.segments.load(Relaxed) && rest.len() > segment;
            let many = u16::try_from(segment).ok().filter(|_| whole);
            let part = if many.is_some() { rest } else { &rest[..segment.clamp(1, rest.len())] };
            let call = || sys::send(&SockRef::from(&self.udp), from, to, part, many, tos);
            match self.udp.try_io(Interest::WRITABLE, call) {
                Ok(_) => {
                    sent += part.len();
                    // One by one they pass, so the device or the kernel cannot segment.
                    if singly {
                        self.segments.store(false, Relaxed);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent > 0 => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) if many.is_some() && may_refuse_segments(&error) => singly = true,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Receives into `buf`, as far as it has room; `None` if nothing has arrived.
    pub(super) fn recv(&self, buf: &mut BytesMut) -> io::Result<Option<Incoming>> {
        let call = || sys::recv(&SockRef::from(&self.udp), buf);
        match self.udp.try_io(Interest::READABLE, call) {
            Ok(incoming) => Ok(Some(incoming)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the bytes that it holds and has not sent; 0 if the system does not report them.
    pub(super) fn unsent(&self) -> Bytes {
        sys::unsent(&SockRef::from(&self.udp)).unwrap_or_default()
    }

    /// Limits the bytes that the system holds of what was sent here.
    pub(super) fn limit_backlog(&self, limit: Bytes) {
        sys::limit_backlog(&SockRef::from(&self.udp), limit);
    }

    pub(super) fn poll_recv_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.udp.poll_recv_ready(context).map(drop)
    }

    pub(super) fn poll_send_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.udp.poll_send_ready(context).map(drop)
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn socket(layer: Layer) -> Socket {
        Socket::bind("127.0.0.1:0".parse().unwrap(), layer, Bytes::kb(100)).unwrap()
    }

    fn route(to: SocketAddr) -> Route {
        Route { from: None, to }
    }

    async fn received(socket: &Socket, buf: &mut BytesMut) -> Incoming {
        loop {
            poll_fn(|context| socket.poll_recv_ready(context)).await;
            if let Some(incoming) = socket.recv(buf).unwrap() {
                return incoming;
            }
        }
    }

    #[tokio::test]
    async fn each_layer_has_its_mark_and_ecn_stays() {
        let named = |name: &str| name.parse::<Dscp>().unwrap();
        for (layer, dscp, seen) in
            [(Layer::High, "cs0", 0), (Layer::High, "af41", 34), (Layer::Low, "af41", 1)]
        {
            let dscp = named(dscp);
            let (from, to) = (socket(layer), socket(Layer::High));
            for ecn in [Ecn::NotEct, Ecn::Ect0] {
                poll_fn(|context| from.poll_send_ready(context)).await;
                from.send(route(to.addr), b"packet", 1200, dscp, ecn).unwrap();
                let incoming = received(&to, &mut BytesMut::with_capacity(100)).await;
                assert_eq!((incoming.tos >> 2, Ecn::from_bits(incoming.tos)), (seen, ecn));
            }
        }
    }

    /// The system forbids broadcasts here (EACCES), which says nothing about segments.
    #[tokio::test]
    async fn an_error_about_the_address_keeps_segmentation() {
        let from = Socket::bind("0.0.0.0:0".parse().unwrap(), Layer::High, Bytes::kb(100)).unwrap();
        assert!(from.segments.load(Relaxed), "this kernel cannot segment");
        poll_fn(|context| from.poll_send_ready(context)).await;
        let to = route("255.255.255.255:9".parse().unwrap());
        let error = from.send(to, &[7; 2500], 1000, Dscp::DEFAULT, Ecn::NotEct).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(from.segments.load(Relaxed));
    }

    #[tokio::test]
    async fn a_wildcard_socket_answers_from_the_address_asked() {
        for (any, asked) in [("0.0.0.0:0", "127.0.0.77"), ("[::]:0", "::1")] {
            let server = Socket::bind(any.parse().unwrap(), Layer::High, Bytes::kb(100)).unwrap();
            let client = std::net::UdpSocket::bind(any).unwrap();
            client.send_to(b"ask", (asked, server.addr.port())).unwrap();
            let mut buf = BytesMut::with_capacity(100);
            let incoming = received(&server, &mut buf).await;
            assert_eq!(incoming.to, Some(asked.parse().unwrap()));
            poll_fn(|context| server.poll_send_ready(context)).await;
            let back = Route { from: incoming.to, to: incoming.from };
            server.send(back, b"answer", 1200, Dscp::DEFAULT, Ecn::NotEct).unwrap();
            let (_, from) = client.recv_from(&mut [0; 100]).unwrap();
            assert_eq!(from, SocketAddr::new(asked.parse().unwrap(), server.addr.port()));
        }
    }

    #[tokio::test]
    async fn without_segmentation_datagrams_leave_one_by_one() {
        let (from, to) = (socket(Layer::High), socket(Layer::High));
        from.segments.store(false, Relaxed);
        poll_fn(|context| from.poll_send_ready(context)).await;
        assert_eq!(from.send(route(to.addr), &[7; 2500], 1000, Dscp::DEFAULT, Ecn::NotEct).unwrap(), 2500);
        let mut buf = BytesMut::with_capacity(65_536);
        while buf.len() < 2500 {
            received(&to, &mut buf).await;
        }
        assert_eq!(buf[..], [7; 2500]);
    }
}
