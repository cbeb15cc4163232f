//! UDP socket of a route, whose datagrams have an ECN field.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use marcato_units::Layer;
use marcato_wire::Ecn;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg};
use socket2::SockRef;

/// DSCP LE, at its place in the TOS octet. RFC 8622.
pub(crate) const fn tos(layer: Layer) -> u32 {
    match layer {
        Layer::High => 0,
        Layer::Low => 0b0000_0100,
    }
}

/// UDP socket of a route.
pub(crate) struct RouteSocket {
    udp: UdpSocket,
    /// TOS octet without the ECN field.
    tos: u8,
}

/// Datagram that has arrived.
pub(crate) struct Arrived {
    pub(crate) len: usize,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) ecn: Ecn,
}

impl RouteSocket {
    /// Takes a socket over IPv4 that does not block.
    pub(crate) fn new(udp: UdpSocket, layer: Layer) -> io::Result<Self> {
        SockRef::from(&udp).set_recv_tos_v4(true)?;
        Ok(Self { udp, tos: u8::try_from(tos(layer)).unwrap_or(0) })
    }

    /// Sends a datagram with this ECN field.
    pub(crate) fn send(&self, payload: &[u8], to: SocketAddr, ecn: Ecn) -> io::Result<()> {
        let SocketAddr::V4(to) = to else { return Err(io::ErrorKind::Unsupported.into()) };
        let (tos, to) = (self.tos | ecn.to_bits(), SockaddrIn::from(to));
        let mark = [ControlMessage::Ipv4Tos(&tos)];
        sendmsg(self.udp.as_raw_fd(), &[IoSlice::new(payload)], &mark, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }

    /// Receives a datagram into `buffer`.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Arrived> {
        let mut control = cmsg_space!(i32);
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.udp.as_raw_fd();
        let message = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut control), MsgFlags::empty())?;
        let mark = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
            _ => None,
        });
        let from = message.address.map(|from| SocketAddr::V4(SocketAddrV4::new(from.ip(), from.port())));
        Ok(Arrived { len: message.bytes, from, ecn: Ecn::from_bits(mark.unwrap_or(0)) })
    }
}

impl AsFd for RouteSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_have_the_mark_of_their_layer_and_any_ecn_field() {
        let open = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let udp = open();
        let to = udp.local_addr().unwrap();
        let receiver = RouteSocket::new(udp, Layer::High).unwrap();
        for (layer, dscp) in [(Layer::High, 0), (Layer::Low, 1)] {
            let sender = RouteSocket::new(open(), layer).unwrap();
            assert_eq!(u32::from(sender.tos), dscp << 2);
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                sender.send(b"packet", to, ecn).unwrap();
                let mut buffer = [0; 100];
                let arrived = receiver.receive(&mut buffer).unwrap();
                assert_eq!((&buffer[..arrived.len], arrived.ecn), (&b"packet"[..], ecn));
                assert_eq!(arrived.from, Some(sender.udp.local_addr().unwrap()));
            }
        }
    }
}
