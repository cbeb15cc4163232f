//! Errors of a session's owner interface, one enum per operation.

use std::net::SocketAddr;

use marcato_sched::conductor::OfferError;

/// Error returned when a message is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The session is closed.
    #[error("the session is closed: open another")]
    Closed,
    /// This end has finished sending.
    #[error("this end has finished sending: send before, or on another session")]
    Finished,
    /// The Conductor refused the message.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// The limit of unacknowledged messages is reached.
    #[error("{limit} messages have not been acknowledged: send again after some have been delivered")]
    TooManyUnfinished {
        /// [`SessionConfig::max_unfinished`](crate::SessionConfig::max_unfinished), plus the
        /// Conductor's reserve for P0.
        limit: usize,
    },
    /// The message does not fit one packet; unreliable messages are not split.
    #[error("an unreliable message has at most {limit} bytes here: send it reliably, or split it")]
    TooLongForDatagram {
        /// Largest length that fits now, in bytes. It changes with the lanes.
        limit: usize,
    },
    /// The peer accepts no DATAGRAM frames.
    #[error("the peer accepts no unreliable messages: send it reliably")]
    NoDatagrams,
    /// The handshake is not complete, and early data was begun, which the message must not be part
    /// of.
    #[error(
        "before the handshake is complete only reliable messages marked idempotent may leave: send it after"
    )]
    NotEarly,
    /// The message was completed or abandoned, so it takes no further part.
    #[error("the message is complete or was abandoned: begin another")]
    Ended,
}

/// Error returned when a lane cannot be opened, removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// This end is a server; only clients open paths.
    #[error("a server cannot open a lane: let the client do it")]
    NotAClient,
    /// The limit of lanes, open or waiting to be opened, is reached.
    #[error("the session has its maximum of {limit} lanes: remove one first")]
    TooMany {
        /// [`SessionConfig::max_lanes`](crate::SessionConfig::max_lanes).
        limit: u8,
    },
    /// Another lane has the same remote address, so the two would be indistinguishable.
    #[error("another lane already uses {remote}: give each lane its own port at both ends")]
    SameRemote {
        /// Remote address of both lanes.
        remote: SocketAddr,
    },
    /// There is no lane with this identifier.
    #[error("there is no such lane")]
    Unknown,
    /// No other lane is up.
    #[error("no other lane is up: wait for one, or close the session")]
    Last,
    /// The engine refused the operation.
    #[error("the engine reports an error: {0}")]
    Engine(String),
}
