//! Packets of the simulator.

use marcato_queue::{FlowKey, Packet as Queueable};
use marcato_units::{Bytes, Layer, Time};
use marcato_wire::{Ecn, QuicHeader, TcpFlags, TcpSegment, TcpTimestamps, Transport};

use crate::payload::PayloadId;
use crate::plt::LowPacket;
use crate::sojourn::Stamp;
use crate::tcp::{Flags, Segment};

/// End of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// End that opens the flow.
    Client,
    /// End that accepts the flow.
    Server,
}

impl Side {
    /// Returns the other end.
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

/// Identifier of a flow in a [`Network`](crate::Network).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

impl FlowId {
    /// Creates the identifier with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number, for use as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the flow key under which queues see the packets that `from` sends; on a datagram
    /// flow, on its first route.
    pub fn key(self, from: Side) -> FlowKey {
        key(self, from, 0)
    }
}

/// Returns the flow key of a route. Routes differ in ports or addresses, so a queue sees each as a
/// flow of its own.
fn key(flow: FlowId, from: Side, route: u8) -> FlowKey {
    FlowKey::new(u64::from(route) << 33 | u64::from(flow.0) << 1 | from.index() as u64)
}

/// Packet in virtual time: headers and lengths. Only a datagram between [hosts](crate::Host) has a
/// payload, which the network stores separately.
#[derive(Clone, Debug)]
pub struct Packet {
    pub(crate) flow: FlowId,
    /// End that sent it.
    pub(crate) from: Side,
    /// Index of its flow's route, on datagram flows. Of TCP, the number of connections that had the
    /// flow's slot before: queues see each as a flow of its own, as it has a port of its own.
    pub(crate) route: u8,
    /// Number of links of its route that it has passed.
    pub(crate) hop: u8,
    pub(crate) ecn: Ecn,
    pub(crate) layer: Layer,
    /// Place in a watched queue, for its sojourn time.
    pub(crate) stamp: Stamp,
    /// Length of the IP packet in bytes.
    pub(crate) len: u32,
    pub(crate) sent_at: Time,
    pub(crate) body: Body,
}

/// Contents of a packet.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Tcp(Segment),
    /// Packet of a TCP flow's low layer.
    Low(LowPacket),
    Udp,
    Datagram(Datagram),
}

/// UDP datagram between hosts, with real bytes.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) payload: PayloadId,
    /// Payload length in bytes.
    pub(crate) len: u32,
    /// QUIC header at the payload's beginning, for queues, which cannot read the payload.
    pub(crate) quic: Option<QuicHeader>,
    /// Index of the sender's address, in [`RouteEnd`](crate::route::RouteEnd).
    pub(crate) source: u32,
    /// Index of the receiver's address.
    pub(crate) destination: u32,
}

/// Length of an IPv4 header without options, in bytes.
pub(crate) const IPV4_HEADER: u32 = 20;
/// Length of an IPv6 header without extensions, in bytes.
pub(crate) const IPV6_HEADER: u32 = 40;
/// Length of a UDP header in bytes.
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
            // No header format is settled for packets of the low layer.
            Body::Low(_) => Transport::Opaque,
        }
    }
}

/// Returns the fields of a segment that an observer in the network can see.
fn observed(segment: &Segment) -> TcpSegment {
    let &Segment {
        seq, ack, payload, flags: Flags { syn, ack: acks, fin, rst, ece, cwr }, timestamps, ..
    } = segment;
    let bit = |set: bool, place: u8| u8::from(set) << place;
    // RFC 9293 §3.1, RFC 3168 §6.1. PSH stays 0: the receiver delivers all data at once anyway.
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
    fn datagram_support_adds_no_size_and_no_drop_glue_to_packets() {
        assert!(size_of::<Datagram>() < size_of::<Segment>());
        assert!(size_of::<LowPacket>() < size_of::<Segment>());
        assert_eq!(size_of::<Body>(), size_of::<Segment>());
        assert_eq!(size_of::<Packet>(), size_of::<Body>() + 24);
        assert!(!std::mem::needs_drop::<Packet>());
    }
}
