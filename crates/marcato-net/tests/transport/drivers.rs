//! QUIC servers with several drivers: to clients and to the application, they are one endpoint.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{NAME, Server, body, close, localhost, number_of, server, server_at, until, within};
use marcato_net::{
    Cause, Client, ClientSecurity, Closed, Config, ConfigError, ConnectError, Connection, Endpoint,
    EndpointStats, Engine, Identity, LaneConfig, ListenError, Message, Priority, Remote, ResetKey,
    ServerSecurity, Trust,
};
use marcato_units::{Bytes, Layer};
use tokio::net::UdpSocket;

fn config(drivers: usize) -> Config {
    let mut config = Config::new(Engine::Quic);
    config.quic.drivers = drivers;
    config
}

async fn connected(config: &Config, server: &Server, remote: &Remote) -> (Connection, Connection) {
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(config, remote), server.endpoint.accept()) }).await;
    (client.unwrap(), accepted.unwrap())
}

async fn exchange(from: &Connection, to: &Connection, len: usize) {
    from.send(Message::new(body(7, len))).await.unwrap();
    assert_eq!(within(to.recv()).await.unwrap().bytes, body(7, len));
}

/// Checks that the kernel gave each datagram to the right driver, where it can be programmed to.
fn assert_steered(stats: EndpointStats) {
    if cfg!(target_os = "linux") {
        assert_eq!((stats.handed_over, stats.overrun), (0, 0));
    }
}

