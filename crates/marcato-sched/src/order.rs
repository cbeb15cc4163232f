//! Stream order: whose bytes the next packet carries, where an engine asks stream by stream (CWR §III-C).
//!
//! A packet carries at most one stream frame, because the loss of a packet should hold up one stream only. What was
//! lost goes first, whatever its priority.

use alloc::collections::VecDeque;

use marcato_units::{Bytes, Priority};
use thiserror::Error;

/// The name of a stream within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The one stream frame of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Whose bytes.
    pub stream: StreamId,
    /// How many; at least one.
    pub len: Bytes,
    /// Whether they have been sent and lost before.
    pub retransmission: bool,
}

/// Why data was not accepted. Nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// There is nothing to send.
    #[error("a write needs at least one byte")]
    Empty,
    /// As much waits as may.
    #[error("{limit} writes wait already: write again after some have been sent")]
    TooMany {
        /// The most that may wait.
        limit: usize,
    },
}

/// Says which stream is next.
pub trait StreamOrder {
    /// `len` more bytes wait on this stream.
    ///
    /// # Errors
    ///
    /// If they are none, or as much waits as may.
    fn write(&mut self, stream: StreamId, priority: Priority, len: Bytes) -> Result<(), WriteError>;

    /// `len` bytes of this stream were lost and have to be sent again. How often that can be is bounded by what is in
    /// flight, so nothing is refused.
    fn lost(&mut self, stream: StreamId, len: Bytes);

    /// The frame of a packet that has room for `room` bytes of stream data.
    fn next(&mut self, room: Bytes) -> Option<Frame>;

    /// Forgets a stream that has been reset.
    fn reset(&mut self, stream: StreamId);

    /// Whether nothing waits.
    fn is_empty(&self) -> bool;
}

/// Bytes of one stream that wait.
#[derive(Clone, Copy, Debug)]
struct Entry {
    stream: StreamId,
    left: Bytes,
}

/// Entries, the oldest first. Neighbours of one stream are one.
#[derive(Clone, Debug, Default)]
struct Fifo(VecDeque<Entry>);

impl Fifo {
    /// Whether these bytes need no entry of their own.
    fn continues(&self, stream: StreamId) -> bool {
        self.0.back().is_some_and(|entry| entry.stream == stream)
    }

    fn push(&mut self, stream: StreamId, len: Bytes) {
        match self.0.back_mut() {
            Some(entry) if entry.stream == stream => entry.left += len,
            _ => self.0.push_back(Entry { stream, left: len }),
        }
    }

    /// Takes up to `room` bytes from the oldest entry; whether that was all of it.
    fn take(&mut self, room: Bytes) -> Option<(StreamId, Bytes, bool)> {
        let entry = self.0.front_mut()?;
        let len = entry.left.min(room);
        entry.left -= len;
        let (stream, finished) = (entry.stream, entry.left.is_zero());
        if finished {
            self.0.pop_front();
        }
        Some((stream, len, finished))
    }

    fn take_frame(&mut self, room: Bytes, retransmission: bool) -> Option<Frame> {
        self.take(room).map(|(stream, len, _)| Frame { stream, len, retransmission })
    }

    /// Removes a stream; how many entries it had.
    fn remove(&mut self, stream: StreamId) -> usize {
        let before = self.0.len();
        self.0.retain(|entry| entry.stream != stream);
        before - self.0.len()
    }
}

/// What was lost first; then by priority, and within a level first in, first out (CWR §III-C, Fig. 2b). The paper knows
/// one bit of priority; here are all levels. Strict priority starves what matters less, as the paper says.
#[derive(Clone, Debug)]
pub struct PriorityFifo {
    lost: Fifo,
    levels: [Fifo; Priority::COUNT],
    waiting: usize,
    limit: usize,
}

impl PriorityFifo {
    /// One in which up to `limit` writes wait.
    pub fn new(limit: usize) -> Self {
        Self { lost: Fifo::default(), levels: Default::default(), waiting: 0, limit }
    }
}

impl StreamOrder for PriorityFifo {
    fn write(&mut self, stream: StreamId, priority: Priority, len: Bytes) -> Result<(), WriteError> {
        if len.is_zero() {
            return Err(WriteError::Empty);
        }
        let level = &mut self.levels[priority.index()];
        if !level.continues(stream) {
            if self.waiting >= self.limit {
                return Err(WriteError::TooMany { limit: self.limit });
            }
            self.waiting += 1;
        }
        level.push(stream, len);
        Ok(())
    }

    fn lost(&mut self, stream: StreamId, len: Bytes) {
        if !len.is_zero() {
            self.lost.push(stream, len);
        }
    }

    fn next(&mut self, room: Bytes) -> Option<Frame> {
        if room.is_zero() {
            return None;
        }
        if let Some(frame) = self.lost.take_frame(room, true) {
            return Some(frame);
        }
        let (stream, len, finished) = self.levels.iter_mut().find_map(|level| level.take(room))?;
        self.waiting -= usize::from(finished);
        Some(Frame { stream, len, retransmission: false })
    }

    fn reset(&mut self, stream: StreamId) {
        self.lost.remove(stream);
        self.waiting -= self.levels.iter_mut().map(|level| level.remove(stream)).sum::<usize>();
    }

    fn is_empty(&self) -> bool {
        self.waiting == 0 && self.lost.0.is_empty()
    }
}

