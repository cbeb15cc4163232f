//! What travels over links.

use marcato_queue::{FlowKey, Packet as Queueable};
use marcato_units::{Bytes, Layer, Time};
use marcato_wire::{Ecn, QuicHeader, TcpFlags, TcpSegment, TcpTimestamps, Transport};

use crate::payload::PayloadId;
use crate::plt::LowPacket;
use crate::sojourn::Stamp;
use crate::tcp::{Flags, Segment};

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that opened the flow.
    Client,
    /// The end that was opened to.
    Server,
}

impl Side {
    /// The other end.
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Names a flow of a [`Network`](crate::Network).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

impl FlowId {
    /// The name by which queues know what `from` sends on the flow; of a datagram flow, on its first route.
    pub fn key(self, from: Side) -> FlowKey {
        key(self, from, 0)
    }
}

/// The routes of a flow differ in their ports or addresses, so to a queue they are flows of their own.
fn key(flow: FlowId, from: Side, route: u8) -> FlowKey {
    FlowKey::new(u64::from(route) << 33 | u64::from(flow.0) << 1 | from.index() as u64)
}

/// A packet in virtual time: its headers and lengths. Only a datagram between [hosts](crate::Host) has a payload, which
/// the network keeps for it; of all others nobody needs it.
#[derive(Clone, Debug)]
pub struct Packet {
    pub(crate) flow: FlowId,
    /// The end that sent it.
    pub(crate) from: Side,
    /// The route of its flow that it takes; all but datagram flows have one, number 0.
    pub(crate) route: u8,
    /// How many links of its route lie behind it.
    pub(crate) hop: u8,
    pub(crate) ecn: Ecn,
    pub(crate) layer: Layer,
    /// Since when it waits in a queue that is watched.
    pub(crate) stamp: Stamp,
    /// Length of the IP packet.
    pub(crate) len: u32,
    pub(crate) sent_at: Time,
    pub(crate) body: Body,
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Tcp(Segment),
    /// Of the low layer of a TCP flow.
    Low(LowPacket),
    Udp,
    Datagram(Datagram),
}

/// A UDP datagram between hosts: real bytes.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) payload: PayloadId,
    /// Bytes of it.
    pub(crate) len: u32,
    /// How it begins, read as QUIC: queues may look at that, and cannot at the payload.
    pub(crate) quic: Option<QuicHeader>,
    /// Which of its sender's addresses it came from: an index into [`RouteEnd`](crate::route::RouteEnd).
    pub(crate) source: u32,
    /// Which of its receiver's addresses it was sent to.
    pub(crate) destination: u32,
}

/// Bytes of an IPv4 header without options.
pub(crate) const IPV4_HEADER: u32 = 20;
/// Bytes of an IPv6 header without extensions.
pub(crate) const IPV6_HEADER: u32 = 40;
/// Bytes of a UDP header.
pub(crate) const UDP_HEADER: u32 = 8;

impl Queueable for Packet {
    fn len(&self) -> Bytes {
        Bytes::from(self.len)
    }

    fn flow(&self) -> FlowKey {
        key(self.flow, self.from, self.route)
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    fn layer(&self) -> Layer {
        self.layer
    }

    fn reverse(&self) -> FlowKey {
        key(self.flow, self.from.peer(), self.route)
    }

    fn transport(&self) -> Transport {
        match &self.body {
            Body::Tcp(segment) => Transport::Tcp(observed(segment)),
            Body::Udp => Transport::Udp { payload: self.len - IPV4_HEADER - UDP_HEADER, quic: None },
            Body::Datagram(datagram) => Transport::Udp { payload: datagram.len, quic: datagram.quic },
            // No format of a low packet's header is settled.
            Body::Low(_) => Transport::Opaque,
        }
    }
}

/// What an observer may know of a segment.
fn observed(segment: &Segment) -> TcpSegment {
    let &Segment {
        seq, ack, payload, flags: Flags { syn, ack: acks, fin, rst, ece, cwr }, timestamps, ..
    } = segment;
    let bit = |set: bool, place: u8| u8::from(set) << place;
    // RFC 9293 §3.1, RFC 3168 §6.1; all that is sent is taken at once, so nothing is pushed.
    let flags = bit(fin, 0) | bit(syn, 1) | bit(rst, 2) | bit(acks, 4) | bit(ece, 6) | bit(cwr, 7);
    TcpSegment {
        seq,
        ack,
        flags: TcpFlags::from_bits(flags),
        payload,
        timestamps: timestamps.map(|(value, echo)| TcpTimestamps { value, echo }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_datagrams_need_makes_no_tcp_packet_bigger_or_dearer_to_move() {
        assert!(size_of::<Datagram>() < size_of::<Segment>());
        assert!(size_of::<LowPacket>() < size_of::<Segment>());
        assert_eq!(size_of::<Body>(), size_of::<Segment>());
        assert_eq!(size_of::<Packet>(), size_of::<Body>() + 24);
        assert!(!std::mem::needs_drop::<Packet>());
    }
}
