//! Open responses, by slot and by stream.
//!
//! Every call of the exchange changes the [`Record`] of a response, and then `place`s it. That function alone
//! moves responses between the heaps of `ready`.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use marcato_units::Bytes;

use super::deadline::Deadline;
use super::grant::Response;
use super::parameters::Parameters;
use super::ready::{CellId, Place, Rank, Slot};
use crate::order::StreamId;
use crate::streams::StreamMap;

/// Bit of the ranks of responses that have had a turn. Ids of streams are below it.
const BEGUN: u64 = 1 << 63;

/// State of one response.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) stream: StreamId,
    pub(super) staged: Bytes,
    pub(super) granted: Bytes,
    pub(super) outstanding: Bytes,
    /// Number of its latest turn as an incremental response, counted over all of them. Zero before
    /// the first.
    pub(super) turn: u64,
    pub(super) parameters: Parameters,
    pub(super) held: bool,
    pub(super) finished: bool,
    pub(super) ended: bool,
    pub(super) deadline: Option<Deadline>,
    /// True if it was reported as late, or has no deadline.
    pub(super) reported: bool,
    /// Cell that it belongs to.
    pub(super) cell: CellId,
    /// Heap that it is in; `None` while it cannot send.
    pub(super) place: Option<Place>,
}

impl Record {
    const fn new(stream: StreamId, parameters: Parameters, cell: CellId) -> Self {
        Self {
            stream,
            staged: Bytes::ZERO,
            granted: Bytes::ZERO,
            outstanding: Bytes::ZERO,
            turn: 0,
            parameters,
            held: false,
            finished: false,
            ended: false,
            deadline: None,
            reported: true,
            cell,
            place: None,
        }
    }

    /// Returns the heap that it belongs to; `None` if it cannot send.
    #[inline]
    pub(super) fn due_place(&self) -> Option<Place> {
        let sends = !self.held && (!self.staged.is_zero() || self.finished && !self.ended);
        sends.then_some(Place { cell: self.cell, incremental: self.parameters.incremental })
    }

    /// Returns its rank in that heap.
    #[inline]
    pub(super) const fn rank(&self) -> Rank {
        // RFC 9218 §10: responses that are not incremental follow the ids of their streams, which
        // is the order of the requests. First turns of incremental ones do too: the beginning of an
        // image tells its size. Later turns follow the latest turn.
        let turn =
            if self.parameters.incremental && self.turn > 0 { BEGUN | self.turn } else { self.stream.0 };
        Rank::new(self.parameters.order, turn)
    }

    pub(super) const fn view(&self) -> Response {
        Response {
            stream: self.stream,
            parameters: self.parameters,
            staged: self.staged,
            granted: self.granted,
            outstanding: self.outstanding,
            held: self.held,
            finished: self.finished,
            ended: self.ended,
            deadline: self.deadline,
        }
    }
}

/// Table of the open responses. It grows with their number and never shrinks.
#[derive(Clone, Debug)]
pub(super) struct Table {
    records: Vec<Record>,
    free: Vec<Slot>,
    slots: StreamMap<Slot>,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { records: Vec::new(), free: Vec::new(), slots: StreamMap::new() }
    }

    /// Number of open responses.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Slots of the open responses.
    pub(super) fn open(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().map(|(_, slot)| *slot)
    }

    /// Returns the slot of a stream; `None` if it has no open response.
    pub(super) fn find(&self, stream: StreamId) -> Option<Slot> {
        self.slots.get(stream).copied()
    }

    /// Adds a response. Returns its slot, and true if the table has grown by it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most `Exchange::MAX_RESPONSES` responses are open"
    )]
    pub(super) fn add(&mut self, stream: StreamId, parameters: Parameters, cell: CellId) -> (Slot, bool) {
        let record = Record::new(stream, parameters, cell);
        let free = self.free.pop();
        let slot = free.unwrap_or(self.records.len() as Slot);
        match self.records.get_mut(slot as usize) {
            Some(unused) => *unused = record,
            None => self.records.push(record),
        }
        self.slots.insert(stream, slot);
        (slot, free.is_none())
    }

    /// Removes a stream whose record fulfils a condition, and returns its slot, which is [free](Self::free)
    /// later; `None` if it has no open response, or another one.
    pub(super) fn remove_if(
        &mut self,
        stream: StreamId,
        condition: impl FnOnce(&Record) -> bool,
    ) -> Option<Slot> {
        let Self { slots, records, .. } = self;
        slots.remove_if(stream, |slot| condition(&records[*slot as usize]))
    }

    /// Frees the slot of a stream that was removed.
    pub(super) fn free(&mut self, slot: Slot) {
        self.free.push(slot);
    }
}

impl Index<Slot> for Table {
    type Output = Record;
    #[inline]
    fn index(&self, slot: Slot) -> &Record {
        &self.records[slot as usize]
    }
}

impl IndexMut<Slot> for Table {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Record {
        &mut self.records[slot as usize]
    }
}
