//! Errors: one enum per operation.

use std::io;
use std::net::SocketAddr;

use marcato_quic::{IdentityError, SessionConfigError};
use marcato_sched::conductor::{self, DebtError};
use marcato_sched::reserve::DeclareError;
use marcato_units::{Bytes, Priority};

use crate::config::Engine;

/// Error returned when the system's trust cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// There are no root certificates.
    #[error(
        "the system has no root certificates ({reason}): install them (Debian: ca-certificates), or name whom to trust"
    )]
    NoRoots {
        /// First error met, as text.
        reason: String,
    },
}

/// Error returned for an invalid configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The Conductor's rules are invalid.
    #[error("the conductor cannot be configured so: {0}")]
    Conductor(#[from] DebtError),
    /// The QUIC session's configuration is invalid.
    #[error(transparent)]
    Session(#[from] SessionConfigError),
    /// The identity or the trust cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system's trust cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// TLS rejects the certificate, the key or the protocol versions.
    #[error("tls cannot be set up so: {0}")]
    Tls(#[from] rustls::Error),
    /// A limit is zero, so nothing could pass.
    #[error("the limit {limit} must not be zero")]
    Zero {
        /// Name of the limit.
        limit: &'static str,
    },
    /// No address was given.
    #[error("give at least one address")]
    NoAddress,
    /// More lanes were given than the engine allows.
    #[error("{engine:?} has {most} lanes at most, not {given}")]
    TooManyLanes {
        /// Selected engine.
        engine: Engine,
        /// Limit of lanes.
        most: usize,
        /// Number given.
        given: usize,
    },
    /// Two layers need lanes, which TCP does not have.
    #[error("kernel TCP has one lane, and so no layers: leave `layered` out, or use quic")]
    LayeredTcp,
    /// There is no port after the last one.
    #[error("{addr} has no port after it for its low lane: use a lower one, or name the low lane's address")]
    NoLowPort {
        /// Address whose port is the last.
        addr: SocketAddr,
    },
    /// QUIC is always encrypted.
    #[error("quic is always encrypted: use tls, or the tcp engine")]
    PlaintextQuic,
    /// No certificate can have this name.
    #[error("{name:?} is no name that a certificate can have")]
    Name {
        /// Name given.
        name: String,
    },
}

/// Error returned when an endpoint cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refused the address.
    #[error("cannot listen at {addr}: {source}")]
    Bind {
        /// Address refused.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The QUIC endpoint cannot be created.
    #[error(transparent)]
    Endpoint(#[from] marcato_quic::EndpointError),
}

/// Error returned when no connection can be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// The endpoint accepts no more connections.
    #[error("the endpoint is closed: listen anew")]
    Closed,
}

/// Error returned when a connection cannot be established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refused a local address.
    #[error("cannot use the local address {addr}: {source}")]
    Bind {
        /// Address refused.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The peer cannot be reached.
    #[error("cannot connect to {addr}: {source}")]
    Unreachable {
        /// Address of the peer.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The TLS handshake failed; most often the certificate is not trusted.
    #[error("the tls handshake with {addr} failed: {source}")]
    Tls {
        /// Address of the peer.
        addr: SocketAddr,
        /// Error of TLS.
        source: io::Error,
    },
    /// The peer speaks another protocol.
    #[error("{addr} does not speak marcato/1: connect to another port, or update one of the two ends")]
    Protocol {
        /// Address of the peer.
        addr: SocketAddr,
    },
    /// The handshake did not complete in time.
    #[error("{addr} did not answer in time")]
    TimedOut {
        /// Address of the peer.
        addr: SocketAddr,
    },
    /// The QUIC connection ended before it was established.
    #[error("the connection to {addr} ended during the handshake: {reason}")]
    Ended {
        /// Address of the peer.
        addr: SocketAddr,
        /// Reason, as text.
        reason: String,
    },
    /// The QUIC endpoint cannot be created.
    #[error(transparent)]
    Endpoint(#[from] marcato_quic::EndpointError),
    /// The QUIC engine refused the connection.
    #[error(transparent)]
    Session(#[from] marcato_quic::ConnectError),
    /// The QUIC engine refused a lane.
    #[error(transparent)]
    Lane(#[from] marcato_quic::LaneError),
}

/// Reason for which a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// This end closed it.
    #[error("this end has closed the connection")]
    Here,
    /// The peer closed it, after all that it had to send.
    #[error("the peer has closed the connection")]
    ByPeer,
    /// The peer or the network aborted it, or the peer violated the protocol or a limit.
    #[error("the connection was lost: {reason}")]
    Lost {
        /// Reason, as text.
        reason: String,
    },
}

/// Error returned when a message is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection has ended or is closing.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The queue of its level is full. [`Connection::send`](crate::Connection::send) waits instead.
    #[error("as much waits at {priority} as may: send again after some has been delivered")]
    Busy {
        /// Level of the message.
        priority: Priority,
    },
    /// The message is empty.
    #[error("a message needs at least one byte")]
    Empty,
    /// The message is longer than the queue of its level.
    #[error(
        "the message is longer than the {limit} that may wait: send it with `send_long`, or raise `Limits::queued`"
    )]
    TooLong {
        /// Limit of queued bytes.
        limit: Bytes,
    },
    /// The unreliable message fits no packet.
    #[error("an unreliable message has {limit} at most here: send it reliably, or cut it")]
    TooLongForDatagram {
        /// Largest length that fits now. It changes with the lanes.
        limit: Bytes,
    },
    /// The peer accepts no unreliable messages.
    #[error("the peer takes no unreliable messages: send it reliably, or raise its `Limits::unreliable`")]
    NoDatagrams,
    /// The message to be continued was completed or abandoned.
    #[error("the message is complete or was given up: begin another")]
    Ended,
    /// Its level is being discarded.
    #[error("messages less urgent than {threshold} are being discarded")]
    Discarding {
        /// Least urgent level that is accepted.
        threshold: Priority,
    },
}

impl SendError {
    pub(crate) fn offer(error: conductor::OfferError, priority: Priority) -> Self {
        match error {
            conductor::OfferError::Empty => Self::Empty,
            conductor::OfferError::TooLong { limit } => Self::TooLong { limit },
            conductor::OfferError::TooManyMessages { .. } | conductor::OfferError::TooManyBytes { .. } => {
                Self::Busy { priority }
            }
            conductor::OfferError::Discarding { threshold } => Self::Discarding { threshold },
        }
    }
}

/// Error returned when a message that is sent piece by piece cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LongSendError {
    /// The next piece was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The pieces accepted so far will not be delivered.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
}

/// Reason for which a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    #[error("the message gave way to a more urgent one: send it again later, or raise `Limits::queued`")]
    Evicted,
    /// The receiver wanted no more of it.
    #[error("the receiver declined the message")]
    Declined,
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
pub enum ChangeError {
    /// All of it has been handed to the engine, or it was removed.
    #[error("nothing of the message waits any more")]
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

/// Error returned when a lane cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum AddLaneError {
    /// The kernel's TCP has one path.
    #[error("kernel tcp has one lane: use the quic engine")]
    NotOverTcp,
    /// The connection has ended.
    #[error("the connection is over")]
    Closed,
    /// The system refused the local address.
    #[error("cannot use the local address {addr}: {source}")]
    Bind {
        /// Address refused.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The limit of 256 sockets is reached.
    #[error("the connection has 256 sockets, as many as it may: wait until a lane that was removed is gone")]
    TooManySockets,
    /// The session refused the lane.
    #[error(transparent)]
    Session(#[from] marcato_quic::LaneError),
}

/// Error returned when a lane cannot be removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeLaneError {
    /// The kernel's TCP has one path.
    #[error("kernel tcp has one lane: use the quic engine")]
    NotOverTcp,
    /// The connection has ended.
    #[error("the connection is over")]
    Closed,
    /// The session refused the change.
    #[error(transparent)]
    Session(#[from] marcato_quic::LaneError),
}

/// Error returned when no room can be reserved for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The source is invalid, or the limit of declared sources is reached.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// The kernel controls its congestion window.
    #[error("kernel tcp keeps no part of its window free: use the quic engine")]
    NotOverTcp,
    /// The connection has ended.
    #[error("the connection is over")]
    Closed,
}
