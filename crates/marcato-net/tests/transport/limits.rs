//! Resources that strangers and silent peers can hold at an endpoint, and for how long.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::common::{NAME, close, for_both_engines, localhost, server, until, with_a_bare_peer, within};
use bytes::BytesMut;
use marcato_net::{
    Cause, ClientSecurity, Closed, Config, ConnectError, Endpoint, Engine, Message, NotDelivered, Remote,
};
use marcato_quic::{EndpointConfig, LocalSocket, SessionConfig, SocketId};
use marcato_units::{Bytes, Priority, Time};
use marcato_wire::Ecn;
use tokio::net::{TcpStream, UdpSocket};

async fn beyond_the_most_connections_those_who_knock_are_refused(engine: Engine) {
    let mut config = Config::new(engine);
    config.peers.connections = 2;
    let server = server(&config).await;
    let remote = server.remote();
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let client = within(Endpoint::connect(&config, &remote)).await.unwrap();
        pairs.push((client, within(server.endpoint.accept()).await.unwrap()));
    }
    within(Endpoint::connect(&config, &remote)).await.unwrap_err();
    let stats = until(&server.endpoint, |stats| stats.refused > 0 && stats.handshakes == 0).await;
    assert_eq!((stats.connections, stats.accepted), (2, 2));
    // One connection ends, and its room is available again.
    let (client, accepted) = pairs.pop().unwrap();
    close(client, accepted).await;
    let client = within(async {
        loop {
            // A QUIC connection that has ended lingers for three PTOs.
            if let Ok(client) = Endpoint::connect(&config, &remote).await {
                return client;
            }
        }
    })
    .await;
    let accepted = within(server.endpoint.accept()).await.unwrap();
    close(client, accepted).await;
}

/// RFC 9000 §5.2: a short header that names no connection, and a first packet that is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_of_no_connection_are_counted() {
    for drivers in [1, 2] {
        let mut config = Config::new(Engine::Quic);
        config.quic.drivers = drivers;
        let server = server(&config).await;
        let stranger = UdpSocket::bind(localhost()).await.unwrap();
        for number in 0..3u8 {
            stranger.send_to(&[0x40 | number; 60], server.endpoint.local_addrs()[0]).await.unwrap();
        }
        let stats = until(&server.endpoint, |stats| stats.stray == 3).await;
        let others = (stats.connections, stats.handshakes, stats.accepted, stats.refused, stats.failed);
        assert_eq!(others, (0, 0, 0, 0, 0));
    }
}

/// Two peers leave large messages incomplete. One of them has to go; a third is not affected.
async fn incomplete_messages_of_all_peers_stay_within_the_budget(engine: Engine) {
    let mut config = Config::new(engine);
    config.limits.memory = Bytes::kb(1000);
    let server = server(&config).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = within(Endpoint::connect(&config, &server.remote())).await.unwrap();
        clients.push((client, within(server.endpoint.accept()).await.unwrap()));
    }
    let mut longs = Vec::new();
    for (client, _) in &clients[..2] {
        let mut long = client.send_long(Priority::P3).unwrap();
        // Up to 128 kB stay here until the message is finished.
        within(long.write(vec![0; 900_000])).await.unwrap();
        longs.push(long);
    }
    let reason = within(async {
        tokio::select! {
            closed = clients[0].1.closed() => closed,
            closed = clients[1].1.closed() => closed,
        }
    });
    let reason = reason.await.to_string();
    assert!(reason.contains("memory"), "{reason}");
    until(&server.endpoint, |stats| stats.held <= config.limits.memory).await;
    let (client, accepted) = &clients[2];
    client.send(Message::new(vec![3; 100_000])).await.unwrap();
    assert_eq!(within(accepted.recv()).await.unwrap().bytes.len(), 100_000);
}

