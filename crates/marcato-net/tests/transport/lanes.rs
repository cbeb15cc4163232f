//! Several QUIC lanes over real loopback sockets, and the delivery of messages when one of them is
//! lost.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::common::{NAME, body, close, localhost, number_of, server_at, within};
use marcato_net::{
    AddLaneError, ChangeLaneError, Client, ClientSecurity, Config, ConfigError, ConnectError, Connection,
    ConnectionEvent, Endpoint, Engine, LaneConfig, LaneLoss, LocalAddress, LongMessages, Message, Remote,
};
use marcato_quic::{LaneError, PathScheduler, Retry};
use marcato_sched::reserve::{Source, SourceKey};
use marcato_units::{Bytes, Duration, Layer, Priority};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Sends messages of 200 kB with these numbers, in a task.
fn send_numbered(connection: &Connection, numbers: Range<u64>) -> JoinHandle<()> {
    let connection = connection.clone();
    tokio::spawn(async move {
        for number in numbers {
            connection.send(Message::new(body(number, 200_000))).await.unwrap();
        }
    })
}

/// Receives so many of these messages, each once and unchanged. Returns their numbers.
async fn receive_numbered(connection: &Connection, count: u64) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    for _ in 0..count {
        let message = connection.recv().await.unwrap();
        let number = number_of(&message.bytes);
        assert_eq!(message.bytes, body(number, 200_000));
        assert!(seen.insert(number), "{number} came twice");
    }
    seen
}

/// Relay that forwards datagrams between clients and a server, except while it is cut.
struct Relay {
    addr: SocketAddr,
    is_cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    async fn to(server: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind(localhost()).await.unwrap());
        let addr = front.local_addr().unwrap();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        let task = tokio::spawn(async move {
            let mut backs: HashMap<SocketAddr, (Arc<UdpSocket>, JoinHandle<()>)> = HashMap::new();
            let mut buf = vec![0; 65_536];
            loop {
                let Ok((len, client)) = front.recv_from(&mut buf).await else { continue };
                if cut.load(Relaxed) {
                    continue;
                }
                if let Entry::Vacant(vacant) = backs.entry(client) {
                    let back = Arc::new(UdpSocket::bind(localhost()).await.unwrap());
                    let (front, from, cut) = (Arc::clone(&front), Arc::clone(&back), Arc::clone(&cut));
                    let task = tokio::spawn(async move {
                        let mut buf = vec![0; 65_536];
                        while let Ok((len, _)) = from.recv_from(&mut buf).await {
                            if !cut.load(Relaxed) {
                                let _ = front.send_to(&buf[..len], client).await;
                            }
                        }
                    });
                    vacant.insert((back, task));
                }
                let _ = backs[&client].0.send_to(&buf[..len], server).await;
            }
        });
        Self { addr, is_cut, task }
    }

    /// Drops everything from now on.
    fn cut(&self) {
        self.is_cut.store(true, Relaxed);
    }

    /// Forwards again.
    fn restore(&self) {
        self.is_cut.store(false, Relaxed);
    }
}

