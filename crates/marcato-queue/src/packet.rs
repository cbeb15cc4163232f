//! View of a packet that queues have.

use marcato_units::{Bytes, Layer};
use marcato_wire::{Ecn, FlowTuple, Transport};

/// Opaque name of the flow that a packet belongs to.
///
/// Equal keys are one flow, and nothing else follows from the number. A simulator may count its
/// flows, and an emulator may hash a 5-tuple ([`of`](Self::of)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(u64);

impl FlowKey {
    /// Flow named `key`.
    pub const fn new(key: u64) -> Self {
        Self(key)
    }

    /// Flow of packets with this 5-tuple, under a `secret` that strangers should not know:
    /// [`FlowTuple::key`].
    pub fn of(tuple: &FlowTuple, secret: u64) -> Self {
        Self(tuple.key(secret))
    }

    /// Number of the name.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Number in which every bit depends on all bits of the name and of a secret.
    pub(crate) const fn mixed(self, secret: u64) -> u64 {
        let mixed = (self.0 ^ secret).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

impl From<u64> for FlowKey {
    fn from(key: u64) -> Self {
        Self(key)
    }
}

/// Packet as a [`Discipline`](crate::Discipline) sees it. The ECN code point is all that a
/// discipline may change.
///
/// While a packet is queued, [`len`](Self::len) and [`layer`](Self::layer) must not change: the
/// backlog is counted by them on the way in and again on the way out.
#[allow(clippy::len_without_is_empty, reason = "no packet on a link is empty: it has headers")]
pub trait Packet {
    /// Size of the packet at the queue, headers included.
    fn len(&self) -> Bytes;
    /// Flow of the packet.
    fn flow(&self) -> FlowKey;
    /// ECN code point.
    fn ecn(&self) -> Ecn;
    /// Sets the code point to [`Ecn::Ce`]. A discipline calls it only where [`Ecn::is_capable`].
    fn mark_ce(&mut self);
    /// Class in which the network serves the packet.
    fn layer(&self) -> Layer;
    /// Flow of the other direction, to whose packets this one may be the answer.
    ///
    /// By default this flow itself, which is right for packets without answers.
    fn reverse(&self) -> FlowKey {
        self.flow()
    }
    /// Clear-text fields of the transport header, for the [traps](crate::trap) of
    /// [`Crq`](crate::Crq).
    ///
    /// By default nothing: then the flow is not assessed.
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
