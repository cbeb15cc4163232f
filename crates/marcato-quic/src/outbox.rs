//! Messages being sent: their bytes, and the streams that carry them.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes as Payload;
use marcato_sched::conductor::MessageId;
use marcato_sched::lane::LaneId;
use marcato_units::{Bytes, Priority};
use marcato_wire::{Exchange, MessageNumber};
use noq_proto::StreamId;
use rustc_hash::FxHashMap;

use crate::long::{Long, LongId, Part};

/// Reference to a message in the outbox: a slot, and the generation of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    slot: u32,
    tenant: u32,
}

#[cfg(test)]
impl Key {
    /// Key of a slot's first content, for tests of types that only compare keys.
    pub(crate) const fn of_slot(slot: u32) -> Self {
        Self { slot, tenant: 0 }
    }
}

/// Half-open range of bytes of one message: `start` included, `end` excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Run {
    pub(crate) const fn len(self) -> u64 {
        self.end - self.start
    }
}

/// Longest run in bytes that one stream carries of a message. For each packet, the engine searches
/// all data that it holds of a stream. With a long message on one stream, that cost would grow with
/// the window.
const LONGEST_RUN: u64 = 128 << 10;

impl Run {
    /// Run from `start` on that a new stream carries of a message of `len` bytes.
    pub(crate) fn from(start: u64, len: u64) -> Self {
        Self { start, end: len.min(start - start % LONGEST_RUN + LONGEST_RUN) }
    }

    pub(crate) const fn contains(self, offset: u64) -> bool {
        self.start <= offset && offset < self.end
    }
}

/// Role of a stream for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// First transmission of a run.
    Main,
    /// Copy of the same run, confined to this lane, until some chunk could not be sent twice.
    Copy(LaneId),
    /// Run that was stuck on another lane.
    Repair,
}

/// Stream that carries a message, or a run of it.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) stream: StreamId,
    pub(crate) role: Role,
    /// Run that it carries.
    pub(crate) run: Run,
    /// Offset in the message up to which data was written.
    pub(crate) written: u64,
    /// Unwritten rest of the frame's header.
    pub(crate) header: Payload,
    /// Set when the stream and its end have been acknowledged.
    pub(crate) acknowledged: bool,
    /// Set when nothing more will be written to it.
    pub(crate) ended: bool,
}

/// Message being sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: MessageId,
    /// Number on the wire, once the first byte has left.
    pub(crate) number: Option<MessageNumber>,
    pub(crate) body: Payload,
    pub(crate) priority: Priority,
    pub(crate) carriers: Vec<Carrier>,
    /// Set when the Conductor has granted every byte.
    pub(crate) fed: bool,
    /// Offset up to which acknowledged streams cover the message.
    pub(crate) reached: u64,
    /// Runs lost and retransmitted by the engine, at most [`MAX_LOST`].
    pub(crate) lost: Vec<Run>,
    /// Position in a longer message, if it is a part of one.
    pub(crate) part: Option<Part>,
    /// Set if it leaves in a DATAGRAM frame, or not at all.
    pub(crate) unreliable: bool,
    /// Set if its frames ask for a report.
    pub(crate) report: bool,
    /// Part of it in an exchange.
    pub(crate) exchange: Exchange,
}

/// Number of lost runs beyond which the gaps between them count as lost as well.
const MAX_LOST: usize = 32;

impl Outgoing {
    pub(crate) fn carrier_mut(&mut self, stream: StreamId) -> Option<&mut Carrier> {
        self.carriers.iter_mut().find(|carrier| carrier.stream == stream)
    }

    /// Length in the Conductor's bytes: an empty message counts as one.
    pub(crate) fn len(&self) -> u64 {
        self.body.len().max(1) as u64
    }

    /// Bytes of a run that the message really has.
    pub(crate) fn payload(&self, run: Run) -> Payload {
        let at = |offset| usize::try_from(offset).map_or(self.body.len(), |at| at.min(self.body.len()));
        self.body.slice(at(run.start)..at(run.end).max(at(run.start)))
    }

    /// Offset of its first byte in the message on the wire.
    pub(crate) fn base(&self) -> u64 {
        self.part.map_or(0, |part| part.base)
    }

    /// Returns whether the message on the wire ends with this run.
    pub(crate) fn ends_with(&self, run: Run) -> bool {
        run.end == self.len() && self.part.is_none_or(|part| part.last)
    }

    /// Stream that carries the byte at `offset` in this role.
    pub(crate) fn carrier_of(&self, role: Role, offset: u64) -> Option<&Carrier> {
        self.carriers.iter().find(|carrier| carrier.role == role && carrier.run.contains(offset))
    }