/// Handshakes of 500 clients, 32 at a time, of which the server counts more: a client's handshake ends first.
async fn a_crowd_from_one_address_waits_for_its_turn(engine: Engine) {
    const CLIENTS: u64 = 500;
    let ways: &[_] = if engine == Engine::Quic { &[(false, 1), (true, 1), (true, 3)] } else { &[(false, 1)] };
    for &(validate, drivers) in ways {
        let mut config = Config::new(engine);
        (config.quic.validate_addresses, config.quic.drivers) = (validate, drivers);
        // Longer than the test may take.
        config.peers.handshake_timeout = Duration::from_secs(1000);
        let server = server(&config).await;
        let remote = server.remote();
        let left = Arc::new(AtomicU64::new(CLIENTS));
        let knocking: Vec<_> = (0..32)
            .map(|_| {
                let (config, remote, left) = (config.clone(), remote.clone(), Arc::clone(&left));
                tokio::spawn(async move {
                    let mut clients = Vec::new();
                    while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                        clients.push(Endpoint::connect(&config, &remote).await);
                    }
                    clients
                })
            })
            .collect();
        let serving = async {
            let mut accepted = Vec::new();
            while let Ok(connection) = server.endpoint.accept().await {
                accepted.push(connection);
            }
        };
        let connecting = async {
            let mut clients = Vec::new();
            for some in knocking {
                clients.extend(some.await.unwrap());
            }
            until(&server.endpoint, |stats| stats.handshakes == 0).await;
            clients
        };
        let clients = within(async {
            tokio::select! {
                clients = connecting => clients,
                () = serving => unreachable!("the endpoint is open"),
            }
        });
        let refused = clients.await.iter().filter(|client| client.is_err()).count();
        let stats = server.endpoint.stats();
        let seen = (refused, stats.accepted, stats.refused, stats.crowded);
        assert_eq!(seen, (0, CLIENTS, 0, 0), "validating: {validate}, drivers: {drivers}");
    }
}

for_both_engines! {
    incomplete_messages_of_all_peers_stay_within_the_budget
    a_crowd_from_one_address_waits_for_its_turn
    beyond_the_most_connections_those_who_knock_are_refused
}

/// Returns a QUIC client's first datagram, which nothing follows.
fn first_datagram(server: SocketAddr, trust: &marcato_quic::Trust) -> Vec<u8> {
    let config = EndpointConfig::new(vec![LocalSocket::new(localhost())]);
    let mut endpoint = marcato_quic::Endpoint::new(config, Instant::now()).unwrap();
    // Longer than a test may take: the shorter idle timeout of both ends counts.
    let session = SessionConfig { idle_timeout: Duration::from_secs(1000), ..SessionConfig::default() };
    endpoint.connect(Time::ZERO, SocketId(0), server, NAME, trust, session).unwrap();
    let mut datagram = Vec::new();
    endpoint.poll_transmit(Time::ZERO, NonZeroUsize::MIN, &mut datagram).unwrap();
    datagram
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_quic_handshakes_block_no_client_and_time_out() {
    let mut config = Config::new(Engine::Quic);
    config.peers.handshakes = 4;
    config.peers.handshake_timeout = Duration::from_secs(4);
    // Longer than the test may take: only the time of the handshake ends those that are stalled.
    config.quic.session.idle_timeout = Duration::from_secs(1000);
    let server = server(&config).await;
    let addr = server.endpoint.local_addrs()[0];
    let socket = UdpSocket::bind(localhost()).await.unwrap();
    let knocks: Vec<_> = (0..20).map(|_| first_datagram(addr, &server.trust)).collect();
    for knock in knocks {
        socket.send_to(&knock, addr).await.unwrap();
    }
    let stats = until(&server.endpoint, |stats| stats.retried == 16).await;
    // All four are stalled, unless this took longer than a handshake may.
    assert_eq!((stats.handshakes as u64 + stats.failed, stats.connections, stats.accepted), (4, 0, 0));
    // A client that receives packets at its address is accepted.
    // It waits for longer than the server does for those that are stalled.
    let client = within(Endpoint::connect(&Config::new(Engine::Quic), &server.remote())).await.unwrap();
    let accepted = within(server.endpoint.accept()).await.unwrap();
    client.send(Message::new("hello")).await.unwrap();
    assert_eq!(within(accepted.recv()).await.unwrap().bytes, b"hello"[..]);
    let stats = until(&server.endpoint, |stats| stats.failed == 4).await;
    assert_eq!((stats.handshakes, stats.connections, stats.accepted), (0, 1, 1));
    close(client, accepted).await;
}

/// A client that is refused knows that nothing of what it sends arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_backlog_quic_clients_wait_and_are_refused() {
    let mut config = Config::new(Engine::Quic);
    config.peers.backlog = 2;
    config.peers.handshake_timeout = Duration::from_secs(4);
    let server = server(&config).await;
    // The client waits for longer than the server.
    config.peers.handshake_timeout = Duration::from_secs(100);
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(within(Endpoint::connect(&config, &server.remote())).await.unwrap());
    }
    let error = within(Endpoint::connect(&config, &server.remote())).await.unwrap_err();
    assert!(matches!(error, ConnectError::Ended { cause: Cause::Crowded, .. }), "{error}");
    assert!(error.to_string().contains("limit of connections"), "{error}");
    assert!(error.is_retryable());
    // A client may be refused while the server's side of an earlier handshake goes on.
    until(&server.endpoint, |stats| (stats.refused, stats.accepted, stats.handshakes) == (1, 2, 0)).await;
    // One that waits has its turn when the application takes another.
    let patient = tokio::spawn({
        let (config, remote) = (Config::new(Engine::Quic), server.remote());
        async move {
            loop {
                // On a busy machine, its wait may end before the application takes one.
                if let Ok(client) = Endpoint::connect(&config, &remote).await {
                    return client;
                }
            }
        }
    });
    until(&server.endpoint, |stats| stats.waiting == 1).await;
    let first = within(server.endpoint.accept()).await.unwrap();
    let patient = within(patient).await.unwrap();
    drop((first, clients.remove(0)));
    clients.push(patient);
    for client in &clients {
        client.send(Message::new("hello")).await.unwrap();
    }
    // Each connection that the application takes leaves room for another.
    for _ in &clients {
        let accepted = within(server.endpoint.accept()).await.unwrap();
        let more = within(Endpoint::connect(&config, &server.remote())).await.unwrap();
        assert_eq!(within(accepted.recv()).await.unwrap().bytes, b"hello"[..]);
        drop(more);
    }
}

