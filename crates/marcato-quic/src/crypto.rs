//! TLS configurations of QUIC's two ends.

use std::sync::Arc;

use marcato_identity::{Identity, IdentityError, Trust};
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::ServerConfig;
use rustls::crypto::ring;

/// Returns the configuration of a server with this identity.
pub(crate) fn server(identity: &Identity) -> Result<Arc<QuicServerConfig>, IdentityError> {
    let (chain, key) = identity.parts();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
    // No 0-RTT: early data can be replayed (RFC 8446 §8).
    config.max_early_data_size = 0;
    if let Some(secrets) = identity.secrets() {
        config.key_log = Arc::new(secrets.clone());
    }
    Ok(Arc::new(QuicServerConfig::try_from(config).map_err(|_| IdentityError::NoInitialSuite)?))
}

/// Returns the configuration of a client with this trust.
pub(crate) fn client(trust: &Trust) -> Result<Arc<QuicClientConfig>, IdentityError> {
    let mut config = trust.client_tls()?;
    config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
    Ok(Arc::new(QuicClientConfig::try_from(config).map_err(|_| IdentityError::NoInitialSuite)?))
}
