//! Both engines over real loopback sockets, through the same tests. Every wait has a time limit,
//! which only a failure reaches.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    NAME, body, close, for_both_engines, greet, localhost, number_of, pair, server, try_server_at, until,
    with_a_bare_peer, within,
};
use marcato_net::{
    AcceptError, Cause, ClientSecurity, CloseReason, Closed, Config, ConfigError, ConnectError, Endpoint,
    Engine, LocalAddress, LongMessages, Message, MissedReason, Named, NotDelivered, Remote, SendError,
    ServerSecurity,
};
use marcato_quic::{Fingerprint, Identity, Trust};
use marcato_units::{Bytes, Priority};
use ring::digest::{SHA256, digest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

fn config(engine: Engine) -> Config {
    Config::new(engine)
}

fn priority_of(number: u64) -> Priority {
    Priority::ALL[usize::try_from(number % 5).unwrap()]
}

async fn ten_thousand_messages_arrive_whole_and_once(engine: Engine) {
    const COUNT: u64 = 10_000;
    let (client, server, _listener) = pair(&config(engine)).await;
    let len = |number: u64| 8 + usize::try_from(number * 7919 % 3000).unwrap();
    let sending = client.clone();
    let sender = tokio::spawn(async move {
        let mut handles = Vec::new();
        for number in 0..COUNT {
            let message = Message::new(body(number, len(number))).with_priority(priority_of(number));
            handles.push(sending.send(message).await.unwrap());
        }
        for handle in &mut handles {
            handle.acknowledged().await.unwrap();
        }
    });
    let mut seen = vec![false; usize::try_from(COUNT).unwrap()];
    for _ in 0..COUNT {
        let received = within(server.recv()).await.unwrap();
        let number = number_of(&received.bytes);
        assert_eq!(received.bytes, body(number, len(number)));
        assert_eq!(received.priority, priority_of(number));
        assert!(!std::mem::replace(&mut seen[usize::try_from(number).unwrap()], true), "{number} came twice");
    }
    within(sender).await.unwrap();
    let stats = client.stats();
    assert_eq!(stats.unfinished, [0; 5]);
    assert_eq!(stats.conducted.total().granted.messages, COUNT);
    close(client, server).await;
}

async fn a_thousand_tasks_send_at_once(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let tasks: Vec<_> = (0..1000)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let message = Message::new(body(number, 5000)).with_priority(priority_of(number));
                client.send(message).await.unwrap().acknowledged().await.unwrap();
            })
        })
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let received = within(server.recv()).await.unwrap();
        let number = number_of(&received.bytes);
        assert_eq!(received.bytes, body(number, 5000));
        assert!(seen.insert(number));
    }
    for task in tasks {
        within(task).await.unwrap();
    }
    close(client, server).await;
}

async fn one_byte_and_64_mib_arrive_unchanged_in_both_directions(engine: Engine) {
    let mut config = config(engine);
    config.limits.max_message = Bytes::new(64 << 20);
    config.limits.open = Bytes::new(128 << 20);
    let (client, server, _listener) = pair(&config).await;
    for (from, to) in [(&client, &server), (&server, &client)] {
        for len in [1, 1000, 65_536, 1 << 20, 64 << 20] {
            let sent = body(7, len);
            let mut handle = from.send(Message::new(sent.clone())).await.unwrap();
            let received = within(to.recv()).await.unwrap();
            assert_eq!(received.bytes.len(), len);
            assert_eq!(digest(&SHA256, &received.bytes).as_ref(), digest(&SHA256, &sent).as_ref());
            within(handle.acknowledged()).await.unwrap();
        }
    }
    close(client, server).await;
}

async fn an_urgent_message_overtakes_queued_bulk(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    // More than all buffers hold, so that some bulk data is still queued when the urgent message
    // arrives.
    for number in 0..60 {
        client.send(Message::new(body(number, 1 << 20)).with_priority(Priority::P4)).await.unwrap();
    }
    let urgent = client.send(Message::new(body(1000, 2000)).with_priority(Priority::P0)).await.unwrap();
    let mut before = 0;
    while within(server.recv()).await.unwrap().priority != Priority::P0 {
        before += 1;
    }
    assert!(before < 30, "{before} MB of bulk came first");
    drop(urgent);
    for _ in before..60 {
        within(server.recv()).await.unwrap();
    }
    close(client, server).await;
}

