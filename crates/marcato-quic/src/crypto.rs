//! TLS configurations of QUIC's two ends.

use std::sync::Arc;

use marcato_identity::{Identity, IdentityError, Trust, explain_alert};
use marcato_stream::Cause;
use marcato_wire::ErrorCode;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{ConnectionError, TransportErrorCode};
use rustls::{ClientConfig, ServerConfig};

use crate::handshake::{ObservedClient, ObservedServer};

/// Returns the TLS configuration of a server with this identity, for these application protocols.
pub(crate) fn server(identity: &Identity, alpn: Vec<Vec<u8>>) -> Result<Arc<ServerConfig>, IdentityError> {
    let mut config = identity.server_tls(None)?;
    config.alpn_protocols = alpn;
    Ok(Arc::new(config))
}

/// Returns the TLS configuration of a client with this trust, for these application protocols.
pub(crate) fn client(trust: &Trust, alpn: Vec<Vec<u8>>) -> Result<Arc<ClientConfig>, IdentityError> {
    let mut config = trust.client_tls()?;
    config.alpn_protocols = alpn;
    Ok(Arc::new(config))
}

/// Returns the engine's form of a server's configuration.
pub(crate) fn quic_server(tls: Arc<ServerConfig>) -> Result<Arc<ObservedServer>, IdentityError> {
    let config = QuicServerConfig::try_from(tls).map_err(|_| IdentityError::NoInitialSuite)?;
    Ok(Arc::new(ObservedServer(config)))
}

/// Returns the engine's form of a client's configuration.
pub(crate) fn quic_client(tls: Arc<ClientConfig>) -> Result<Arc<ObservedClient>, IdentityError> {
    let config = QuicClientConfig::try_from(tls).map_err(|_| IdentityError::NoInitialSuite)?;
    Ok(Arc::new(ObservedClient(config)))
}

/// Returns the TLS alert in the code of an error; `None` if it is none of TLS.
fn alert_in(code: TransportErrorCode) -> Option<u8> {
    // RFC 9001 §4.8: the code of a TLS alert follows 0x100.
    u8::try_from(u64::from(code).checked_sub(0x100)?).ok()
}

/// Returns the TLS alert with which either end has ended a session.
pub(crate) fn alert(reason: &ConnectionError) -> Option<u8> {
    match reason {
        ConnectionError::ConnectionClosed(close) => alert_in(close.error_code),
        ConnectionError::TransportError(error) => alert_in(error.code),
        _ => None,
    }
}

/// Returns the cause for which a session was lost.
pub(crate) fn cause(reason: &ConnectionError) -> Cause {
    let of_transport = |code| match alert_in(code) {
        Some(alert) => Cause::Tls { alert: Some(alert) },
        // RFC 9000 §20.1: the server refuses a new connection.
        None if code == TransportErrorCode::CONNECTION_REFUSED => Cause::Crowded,
        None => Cause::Protocol,
    };
    match reason {
        ConnectionError::TimedOut => Cause::TimedOut,
        ConnectionError::Reset => Cause::Reset,
        ConnectionError::ConnectionClosed(close) => of_transport(close.error_code),
        // The alert is this end's own.
        ConnectionError::TransportError(error) if alert_in(error.code).is_some() => {
            Cause::Tls { alert: None }
        }
        ConnectionError::TransportError(_) | ConnectionError::VersionMismatch => Cause::Protocol,
        ConnectionError::ApplicationClosed(close) => match close.error_code.into_inner() {
            code if code == ErrorCode::Crowded.get() => Cause::Crowded,
            code if code == ErrorCode::Aborted.get() => Cause::Aborted,
            _ => Cause::Protocol,
        },
        ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => Cause::Stopped,
    }
}

/// Text for a client that a server has refused before its handshake.
const CROWDED: &str = "the server has reached its limit of connections, of handshakes from this address, or of those \
                       that wait to be accepted: try again later";

/// Returns the reason for the end of a session, as text: that of the peer's application, if it gave
/// one.
pub(crate) fn end(reason: &ConnectionError) -> String {
    if let ConnectionError::ApplicationClosed(close) = reason
        && ErrorCode::application(close.error_code.into_inner()).is_some()
    {
        return String::from_utf8_lossy(&close.reason).into_owned();
    }
    let received = match reason {
        // RFC 9000 §20.1: the server refuses a new connection. It has no way to say why.
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            return CROWDED.to_owned();
        }
        ConnectionError::ConnectionClosed(close) => alert_in(close.error_code),
        _ => None,
    };
    received.and_then(explain_alert).map_or_else(|| reason.to_string(), ToOwned::to_owned)
}
