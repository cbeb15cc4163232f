//! What travels over links.

use marcato_queue::{FlowKey, Packet as Queueable};
use marcato_units::{Bytes, Layer, Time};
use marcato_wire::Ecn;

use crate::tcp::Segment;

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

/// A packet in virtual time: its headers and lengths; nobody needs its payload.
#[derive(Clone, Debug)]
pub struct Packet {
    pub(crate) flow: FlowId,
    /// The end that sent it.
    pub(crate) from: Side,
    /// How many links of its route lie behind it.
    pub(crate) hop: u8,
    pub(crate) ecn: Ecn,
    pub(crate) layer: Layer,
    /// Length of the IP packet.
    pub(crate) len: u32,
    pub(crate) sent_at: Time,
    pub(crate) body: Body,
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Tcp(Segment),
    Udp,
}

/// Bytes of an IPv4 header without options.
pub(crate) const IPV4_HEADER: u32 = 20;
/// Bytes of a UDP header.
pub(crate) const UDP_HEADER: u32 = 8;

impl Queueable for Packet {
    fn len(&self) -> Bytes {
        Bytes::from(self.len)
    }

    fn flow(&self) -> FlowKey {
        FlowKey::new(u64::from(self.flow.0) << 1 | self.from.index() as u64)
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
}
