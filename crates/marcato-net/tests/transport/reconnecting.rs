//! Reconnecting clients over both engines: servers that go away and return, and what arrives.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes as Payload;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::common::{LIMIT, NAME, body, for_both_engines, greet, localhost, number_of, within};
use marcato_net::{
    Bytes, ClientAuth, ClientSecurity, Closed, Config, ConnectError, Connection, Delivery, Ended, Endpoint,
    Engine, Events, Identity, LongMessages, Message, NoReply, NotDelivered, Priority, ReconnectConfig,
    Reconnecting, ReconnectingEvent, Remote, RequestError, SendError, ServerSecurity, Trust, Undelivered,
};

/// Settings with short delays.
fn settings() -> ReconnectConfig {
    let [first, longest] = [1, 20].map(Duration::from_millis);
    ReconnectConfig { first, longest, ..ReconnectConfig::default() }
}

/// Server with an address and an identity that it keeps when it restarts.
struct Site {
    config: Config,
    identity: Identity,
    addr: SocketAddr,
}

impl Site {
    async fn open(config: Config) -> (Self, Endpoint) {
        let identity = Identity::self_signed(NAME).unwrap();
        let mut site = Self { config, identity, addr: localhost() };
        let endpoint = site.listen().await;
        site.addr = endpoint.local_addrs()[0];
        (site, endpoint)
    }