/// What was lost first; then one packet of each stream in turn, whatever its priority: what MP-QUIC does by default (CWR
/// §III-C, Fig. 2a).
#[derive(Clone, Debug)]
pub struct RoundRobin {
    lost: Fifo,
    turns: VecDeque<Entry>,
    limit: usize,
}

impl RoundRobin {
    /// One in which up to `limit` streams wait.
    pub fn new(limit: usize) -> Self {
        Self { lost: Fifo::default(), turns: VecDeque::new(), limit }
    }
}

impl StreamOrder for RoundRobin {
    /// In time linear in the streams that wait: a stream has one turn, however often it writes.
    fn write(&mut self, stream: StreamId, _: Priority, len: Bytes) -> Result<(), WriteError> {
        if len.is_zero() {
            return Err(WriteError::Empty);
        }
        if let Some(entry) = self.turns.iter_mut().find(|entry| entry.stream == stream) {
            entry.left += len;
            return Ok(());
        }
        if self.turns.len() >= self.limit {
            return Err(WriteError::TooMany { limit: self.limit });
        }
        self.turns.push_back(Entry { stream, left: len });
        Ok(())
    }

    fn lost(&mut self, stream: StreamId, len: Bytes) {
        if !len.is_zero() {
            self.lost.push(stream, len);
        }
    }

    fn next(&mut self, room: Bytes) -> Option<Frame> {
        if room.is_zero() {
            return None;
        }
        if let Some(frame) = self.lost.take_frame(room, true) {
            return Some(frame);
        }
        let Entry { stream, left } = self.turns.pop_front()?;
        let len = left.min(room);
        if left > len {
            self.turns.push_back(Entry { stream, left: left - len });
        }
        Some(Frame { stream, len, retransmission: false })
    }

    fn reset(&mut self, stream: StreamId) {
        self.lost.remove(stream);
        self.turns.retain(|entry| entry.stream != stream);
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.lost.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const PACKET: Bytes = Bytes::kb(1);
    const BACKGROUND: Priority = Priority::P4;
    const URGENT: Priority = Priority::P0;

    fn order(mut streams: impl StreamOrder) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(frame) = streams.next(PACKET) {
            order.push(frame.stream.0);
        }
        assert!(streams.is_empty());
        order
    }

    /// Two streams of background data, three packets each, and an urgent one of two packets that comes last: the two
    /// orders that Fig. 2 of CWR compares.
    fn figure_2(streams: &mut impl StreamOrder) {
        streams.write(StreamId(1), BACKGROUND, Bytes::kb(3)).unwrap();
        streams.write(StreamId(2), BACKGROUND, Bytes::kb(3)).unwrap();
        streams.write(StreamId(3), URGENT, Bytes::kb(2)).unwrap();
    }

    #[test]
    fn round_robin_takes_a_packet_of_each_stream_in_turn() {
        let mut streams = RoundRobin::new(8);
        figure_2(&mut streams);
        assert_eq!(order(streams), [1, 2, 3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn priority_fifo_takes_the_urgent_stream_first_and_then_one_after_the_other() {
        let mut streams = PriorityFifo::new(8);
        figure_2(&mut streams);
        assert_eq!(order(streams), [3, 3, 1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn what_was_lost_goes_before_everything() {
        fn check(mut streams: impl StreamOrder) {
            figure_2(&mut streams);
            streams.lost(StreamId(2), Bytes::new(500));
            streams.lost(StreamId(1), Bytes::new(1500));
            let frames: Vec<_> = core::iter::from_fn(|| streams.next(PACKET)).take(4).collect();
            let lost =
                |stream, len| Frame { stream: StreamId(stream), len: Bytes::new(len), retransmission: true };
            assert_eq!(frames[..3], [lost(2, 500), lost(1, 1000), lost(1, 500)]);
            assert!(!frames[3].retransmission);
        }
        check(PriorityFifo::new(8));
        check(RoundRobin::new(8));
    }

    #[test]
    fn a_frame_is_of_one_stream_although_another_would_fit_beside_it() {
        let mut streams = PriorityFifo::new(8);
        streams.write(StreamId(1), URGENT, Bytes::new(10)).unwrap();
        streams.write(StreamId(2), URGENT, Bytes::new(10)).unwrap();
        assert_eq!(streams.next(PACKET).map(|frame| (frame.stream.0, frame.len.get())), Some((1, 10)));
        assert_eq!(streams.next(Bytes::ZERO), None);
        assert_eq!(streams.next(PACKET).map(|frame| (frame.stream.0, frame.len.get())), Some((2, 10)));
    }

    #[test]
    fn what_waits_is_bounded() {
        fn check(mut streams: impl StreamOrder) {
            assert_eq!(streams.write(StreamId(1), URGENT, Bytes::ZERO), Err(WriteError::Empty));
            streams.write(StreamId(1), BACKGROUND, PACKET).unwrap();
            streams.write(StreamId(1), BACKGROUND, PACKET).unwrap();
            streams.write(StreamId(2), URGENT, PACKET).unwrap();
            let full = Err(WriteError::TooMany { limit: 2 });
            assert_eq!(streams.write(StreamId(3), URGENT, PACKET), full);
            streams.reset(StreamId(1));
            streams.write(StreamId(3), URGENT, PACKET).unwrap();
            assert_eq!(order(streams), [2, 3]);
        }
        check(PriorityFifo::new(2));
        check(RoundRobin::new(2));
    }
}
