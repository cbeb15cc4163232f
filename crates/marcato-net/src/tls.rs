//! TLS configurations of both engines, and what their handshakes have established.

use std::sync::Arc;

use marcato_identity::{PeerIdentity, ServerIdentity};
use rustls::{ClientConfig, ServerConfig};

use crate::config::{ClientSecurity, Config, ServerSecurity, trust_or_system};
use crate::error::ConfigError;

/// Results of a connection's TLS handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// Certificates that the peer has presented.
    pub(crate) peer: Option<PeerIdentity>,
    /// Protocol negotiated.
    pub(crate) alpn: Option<Vec<u8>>,
}

/// TLS of a server; nothing in plaintext.
#[derive(Default)]
pub(crate) struct ServerTls {
    pub(crate) config: Option<Arc<ServerConfig>>,
    /// Identity that can be replaced.
    pub(crate) identity: Option<Arc<ServerIdentity>>,
}

/// Returns the TLS configuration of a server.
pub(crate) fn server(config: &Config, security: &ServerSecurity) -> Result<ServerTls, ConfigError> {
    let (identity, clients) = match security {
        ServerSecurity::Tls(identity) => (identity, None),
        ServerSecurity::Mutual { identity, clients } => (identity, Some(clients)),
        ServerSecurity::Plaintext => return Ok(ServerTls::default()),
    };
    let identity = ServerIdentity::new(identity)?;
    let mut tls = identity.server_tls(clients)?;
    tls.alpn_protocols = config.alpn.clone();
    Ok(ServerTls { config: Some(Arc::new(tls)), identity: Some(identity) })
}

/// Returns the server's name and the TLS configuration of a client; `None` in plaintext.
pub(crate) async fn client<'a>(
    config: &Config,
    security: &'a ClientSecurity,
) -> Result<Option<(&'a str, Arc<ClientConfig>)>, ConfigError> {
    let (name, mut tls) = match security {
        ClientSecurity::Tls { name, trust, identity } => {
            let trust = trust_or_system(trust.as_ref()).await?;
            (name, trust.client_tls_as(identity.as_ref())?)
        }
        ClientSecurity::Plaintext => return Ok(None),
    };
    tls.alpn_protocols = config.alpn.clone();
    Ok(Some((name, Arc::new(tls))))
}
