//! Early data (0-RTT) over sockets: accepted, rejected and forbidden.

use std::time::Duration;

use crate::common::{NAME, localhost, until, within};
use marcato_net::{
    Client, ClientAuth, ClientSecurity, Closed, Config, Connection, EarlyStats, Endpoint, Engine, Identity,
    Message, NotDelivered, PeerIdentity, Priority, Received, Remote, SendError, ServerSecurity, Trust,
};

/// Server, and a client that has tickets of it.
struct Known {
    config: Config,
    identity: Identity,
    server: Endpoint,
    remote: Remote,
}

fn trusting(identity: &Identity) -> ClientSecurity {
    ClientSecurity::trusting(NAME, Trust::Certificate(identity.certificate().unwrap().clone()))
}

fn allowing() -> Config {
    let mut config = Config::new(Engine::Quic);
    config.quic.early_data = true;
    config
}

impl Known {
    async fn new(config: Config) -> Self {
        let identity = Identity::self_signed(NAME).unwrap();
        Self::with(config, ServerSecurity::Tls(identity.clone()), identity.clone(), trusting(&identity)).await
    }

    async fn with(
        config: Config,
        security: ServerSecurity,
        identity: Identity,
        client: ClientSecurity,
    ) -> Self {
        let server = Endpoint::listen(&config, &[localhost().into()], &security).await.unwrap();
        let remote = Remote::new(server.local_addrs()[0], client);
        let known = Self { config, identity, server, remote };
        let (first, accepted) = tokio::join!(known.connect(), known.server.accept());
        // The first has no ticket, so it has waited for the handshake.
        assert_eq!(first.stats().lanes.len(), 1);
        let accepted = accepted.unwrap();
        // Tickets come before data.
        accepted.send(Message::new("hello")).await.unwrap();
        within(first.recv()).await.unwrap();
        known
    }

    async fn connect(&self) -> Connection {
        within(Endpoint::connect_early(&self.config, &self.remote)).await.unwrap()
    }

    async fn accept(&self) -> Connection {
        within(self.server.accept()).await.unwrap()
    }
}

fn early(bytes: &'static str) -> Message {
    Message::new(bytes).idempotent()
}

async fn next(connection: &Connection) -> (String, bool) {
    let Received { bytes, early, .. } = within(connection.recv()).await.unwrap();
    (String::from_utf8(bytes.to_vec()).unwrap(), early)
}

const fn counts(stats: EarlyStats) -> [u64; 3] {
    [stats.sent, stats.accepted, stats.rejected]
}

#[tokio::test]
async fn an_idempotent_message_leaves_early_and_others_wait() {
    let known = Known::new(allowing()).await;
    for _ in 0..3 {
        let client = known.connect().await;
        // Nothing has been sent yet: the task of the connection runs on this thread.
        let busy = client.try_send(&Message::new("order").with_priority(Priority::P0));
        assert!(matches!(busy, Err(SendError::Busy { priority: Priority::P0 })), "{busy:?}");
        let mut lookup = client.send(early("lookup")).await.unwrap();
        let order = client.send(Message::new("order").with_priority(Priority::P0).with_receipt());
        let (order, (accepted, first)) = tokio::join!(order, async {
            let accepted = known.accept().await;
            let first = next(&accepted).await;
            (accepted, first)
        });
        assert_eq!(first, ("lookup".to_owned(), true));
        assert_eq!(next(&accepted).await, ("order".to_owned(), false));
        within(lookup.acknowledged()).await.unwrap();
        within(order.unwrap().received()).await.unwrap();
        for end in [&client, &accepted] {
            within(end.established()).await.unwrap();
            assert!(end.resumed());
            assert_eq!(end.alpn(), Some(&b"marcato/2"[..]));
        }
        let proved = client.peer_identity().map(PeerIdentity::fingerprint);
        assert_eq!(proved, Some(known.identity.fingerprint()).flatten());
        assert_eq!(counts(client.stats().early), [1, 1, 0]);
        assert_eq!(accepted.stats().received.early, 1);
        within(client.close()).await.unwrap();
    }
}

#[tokio::test]
async fn early_data_that_a_server_rejects_is_received_once() {
    let known = Known::new(allowing()).await;
    // It forgets its sessions.
    known.server.set_identity(&known.identity).unwrap();
    let client = known.connect().await;
    let mut handles = Vec::new();
    for bytes in ["one", "two", ""] {
        handles.push(client.send(early(bytes)).await.unwrap());
    }
    let accepted = known.accept().await;
    for bytes in ["one", "two", ""] {
        assert_eq!(next(&accepted).await, (bytes.to_owned(), false));
    }
    for mut handle in handles {
        within(handle.acknowledged()).await.unwrap();
    }
    assert!(!client.resumed());
    assert_eq!(counts(client.stats().early), [3, 0, 3]);
    client.send(Message::new("last")).await.unwrap();
    within(client.close()).await.unwrap();
    assert_eq!(next(&accepted).await, ("last".to_owned(), false));
    assert_eq!(within(accepted.recv()).await, Err(Closed::ByPeer(marcato_net::CloseReason::default())));
}

