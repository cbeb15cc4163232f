//! Packet type of emulated links between UDP sockets.

use marcato_queue::{FlowKey, Packet};
use marcato_units::{Bytes, Layer, Time};
use marcato_wire::Ecn;

use crate::link::{LinkPacket, invert};

/// Headers of IPv4 and UDP (RFC 791 §3.1, RFC 768).
const HEADERS: Bytes = Bytes::new(20 + 8);

/// UDP datagram on an emulated link. It counts with the 28 bytes of an IPv4 and a UDP header,
/// whether it came by IPv4 or IPv6.
///
/// An ordinary socket does not report ECN or DSCP. The datagram therefore counts as not
/// ECN-capable, so queues drop it where they might have marked it. It is of the high layer, unless
/// it came by a [`Port`](crate::Port) of the low one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    flow: FlowKey,
    layer: Layer,
    entered: Time,
    payload: Box<[u8]>,
}

impl Datagram {
    /// Creates a datagram of this flow, of the high layer.
    pub fn new(flow: FlowKey, payload: impl Into<Box<[u8]>>) -> Self {
        Self { flow, layer: Layer::High, entered: Time::ZERO, payload: payload.into() }
    }

    /// Sets the layer.
    #[must_use]
    pub fn in_layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }

    /// Payload of the datagram.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

impl Packet for Datagram {
    fn len(&self) -> Bytes {
        HEADERS + Bytes::new(self.payload.len() as u64)
    }

    fn flow(&self) -> FlowKey {
        self.flow
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn mark_ce(&mut self) {}

    fn layer(&self) -> Layer {
        self.layer
    }
}

impl LinkPacket for Datagram {
    fn enter(&mut self, now: Time) {
        self.entered = now;
    }

    fn entered(&self) -> Time {
        self.entered
    }

    fn corrupt(&mut self, draw: u64) {
        invert(&mut self.payload, draw);
    }
}
