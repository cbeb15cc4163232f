//! What a queue may know about a packet.

use marcato_units::{Bytes, Layer};
use marcato_wire::{Ecn, FlowTuple, Transport};

/// Names the flow that a packet belongs to. Opaque: equal keys are one flow and nothing else follows from the
/// number, so that a simulator may count its flows and an emulator may hash a 5-tuple
/// ([`of`](Self::of)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(u64);

impl FlowKey {
    /// The flow named `key`.
    pub const fn new(key: u64) -> Self {
        Self(key)
    }

    /// The flow of packets with this 5-tuple, under a `secret` that strangers should not know: [`FlowTuple::key`].
    pub fn of(tuple: &FlowTuple, secret: u64) -> Self {
        Self(tuple.key(secret))
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
    /// The flow that runs the other way, to whose packets this one may be the answer. By default this flow itself, which
    /// is right for packets that nobody answers.
    fn reverse(&self) -> FlowKey {
        self.flow()
    }
    /// What its transport's header says in the clear, to the [traps](crate::trap) of [`Crq`](crate::Crq). By default
    /// nothing: then the flow is not assessed.
    fn transport(&self) -> Transport {
        Transport::Opaque
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_the_flow_of_that_number() {
        assert_eq!(FlowKey::from(7), FlowKey::new(7));
        assert_ne!(FlowKey::from(7), FlowKey::from(8));
    }
}
