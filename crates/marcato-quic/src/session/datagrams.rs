//! Unreliable messages that have arrived and are not yet read.

use std::collections::VecDeque;

use bytes::Bytes as Payload;
use marcato_units::Priority;

/// Unreliable message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Priority given by the sender.
    pub priority: Priority,
    /// Content.
    pub body: Payload,
}

/// Bytes that an unreliable message counts in addition to its body against the limit of unread
/// ones.
const COST: usize = 64;

/// Unread unreliable messages, oldest first, with a bound on their bytes.
#[derive(Debug)]
pub(super) struct Datagrams {
    queue: VecDeque<Datagram>,
    /// Bytes that the queue counts against `most`.
    bytes: usize,
    most: usize,
    received: u64,
    dropped: u64,
}

impl Datagrams {
    /// Creates an empty queue of at most `most` bytes, counted with [`COST`] each.
    pub(super) const fn new(most: usize) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, most, received: 0, dropped: 0 }
    }

    /// Adds a message. The oldest are dropped and counted if the bound is exceeded.
    pub(super) fn push(&mut self, datagram: Datagram) {
        self.received += 1;
        self.bytes += datagram.body.len() + COST;
        self.queue.push_back(datagram);
        while self.bytes > self.most && self.pop().is_some() {
            self.dropped += 1;
        }
    }

    /// Takes the oldest message.
    pub(super) fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.bytes -= datagram.body.len() + COST;
        Some(datagram)
    }

    /// Returns whether no message is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number of messages received so far.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Number of messages dropped so far because they were not read in time.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(len: usize) -> Datagram {
        Datagram { priority: Priority::P0, body: vec![0; len].into() }
    }

    fn lengths(datagrams: &mut Datagrams) -> Vec<usize> {
        std::iter::from_fn(|| datagrams.pop()).map(|datagram| datagram.body.len()).collect()
    }

    #[test]
    fn messages_are_read_in_the_order_of_arrival() {
        let mut datagrams = Datagrams::new(1000);
        for len in [3, 1, 2] {
            datagrams.push(datagram(len));
        }
        assert_eq!(lengths(&mut datagrams), [3, 1, 2]);
        assert!(datagrams.is_empty());
        assert_eq!((datagrams.received(), datagrams.dropped()), (3, 0));
    }

    #[test]
    fn the_oldest_give_way_beyond_the_bound() {
        let mut datagrams = Datagrams::new(2 * (10 + COST));
        for len in [10, 9, 10, 8] {
            datagrams.push(datagram(len));
        }
        assert_eq!((datagrams.received(), datagrams.dropped()), (4, 2));
        assert_eq!(lengths(&mut datagrams), [10, 8]);
    }

    #[test]
    fn reading_makes_room_again() {
        let mut datagrams = Datagrams::new(10 + COST);
        for len in [10, 10] {
            datagrams.push(datagram(len));
            assert_eq!(lengths(&mut datagrams), [len]);
        }
        assert_eq!(datagrams.dropped(), 0);
    }

    #[test]
    fn a_message_above_the_bound_is_dropped_itself() {
        let mut datagrams = Datagrams::new(10 + COST);
        datagrams.push(datagram(11));
        assert!(datagrams.is_empty());
        assert_eq!((datagrams.received(), datagrams.dropped()), (1, 1));
    }
}