async fn until_lanes(count: usize, connection: &Connection) {
    within(async {
        while connection.stats().lanes.iter().filter(|lane| lane.usable).count() != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Elsewhere, loopback interfaces have one address.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_from_several_addresses_reach_one_driver() {
    let mut config = config(4);
    config.quic.session.path_scheduler = marcato_quic::PathScheduler::RoundRobin;
    let at = [localhost().into(), SocketAddr::from(([127, 0, 0, 5], 0)).into()];
    let server = server_at(&config, &at).await;
    let [first, second] = *server.endpoint.local_addrs() else { panic!("it has two") };
    for number in 0..6 {
        let from = |host: u8| SocketAddr::from(([127, 0, 1, host], 0));
        let lanes = vec![
            LaneConfig::new(first).from(from(10 + number)),
            LaneConfig::new(second).from(from(20 + number)),
        ];
        let (client, accepted) = connected(&config, &server, &Remote { lanes, ..server.remote() }).await;
        until_lanes(2, &client).await;
        until_lanes(2, &accepted).await;
        exchange(&client, &accepted, 500_000).await;
        exchange(&accepted, &client, 500_000).await;
        assert!(client.stats().lanes.iter().all(|lane| lane.sent > 0));
        close(client, accepted).await;
    }
    assert_steered(server.endpoint.stats());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_lanes_reach_the_driver_of_their_connection() {
    let config = config(3).layered(true);
    let server = server(&config).await;
    let [high, low] = server.endpoint.local_addrs() else { panic!("a port, and the one after it") };
    assert_eq!(low.port(), high.port() + 1);
    for _ in 0..6 {
        let (client, accepted) = connected(&config, &server, &server.remote()).await;
        until_lanes(2, &accepted).await;
        assert!(accepted.stats().lanes.iter().any(|lane| lane.layer == Layer::Low));
        exchange(&client, &accepted, 500_000).await;
        close(client, accepted).await;
    }
    assert_steered(server.endpoint.stats());
}

/// Relay that forwards datagrams between a client and a server, as a NAT does.
struct Nat {
    addr: SocketAddr,
    outside: Arc<Mutex<Arc<UdpSocket>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    front: Arc<UdpSocket>,
    client: Arc<Mutex<Option<SocketAddr>>>,
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Nat {
    async fn to(server: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind(localhost()).await.unwrap());
        let outside = Arc::new(Mutex::new(Arc::new(UdpSocket::bind(localhost()).await.unwrap())));
        let client = Arc::new(Mutex::new(None));
        let (inside, out, from) = (Arc::clone(&front), Arc::clone(&outside), Arc::clone(&client));
        let outward = tokio::spawn(async move {
            let mut buf = vec![0; 65_536];
            while let Ok((len, addr)) = inside.recv_from(&mut buf).await {
                *from.lock().unwrap() = Some(addr);
                let out = Arc::clone(&out.lock().unwrap());
                let _ = out.send_to(&buf[..len], server).await;
            }
        });
        let addr = front.local_addr().unwrap();
        let mut nat = Self { addr, outside, tasks: vec![outward], front, client };
        nat.listen();
        nat
    }

    /// Forwards the answers to the address used now.
    fn listen(&mut self) {
        let out = Arc::clone(&self.outside.lock().unwrap());
        let (front, client) = (Arc::clone(&self.front), Arc::clone(&self.client));
        self.tasks.push(tokio::spawn(async move {
            let mut buf = vec![0; 65_536];
            while let Ok((len, _)) = out.recv_from(&mut buf).await {
                let client = *client.lock().unwrap();
                if let Some(client) = client {
                    let _ = front.send_to(&buf[..len], client).await;
                }
            }
        }));
    }

    /// Uses another address from now on.
    async fn rebind(&mut self) -> SocketAddr {
        let new = UdpSocket::bind(localhost()).await.unwrap();
        let addr = new.local_addr().unwrap();
        *self.outside.lock().unwrap() = Arc::new(new);
        self.listen();
        addr
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_moves_stays_with_its_driver() {
    let config = config(4);
    let server = server(&config).await;
    let mut nat = Nat::to(server.endpoint.local_addrs()[0]).await;
    let remote = Remote::new(nat.addr, ClientSecurity::trusting(NAME, server.trust.clone()));
    let (client, accepted) = connected(&config, &server, &remote).await;
    exchange(&client, &accepted, 100_000).await;
    // An address chosen at random would belong to the same driver once in 4 times.
    for _ in 0..6 {
        let addr = nat.rebind().await;
        exchange(&client, &accepted, 100_000).await;
        until(&server.endpoint, |_| accepted.remote_addr() == Some(addr)).await;
        exchange(&accepted, &client, 100_000).await;
    }
    close(client, accepted).await;
    assert_steered(server.endpoint.stats());
}

/// The kernel may combine datagrams of several connections if they come from one address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_share_a_port_have_different_drivers() {
    const COUNT: u64 = 16;
    let config = config(4);
    let server = server(&config).await;
    let client = Client::bind(&config, &[localhost().into()]).unwrap();
    let mut pairs = Vec::new();
    for _ in 0..COUNT {
        let connected = within(client.connect(&server.remote())).await.unwrap();
        pairs.push((connected, within(server.endpoint.accept()).await.unwrap()));
    }
    for (number, (client, _)) in (0..).zip(&pairs) {
        client.send(Message::new(body(number, 200_000))).await.unwrap();
    }
    for (number, (client, accepted)) in (0..).zip(pairs) {
        let received = within(accepted.recv()).await.unwrap();
        assert_eq!(number_of(&received.bytes), number);
        assert_eq!(received.bytes, body(number, 200_000));
        close(client, accepted).await;
    }
    assert_eq!(server.endpoint.stats().overrun, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_backlog_is_that_of_all_drivers_together() {
    let mut config = config(4);
    config.peers.backlog = 3;
    // They wait for half of it, all together.
    config.peers.handshake_timeout = Duration::from_secs(4);
    let server = server(&config).await;
    let (mut clients, mut pairs) = (Vec::new(), Vec::new());
    for round in 0..3 {
        while clients.len() < 3 {
            clients.push(within(Endpoint::connect(&config, &server.remote())).await.unwrap());
        }
        // Of so many, some would reach a driver that has accepted none.
        let refused: Vec<_> = (0..6)
            .map(|_| {
                let (config, remote) = (Config::new(Engine::Quic), server.remote());
                tokio::spawn(async move { Endpoint::connect(&config, &remote).await.unwrap_err() })
            })
            .collect();
        for error in refused {
            let error = within(error).await.unwrap();
            assert!(matches!(error, ConnectError::Ended { .. }), "{error}");
        }
        until(&server.endpoint, |stats| stats.refused >= 6 * (round + 1)).await;
        // Each connection that the application takes leaves room for another.
        for client in &clients {
            client.send(Message::new("hello")).await.unwrap();
        }
        // They may have reached the application in another order.
        for client in clients.drain(..) {
            let accepted = within(server.endpoint.accept()).await.unwrap();
            assert_eq!(within(accepted.recv()).await.unwrap().bytes, b"hello"[..]);
            pairs.push((client, accepted));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_connections_is_that_of_all_drivers() {
    let mut config = config(4);
    config.peers.connections = 3;
    let server = server(&config).await;
    let mut pairs = Vec::new();
    for _ in 0..3 {
        pairs.push(connected(&config, &server, &server.remote()).await);
    }
    for refused in 1..=5 {
        within(Endpoint::connect(&config, &server.remote())).await.unwrap_err();
        let stats = until(&server.endpoint, |stats| stats.refused >= refused).await;
        assert_eq!((stats.connections, stats.accepted), (3, 3));
    }
}

/// Many peers leave large messages incomplete, each far below the budget.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_budget_is_that_of_all_drivers_together() {
    let mut config = config(4);
    config.limits.memory = Bytes::kb(1500);
    let server = server(&config).await;
    let mut pairs = Vec::new();
    let mut longs = Vec::new();
    for _ in 0..8 {
        let (client, accepted) = connected(&config, &server, &server.remote()).await;
        let mut long = client.send_long(Priority::P3).unwrap();
        let _ = within(long.write(vec![0; 500_000])).await;
        longs.push(long);
        pairs.push((client, accepted));
    }
    let ended = |pairs: &[(Connection, Connection)]| {
        let lost = |(_, accepted): &&(Connection, Connection)| {
            accepted.stats().lanes.iter().all(|lane| !lane.usable)
        };
        pairs.iter().filter(lost).count()
    };
    // 8 times 372 kB or more arrive, of which at most 1500 kB stay.
    until(&server.endpoint, |stats| ended(&pairs) >= 3 && stats.held <= config.limits.memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_the_endpoint_ends_the_connections_of_all_drivers() {
    let config = config(4);
    let server = server(&config).await;
    let addr = server.endpoint.local_addrs()[0];
    let mut pairs = Vec::new();
    for _ in 0..16 {
        pairs.push(connected(&config, &server, &server.remote()).await);
    }
    // This one is not accepted any more.
    let late = within(Endpoint::connect(&config, &server.remote())).await.unwrap();
    for (_, accepted) in &pairs {
        accepted.send(Message::new(body(1, 100_000))).await.unwrap();
    }
    server.endpoint.close();
    let taker = async {
        for (client, _) in &pairs {
            assert_eq!(within(client.recv()).await.unwrap().bytes, body(1, 100_000));
            assert_eq!(within(client.closed()).await, Closed::ByPeer(marcato_net::CloseReason::default()));
        }
    };
    within(async { tokio::join!(taker, server.endpoint.wait_idle()) }).await;
    within(late.closed()).await;
    drop((pairs, late));
    until(&server.endpoint, |stats| (stats.connections, stats.handshakes) == (0, 0)).await;
    // With the endpoint's statistics, every socket goes.
    drop(server);
    within(async {
        while UdpSocket::bind(addr).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_endpoint_at_the_same_address_is_refused() {
    let config = config(2);
    let server = server(&config).await;
    let at = [server.endpoint.local_addrs()[0].into()];
    let security = || ServerSecurity::Tls(Identity::self_signed(NAME).unwrap());
    let error = Endpoint::listen(&config, &at, &security()).await.unwrap_err();
    assert!(matches!(error, ListenError::Bind { .. }), "{error}");
    for drivers in [0, 65] {
        let error = Endpoint::listen(&self::config(drivers), &at, &security()).await.unwrap_err();
        assert!(matches!(error, ListenError::Config(ConfigError::Drivers { .. })), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_drivers_present_a_new_identity() {
    let config = config(4);
    let server = server(&config).await;
    let renewed = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(renewed.certificate().unwrap().clone());
    server.endpoint.set_identity(&renewed).unwrap();
    let remote = Remote::new(server.endpoint.local_addrs()[0], ClientSecurity::trusting(NAME, trust));
    for _ in 0..16 {
        let (client, accepted) = connected(&config, &server, &remote).await;
        close(client, accepted).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The key of resets follows from that of the certificate, unless the address is another one.
#[test]
fn a_restarted_server_is_noticed_without_any_key_of_its_own() {
    let clients = runtime();
    let identity = Identity::self_signed(NAME).unwrap();
    let security = ServerSecurity::Tls(identity.clone());
    let mut config = config(1);
    // Longer than the test may take.
    config.quic.session.idle_timeout = Duration::from_secs(1000);
    config.quic.session.keep_alive = None;
    let first = runtime();
    let at = [localhost().into()];
    let server = first.block_on(Endpoint::listen(&config, &at, &security)).unwrap();
    let addr = server.local_addrs()[0];
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let remote = Remote::new(addr, ClientSecurity::trusting(NAME, trust));
    let connecting = clients.spawn({
        let config = config.clone();
        async move { Endpoint::connect(&config, &remote).await.unwrap() }
    });
    let accepted = first.block_on(within(server.accept())).unwrap();
    let client = clients.block_on(connecting).unwrap();
    // It vanishes without a word.
    first.shutdown_timeout(crate::common::LIMIT);
    drop((server, accepted));
    clients.block_on(async {
        let _server = Endpoint::listen(&config, &[addr.into()], &security).await.unwrap();
        // A probe of its own may have been answered by a reset already.
        let _ = client.send(Message::new("hello")).await;
        assert_eq!(within(client.closed()).await.cause(), Some(Cause::Reset));
    });
}

/// RFC 9000 §10.3: a server that has lost its state resets the connections of its predecessor.
#[test]
fn a_server_that_restarts_with_its_key_resets_connections() {
    let clients = runtime();
    for [before, after] in [[1, 1], [3, 2]] {
        let mut config = config(before);
        config.quic.reset_key = Some(ResetKey([7; 64]));
        // Longer than the test may take.
        config.quic.session.idle_timeout = Duration::from_secs(1000);
        config.quic.session.keep_alive = None;
        let first = runtime();
        let server = first.block_on(server(&config));
        let remote = server.remote();
        let mut pairs = Vec::new();
        for _ in 0..4 {
            let connecting = clients.spawn({
                let (config, remote) = (config.clone(), remote.clone());
                async move { Endpoint::connect(&config, &remote).await.unwrap() }
            });
            let accepted = first.block_on(within(server.endpoint.accept())).unwrap();
            pairs.push((clients.block_on(connecting).unwrap(), accepted));
        }
        // It vanishes without a word.
        first.shutdown_timeout(crate::common::LIMIT);
        let addr = server.endpoint.local_addrs()[0];
        let (connections, accepted): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        drop((server, accepted));
        config.quic.drivers = after;
        clients.block_on(async {
            let _server = server_at(&config, &[addr.into()]).await;
            for client in &connections {
                // A probe of its own may have been answered by a reset already.
                let _ = client.send(Message::new("hello")).await;
                let closed = within(client.closed()).await;
                assert!(closed.to_string().contains("reset"), "{closed}");
            }
        });
    }
}
