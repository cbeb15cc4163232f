//! What a packet is for.

use marcato_units::{Bytes, Priority};

use crate::conductor::{Pending, Redundancy};
use crate::lane::{LaneId, LaneSet};

/// New bytes of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fresh {
    /// The name of the message, as in [`Offer`](super::Offer).
    pub message: u64,
    /// How much it matters.
    pub priority: Priority,
    /// How much of it has left: where the packet's bytes begin.
    pub offset: Bytes,
    /// How much of it has yet to leave, this packet included.
    pub rest: Bytes,
    /// On how many lanes it should travel.
    pub redundancy: Redundancy,
}

impl Fresh {
    /// The beginning of a message that travels once.
    pub const fn new(message: u64, priority: Priority, len: Bytes) -> Self {
        Self { message, priority, offset: Bytes::ZERO, rest: len, redundancy: Redundancy::Once }
    }

    /// The same message after `sent` more of its bytes have left.
    #[must_use]
    pub fn after(self, sent: Bytes) -> Self {
        Self { offset: self.offset + sent, rest: self.rest - sent, ..self }
    }
}

impl From<Pending> for Fresh {
    /// What [`Conductor::peek`](crate::Conductor::peek) says would be granted next.
    fn from(pending: Pending) -> Self {
        Self {
            message: pending.message.get(),
            priority: pending.priority,
            offset: pending.sent,
            rest: pending.rest(),
            redundancy: pending.redundancy,
        }
    }
}

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Bytes that have not been sent before.
    New(Fresh),
    /// Bytes that were lost, or that are stuck on a lane that no longer answers.
    Retransmission {
        /// How much they matter.
        priority: Priority,
        /// Where they were lost. Any lane may carry them again.
        lost_on: LaneId,
    },
    /// One more copy of bytes that are under way already.
    Duplicate {
        /// How much they matter.
        priority: Priority,
        /// The lanes that carry them; the copy takes another.
        carried: LaneSet,
    },
}

impl Purpose {
    /// New bytes of a message.
    pub fn new(fresh: impl Into<Fresh>) -> Self {
        Self::New(fresh.into())
    }

    /// How much the bytes matter.
    pub const fn priority(self) -> Priority {
        match self {
            Self::New(Fresh { priority, .. })
            | Self::Retransmission { priority, .. }
            | Self::Duplicate { priority, .. } => priority,
        }
    }

    /// The lanes that this packet must not take.
    pub(super) const fn barred(self) -> LaneSet {
        match self {
            Self::Duplicate { carried, .. } => carried,
            Self::New(_) | Self::Retransmission { .. } => LaneSet::EMPTY,
        }
    }
}
