//! Identities of both ends, over both engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{NAME, close, for_both_engines, localhost, pair, within};
use marcato_net::rustls::crypto::{CryptoProvider, ring};
use marcato_net::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use marcato_net::rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use marcato_net::rustls::version::{TLS12, TLS13};
use marcato_net::rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use marcato_net::{
    ClientAuth, ClientSecurity, Closed, Config, ConnectError, Connection, Endpoint, Engine, ExportError,
    Identity, Message, PeerIdentity, Remote, ServerSecurity, SetIdentityError, Trust,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use socket2::SockRef;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

async fn listen(config: &Config, security: ServerSecurity) -> Endpoint {
    Endpoint::listen(config, &[localhost().into()], &security).await.unwrap()
}

/// Returns both ends of a connection.
async fn join(config: &Config, server: &Endpoint, security: ClientSecurity) -> (Connection, Connection) {
    let remote = Remote::new(server.local_addrs()[0], security);
    let ends = async { tokio::join!(Endpoint::connect(config, &remote), server.accept()) };
    let (client, accepted) = within(ends).await;
    (client.unwrap(), accepted.unwrap())
}

async fn an_identity_and_its_trust_are_read_from_pem_files(engine: Engine) {
    let dir = tempfile::tempdir().unwrap();
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| dir.path().join(name));
    let created = Identity::self_signed(NAME).unwrap();
    std::fs::write(&chain, created.chain_pem()).unwrap();
    std::fs::write(&key, created.key_pem()).unwrap();
    let config = Config::new(engine);
    let identity = Identity::from_pem_files(&chain, &key).unwrap();
    let server = listen(&config, ServerSecurity::Tls(identity)).await;
    let trust = Trust::from_pem_file(&chain).unwrap();
    join(&config, &server, ClientSecurity::trusting(NAME, trust)).await;
}

fn pin(identity: &Identity) -> Trust {
    Trust::Certificate(identity.certificate().unwrap().clone())
}

