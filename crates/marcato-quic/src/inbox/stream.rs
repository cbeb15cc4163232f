//! One stream: which of its bytes have arrived, and which frame they belong to.

use std::collections::BTreeMap;

use bytes::Bytes;
use marcato_wire::{MAX_FRAME_HEADER, MessageFrame};

use super::ranges::RangeSet;
use super::{cut, length};

/// Which end of the connection this is: QUIC's stream ids depend on it. RFC 9000 §2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that opened the connection.
    Client,
    /// The end that accepted it.
    Server,
}

/// What a stream may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The peer's, unidirectional: the first frame decides.
    Undecided,
    /// MESSAGE frames.
    Messages,
    /// RESET and DONE frames.
    Control,
    /// The way back of our own bidirectional stream: DONE frames.
    Replies,
}

impl Kind {
    /// The kind of `stream` as its id tells, or `None` if nothing comes on it. RFC 9000 §2.1: bit 0 says who opened it,
    /// bit 1 whether it is unidirectional.
    pub(super) const fn of(stream: u64, side: Side) -> Option<Self> {
        let ours = match side {
            Side::Client => 0,
            Side::Server => 1,
        };
        match (stream & 1 == ours, is_bidirectional(stream)) {
            (true, true) => Some(Self::Replies),
            (true, false) => None,
            (false, true) => Some(Self::Messages),
            (false, false) => Some(Self::Undecided),
        }
    }
}

pub(super) const fn is_bidirectional(stream: u64) -> bool {
    stream & 2 == 0
}

/// The payload that a stream carries now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) frame: MessageFrame,
    /// Where in the stream the payload begins.
    pub(super) start: u64,
    /// Where it ends.
    pub(super) end: u64,
    /// Whether all this is known from a twin, and the header has yet to come.
    pub(super) foretold: bool,
}

/// A stream of which something is missing.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) kind: Kind,
    /// What has arrived, whatever became of it.
    pub(super) seen: RangeSet,
    /// One more than the last byte that has arrived.
    pub(super) reach: u64,
    pub(super) final_size: Option<u64>,
    /// Where the next header begins, or, of a foretold body, its own.
    pub(super) cursor: u64,
    pub(super) body: Option<Body>,
    /// Whether nothing may follow at `cursor`.
    pub(super) ended: bool,
    /// What waits for a header: disjoint, nothing below `cursor` or within the body.
    pub(super) parked: BTreeMap<u64, Bytes>,
    pub(super) parked_bytes: u64,
}

impl Stream {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            seen: RangeSet::default(),
            reach: 0,
            final_size: None,
            cursor: 0,
            body: None,
            ended: false,
            parked: BTreeMap::new(),
            parked_bytes: 0,
        }
    }

    pub(super) fn park(&mut self, at: u64, bytes: &Bytes) {
        if !bytes.is_empty() {
            self.parked_bytes += length(bytes);
            // A copy, since a slice would keep alive whatever else came in the same buffer.
            self.parked.insert(at, Bytes::copy_from_slice(bytes));
        }
    }

    /// Takes the first piece that waits, up to `end`.
    pub(super) fn unpark_below(&mut self, end: u64) -> Option<(u64, Bytes)> {
        let first = self.parked.first_entry()?;
        let at = *first.key();
        if at >= end {
            return None;
        }
        let mut rest = first.remove();
        let piece = cut(&mut rest, end - at);
        self.parked_bytes -= length(&piece);
        if !rest.is_empty() {
            self.parked.insert(end, rest);
        }
        Some((at, piece))
    }

    /// Copies what waits at `cursor` into `header`, as far as it is without gap, and says how much that is.
    pub(super) fn peek(&self, header: &mut [u8; MAX_FRAME_HEADER]) -> usize {
        let mut filled = 0;
        for (&at, piece) in self.parked.range(self.cursor..) {
            let room = header.get_mut(filled..).unwrap_or_default();
            if at != self.cursor + filled as u64 || room.is_empty() {
                break;
            }
            let len = room.len().min(piece.len());
            room[..len].copy_from_slice(&piece[..len]);
            filled += len;
        }
        filled
    }

    /// Whether all that the stream will ever bring has arrived.
    pub(super) fn has_arrived(&self) -> bool {
        self.final_size.is_some_and(|end| self.seen.floor() >= end)
    }
}
