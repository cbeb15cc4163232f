//! What the application hands over, and what it gets back.

use core::fmt;
use core::time::Duration;

use marcato_units::{Bytes, Priority};

/// What the Conductor has to know about a unit that the application sends: everything but its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Its length; at least one byte.
    pub len: Bytes,
    /// How much it matters.
    pub priority: Priority,
    /// How long after the offer it is still worth sending; `None` for ever. It expires *after* this span: with
    /// [`Duration::ZERO`] it goes at the instant of the offer or never. A message of which bytes have left is
    /// finished all the same, unless it [allows partial delivery](Self::partial_ok).
    pub lifetime: Option<Duration>,
    /// On how many lanes it travels. The Conductor hands this through to the lane scheduler.
    pub redundancy: Redundancy,
    /// Whether a part of it is worth something to the receiver (allows partial delivery). Only then may its rest be
    /// discarded, expired or shed after its first bytes have left; otherwise those bytes would be wasted.
    pub partial_ok: bool,
}

impl Message {
    /// A message that never expires, travels once and is only of use when whole.
    pub const fn new(len: Bytes, priority: Priority) -> Self {
        Self { len, priority, lifetime: None, redundancy: Redundancy::Once, partial_ok: false }
    }

    /// The same message, worth sending for `lifetime` only.
    #[must_use]
    pub const fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime: Some(lifetime), ..self }
    }

    /// The same message with this redundancy.
    #[must_use]
    pub const fn with_redundancy(self, redundancy: Redundancy) -> Self {
        Self { redundancy, ..self }
    }

    /// The same message, of which a part is worth something to the receiver.
    #[must_use]
    pub const fn allowing_partial_delivery(self) -> Self {
        Self { partial_ok: true, ..self }
    }
}

/// On how many lanes a message travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Redundancy {
    /// On one.
    #[default]
    Once,
    /// Whole on every lane that can take it; the first copy to arrive counts (CWR's redundant variant).
    EveryLane,
}

/// The name of a message in one Conductor. It is never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u64);

impl MessageId {
    /// 2^24 slots and 2^40 messages in each: a slot that has used up its names is retired.
    const SLOT_BITS: u32 = 24;
    /// More messages at once than any Conductor holds.
    pub(super) const MAX_SLOTS: u32 = 1 << Self::SLOT_BITS;
    /// The last generation of a slot.
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

    /// The name as a number, for maps and logs. It means nothing to another Conductor.
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
    /// Whose bytes.
    pub message: MessageId,
    /// Where in the message they begin.
    pub offset: Bytes,
    /// How many they are: the budget or the rest of the message, whichever is less; never none.
    pub len: Bytes,
    /// The level that the bytes were taken from.
    pub priority: Priority,
    /// Whether they are the message's last.
    pub fin: bool,
}

/// A message that waits, or of which a part waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    /// Its name.
    pub message: MessageId,
    /// Its present level.
    pub priority: Priority,
    /// Its whole length.
    pub len: Bytes,
    /// How much of it has been granted.
    pub sent: Bytes,
    /// On how many lanes it travels.
    pub redundancy: Redundancy,
}

impl Pending {
    /// How much of it has yet to be granted.
    pub fn rest(&self) -> Bytes {
        self.len - self.sent
    }
}

/// How far a cancelled message had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelOutcome {
    /// None of it had been granted: the receiver will never hear of it.
    Unsent,
    /// Its first `sent` bytes had been granted: the receiver has to be told that no more will come.
    PartSent {
        /// How much had been granted; at least one byte, less than the whole.
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