    /// Advances `reached` over streams that are fully acknowledged.
    fn reach(&mut self) {
        loop {
            let acknowledged = self.carriers.iter().filter(|carrier| carrier.acknowledged);
            let onward = acknowledged.filter(|carrier| carrier.run.start <= self.reached);
            match onward.map(|carrier| carrier.run.end).max() {
                Some(end) if end > self.reached => self.reached = end,
                _ => return,
            }
        }
    }

    /// Records that a run was lost.
    pub(crate) fn lose(&mut self, run: Run) {
        let full = self.lost.len() >= MAX_LOST;
        let near = self.lost.iter_mut().find(|known| known.start <= run.end && run.start <= known.end);
        match near {
            Some(known) => *known = Run { start: known.start.min(run.start), end: known.end.max(run.end) },
            None if !full => self.lost.push(run),
            None => {
                if let Some(last) = self.lost.last_mut() {
                    *last = Run { start: last.start.min(run.start), end: last.end.max(run.end) };
                }
            }
        }
    }

    /// Returns whether the peer's report about the message on the wire is about this part of it.
    pub(crate) fn awaits_report(&self) -> bool {
        self.report && self.part.is_none_or(|part| part.last)
    }

    /// Returns whether nothing of it has been given to a stream.
    pub(crate) fn is_new(&self) -> bool {
        self.carriers.is_empty() && self.reached == 0
    }

    /// Returns whether some stream carries a copy besides the main one.
    pub(crate) fn is_copied(&self) -> bool {
        self.carriers.iter().any(|carrier| matches!(carrier.role, Role::Copy(_)))
    }
}

/// All messages of a session that are being sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    slots: Vec<(u32, Option<Outgoing>)>,
    vacant: Vec<u32>,
    // This end chose all keys, in sequence, so a peer cannot insert colliding ones.
    by_id: FxHashMap<MessageId, Key>,
    by_stream: FxHashMap<StreamId, Key>,
    next_number: u64,
    /// Messages handed over part by part: as many as their owner begins.
    longs: FxHashMap<LongId, Long>,
    next_long: u64,
    /// Streams that may carry another message ([`StreamUse::Reuse`](crate::StreamUse)), and in
    /// `awaiting` those that may once their DONE arrives. As many as the peer lets us open.
    idle: VecDeque<StreamId>,
    awaiting: BTreeSet<StreamId>,
}