/// Returns a connection with two lanes, each through a relay.
async fn two_lanes(config: &Config, layer: Layer) -> (Connection, Connection, [Relay; 2]) {
    let low = LocalAddress { layer, ..localhost().into() };
    let server = server_at(config, &[localhost().into(), low]).await;
    let [first, second] = server.endpoint.local_addrs() else { panic!("it has two") };
    let relays = [Relay::to(*first).await, Relay::to(*second).await];
    let security = ClientSecurity::trusting(NAME, server.trust.clone());
    let remote = Remote::new(relays[0].addr, security)
        .and_lane(LaneConfig::new(relays[1].addr).from(localhost()).in_layer(layer));
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(config, &remote), server.endpoint.accept()) }).await;
    let (client, accepted) = (client.unwrap(), accepted.unwrap());
    let both =
        |connection: &Connection| connection.stats().lanes.iter().filter(|lane| lane.usable).count() == 2;
    within(async {
        while !both(&client) || !both(&accepted) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    (client, accepted, relays)
}

/// Cuts one of two lanes while both carry messages: nothing is lost, and nothing arrives twice.
async fn survives_the_loss_of(lane: usize) {
    const COUNT: u64 = 300;
    let mut config = Config::new(Engine::Quic);
    config.quic.session.path_scheduler = PathScheduler::RoundRobin;
    // A busy machine may be silent for the usual time, and the other lane must not count as lost, too.
    config.quic.session.stall.floor = Duration::from_secs(2);
    let (client, server, relays) = two_lanes(&config, Layer::High).await;
    let sending = client.clone();
    let sender = tokio::spawn(async move {
        let mut handles = Vec::new();
        for number in 0..COUNT {
            handles.push(sending.send(Message::new(body(number, 100_000))).await.unwrap());
        }
        for handle in &mut handles {
            handle.acknowledged().await.unwrap();
        }
    });
    let mut seen = BTreeSet::new();
    let mut cut = false;
    for received in 0..COUNT {
        // The cut waits until both lanes are in use, which takes a while on a busy machine.
        if !cut && received >= 20 && client.stats().lanes.iter().all(|lane| lane.sent > 100) {
            relays[lane].cut();
            cut = true;
        }
        let message = within(server.recv()).await.unwrap();
        let number = number_of(&message.bytes);
        assert_eq!(message.bytes, body(number, 100_000));
        assert!(seen.insert(number), "{number} came twice");
    }
    assert!(cut, "never were both lanes in use: {:?}", client.stats().lanes);
    within(sender).await.unwrap();
    close(client, server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_lane_lost_mid_message_loses_nothing() {
    survives_the_loss_of(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_lane_lost_mid_message_loses_nothing() {
    survives_the_loss_of(0).await;
}

/// Cuts one of two lanes while a message of 30 MB is written piece by piece.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_a_lane_while_a_message_is_written_loses_no_data() {
    const PIECES: usize = 100;
    let mut config = Config::new(Engine::Quic);
    config.quic.session.path_scheduler = PathScheduler::RoundRobin;
    // A busy machine may be silent for the usual time, and the other lane must not count as lost, too.
    config.quic.session.stall.floor = Duration::from_secs(2);
    config.limits.long_messages = LongMessages::Stream;
    config.limits.max_message = Bytes::new(1 << 20);
    let (client, server, relays) = two_lanes(&config, Layer::High).await;
    let writing = client.clone();
    let writer = tokio::spawn(async move {
        let mut long = writing.send_long(Priority::P2).unwrap();
        for number in 0..PIECES {
            long.write(body(number as u64, 300_000)).await.unwrap();
        }
        long.finish().await.unwrap();
        long.acknowledged().await.unwrap();
    });
    let mut long = within(server.accept_long()).await.unwrap();
    let mut received = Vec::new();
    let mut cut = false;
    while let Some(piece) = within(long.next()).await.unwrap() {
        received.extend_from_slice(&piece);
        if received.len() > 3_000_000 && !std::mem::replace(&mut cut, true) {
            relays[1].cut();
        }
    }
    assert_eq!(received.len(), PIECES * 300_000);
    for (number, piece) in received.chunks(300_000).enumerate() {
        assert!(piece == body(number as u64, 300_000), "piece {number} is another");
    }
    within(writer).await.unwrap();
    close(client, server).await;
}

/// Waits until exactly this number of lanes is left, all usable.
async fn until_there_are(count: usize, connection: &Connection) {
    within(async {
        loop {
            let lanes = connection.stats().lanes;
            if lanes.len() == count && lanes.iter().all(|lane| lane.usable) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_come_and_go_while_messages_flow() {
    const COUNT: u64 = 120;
    let mut config = Config::new(Engine::Quic);
    config.quic.session.path_scheduler = PathScheduler::RoundRobin;
    // A lane that is silent because the machine is busy is not replaced by one with another name.
    config.quic.session.reopen = None;
    let server = server_at(&config, &[localhost().into(), localhost().into(), localhost().into()]).await;
    let addrs = server.endpoint.local_addrs().to_vec();
    let remote = server.remote();
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(&config, &remote), server.endpoint.accept()) }).await;
    let (client, accepted) = (client.unwrap(), accepted.unwrap());
    let same = client.add_lane(LaneConfig::new(addrs[0])).unwrap_err();
    assert!(matches!(same, AddLaneError::Session(LaneError::SameRemote { .. })), "{same}");
    let there = accepted.add_lane(LaneConfig::new(addrs[1])).unwrap_err();
    assert!(matches!(there, AddLaneError::Session(LaneError::NotAClient)), "{there}");

    let sender = send_numbered(&client, 0..COUNT);
    let receiving = accepted.clone();
    let receiver = tokio::spawn(async move {
        receive_numbered(&receiving, COUNT).await;
    });
    // More rounds than a connection has room for sockets of closed lanes.
    let mut gone = 0;
    for round in 0..6 {
        client.add_lane(LaneConfig::new(addrs[1 + round % 2]).from(localhost())).unwrap();
        until_there_are(2, &client).await;
        let lanes = client.stats().lanes;
        let leaves = lanes[round % 2].id;
        gone += lanes[round % 2].sent;
        client.remove_lane(leaves).unwrap();
        until_there_are(1, &client).await;
        assert!(client.stats().lanes.iter().all(|lane| lane.id != leaves));
        // The first address may be used again once the server has released it.
        if round % 2 == 0 {
            client.add_lane(LaneConfig::new(addrs[0]).from(localhost())).unwrap();
            until_there_are(2, &client).await;
            let stays = client.stats().lanes.iter().find(|lane| lane.remote == Some(addrs[0])).unwrap().id;
            for lane in client.stats().lanes.iter().filter(|lane| lane.id != stays) {
                client.remove_lane(lane.id).unwrap();
            }
            until_there_are(1, &client).await;
        }
    }
    assert!(gone > 0);
    within(sender).await.unwrap();
    within(receiver).await.unwrap();
    let last = client.stats().lanes[0].id;
    assert!(client.remove_lane(last).is_err(), "it is the last");
    assert_eq!(client.set_backup(last, true), Ok(()));
    close(client.clone(), accepted).await;
    assert_eq!(client.remove_lane(last), Err(ChangeLaneError::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kernel_tcp_has_one_lane() {
    let (client, server, _listener) = crate::common::pair(&Config::new(Engine::Tcp)).await;
    let lane = client.stats().lanes[0];
    assert!(matches!(client.add_lane(LaneConfig::new(localhost())), Err(AddLaneError::NotOverTcp)));
    assert_eq!(client.remove_lane(lane.id), Err(ChangeLaneError::NotOverTcp));
    assert_eq!(client.set_backup(lane.id, true), Err(ChangeLaneError::NotOverTcp));
    close(client, server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_have_the_layers_that_were_asked_for() {
    let (client, server, _relays) = two_lanes(&Config::new(Engine::Quic), Layer::Low).await;
    for stats in [client.stats(), server.stats()] {
        let layers: Vec<_> = stats.lanes.iter().map(|lane| lane.layer).collect();
        assert_eq!(layers, [Layer::High, Layer::Low]);
    }
    client.send(Message::new(body(1, 1_000_000))).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().bytes, body(1, 1_000_000));
    close(client, server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_periodic_source_finds_its_reservation_during_bulk() {
    let (client, server, _relays) = two_lanes(&Config::new(Engine::Quic), Layer::High).await;
    let sensor = SourceKey(1);
    let period = Duration::from_millis(50);
    let source = Source::new(period, Bytes::kb(3), client.now() + period);
    client.reserve(sensor, source).unwrap();
    for number in 100..140 {
        client.send(Message::new(body(number, 1 << 20)).with_priority(Priority::P4)).await.unwrap();
    }
    let sending = client.clone();
    let sender = tokio::spawn(async move {
        // The source itself is periodic; nothing else here waits for time to pass.
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        for number in 0..10 {
            ticks.tick().await;
            let message = Message::new(body(number, 3000)).with_priority(Priority::P0).from_source(sensor);
            sending.send(message).await.unwrap().acknowledged().await.unwrap();
        }
    });
    let mut seen = BTreeSet::new();
    for _ in 0..50 {
        let message = within(server.recv()).await.unwrap();
        let number = number_of(&message.bytes);
        assert_eq!(message.priority, if number < 10 { Priority::P0 } else { Priority::P4 });
        assert!(seen.insert(number));
    }
    within(sender).await.unwrap();
    assert!(client.release(sensor) && !client.release(sensor));
    close(client, server).await;
}

/// Returns a layered connection, once its lanes are up.
async fn layered_pair(
    config: &Config,
    server: &crate::common::Server,
    remote: &Remote,
) -> (Connection, Connection) {
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(config, remote), server.endpoint.accept()) }).await;
    let (client, accepted) = (client.unwrap(), accepted.unwrap());
    until_there_are(2, &client).await;
    until_there_are(2, &accepted).await;
    (client, accepted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_flag_at_both_ends_opens_a_low_lane_at_the_port_after() {
    const COUNT: u64 = 60;
    let config = Config::new(Engine::Quic).layered(true);
    let server = server_at(&config, &[localhost().into()]).await;
    let [high, low] = server.endpoint.local_addrs() else { panic!("a port, and the one after it") };
    assert_eq!((low.ip(), low.port()), (high.ip(), high.port() + 1));
    let (client, accepted) = layered_pair(&config, &server, &server.remote()).await;
    for connection in [&client, &accepted] {
        let mut layers: Vec<_> = connection.stats().lanes.iter().map(|lane| lane.layer).collect();
        layers.sort_unstable();
        assert_eq!(layers, [Layer::High, Layer::Low]);
    }
    let carried = |connection: &Connection, layer| {
        connection.stats().lanes.iter().filter(|lane| lane.layer == layer).map(|lane| lane.sent).sum::<u64>()
    };
    // In both directions more than a window, and for as long as the low lane has carried nothing.
    for (from, to) in [(&client, &accepted), (&accepted, &client)] {
        let both = || carried(from, Layer::High) > 0 && carried(from, Layer::Low) > 0;
        let mut first = 0;
        within(async {
            while first == 0 || !both() {
                let sender = send_numbered(from, first..first + COUNT);
                let seen = receive_numbered(to, COUNT).await;
                assert!(seen.into_iter().eq(first..first + COUNT));
                sender.await.unwrap();
                first += COUNT;
            }
        })
        .await;
    }
    close(client, accepted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_low_lane_may_have_a_named_address_but_not_come_first() {
    let config = Config::new(Engine::Quic).layered(true);
    let low = LocalAddress { layer: Layer::Low, ..localhost().into() };
    let server = server_at(&config, &[localhost().into(), low]).await;
    let [first, second] = server.endpoint.local_addrs() else { panic!("what was named and no more") };
    let lane = LaneConfig::new(*second).in_layer(Layer::Low);
    let (client, accepted) = layered_pair(&config, &server, &server.remote().and_lane(lane)).await;
    close(client, accepted).await;

    let mut remote = server.remote();
    remote.lanes = vec![lane, LaneConfig::new(*first)];
    let error = Endpoint::connect(&config, &remote).await.unwrap_err().to_string();
    assert!(error.contains("connect with one of the high layer"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layered_client_uses_one_lane_at_a_server_without_layers() {
    let config = Config::new(Engine::Quic);
    let server = server_at(&config, &[localhost().into()]).await;
    let layered = config.clone().layered(true);
    let remote = server.remote();
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(&layered, &remote), server.endpoint.accept()) }).await;
    let (client, accepted) = (client.unwrap(), accepted.unwrap());
    client.send(Message::new(body(7, 300_000))).await.unwrap();
    assert_eq!(within(accepted.recv()).await.unwrap().bytes, body(7, 300_000));
    assert_eq!(client.stats().lanes.iter().filter(|lane| lane.usable).count(), 1);
    close(client, accepted).await;
}

#[tokio::test]
async fn layers_are_refused_where_there_can_be_none() {
    let tcp = Config::new(Engine::Tcp).layered(true);
    let identity = marcato_quic::Identity::self_signed(NAME).unwrap();
    let security = marcato_net::ServerSecurity::Tls(identity);
    let error = Endpoint::listen(&tcp, &[localhost().into()], &security).await.unwrap_err().to_string();
    assert!(error.contains("use quic"), "{error}");
    let quic = Config::new(Engine::Quic).layered(true);
    let last = SocketAddr::from(([127, 0, 0, 1], 65_535));
    let trust = ClientSecurity::trusting(
        NAME,
        marcato_quic::Trust::Certificate(
            marcato_quic::Identity::self_signed(NAME).unwrap().certificate().unwrap().clone(),
        ),
    );
    let error = Endpoint::connect(&quic, &Remote::new(last, trust)).await.unwrap_err().to_string();
    assert!(error.contains("no next port for its low lane"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lane_is_reported_and_reopens_by_itself() {
    let mut config = Config::new(Engine::Quic);
    config.quic.session.path_scheduler = PathScheduler::RoundRobin;
    config.quic.session.lane_idle_timeout = Some(Duration::from_millis(300));
    config.quic.session.reopen =
        Some(Retry { first: Duration::from_millis(100), longest: Duration::from_millis(400) });
    let (client, server, relays) = two_lanes(&config, Layer::High).await;
    let mut events = client.events();
    let sending = client.clone();
    // Silence is noticed only where something is sent.
    let sender = tokio::spawn(async move {
        while let Ok(mut handle) = sending.send(Message::new(body(1, 5000))).await {
            if handle.acknowledged().await.is_err() {
                break;
            }
        }
    });
    let taking = server.clone();
    let taker = tokio::spawn(async move { while taking.recv().await.is_ok() {} });
    relays[0].cut();
    let lost = loop {
        let event = within(events.next()).await.unwrap();
        if let ConnectionEvent::LaneDown { lane, reason: LaneLoss::Silent, reopens_at: Some(_) } = event {
            break lane;
        }
    };
    assert!(lost.is_some());
    relays[0].restore();
    loop {
        if let ConnectionEvent::LaneUp(_) = within(events.next()).await.unwrap() {
            break;
        }
    }
    client.abort();
    assert_eq!(within(async { while events.next().await.is_some() {} }).await, ());
    within(sender).await.unwrap();
    within(taker).await.unwrap();
}

/// Connections of one client share its port. Each gets its own messages, and ends by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_client_share_its_sockets() {
    let config = Config::new(Engine::Quic);
    let server = server_at(&config, &[localhost().into(), localhost().into()]).await;
    let client = Client::bind(&config, &[localhost().into()]).unwrap();
    let mut pairs = Vec::new();
    for _ in 0..20 {
        let connected = within(client.connect(&server.remote())).await.unwrap();
        pairs.push((connected, within(server.endpoint.accept()).await.unwrap()));
    }
    for (number, (client, _)) in (0..).zip(&pairs) {
        client.send(Message::new(body(number, 50_000))).await.unwrap();
    }
    let ports: BTreeSet<_> = pairs.iter().map(|(_, accepted)| accepted.remote_addr().unwrap()).collect();
    assert_eq!(ports, BTreeSet::from([client.local_addrs()[0]]));
    for (number, (_, accepted)) in (0..).zip(&pairs) {
        assert_eq!(within(accepted.recv()).await.unwrap().bytes, body(number, 50_000));
    }
    // A further lane needs a socket of its own. One connection ends without the others.
    let lane = LaneConfig::new(server.endpoint.local_addrs()[1]);
    pairs[0].0.add_lane(lane).unwrap();
    within(async {
        while pairs[0].0.stats().lanes.iter().filter(|lane| lane.usable).count() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (first, accepted) = pairs.remove(0);
    close(first, accepted).await;
    // They outlive the client.
    drop(client);
    for (number, (client, accepted)) in (0..).zip(pairs) {
        client.send(Message::new(body(number, 1000))).await.unwrap();
        assert_eq!(within(accepted.recv()).await.unwrap().bytes, body(number, 1000));
        close(client, accepted).await;
    }
}

/// At the server, only the address of the client's socket tells lanes apart.
#[tokio::test]
async fn lanes_that_wait_to_be_opened_share_no_socket() {
    let config = Config::new(Engine::Quic);
    let server = server_at(&config, &[localhost(); 3].map(Into::into)).await;
    let client = Client::bind(&config, &[localhost().into(), localhost().into()]).unwrap();
    for _ in 0..5 {
        let connected = within(client.connect(&server.remote())).await.unwrap();
        // The handshake is not confirmed yet, so both wait. One of the client's sockets is free.
        for addr in &server.endpoint.local_addrs()[1..] {
            connected.add_lane(LaneConfig::new(*addr)).unwrap();
        }
        until_there_are(3, &connected).await;
        let sockets: BTreeSet<_> = connected.stats().lanes.iter().map(|lane| lane.local.unwrap()).collect();
        assert_eq!(sockets.len(), 3, "{sockets:?}");
        let accepted = within(server.endpoint.accept()).await.unwrap();
        close(connected, accepted).await;
    }
}

#[tokio::test]
async fn a_client_without_a_fitting_socket_says_so() {
    let config = Config::new(Engine::Quic);
    let server = server_at(&config, &[localhost().into()]).await;
    let client = Client::bind(&config, &["[::1]:0".parse::<SocketAddr>().unwrap().into()]).unwrap();
    let error = within(client.connect(&server.remote())).await.unwrap_err();
    assert!(matches!(error, ConnectError::Config(ConfigError::NoSocket { .. })), "{error}");
    let error = Client::bind(&Config::new(Engine::Tcp), &[localhost().into()]).unwrap_err();
    assert!(error.to_string().contains("quic engine"), "{error}");
}

/// Without keep-alives and probes, an idle connection has no timer for an hour. Whatever an application does has to wake
/// the driver by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_act_leaves_although_no_timer_is_due() {
    let mut config = Config::new(Engine::Quic);
    let session = &mut config.quic.session;
    (session.keep_alive, session.lane_idle_timeout, session.mtu_discovery) = (None, None, false);
    session.idle_timeout = Duration::from_secs(3600);
    let (client, accepted, _relays) = two_lanes(&config, Layer::High).await;
    let mut events = accepted.events();
    let mut event = async |wanted: fn(&ConnectionEvent) -> bool| {
        within(async { while !wanted(&events.next().await.unwrap()) {} }).await;
    };
    let second = client.stats().lanes[1].id;
    for backup in [true, false] {
        client.set_backup(second, backup).unwrap();
        event(|event| matches!(event, ConnectionEvent::LaneBackup { .. })).await;
    }
    let mut sent = client.send(Message::new("a message")).await.unwrap();
    assert_eq!(within(accepted.recv()).await.unwrap().bytes, b"a message"[..]);
    within(sent.acknowledged()).await.unwrap();
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.request(Message::new("a request")).await }
    });
    let request = within(accepted.accept_request()).await.unwrap();
    asked.abort();
    within(request.withdrawn()).await;
    drop(request);
    client.remove_lane(second).unwrap();
    event(|event| matches!(event, ConnectionEvent::LaneDown { .. })).await;
    close(client, accepted).await;
}
