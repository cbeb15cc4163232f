//! Errors: one enum per operation.

use crate::engine::Engine;
use std::io;
use std::net::SocketAddr;

use marcato_identity::IdentityError;
#[cfg(feature = "quic")]
use marcato_quic::SessionConfigError;
use marcato_sched::conductor::DebtError;
use marcato_sched::reserve::DeclareError;
pub use marcato_stream::{Cause, ChangeError, Closed, NoReply, NotDelivered, SendError};
use rustls::AlertDescription;

/// Error returned when the system's trust cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// There are no root certificates.
    #[error(
        "the system has no root certificates ({reason}): install them (Debian: ca-certificates), or name the certificates to trust"
    )]
    NoRoots {
        /// First error met, as text.
        reason: String,
    },
    /// The program was built without the system's trust.
    #[error(
        "this program was built without the system's root certificates: name the certificates to trust, or enable the feature `native-certs`"
    )]
    NotBuilt,
}

/// Error returned for an invalid configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The Conductor's rules are invalid.
    #[error("invalid configuration of the conductor: {0}")]
    Conductor(#[from] DebtError),
    /// The program was built without the engine.
    #[error("this program was built without the {engine} engine: enable the feature `{engine}`")]
    NotBuilt {
        /// Selected engine.
        engine: Engine,
    },
    /// The QUIC session's configuration is invalid.
    #[cfg(feature = "quic")]
    #[error(transparent)]
    Session(#[from] SessionConfigError),
    /// The configuration of QUIC names plain streams.
    #[cfg(feature = "quic")]
    #[error("this endpoint sends messages: for plain streams, use `streams::Endpoint`")]
    PlainStreams,
    /// The identity or the trust cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system's trust cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// TLS rejects the certificate, the key or the protocol versions.
    #[error("invalid configuration of tls: {0}")]
    Tls(#[from] rustls::Error),
    /// A custom configuration of TLS names a protocol that the configuration does not.
    #[error(
        "the custom configuration of tls names the protocol `{name}`, which `alpn` does not: name it there too, or none in the custom configuration"
    )]
    OtherProtocol {
        /// Name of the protocol.
        name: String,
    },
    /// A custom configuration of TLS does not suit QUIC.
    #[error("the custom configuration of tls does not suit quic: {reason}")]
    CustomQuic {
        /// Reason, as text.
        reason: String,
    },
    /// A limit is zero, so nothing could pass.
    #[error("the limit {limit} must not be zero")]
    Zero {
        /// Name of the limit.
        limit: &'static str,
    },
    /// No protocol of the application was given.
    #[error("give at least one protocol in `alpn`")]
    NoProtocol,
    /// A protocol's name is empty or too long.
    #[error("the name of a protocol in `alpn` has 1 to 255 bytes, not {len}")]
    ProtocolName {
        /// Length given, in bytes.
        len: usize,
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
    /// An endpoint would have no driver, or too many.
    #[error("an endpoint has 1 to {most} drivers, not {given}")]
    Drivers {
        /// Largest number.
        most: usize,
        /// Number given.
        given: usize,
    },
    /// Two layers need lanes, which TCP does not have.
    #[error("kernel tcp has one lane and no layers: unset `layered`, or use quic")]
    LayeredTcp,
    /// There is no port after the last one.
    #[error("{addr} has no next port for its low lane: use a lower port, or give the low lane's address")]
    NoLowPort {
        /// Address whose port is the last.
        addr: SocketAddr,
    },
    /// QUIC is always encrypted.
    #[error("quic is always encrypted: use tls, or the tcp engine")]
    PlaintextQuic,
    /// Connections over TCP cannot share a socket.
    #[error("tcp connections cannot share a socket: use `Endpoint::connect`, or the quic engine")]
    SharedTcp,
    /// A client has no socket for a lane.
    #[error(
        "no socket of the client is left for the lane to {remote}: bind one of its address family and layer for each lane"
    )]
    NoSocket {
        /// Remote address of the lane.
        remote: SocketAddr,
    },
    /// The target of a connection is no host with a port.
    #[error("`{given}` has no host and port: write `example.com:4433` or `[2001:db8::1]:4433`")]
    Target {
        /// Target given.
        given: String,
    },
    /// No certificate can have this name.
    #[error("invalid certificate name {name:?}: give a host name or an IP address")]
    Name {
        /// Name given.
        name: String,
    },
}

/// Error returned when an endpoint cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    #[cfg(feature = "quic")]
    #[error(transparent)]
    Endpoint(#[from] marcato_quic::EndpointError),
}

/// Error returned when the identity of an endpoint cannot be replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetIdentityError {
    /// The endpoint listens in plaintext, or presents what a custom configuration of TLS decides.
    #[error("the endpoint has no identity to replace: listen with `ServerSecurity::Tls` or `Mutual`")]
    NoIdentity,
    /// The new identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Error returned when no connection can be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The endpoint accepts no more connections.
    #[error("the endpoint is closed: listen again")]
    Closed,
}