/// Returns the identity of a client and the authority that signed it.
fn signed() -> (Identity, CertificateDer<'static>) {
    let mut of_authority = CertificateParams::new([]).unwrap();
    of_authority.distinguished_name.push(DnType::CommonName, "authority");
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = of_authority.self_signed(&key).unwrap().der().clone();
    let (issuer, key) = (Issuer::new(of_authority, key), KeyPair::generate().unwrap());
    let certificate = CertificateParams::new(["client.test".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap().der().clone();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    (Identity::new(vec![certificate], key.into()), authority)
}

/// Server that asks its clients for certificates.
struct Mutual {
    config: Config,
    endpoint: Endpoint,
    identity: Identity,
}

impl Mutual {
    async fn new(engine: Engine, clients: ClientAuth) -> Self {
        let (config, identity) = (Config::new(engine), Identity::self_signed(NAME).unwrap());
        let endpoint = listen(&config, ServerSecurity::Mutual { identity: identity.clone(), clients }).await;
        Self { config, endpoint, identity }
    }

    fn security(&self, client: Option<&Identity>) -> ClientSecurity {
        let security = ClientSecurity::trusting(NAME, pin(&self.identity));
        client.map_or(security.clone(), |client| security.presenting(client.clone()))
    }

    /// Returns both ends of a connection of this client.
    async fn admit(&self, client: Option<&Identity>) -> (Connection, Connection) {
        join(&self.config, &self.endpoint, self.security(client)).await
    }

    /// Returns the error of this client, which is refused while it sends data, or waits for some.
    async fn refuse(&self, client: Option<&Identity>, sends: bool) -> String {
        let remote = Remote::new(self.endpoint.local_addrs()[0], self.security(client));
        let client = match within(Endpoint::connect(&self.config, &remote)).await {
            Ok(client) => client,
            Err(error) => return error.to_string(),
        };
        while sends && client.send(Message::new(vec![0; 1000])).await.is_ok() {}
        within(client.recv()).await.unwrap_err().to_string()
    }
}

async fn both_ends_know_the_identity_of_the_other(engine: Engine) {
    let (client, authority) = signed();
    let of_authority = ClientAuth::required([Trust::Authority(vec![authority])]);
    for clients in [of_authority, ClientAuth::required([pin(&client)]), ClientAuth::optional([pin(&client)])]
    {
        let server = Mutual::new(engine, clients).await;
        let (near, far) = server.admit(Some(&client)).await;
        let of_client = far.peer_identity().unwrap();
        assert_eq!(of_client.chain(), client.parts().0);
        assert_eq!(Some(of_client.fingerprint()), client.fingerprint());
        assert_eq!(near.peer_identity().map(PeerIdentity::fingerprint), server.identity.fingerprint());
        // It is known after the end, too.
        near.abort();
        within(near.closed()).await;
        assert_eq!(near.peer_identity().map(PeerIdentity::certificate), server.identity.certificate());
    }
}

async fn a_client_needs_no_certificate_where_it_is_optional(engine: Engine) {
    let (client, authority) = signed();
    let server = Mutual::new(engine, ClientAuth::optional([Trust::Authority(vec![authority])])).await;
    assert_eq!(server.admit(None).await.1.peer_identity(), None);
    assert!(server.admit(Some(&client)).await.1.peer_identity().is_some());
    let stranger = Identity::self_signed("stranger.test").unwrap();
    let error = server.refuse(Some(&stranger), false).await;
    assert!(error.contains("does not know the authority of our certificate"), "{error}");
}

async fn a_client_without_a_certificate_learns_the_reason(engine: Engine) {
    let client = Identity::self_signed("client.test").unwrap();
    let server = Mutual::new(engine, ClientAuth::required([pin(&client)])).await;
    for sends in [false, true, true, true] {
        let error = server.refuse(None, sends).await;
        assert!(error.contains("the server requires a certificate of its clients"), "{error}");
    }
    assert_eq!(server.endpoint.stats().accepted, 0);
}

async fn a_client_with_another_certificate_learns_the_reason(engine: Engine) {
    let client = Identity::self_signed("client.test").unwrap();
    let fingerprint = Trust::Fingerprint(client.fingerprint().unwrap());
    let server = Mutual::new(engine, ClientAuth::required([fingerprint])).await;
    server.admit(Some(&client)).await;
    let stranger = Identity::self_signed("client.test").unwrap();
    let error = server.refuse(Some(&stranger), true).await;
    assert!(error.contains("does not accept our certificate"), "{error}");
}

async fn a_replaced_identity_serves_new_clients_and_keeps_old_ones(engine: Engine) {
    let config = Config::new(engine);
    let [first, second] = [(); 2].map(|()| Identity::self_signed(NAME).unwrap());
    let server = listen(&config, ServerSecurity::Tls(first.clone())).await;
    let (client, accepted) = join(&config, &server, ClientSecurity::trusting(NAME, pin(&first))).await;
    server.set_identity(&second).unwrap();
    let (newer, _accepted) = join(&config, &server, ClientSecurity::trusting(NAME, pin(&second))).await;
    assert_eq!(newer.peer_identity().map(PeerIdentity::certificate), second.certificate());
    let old = Remote::new(server.local_addrs()[0], ClientSecurity::trusting(NAME, pin(&first)));
    within(Endpoint::connect(&config, &old)).await.unwrap_err();
    // One that cannot be used changes nothing.
    let unusable = Identity::new(first.parts().0, second.parts().1);
    assert!(matches!(server.set_identity(&unusable), Err(SetIdentityError::Identity(_))));
    join(&config, &server, ClientSecurity::trusting(NAME, pin(&second))).await;
    client.send(Message::new("still here")).await.unwrap();
    assert_eq!(within(accepted.recv()).await.unwrap().bytes, "still here");
}

#[tokio::test]
async fn a_plaintext_endpoint_has_no_identity_to_replace() {
    let server = listen(&Config::new(Engine::Tcp), ServerSecurity::Plaintext).await;
    let replaced = server.set_identity(&Identity::self_signed(NAME).unwrap());
    assert!(matches!(replaced, Err(SetIdentityError::NoIdentity)));
}

/// Returns a configuration with these protocols.
fn speaking(engine: Engine, protocols: &[&str]) -> Config {
    let alpn = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Config { alpn, ..Config::new(engine) }
}

async fn both_ends_agree_on_the_first_protocol_of_the_server(engine: Engine) {
    let identity = Identity::self_signed(NAME).unwrap();
    let security = ClientSecurity::trusting(NAME, pin(&identity));
    let config = speaking(engine, &["chat/3", "chat/2", "chat/1"]);
    let server = listen(&config, ServerSecurity::Tls(identity)).await;
    for (offered, agreed) in [(&["chat/1", "chat/2"][..], "chat/2"), (&["chat/1"], "chat/1")] {
        let (client, accepted) = join(&speaking(engine, offered), &server, security.clone()).await;
        for end in [client, accepted] {
            assert_eq!(end.alpn(), Some(agreed.as_bytes()));
        }
    }
    let remote = Remote::new(server.local_addrs()[0], security);
    for config in [Config::new(engine), speaking(engine, &["chat/4"])] {
        let error = within(Endpoint::connect(&config, &remote)).await.unwrap_err();
        assert!(error.to_string().contains("none of the protocols offered"), "{error}");
    }
    for (wrong, message) in
        [(vec![], "at least one protocol"), (vec![vec![]], "not 0"), (vec![vec![1; 256]], "not 256")]
    {
        let config = Config { alpn: wrong, ..Config::new(engine) };
        let error = within(Endpoint::connect(&config, &remote)).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

async fn the_default_protocol_is_that_of_marcato(engine: Engine) {
    let (client, accepted, _server) = pair(&Config::new(engine)).await;
    assert_eq!((client.alpn(), accepted.alpn()), (Some(&b"marcato/2"[..]), Some(&b"marcato/2"[..])));
}

/// Returns configurations of both ends, with these versions of TLS.
fn custom(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
) -> (ServerConfig, ClientConfig) {
    let (identity, provider) = (Identity::self_signed(NAME).unwrap(), Arc::new(provider));
    let (chain, key) = identity.parts();
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let server = server.with_protocol_versions(versions).unwrap().with_no_client_auth();
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    (server.with_single_cert(chain, key).unwrap(), client)
}

fn custom_client(config: &ClientConfig) -> ClientSecurity {
    ClientSecurity::Custom { name: NAME.to_owned(), config: Arc::new(config.clone()) }
}

/// Store of a server's sessions that counts those that are resumed.
#[derive(Debug)]
struct Counting {
    sessions: Arc<ServerSessionMemoryCache>,
    resumed: AtomicUsize,
}

impl StoresServerSessions for Counting {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.sessions.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let session = self.sessions.take(key);
        self.resumed.fetch_add(usize::from(session.is_some()), Ordering::Relaxed);
        session
    }

    fn can_cache(&self) -> bool {
        true
    }
}

async fn both_ends_take_custom_configurations(engine: Engine) {
    let (mut server, mut client) = custom(ring::default_provider(), &[&TLS13]);
    let sessions =
        Arc::new(Counting { sessions: ServerSessionMemoryCache::new(32), resumed: AtomicUsize::new(0) });
    server.session_storage = Arc::clone(&sessions) as Arc<dyn StoresServerSessions>;
    // Either is switched off: early data can be replayed.
    (server.max_early_data_size, client.enable_early_data) = (1000, true);
    for protocols in [&["marcato/2"][..], &["chat/2", "chat/1"]] {
        let config = speaking(engine, protocols);
        let endpoint = listen(&config, ServerSecurity::Custom(Arc::new(server.clone()))).await;
        for _ in 0..2 {
            let (near, far) = join(&config, &endpoint, custom_client(&client)).await;
            assert_eq!(
                (near.alpn(), far.alpn()),
                (Some(protocols[0].as_bytes()), Some(protocols[0].as_bytes()))
            );
            far.send(Message::new("welcome")).await.unwrap();
            assert_eq!(within(near.recv()).await.unwrap().bytes, "welcome");
        }
        let replaced = endpoint.set_identity(&Identity::self_signed(NAME).unwrap());
        assert!(matches!(replaced, Err(SetIdentityError::NoIdentity)));
    }
    // All except the first resumed the session before, as the client's configuration lets them.
    assert_eq!(sessions.resumed.load(Ordering::Relaxed), 3);
    // Protocols that the configuration names are kept, if the application names them as well.
    let config = speaking(engine, &["chat/2", "chat/1"]);
    server.alpn_protocols = vec![b"chat/1".to_vec()];
    let endpoint = listen(&config, ServerSecurity::Custom(Arc::new(server.clone()))).await;
    let (near, _far) = join(&config, &endpoint, custom_client(&client)).await;
    assert_eq!(near.alpn(), Some(&b"chat/1"[..]));
}

async fn errors_of_custom_configurations_say_what_is_missing(engine: Engine) {
    let refusals = async |config: &Config, server: &ServerConfig, client: &ClientConfig| {
        let security = ServerSecurity::Custom(Arc::new(server.clone()));
        let listen = Endpoint::listen(config, &[localhost().into()], &security).await;
        let remote = Remote::new(localhost(), custom_client(client));
        let connect = within(Endpoint::connect(config, &remote)).await;
        [listen.unwrap_err().to_string(), connect.unwrap_err().to_string()]
    };
    let config = Config::new(engine);
    let (mut server, mut client) = custom(ring::default_provider(), &[&TLS13]);
    server.alpn_protocols = vec![b"chat/1".to_vec()];
    client.alpn_protocols = vec![b"chat/1".to_vec()];
    for error in refusals(&config, &server, &client).await {
        assert!(error.contains("the protocol `chat/1`, which `alpn` does not"), "{error}");
    }
    let (server, client) = custom(ring::default_provider(), &[&TLS12]);
    if engine == Engine::Tcp {
        let endpoint = listen(&config, ServerSecurity::Custom(Arc::new(server))).await;
        join(&config, &endpoint, custom_client(&client)).await;
        return;
    }
    for error in refusals(&config, &server, &client).await {
        assert!(error.contains("TLS 1.3 support is required"), "{error}");
    }
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let (server, client) = custom(provider, &[&TLS13]);
    for error in refusals(&config, &server, &client).await {
        assert!(error.contains("enable AES-128-GCM with SHA-256"), "{error}");
    }
}

/// Exports 32 bytes of keying material.
fn export(end: &Connection, label: &str, context: &str) -> Result<[u8; 32], ExportError> {
    let mut out = [0; 32];
    end.export_keying_material(&mut out, label.as_bytes(), context.as_bytes()).map(|()| out)
}

async fn both_ends_export_equal_keying_material(engine: Engine) {
    let config = Config::new(engine);
    let (client, accepted, server) = pair(&config).await;
    let near = export(&client, "EXPORTER-test", "a").unwrap();
    assert_eq!(export(&accepted, "EXPORTER-test", "a"), Ok(near));
    // It depends on the label, the context and the connection.
    let (other, _accepted) = join(&config, &server.endpoint, server.remote().security).await;
    let others = [
        export(&accepted, "EXPORTER-test", "b").unwrap(),
        export(&accepted, "EXPORTER-other", "a").unwrap(),
        export(&other, "EXPORTER-test", "a").unwrap(),
        [0; 32],
    ];
    assert!(!others.contains(&near));
    // Data in flight changes nothing.
    client.send(Message::new(vec![0; 100_000])).await.unwrap();
    assert_eq!(export(&client, "EXPORTER-test", "a"), Ok(near));
    within(accepted.recv()).await.unwrap();
    assert_eq!(export(&accepted, "EXPORTER-test", "a"), Ok(near));
    for len in [0, 1 << 14] {
        let exported = client.export_keying_material(&mut vec![0; len], b"EXPORTER-test", b"");
        assert_eq!(exported, Err(ExportError::Length { len }));
    }
    close(client.clone(), accepted).await;
    assert_eq!(export(&client, "EXPORTER-test", "a"), Err(ExportError::Closed));
}

#[tokio::test]
async fn a_plaintext_connection_has_nothing_of_tls() {
    let config = Config::new(Engine::Tcp);
    let server = listen(&config, ServerSecurity::Plaintext).await;
    let (client, accepted) = join(&config, &server, ClientSecurity::Plaintext).await;
    for end in [client, accepted] {
        assert_eq!((end.peer_identity(), end.alpn()), (None, None));
        assert_eq!(export(&end, "EXPORTER-test", "a"), Err(ExportError::Plaintext));
    }
}

#[tokio::test]
async fn a_tls_peer_that_names_no_protocol_is_refused() {
    let identity = Identity::self_signed(NAME).unwrap();
    let config = Config::new(Engine::Tcp);
    let server = listen(&config, ServerSecurity::Tls(identity.clone())).await;
    let stream = TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    let tls = TlsConnector::from(Arc::new(pin(&identity).client_tls().unwrap()));
    let mut client = tls.connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
    let mut bytes = Vec::new();
    // The server ends the connection without data and without TLS's end.
    assert!(within(client.read_to_end(&mut bytes)).await.is_err() && bytes.is_empty());
    assert_eq!(server.stats().accepted, 0);

    let listener = TcpListener::bind(localhost()).await.unwrap();
    let remote = Remote::new(listener.local_addr().unwrap(), ClientSecurity::trusting(NAME, pin(&identity)));
    let tls = TlsAcceptor::from(Arc::new(identity.server_tls(None).unwrap()));
    let accept = async { tls.accept(listener.accept().await.unwrap().0).await };
    let (connected, _stream) =
        within(async { tokio::join!(Endpoint::connect(&config, &remote), accept) }).await;
    assert!(matches!(connected, Err(ConnectError::Protocol { .. })), "{connected:?}");
}

/// The connection's write meets the closed socket before it has read the alert.
#[tokio::test]
async fn the_reason_of_an_end_is_the_alert_behind_a_failed_write() {
    let identity = Identity::self_signed(NAME).unwrap();
    let listener = TcpListener::bind(localhost()).await.unwrap();
    let remote = Remote::new(listener.local_addr().unwrap(), ClientSecurity::trusting(NAME, pin(&identity)));
    let config = Config::new(Engine::Tcp);
    let mut tls = identity.server_tls(None).unwrap();
    tls.alpn_protocols.clone_from(&config.alpn);
    let tls = TlsAcceptor::from(Arc::new(tls));
    let accept = async { tls.accept(listener.accept().await.unwrap().0).await };
    let (client, peer) = within(async { tokio::join!(Endpoint::connect(&config, &remote), accept) }).await;
    let client = client.unwrap();
    // The connection has sent a message, and rests.
    client.send(Message::new(vec![1; 100])).await.unwrap();
    let mut peer = peer.unwrap();
    within(peer.read_exact(&mut [0; 100])).await.unwrap();
    let (stream, session) = peer.get_mut();
    // A record that cannot be decrypted is answered with an alert.
    session.read_tls(&mut [23, 3, 3, 0, 5, 1, 2, 3, 4, 5].as_slice()).unwrap();
    session.process_new_packets().unwrap_err();
    let mut alert = Vec::new();
    session.write_tls(&mut alert).unwrap();
    assert_eq!(stream.try_write(&alert).unwrap(), alert.len());
    SockRef::from(&*stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(peer);
    // All of this happened in one turn of this thread: the connection wakes to a message and to a reset.
    client.try_send(&Message::new(vec![2; 100])).unwrap();
    let Closed::Lost { reason, .. } = within(client.closed()).await else { panic!("the connection is lost") };
    assert!(reason.contains("alert"), "{reason}");
}

for_both_engines! {
    an_identity_and_its_trust_are_read_from_pem_files
    both_ends_know_the_identity_of_the_other
    a_client_needs_no_certificate_where_it_is_optional
    a_client_without_a_certificate_learns_the_reason
    a_client_with_another_certificate_learns_the_reason
    a_replaced_identity_serves_new_clients_and_keeps_old_ones
    both_ends_agree_on_the_first_protocol_of_the_server
    the_default_protocol_is_that_of_marcato
    both_ends_take_custom_configurations
    both_ends_export_equal_keying_material
    errors_of_custom_configurations_say_what_is_missing
}
