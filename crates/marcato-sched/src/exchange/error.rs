//! Errors of an exchange, one enum per operation.

use marcato_units::Bytes;
use thiserror::Error;

use crate::conductor::DebtError;

/// Error returned for an invalid configuration of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The rules of debt would starve a level.
    #[error(transparent)]
    Debt(#[from] DebtError),
    /// A turn of no bytes would never end.
    #[error("`turn` is zero: set it to the bytes that an incremental response sends in a turn")]
    TurnIsZero,
}

/// Error returned when a response is not opened. Nothing of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The stream has an open response.
    #[error("the stream has an open response: close that one first")]
    AlreadyOpen,
    /// The limit of open responses is reached.
    #[error("{limit} responses are open already: reset this stream, or close a response")]
    TooMany {
        /// Most responses open at once.
        limit: usize,
    },
    /// The id of the stream is 2^62 or more.
    #[error("the id of a stream is below 2^62: number the streams from 0")]
    IdTooLarge,
}

/// Error returned when a weight is not set. The group keeps the one that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WeightError {
    /// The limit of groups with weights is reached.
    #[error("{limit} groups have weights already: set the default weight for one that has ended")]
    TooMany {
        /// Most groups that have a weight other than the default.
        limit: usize,
    },
}

/// Error returned when bytes are not accepted. None of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SupplyError {
    /// The response has been finished.
    #[error("the response is finished: supply its bytes before that")]
    Finished,
    /// More bytes would be staged than the limit.
    #[error("more than {limit} would be staged: supply the bytes after some have been granted")]
    TooMuch {
        /// Most bytes staged for one response.
        limit: Bytes,
    },
}

/// Error returned when more bytes are booked as sent than are outstanding. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("only {outstanding} of the response are outstanding: report each byte once")]
pub struct SentError {
    /// Bytes granted and not yet reported.
    pub outstanding: Bytes,
}

/// Error returned when a grant cannot be taken back. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RefuseError {
    /// It is not the latest grant, has been refused before, or its response has since been closed.
    #[error("only the latest grant can be refused, once, and only while its response is open")]
    NotTheLatest,
    /// The bytes taken exceed the grant.
    #[error("{taken} is more than the grant of {granted}: refuse with the bytes that the transport took")]
    TakenExceedsGrant {
        /// Bytes that the transport took, according to the caller.
        taken: Bytes,
        /// Length of the grant.
        granted: Bytes,
    },
    /// Bytes to be taken back have been reported as sent.
    #[error("bytes of the grant have been reported as sent: refuse a grant before that")]
    Sent,
}