/// Lets a client prove its address, and begin a handshake that it never completes.
async fn stall(server: SocketAddr, trust: &marcato_quic::Trust, from: &str) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).await.unwrap();
    let (epoch, local) = (Instant::now(), socket.local_addr().unwrap());
    let config = EndpointConfig::new(vec![LocalSocket::new(local)]);
    let mut endpoint = marcato_quic::Endpoint::new(config, epoch).unwrap();
    // Longer than a test may take: the shorter idle timeout of both ends counts.
    let session = SessionConfig { idle_timeout: Duration::from_secs(1000), ..SessionConfig::default() };
    endpoint.connect(Time::ZERO, SocketId(0), server, NAME, trust, session).unwrap();
    let mut datagram = Vec::new();
    for round in 0..2 {
        datagram.clear();
        endpoint.poll_transmit(Time::ZERO, NonZeroUsize::MIN, &mut datagram).unwrap();
        socket.send_to(&datagram, server).await.unwrap();
        if round == 0 {
            let mut retry = BytesMut::zeroed(1500);
            let len = within(socket.recv(&mut retry)).await.unwrap();
            retry.truncate(len);
            endpoint.handle_datagram(Time::ZERO, SocketId(0), server, Ecn::NotEct, retry);
        }
    }
    socket
}

/// Elsewhere, loopback interfaces have one address.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_quic_strangers_from_one_host_exclude_no_other() {
    let mut config = Config::new(Engine::Quic);
    config.peers.backlog = 8;
    config.peers.handshakes_per_address = Some(4);
    config.peers.handshakes = 12;
    // Longer than the test may take.
    config.peers.handshake_timeout = Duration::from_secs(1000);
    config.quic.validate_addresses = true;
    let server = server(&config).await;
    let addr = server.endpoint.local_addrs()[0];
    let mut strangers = Vec::new();
    for _ in 0..20 {
        strangers.push(stall(addr, &server.trust, "127.0.0.9").await);
    }
    // Four have their turn, and six wait for it.
    let stats = until(&server.endpoint, |stats| stats.crowded == 10).await;
    assert_eq!((stats.handshakes, stats.waiting, stats.refused), (4, 6, 0));
    let client = within(Endpoint::connect(&config, &server.remote())).await.unwrap();
    let accepted = within(server.endpoint.accept()).await.unwrap();
    close(client, accepted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_handshakes_that_do_not_begin_are_given_up() {
    let mut config = Config::new(Engine::Tcp);
    config.peers.handshakes = 2;
    config.peers.handshake_timeout = Duration::from_millis(300);
    let server = server(&config).await;
    let addr = server.endpoint.local_addrs()[0];
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(TcpStream::connect(addr).await.unwrap());
    }
    // The limit admits only some at once; the others wait in the kernel for their turn.
    let stats = until(&server.endpoint, |stats| stats.failed == 5).await;
    assert_eq!((stats.connections, stats.accepted), (0, 0));
}

