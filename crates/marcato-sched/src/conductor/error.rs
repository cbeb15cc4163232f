//! Errors of the Conductor, one enum per operation.

use marcato_units::{Bytes, Priority};
use thiserror::Error;

/// Error returned when a message is not accepted. Nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OfferError {
    /// The message has no bytes. A grant is never empty, so nothing would announce its end.
    #[error("a message needs at least one byte")]
    Empty,
    /// The message is longer than the limit of all queued bytes.
    #[error("the message is longer than the limit of {limit} in the queue: split it or raise `max_queued`")]
    TooLong {
        /// Most bytes queued at once.
        limit: Bytes,
    },
    /// The queue is full for messages of this level, and no less urgent message may be dropped.
    #[error("{limit} messages are queued already: offer again after some have been granted, or shed some")]
    TooManyMessages {
        /// Most messages queued when one of this level is offered.
        limit: usize,
    },
    /// The byte limit for this level would be exceeded, even if every less urgent message that may
    /// be dropped were.
    #[error("more than {limit} would be queued: offer again after some have been granted, or shed some")]
    TooManyBytes {
        /// Most bytes queued when a message of this level is offered.
        limit: Bytes,
    },
    /// The level is being discarded (Save-Data).
    #[error("messages less urgent than {threshold} are being discarded: offer it at {threshold} or drop it")]
    Discarding {
        /// Least urgent level that is accepted.
        threshold: Priority,
    },
}

/// Error returned when a grant cannot be taken back. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RefuseError {
    /// It is not the latest grant, has been refused before, or its message has since been moved or
    /// removed.
    #[error(
        "only the latest grant can be refused, once, and only while its message has not been moved or removed"
    )]
    NotTheLatest,
    /// The bytes taken exceed the grant.
    #[error("{taken} is more than the grant of {granted}: refuse with the bytes that the engine took")]
    TakenExceedsGrant {
        /// Bytes that the engine took, according to the caller.
        taken: Bytes,
        /// Length of the grant.
        granted: Bytes,
    },
}

/// Error returned when a message cannot change its level. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReprioritiseError {
    /// No byte of this message is queued: it was granted whole, removed, or never offered here.
    #[error("no byte of this message is queued: forget its id")]
    Unknown,
    /// The new level is being discarded (Save-Data).
    #[error("messages less urgent than {threshold} are being discarded: cancel it or keep it at {threshold}")]
    Discarding {
        /// Least urgent level that is accepted.
        threshold: Priority,
    },
}

/// Error returned when a message cannot be cancelled. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CancelError {
    /// No byte of this message is queued: it was granted whole, removed, or never offered here.
    #[error("no byte of this message is queued: forget its id")]
    Unknown,
}
