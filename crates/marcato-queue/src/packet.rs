//! What a queue may know about a packet.

use marcato_units::{Bytes, Layer};
use marcato_wire::Ecn;

/// Names the flow that a packet belongs to. Opaque: equal keys are one flow and nothing else follows from the
/// number, so that a simulator may count its flows and an emulator may hash a 5-tuple.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(u64);

impl FlowKey {
    /// The flow named `key`.
    pub const fn new(key: u64) -> Self {
        Self(key)
    }

    /// The name's number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for FlowKey {
    fn from(key: u64) -> Self {
        Self(key)
    }
}

/// What a [`Discipline`](crate::Discipline) may know about a packet, and the one thing it may change.
///
/// While a packet is queued, [`len`](Self::len) and [`layer`](Self::layer) must not change: the backlog is
/// counted by them on the way in and again on the way out.
#[allow(clippy::len_without_is_empty, reason = "no packet on a link is empty: it has headers")]
pub trait Packet {
    /// The packet's size where the queue stands, headers included.
    fn len(&self) -> Bytes;
    /// The flow that it belongs to.
    fn flow(&self) -> FlowKey;
    /// Its ECN code point.
    fn ecn(&self) -> Ecn;
    /// Sets the code point to [`Ecn::Ce`]. A discipline calls it only where [`Ecn::is_capable`].
    fn mark_ce(&mut self);
    /// The class in which the network serves it.
    fn layer(&self) -> Layer;
}
