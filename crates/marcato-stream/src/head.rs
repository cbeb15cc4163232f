//! Properties of a message that each of its frames gives.

use marcato_units::Priority;
use marcato_wire::{Fate, MessageNumber};

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
}

impl Head {
    /// Head of a message without further properties.
    pub const fn new(number: MessageNumber, priority: Priority) -> Self {
        Self { number, priority, report: false }
    }

    /// Returns this head with `report`.
    #[must_use]
    pub const fn with_report(self, report: bool) -> Self {
        Self { report, ..self }
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
