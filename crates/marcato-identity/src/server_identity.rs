//! Identity of a server that can be replaced while it listens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache, StoresServerSessions};
use rustls::sign::CertifiedKey;

use crate::client_auth::ClientAuth;
use crate::identity::{Identity, IdentityError};
use crate::secrets::Secrets;

/// Limit of the sessions that clients can resume.
const SESSIONS: usize = 256;

/// Identity that a server presents, and that can be replaced while it listens.
///
/// ```
/// use marcato_identity::{Identity, ServerIdentity};
///
/// let presented = ServerIdentity::new(&Identity::self_signed("chat.example")?)?;
/// let tls = presented.server_tls(None)?;
/// # let _ = tls;
/// // Months later, before the certificate expires:
/// presented.replace(&Identity::self_signed("chat.example")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ServerIdentity {
    current: Mutex<Current>,
    secrets: Option<Secrets>,
}

#[derive(Clone, Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    /// Sessions of this identity: one that is resumed would not present the next.
    sessions: Arc<ServerSessionMemoryCache>,
}

impl Current {
    fn new(identity: &Identity) -> Result<Self, IdentityError> {
        let key = Arc::new(identity.certified()?);
        // An empty chain, which no client would accept.
        key.end_entity_cert()?;
        Ok(Self { key, sessions: ServerSessionMemoryCache::new(SESSIONS) })
    }
}

impl ServerIdentity {
    /// Creates the identity of a server.
    ///
    /// # Errors
    ///
    /// If the key is another's, or the chain is empty.
    pub fn new(identity: &Identity) -> Result<Arc<Self>, IdentityError> {
        let current = Mutex::new(Current::new(identity)?);
        Ok(Arc::new(Self { current, secrets: identity.secrets().cloned() }))
    }

    /// Presents another identity in handshakes that begin from now on. Connections go on, and
    /// sessions of the previous identity are not resumed. The log of secrets stays the first's.
    ///
    /// # Errors
    ///
    /// If the key is another's, or the chain is empty. The previous identity then stays.
    pub fn replace(&self, identity: &Identity) -> Result<(), IdentityError> {
        let next = Current::new(identity)?;
        *self.current() = next;
        Ok(())
    }

    /// Forgets the sessions of all clients, so that their next handshakes are full ones.
    pub fn forget_sessions(&self) {
        self.current().sessions = ServerSessionMemoryCache::new(SESSIONS);
    }

    /// Returns a TLS 1.3 configuration for a server with this identity, without ALPN protocols.
    /// Without `clients`, it asks them for no certificate.
    ///
    /// # Errors
    ///
    /// If `clients` accepts nothing, or a certificate that cannot be used.
    pub fn server_tls(self: &Arc<Self>, clients: Option<&ClientAuth>) -> Result<ServerConfig, IdentityError> {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let config = match clients {
            Some(clients) => config.with_client_cert_verifier(clients.verifier()?),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.session_storage = Arc::clone(self) as Arc<dyn StoresServerSessions>;
        // No 0-RTT: early data can be replayed (RFC 8446 §8).
        config.max_early_data_size = 0;
        if let Some(secrets) = &self.secrets {
            config.key_log = Arc::new(secrets.clone());
        }
        Ok(config)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // It is replaced whole, so a panic leaves no partial one.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> Arc<ServerSessionMemoryCache> {
        Arc::clone(&self.current().sessions)
    }
}

impl ResolvesServerCert for ServerIdentity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current().key))
    }
}

impl StoresServerSessions for ServerIdentity {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.sessions().put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions().get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions().take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection};

    use super::*;
    use crate::Trust;

    /// Completes a handshake in memory; returns its kind and the server's certificate.
    fn handshake(
        server: &Arc<ServerConfig>,
        client: &Arc<ClientConfig>,
    ) -> (HandshakeKind, Option<CertificateDer<'static>>) {
        let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
        let name = ServerName::try_from("server.test").unwrap();
        let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
        // The last flight brings the tickets.
        for _ in 0..4 {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut &wire[..]).unwrap();
            server.process_new_packets().unwrap();
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut &wire[..]).unwrap();
            client.process_new_packets().unwrap();
        }
        let presented = client.peer_certificates().and_then(<[_]>::first).cloned();
        (client.handshake_kind().unwrap(), presented)
    }

    #[test]
    fn a_replaced_identity_ends_the_sessions_of_the_one_before() {
        let [first, second] = [(); 2].map(|()| Identity::self_signed("server.test").unwrap());
        let authorities = [&first, &second].map(|identity| identity.certificate().unwrap().clone());
        let client = Arc::new(Trust::Authority(authorities.to_vec()).client_tls().unwrap());
        let presented = ServerIdentity::new(&first).unwrap();
        let server = Arc::new(presented.server_tls(None).unwrap());
        let full = (HandshakeKind::Full, first.certificate().cloned());
        assert_eq!(handshake(&server, &client), full);
        assert_eq!(handshake(&server, &client).0, HandshakeKind::Resumed);
        presented.replace(&second).unwrap();
        assert_eq!(handshake(&server, &client), (HandshakeKind::Full, second.certificate().cloned()));
        assert_eq!(handshake(&server, &client).0, HandshakeKind::Resumed);
    }

    #[test]
    fn forgotten_sessions_are_not_resumed() {
        let identity = Identity::self_signed("server.test").unwrap();
        let trust = Trust::Certificate(identity.certificate().unwrap().clone());
        let client = Arc::new(trust.client_tls().unwrap());
        let presented = ServerIdentity::new(&identity).unwrap();
        let server = Arc::new(presented.server_tls(None).unwrap());
        handshake(&server, &client);
        assert_eq!(handshake(&server, &client).0, HandshakeKind::Resumed);
        presented.forget_sessions();
        assert_eq!(handshake(&server, &client).0, HandshakeKind::Full);
    }

    #[test]
    fn an_unusable_identity_leaves_the_one_before() {
        let [first, second] = [(); 2].map(|()| Identity::self_signed("server.test").unwrap());
        let presented = ServerIdentity::new(&first).unwrap();
        let ((chain, _), (_, key)) = (first.parts(), second.parts());
        presented.replace(&Identity::new(chain, key.clone_key())).unwrap_err();
        presented.replace(&Identity::new(vec![], key)).unwrap_err();
        assert_eq!(presented.current().key.cert.first(), first.certificate());
    }
}
