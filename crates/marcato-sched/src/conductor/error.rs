//! Why the Conductor says no: one enum per operation.

use marcato_units::{Bytes, Priority};
use thiserror::Error;

/// Why a message was not accepted. Nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OfferError {
    /// It has no bytes. A grant is never empty, so nothing would ever announce its end.
    #[error("a message needs at least one byte")]
    Empty,
    /// It is longer than all that may wait at once.
    #[error("the message is longer than the {limit} that may wait at once: split it or raise `max_queued`")]
    TooLong {
        /// The most bytes that may wait.
        limit: Bytes,
    },
    /// As many messages wait as may at its level, and none of them is less urgent and may be dropped.
    #[error("{limit} messages wait already: offer again after some have been granted, or shed some")]
    TooManyMessages {
        /// The most messages that may wait when one of this level is offered.
        limit: usize,
    },
    /// With it, more bytes would wait than may at its level, even if all that is less urgent and may be dropped were.
    #[error("more than {limit} would wait: offer again after some have been granted, or shed some")]
    TooManyBytes {
        /// The most bytes that may wait when a message of this level is offered.
        limit: Bytes,
    },
    /// Its level is being discarded (Save-Data).
    #[error("messages less urgent than {threshold} are being discarded: offer it at {threshold} or drop it")]
    Discarding {
        /// The least urgent level that is accepted.
        threshold: Priority,
    },
}

/// Why a grant could not be taken back. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RefuseError {
    /// It is not the latest grant, has been refused before, or its message has since been moved or removed.
    #[error("only the latest grant can be refused, once, and while its message is where it was")]
    NotTheLatest,
    /// More was taken than granted.
    #[error("{taken} cannot have been taken of a grant of {granted}")]
    TakenExceedsGrant {
        /// What the caller says the engine took.
        taken: Bytes,
        /// The length of the grant.
        granted: Bytes,
    },
}

/// Why a message could not change its level. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReprioritiseError {
    /// No byte of such a message waits: it was granted whole, removed, or never offered here.
    #[error("nothing of this message waits: forget its id")]
    Unknown,
    /// The new level is being discarded (Save-Data).
    #[error("messages less urgent than {threshold} are being discarded: cancel it or keep it at {threshold}")]
    Discarding {
        /// The least urgent level that is accepted.
        threshold: Priority,
    },
}

/// Why a message could not be cancelled. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CancelError {
    /// No byte of such a message waits: it was granted whole, removed, or never offered here.
    #[error("nothing of this message waits: forget its id")]
    Unknown,
}
