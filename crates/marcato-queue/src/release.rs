//! Packets of a queue that another replaces.

use marcato_units::Time;

use crate::{Discipline, Packet};

/// Packet that leaves a queue which another replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released<P> {
    /// The queue released it.
    Packet(P),
    /// The queue dropped it instead.
    Dropped(P),
}

/// Empties a queue at `now`, in the order in which it releases its packets. Those that it holds back for a
/// while, such as one half of a split link does, are among them.
pub fn release<P: Packet>(
    now: Time,
    queue: &mut (impl Discipline<P> + ?Sized),
    each: &mut dyn FnMut(Released<P>),
) {
    let mut at = now;
    while !queue.backlog().is_empty() {
        if let Some(packet) = queue.dequeue_with(at, &mut |packet| each(Released::Dropped(packet))) {
            each(Released::Packet(packet));
        } else if let Some(ready) = queue.next_ready(at).filter(|&ready| ready > at) {
            at = ready;
        } else {
            break;
        }
    }
}
