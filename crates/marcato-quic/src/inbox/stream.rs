//! State of one stream: its received bytes, and the frame they belong to.

use std::collections::BTreeMap;

use bytes::Bytes;
use marcato_wire::{MAX_FRAME_HEADER, MessageFrame};

use super::ranges::RangeSet;
use super::{cut, length};

/// End of the connection that we are: QUIC's stream ids depend on it. RFC 9000 §2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// End that opened the connection.
    Client,
    /// End that accepted it.
    Server,
}

/// Kind of frames that a stream may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Unidirectional stream of the peer: the first frame decides.
    Undecided,
    /// MESSAGE frames.
    Messages,
    /// RESET, DONE, REPORT and END frames.
    Control,
    /// Return direction of our own bidirectional stream: DONE frames.
    Replies,
}

impl Kind {
    /// Kind of `stream` by its id, or `None` if it carries no data to us. RFC 9000 §2.1: bit 0 is
    /// the initiator, bit 1 is set on unidirectional streams.
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

/// Payload that a stream carries now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) frame: MessageFrame,
    /// Offset in the stream at which the payload begins.
    pub(super) start: u64,
    /// Offset in the stream at which it ends.
    pub(super) end: u64,
    /// Set if this is known from another copy, and the stream's own header has not arrived.
    pub(super) announced: bool,
}

/// Stream with missing bytes.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) kind: Kind,
    /// Received bytes, whether they were used or ignored.
    pub(super) seen: RangeSet,
    /// One more than the offset of the last received byte.
    pub(super) reach: u64,
    pub(super) final_size: Option<u64>,
    /// Offset of the next header or, for an announced body, of its own frame's header.
    pub(super) cursor: u64,
    pub(super) body: Option<Body>,
    /// Set if nothing may follow at `cursor`.
    pub(super) ended: bool,
    /// Pieces that wait for a header: disjoint, none below `cursor` or within the body.
    pub(super) parked: BTreeMap<u64, Bytes>,
    pub(super) parked_bytes: u64,
    /// End of the bytes that were parked before the handshake was complete.
    pub(super) early_to: u64,
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
            early_to: 0,
        }
    }

    pub(super) fn park(&mut self, at: u64, bytes: &Bytes) {
        if !bytes.is_empty() {
            self.parked_bytes += length(bytes);
            // A copy, because a slice would keep alive the rest of its buffer.
            self.parked.insert(at, Bytes::copy_from_slice(bytes));
        }
    }

    /// Takes the first parked piece, up to `end`.
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

    /// Copies the parked bytes at `cursor` into `header`, up to the first gap, and returns their
    /// number.
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

    /// Returns whether the stream has ended and all its bytes have arrived.
    pub(super) fn has_arrived(&self) -> bool {
        self.final_size.is_some_and(|end| self.seen.floor() >= end)
    }
}
