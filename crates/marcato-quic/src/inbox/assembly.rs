//! State of one message while it arrives and is read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes as Payload;
use marcato_units::{Bytes, Priority};
use marcato_wire::{Exchange, MessageFrame, MessageNumber};

use super::error::InboxError;
use super::{cut, length};

/// Memory that a message holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) unread: u64,
    pub(super) unread_pieces: usize,
    pub(super) ahead: u64,
    pub(super) ahead_pieces: usize,
}

/// Message that is not complete, or not wholly read.
#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) priority: Priority,
    /// Set if its sender asks for a report.
    pub(super) report: bool,
    pub(super) exchange: Exchange,
    /// Set if bytes of it arrived before the handshake was complete.
    pub(super) early: bool,
    /// End of the message, once a frame with LAST has given it.
    end: Option<u64>,
    /// Set if a frame with payload gave the end. All frames with payload that end there then need
    /// LAST.
    end_has_payload: bool,
    /// Largest end of a frame without LAST.
    reach: u64,
    /// Offset up to which all bytes have been read.
    read_to: u64,
    /// Offset up to which all bytes have arrived.
    arrived_to: u64,
    /// Pieces from `read_to` to `arrived_to`, in order.
    ready: VecDeque<Payload>,
    /// Pieces that arrived beyond `arrived_to`: disjoint, none at `arrived_to`.
    ahead: BTreeMap<u64, Payload>,
    ahead_bytes: u64,
    /// Streams with a frame of this message that has not wholly arrived, or that needs a receipt.
    pub(super) carriers: BTreeSet<u64>,
}

impl Assembly {
    pub(super) fn new(first: &MessageFrame) -> Self {
        Self {
            priority: first.priority,
            report: first.report,
            exchange: first.exchange,
            early: false,
            end: None,
            end_has_payload: false,
            reach: 0,
            read_to: 0,
            arrived_to: 0,
            ready: VecDeque::new(),
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            carriers: BTreeSet::new(),
        }
    }

    /// Returns whether all bytes have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.arrived_to)
    }

    /// Returns whether [`read`](Self::read) would return a piece.
    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.is_complete()
    }

    pub(super) fn held(&self) -> Held {
        Held {
            unread: self.arrived_to - self.read_to,
            unread_pieces: self.ready.len(),
            ahead: self.ahead_bytes,
            ahead_pieces: self.ahead.len(),
        }
    }

    /// Records the content of a frame's header, if it agrees with the earlier frames.
    pub(super) fn admit(&mut self, frame: &MessageFrame) -> Result<(), InboxError> {
        let message: MessageNumber = frame.id;
        if frame.priority != self.priority {
            return Err(InboxError::Priority { message, was: self.priority, now: frame.priority });
        }
        if frame.report != self.report || frame.exchange != self.exchange {
            return Err(InboxError::FlagsDiffer { message });
        }
        let reach = frame.end().get();
        let last_differs = InboxError::LastDiffers { message, end: frame.end() };
        let beyond = |end, reach| {
            let (end, reach) = (Bytes::new(end), Bytes::new(reach));
            Err(InboxError::BeyondEnd { message, end, reach })
        };
        match self.end {
            Some(end) if frame.last && end != reach => {
                return Err(InboxError::TwoEnds { message, was: Bytes::new(end), now: frame.end() });
            }
            Some(end) if reach > end => return beyond(end, reach),
            Some(end) if !frame.last && reach == end && self.end_has_payload => return Err(last_differs),
            _ => {}
        }
        if !frame.last {
            self.reach = self.reach.max(reach);
            return Ok(());
        }
        if self.reach > reach {
            return beyond(reach, self.reach);
        }
        let has_payload = !frame.len.is_zero();
        if has_payload && self.reach == reach {
            return Err(last_differs);
        }
        self.end = Some(reach);
        self.end_has_payload |= has_payload;
        Ok(())
    }

    /// Adds `bytes` that begin at `offset`, and returns the number of new ones. Bytes that arrived
    /// before stay.
    ///
    /// Costs O(log pieces), plus the pieces that it overlaps.
    pub(super) fn insert(&mut self, offset: u64, mut bytes: Payload) -> u64 {
        let mut at = offset;
        let mut new = 0;
        while !bytes.is_empty() {
            // End of the bytes already present at `at`, below `arrived_to` or in a piece ahead.
            let covered_to = if at < self.arrived_to {
                self.arrived_to
            } else {
                let before = self.ahead.range(..=at).next_back();
                before.map_or(0, |(&start, piece)| start + length(piece))
            };
            if covered_to > at {
                at += length(&cut(&mut bytes, covered_to - at));
                continue;
            }
            let next = self.ahead.range(at..).next().map_or(u64::MAX, |(&start, _)| start);
            let piece = cut(&mut bytes, next - at);
            let len = length(&piece);
            new += len;
            if at == self.arrived_to {
                self.arrived_to += len;
                self.ready.push_back(piece);
                self.close_gap();
            } else {
                self.ahead_bytes += len;
                self.ahead.insert(at, piece);
            }
            at += len;
        }
        new
    }

    /// Moves pieces that are no longer ahead of a gap.
    fn close_gap(&mut self) {
        while let Some(next) = self.ahead.first_entry()
            && *next.key() == self.arrived_to
        {
            let piece = next.remove();
            self.ahead_bytes -= length(&piece);
            self.arrived_to += length(&piece);
            self.ready.push_back(piece);
        }
    }

    /// Takes the next piece: its offset, its bytes, and whether it is the last.
    pub(super) fn read(&mut self) -> (u64, Payload, bool) {
        let bytes = self.ready.pop_front().unwrap_or_default();
        let offset = self.read_to;
        self.read_to += length(&bytes);
        (offset, bytes, self.end == Some(self.read_to))
    }
}
