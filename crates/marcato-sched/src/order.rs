//! Stream order: chooses the stream of the next packet where an engine works stream by stream (CWR
//! §III-C).
//!
//! A packet carries at most one stream frame, so that the loss of a packet holds up one stream
//! only. Lost data goes first, regardless of its priority.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use marcato_units::{Bytes, Priority};
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
    /// True if the bytes have been sent before and were lost.
    pub retransmission: bool,
}

/// Error returned when data is not accepted. Nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The write has no bytes.
    #[error("a write needs at least one byte")]
    Empty,
    /// The queue is full.
    #[error("{limit} writes are queued already: write again after some have been sent")]
    TooMany {
        /// Most writes queued at once.
        limit: usize,
    },
}

/// Chooses the stream of the next packet.
pub trait StreamOrder {
    /// Queues `len` more bytes of this stream.
    ///
    /// # Errors
    ///
    /// If `len` is zero, or the queue is full.
    fn write(&mut self, stream: StreamId, priority: Priority, len: Bytes) -> Result<(), WriteError>;

    /// Queues `len` lost bytes of this stream for retransmission. The bytes in flight bound how
    /// often this happens, so nothing is refused.
    fn lost(&mut self, stream: StreamId, len: Bytes);

    /// Returns the frame that [`next`](Self::next) would return. Use it to check that a lane
    /// accepts the frame.
    fn peek(&self, room: Bytes) -> Option<Frame>;

    /// Takes the frame of a packet that has room for `room` bytes of stream data.
    fn next(&mut self, room: Bytes) -> Option<Frame>;

    /// Drops the data of a stream that has been reset.
    fn reset(&mut self, stream: StreamId);

    /// True if no data is queued.
    fn is_empty(&self) -> bool;
}

/// End of a list.
const END: usize = usize::MAX;

/// Contiguous queued bytes of one stream.
#[derive(Clone, Copy, Debug)]
struct Piece {
    stream: StreamId,
    left: Bytes,
    /// Neighbours in the line; `next` also links the free pieces.
    prev: usize,
    next: usize,
    /// Next piece of the same stream in this line.
    later: usize,
}

/// First and last piece of a stream in a line.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: usize,
    last: usize,
}

/// Queue of pieces.
///
/// Each operation takes time logarithmic in the number of queued streams. Dropping a stream does so
/// for each of its pieces, which were all added once. Taking bytes allocates nothing, and the space
/// of removed pieces is reused.
#[derive(Clone, Debug)]
struct Line {
    pieces: Vec<Piece>,
    free: usize,
    front: usize,
    back: usize,
    len: usize,
    streams: BTreeMap<StreamId, Ends>,
}

impl Default for Line {
    fn default() -> Self {
        Self { pieces: Vec::new(), free: END, front: END, back: END, len: 0, streams: BTreeMap::new() }
    }
}

impl Line {
    const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the piece at the back, if it is of this stream.
    fn back_of(&mut self, stream: StreamId) -> Option<&mut Piece> {
        self.pieces.get_mut(self.back).filter(|piece| piece.stream == stream)
    }

    /// Returns the last piece of this stream, wherever it is.
    fn last_of(&mut self, stream: StreamId) -> Option<&mut Piece> {
        self.streams.get(&stream).map(|ends| &mut self.pieces[ends.last])
    }

    /// Adds a piece at the back.
    fn push(&mut self, stream: StreamId, left: Bytes) {
        let piece = Piece { stream, left, prev: END, next: END, later: END };
        let at = if let Some(free) = self.pieces.get_mut(self.free) {
            let at = self.free;
            self.free = free.next;
            *free = piece;
            at
        } else {
            self.pieces.push(piece);
            self.pieces.len() - 1
        };
        let ends = self.streams.entry(stream).or_insert(Ends { first: at, last: at });
        if ends.last != at {
            self.pieces[ends.last].later = at;
            ends.last = at;
        }
        self.link_back(at);
    }

    fn link_back(&mut self, at: usize) {
        self.pieces[at].prev = self.back;
        self.pieces[at].next = END;
        match self.pieces.get_mut(self.back) {
            Some(back) => back.next = at,
            None => self.front = at,
        }
        self.back = at;
        self.len += 1;
    }

    fn unlink(&mut self, at: usize) {
        let Piece { prev, next, .. } = self.pieces[at];
        match self.pieces.get_mut(prev) {
            Some(piece) => piece.next = next,
            None => self.front = next,
        }
        match self.pieces.get_mut(next) {
            Some(piece) => piece.prev = prev,
            None => self.back = prev,
        }
        self.len -= 1;
    }