/// Lets this time pass. The clock is paused, so it moves only once no task has anything to do.
async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}

/// A peer's wait for its turn is as long as a handshake may take, however many are before it.
#[tokio::test]
async fn silent_peers_of_one_host_wait_no_longer_than_a_handshake() {
    let mut config = Config::new(Engine::Tcp);
    config.peers.handshakes_per_address = Some(1);
    config.peers.handshakes = 6;
    config.peers.handshake_timeout = Duration::from_secs(100);
    let server = server(&config).await;
    let addr = server.endpoint.local_addrs()[0];
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(addr).await.unwrap());
    }
    // One has its turn, six wait for theirs, and there is no place for the last.
    until(&server.endpoint, |stats| (stats.handshakes, stats.waiting, stats.crowded) == (1, 6, 1)).await;
    tokio::time::pause();
    pass(Duration::from_secs(30)).await;
    assert_eq!(server.endpoint.stats().failed, 0);
    // The second may have got its turn at the moment at which its wait ended.
    pass(Duration::from_secs(180)).await;
    let stats = server.endpoint.stats();
    assert_eq!((stats.handshakes, stats.failed), (0, 7));
}

/// The application takes nobody, so there is no place for a further connection.
#[tokio::test]
async fn beyond_the_backlog_tcp_peers_wait_and_are_refused() {
    let mut config = Config::new(Engine::Tcp);
    config.peers.backlog = 1;
    config.peers.handshake_timeout = Duration::from_secs(100);
    let server = server(&config).await;
    let _unaccepted = within(Endpoint::connect(&config, &server.remote())).await.unwrap();
    until(&server.endpoint, |stats| (stats.accepted, stats.handshakes) == (1, 0)).await;
    let _silent = TcpStream::connect(server.endpoint.local_addrs()[0]).await.unwrap();
    until(&server.endpoint, |stats| stats.handshakes == 1).await;
    tokio::time::pause();
    pass(Duration::from_secs(30)).await;
    assert_eq!(server.endpoint.stats().refused, 0);
    pass(Duration::from_secs(80)).await;
    let stats = server.endpoint.stats();
    assert_eq!((stats.accepted, stats.handshakes, stats.refused, stats.failed), (1, 0, 1, 0));
}