/// Error returned when a connection cannot be established.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// The name has no address.
    #[error("cannot find the address of {host}: {source}")]
    Unknown {
        /// Host as given.
        host: String,
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
    /// The client connects without TLS, and the peer expects TLS or speaks another protocol.
    #[error("{addr} expects tls or does not speak marcato/2: connect with tls, or to another port")]
    NotPlaintext {
        /// Address of the peer.
        addr: SocketAddr,
    },
    /// The client connects with TLS, and the peer does not speak it.
    #[error("{addr} does not speak tls: let it listen with a certificate, or connect in plaintext")]
    NotTls {
        /// Address of the peer.
        addr: SocketAddr,
    },
    /// The peer speaks another protocol.
    #[error(
        "{addr} speaks none of the protocols offered: connect to another port, or let both ends name a common one in `alpn`"
    )]
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
    /// The connection ended before it was established.
    #[error("the connection to {addr} ended during the handshake: {reason}")]
    Ended {
        /// Address of the peer.
        addr: SocketAddr,
        /// Cause, for a program.
        cause: Cause,
        /// Reason, as text.
        reason: String,
    },
    /// The QUIC endpoint cannot be created.
    #[cfg(feature = "quic")]
    #[error(transparent)]
    Endpoint(#[from] marcato_quic::EndpointError),
    /// The QUIC engine refused the connection.
    #[cfg(feature = "quic")]
    #[error(transparent)]
    Session(#[from] marcato_quic::ConnectError),
    /// The QUIC engine refused a lane.
    #[cfg(feature = "quic")]
    #[error(transparent)]
    Lane(#[from] marcato_quic::LaneError),
}

impl ConnectError {
    /// Cause of the failure, for a program.
    pub fn cause(&self) -> Cause {
        match self {
            // Interfaces, names, routes and servers come and go.
            Self::Bind { .. } | Self::Unknown { .. } | Self::Unreachable { .. } => Cause::Network,
            Self::TimedOut { .. } => Cause::TimedOut,
            Self::Ended { cause, .. } => *cause,
            Self::Tls { source, .. } => of_tls(source),
            Self::NotPlaintext { .. } | Self::NotTls { .. } | Self::Protocol { .. } => Cause::Protocol,
            #[cfg(feature = "quic")]
            Self::Session(marcato_quic::ConnectError::TooMany { .. }) => Cause::Crowded,
            #[cfg(feature = "quic")]
            Self::Endpoint(_) | Self::Session(_) | Self::Lane(_) => Cause::Stopped,
            Self::Config(_) => Cause::Stopped,
        }
    }

    /// Returns whether another attempt may succeed, though nothing is changed at either end.
    pub fn is_retryable(&self) -> bool {
        self.cause().is_retryable()
    }
}

/// Error of a handshake over QUIC that an alert ended.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct Alerted {
    pub(crate) alert: AlertDescription,
    pub(crate) reason: String,
}

impl From<Alerted> for io::Error {
    fn from(alerted: Alerted) -> Self {
        Self::new(io::ErrorKind::InvalidData, alerted)
    }
}

/// Cause of a failed TLS handshake.
fn of_tls(source: &io::Error) -> Cause {
    // Without an error of TLS, the network ended the handshake.
    let Some(source) = source.get_ref() else { return Cause::Cut };
    match (source.downcast_ref(), source.downcast_ref()) {
        (Some(rustls::Error::AlertReceived(alert)), _) | (None, Some(Alerted { alert, .. })) => {
            Cause::Tls { alert: Some((*alert).into()) }
        }
        (Some(_), _) => Cause::Tls { alert: None },
        (None, None) => Cause::Cut,
    }
}

/// Error returned when a message that is sent piece by piece cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LongSendError {
    /// The next piece was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The pieces accepted so far will not be delivered.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
}

/// Error returned when a request gets no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request was not accepted for sending.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The request did not reach the peer.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
    /// The peer does not reply, or the connection has ended.
    #[error(transparent)]
    NoReply(#[from] NoReply),
}

/// Error returned when no keying material can be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The connection is not encrypted.
    #[error("a connection in plaintext has no keys: connect with tls")]
    Plaintext,
    /// The connection has ended.
    #[error("the connection has ended: export before its end, or connect again")]
    Closed,
    /// TLS exports no keying material of this length: the limit is 255 hashes of the cipher suite
    /// (RFC 5869 §2.3), 8160 bytes with SHA-256.
    #[error("tls exports no keying material of {len} bytes: ask for 1 to 8160")]
    Length {
        /// Length asked for, in bytes.
        len: usize,
    },
}

/// Error returned when a lane cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddLaneError {
    /// The kernel's TCP has one path.
    #[error("kernel tcp has one lane: use the quic engine")]
    NotOverTcp,
    /// The connection has ended.
    #[error("the connection has ended: connect again")]
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
    #[error("the connection has its maximum of 256 sockets: wait until a removed lane is closed")]
    TooManySockets,
    /// The session refused the lane.
    #[cfg(feature = "quic")]
    #[error(transparent)]
    Session(#[from] marcato_quic::LaneError),
}

/// Error returned when a lane cannot be removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeLaneError {
    /// The kernel's TCP has one path.
    #[error("kernel tcp has one lane: use the quic engine")]
    NotOverTcp,
    /// The connection has ended.
    #[error("the connection has ended: connect again")]
    Closed,
    /// The session refused the change.
    #[cfg(feature = "quic")]
    #[error(transparent)]
    Session(#[from] marcato_quic::LaneError),
}

/// Error returned when no room can be reserved for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// The source is invalid, or the limit of declared sources is reached.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// The kernel controls its congestion window.
    #[error("kernel tcp cannot reserve a part of its window: use the quic engine")]
    NotOverTcp,
    /// The connection has ended.
    #[error("the connection has ended: connect again")]
    Closed,
}
