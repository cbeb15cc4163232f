//! Purpose of a packet, as input to lane schedulers.

use marcato_units::{Bytes, Priority};

use crate::conductor::{Pending, Redundancy};
use crate::lane::{LaneId, LaneSet};

/// New bytes of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fresh {
    /// Id of the message, as in [`Offer`](super::Offer).
    pub message: u64,
    /// Urgency of the message.
    pub priority: Priority,
    /// Offset of the packet's bytes: the number of bytes already sent.
    pub offset: Bytes,
    /// Bytes yet to be sent, this packet included.
    pub rest: Bytes,
    /// Number of lanes requested.
    pub redundancy: Redundancy,
}

impl Fresh {
    /// Creates the start of a message that travels once.
    pub const fn new(message: u64, priority: Priority, len: Bytes) -> Self {
        Self { message, priority, offset: Bytes::ZERO, rest: len, redundancy: Redundancy::Once }
    }

    /// Returns this message after `sent` more of its bytes have been sent.
    #[must_use]
    pub fn after(self, sent: Bytes) -> Self {
        Self { offset: self.offset + sent, rest: self.rest - sent, ..self }
    }
}

impl From<Pending> for Fresh {
    /// Converts the message that [`Conductor::peek`](crate::Conductor::peek) returns.
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

/// Purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Bytes that have not been sent before.
    New(Fresh),
    /// Bytes that were lost, or that are in flight on a lane that no longer responds.
    Retransmission {
        /// Urgency of the bytes.
        priority: Priority,
        /// Lane of the loss. Any lane may carry the bytes again.
        lost_on: LaneId,
    },
    /// Another copy of bytes that are in flight already.
    Duplicate {
        /// Urgency of the bytes.
        priority: Priority,
        /// Lanes that carry them; the copy takes another.
        carried: LaneSet,
    },
}

impl Purpose {
    /// Creates the purpose of new bytes.
    pub fn new(fresh: impl Into<Fresh>) -> Self {
        Self::New(fresh.into())
    }

    /// Urgency of the bytes.
    pub const fn priority(self) -> Priority {
        match self {
            Self::New(Fresh { priority, .. })
            | Self::Retransmission { priority, .. }
            | Self::Duplicate { priority, .. } => priority,
        }
    }

    /// Lanes that this packet must not take.
    pub const fn barred(self) -> LaneSet {
        match self {
            Self::Duplicate { carried, .. } => carried,
            Self::New(_) | Self::Retransmission { .. } => LaneSet::EMPTY,
        }
    }
}