    /// Removes a piece and frees its space for another.
    fn discard(&mut self, at: usize) {
        self.unlink(at);
        self.pieces[at].next = self.free;
        self.free = at;
    }

    fn front(&self) -> Option<&Piece> {
        self.pieces.get(self.front)
    }

    /// Takes `len` bytes from the front; returns true if that was the end of the piece.
    fn take(&mut self, len: Bytes) -> bool {
        let at = self.front;
        let Some(piece) = self.pieces.get_mut(at) else { return false };
        piece.left -= len;
        let Piece { stream, left, later, .. } = *piece;
        if !left.is_zero() {
            return false;
        }
        // The front piece is always the first of its stream.
        self.discard(at);
        if later == END {
            self.streams.remove(&stream);
        } else if let Some(ends) = self.streams.get_mut(&stream) {
            ends.first = later;
        }
        true
    }

    /// Moves the front to the back. Only for a line in which each stream has one piece; otherwise
    /// pieces of one stream would change places.
    fn rotate(&mut self) {
        let at = self.front;
        if at != self.back {
            self.unlink(at);
            self.link_back(at);
        }
    }

    /// Drops a stream; returns the number of its pieces.
    fn remove(&mut self, stream: StreamId) -> usize {
        let before = self.len;
        let mut at = self.streams.remove(&stream).map_or(END, |ends| ends.first);
        while let Some(piece) = self.pieces.get(at) {
            let later = piece.later;
            self.discard(at);
            at = later;
        }
        before - self.len
    }
}

/// Lost data, in order of loss, which every order sends first.
#[derive(Clone, Debug, Default)]
struct Lost(Line);

impl Lost {
    fn add(&mut self, stream: StreamId, len: Bytes) {
        if len.is_zero() {
            return;
        }
        match self.0.back_of(stream) {
            Some(piece) => piece.left += len,
            None => self.0.push(stream, len),
        }
    }

    /// Returns the next frame, given the front of the data not sent before.
    fn before(&self, fresh: Option<&Piece>, room: Bytes) -> Option<Frame> {
        let (piece, retransmission) = match self.0.front() {
            Some(lost) => (lost, true),
            None => (fresh?, false),
        };
        let len = piece.left.min(room);
        (!len.is_zero()).then_some(Frame { stream: piece.stream, len, retransmission })
    }

    /// Takes a frame: from here, or by `fresh` if it has not been sent before.
    fn take(&mut self, frame: &Frame, fresh: impl FnOnce(Bytes)) {
        if frame.retransmission {
            self.0.take(frame.len);
        } else {
            fresh(frame.len);
        }
    }
}

/// Sends lost data first; then by priority, and within a level first in, first out (CWR §III-C,
/// Fig. 2b). The paper has one priority bit; this order has all levels. Strict priority starves
/// less urgent data, as the paper states.
///
/// Writing, taking and resetting take time logarithmic in the queued writes; taking allocates
/// nothing.
#[derive(Clone, Debug)]
pub struct PriorityFifo {
    lost: Lost,
    levels: [Line; Priority::COUNT],
    waiting: usize,
    limit: usize,
}

impl PriorityFifo {
    /// Creates an order for up to `limit` queued writes. A continuation of the latest write of its
    /// level counts as part of it.
    pub fn new(limit: usize) -> Self {
        Self { lost: Lost::default(), levels: Default::default(), waiting: 0, limit }
    }
}

impl StreamOrder for PriorityFifo {
    fn write(&mut self, stream: StreamId, priority: Priority, len: Bytes) -> Result<(), WriteError> {
        if len.is_zero() {
            return Err(WriteError::Empty);
        }
        let level = &mut self.levels[priority.index()];
        if let Some(piece) = level.back_of(stream) {
            piece.left += len;
        } else if self.waiting < self.limit {
            self.waiting += 1;
            level.push(stream, len);
        } else {
            return Err(WriteError::TooMany { limit: self.limit });
        }
        Ok(())
    }

    fn lost(&mut self, stream: StreamId, len: Bytes) {
        self.lost.add(stream, len);
    }

    fn peek(&self, room: Bytes) -> Option<Frame> {
        self.lost.before(self.levels.iter().find_map(Line::front), room)
    }

