//! Stream order: chooses the stream of the next packet where an engine works stream by stream (CWR
//! §III-C).
//!
//! A packet carries data of one stream only, so that the loss of a packet holds up one stream. The
//! other order of the paper, by priority and then first in, first out (Fig. 2b), is a
//! [`Conductor`](crate::Conductor) with [`Debt::strict`](crate::Debt::strict).

use alloc::collections::{BTreeMap, VecDeque};

use marcato_units::Bytes;
use thiserror::Error;

/// Identifier of a stream within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The one stream frame of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Stream that the bytes belong to.
    pub stream: StreamId,
    /// Number of bytes; at least one.
    pub len: Bytes,
}

/// Error returned when data is not accepted. Nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The write has no bytes.
    #[error("a write needs at least one byte")]
    Empty,
    /// The queue is full.
    #[error("{limit} streams are queued already: write again after some have been sent")]
    TooMany {
        /// Most streams queued at once.
        limit: usize,
    },
}

/// Takes a packet of each stream in turn, regardless of priority: the default of MP-QUIC (CWR
/// §III-C, Fig. 2a). A stream has one turn, however often it writes.
///
/// Writing and taking take time logarithmic in the queued streams, resetting linear time.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    /// Streams in the order of their turns; each is in `left` as well.
    turns: VecDeque<StreamId>,
    left: BTreeMap<StreamId, Bytes>,
    limit: usize,
}

impl RoundRobin {
    /// Creates an order for up to `limit` queued streams.
    pub const fn new(limit: usize) -> Self {
        Self { turns: VecDeque::new(), left: BTreeMap::new(), limit }
    }

    /// Queues `len` more bytes of this stream.
    ///
    /// # Errors
    ///
    /// If `len` is zero, or the queue is full.
    pub fn write(&mut self, stream: StreamId, len: Bytes) -> Result<(), WriteError> {
        if len.is_zero() {
            return Err(WriteError::Empty);
        }
        if let Some(left) = self.left.get_mut(&stream) {
            *left += len;
        } else if self.turns.len() < self.limit {
            self.turns.push_back(stream);
            self.left.insert(stream, len);
        } else {
            return Err(WriteError::TooMany { limit: self.limit });
        }
        Ok(())
    }

    /// Returns the frame that [`next`](Self::next) would return.
    pub fn peek(&self, room: Bytes) -> Option<Frame> {
        let stream = *self.turns.front()?;
        let len = self.left.get(&stream)?.min(&room);
        (!len.is_zero()).then_some(Frame { stream, len: *len })
    }

    /// Takes the frame of a packet that has room for `room` bytes of stream data.
    pub fn next(&mut self, room: Bytes) -> Option<Frame> {
        let frame = self.peek(room)?;
        self.turns.pop_front();
        let left = self.left.get_mut(&frame.stream)?;
        *left -= frame.len;
        if left.is_zero() {
            self.left.remove(&frame.stream);
        } else {
            self.turns.push_back(frame.stream);
        }
        Some(frame)
    }

    /// Drops the data of a stream that has been reset.
    pub fn reset(&mut self, stream: StreamId) {
        if self.left.remove(&stream).is_some() {
            self.turns.retain(|turn| *turn != stream);
        }
    }

    /// Returns whether no data is queued.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const PACKET: Bytes = Bytes::kb(1);

    fn order(mut streams: RoundRobin) -> Vec<u64> {
        let order = core::iter::from_fn(|| streams.next(PACKET)).map(|frame| frame.stream.0).collect();
        assert!(streams.is_empty() && streams.left.is_empty());
        order
    }

    /// Writes the input of CWR's Fig. 2: two streams of three packets each, and one of two.
    fn figure_2() -> RoundRobin {
        let mut streams = RoundRobin::new(8);
        for (stream, packets) in [(1, 3), (2, 3), (3, 2)] {
            streams.write(StreamId(stream), PACKET * packets).unwrap();
        }
        streams
    }

    #[test]
    fn round_robin_takes_a_packet_of_each_stream_in_turn() {
        assert_eq!(order(figure_2()), [1, 2, 3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn a_stream_that_writes_again_keeps_its_turn() {
        let mut streams = figure_2();
        assert_eq!(streams.next(PACKET), Some(Frame { stream: StreamId(1), len: PACKET }));
        streams.write(StreamId(3), PACKET).unwrap();
        assert_eq!(order(streams), [2, 3, 1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn a_frame_has_data_of_one_stream_even_if_another_would_fit() {
        let mut streams = RoundRobin::new(8);
        for stream in [1, 2] {
            streams.write(StreamId(stream), Bytes::new(10)).unwrap();
        }
        assert_eq!(streams.next(Bytes::ZERO), None);
        let frame = |stream| Some(Frame { stream: StreamId(stream), len: Bytes::new(10) });
        assert_eq!([streams.peek(PACKET), streams.next(PACKET)], [frame(1); 2]);
        assert_eq!(streams.next(PACKET), frame(2));
    }

    #[test]
    fn queued_streams_are_bounded_and_a_reset_makes_room() {
        let mut streams = RoundRobin::new(2);
        assert_eq!(streams.write(StreamId(1), Bytes::ZERO), Err(WriteError::Empty));
        streams.write(StreamId(1), PACKET).unwrap();
        streams.write(StreamId(1), PACKET).unwrap();
        streams.write(StreamId(2), PACKET).unwrap();
        assert_eq!(streams.write(StreamId(3), PACKET), Err(WriteError::TooMany { limit: 2 }));
        streams.reset(StreamId(1));
        streams.write(StreamId(3), PACKET).unwrap();
        assert_eq!(order(streams), [2, 3]);
    }
}
