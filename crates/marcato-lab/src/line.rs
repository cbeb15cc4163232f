//! Line of a link: the packets in flight.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use marcato_units::Time;

/// Packets in flight, by the times at which they arrive.
pub(crate) enum Line<P> {
    /// Packets arrive in the order in which they left: O(1) per operation.
    InOrder(VecDeque<(Time, P)>),
    /// Packets may overtake one another: O(log n) for n packets in flight. The number counts the
    /// packets so far.
    Reordered(BinaryHeap<Reverse<InFlight<P>>>, u64),
}

/// Packet that may be overtaken. Those that arrive together do so in the order in which they left.
pub(crate) struct InFlight<P> {
    at: Time,
    number: u64,
    packet: P,
}

impl<P> PartialEq for InFlight<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for InFlight<P> {}

impl<P> PartialOrd for InFlight<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for InFlight<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<P> Line<P> {
    /// Creates an empty line.
    pub(crate) fn new(reorder: bool) -> Self {
        if reorder { Self::Reordered(BinaryHeap::new(), 0) } else { Self::InOrder(VecDeque::new()) }
    }

    /// Lets packets overtake one another from now on.
    pub(crate) fn allow_reordering(&mut self) {
        let Self::InOrder(line) = self else { return };
        let line = std::mem::take(line);
        let count = line.len() as u64;
        let numbered = (0..).zip(line);
        let heap = numbered.map(|(number, (at, packet))| Reverse(InFlight { at, number, packet }));
        *self = Self::Reordered(heap.collect(), count);
    }

    /// Returns the last arrival if packets arrive in order and some are in flight.
    pub(crate) fn last_in_order(&self) -> Option<Time> {
        match self {
            Self::InOrder(line) => line.back().map(|(at, _)| *at),
            Self::Reordered(..) => None,
        }
    }

    /// Returns the number of packets in flight.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::InOrder(line) => line.len(),
            Self::Reordered(line, _) => line.len(),
        }
    }

    /// Returns the time of the next arrival.
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        match self {
            Self::InOrder(line) => line.front().map(|(at, _)| *at),
            Self::Reordered(line, _) => line.peek().map(|Reverse(first)| first.at),
        }
    }

    /// Adds a packet that arrives at this time.
    pub(crate) fn push(&mut self, at: Time, packet: P) {
        match self {
            Self::InOrder(line) => line.push_back((at, packet)),
            Self::Reordered(line, count) => {
                line.push(Reverse(InFlight { at, number: *count, packet }));
                *count += 1;
            }
        }
    }

    /// Removes the packet that arrives next.
    pub(crate) fn pop(&mut self) -> Option<P> {
        match self {
            Self::InOrder(line) => line.pop_front().map(|(_, packet)| packet),
            Self::Reordered(line, _) => line.pop().map(|Reverse(first)| first.packet),
        }
    }
}