impl Outbox {
    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn insert(&mut self, message: Outgoing) -> Key {
        let id = message.id;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            // The slots are bounded by `max_unfinished` and by the Conductor's limit.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let (tenant, place) = &mut self.slots[slot as usize];
        *place = Some(message);
        let key = Key { slot, tenant: *tenant };
        self.by_id.insert(id, key);
        key
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Outgoing> {
        let (tenant, message) = self.slots.get(key.slot as usize)?;
        message.as_ref().filter(|_| *tenant == key.tenant)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Outgoing> {
        let (tenant, message) = self.slots.get_mut(key.slot as usize)?;
        message.as_mut().filter(|_| *tenant == key.tenant)
    }

    /// All messages, with their keys.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut Outgoing)> {
        (0u32..)
            .zip(&mut self.slots)
            .filter_map(|(slot, (tenant, message))| Some((Key { slot, tenant: *tenant }, message.as_mut()?)))
    }

    pub(crate) fn find(&self, id: MessageId) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn carried_by(&self, stream: StreamId) -> Option<Key> {
        self.by_stream.get(&stream).copied()
    }

    /// Returns the message's number on the wire, and assigns one if necessary.
    pub(crate) fn number(&mut self, key: Key) -> Option<MessageNumber> {
        let message = self.get(key)?;
        let (part, priority) = (message.part, message.priority);
        if let Some(number) = message.number {
            return Some(number);
        }
        let known = part.and_then(|part| self.longs.get(&part.long)?.announced);
        let number = known.map_or(MessageNumber(self.next_number), |(number, _)| number);
        if known.is_none() {
            self.next_number += 1;
            if let Some(long) = part.and_then(|part| self.longs.get_mut(&part.long)) {
                long.announced = Some((number, priority));
            }
        }
        self.get_mut(key)?.number = Some(number);
        Some(number)
    }

    /// Priority that the frames of a message carry: that of its first. docs/wire.md, "Frames".
    pub(crate) fn announced_priority(&self, key: Key) -> Option<Priority> {
        let message = self.get(key)?;
        let long = message.part.and_then(|part| self.longs.get(&part.long)?.announced);
        Some(long.map_or(message.priority, |(_, priority)| priority))
    }

    /// Begins a message that is handed over part by part.
    pub(crate) fn begin_long(&mut self) -> LongId {
        let id = LongId(self.next_long);
        self.next_long += 1;
        self.longs.insert(id, Long::default());
        id
    }

    /// Offset at which the next part begins; `None` if no part may follow.
    pub(crate) fn next_part(&self, long: LongId) -> Option<Bytes> {
        self.longs.get(&long).filter(|known| !known.over).map(|known| known.len)
    }

    /// Parts that are not wholly acknowledged, in order.
    pub(crate) fn parts(&self, long: LongId) -> &[MessageId] {
        self.longs.get(&long).map_or(&[], |long| &long.parts)
    }

    /// Records a part.
    pub(crate) fn add_part(&mut self, part: Part, id: MessageId, len: Bytes) {
        let Some(long) = self.longs.get_mut(&part.long) else { return };
        long.len += len;
        long.over = part.last;
        long.parts.push(id);
    }

    /// Ends a message that is handed over part by part. Returns its number on the wire, if it has
    /// one, and its unacknowledged parts.
    pub(crate) fn end_long(&mut self, id: LongId) -> (Option<MessageNumber>, Vec<MessageId>) {
        let Some(long) = self.longs.get_mut(&id) else { return Default::default() };
        long.over = true;
        let (number, parts) = (long.announced.map(|(number, _)| number), std::mem::take(&mut long.parts));
        self.longs.remove(&id);
        (number, parts)
    }

    pub(crate) fn add_carrier(&mut self, key: Key, carrier: Carrier) {
        let stream = carrier.stream;
        if let Some(message) = self.get_mut(key) {
            message.carriers.push(carrier);
            self.by_stream.insert(stream, key);
        }
    }

    /// Records that a stream and its end were acknowledged. Returns the streams that carry only
    /// data no longer needed, and whether all of the message is acknowledged.
    pub(crate) fn acknowledge(&mut self, key: Key, stream: StreamId) -> (Vec<StreamId>, bool) {
        let Some(message) = self.get_mut(key) else { return Default::default() };
        if let Some(carrier) = message.carrier_mut(stream) {
            carrier.acknowledged = true;
        }
        message.reach();
        let (reached, complete) = (message.reached, message.reached >= message.len());
        message.lost.retain(|run| run.end > reached);
        let done = |carrier: &mut Carrier| carrier.run.end <= reached;
        let mut losers = Vec::new();
        for carrier in message.carriers.extract_if(.., done).collect::<Vec<_>>() {
            self.by_stream.remove(&carrier.stream);
            if !carrier.acknowledged {
                losers.push(carrier.stream);
            }
        }
        (losers, complete)
    }

    /// Removes a stream from its message.
    pub(crate) fn remove_carrier(&mut self, stream: StreamId) -> Option<Carrier> {
        let key = self.by_stream.remove(&stream)?;
        let message = self.get_mut(key)?;
        let at = message.carriers.iter().position(|carrier| carrier.stream == stream)?;
        Some(message.carriers.remove(at))
    }

    /// Removes all streams, which the engine has discarded with what was written to them. Returns
    /// each message that had one, with its priority and the end of the data written.
    pub(crate) fn rewind(&mut self) -> Vec<(Key, Priority, u64)> {
        self.by_stream.clear();
        self.idle.clear();
        self.awaiting.clear();
        let mut begun = Vec::new();
        for (key, message) in self.iter_mut().filter(|(_, message)| !message.carriers.is_empty()) {
            let written = message.carriers.drain(..).map(|carrier| carrier.written).max();
            begun.push((key, message.priority, message.number, written.unwrap_or(0)));
        }
        begun.sort_by_key(|(.., number, _)| *number);
        begun.into_iter().map(|(key, priority, _, written)| (key, priority, written)).collect()
    }

    /// Number of messages on a stream.
    pub(crate) fn begun(&self) -> usize {
        let messages = self.slots.iter().filter_map(|(_, message)| message.as_ref());
        messages.filter(|message| !message.carriers.is_empty()).count()
    }

    /// Takes a stream that may carry another message.
    pub(crate) fn idle_stream(&mut self) -> Option<StreamId> {
        self.idle.pop_front()
    }

    /// Records that the message of this stream is settled and its own DONE is still outstanding.
    pub(crate) fn await_done(&mut self, stream: StreamId) {
        self.awaiting.insert(stream);
    }

    /// Records a DONE on this stream.
    pub(crate) fn done(&mut self, stream: StreamId) {
        if self.awaiting.remove(&stream) {
            self.idle.push_back(stream);
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Outgoing> {
        self.get(key)?;
        let (tenant, place) = self.slots.get_mut(key.slot as usize)?;
        let message = place.take()?;
        *tenant = tenant.wrapping_add(1);
        self.vacant.push(key.slot);
        self.by_id.remove(&message.id);
        for carrier in &message.carriers {
            self.by_stream.remove(&carrier.stream);
        }
        if let Some(part) = message.part
            && let Some(long) = self.longs.get_mut(&part.long)
        {
            long.parts.retain(|id| *id != message.id);
            if long.over && long.parts.is_empty() {
                self.longs.remove(&part.long);
            }
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_sched::conductor::{Conductor, Config, Message};
    use marcato_units::{Bytes, Time};
    use noq_proto::{Dir, Side};

    fn message(len: usize) -> Outgoing {
        let mut conductor = Conductor::new(Config::default()).unwrap();
        let offered = Message::new(Bytes::new(len as u64), Priority::P0);
        let id = conductor.offer(Time::ZERO, offered).unwrap();
        Outgoing {
            id,
            number: None,
            body: vec![0; len].into(),
            priority: Priority::P0,
            carriers: Vec::new(),
            fed: false,
            reached: 0,
            lost: Vec::new(),
            part: None,
            unreliable: false,
            report: false,
            exchange: Exchange::None,
        }
    }

    fn carrier(index: u64, role: Role, start: u64, end: u64, acknowledged: bool) -> Carrier {
        Carrier {
            stream: StreamId::new(Side::Client, Dir::Uni, index),
            role,
            run: Run { start, end },
            written: end,
            header: Payload::new(),
            acknowledged,
            ended: false,
        }
    }

    #[test]
    fn a_message_is_acknowledged_when_the_streams_that_are_cover_it() {
        let mut outbox = Outbox::default();
        let key = outbox.insert(message(1000));
        for (index, role, start, end) in
            [(0, Role::Main, 600, 1000), (1, Role::Repair, 0, 500), (2, Role::Repair, 450, 700)]
        {
            outbox.add_carrier(key, carrier(index, role, start, end, false));
        }
        let stream = |index| StreamId::new(Side::Client, Dir::Uni, index);
        assert_eq!(outbox.acknowledge(key, stream(0)), (vec![], false));
        assert_eq!(outbox.acknowledge(key, stream(1)), (vec![], false));
        assert_eq!(outbox.carried_by(stream(1)), None);
        assert_eq!(outbox.acknowledge(key, stream(2)), (vec![], true));
    }

    #[test]
    fn a_copy_of_what_has_been_acknowledged_is_wanted_no_more() {
        let mut outbox = Outbox::default();
        let key = outbox.insert(message(1000));
        outbox.add_carrier(key, carrier(0, Role::Main, 0, 600, false));
        outbox.add_carrier(key, carrier(1, Role::Copy(LaneId::FIRST), 0, 600, false));
        outbox.add_carrier(key, carrier(2, Role::Main, 600, 1000, false));
        let stream = |index| StreamId::new(Side::Client, Dir::Uni, index);
        assert_eq!(outbox.acknowledge(key, stream(1)), (vec![stream(0)], false));
        assert_eq!(outbox.acknowledge(key, stream(2)), (vec![], true));
    }

    #[test]
    fn a_long_message_goes_in_runs() {
        assert_eq!(Run::from(0, 100), Run { start: 0, end: 100 });
        assert_eq!(Run::from(0, 1 << 20), Run { start: 0, end: 128 << 10 });
        assert_eq!(Run::from(200_000, 1 << 20), Run { start: 200_000, end: 256 << 10 });
    }

    #[test]
    fn lost_runs_are_merged_and_bounded() {
        let mut outgoing = message(1);
        for start in (0..100_000).step_by(1000) {
            outgoing.lose(Run { start, end: start + 100 });
        }
        assert_eq!(outgoing.lost.len(), MAX_LOST);
        // Every lost run is covered.
        for start in (0..100_000).step_by(1000) {
            assert!(outgoing.lost.iter().any(|run| run.start <= start && start + 100 <= run.end), "{start}");
        }
    }

    #[test]
    fn rejected_messages_begin_again_in_their_order() {
        let mut outbox = Outbox::default();
        let [second, first] = [10, 20].map(|len| outbox.insert(message(len)));
        for (index, key) in [(0, first), (1, second)] {
            outbox.number(key).unwrap();
            outbox.add_carrier(key, carrier(index, Role::Main, 0, 10, false));
        }
        assert_eq!(outbox.rewind().into_iter().map(|(key, ..)| key).collect::<Vec<_>>(), [first, second]);
    }

    #[test]
    fn a_key_does_not_outlive_its_message() {
        let mut outbox = Outbox::default();
        let key = outbox.insert(message(10));
        outbox.add_carrier(key, carrier(0, Role::Main, 0, 10, false));
        let stream = StreamId::new(Side::Client, Dir::Uni, 0);
        assert_eq!(outbox.carried_by(stream), Some(key));
        assert!(outbox.remove(key).is_some());
        assert_eq!((outbox.carried_by(stream), outbox.len()), (None, 0));
        let next = outbox.insert(message(10));
        assert!(next != key && outbox.get(key).is_none() && outbox.get(next).is_some());
        assert!(outbox.remove(key).is_none());
    }
}