    /// Listens, as soon as the system has released the address.
    async fn listen(&self) -> Endpoint {
        let security = ServerSecurity::Tls(self.identity.clone());
        within(async {
            loop {
                match Endpoint::listen(&self.config, &[self.addr.into()], &security).await {
                    Ok(endpoint) => return endpoint,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        })
        .await
    }

    fn remote(&self) -> Remote {
        let trust = Trust::Certificate(self.identity.certificate().unwrap().clone());
        Remote::new(self.addr, ClientSecurity::trusting(NAME, trust))
    }

    fn client(&self) -> Reconnecting {
        self.client_with(&settings())
    }

    fn client_with(&self, settings: &ReconnectConfig) -> Reconnecting {
        Reconnecting::new(&self.config, self.remote(), settings).unwrap()
    }
}

async fn accept(endpoint: &Endpoint) -> Connection {
    within(endpoint.accept()).await.unwrap()
}

async fn next(events: &mut Events<ReconnectingEvent>) -> ReconnectingEvent {
    within(events.next()).await.unwrap()
}

/// Waits until there is no connection any more, or another one.
async fn until_lost(events: &mut Events<ReconnectingEvent>) {
    while !matches!(next(events).await, ReconnectingEvent::Lost(_)) {}
}

/// Waits until the peer has acknowledged all of these.
async fn until_acknowledged(sent: &mut [Delivery]) {
    for delivery in sent {
        within(delivery.acknowledged()).await.unwrap();
    }
}

async fn every_message_arrives_although_the_server_restarts(engine: Engine) {
    const ROUNDS: u64 = 4;
    const EACH: u64 = 60;
    let (site, mut endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let mut sent = Vec::new();
    let mut seen = BTreeSet::new();
    for round in 0..ROUNDS {
        let connection = accept(&endpoint).await;
        for number in round * EACH..(round + 1) * EACH {
            let level = Priority::ALL[usize::try_from(number % 5).unwrap()];
            // What a transport has acknowledged is lost with it. What was taken is not.
            let message = Message::new(body(number, 30_000)).with_priority(level).with_receipt();
            sent.push(client.send(message).await.unwrap());
        }
        // Some of them are taken, and the server goes away in the middle of the rest.
        for _ in 0..EACH / 3 {
            seen.insert(number_of(&within(connection.recv()).await.unwrap().bytes));
        }
        connection.abort();
        endpoint.abort();
        drop((connection, endpoint));
        endpoint = site.listen().await;
    }
    let connection = accept(&endpoint).await;
    let last = tokio::spawn(async move {
        while let Ok(received) = connection.recv().await {
            seen.insert(number_of(&received.bytes));
        }
        seen
    });
    for delivery in &mut sent {
        within(delivery.received()).await.unwrap();
    }
    within(client.close()).await.unwrap();
    assert_eq!(within(last).await.unwrap(), (0..ROUNDS * EACH).collect());
    let stats = client.stats();
    assert_eq!((stats.messages, stats.bytes), ([0; 5], [Bytes::ZERO; 5]));
    assert!(stats.connections > ROUNDS && stats.offered_again > 0, "{stats:?}");
}

/// Returns a client and a server that takes nothing, has the client hold P2, and so acknowledges no
/// long message of that level.
async fn without_acknowledgements(engine: Engine) -> (Reconnecting, Endpoint, Connection) {
    let mut config = Config::new(engine);
    config.limits.unread = Bytes::kb(64);
    let (site, endpoint) = Site::open(config).await;
    let client = site.client();
    let connection = accept(&endpoint).await;
    // It is more than the server may leave unread.
    client.send(Message::new(body(99, 100_000))).await.unwrap();
    within(async {
        while connection.stats().received.holds[2] == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    (client, endpoint, connection)
}

/// More than leaves before the client knows that the level is held.
const MUCH: usize = 12 << 20;

/// Waits until the connection has accepted so many messages after the one that
/// [`without_acknowledgements`] has sent.
async fn until_offered(client: &Reconnecting, messages: u64) {
    within(async {
        let is_offered = |connection: &Connection| {
            connection.stats().conducted.level(Priority::P2).offered.messages == 1 + messages
        };
        while !client.connection().as_ref().is_some_and(is_offered) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn messages_come_again_in_their_order_within_a_level(engine: Engine) {
    let (client, endpoint, connection) = without_acknowledgements(engine).await;
    let mut sent = Vec::new();
    for (number, len) in [(0, MUCH), (1, MUCH), (2, 10), (3, 10), (4, 10)] {
        sent.push(client.send(Message::new(body(number, len))).await.unwrap());
    }
    until_offered(&client, 5).await;
    connection.abort();
    let connection = accept(&endpoint).await;
    sent.push(client.send(Message::new(body(5, 10))).await.unwrap());
    for number in 0..=5 {
        assert_eq!(number_of(&within(connection.recv()).await.unwrap().bytes), number);
    }
    until_acknowledged(&mut sent).await;
    assert_eq!(client.stats().offered_again, 5);
}

async fn a_message_sent_at_most_once_is_uncertain_after_a_loss(engine: Engine) {
    let (client, endpoint, connection) = without_acknowledgements(engine).await;
    let mut once = client.send_at_most_once(Message::new(body(1, MUCH))).await.unwrap();
    let mut again = client.send(Message::new(body(2, MUCH))).await.unwrap();
    until_offered(&client, 2).await;
    connection.abort();
    let fate = within(once.acknowledged()).await;
    assert!(matches!(fate, Err(Undelivered::Uncertain(NotDelivered::Closed(_)))), "{fate:?}");
    let connection = accept(&endpoint).await;
    assert_eq!(number_of(&within(connection.recv()).await.unwrap().bytes), 2);
    within(again.acknowledged()).await.unwrap();
    assert_eq!(client.stats().uncertain, 1);
}

async fn a_message_that_no_connection_had_is_sent_later(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    endpoint.abort();
    drop(endpoint);
    let client = site.client();
    let mut once = client.send_at_most_once(Message::new("once")).await.unwrap();
    let endpoint = site.listen().await;
    let connection = accept(&endpoint).await;
    assert_eq!(within(connection.recv()).await.unwrap().bytes, b"once"[..]);
    within(once.acknowledged()).await.unwrap();
    assert_eq!(client.stats().offered_again, 0);
}

async fn a_message_with_a_receipt_comes_until_it_is_taken(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let connection = accept(&endpoint).await;
    let mut order = client.send(Message::new("order").with_receipt()).await.unwrap();
    let mut note = client.send(Message::new("note")).await.unwrap();
    within(order.acknowledged()).await.unwrap();
    within(note.acknowledged()).await.unwrap();
    // The server's application dies before it has taken anything.
    connection.abort();
    let connection = accept(&endpoint).await;
    assert_eq!(within(connection.recv()).await.unwrap().bytes, b"order"[..]);
    within(order.received()).await.unwrap();
    let error = within(note.received()).await.unwrap_err();
    assert!(matches!(error, Undelivered::NotDelivered(NotDelivered::NoReceipt)), "{error}");
    // The note was acknowledged, so it does not come again.
    within(client.close()).await.unwrap();
    let end = within(connection.recv()).await;
    assert!(matches!(end, Err(Closed::ByPeer(_))), "{end:?}");
}

async fn messages_received_before_a_loss_are_still_taken(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let mut events = client.events();
    for text in ["first", "second"] {
        let connection = accept(&endpoint).await;
        let mut sent = connection.send(Message::new(text)).await.unwrap();
        within(sent.acknowledged()).await.unwrap();
        connection.abort();
        until_lost(&mut events).await;
    }
    let connection = accept(&endpoint).await;
    connection.send(Message::new("third")).await.unwrap();
    for text in ["first", "second", "third"] {
        assert_eq!(within(client.recv()).await.unwrap().bytes, text.as_bytes());
    }
    // After the end, what has arrived is still taken.
    let mut sent = connection.send(Message::new("fourth")).await.unwrap();
    within(sent.acknowledged()).await.unwrap();
    client.abort();
    within(client.closed()).await;
    assert_eq!(within(client.recv()).await.unwrap().bytes, b"fourth"[..]);
    assert!(matches!(within(client.recv()).await, Err(Ended::Local)));
}

async fn received_messages_of_few_lost_connections_are_kept(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let mut events = client.events();
    for number in 0..6 {
        let connection = accept(&endpoint).await;
        let mut sent = connection.send(Message::new(body(number, 10))).await.unwrap();
        within(sent.acknowledged()).await.unwrap();
        connection.abort();
        until_lost(&mut events).await;
        if number >= 4 {
            let discarded = next(&mut events).await;
            assert!(matches!(discarded, ReconnectingEvent::Discarded(1)), "{discarded:?}");
        }
    }
    for number in 2..6 {
        assert_eq!(number_of(&within(client.recv()).await.unwrap().bytes), number);
    }
    assert_eq!(client.stats().discarded, 2);
}

async fn a_request_is_sent_again_only_if_that_is_asked_for(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let connection = accept(&endpoint).await;
    let asking = |again: bool| {
        let client = client.clone();
        tokio::spawn(async move {
            match again {
                true => client.request_at_least_once(Message::new("twice")).await,
                false => client.request(Message::new("once")).await,
            }
        })
    };
    let (once, twice) = (asking(false), asking(true));
    // Both have arrived, and the server dies before it replies.
    let requests = [within(connection.accept_request()).await, within(connection.accept_request()).await];
    connection.abort();
    let error = within(once).await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::NoReply(NoReply::Closed(_))), "{error}");
    drop(requests);
    let connection = accept(&endpoint).await;
    let request = within(connection.accept_request()).await.unwrap();
    assert_eq!(request.message().bytes, b"twice"[..]);
    request.reply(Message::new("done")).await.unwrap();
    assert_eq!(within(twice).await.unwrap().unwrap().bytes, b"done"[..]);

    // In the other direction, requests come from the current connection.
    let asked = tokio::spawn(async move { connection.request(Message::new("are you back?")).await });
    let request = within(client.accept_request()).await.unwrap();
    request.reply(Message::new("yes")).await.unwrap();
    assert_eq!(within(asked).await.unwrap().unwrap().bytes, b"yes"[..]);
}

/// While there is no server, the end of a lifetime makes room.
async fn a_sender_waits_no_longer_than_the_lifetime_before_it(engine: Engine) {
    let mut config = Config::new(engine);
    config.limits.unfinished = 1;
    let (site, endpoint) = Site::open(config).await;
    endpoint.abort();
    drop(endpoint);
    let client = site.client();
    let brief = Message::new("x").with_lifetime(marcato_net::Duration::from_millis(200));
    let mut first = client.try_send(&brief).unwrap();
    assert!(matches!(client.try_send(&Message::new("y")), Err(SendError::Busy { .. })));
    within(client.send(Message::new("y"))).await.unwrap();
    let expired = within(first.acknowledged()).await;
    assert!(matches!(expired, Err(Undelivered::NotDelivered(NotDelivered::Expired))), "{expired:?}");
    client.abort();
}

async fn memory_is_bounded_while_there_is_no_server(engine: Engine) {
    let mut config = Config::new(engine);
    config.limits.queued = Bytes::new(1000);
    config.limits.unfinished = 5;
    config.limits.receipts = 2;
    let (site, endpoint) = Site::open(config).await;
    endpoint.abort();
    drop(endpoint);
    let client = site.client();
    let level = |priority| Message::new(body(1, 400)).with_priority(priority);
    for _ in 0..2 {
        client.try_send(&level(Priority::P2)).unwrap();
    }
    let busy = client.try_send(&level(Priority::P2)).unwrap_err();
    assert_eq!(busy, SendError::Busy { priority: Priority::P2 });
    for _ in 0..5 {
        client.try_send(&Message::new("x").with_priority(Priority::P1)).unwrap();
    }
    let busy = client.try_send(&Message::new("x").with_priority(Priority::P1)).unwrap_err();
    assert_eq!(busy, SendError::Busy { priority: Priority::P1 });
    // Another level has its own room.
    for _ in 0..2 {
        client.try_send(&Message::new("x").with_priority(Priority::P0).with_receipt()).unwrap();
    }
    let busy = client.try_send(&Message::new("x").with_priority(Priority::P4).with_receipt()).unwrap_err();
    assert_eq!(busy, SendError::Busy { priority: Priority::P4 });
    let long = client.try_send(&Message::new(body(1, 1001))).unwrap_err();
    assert_eq!(long, SendError::TooLong { limit: Bytes::new(1000) });
    assert_eq!(client.stats().messages, [2, 5, 2, 0, 0]);

    let sending = client.clone();
    let waiting = tokio::spawn(async move { sending.send(Message::new(body(9, 400))).await.map(drop) });
    let endpoint = site.listen().await;
    let connection = accept(&endpoint).await;
    for _ in 0..10 {
        within(connection.recv()).await.unwrap();
    }
    within(waiting).await.unwrap().unwrap();
    within(client.close()).await.unwrap();
}

async fn a_message_that_moves_makes_room_at_its_level(engine: Engine) {
    let mut config = Config::new(engine);
    config.peers.handshake_timeout = Duration::from_millis(50);
    config.limits.unfinished = 1;
    let (site, endpoint) = Site::open(config).await;
    endpoint.abort();
    drop(endpoint);
    // There is no other attempt that could wake anybody.
    let hour = Duration::from_secs(3600);
    let client =
        site.client_with(&ReconnectConfig { first: hour, longest: hour, give_up_after: None, ..settings() });
    // It may fail before a reader of events could hear of it.
    let failed = async {
        while client.stats().failures == 0 {
            tokio::task::yield_now().await;
        }
    };
    within(failed).await;
    let first = client.try_send(&Message::new("first")).unwrap();
    let waiting = client.send(Message::new("second"));
    let mut waiting = std::pin::pin!(waiting);
    let pending = std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::future::Future::poll(waiting.as_mut(), context).is_pending())
    });
    assert!(pending.await);
    first.reprioritise(Priority::P1).unwrap();
    within(waiting).await.unwrap();
    assert_eq!(client.stats().messages, [0, 1, 1, 0, 0]);
    client.abort();
}

async fn a_full_connection_gets_what_waits_once_it_has_room(engine: Engine) {
    let mut config = Config::new(engine);
    config.limits.receipts = 1;
    let (site, endpoint) = Site::open(config).await;
    let client = site.client();
    let mut events = client.events();
    let connection = accept(&endpoint).await;
    next(&mut events).await;
    // A message beside the client takes the connection's only receipt.
    let direct = Message::new("direct").with_receipt();
    client.connection().unwrap().send(direct).await.unwrap();
    let mut waits = client.send(Message::new("waits").with_receipt()).await.unwrap();
    let mut later = client.send(Message::new("urgent").with_priority(Priority::P0)).await.unwrap();
    let background = Message::new("background").with_priority(Priority::P4);
    let mut less = client.send(background).await.unwrap();
    // Its level is passed over, and others are not.
    within(later.acknowledged()).await.unwrap();
    within(less.acknowledged()).await.unwrap();
    for text in ["urgent", "direct"] {
        assert_eq!(within(connection.recv()).await.unwrap().bytes, text.as_bytes());
    }
    let mut rest = [(); 2].map(|()| Payload::new());
    for bytes in &mut rest {
        *bytes = within(connection.recv()).await.unwrap().bytes;
    }
    rest.sort();
    assert_eq!(rest, ["background", "waits"]);
    within(waits.received()).await.unwrap();
}

async fn a_message_is_moved_and_cancelled_on_its_connection(engine: Engine) {
    let (client, _endpoint, _connection) = without_acknowledgements(engine).await;
    let mut message = client.send(Message::new(body(1, MUCH))).await.unwrap();
    until_offered(&client, 1).await;
    message.reprioritise(Priority::P1).unwrap();
    // At P2, the first message may still await its acknowledgement.
    let [_, moved, first, others @ ..] = client.stats().messages;
    assert!(moved == 1 && first <= 1 && others == [0; 2]);
    message.cancel().unwrap();
    let fate = within(message.acknowledged()).await;
    assert!(matches!(fate, Err(Undelivered::NotDelivered(NotDelivered::Cancelled))), "{fate:?}");
    assert!(message.cancel().is_err() && message.reprioritise(Priority::P1).is_err());
    let [_, moved, first, others @ ..] = client.stats().messages;
    assert!(moved == 0 && first <= 1 && others == [0; 2]);
}

async fn events_report_connections_losses_and_attempts(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let mut events = client.events();
    let connection = accept(&endpoint).await;
    assert!(matches!(next(&mut events).await, ReconnectingEvent::Connected));
    assert!(client.connection().is_some());
    // A later reader learns of the connection as well.
    assert!(matches!(next(&mut client.events()).await, ReconnectingEvent::Connected));
    let lost_at = client.now();
    connection.abort();
    let lost = next(&mut events).await;
    assert!(matches!(lost, ReconnectingEvent::Lost(Closed::Lost { .. })), "{lost:?}");
    let attempt = next(&mut events).await;
    assert!(matches!(attempt, ReconnectingEvent::NextAttempt(at) if at > lost_at), "{attempt:?}");
    let _connection = accept(&endpoint).await;
    assert!(matches!(next(&mut events).await, ReconnectingEvent::Connected));
    within(client.close()).await.unwrap();
    assert!(within(events.next()).await.is_none());
    let sent = client.send(Message::new("late")).await.unwrap_err();
    assert_eq!(sent, SendError::Closed(Closed::Local));
}

/// Its first event is of an attempt, and not of a connection that is over. What is reported is also counted.
async fn a_reader_between_two_connections_waits_for_the_next(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let mut events = client.events();
    accept(&endpoint).await.abort();
    endpoint.abort();
    drop(endpoint);
    until_lost(&mut events).await;
    let mut late = client.events();
    let first = next(&mut late).await;
    assert!(!matches!(first, ReconnectingEvent::Connected), "{first:?}");
    let mut failures = 0;
    while failures < 3 {
        failures += u64::from(matches!(next(&mut events).await, ReconnectingEvent::Failed(_)));
    }
    assert!(client.stats().failures >= 3, "{:?}", client.stats());
    assert_eq!(client.stats().connections, 1);
    let endpoint = site.listen().await;
    let connection = accept(&endpoint).await;
    let mut connected = false;
    while !connected {
        let event = next(&mut events).await;
        failures += u64::from(matches!(event, ReconnectingEvent::Failed(_)));
        connected = matches!(event, ReconnectingEvent::Connected);
    }
    let stats = client.stats();
    assert_eq!((stats.connections, stats.failures, stats.discarded), (2, failures, 0));
    assert!(matches!(next(&mut client.events()).await, ReconnectingEvent::Connected));
    client.abort();
    within(connection.closed()).await;
}

async fn ending_the_connection_makes_the_client_connect_again(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let mut events = client.events();
    let _first = accept(&endpoint).await;
    next(&mut events).await;
    client.connection().unwrap().abort();
    until_lost(&mut events).await;
    let connection = accept(&endpoint).await;
    client.send(Message::new("again")).await.unwrap();
    assert_eq!(within(connection.recv()).await.unwrap().bytes, b"again"[..]);
}

async fn a_peer_that_closes_ends_the_client_unless_it_restarts(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let connection = accept(&endpoint).await;
    within(connection.close()).await.unwrap();
    let ended = within(client.closed()).await;
    assert!(matches!(ended, Ended::Peer(Closed::ByPeer(_))), "{ended}");
    assert!(matches!(within(client.recv()).await, Err(Ended::Peer(_))));
    assert!(within(client.close()).await.is_err());

    let client = site.client_with(&ReconnectConfig { after_close_by_peer: true, ..settings() });
    for _ in 0..2 {
        within(accept(&endpoint).await.close()).await.unwrap();
    }
    let _connection = accept(&endpoint).await;
    within(client.close()).await.unwrap();
}

async fn a_client_that_is_dropped_ends_with_its_connection(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    let client = site.client();
    let connection = accept(&endpoint).await;
    let mut message = client.send(Message::new(body(1, 30 << 20))).await.unwrap();
    drop(client);
    let fate = within(message.acknowledged()).await;
    assert!(matches!(fate, Err(Undelivered::Uncertain(_) | Undelivered::NotSent(_))), "{fate:?}");
    within(connection.closed()).await;
}

async fn closing_waits_for_a_server_that_returns(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    endpoint.abort();
    drop(endpoint);
    let client = site.client();
    let mut kept = client.send(Message::new("kept")).await.unwrap();
    let closing = tokio::spawn(async move { client.close().await });
    let endpoint = site.listen().await;
    let connection = accept(&endpoint).await;
    assert_eq!(within(connection.recv()).await.unwrap().bytes, b"kept"[..]);
    within(closing).await.unwrap().unwrap();
    within(kept.acknowledged()).await.unwrap();
}

async fn what_would_fail_again_ends_the_client(engine: Engine) {
    let (site, endpoint) = Site::open(Config::new(engine)).await;
    // Another certificate is expected.
    let other = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(other.certificate().unwrap().clone());
    let remote = Remote::new(site.addr, ClientSecurity::trusting(NAME, trust));
    let client = Reconnecting::new(&site.config, remote, &settings()).unwrap();
    let ended = within(client.closed()).await;
    let Ended::Refused(error) = &ended else { panic!("{ended}") };
    assert!(matches!(**error, ConnectError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("was expected"), "{error}");
    assert_eq!(client.stats().failures, 1);
    let sent = client.send(Message::new("late")).await.unwrap_err();
    assert!(matches!(sent, SendError::Closed(Closed::Lost { .. })), "{sent}");

    // No common protocol.
    let config = Config { alpn: vec![b"other/1".to_vec()], ..site.config.clone() };
    let client = Reconnecting::new(&config, site.remote(), &settings()).unwrap();
    let ended = within(client.closed()).await;
    assert!(
        matches!(&ended, Ended::Refused(error) if matches!(**error, ConnectError::Protocol { .. })),
        "{ended}"
    );

    // No certificate can be for this name.
    let trust = ClientSecurity::trusting("not a name", Trust::Authority(vec![]));
    let client = Reconnecting::new(&site.config, Remote::new(site.addr, trust), &settings()).unwrap();
    assert!(matches!(within(client.closed()).await, Ended::Refused(_)));
    drop(endpoint);
}

async fn a_server_that_refuses_our_certificate_ends_the_client(engine: Engine) {
    let (config, [hub, known]) =
        (Config::new(engine), [(); 2].map(|()| Identity::self_signed(NAME).unwrap()));
    let pin = |identity: &Identity| Trust::Certificate(identity.certificate().unwrap().clone());
    let clients = ClientAuth::required([pin(&known)]);
    let security = ServerSecurity::Mutual { identity: hub.clone(), clients };
    let endpoint = Endpoint::listen(&config, &[localhost().into()], &security).await.unwrap();
    let unknown = Identity::self_signed(NAME).unwrap();
    let security = ClientSecurity::trusting(NAME, pin(&hub)).presenting(unknown);
    let remote = Remote::new(endpoint.local_addrs()[0], security);
    let client = Reconnecting::new(&config, remote, &settings()).unwrap();
    let ended = within(client.closed()).await;
    assert!(ended.to_string().contains("does not accept our certificate"), "{ended}");
    assert_eq!(client.stats().connections + client.stats().failures, 1);
}

/// However a message ends, the place of its receipt is free for the next one.
async fn places_of_receipts_are_free_again_after_every_end(engine: Engine) {
    let mut config = Config::new(engine);
    config.limits.receipts = 1;
    // The level is soon held, and reading never stops.
    config.limits.unread = Bytes::kb(64);
    config.limits.max_message = Bytes::new(1000);
    config.limits.long_messages = LongMessages::Stream;
    let (site, endpoint) = Site::open(config).await;
    let client = site.client();
    let connection = accept(&endpoint).await;
    let asking = |len| Message::new(body(1, len)).with_receipt();
    let much = || asking(MUCH).with_priority(Priority::P4);
    for round in 0..3 {
        let mut cancelled = within(client.send(much())).await.unwrap();
        cancelled.cancel().unwrap();
        let fate = within(cancelled.received()).await;
        assert!(matches!(fate, Err(Undelivered::NotDelivered(NotDelivered::Cancelled))), "{fate:?}");

        let short = much().with_lifetime(Duration::from_nanos(1));
        let mut expired = within(client.send(short)).await.unwrap();
        let fate = within(expired.received()).await;
        assert!(matches!(fate, Err(Undelivered::NotDelivered(NotDelivered::Expired))), "{fate:?}");

        let mut taken = within(client.send(asking(10))).await.unwrap();
        within(connection.recv()).await.unwrap();
        within(taken.received()).await.unwrap();

        let mut unwanted = within(client.send(asking(5000).with_priority(Priority::P0))).await.unwrap();
        // Of the others, the server may have seen a beginning.
        while within(connection.accept_long()).await.unwrap().priority() != Priority::P0 {}
        let fate = within(unwanted.received()).await;
        assert!(matches!(fate, Err(Undelivered::NotDelivered(NotDelivered::Unwanted))), "{round}: {fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_attempt_outlives_the_time_of_giving_up() {
    // The kernel accepts the connection, and nobody answers the hello on it.
    let silent = std::net::TcpListener::bind(localhost()).unwrap();
    let remote = Remote::new(silent.local_addr().unwrap(), ClientSecurity::Plaintext);
    let mut config = Config::new(Engine::Tcp);
    config.peers.handshake_timeout = Duration::from_secs(1000);
    let limit = Duration::from_secs(20);
    let settings = ReconnectConfig { give_up_after: Some(limit), ..ReconnectConfig::default() };
    let client = Reconnecting::new(&config, remote, &settings).unwrap();
    let mut message = client.send(Message::new("never")).await.unwrap();
    let ended = client.closed().await;
    let Ended::GaveUp { reason, .. } = &ended else { panic!("{ended}") };
    assert!(reason.contains("did not end in time"), "{reason}");
    let waited = client.now().since(marcato_units::Time::ZERO);
    assert!(waited >= limit && waited < limit + Duration::from_secs(1), "{waited:?}");
    let fate = message.acknowledged().await;
    assert!(matches!(fate, Err(Undelivered::NotSent(Ended::GaveUp { .. }))), "{fate:?}");
    assert_eq!(client.stats().failures, 0, "it was the first attempt");
}

/// The connection is lost before its transport has reported anything: one thread runs both tasks.
#[tokio::test]
async fn a_cancelled_message_does_not_come_again_after_a_loss() {
    for engine in [Engine::Tcp, Engine::Quic] {
        let (client, endpoint, _connection) = without_acknowledgements(engine).await;
        let mut message = client.send(Message::new(body(1, MUCH))).await.unwrap();
        until_offered(&client, 1).await;
        message.cancel().unwrap();
        client.connection().unwrap().abort();
        let fate = within(message.acknowledged()).await;
        assert!(matches!(fate, Err(Undelivered::NotDelivered(NotDelivered::Cancelled))), "{fate:?}");
        let connection = accept(&endpoint).await;
        client.send(Message::new(body(2, 10))).await.unwrap();
        loop {
            match number_of(&within(connection.recv()).await.unwrap().bytes) {
                2 => break,
                number => assert_eq!(number, 99, "{engine:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_end_after_the_limit() {
    let unused = std::net::TcpListener::bind(localhost()).unwrap();
    let addr = unused.local_addr().unwrap();
    drop(unused);
    let limit = Duration::from_secs(300);
    let settings = ReconnectConfig { give_up_after: Some(limit), ..ReconnectConfig::default() };
    let remote = Remote::new(addr, ClientSecurity::Plaintext);
    let client = Reconnecting::new(&Config::new(Engine::Tcp), remote, &settings).unwrap();
    let mut message = client.send(Message::new("never")).await.unwrap();
    let short = Message::new("soon").with_lifetime(Duration::from_secs(7));
    let mut expired = client.send(short.clone()).await.unwrap();
    let request = client.request(short).await.unwrap_err();
    assert!(matches!(request, RequestError::NotDelivered(NotDelivered::Expired)), "{request}");
    let fate = expired.acknowledged().await;
    assert!(matches!(fate, Err(Undelivered::NotDelivered(NotDelivered::Expired))), "{fate:?}");
    let cancelled = client.send(Message::new("no")).await.unwrap();
    cancelled.cancel().unwrap();
    cancelled.cancel().unwrap_err();
    let ended = tokio::time::timeout(LIMIT * 10, client.close()).await.unwrap().unwrap_err();
    assert!(matches!(ended, Ended::GaveUp { .. }), "{ended}");
    let fate = message.acknowledged().await;
    assert!(matches!(fate, Err(Undelivered::NotSent(Ended::GaveUp { .. }))), "{fate:?}");
    let seconds = client.now().as_secs_f64();
    assert!((270.0..=300.0).contains(&seconds), "{seconds}");
    // 8 attempts to reach the longest delay, then one every 15 to 30 s.
    assert!((15..=30).contains(&client.stats().failures), "{:?}", client.stats());
}

/// The peer has every message, and does not end the connection.
#[tokio::test]
async fn a_client_that_closes_can_still_be_aborted() {
    let mut config = Config::new(Engine::Tcp);
    config.tcp.linger = 100 * LIMIT;
    let listener = TcpListener::bind(localhost()).await.unwrap();
    let remote = Remote::new(listener.local_addr().unwrap(), ClientSecurity::Plaintext);
    let client = Reconnecting::new(&config, remote, &settings()).unwrap();
    let (mut peer, _) = within(listener.accept()).await.unwrap();
    within(greet(&mut peer)).await;
    let closing = client.clone();
    let closing = tokio::spawn(async move { closing.close().await });
    // Its direction has ended: it only waits for the peer.
    assert_eq!(within(peer.read(&mut [0; 1])).await.unwrap(), 0);
    client.abort();
    within(closing).await.unwrap().unwrap();
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let remote = Remote::new(localhost(), ClientSecurity::Plaintext);
    for settings in [
        ReconnectConfig { first: Duration::ZERO, ..ReconnectConfig::default() },
        ReconnectConfig { longest: Duration::ZERO, ..ReconnectConfig::default() },
    ] {
        assert!(Reconnecting::new(&Config::default(), remote.clone(), &settings).is_err());
    }
    let config = Config { alpn: vec![], ..Config::default() };
    assert!(Reconnecting::new(&config, remote, &ReconnectConfig::default()).is_err());
}

for_both_engines! {
    a_message_that_moves_makes_room_at_its_level
    every_message_arrives_although_the_server_restarts
    messages_come_again_in_their_order_within_a_level
    a_message_sent_at_most_once_is_uncertain_after_a_loss
    a_message_that_no_connection_had_is_sent_later
    a_message_with_a_receipt_comes_until_it_is_taken
    messages_received_before_a_loss_are_still_taken
    received_messages_of_few_lost_connections_are_kept
    a_request_is_sent_again_only_if_that_is_asked_for
    a_sender_waits_no_longer_than_the_lifetime_before_it
    memory_is_bounded_while_there_is_no_server
    a_full_connection_gets_what_waits_once_it_has_room
    a_message_is_moved_and_cancelled_on_its_connection
    events_report_connections_losses_and_attempts
    a_reader_between_two_connections_waits_for_the_next
    ending_the_connection_makes_the_client_connect_again
    a_peer_that_closes_ends_the_client_unless_it_restarts
    a_client_that_is_dropped_ends_with_its_connection
    closing_waits_for_a_server_that_returns
    what_would_fail_again_ends_the_client
    a_server_that_refuses_our_certificate_ends_the_client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_of_receipts_over_tcp_are_free_again() {
    places_of_receipts_are_free_again_after_every_end(Engine::Tcp).await;
}
