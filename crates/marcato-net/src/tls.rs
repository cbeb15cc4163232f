//! TLS configurations of both engines, and what their handshakes have established.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use marcato_identity::{ClientAuth, PeerIdentity, ServerIdentity};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ServerConfig, quic};

use crate::config::{ClientSecurity, Config, ServerSecurity};
use crate::engine::Engine;
use crate::error::{ConfigError, ConnectError};
use crate::sessions::{Peer, Sessions};
use crate::trust::trust_or_system;

/// Results of a connection's TLS handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// Certificates that the peer has presented.
    pub(crate) peer: Option<PeerIdentity>,
    /// Protocol negotiated.
    pub(crate) alpn: Option<Vec<u8>>,
    /// Set if an earlier session was resumed: the certificates were verified then, and not now.
    pub(crate) resumed: bool,
    /// Name that a client has asked for, at a server.
    pub(crate) server_name: Option<String>,
}

/// TLS of a server; nothing in plaintext.
#[derive(Default)]
pub(crate) struct ServerTls {
    pub(crate) config: Option<Arc<ServerConfig>>,
    /// Identity that can be replaced.
    pub(crate) identity: Option<Arc<ServerIdentity>>,
    /// Verifier of clients' certificates, if they are asked for any.
    pub(crate) clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// TLS of a client.
pub(crate) struct ClientTls<'a> {
    /// Name of the server.
    pub(crate) name: &'a str,
    pub(crate) config: Arc<ClientConfig>,
    /// Sessions that may be resumed; `None` with a custom configuration.
    sessions: Option<(&'a Sessions, Peer)>,
}

/// Error of a resumed session whose server would not be trusted in a full handshake.
#[derive(Debug, thiserror::Error)]
#[error("the certificate of the resumed session is no longer accepted: {0}")]
struct Stale(ConfigError);

impl ClientTls<'_> {
    /// Lets early data leave if there is a ticket for it, provided that every certificate to which
    /// that may belong is accepted now. A check after the handshake would come too late.
    #[cfg(feature = "quic")]
    pub(crate) fn allow_early_data(&mut self) {
        let early = self.sessions.as_ref().and_then(|(sessions, peer)| sessions.early_tls(peer));
        if let Some(early) = early {
            self.config = early;
        }
    }

    /// Verifies the server of a resumed session again, as in a full handshake. If it is not trusted
    /// any more, its sessions are forgotten.
    pub(crate) fn check(&self, addr: SocketAddr, handshake: Option<&Handshake>) -> Result<(), ConnectError> {
        let Some((sessions, peer)) = &self.sessions else { return Ok(()) };
        let Some(handshake) = handshake.filter(|handshake| handshake.resumed) else { return Ok(()) };
        self.verify(peer, handshake, sessions.now()).map_err(|error| {
            sessions.forget(peer);
            ConnectError::Tls { addr, source: io::Error::other(Stale(error)) }
        })
    }

    fn verify(&self, peer: &Peer, handshake: &Handshake, now: UnixTime) -> Result<(), ConfigError> {
        let chain = handshake.peer.as_ref().map_or(&[][..], PeerIdentity::chain);
        let (certificate, others) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        let name = ServerName::try_from(self.name);
        let name = name.map_err(|_| ConfigError::Name { name: self.name.to_owned() })?;
        peer.trust.verifier()?.verify_server_cert(certificate, others, &name, &[], now)?;
        Ok(())
    }
}

/// Connects, and once more if the first attempt has resumed a stale session. That was forgotten, so
/// the second one makes a full handshake.
pub(crate) async fn renewing<C, F>(connect: impl Fn() -> F) -> Result<C, ConnectError>
where
    F: Future<Output = Result<C, ConnectError>>,
{
    match connect().await {
        Err(error) if is_stale(&error) => connect().await,
        result => result,
    }
}

fn is_stale(error: &ConnectError) -> bool {
    match error {
        ConnectError::Tls { source, .. } => source.get_ref().is_some_and(|error| error.is::<Stale>()),
        _ => false,
    }
}

/// Returns whether a client that has resumed a session would be accepted in a full handshake.
pub(crate) fn is_accepted(clients: &dyn ClientCertVerifier, handshake: &Handshake, now: UnixTime) -> bool {
    let chain = handshake.peer.as_ref().map_or(&[][..], PeerIdentity::chain);
    match chain.split_first() {
        // The handshake has verified it.
        _ if !handshake.resumed => true,
        None => !clients.client_auth_mandatory(),
        Some((certificate, others)) => clients.verify_client_cert(certificate, others, now).is_ok(),
    }
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
            return Ok(ServerTls { config: Some(tls), identity: None, clients: None });
        }
    };
    let identity = ServerIdentity::new(identity)?;
    let mut tls = identity.server_tls(clients)?;
    name_protocols(config, &mut tls.alpn_protocols)?;
    #[cfg(feature = "quic")]
    if config.engine == Engine::Quic && config.quic.early_data {
        // RFC 9001 §4.6.1: QUIC knows no other value. The stored sessions of the identity are used
        // once, which protects against replay as long as this endpoint lasts (RFC 8446 §8.1).
        tls.max_early_data_size = u32::MAX;
    }
    let clients = clients.map(ClientAuth::verifier).transpose()?;
    Ok(ServerTls { config: Some(Arc::new(tls)), identity: Some(identity), clients })
}

