//! Properties of a message that each of its frames gives.

use marcato_units::Priority;
use marcato_wire::{EndReason, Exchange, Fate, Frame, MessageNumber};

/// Properties of a received message that each of its frames gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Sender's number for it.
    pub number: MessageNumber,
    /// Priority given by the sender.
    pub priority: Priority,
    /// Set if the sender asks for a [`Report`] about it.
    pub report: bool,
    /// Part of it in an exchange.
    pub exchange: Exchange,
    /// Set if bytes of it have arrived early.
    pub early: bool,
}

impl Head {
    /// Head of a message without further properties.
    pub const fn new(number: MessageNumber, priority: Priority) -> Self {
        Self { number, priority, report: false, exchange: Exchange::None, early: false }
    }

    /// Returns this head with `report`.
    #[must_use]
    pub const fn with_report(self, report: bool) -> Self {
        Self { report, ..self }
    }

    /// Returns this head with `early`.
    #[must_use]
    pub const fn with_early(self, early: bool) -> Self {
        Self { early, ..self }
    }

    /// Returns this head with this part in an exchange.
    #[must_use]
    pub const fn with_exchange(self, exchange: Exchange) -> Self {
        Self { exchange, ..self }
    }
}

/// Small frame about a message or an exchange, which a receiver sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Report about a message.
    Report(Report),
    /// End of an exchange without a reply.
    End {
        /// Number of the exchange.
        exchange: u64,
        /// Reason for its end.
        reason: EndReason,
    },
    /// The peer shall hold the messages of a level, or release them.
    Hold {
        /// Level concerned.
        priority: Priority,
        /// Set to hold the level.
        held: bool,
    },
}

impl Answer {
    /// Frame of this answer.
    pub const fn frame(&self) -> Frame {
        match *self {
            Self::Report(Report { number, fate }) => Frame::Report { id: number, fate },
            Self::End { exchange, reason } => Frame::End { exchange, reason },
            Self::Hold { priority, held } => Frame::Hold { priority, held },
        }
    }
}

/// Report that a receiver owes to the sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Sender's number for the message.
    pub number: MessageNumber,
    /// Fate of the message at the application.
    pub fate: Fate,
}
