//! TLS configurations of QUIC's two ends.

use std::sync::Arc;

use marcato_identity::{Identity, IdentityError, Trust, explain_alert};
use noq_proto::ConnectionError;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{ClientConfig, ServerConfig};

/// Returns the TLS configuration of a server with this identity.
pub(crate) fn server(identity: &Identity) -> Result<Arc<ServerConfig>, IdentityError> {
    let mut config = identity.server_tls(None)?;
    config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// Returns the TLS configuration of a client with this trust.
pub(crate) fn client(trust: &Trust) -> Result<Arc<ClientConfig>, IdentityError> {
    let mut config = trust.client_tls()?;
    config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// Returns the engine's form of a server's configuration.
pub(crate) fn quic_server(tls: Arc<ServerConfig>) -> Result<Arc<QuicServerConfig>, IdentityError> {
    Ok(Arc::new(QuicServerConfig::try_from(tls).map_err(|_| IdentityError::NoInitialSuite)?))
}

/// Returns the engine's form of a client's configuration.
pub(crate) fn quic_client(tls: Arc<ClientConfig>) -> Result<Arc<QuicClientConfig>, IdentityError> {
    Ok(Arc::new(QuicClientConfig::try_from(tls).map_err(|_| IdentityError::NoInitialSuite)?))
}

/// Returns the reason for the end of a session, as text.
pub(crate) fn end(reason: &ConnectionError) -> String {
    // RFC 9001 §4.8: the code of a TLS alert follows 0x100.
    let alert = match reason {
        ConnectionError::ConnectionClosed(close) => u64::from(close.error_code).checked_sub(0x100),
        _ => None,
    };
    let meaning = alert.and_then(|alert| explain_alert(u8::try_from(alert).ok()?));
    meaning.map_or_else(|| reason.to_string(), ToOwned::to_owned)
}
