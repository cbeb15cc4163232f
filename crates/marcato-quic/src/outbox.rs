//! Messages that are being sent: their bytes, and the streams that carry them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};

use bytes::Bytes as Payload;
use marcato_sched::conductor::MessageId;
use marcato_sched::lane::LaneId;
use marcato_units::Priority;
use marcato_wire::MessageNumber;
use noq_proto::StreamId;

/// A map whose order is the same in each run, should anybody ever go through it.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// A message within the outbox: a slot, and which of its tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    slot: u32,
    tenant: u32,
}

/// Bytes of one message, from `start` up to but without `end`.
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

/// The most that one stream carries of a message. The engine looks through all that it holds of a stream for each
/// packet; with a long message on one stream its cost would grow with the window.
const LONGEST_RUN: u64 = 128 << 10;

impl Run {
    /// The run of a message of `len` bytes in which `offset` lies, of those that go on a stream each.
    pub(crate) fn around(offset: u64, len: u64) -> Self {
        let start = offset - offset % LONGEST_RUN;
        Self { start, end: len.min(start + LONGEST_RUN) }
    }

    pub(crate) const fn contains(self, offset: u64) -> bool {
        self.start <= offset && offset < self.end
    }
}

/// What a stream carries for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A run of it, in the first place.
    Main,
    /// The same run once more, on the lane that it stays on; until something could not be sent twice.
    Copy(LaneId),
    /// A run that got stuck elsewhere.
    Repair,
}

/// A stream that carries a message, or a run of it.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) stream: StreamId,
    pub(crate) role: Role,
    /// What it will carry.
    pub(crate) run: Run,
    /// How far it has been written.
    pub(crate) written: u64,
    /// The frame's header, as far as it has not been written.
    pub(crate) header: Payload,
    /// Nothing more will be written to it.
    pub(crate) ended: bool,
}

/// A message that is being sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: MessageId,
    /// Its number on the wire, once its first byte has left.
    pub(crate) number: Option<MessageNumber>,
    pub(crate) body: Payload,
    pub(crate) priority: Priority,
    pub(crate) carriers: Vec<Carrier>,
    /// Bytes of runs that have been acknowledged as a whole.
    pub(crate) acked: u64,
    /// Everything has been granted.
    pub(crate) fed: bool,
}

impl Outgoing {
    pub(crate) fn len(&self) -> u64 {
        self.body.len() as u64
    }

    /// The stream that carries these bytes in this role.
    pub(crate) fn carrier_of(&self, role: Role, offset: u64) -> Option<&Carrier> {
        self.carriers.iter().find(|carrier| carrier.role == role && carrier.run.contains(offset))
    }

    pub(crate) fn carrier_mut(&mut self, stream: StreamId) -> Option<&mut Carrier> {
        self.carriers.iter_mut().find(|carrier| carrier.stream == stream)
    }

    /// Whether a copy of it is on its way besides the main one.
    pub(crate) fn is_copied(&self) -> bool {
        self.carriers.iter().any(|carrier| matches!(carrier.role, Role::Copy(_)))
    }
}

/// All messages of a session that are being sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    slots: Vec<(u32, Option<Outgoing>)>,
    vacant: Vec<u32>,
    by_id: Map<MessageId, Key>,
    by_stream: Map<StreamId, Key>,
    next_number: u64,
    /// Streams that may carry another message ([`StreamUse::Reuse`](crate::StreamUse)), and those that may once their
    /// DONE has come back. As many as the peer lets us open.
    idle: VecDeque<StreamId>,
    awaiting: BTreeSet<StreamId>,
}

impl Outbox {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn insert(&mut self, message: Outgoing) -> Key {
        let id = message.id;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            // Bounded by `max_unfinished` and by what the Conductor holds.
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

    pub(crate) fn find(&self, id: MessageId) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn carried_by(&self, stream: StreamId) -> Option<Key> {
        self.by_stream.get(&stream).copied()
    }

    /// Gives a message its number, if it has none.
    pub(crate) fn number(&mut self, key: Key) -> Option<MessageNumber> {
        let next = MessageNumber(self.next_number);
        let message = self.get_mut(key)?;
        if let Some(number) = message.number {
            return Some(number);
        }
        message.number = Some(next);
        self.next_number += 1;
        Some(next)
    }

    pub(crate) fn add_carrier(&mut self, key: Key, carrier: Carrier) {
        let stream = carrier.stream;
        if let Some(message) = self.get_mut(key) {
            message.carriers.push(carrier);
            self.by_stream.insert(stream, key);
        }
    }

    /// A stream and its end have been acknowledged. Gives the streams that carried the same run, which is wanted no
    /// more, and whether that was the last of the message.
    pub(crate) fn acknowledge(&mut self, key: Key, stream: StreamId) -> (Vec<StreamId>, bool) {
        self.by_stream.remove(&stream);
        let Some(message) = self.get_mut(key) else { return Default::default() };
        let Some(at) = message.carriers.iter().position(|carrier| carrier.stream == stream) else {
            return Default::default();
        };
        let Carrier { role, run, .. } = message.carriers.swap_remove(at);
        if role == Role::Repair {
            // The receiver says when it has the rest as well.
            return Default::default();
        }
        message.acked += run.len();
        let complete = message.acked == message.len();
        let same = |carrier: &mut Carrier| carrier.role != Role::Repair && carrier.run == run;
        let losers = message.carriers.extract_if(.., same).map(|carrier| carrier.stream).collect::<Vec<_>>();
        for loser in &losers {
            self.by_stream.remove(loser);
        }
        (losers, complete)
    }

    /// A stream that may carry another message.
    pub(crate) fn idle_stream(&mut self) -> Option<StreamId> {
        self.idle.pop_front()
    }

    /// The message of this stream is settled, but its own DONE has not come yet.
    pub(crate) fn await_done(&mut self, stream: StreamId) {
        self.awaiting.insert(stream);
    }

    /// A DONE has come on this stream.
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
        Some(message)
    }
}
