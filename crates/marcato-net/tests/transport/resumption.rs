//! Resumption of TLS sessions over both engines: between which connections, and what it keeps.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{NAME, for_both_engines, localhost, within};
use marcato_net::{
    Client, ClientAuth, ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Message, Named,
    PeerIdentity, ReconnectConfig, Reconnecting, Remote, ServerSecurity, Sessions, Trust,
};

/// Name of the certificate's server, and another one that it is for as well.
const OTHER: &str = "other.test";

fn identity() -> Identity {
    Identity::self_signed(NAME).unwrap()
}

/// Returns the trust in this certificate, whatever its name.
fn pin(identity: &Identity) -> Trust {
    Trust::Fingerprint(identity.fingerprint().unwrap())
}

async fn listen(config: &Config, security: ServerSecurity) -> Endpoint {
    Endpoint::listen(config, &[localhost().into()], &security).await.unwrap()
}

/// Connects, and returns both ends once the server's tickets have come.
async fn join(config: &Config, server: &Endpoint, security: &ClientSecurity) -> (Connection, Connection) {
    let remote = Remote::new(server.local_addrs()[0], security.clone());
    let ends = async { tokio::join!(Endpoint::connect(config, &remote), server.accept()) };
    let (client, accepted) = within(ends).await;
    settle(client.unwrap(), accepted.unwrap()).await
}

/// Sends a message in either direction. The server's tickets come before its data.
async fn settle(client: Connection, server: Connection) -> (Connection, Connection) {
    for (from, to) in [(&client, &server), (&server, &client)] {
        let mut sent = from.send(Message::new("hello")).await.unwrap();
        within(to.recv()).await.unwrap();
        within(sent.acknowledged()).await.unwrap();
    }
    assert_eq!(client.resumed(), server.resumed());
    (client, server)
}

async fn resumes(config: &Config, server: &Endpoint, security: &ClientSecurity) -> bool {
    join(config, server, security).await.0.resumed()
}

async fn connecting_again_resumes_the_session(engine: Engine) {
    let (config, identity) = (Config::new(engine), identity());
    let server = listen(&config, ServerSecurity::Tls(identity.clone())).await;
    let security = ClientSecurity::trusting(NAME, pin(&identity));
    assert!(!resumes(&config, &server, &security).await);
    // Each connection brings tickets for the next ones.
    for _ in 0..10 {
        let (client, _server) = join(&config, &server, &security.clone()).await;
        assert!(client.resumed());
        // The results are those of a full handshake.
        assert_eq!(client.peer_identity().map(PeerIdentity::fingerprint), identity.fingerprint());
        assert_eq!(client.alpn(), Some(&b"marcato/2"[..]));
    }
    // Another value has sessions of its own, unless it shares them or has none.
    let other = ClientSecurity::trusting(NAME, pin(&identity));
    assert!(!resumes(&config, &server, &other).await);
    let shared = Sessions::default();
    let other = other.with_sessions(&shared);
    let third = ClientSecurity::trusting(NAME, pin(&identity)).with_sessions(&shared);
    assert!(!resumes(&config, &server, &other).await);
    assert!(resumes(&config, &server, &third).await);
    let none = third.with_sessions(&Sessions::none());
    for _ in 0..2 {
        assert!(!resumes(&config, &server, &none).await);
    }
}

async fn keying_material_of_a_resumed_session_is_its_own(engine: Engine) {
    let (config, identity) = (Config::new(engine), identity());
    let server = listen(&config, ServerSecurity::Tls(identity.clone())).await;
    let security = ClientSecurity::trusting(NAME, pin(&identity));
    let mut all = Vec::new();
    for _ in 0..2 {
        let (near, far) = join(&config, &server, &security).await;
        let exported = [&near, &far].map(|end| {
            let mut out = [0; 32];
            end.export_keying_material(&mut out, b"EXPORTER-test", b"").unwrap();
            out
        });
        assert_eq!(exported[0], exported[1]);
        all.push(exported[0]);
    }
    assert_ne!(all[0], all[1]);
}

/// Sessions are shared by value here, and yet not between peers that differ.
async fn sessions_are_not_resumed_between_different_peers(engine: Engine) {
    let (one, other) = (identity(), identity());
    let alpn = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let config = Config { alpn: alpn(&["chat/1", "chat/2"]), ..Config::new(engine) };
    let clients = ClientAuth::optional([pin(&one), pin(&other)]);
    let server = listen(&config, ServerSecurity::Mutual { identity: one.clone(), clients }).await;
    let sessions = Sessions::default();
    let trusting = |name: &str, trust| ClientSecurity::trusting(name, trust).with_sessions(&sessions);
    let fingerprint = trusting(NAME, pin(&one));
    let certificate = trusting(NAME, Trust::Certificate(one.certificate().unwrap().clone()));
    let renamed = trusting(OTHER, pin(&one));
    let presenting = fingerprint.clone().presenting(other.clone());
    let other_presented = fingerprint.clone().presenting(one.clone());
    for security in [&fingerprint, &certificate, &renamed, &presenting, &other_presented] {
        assert!(!resumes(&config, &server, security).await, "{security:?}");
    }
    let fewer = Config { alpn: alpn(&["chat/1"]), ..config.clone() };
    assert!(!resumes(&fewer, &server, &fingerprint).await);
    // Each of them resumes its own.
    for security in [&fingerprint, &certificate, &renamed, &presenting, &other_presented] {
        assert!(resumes(&config, &server, security).await, "{security:?}");
    }
    assert!(resumes(&fewer, &server, &fingerprint).await);
}