    fn next(&mut self, room: Bytes) -> Option<Frame> {
        let frame = self.peek(room)?;
        self.lost.take(&frame, |len| {
            let level = self.levels.iter_mut().find(|level| !level.is_empty());
            self.waiting -= usize::from(level.is_some_and(|level| level.take(len)));
        });
        Some(frame)
    }

    fn reset(&mut self, stream: StreamId) {
        self.lost.0.remove(stream);
        self.waiting -= self.levels.iter_mut().map(|level| level.remove(stream)).sum::<usize>();
    }

    fn is_empty(&self) -> bool {
        self.waiting == 0 && self.lost.0.is_empty()
    }
}

/// Sends lost data first; then one packet of each stream in turn, regardless of priority. This is
/// the default of MP-QUIC (CWR §III-C, Fig. 2a). A stream has one turn, however often it writes.
///
/// Writing, taking and resetting take time logarithmic in the queued streams; taking allocates
/// nothing.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    lost: Lost,
    /// One piece for each stream.
    turns: Line,
    limit: usize,
}

impl RoundRobin {
    /// Creates an order for up to `limit` queued streams.
    pub fn new(limit: usize) -> Self {
        Self { lost: Lost::default(), turns: Line::default(), limit }
    }
}

impl StreamOrder for RoundRobin {
    fn write(&mut self, stream: StreamId, _: Priority, len: Bytes) -> Result<(), WriteError> {
        if len.is_zero() {
            return Err(WriteError::Empty);
        }
        if let Some(piece) = self.turns.last_of(stream) {
            piece.left += len;
        } else if self.turns.len < self.limit {
            self.turns.push(stream, len);
        } else {
            return Err(WriteError::TooMany { limit: self.limit });
        }
        Ok(())
    }

    fn lost(&mut self, stream: StreamId, len: Bytes) {
        self.lost.add(stream, len);
    }

    fn peek(&self, room: Bytes) -> Option<Frame> {
        self.lost.before(self.turns.front(), room)
    }

    fn next(&mut self, room: Bytes) -> Option<Frame> {
        let frame = self.peek(room)?;
        self.lost.take(&frame, |len| {
            if !self.turns.take(len) {
                self.turns.rotate();
            }
        });
        Some(frame)
    }

