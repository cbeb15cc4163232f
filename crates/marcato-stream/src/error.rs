//! Errors of sending, and the ends of messages and connections.

use marcato_sched::conductor;
use marcato_units::{Bytes, Priority};

use crate::{Cause, CloseReason};

/// Reason for which a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// This end closed it.
    #[error("this end has closed the connection")]
    Local,
    /// The peer closed it, after all that it had to send.
    #[error("the peer has closed the connection{0}")]
    ByPeer(CloseReason),
    /// The peer's application aborted it, with a code: messages may be lost.
    #[error("the peer has aborted the connection{0}")]
    Aborted(CloseReason),
    /// The peer sends no more messages. The connection goes on; only receiving ends with this.
    #[error("the peer sends no more messages")]
    Finished,
    /// The peer or the network aborted it, or the peer violated the protocol or a limit.
    #[error("the connection was lost: {reason}")]
    Lost {
        /// Cause, for a program.
        cause: Cause,
        /// Reason, as text.
        reason: String,
    },
}

impl Closed {
    /// Loss for this cause.
    pub fn lost(cause: Cause, reason: impl Into<String>) -> Self {
        Self::Lost { cause, reason: reason.into() }
    }

    /// Cause of a loss; `None` if one end's application closed the connection.
    pub const fn cause(&self) -> Option<Cause> {
        match self {
            Self::Lost { cause, .. } => Some(*cause),
            Self::Local | Self::ByPeer(_) | Self::Aborted(_) | Self::Finished => None,
        }
    }

    /// Returns whether another connection may succeed, though nothing is changed at either end. What an application
    /// has ended is not to be tried again.
    pub fn is_retryable(&self) -> bool {
        self.cause().is_some_and(Cause::is_retryable)
    }
}

/// Error returned when a message is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection has ended or is closing.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// There is no room for another message of its level: too much of it is queued or undelivered,
    /// too many receipts are awaited, or it may not leave before the handshake is complete.
    /// `Connection::send` of `marcato-net` waits instead.
    #[error("the {priority} queue is full: send again after some of it has been delivered")]
    Busy {
        /// Level of the message.
        priority: Priority,
    },
    /// This end has finished sending.
    #[error("this end has finished sending: send before, or on another connection")]
    Finished,
    /// The part of a message is empty, and is not its last.
    #[error("a part of a message needs at least one byte, unless it is the last")]
    EmptyPart,
    /// The message is longer than the queue of its level.
    #[error(
        "the message is longer than the limit of {limit} in the queue: send it with `send_long`, or raise `Limits::queued`"
    )]
    TooLong {
        /// Limit of queued bytes.
        limit: Bytes,
    },
    /// The message is unreliable, and is a request or reply or asks for a receipt.
    #[error("an unreliable message has neither a reply nor a receipt: send it reliably")]
    NeedsReliable,
    /// The peer has withdrawn the request to which this is the reply.
    #[error("the peer has withdrawn the request: it wants no reply")]
    Withdrawn,
    /// The unreliable message fits no packet.
    #[error("an unreliable message has at most {limit} here: send it reliably, or split it")]
    TooLongForDatagram {
        /// Largest length that fits now. It changes with the lanes.
        limit: Bytes,
    },
    /// The peer accepts no unreliable messages.
    #[error("the peer accepts no unreliable messages: send it reliably, or raise its `Limits::unreliable`")]
    NoDatagrams,
    /// The message to be continued was completed or abandoned.
    #[error("the message is complete or was abandoned: begin another")]
    Ended,
    /// Its level is being discarded.
    #[error("messages less urgent than {threshold} are being discarded")]
    Discarding {
        /// Least urgent level that is accepted.
        threshold: Priority,
    },
}

impl SendError {
    /// Error for a message of this priority that the Conductor refused.
    pub const fn from_offer(error: conductor::OfferError, priority: Priority) -> Self {
        match error {
            conductor::OfferError::Empty => Self::EmptyPart,
            conductor::OfferError::TooLong { limit } => Self::TooLong { limit },
            conductor::OfferError::TooManyMessages { .. } | conductor::OfferError::TooManyBytes { .. } => {
                Self::Busy { priority }
            }
            conductor::OfferError::Discarding { threshold } => Self::Discarding { threshold },
        }
    }
}

/// Reason for which a message was not delivered, or not taken by the application at the other end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDelivered {
    /// It was cancelled.
    #[error("the message was cancelled")]
    Cancelled,
    /// Its lifetime ended.
    #[error("the message was not sent within its lifetime")]
    Expired,
    /// Its level is being discarded.
    #[error("the level of the message is being discarded")]
    Discarded,
    /// It was shed under persistent congestion.
    #[error("the message was shed under congestion")]
    Shed,
    /// It was evicted from the queue for a more urgent message.
    #[error("the message was evicted for a more urgent one: send it again later, or raise `Limits::queued`")]
    Evicted,
    /// The receiver wanted no more of it.
    #[error("the receiver declined the message")]
    Declined,
    /// The receiving application discarded it, or a part of it.
    #[error("the application at the other end discarded the message")]
    Unwanted,
    /// The connection ended before the receiver reported that its application had taken it. The
    /// application may have taken it.
    #[error("the connection ended before the application at the other end took the message: {0}")]
    NotTaken(Closed),
    /// No receipt was asked for.
    #[error("the message was sent without a receipt: send it with `Message::with_receipt`")]
    NoReceipt,
    /// The connection ended before the receiver acknowledged all of it. The receiver may have it.
    #[error("the connection ended before the message was acknowledged: {0}")]
    Closed(#[from] Closed),
}

impl From<conductor::Removal> for NotDelivered {
    fn from(removal: conductor::Removal) -> Self {
        match removal {
            conductor::Removal::Cancelled => Self::Cancelled,
            conductor::Removal::Discarded => Self::Discarded,
            conductor::Removal::Expired => Self::Expired,
            conductor::Removal::Shed => Self::Shed,
            conductor::Removal::Evicted => Self::Evicted,
        }
    }
}

/// Error returned when a message can no longer be cancelled or moved to another level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// All of it has been handed to the engine, or it was removed.
    #[error("no bytes of the message are queued any more: it is sent, or was removed")]
    TooLate,
    /// The new level is being discarded.
    #[error(
        "messages less urgent than {threshold} are being discarded: cancel it, or keep it at {threshold}"
    )]
    Discarding {
        /// Least urgent level that is accepted.
        threshold: Priority,
    },
}

impl From<conductor::ReprioritiseError> for ChangeError {
    fn from(error: conductor::ReprioritiseError) -> Self {
        match error {
            conductor::ReprioritiseError::Unknown => Self::TooLate,
            conductor::ReprioritiseError::Discarding { threshold } => Self::Discarding { threshold },
        }
    }
}
