//! The one question that engines ask of coupled mode: how much of a chunk may leave now.

use marcato_units::{Bytes, PrioritySet};

/// Data that waits for room in an engine, and what the engine has taken already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Levels of which data waits, lost data that has to be sent again among it.
    ///
    /// Not only the level of the next chunk: while an urgent level pays its debt, it waits for what a background
    /// level is granted.
    pub waiting: PrioritySet,
    /// Bytes in flight, and those that the engine has taken and not sent yet.
    pub outstanding: Bytes,
}

/// Part of a chunk that may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// The first so many bytes, at most all of it.
    Upto(Bytes),
    /// None. Ask again after an acknowledgement.
    Held,
}

impl Allowed {
    /// Bytes that may leave; zero if the chunk is held back.
    pub const fn bytes(self) -> Bytes {
        match self {
            Self::Upto(bytes) => bytes,
            Self::Held => Bytes::ZERO,
        }
    }

    /// Returns whether a chunk of this length may leave as a whole.
    pub fn is_whole(self, chunk: Bytes) -> bool {
        self.bytes() >= chunk
    }
}

/// Bounds on what may be outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bound for background data.
    pub background: Bytes,
    /// Bound for urgent data.
    pub urgent: Bytes,
}

impl Allowance {
    /// No bound.
    pub const UNBOUNDED: Self = Self { background: Bytes::MAX, urgent: Bytes::MAX };
}