/// Returns the TLS of a client; `None` in plaintext.
pub(crate) async fn client<'a>(
    config: &Config,
    security: &'a ClientSecurity,
) -> Result<Option<ClientTls<'a>>, ConfigError> {
    let (name, custom) = match security {
        ClientSecurity::Tls { name, trust, identity, sessions } => {
            let trust = trust_or_system(trust.as_ref()).await?;
            let peer = Peer::new(config.engine, &config.alpn, name, trust, identity.as_ref());
            return Ok(Some(ClientTls {
                name,
                config: sessions.tls(&peer)?,
                sessions: Some((sessions, peer)),
            }));
        }
        ClientSecurity::Custom { name, config } => (name, config),
        ClientSecurity::Plaintext => return Ok(None),
    };
    let mut tls = ClientConfig::clone(custom);
    name_protocols(config, &mut tls.alpn_protocols)?;
    tls.enable_early_data = false;
    let tls = Arc::new(tls);
    if config.engine == Engine::Quic {
        let server = ServerName::from(Ipv4Addr::UNSPECIFIED);
        quic::ClientConnection::new(Arc::clone(&tls), quic::Version::V1, server, Vec::new())
            .map_err(|error| unsuited(&error))?;
    }
    Ok(Some(ClientTls { name, config: tls, sessions: None }))
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

#[cfg(test)]
#[cfg(all(feature = "quic", feature = "tcp"))]
mod tests {
    use std::time::Duration;

    use marcato_identity::{Identity, Trust};
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;
    use crate::config::Remote;
    use crate::connection::Connection;
    use crate::endpoint::Endpoint;
    use crate::target::Named;
    use marcato_stream::Message;

    const NAME: &str = "localhost";