    fn reset(&mut self, stream: StreamId) {
        self.lost.0.remove(stream);
        self.turns.remove(stream);
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.lost.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    /// Writes two streams of background data, three packets each, and last an urgent one of two
    /// packets: the input of CWR's Fig. 2.
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
    fn priority_fifo_takes_urgent_streams_first_then_one_by_one() {
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
    fn a_frame_has_data_of_one_stream_even_if_another_would_fit() {
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

    /// Reference model of both orders, with plain lists.
    #[derive(Default)]
    struct Naive {
        turns: bool,
        limit: usize,
        lost: Vec<(StreamId, Bytes)>,
        fresh: Vec<(Priority, StreamId, Bytes)>,
    }

    impl StreamOrder for Naive {
        fn write(&mut self, stream: StreamId, priority: Priority, len: Bytes) -> Result<(), WriteError> {
            if len.is_zero() {
                return Err(WriteError::Empty);
            }
            let same_level = |piece: &&mut (Priority, StreamId, Bytes)| self.turns || piece.0 == priority;
            let mut level: Vec<_> = self.fresh.iter_mut().filter(same_level).collect();
            let from = if self.turns { 0 } else { level.len().saturating_sub(1) };
            if let Some(piece) = level[from..].iter_mut().find(|piece| piece.1 == stream) {
                piece.2 += len;
                return Ok(());
            }
            if self.fresh.len() >= self.limit {
                return Err(WriteError::TooMany { limit: self.limit });
            }
            self.fresh.push((priority, stream, len));
            Ok(())
        }

        fn lost(&mut self, stream: StreamId, len: Bytes) {
            match self.lost.last_mut() {
                _ if len.is_zero() => {}
                Some(last) if last.0 == stream => last.1 += len,
                _ => self.lost.push((stream, len)),
            }
        }

        fn peek(&self, room: Bytes) -> Option<Frame> {
            let Self { turns, limit, lost, fresh } = self;
            Self { turns: *turns, limit: *limit, lost: lost.clone(), fresh: fresh.clone() }.next(room)
        }

        fn next(&mut self, room: Bytes) -> Option<Frame> {
            if room.is_zero() {
                return None;
            }
            if let Some((stream, left)) = self.lost.first_mut() {
                let frame = Frame { stream: *stream, len: room.min(*left), retransmission: true };
                *left -= frame.len;
                self.lost.retain(|(_, left)| !left.is_zero());
                return Some(frame);
            }
            let level = |at: &usize| if self.turns { 0 } else { self.fresh[*at].0.index() };
            let at = (0..self.fresh.len()).min_by_key(level)?;
            let (_, stream, left) = &mut self.fresh[at];
            let frame = Frame { stream: *stream, len: room.min(*left), retransmission: false };
            *left -= frame.len;
            if self.turns {
                self.fresh.rotate_left(1);
            }
            self.fresh.retain(|(_, _, left)| !left.is_zero());
            Some(frame)
        }

        fn reset(&mut self, stream: StreamId) {
            self.lost.retain(|piece| piece.0 != stream);
            self.fresh.retain(|piece| piece.1 != stream);
        }

        fn is_empty(&self) -> bool {
            self.lost.is_empty() && self.fresh.is_empty()
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Write(StreamId, Priority, Bytes),
        Lost(StreamId, Bytes),
        Next(Bytes),
        Reset(StreamId),
    }

    fn op() -> impl Strategy<Value = Op> {
        let stream = || (0..6u64).prop_map(StreamId);
        let len = || (0..3000u64).prop_map(Bytes::new);
        prop_oneof![
            6 => (stream(), prop::sample::select(&Priority::ALL[..]), len())
                .prop_map(|(stream, priority, len)| Op::Write(stream, priority, len)),
            2 => (stream(), len()).prop_map(|(stream, len)| Op::Lost(stream, len)),
            6 => len().prop_map(Op::Next),
            1 => stream().prop_map(Op::Reset),
        ]
    }

    /// Checks that a line's total and its index by stream agree with its links.
    fn assert_sound(line: &Line) {
        let mut last = END;
        let mut linked: BTreeMap<StreamId, Vec<usize>> = BTreeMap::new();
        let mut at = line.front;
        while let Some(piece) = line.pieces.get(at) {
            assert!(piece.prev == last && !piece.left.is_zero());
            linked.entry(piece.stream).or_default().push(at);
            (last, at) = (at, piece.next);
        }
        assert_eq!((line.back, line.len), (last, linked.values().map(Vec::len).sum()));
        assert!(line.streams.keys().eq(linked.keys()), "{line:?}");
        for (ends, at) in line.streams.values().zip(linked.values()) {
            assert_eq!((ends.first, Some(&ends.last)), (at[0], at.last()));
            let later = at.iter().skip(1).copied().chain([END]);
            assert!(at.iter().map(|at| line.pieces[*at].later).eq(later));
        }
    }

    fn agrees<O: StreamOrder>(mut order: O, mut naive: Naive, ops: &[Op], lines: impl Fn(&O) -> Vec<&Line>) {
        let mut most = 0;
        for op in ops {
            match *op {
                Op::Write(stream, priority, len) => {
                    assert_eq!(order.write(stream, priority, len), naive.write(stream, priority, len));
                }
                Op::Lost(stream, len) => {
                    order.lost(stream, len);
                    naive.lost(stream, len);
                }
                Op::Next(room) => {
                    assert_eq!(order.peek(room), naive.peek(room));
                    assert_eq!(order.next(room), naive.next(room));
                }
                Op::Reset(stream) => {
                    order.reset(stream);
                    naive.reset(stream);
                }
            }
            assert_eq!(order.is_empty(), naive.is_empty());
            let lines = lines(&order);
            lines.iter().copied().for_each(assert_sound);
            let waiting = naive.lost.len() + naive.fresh.len();
            assert_eq!(lines.iter().map(|line| line.len).sum::<usize>(), waiting);
            // No line has ever needed space for more than was queued at once.
            most = most.max(waiting);
            assert!(lines.iter().all(|line| line.pieces.len() <= most));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_orders_agree_with_plain_lists_and_leave_nothing_stale(
            ops in prop::collection::vec(op(), 1..200), limit in 0usize..12,
        ) {
            let naive = |turns| Naive { turns, limit, ..Naive::default() };
            agrees(PriorityFifo::new(limit), naive(false), &ops, |order| {
                order.levels.iter().chain([&order.lost.0]).collect()
            });
            agrees(RoundRobin::new(limit), naive(true), &ops, |order| std::vec![&order.turns, &order.lost.0]);
        }
    }
}
