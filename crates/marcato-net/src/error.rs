//! Why something was not done: one enum per operation.

use std::io;
use std::net::SocketAddr;

use marcato_quic::{IdentityError, SessionConfigError};
use marcato_sched::conductor::{self, DebtError};
use marcato_sched::reserve::DeclareError;
use marcato_units::{Bytes, Priority};

use crate::config::Engine;

/// Why the system's trust cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// Nobody is trusted.
    #[error(
        "the system has no root certificates ({reason}): install them (Debian: ca-certificates), or name whom to trust"
    )]
    NoRoots {
        /// What was met with first.
        reason: String,
    },
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The Conductor's rules.
    #[error("the conductor cannot be configured so: {0}")]
    Conductor(#[from] DebtError),
    /// The QUIC session's.
    #[error(transparent)]
    Session(#[from] SessionConfigError),
    /// The identity or the trust.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system's trust.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// TLS refuses them.
    #[error("tls cannot be set up so: {0}")]
    Tls(#[from] rustls::Error),
    /// A limit that nothing could pass.
    #[error("the limit {limit} must not be zero")]
    Zero {
        /// Its name.
        limit: &'static str,
    },
    /// No address at all.
    #[error("give at least one address")]
    NoAddress,
    /// More lanes than the engine has.
    #[error("{engine:?} has {most} lanes at most, not {given}")]
    TooManyLanes {
        /// The engine.
        engine: Engine,
        /// The most lanes.
        most: usize,
        /// How many were given.
        given: usize,
    },
    /// Layers are lanes.
    #[error("kernel TCP has one lane, and so no layers: leave `layered` out, or use quic")]
    LayeredTcp,
    /// There is no port after the last.
    #[error("{addr} has no port after it for its low lane: use a lower one, or name the low lane's address")]
    NoLowPort {
        /// The address.
        addr: SocketAddr,
    },
    /// QUIC has no other mode.
    #[error("quic is always encrypted: use tls, or the tcp engine")]
    PlaintextQuic,
    /// Such a name is in no certificate.
    #[error("{name:?} is no name that a certificate can have")]
    Name {
        /// The name given.
        name: String,
    },
}

/// Why nobody can connect to an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refuses.
    #[error("cannot listen at {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The QUIC endpoint cannot be made.
    #[error(transparent)]
    Endpoint(#[from] marcato_quic::EndpointError),
}

/// Why no connection came in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// Nobody is let in any more.
    #[error("the endpoint is closed: listen anew")]
    Closed,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refuses a local address.
    #[error("cannot use the local address {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The peer cannot be reached.
    #[error("cannot connect to {addr}: {source}")]
    Unreachable {
        /// Its address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// TLS could not agree; above all if the certificate is not trusted.
    #[error("the tls handshake with {addr} failed: {source}")]
    Tls {
        /// The peer's address.
        addr: SocketAddr,
        /// What TLS says.
        source: io::Error,
    },
    /// The peer speaks another protocol.
    #[error("{addr} does not speak marcato/1: connect to another port, or update one of the two ends")]
    Protocol {
        /// Its address.
        addr: SocketAddr,
    },
    /// Nothing came of it in time.
    #[error("{addr} did not answer in time")]
    TimedOut {
        /// Its address.
        addr: SocketAddr,
    },
    /// The QUIC connection ended before it was established.
    #[error("the connection to {addr} ended during the handshake: {reason}")]
    Ended {
        /// The peer's address.
        addr: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The QUIC endpoint cannot be made.
    #[error(transparent)]
    Endpoint(#[from] marcato_quic::EndpointError),
    /// The QUIC engine refuses.
    #[error(transparent)]
    Session(#[from] marcato_quic::ConnectError),
    /// The QUIC engine refuses a lane.
    #[error(transparent)]
    Lane(#[from] marcato_quic::LaneError),
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// This end has closed it.
    #[error("this end has closed the connection")]
    Here,
    /// The peer has closed it, after everything that it wanted to send.
    #[error("the peer has closed the connection")]
    ByPeer,
    /// It was cut off: by the peer, by the network, or because the peer broke the protocol or a limit.
    #[error("the connection was lost: {reason}")]
    Lost {
        /// What happened.
        reason: String,
    },
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection is over, or being closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// As much of its level waits as may. [`Connection::send`](crate::Connection::send) waits instead of saying so.
    #[error("as much waits at {priority} as may: send again after some has been delivered")]
    Busy {
        /// The level.
        priority: Priority,
    },
    /// It has no bytes.
    #[error("a message needs at least one byte")]
    Empty,
    /// It is longer than all that may wait at its level.
    #[error(
        "the message is longer than the {limit} that may wait: send it with `send_long`, or raise `Limits::queued`"
    )]
    TooLong {
        /// The most that may wait.
        limit: Bytes,
    },
    /// An unreliable message that fits no packet.
    #[error("an unreliable message has {limit} at most here: send it reliably, or cut it")]
    TooLongForDatagram {
        /// The most that fits now. It changes with the lanes.
        limit: Bytes,
    },
    /// The peer takes no unreliable messages.
    #[error("the peer takes no unreliable messages: send it reliably, or raise its `Limits::unreliable`")]
    NoDatagrams,
    /// The message that it was to be a piece of is complete or was given up.
    #[error("the message is complete or was given up: begin another")]
    Ended,
    /// Its level is being discarded.
    #[error("messages less urgent than {threshold} are being discarded")]
    Discarding {
        /// The least urgent level that is accepted.
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

/// Why a message that is sent piece by piece does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LongSendError {
    /// The next piece was not taken.
    #[error(transparent)]
    Send(#[from] SendError),
    /// What was taken will not be delivered.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
}

/// Why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDelivered {
    /// It was taken back.
    #[error("the message was cancelled")]
    Cancelled,
    /// Its lifetime was over.
    #[error("the message was not sent within its lifetime")]
    Expired,
    /// Its level is being discarded.
    #[error("the level of the message is being discarded")]
    Discarded,
    /// It was shed under persistent congestion.
    #[error("the message was shed under congestion")]
    Shed,
    /// It waited while a more urgent message needed its room.
    #[error("the message gave way to a more urgent one: send it again later, or raise `Limits::queued`")]
    Evicted,
    /// The receiver wanted no more of it.
    #[error("the receiver declined the message")]
    Declined,
    /// The connection ended before the receiver had said that it has all of it. It may have it.
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

/// Why a message cannot be cancelled or moved to another level any more.
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
        /// The least urgent level that is accepted.
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

/// Why a lane was not added.
#[derive(Debug, thiserror::Error)]
pub enum AddLaneError {
    /// The kernel's TCP has one path.
    #[error("kernel tcp has one lane: use the quic engine")]
    NotOverTcp,
    /// The connection is over.
    #[error("the connection is over")]
    Closed,
    /// The system refuses the local address.
    #[error("cannot use the local address {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No more sockets.
    #[error("the connection has 256 sockets, as many as it may: wait until a lane that was removed is gone")]
    TooManySockets,
    /// The session refuses.
    #[error(transparent)]
    Session(#[from] marcato_quic::LaneError),
}

/// Why a lane was not removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeLaneError {
    /// The kernel's TCP has one path.
    #[error("kernel tcp has one lane: use the quic engine")]
    NotOverTcp,
    /// The connection is over.
    #[error("the connection is over")]
    Closed,
    /// The session refuses.
    #[error(transparent)]
    Session(#[from] marcato_quic::LaneError),
}

/// Why no room is kept for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The source cannot be, or as many are declared as may.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// The kernel's congestion window is not ours.
    #[error("kernel tcp keeps no part of its window free: use the quic engine")]
    NotOverTcp,
    /// The connection is over.
    #[error("the connection is over")]
    Closed,
}