    /// Returns an identity that expires in 2100.
    fn expiring() -> Identity {
        let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
        params.not_after = date_time_ymd(2100, 1, 1);
        let key = KeyPair::generate().unwrap();
        let chain = vec![params.self_signed(&key).unwrap().der().clone()];
        Identity::new(chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }

    fn pin(identity: &Identity) -> Trust {
        Trust::Certificate(identity.certificate().unwrap().clone())
    }

    /// Returns a time after that.
    fn later() -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(140 * 365 * 86_400))
    }

    async fn listen(config: &Config, security: &ServerSecurity) -> Endpoint {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        Endpoint::listen(config, &[local.into()], security).await.unwrap()
    }

    /// Runs a test that would otherwise wait for ever if it failed.
    async fn within<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), work).await.expect("it takes far too long")
    }

    /// Connects, and waits for the server's tickets.
    async fn join(config: &Config, server: &Endpoint, to: &Named) -> Connection {
        let (client, accepted) = tokio::join!(Endpoint::connect(config, to.clone()), server.accept());
        let (client, accepted) = (client.unwrap(), accepted.unwrap());
        accepted.send(Message::new("hello")).await.unwrap();
        client.recv().await.unwrap();
        client
    }

    /// Connects in two attempts, of which the one that is given up may also reach the server's
    /// application.
    async fn renewed(
        server: &Endpoint,
        connect: impl Future<Output = Result<Connection, ConnectError>>,
    ) -> Connection {
        tokio::pin!(connect);
        within(async {
            loop {
                tokio::select! {
                    connected = &mut connect => break connected.unwrap(),
                    accepted = server.accept() => drop(accepted),
                }
            }
        })
        .await
    }

    /// RFC 8446 §8: what is sent early can be replayed, and only this crate's own configurations know how to bound that.
    #[tokio::test]
    async fn custom_configurations_send_and_accept_no_early_data() {
        let config = Config { alpn: vec![b"own".to_vec()], ..Config::new(Engine::Quic) };
        let identity = expiring();
        let mut custom = identity.server_tls(None).unwrap();
        custom.max_early_data_size = u32::MAX;
        custom.alpn_protocols.clear();
        let tls = server(&config, &ServerSecurity::Custom(Arc::new(custom))).unwrap();
        let accepting = tls.config.unwrap();
        assert_eq!((accepting.max_early_data_size, &accepting.alpn_protocols), (0, &config.alpn));

        let own = ClientSecurity::trusting(NAME, pin(&identity));
        let own = client(&config, &own).await.unwrap().unwrap();
        let mut custom = ClientConfig::clone(&own.config);
        custom.enable_early_data = true;
        custom.alpn_protocols.clear();
        let custom = ClientSecurity::Custom { name: NAME.to_owned(), config: Arc::new(custom) };
        let tls = client(&config, &custom).await.unwrap().unwrap();
        assert_eq!((tls.config.enable_early_data, &tls.config.alpn_protocols), (false, &config.alpn));
        assert!(tls.sessions.is_none());
    }

    #[tokio::test]
    async fn a_server_whose_certificate_has_expired_is_not_resumed() {
        for config in [Engine::Tcp, Engine::Quic].map(Config::new) {
            let identity = expiring();
            let server = listen(&config, &ServerSecurity::Tls(identity.clone())).await;
            let mut sessions = Sessions::default();
            let to = format!("{NAME}:{}", server.local_addrs()[0].port());
            let to = |sessions: &Sessions| Named::new(&to).trusting(pin(&identity)).with_sessions(sessions);
            assert!(!join(&config, &server, &to(&sessions)).await.resumed());
            assert!(join(&config, &server, &to(&sessions)).await.resumed());
            // TLS itself checks with the present time, so that the full handshake succeeds.
            sessions.at = Some(later());
            let connected = renewed(&server, Endpoint::connect(&config, to(&sessions))).await;
            assert!(!connected.resumed());
        }
    }

    /// Early data would leave before the check that follows the handshake.
    #[tokio::test]
    async fn no_early_data_leaves_for_an_expired_certificate() {
        let mut config = Config::new(Engine::Quic);
        config.quic.early_data = true;
        let identity = expiring();
        let server = listen(&config, &ServerSecurity::Tls(identity.clone())).await;
        let mut sessions = Sessions::default();
        let remote = |sessions: &Sessions| {
            let security = ClientSecurity::trusting(NAME, pin(&identity)).with_sessions(sessions);
            Remote::new(server.local_addrs()[0], security)
        };
        let to = remote(&sessions);
        let ends = async { tokio::join!(Endpoint::connect(&config, &to), server.accept()) };
        let (first, accepted) = within(ends).await;
        let (first, accepted) = (first.unwrap(), accepted.unwrap());
        accepted.send(Message::new("hello")).await.unwrap();
        within(first.recv()).await.unwrap();
        let early = within(Endpoint::connect_early(&config, &remote(&sessions))).await.unwrap();
        assert!(early.transport().is_early());
        let accepted = within(server.accept()).await.unwrap();
        accepted.send(Message::new("hello")).await.unwrap();
        within(early.recv()).await.unwrap();
        sessions.at = Some(later());
        let to = remote(&sessions);
        let connected = renewed(&server, Endpoint::connect_early(&config, &to)).await;
        assert!(!connected.transport().is_early() && !connected.resumed());
    }

    #[tokio::test]
    async fn early_data_of_an_expired_client_is_not_delivered() {
        let mut config = Config::new(Engine::Quic);
        config.quic.early_data = true;
        let (hub, meter) = (Identity::self_signed(NAME).unwrap(), expiring());
        let clients = ClientAuth::required([pin(&meter)]);
        let security = ServerSecurity::Mutual { identity: hub.clone(), clients };
        let mut server = listen(&config, &security).await;
        let security = ClientSecurity::trusting(NAME, pin(&hub)).presenting(meter);
        let remote = Remote::new(server.local_addrs()[0], security);
        let ends = async { tokio::join!(Endpoint::connect(&config, &remote), server.accept()) };
        let (first, accepted) = within(ends).await;
        let (first, accepted) = (first.unwrap(), accepted.unwrap());
        accepted.send(Message::new("hello")).await.unwrap();
        within(first.recv()).await.unwrap();
        server.at = Some(later());
        let early = within(Endpoint::connect_early(&config, &remote)).await.unwrap();
        assert!(early.transport().is_early());
        early.send(Message::new("reading").idempotent()).await.unwrap();
        tokio::select! {
            accepted = server.accept() => panic!("{accepted:?} is accepted"),
            closed = within(early.closed()) => assert!(matches!(closed, crate::Closed::Lost { .. }), "{closed}"),
        }
        assert_eq!((server.stats().accepted, server.stats().failed), (1, 1));
    }

    #[tokio::test]
    async fn a_client_whose_certificate_has_expired_is_not_resumed() {
        for config in [Engine::Tcp, Engine::Quic].map(Config::new) {
            let (hub, meter) = (Identity::self_signed(NAME).unwrap(), expiring());
            let clients = ClientAuth::required([pin(&meter)]);
            let security = ServerSecurity::Mutual { identity: hub.clone(), clients };
            let mut server = listen(&config, &security).await;
            let to = Named::new(&format!("{NAME}:{}", server.local_addrs()[0].port()));
            let to = to.trusting(pin(&hub)).presenting(meter);
            assert!(!join(&config, &server, &to).await.resumed());
            assert!(join(&config, &server, &to).await.resumed());
            server.at = Some(later());
            let stale = Endpoint::connect(&config, to.clone()).await.unwrap();
            // The next one makes a full handshake, which TLS itself checks with the present time.
            let accepted = tokio::spawn(async move { (server.accept().await, server) });
            let closed = within(stale.closed()).await;
            assert!(matches!(closed, crate::Closed::Lost { .. }), "{closed}");
            let client = Endpoint::connect(&config, to).await.unwrap();
            let (accepted, server) = within(accepted).await.unwrap();
            assert!(!client.resumed() && !accepted.unwrap().resumed());
            assert_eq!((server.stats().accepted, server.stats().failed), (3, 1));
        }
    }
}
