//! Packets with what an observer of a queue notes about them.

use marcato_units::{Bytes, Layer};
use marcato_wire::{Ecn, Transport};

use crate::{FlowKey, Packet};

/// Packet that carries a note through a queue, and that tells whether this queue marked it.
///
/// A discipline that holds tagged packets decides as if it held the packets themselves. [`Crq`]
/// notes the flow's place and cycle, so that a drop or a mark counts against the right cycle.
///
/// ```
/// use marcato_queue::{Discipline, DropTail, DropTailConfig, FlowKey, Packet, Tagged};
/// use marcato_units::{Bytes, Layer, Time};
/// use marcato_wire::Ecn;
///
/// struct Ping;
///
/// impl Packet for Ping {
///     fn len(&self) -> Bytes {
///         Bytes::new(84)
///     }
///     fn flow(&self) -> FlowKey {
///         FlowKey::new(1)
///     }
///     fn ecn(&self) -> Ecn {
///         Ecn::NotEct
///     }
///     fn mark_ce(&mut self) {}
///     fn layer(&self) -> Layer {
///         Layer::High
///     }
/// }
///
/// // A tag that tells the time of arrival, and so the sojourn time at departure.
/// let mut queue = DropTail::new(DropTailConfig::default()).expect("the default admits packets");
/// queue.enqueue(Time::from_millis(3), Tagged::new(Ping, Time::from_millis(3)));
/// let out = queue.dequeue(Time::from_millis(8)).expect("one packet waits");
/// assert_eq!((out.tag, out.marked), (Time::from_millis(3), false));
/// ```
///
/// [`Crq`]: crate::Crq
#[derive(Clone, Debug)]
pub struct Tagged<P, T> {
    /// Packet.
    pub packet: P,
    /// Note of the observer.
    pub tag: T,
    /// Set once the queue that holds the packet marked it.
    pub marked: bool,
}

impl<P, T> Tagged<P, T> {
    /// Packet with its note, not marked yet.
    pub const fn new(packet: P, tag: T) -> Self {
        Self { packet, tag, marked: false }
    }
}

impl<P: Packet, T> Packet for Tagged<P, T> {
    fn len(&self) -> Bytes {
        self.packet.len()
    }
    fn flow(&self) -> FlowKey {
        self.packet.flow()
    }
    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }
    fn mark_ce(&mut self) {
        self.marked = true;
        self.packet.mark_ce();
    }
    fn layer(&self) -> Layer {
        self.packet.layer()
    }
    fn reverse(&self) -> FlowKey {
        self.packet.reverse()
    }
    fn transport(&self) -> Transport {
        self.packet.transport()
    }
}
