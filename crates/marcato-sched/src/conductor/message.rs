//! Messages, their ids, and grants.

use core::fmt;
use core::time::Duration;

use marcato_units::{Bytes, Priority};

/// Description of a unit that the application sends, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Length; at least one byte.
    pub len: Bytes,
    /// Urgency, which selects the level.
    pub priority: Priority,
    /// Time after the offer during which it is worth sending; `None` for no limit. It expires
    /// *after* this span: with [`Duration::ZERO`] it is granted at the instant of the offer or
    /// never. A partly sent message is finished all the same, unless it [allows partial
    /// delivery](Self::partial_ok).
    pub lifetime: Option<Duration>,
    /// Number of lanes it travels on. The Conductor passes this through to the lane scheduler.
    pub redundancy: Redundancy,
    /// True if a part of it is useful to the receiver (allows partial delivery). Only then may its
    /// rest be discarded, expired or shed after its first bytes have been granted; otherwise those
    /// bytes would be wasted.
    pub partial_ok: bool,
}

impl Message {
    /// Creates a message that never expires, travels once and is only useful when whole.
    pub const fn new(len: Bytes, priority: Priority) -> Self {
        Self { len, priority, lifetime: None, redundancy: Redundancy::Once, partial_ok: false }
    }

    /// Limits the time for which the message is worth sending.
    #[must_use]
    pub const fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime: Some(lifetime), ..self }
    }

    /// Sets the redundancy.
    #[must_use]
    pub const fn with_redundancy(self, redundancy: Redundancy) -> Self {
        Self { redundancy, ..self }
    }

    /// Declares a part of the message useful to the receiver.
    #[must_use]
    pub const fn allowing_partial_delivery(self) -> Self {
        Self { partial_ok: true, ..self }
    }
}

/// Number of lanes that a message travels on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Redundancy {
    /// One lane.
    #[default]
    Once,
    /// Whole on every lane that can take it; the first copy to arrive counts (CWR's redundant
    /// variant).
    EveryLane,
}

/// Identifier of a message in one Conductor, never assigned twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u64);

impl MessageId {
    /// 2^24 slots and 2^40 messages in each: a slot whose ids are exhausted is retired.
    const SLOT_BITS: u32 = 24;
    /// More messages than any Conductor holds at once.
    pub(super) const MAX_SLOTS: u32 = 1 << Self::SLOT_BITS;
    /// Last generation of a slot.
    pub(super) const LAST_GENERATION: u64 = (1 << (64 - Self::SLOT_BITS)) - 1;

    pub(super) const fn new(slot: u32, generation: u64) -> Self {
        Self((generation << Self::SLOT_BITS) | slot as u64)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the slot")]
    pub(super) const fn slot(self) -> u32 {
        self.0 as u32 & (Self::MAX_SLOTS - 1)
    }

    pub(super) const fn generation(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }

    /// Returns the id as a number, for maps and logs. It means nothing to another Conductor.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({}.{})", self.slot(), self.generation())
    }
}

/// One chunk of one message, to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Message that the bytes belong to.
    pub message: MessageId,
    /// Offset of the first byte in the message.
    pub offset: Bytes,
    /// Number of bytes: the budget or the rest of the message, whichever is less; at least one.
    pub len: Bytes,
    /// Level that the bytes were taken from.
    pub priority: Priority,
    /// True for the last bytes of the message.
    pub fin: bool,
}

/// Message that is queued, in whole or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    /// Id of the message.
    pub message: MessageId,
    /// Present level.
    pub priority: Priority,
    /// Length of the whole message.
    pub len: Bytes,
    /// Bytes granted so far.
    pub sent: Bytes,
    /// Number of lanes it travels on.
    pub redundancy: Redundancy,
}

impl Pending {
    /// Returns the number of bytes yet to be granted.
    pub fn rest(&self) -> Bytes {
        self.len - self.sent
    }
}

/// Progress of a message when it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelOutcome {
    /// No byte had been granted: the receiver will never see the message.
    Unsent,
    /// The first `sent` bytes had been granted: tell the receiver that no more will come.
    PartSent {
        /// Bytes granted; at least one, and fewer than the whole.
        sent: Bytes,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_keeps_its_slot_and_generation() {
        for (slot, generation) in
            [(0, 0), (MessageId::MAX_SLOTS - 1, MessageId::LAST_GENERATION), (5, 1 << 33)]
        {
            let id = MessageId::new(slot, generation);
            assert_eq!((id.slot(), id.generation()), (slot, generation));
        }
    }
}