async fn a_resumed_session_keeps_the_identity_of_the_client(engine: Engine) {
    let (config, [hub, meter]) = (Config::new(engine), [(); 2].map(|()| identity()));
    let clients = ClientAuth::required([pin(&meter)]);
    let server = listen(&config, ServerSecurity::Mutual { identity: hub.clone(), clients }).await;
    let security = ClientSecurity::trusting(NAME, pin(&hub)).presenting(meter.clone());
    for expected in [false, true, true] {
        let (client, accepted) = join(&config, &server, &security).await;
        assert_eq!(client.resumed(), expected);
        assert_eq!(accepted.peer_identity().map(PeerIdentity::fingerprint), meter.fingerprint());
    }
}

async fn a_replaced_identity_is_presented_to_clients_that_return(engine: Engine) {
    let (config, [first, second]) = (Config::new(engine), [(); 2].map(|()| identity()));
    let server = listen(&config, ServerSecurity::Tls(first.clone())).await;
    let authorities = [&first, &second].map(|identity| identity.certificate().unwrap().clone());
    let security = ClientSecurity::trusting(NAME, Trust::Authority(authorities.to_vec()));
    assert!(!resumes(&config, &server, &security).await);
    server.set_identity(&second).unwrap();
    let (client, _server) = join(&config, &server, &security).await;
    assert!(!client.resumed());
    assert_eq!(client.peer_identity().map(PeerIdentity::fingerprint), second.fingerprint());
    assert!(resumes(&config, &server, &security).await);
}

async fn a_server_that_has_restarted_knows_no_sessions(engine: Engine) {
    let (config, identity) = (Config::new(engine), identity());
    let security = ClientSecurity::trusting(NAME, pin(&identity));
    for _ in 0..2 {
        let server = listen(&config, ServerSecurity::Tls(identity.clone())).await;
        assert!(!resumes(&config, &server, &security).await);
        assert!(resumes(&config, &server, &security).await);
    }
}

async fn names_and_reconnecting_clients_resume(engine: Engine) {
    let (config, identity) = (Config::new(engine), Identity::self_signed("localhost").unwrap());
    let server = listen(&config, ServerSecurity::Tls(identity.clone())).await;
    let addr: SocketAddr = server.local_addrs()[0];
    let named = Named::new(&format!("localhost:{}", addr.port())).trusting(pin(&identity));
    for expected in [false, true] {
        let ends = async { tokio::join!(Endpoint::connect(&config, named.clone()), server.accept()) };
        let (client, accepted) = within(ends).await;
        let (client, _accepted) = settle(client.unwrap(), accepted.unwrap()).await;
        assert_eq!(client.resumed(), expected);
    }
    let first = Duration::from_millis(1);
    let settings = ReconnectConfig { first, ..ReconnectConfig::default() };
    let remote = Remote::new(addr, ClientSecurity::trusting("localhost", pin(&identity)));
    let client = Reconnecting::new(&config, remote, &settings).unwrap();
    for expected in [false, true] {
        let accepted = within(server.accept()).await.unwrap();
        accepted.send(Message::new("welcome")).await.unwrap();
        within(client.recv()).await.unwrap();
        assert_eq!(accepted.resumed(), expected);
    }
}

async fn custom_configurations_resume_as_they_say(engine: Engine) {
    let (config, identity) = (Config::new(engine), identity());
    let server = listen(&config, ServerSecurity::Tls(identity.clone())).await;
    let tls = Arc::new(pin(&identity).client_tls().unwrap());
    let security = ClientSecurity::Custom { name: NAME.to_owned(), config: tls };
    assert!(!resumes(&config, &server, &security).await);
    assert!(resumes(&config, &server, &security).await);
}

#[tokio::test]
async fn clients_with_shared_sockets_resume() {
    let (config, identity) = (Config::new(Engine::Quic), identity());
    let server = listen(&config, ServerSecurity::Tls(identity.clone())).await;
    let client = Client::bind(&config, &[localhost().into()]).unwrap();
    let remote = Remote::new(server.local_addrs()[0], ClientSecurity::trusting(NAME, pin(&identity)));
    for expected in [false, true] {
        let ends = async { tokio::join!(client.connect(&remote), server.accept()) };
        let (client, accepted) = within(ends).await;
        let (client, _accepted) = settle(client.unwrap(), accepted.unwrap()).await;
        assert_eq!(client.resumed(), expected);
    }
}

for_both_engines! {
    connecting_again_resumes_the_session
    keying_material_of_a_resumed_session_is_its_own
    sessions_are_not_resumed_between_different_peers
    a_resumed_session_keeps_the_identity_of_the_client
    a_replaced_identity_is_presented_to_clients_that_return
    a_server_that_has_restarted_knows_no_sessions
    names_and_reconnecting_clients_resume
    custom_configurations_resume_as_they_say
}
