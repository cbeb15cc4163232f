//! Counters of a queue.

use core::ops::{Add, AddAssign};

use marcato_units::Bytes;

use crate::Packet;

/// Number of packets and of the bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    /// Number of packets.
    pub packets: u64,
    /// Sum of their lengths.
    pub bytes: Bytes,
}

impl Tally {
    /// Counts one packet of `len` bytes.
    pub fn count(&mut self, len: Bytes) {
        self.packets += 1;
        self.bytes += len;
    }
}

impl Add for Tally {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Counters of a queue since its creation.
///
/// At any time `enqueued = dequeued + dropped + backlog`, in packets and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Packets given to [`enqueue`](crate::Discipline::enqueue), refused ones included.
    pub enqueued: Tally,
    /// Packets returned by [`dequeue`](crate::Discipline::dequeue).
    pub dequeued: Tally,
    /// Packets dropped for any reason: refused, pushed out, or dropped by the AQM on the way out.
    pub dropped: Tally,
    /// Dropped packets for which there was no room: refused, or pushed out for others. The AQM
    /// dropped the rest.
    pub overflowed: Tally,
    /// Packets marked CE by the AQM instead of dropped, those included that arrived with the mark.
    ///
    /// They are also counted as dequeued, once they have left.
    pub marked: Tally,
}

impl Counters {
    /// Counts a packet for which there was no room.
    pub fn overflow<P: Packet>(&mut self, packet: &P) {
        self.dropped.count(packet.len());
        self.overflowed.count(packet.len());
    }
}

impl Add for Counters {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            enqueued: self.enqueued + other.enqueued,
            dequeued: self.dequeued + other.dequeued,
            dropped: self.dropped + other.dropped,
            overflowed: self.overflowed + other.overflowed,
            marked: self.marked + other.marked,
        }
    }
}

/// Packets that wait in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Backlog {
    /// Number of packets that wait.
    pub packets: u64,
    /// Sum of their lengths.
    pub bytes: Bytes,
}

impl Backlog {
    /// Returns whether the queue is empty.
    pub const fn is_empty(self) -> bool {
        self.packets == 0
    }

    /// Counts a packet of `len` bytes in.
    pub fn push(&mut self, len: Bytes) {
        self.packets += 1;
        self.bytes += len;
    }

    /// Counts a packet of `len` bytes out. It must have been counted in.
    pub fn pop(&mut self, len: Bytes) {
        self.packets -= 1;
        self.bytes -= len;
    }
}

impl Add for Backlog {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_added_in_place_holds_both() {
        let one = Tally { packets: 1, bytes: Bytes::new(100) };
        let two = Tally { packets: 2, bytes: Bytes::new(3000) };
        let mut sum = one;
        sum += two;
        assert_eq!(sum, Tally { packets: 3, bytes: Bytes::new(3100) });
        assert_eq!(sum, one + two);
    }
}