/// Elsewhere, loopback interfaces have one address.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_tcp_strangers_from_one_host_delay_no_other() {
    let mut config = Config::new(Engine::Tcp);
    config.peers.handshakes = 16;
    config.peers.handshakes_per_address = Some(8);
    // Longer than the test may take.
    config.peers.handshake_timeout = Duration::from_secs(1000);
    let server = server(&config).await;
    let addr = server.endpoint.local_addrs()[0];
    let mut strangers = Vec::new();
    for _ in 0..100 {
        strangers.push(TcpStream::connect(addr).await.unwrap());
    }
    // While the listener passes on to the next peer, it counts one handshake less.
    let stats = until(&server.endpoint, |stats| stats.crowded == 76 && stats.handshakes == 8).await;
    assert_eq!((stats.refused, stats.failed), (0, 0));
    let elsewhere = marcato_net::LaneConfig::new(addr).from(([127, 0, 0, 2], 0).into());
    let remote = Remote { lanes: vec![elsewhere], ..server.remote() };
    let client = within(Endpoint::connect(&config, &remote)).await.unwrap();
    let accepted = within(server.endpoint.accept()).await.unwrap();
    close(client, accepted).await;
    // Once the strangers have gone, their host connects as well.
    drop(strangers);
    until(&server.endpoint, |stats| stats.handshakes == 0).await;
    let client = within(Endpoint::connect(&config, &server.remote())).await.unwrap();
    close(client, within(server.endpoint.accept()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_tcp_peers_from_one_host_takes_turns() {
    let mut config = Config::new(Engine::Tcp);
    config.peers.handshakes_per_address = Some(1);
    config.peers.handshakes = 32;
    // Longer than the test may take: the last of them waits for all others.
    config.peers.handshake_timeout = Duration::from_secs(1000);
    let server = server(&config).await;
    let remote = server.remote();
    let burst: Vec<_> = (0..32)
        .map(|_| {
            let (config, remote) = (config.clone(), remote.clone());
            tokio::spawn(async move { Endpoint::connect(&config, &remote).await.unwrap() })
        })
        .collect();
    for client in burst {
        let accepted = within(server.endpoint.accept()).await.unwrap();
        drop((within(client).await.unwrap(), accepted));
    }
    let stats = server.endpoint.stats();
    assert_eq!((stats.accepted, stats.crowded, stats.failed), (32, 0, 0));
}

/// Returns a connection over plain TCP to a peer that vanishes silently: its kernel drops all
/// packets, as if the cable had been cut.
#[cfg(target_os = "linux")]
async fn with_a_peer_that_vanishes() -> (marcato_net::Connection, TcpStream) {
    let mut config = Config::new(Engine::Tcp);
    config.tcp.idle_timeout = Duration::from_secs(1);
    let (client, peer) = with_a_bare_peer(&config).await;
    // BPF_RET | BPF_K: passes this number of bytes of each segment.
    let drop_all = [socket2::SockFilter::new(0x06, 0, 0, 0)];
    socket2::SockRef::from(&peer).attach_filter(&drop_all).unwrap();
    (client, peer)
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_tcp_peer_is_detected_by_unacknowledged_data() {
    let (client, _peer) = with_a_peer_that_vanishes().await;
    let mut message = client.send(Message::new("are you there?")).await.unwrap();
    let closed = within(client.closed()).await;
    assert!(matches!(closed, Closed::Lost { .. }), "{closed}");
    assert_eq!(within(message.acknowledged()).await, Err(NotDelivered::Closed(closed)));
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tcp_peer_that_vanishes_is_noticed_on_a_quiet_connection() {
    let (client, _peer) = with_a_peer_that_vanishes().await;
    let closed = within(client.closed()).await;
    assert!(matches!(closed, Closed::Lost { .. }), "{closed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quic_peer_that_vanishes_is_given_up_after_the_idle_timeout() {
    let mut config = Config::new(Engine::Quic);
    config.quic.session.idle_timeout = Duration::from_secs(3);
    config.quic.session.keep_alive = Some(Duration::from_millis(100));
    let server = server(&config).await;
    let behind = UdpSocket::bind(localhost()).await.unwrap();
    let front = UdpSocket::bind(localhost()).await.unwrap();
    let addr = server.endpoint.local_addrs()[0];
    let remote =
        Remote::new(front.local_addr().unwrap(), ClientSecurity::trusting(NAME, server.trust.clone()));
    // Forwards datagrams, until it is cut.
    let relay = tokio::spawn(async move {
        let (mut ours, mut theirs) = (vec![0; 65_536], vec![0; 65_536]);
        let mut client = None;
        loop {
            tokio::select! {
                Ok((len, from)) = front.recv_from(&mut ours) => {
                    client = Some(from);
                    let _ = behind.send_to(&ours[..len], addr).await;
                }
                Ok((len, _)) = behind.recv_from(&mut theirs) => if let Some(client) = client {
                    let _ = front.send_to(&theirs[..len], client).await;
                },
            }
        }
    });
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(&config, &remote), server.endpoint.accept()) }).await;
    let (client, accepted) = (client.unwrap(), accepted.unwrap());
    relay.abort();
    // It may still be forwarding a datagram.
    let _ = relay.await;
    let mut message = client.send(Message::new("are you there?")).await.unwrap();
    for connection in [&client, &accepted] {
        let closed = within(connection.closed()).await;
        assert!(matches!(closed, Closed::Lost { .. }), "{closed}");
    }
    assert!(matches!(within(message.acknowledged()).await, Err(NotDelivered::Closed(_))));
    until(&server.endpoint, |stats| stats.connections == 0).await;
}