async fn a_message_moved_to_a_more_urgent_level_overtakes(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handles = Vec::new();
    for number in 0..40 {
        let message = Message::new(body(number, 1 << 20)).with_priority(Priority::P4);
        handles.push(client.send(message).await.unwrap());
    }
    handles[39].reprioritise(Priority::P0).unwrap();
    // On a busy machine, much may have left before the move.
    let behind = usize::try_from(client.stats().level(Priority::P4).backlog.messages).unwrap();
    let mut before = 0;
    while number_of(&within(server.recv()).await.unwrap().bytes) != 39 {
        before += 1;
    }
    // One may come while lost data of the moved one is repaired.
    assert!(before <= 40 - behind, "{before} MB came first, and {behind} MB waited");
    for _ in before + 1..40 {
        within(server.recv()).await.unwrap();
    }
    close(client, server).await;
}

async fn a_storm_of_cancellations_loses_nothing_else(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let receiver = tokio::spawn(async move {
        let mut seen = std::collections::BTreeSet::new();
        while let Ok(received) = server.recv().await {
            let number = number_of(&received.bytes);
            assert_eq!(received.bytes, body(number, 50_000));
            assert!(seen.insert(number), "{number} came twice");
        }
        (seen, server.closed().await)
    });
    let mut handles = Vec::new();
    for number in 0..1000 {
        let message = Message::new(body(number, 50_000)).with_priority(priority_of(number));
        handles.push(client.send(message).await.unwrap());
        if number % 2 == 1 {
            // Some earlier messages have already left: the cancellation is too late, and they
            // arrive.
            let _ = handles[usize::try_from(number / 2).unwrap()].cancel();
        }
    }
    let mut delivered = std::collections::BTreeSet::new();
    for (number, handle) in (0..).zip(&mut handles) {
        match within(handle.acknowledged()).await {
            Ok(()) => {
                delivered.insert(number);
            }
            Err(NotDelivered::Cancelled) => assert!(number < 500),
            Err(other) => panic!("{number}: {other}"),
        }
    }
    within(client.close()).await.unwrap();
    let (seen, closed) = within(receiver).await.unwrap();
    assert_eq!(closed, Closed::ByPeer(CloseReason::default()));
    assert_eq!(seen, delivered);
}

async fn a_peer_that_goes_leaves_nobody_waiting(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handles = Vec::new();
    for number in 0..30 {
        handles.push(client.send(Message::new(body(number, 1 << 20))).await.unwrap());
    }
    within(server.recv()).await.unwrap();
    // With the last handle, the connection ends.
    drop(server);
    let closed = within(client.closed()).await;
    assert!(matches!(closed, Closed::Lost { .. } | Closed::ByPeer(_)), "{closed:?}");
    let mut lost = 0;
    for handle in &mut handles {
        lost += u32::from(matches!(within(handle.acknowledged()).await, Err(NotDelivered::Closed(_))));
    }
    assert!(lost > 0);
    assert_eq!(within(client.recv()).await, Err(closed.clone()));
    assert!(matches!(client.send(Message::new("late")).await, Err(SendError::Closed(why)) if why == closed));
}

async fn an_abort_is_told_apart_from_a_regular_end(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    client.abort();
    let closed = within(server.closed()).await;
    // Over TCP the end of the stream is without that of TLS, or a reset if data was not read.
    let causes = if engine == Engine::Quic { &[Cause::Aborted][..] } else { &[Cause::Cut, Cause::Reset] };
    assert!(causes.contains(&closed.cause().unwrap()) && closed.is_retryable(), "{closed:?}");
    assert_eq!(within(client.closed()).await, Closed::Local);
    assert_eq!((server.close_reason(), client.close_reason()), (Some(closed), Some(Closed::Local)));
    let (client, server, _listener) = pair(&config(engine)).await;
    assert_eq!(client.close_reason(), None);
    let mut known = std::collections::HashSet::from([client.clone()]);
    assert!(!known.insert(client.clone()) && known.insert(server.clone()));
    assert_eq!((client.stable_id(), client != server), (client.clone().stable_id(), true));
    close(client.clone(), server.clone()).await;
    let regular = server.close_reason().unwrap();
    assert_eq!((regular.cause(), regular.is_retryable()), (None, false));
}