#[tokio::test]
async fn an_early_request_is_answered() {
    let known = Known::new(allowing()).await;
    let client = known.connect().await;
    let serve = async {
        let accepted = known.accept().await;
        let request = within(accepted.accept_request()).await.unwrap();
        assert!(request.message().early);
        let mut reply = request.reply(Message::new("here")).await.unwrap();
        within(reply.acknowledged()).await.unwrap();
        accepted
    };
    let (reply, _accepted) = tokio::join!(client.request(early("where?")), serve);
    let reply = reply.unwrap();
    assert_eq!((&reply.bytes[..], reply.early), (&b"here"[..], false));
}

#[tokio::test]
async fn nothing_is_early_unless_both_ends_allow_it() {
    let tcp = Config::new(Engine::Tcp);
    for (config, asks) in [(Config::new(Engine::Quic), true), (tcp, true), (allowing(), false)] {
        let known = Known::new(config).await;
        let connect = async {
            let client = match asks {
                true => known.connect().await,
                false => within(Endpoint::connect(&known.config, &known.remote)).await.unwrap(),
            };
            // The handshake is complete.
            assert!(client.alpn().is_some());
            client
        };
        let (client, accepted) = tokio::join!(connect, known.accept());
        assert!(client.resumed() && accepted.resumed());
        within(client.established()).await.unwrap();
        client.try_send(&Message::new("at once")).unwrap();
        assert_eq!(next(&accepted).await, ("at once".to_owned(), false));
        client.send(early("later")).await.unwrap();
        assert_eq!(next(&accepted).await, ("later".to_owned(), false));
        assert_eq!(counts(client.stats().early), [0; 3]);
    }
}

#[tokio::test]
async fn a_handshake_that_fails_ends_the_connection() {
    let mut known = Known::new(allowing()).await;
    // The first handshake, for the ticket, took as long as it needed.
    known.config.peers.handshake_timeout = Duration::from_millis(100);
    let silent = tokio::net::UdpSocket::bind(localhost()).await.unwrap();
    let remote = Remote::new(silent.local_addr().unwrap(), known.remote.security.clone());
    let client = within(Endpoint::connect_early(&known.config, &remote)).await.unwrap();
    let mut lost = client.send(early("lookup")).await.unwrap();
    let waiting = within(client.send(Message::new("order")));
    assert!(matches!(waiting.await, Err(SendError::Closed(Closed::Lost { .. }))));
    let end = within(client.established()).await.unwrap_err();
    assert_eq!(end.to_string(), within(client.closed()).await.to_string());
    assert!(end.to_string().contains("the handshake took too long"), "{end}");
    assert!(matches!(within(lost.acknowledged()).await, Err(NotDelivered::Closed(Closed::Lost { .. }))));
    assert_eq!(counts(client.stats().early), [1, 0, 0]);
}

/// The server has another certificate now, which the client does not trust.
#[tokio::test]
async fn a_server_that_is_not_trusted_gets_no_message_again() {
    let known = Known::new(allowing()).await;
    known.server.set_identity(&Identity::self_signed(NAME).unwrap()).unwrap();
    let client = known.connect().await;
    let mut lost = client.send(early("lookup")).await.unwrap();
    let end = within(client.established()).await.unwrap_err();
    assert!(matches!(end, Closed::Lost { .. }), "{end}");
    within(lost.acknowledged()).await.unwrap_err();
    assert_eq!(known.server.stats().accepted, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_sockets_and_several_drivers_have_early_data() {
    let mut config = allowing();
    config.quic.drivers = 3;
    let (hub, meter) = (Identity::self_signed(NAME).unwrap(), Identity::self_signed(NAME).unwrap());
    let pinned = Trust::Certificate(meter.certificate().unwrap().clone());
    let clients = ClientAuth::required([pinned]);
    let security = ServerSecurity::Mutual { identity: hub.clone(), clients };
    let known = Known::with(config, security, hub.clone(), trusting(&hub).presenting(meter.clone())).await;
    let client = Client::bind(&known.config, &[localhost().into()]).unwrap();
    for _ in 0..20 {
        let connection = within(client.connect_early(&known.remote)).await.unwrap();
        let mut sent = connection.send(early("reading")).await.unwrap();
        let accepted = known.accept().await;
        assert_eq!(next(&accepted).await.0, "reading");
        assert_eq!(accepted.peer_identity().map(PeerIdentity::fingerprint), meter.fingerprint());
        within(sent.acknowledged()).await.unwrap();
        within(connection.established()).await.unwrap();
        // The server's own side of the handshake is over as well.
        within(accepted.established()).await.unwrap();
        assert!(connection.resumed() && accepted.resumed());
    }
    // Its statistics follow the events of the last client.
    until(&known.server, |stats| stats.accepted == 21).await;
}
