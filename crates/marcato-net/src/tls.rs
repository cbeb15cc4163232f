//! TLS configurations of both engines, and what their handshakes have established.

use std::net::Ipv4Addr;
use std::sync::Arc;

use marcato_identity::{PeerIdentity, ServerIdentity};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig, quic};

use crate::config::{ClientSecurity, Config, Engine, ServerSecurity, trust_or_system};
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
        ServerSecurity::Custom(custom) => {
            let mut tls = ServerConfig::clone(custom);
            name_protocols(config, &mut tls.alpn_protocols)?;
            // No 0-RTT: early data can be replayed (RFC 8446 §8).
            tls.max_early_data_size = 0;
            let tls = Arc::new(tls);
            if config.engine == Engine::Quic {
                // A trial shows what QUIC would miss in the configuration.
                quic::ServerConnection::new(Arc::clone(&tls), quic::Version::V1, Vec::new())
                    .map_err(|error| unsuited(&error))?;
            }
            return Ok(ServerTls { config: Some(tls), identity: None });
        }
    };
    let identity = ServerIdentity::new(identity)?;
    let mut tls = identity.server_tls(clients)?;
    name_protocols(config, &mut tls.alpn_protocols)?;
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
        ClientSecurity::Custom { name, config } => (name, ClientConfig::clone(config)),
        ClientSecurity::Plaintext => return Ok(None),
    };
    name_protocols(config, &mut tls.alpn_protocols)?;
    tls.enable_early_data = false;
    let tls = Arc::new(tls);
    if config.engine == Engine::Quic && matches!(security, ClientSecurity::Custom { .. }) {
        let server = ServerName::from(Ipv4Addr::UNSPECIFIED);
        quic::ClientConnection::new(Arc::clone(&tls), quic::Version::V1, server, Vec::new())
            .map_err(|error| unsuited(&error))?;
    }
    Ok(Some((name, tls)))
}

/// Names the configured protocols in a TLS configuration that names none, and checks those of one
/// that does.
fn name_protocols(config: &Config, named: &mut Vec<Vec<u8>>) -> Result<(), ConfigError> {
    if let Some(other) = named.iter().find(|name| !config.alpn.contains(name)) {
        return Err(ConfigError::OtherProtocol { name: String::from_utf8_lossy(other).into_owned() });
    }
    if named.is_empty() {
        named.clone_from(&config.alpn);
    }
    Ok(())
}

fn unsuited(error: &rustls::Error) -> ConfigError {
    let reason = match error {
        rustls::Error::General(reason) => reason.clone(),
        other => other.to_string(),
    };
    ConfigError::CustomQuic { reason }
}