async fn a_slow_reader_slows_its_peer_down(engine: Engine) {
    const COUNT: u64 = 3000;
    let mut config = config(engine);
    config.limits.unread = Bytes::new(256 << 10);
    config.limits.surplus = Bytes::new(256 << 10);
    let (client, server, _listener) = pair(&config).await;
    let sending = client.clone();
    let sender = tokio::spawn(async move {
        for number in 0..COUNT {
            sending.send(Message::new(body(number, 20_000))).await.unwrap();
        }
    });
    within(async {
        while server.stats().received.holds[2] == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..COUNT {
        let received = within(server.recv()).await.unwrap();
        assert_eq!(received.bytes, body(number_of(&received.bytes), 20_000));
    }
    within(sender).await.unwrap();
    let peak = server.stats().received.unread_peak;
    // The bytes of one read are added to the limits.
    assert!(peak >= Bytes::new(256 << 10) && peak < Bytes::new(640 << 10), "{peak}");
    close(client, server).await;
}

async fn a_missed_deadline_is_reported_to_its_sender(engine: Engine) {
    let mut config = config(engine);
    config.limits.max_message = Bytes::new(1 << 20);
    (config.limits.unread, config.limits.surplus) = (Bytes::new(4 << 20), Bytes::new(4 << 20));
    let (client, server, _listener) = pair(&config).await;
    // The other end reads nothing, and takes some of this, so the queue stays full.
    for number in 0..40 {
        client.send(Message::new(body(number, 1 << 20)).with_priority(Priority::P1)).await.unwrap();
    }
    let message = Message::new("late").with_priority(Priority::P4).with_lifetime(Duration::ZERO);
    let mut late = client.send(message).await.unwrap();
    for _ in 0..40 {
        assert_eq!(within(server.recv()).await.unwrap().priority, Priority::P1);
    }
    assert_eq!(within(late.acknowledged()).await, Err(NotDelivered::Expired));
    // No part of it was sent. The receiver is informed nevertheless.
    let missed = within(server.missed()).await.unwrap();
    assert_eq!((missed.reason, missed.received), (MissedReason::Expired, Bytes::ZERO));
    close(client, server).await;
}

async fn a_long_message_is_streamed_within_the_bounds_of_its_reader(engine: Engine) {
    let mut config = config(engine);
    config.limits.max_message = Bytes::new(1 << 20);
    config.limits.long_messages = LongMessages::Stream;
    config.limits.unread = Bytes::new(512 << 10);
    config.limits.surplus = Bytes::new(256 << 10);
    let (client, server, _listener) = pair(&config).await;
    let sent = body(3, 40 << 20);
    let message = Message::new(sent.clone()).with_priority(Priority::P3);
    let mut handle = client.send(message).await.unwrap();
    let mut long = within(server.accept_long()).await.unwrap();
    assert_eq!(long.priority(), Priority::P3);
    let mut context = ring::digest::Context::new(&SHA256);
    let mut len = 0;
    while let Some(piece) = within(long.next()).await.unwrap() {
        context.update(&piece);
        len += piece.len();
    }
    assert_eq!(len, sent.len());
    assert_eq!(context.finish().as_ref(), digest(&SHA256, &sent).as_ref());
    within(handle.acknowledged()).await.unwrap();
    let peak = server.stats().received.unread_peak;
    assert!(peak <= Bytes::new((1 << 20) + (512 << 10) + (256 << 10)), "{peak}");
    close(client, server).await;
}

async fn a_gibibyte_is_streamed(engine: Engine) {
    const LEN: usize = 1 << 30;
    let mut config = config(engine);
    config.limits.queued = Bytes::new(LEN as u64);
    config.limits.long_messages = LongMessages::Stream;
    let (client, server, _listener) = pair(&config).await;
    let sent = body(3, LEN);
    let hash = digest(&SHA256, &sent);
    let mut handle = client.send(Message::new(sent)).await.unwrap();
    let mut long = within(server.accept_long()).await.unwrap();
    let mut context = ring::digest::Context::new(&SHA256);
    let mut len = 0;
    while let Some(piece) = within(long.next()).await.unwrap() {
        context.update(&piece);
        len += piece.len();
    }
    assert_eq!((len, context.finish().as_ref()), (LEN, hash.as_ref()));
    within(handle.acknowledged()).await.unwrap();
    let peak = server.stats().received.unread_peak;
    // The longest message that is not streamed, and the limits of what waits.
    assert!(peak <= Bytes::new(37 << 20), "{peak}");
    close(client, server).await;
}

async fn a_message_longer_than_its_receiver_takes_ends_the_connection(engine: Engine) {
    let mut config = config(engine);
    config.limits.max_message = Bytes::new(1 << 20);
    let (client, server, _listener) = pair(&config).await;
    let mut handle = client.send(Message::new(body(0, 2 << 20))).await.unwrap();
    let Closed::Lost { reason, cause } = within(server.closed()).await else { panic!("it breaks a limit") };
    assert_eq!((cause, cause.is_retryable()), (Cause::Protocol, false));
    assert!(reason.contains("max_message"), "{reason}");
    assert!(matches!(within(handle.acknowledged()).await, Err(NotDelivered::Closed(_))));
}

async fn only_the_certificate_that_is_trusted_will_do(engine: Engine) {
    let config = config(engine);
    let server = server(&config).await;
    let addr = server.endpoint.local_addrs()[0];
    let other = Identity::self_signed(NAME).unwrap();
    let pinned = Trust::Fingerprint(other.fingerprint().unwrap());
    let other = Trust::Certificate(other.certificate().unwrap().clone());
    for security in [
        ClientSecurity::trusting(NAME, other),
        ClientSecurity::trusting(NAME, pinned),
        ClientSecurity::trusting("another.test", server.trust.clone()),
    ] {
        let error = within(Endpoint::connect(&config, &Remote::new(addr, security))).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
        assert!(matches!(error.cause(), Cause::Tls { .. }) && !error.is_retryable(), "{error}");
    }
    within(Endpoint::connect(&config, &server.remote())).await.unwrap();
    // With a pinned fingerprint, the name does not matter.
    let Trust::Certificate(certificate) = &server.trust else { panic!("it is self-signed") };
    let pinned = ClientSecurity::trusting("another.test", Trust::Fingerprint(Fingerprint::of(certificate)));
    within(Endpoint::connect(&config, &Remote::new(addr, pinned))).await.unwrap();
}

async fn many_connections_share_an_endpoint(engine: Engine) {
    let config = Arc::new(config(engine));
    let server = server(&config).await;
    let remote = server.remote();
    let clients: Vec<_> = (0..20)
        .map(|number| {
            let (config, remote) = (Arc::clone(&config), remote.clone());
            tokio::spawn(async move {
                let client = Endpoint::connect(&config, &remote).await.unwrap();
                client.send(Message::new(body(number, 10_000))).await.unwrap();
                client.close().await.unwrap();
            })
        })
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let connection = within(server.endpoint.accept()).await.unwrap();
        let received = within(connection.recv()).await.unwrap();
        assert!(seen.insert(number_of(&received.bytes)));
        // The connection stays open until the client has finished.
        tokio::spawn(async move { connection.closed().await });
    }
    for client in clients {
        within(client).await.unwrap();
    }
}

async fn statistics_tell_of_lanes_and_levels_also_after_the_end(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    for number in 0..50 {
        let message = Message::new(body(number, 20_000)).with_priority(priority_of(number));
        client.send(message).await.unwrap();
    }
    for _ in 0..50 {
        within(server.recv()).await.unwrap();
    }
    close(client.clone(), server.clone()).await;
    let (sent, received) = (client.stats(), server.stats());
    for level in Priority::ALL {
        let (ours, theirs) = (sent.level(level), received.level(level));
        assert_eq!((ours.sent.messages, ours.sent.bytes, ours.unfinished), (10, Bytes::kb(200), 0));
        assert_eq!((ours.backlog, ours.expired, ours.dropped), Default::default());
        assert_eq!(theirs.received, ours.sent);
    }
    let [lane] = sent.lanes[..] else { panic!("it has one lane") };
    assert!(!lane.srtt.is_zero() && lane.cwnd > Bytes::ZERO, "{lane:?}");
    assert!(lane.sent > 0 && lane.sent_bytes > Bytes::kb(1000), "{lane:?}");
    assert!((0.0..1.0).contains(&lane.loss()), "{lane:?}");
    for (lane, who) in [(lane, "client"), (received.lanes[0], "server")] {
        assert!(!lane.usable, "{who}: {lane:?}");
        assert_eq!(lane.local.map(|local| local.ip()), Some(crate::common::localhost().ip()), "{who}");
        assert_eq!(lane.remote.map(|remote| remote.ip()), Some(crate::common::localhost().ip()), "{who}");
    }
}

/// Returns bytes without meaning.
fn garbage(len: usize) -> Vec<u8> {
    body(99, len)[8..].to_vec()
}

async fn garbage_leaves_others_alone(engine: Engine) {
    let config = config(engine);
    let server = server(&config).await;
    let addr = server.endpoint.local_addrs()[0];
    let remote = server.remote();
    let connected = tokio::join!(Endpoint::connect(&config, &remote), server.endpoint.accept());
    let (client, accepted) = (connected.0.unwrap(), connected.1.unwrap());
    for len in [1, 100, 1200, 1400, 60_000] {
        match engine {
            Engine::Tcp => {
                let mut stream = TcpStream::connect(addr).await.unwrap();
                let _ = stream.write_all(&garbage(len + 8)).await;
                let _ = stream.shutdown().await;
                // The connection ends, whatever the server answers.
                let _ = within(stream.read_to_end(&mut Vec::new())).await;
            }
            Engine::Quic => {
                let socket = UdpSocket::bind(crate::common::localhost()).await.unwrap();
                for first in 0..=255 {
                    let mut datagram = garbage(len + 8);
                    datagram[0] = first;
                    socket.send_to(&datagram, addr).await.unwrap();
                }
            }
        }
    }
    client.send(Message::new(body(5, 100_000))).await.unwrap();
    assert_eq!(within(accepted.recv()).await.unwrap().bytes, body(5, 100_000));
    close(client, accepted).await;
}

async fn a_server_that_never_answers_is_given_up(engine: Engine) {
    let mut config = config(engine);
    config.peers.handshake_timeout = Duration::from_millis(50);
    // Both sockets are open, and nothing answers on them.
    let tcp = TcpListener::bind(crate::common::localhost()).await.unwrap();
    let udp = UdpSocket::bind(crate::common::localhost()).await.unwrap();
    let addr = if engine == Engine::Tcp { tcp.local_addr() } else { udp.local_addr() }.unwrap();
    let identity = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let remote = Remote::new(addr, ClientSecurity::trusting(NAME, trust));
    let error = within(Endpoint::connect(&config, &remote)).await.unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
}

/// Without TLS, the peer's bytes reach the frame decoder itself.
#[tokio::test]
async fn a_plain_tcp_peer_that_sends_invalid_frames_is_disconnected() {
    let config = config(Engine::Tcp);
    let endpoint =
        Endpoint::listen(&config, &[crate::common::localhost().into()], &ServerSecurity::Plaintext)
            .await
            .unwrap();
    let addr = endpoint.local_addrs()[0];
    // The last is a frame in order, of a message that has no end.
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[1, 0, 2], &[3, 9], &[1, 0, 2, 0, 0, 1, 7]] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        within(greet(&mut stream)).await;
        let connection = within(endpoint.accept()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let Closed::Lost { .. } = within(connection.closed()).await else {
            panic!("{garbage:?} is in order?")
        };
        assert!(connection.recv().await.is_err());
    }
    let client =
        within(Endpoint::connect(&config, &Remote::new(addr, ClientSecurity::Plaintext))).await.unwrap();
    let server = within(endpoint.accept()).await.unwrap();
    client.send(Message::new("in the clear")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().bytes, b"in the clear"[..]);
    close(client, server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_in_the_midst_of_a_message_is_a_loss() {
    let lost = |reason: &str| Closed::lost(Cause::Cut, reason);
    let cut = "the stream ended within a message";
    let regular = Closed::ByPeer(CloseReason::default());
    // The first two bytes of a frame; a frame of one byte of a message that goes on; a whole message.
    for (bytes, expected) in [
        (&[1, 0][..], lost(cut)),
        (&[1, 0, 2, 0, 0, 1, 7], lost(cut)),
        (&[1, 0, 2, 1, 0, 1, 7], regular.clone()),
        (&[], regular),
    ] {
        let (connection, mut peer) = with_a_bare_peer(&config(Engine::Tcp)).await;
        peer.write_all(bytes).await.unwrap();
        peer.shutdown().await.unwrap();
        assert_eq!(within(connection.closed()).await, expected, "{bytes:?}");
    }
    // RFC 8446 §6.1: with TLS, an end that is not announced may be that of an attacker.
    let config = config(Engine::Tcp);
    let server = crate::common::server(&config).await;
    let relay = TcpListener::bind(crate::common::localhost()).await.unwrap();
    let security = ClientSecurity::trusting(NAME, server.trust.clone());
    let remote = Remote::new(relay.local_addr().unwrap(), security);
    let (cut, cutting) = tokio::sync::oneshot::channel::<()>();
    let relaying = tokio::spawn(async move {
        let (mut near, _) = relay.accept().await.unwrap();
        let mut far = TcpStream::connect(server.endpoint.local_addrs()[0]).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => panic!("nobody ends the connection"),
            _ = cutting => near.shutdown().await.unwrap(),
        }
        (near, far, server)
    });
    let client = within(Endpoint::connect(&config, &remote)).await.unwrap();
    let _ = cut.send(());
    let expected = lost("the stream ended without a tls close: data may be missing");
    assert_eq!(within(client.closed()).await, expected);
    drop(within(relaying).await.unwrap());
}

/// Virtual time passes only while a runtime has nothing to do.
#[test]
fn an_idle_connection_leaves_its_thread_idle() {
    let (done, idle) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for engine in [Engine::Tcp, Engine::Quic] {
                let (client, server, _listener) = pair(&config(engine)).await;
                let mut message = client.send(Message::new("hello")).await.unwrap();
                within(server.recv()).await.unwrap();
                within(message.acknowledged()).await.unwrap();
                tokio::time::pause();
                tokio::time::sleep(Duration::from_secs(2)).await;
                tokio::time::resume();
                done.send(engine).unwrap();
                drop((client, server));
            }
        });
    });
    for engine in [Engine::Tcp, Engine::Quic] {
        assert_eq!(idle.recv_timeout(crate::common::LIMIT), Ok(engine), "a task of {engine} never rests");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_counts_byte_by_byte_and_ends_where_frames_begin() {
    let config = config(Engine::Tcp);
    let listener = TcpListener::bind(crate::common::localhost()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    // What the peer sends first, what it sends once that was read, and whether it then ends.
    let connect = async |first: &[u8], second: &[u8], ends: bool| {
        let remote = Remote::new(addr, ClientSecurity::Plaintext);
        let peer = async {
            let (mut peer, _) = listener.accept().await.unwrap();
            peer.set_nodelay(true).unwrap();
            peer.write_all(first).await.unwrap();
            // Our own hello has come, so the client reads by now.
            peer.read_exact(&mut [0; 10]).await.unwrap();
            peer.write_all(second).await.unwrap();
            if ends {
                peer.shutdown().await.unwrap();
            }
            peer
        };
        within(async { tokio::join!(Endpoint::connect(&config, &remote), peer) }).await
    };
    let message = [1, 0, 2, 1, 0, 1, 7];
    for at in [0, 1, 9, 10] {
        let (first, second) = b"marcato/2\n".split_at(at);
        let (client, _peer) = connect(first, &[second, &message].concat(), false).await;
        assert_eq!(within(client.unwrap().recv()).await.unwrap().bytes, [7][..]);
    }
    for (first, second) in [("HTTP/1.1 4", ""), ("marc", "ato/1\n"), ("marcato/2", "\r\n"), ("N", "")] {
        let (client, _peer) = connect(first.as_bytes(), second.as_bytes(), false).await;
        let error = client.unwrap_err();
        assert!(
            matches!(error, ConnectError::NotPlaintext { addr: at } if at == addr),
            "{first}{second}: {error}"
        );
    }
    for first in ["", "marcato/2"] {
        let (client, _peer) = connect(first.as_bytes(), b"", true).await;
        let error = client.unwrap_err();
        assert!(matches!(error, ConnectError::Ended { addr: at, .. } if at == addr), "{first}: {error}");
    }
}

#[tokio::test]
async fn an_abort_of_plain_tcp_is_told_apart_from_a_regular_end() {
    let config = config(Engine::Tcp);
    let endpoint =
        Endpoint::listen(&config, &[crate::common::localhost().into()], &ServerSecurity::Plaintext)
            .await
            .unwrap();
    let remote = Remote::new(endpoint.local_addrs()[0], ClientSecurity::Plaintext);
    for abort in [true, false] {
        let client = within(Endpoint::connect(&config, &remote)).await.unwrap();
        let server = within(endpoint.accept()).await.unwrap();
        if abort {
            client.abort();
            let closed = within(server.closed()).await;
            assert!(matches!(closed, Closed::Lost { .. }), "{closed}");
        } else {
            close(client, server).await;
        }
    }
}

#[tokio::test]
async fn a_plain_client_and_a_tls_server_refuse_each_other() {
    let config = config(Engine::Tcp);
    let server = server(&config).await;
    let remote = Remote::new(server.endpoint.local_addrs()[0], ClientSecurity::Plaintext);
    let error = within(Endpoint::connect(&config, &remote)).await.unwrap_err();
    assert!(matches!(error, ConnectError::NotPlaintext { .. }), "{error}");
    within(async {
        while server.endpoint.stats().failed == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.endpoint.stats().accepted, 0);
}

#[tokio::test]
async fn a_tls_client_and_a_plain_server_refuse_each_other() {
    let config = config(Engine::Tcp);
    let endpoint =
        Endpoint::listen(&config, &[crate::common::localhost().into()], &ServerSecurity::Plaintext)
            .await
            .unwrap();
    let identity = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let remote = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting(NAME, trust));
    let error = within(Endpoint::connect(&config, &remote)).await.unwrap_err();
    assert!(matches!(error, ConnectError::NotTls { .. }), "{error}");
    within(async {
        while endpoint.stats().failed == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(endpoint.stats().accepted, 0);
}

#[tokio::test]
async fn a_plain_peer_that_sends_nothing_is_no_connection() {
    let mut config = config(Engine::Tcp);
    config.peers.handshake_timeout = Duration::from_millis(50);
    let silent = TcpListener::bind(crate::common::localhost()).await.unwrap();
    let remote = Remote::new(silent.local_addr().unwrap(), ClientSecurity::Plaintext);
    let error = within(Endpoint::connect(&config, &remote)).await.unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    let endpoint =
        Endpoint::listen(&config, &[crate::common::localhost().into()], &ServerSecurity::Plaintext)
            .await
            .unwrap();
    let _stranger = TcpStream::connect(endpoint.local_addrs()[0]).await.unwrap();
    within(async {
        while endpoint.stats().failed == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((endpoint.stats().accepted, endpoint.stats().connections), (0, 0));
}

#[tokio::test]
async fn a_peer_that_is_late_for_a_closed_endpoint_is_disconnected() {
    let config = config(Engine::Tcp);
    for waiting in [true, false] {
        let security = ServerSecurity::Plaintext;
        let endpoint = Arc::new(Endpoint::listen(&config, &[localhost().into()], &security).await.unwrap());
        let mut peer = TcpStream::connect(endpoint.local_addrs()[0]).await.unwrap();
        // The handshake has begun, and waits for our hello.
        within(peer.read_exact(&mut [0; 10])).await.unwrap();
        let accepting = tokio::spawn({
            let endpoint = Arc::clone(&endpoint);
            async move { if waiting { endpoint.accept().await.map(drop) } else { Ok(()) } }
        });
        tokio::task::yield_now().await;
        endpoint.close();
        assert_eq!(within(accepting).await.unwrap().is_err(), waiting);
        peer.write_all(b"marcato/2\n").await.unwrap();
        // It ends in order, or by a reset.
        let _ = within(peer.read_to_end(&mut Vec::new())).await;
        until(&endpoint, |stats| (stats.connections, stats.handshakes) == (0, 0)).await;
    }
}

#[tokio::test]
async fn quic_refuses_to_be_plain_and_tcp_to_have_two_lanes() {
    let quic = config(Engine::Quic);
    let at = [crate::common::localhost().into()];
    let error = Endpoint::listen(&quic, &at, &ServerSecurity::Plaintext).await.unwrap_err();
    assert!(error.to_string().contains("always encrypted"), "{error}");
    let remote = Remote::new(crate::common::localhost(), ClientSecurity::Plaintext);
    assert!(Endpoint::connect(&quic, &remote).await.is_err());
    let two = remote.clone().and_lane(remote.lanes[0]);
    let error = Endpoint::connect(&config(Engine::Tcp), &two).await.unwrap_err();
    assert!(error.to_string().contains("1 lanes at most, not 2"), "{error}");
}

/// The name has an IPv6 address too, where nobody listens.
async fn a_server_is_reached_by_its_name(engine: Engine) {
    let config = Config::new(engine);
    let identity = Identity::self_signed("localhost").unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let security = ServerSecurity::Tls(identity);
    let server = Endpoint::listen(&config, &[localhost().into()], &security).await.unwrap();
    let addr = server.local_addrs()[0];
    let to = Named::new(&format!("localhost:{}", addr.port())).trusting(trust);
    let client = within(Endpoint::connect(&config, to)).await.unwrap();
    let accepted = within(server.accept()).await.unwrap();
    assert_eq!(client.remote_addr(), Some(addr));
    assert_eq!(accepted.remote_addr().map(|addr| addr.ip()), Some(addr.ip()));
    close(client, accepted).await;
}

async fn a_name_without_an_address_is_an_error(engine: Engine) {
    let config = Config::new(engine);
    let error = within(Endpoint::connect(&config, "nobody.invalid:1")).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Unknown { host, .. } if host == "nobody.invalid"), "{error}");
    let error = within(Endpoint::connect(&config, "nobody.invalid")).await.unwrap_err();
    assert!(matches!(error, ConnectError::Config(ConfigError::Target { .. })), "{error}");
}

/// Both families have the same port, and answer from the address that was asked.
async fn a_server_at_any_address_is_reached_over_ipv4_and_ipv6(engine: Engine) {
    let config = Config::new(engine);
    // A port that is free at one address may be in use at another, or be taken meanwhile.
    let (server, port) = within(async {
        loop {
            let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if let Ok(server) = try_server_at(&config, &LocalAddress::any(port)).await {
                return (server, port);
            }
        }
    })
    .await;
    for ip in ["127.0.0.1", "::1"] {
        let addr = SocketAddr::new(ip.parse().unwrap(), port);
        let remote = Remote::new(addr, ClientSecurity::trusting(NAME, server.trust.clone()));
        let client = within(Endpoint::connect(&config, &remote)).await.unwrap();
        let accepted = within(server.endpoint.accept()).await.unwrap();
        assert_eq!(client.remote_addr(), Some(addr));
        close(client, accepted).await;
    }
}

/// A server that is closed delivers what it has sent, and lets no peer in.
async fn a_closed_endpoint_delivers_and_ends(engine: Engine) {
    let config = Config::new(engine);
    let server = server(&config).await;
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let client = within(Endpoint::connect(&config, &server.remote())).await.unwrap();
        pairs.push((client, within(server.endpoint.accept()).await.unwrap()));
    }
    let unaccepted = within(Endpoint::connect(&config, &server.remote())).await.unwrap();
    for (_, accepted) in &pairs {
        accepted.send(Message::new(body(1, 2_000_000))).await.unwrap();
    }
    server.endpoint.close();
    assert!(matches!(within(server.endpoint.accept()).await, Err(AcceptError::Closed)));
    for (client, _) in &pairs {
        assert_eq!(within(client.recv()).await.unwrap().bytes, body(1, 2_000_000));
        assert_eq!(within(client.closed()).await, Closed::ByPeer(CloseReason::default()));
    }
    within(server.endpoint.wait_idle()).await;
    within(unaccepted.closed()).await;
    within(Endpoint::connect(&config, &server.remote())).await.unwrap_err();
}

async fn lanes_have_round_trips_and_the_size_of_packets(engine: Engine) {
    let (client, server, _endpoint) = pair(&Config::new(engine)).await;
    let mut sent = client.send(Message::new(body(1, 50_000))).await.unwrap();
    within(server.recv()).await.unwrap();
    within(sent.acknowledged()).await.unwrap();
    let lane = client.stats().lanes[0];
    let least = lane.least_rtt.unwrap();
    assert!(!least.is_zero() && least <= lane.srtt, "{lane:?}");
    assert_eq!(lane.latest_rtt.is_some(), engine == Engine::Quic, "{lane:?}");
    assert!(lane.latest_rtt.is_none_or(|latest| latest >= least), "{lane:?}");
    // Larger than any of IPv6 over Ethernet has to be, and no larger than loopback carries.
    assert!((Bytes::new(1200)..=Bytes::new(65_535)).contains(&lane.mtu), "{lane:?}");
    close(client, server).await;
}

for_both_engines! {
    lanes_have_round_trips_and_the_size_of_packets
    a_closed_endpoint_delivers_and_ends
    a_server_at_any_address_is_reached_over_ipv4_and_ipv6
    a_server_is_reached_by_its_name
    a_name_without_an_address_is_an_error
    ten_thousand_messages_arrive_whole_and_once
    a_thousand_tasks_send_at_once
    one_byte_and_64_mib_arrive_unchanged_in_both_directions
    an_urgent_message_overtakes_queued_bulk
    a_message_moved_to_a_more_urgent_level_overtakes
    a_storm_of_cancellations_loses_nothing_else
    a_peer_that_goes_leaves_nobody_waiting
    an_abort_is_told_apart_from_a_regular_end
    a_slow_reader_slows_its_peer_down
    a_missed_deadline_is_reported_to_its_sender
    a_long_message_is_streamed_within_the_bounds_of_its_reader
    a_message_longer_than_its_receiver_takes_ends_the_connection
    only_the_certificate_that_is_trusted_will_do
    many_connections_share_an_endpoint
    garbage_leaves_others_alone
    statistics_tell_of_lanes_and_levels_also_after_the_end
    a_server_that_never_answers_is_given_up
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a gigabyte of memory and some ten seconds"]
async fn a_gibibyte_is_streamed_over_tcp() {
    a_gibibyte_is_streamed(Engine::Tcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a gigabyte of memory and some ten seconds"]
async fn a_gibibyte_is_streamed_over_quic() {
    a_gibibyte_is_streamed(Engine::Quic).await;
}
