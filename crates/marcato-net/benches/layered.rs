//! Two lanes on one path over real sockets, of which an emulated link serves one first: PLT on
//! QUIC.
//!
//! `cargo bench -p marcato-net --bench layered`: in about three minutes, prints
//!
//! - the goodput with one lane and with two at losses of 0, 1e-4 and 1e-3;
//! - the completion times of a competing plain QUIC connection, which sends 10 kB each 20 ms;
//! - the goodput if the low layer is dropped, and the time until low lanes are stopped if the link
//!   serves both layers alike.
//!
//! The link is in this process: 50 Mbit/s, a round trip of 80 ms, and for each class a buffer of
//! one bandwidth-delay product (417 packets). It identifies the layer of a datagram by its port.
//! Results vary with the machine and its other load.
#![expect(clippy::unwrap_used, reason = "a benchmark that fails should stop")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use marcato_lab::{Datagram, LinkConfig, Loss, Port, UdpLink};
use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, LaneConfig, LocalAddress, Message, Remote,
    ServerSecurity,
};
use marcato_queue::{DropTail, DropTailConfig, Fate, Filtered, Limit, Packet, Strict, StrictConfig};
use marcato_quic::{Identity, Trust};
use marcato_units::{Bytes, Layer, Priority, Rate, Seed};

const NAME: &str = "marcato.test";
const BUFFER: u64 = 417;
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(6);
const ROUNDS: u64 = 4;

/// Treatment of the low layer by the link.
#[derive(Clone, Copy, PartialEq)]
enum Queueing {
    Strict,
    Alike,
    DropsLow,
}

fn link(queueing: Queueing, loss: f64) -> LinkConfig<Datagram> {
    let tail = DropTailConfig { limit: Limit::Packets(BUFFER) };
    let strict = || Strict::new(StrictConfig { high: tail, low: tail }).unwrap();
    let link = LinkConfig::new(Rate::from_mbps(50), Duration::from_millis(40)).loss(Loss::Random(loss));
    match queueing {
        Queueing::Strict => link.queue(strict()),
        Queueing::Alike => link.queue(DropTail::new(tail).unwrap()),
        Queueing::DropsLow => {
            link.queue(Filtered::of(strict(), |_, packet: &mut Datagram| match packet.layer() {
                Layer::High => Fate::Pass,
                Layer::Low => Fate::Drop,
            }))
        }
    }
}

fn localhost() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Connection over the link: its client's and its server's end.
struct Over {
    client: Connection,
    server: Connection,
    _endpoint: Endpoint,
}

/// Starts a server with a socket for each lane.
async fn server(config: &Config) -> (Endpoint, Trust) {
    let identity = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let mut at = vec![LocalAddress::from(localhost())];
    if config.quic.layered {
        at.push(LocalAddress { layer: Layer::Low, ..localhost().into() });
    }
    (Endpoint::listen(config, &at, &ServerSecurity::Tls(identity)).await.unwrap(), trust)
}

async fn connect(config: &Config, endpoint: Endpoint, trust: Trust, addrs: &[SocketAddr]) -> Over {
    let mut remote = Remote::new(addrs[0], ClientSecurity::trusting(NAME, trust));
    if let Some(low) = addrs.get(1) {
        remote = remote.and_lane(LaneConfig::new(*low).in_layer(Layer::Low));
    }
    let (client, server) = tokio::join!(Endpoint::connect(config, &remote), endpoint.accept());
    Over { client: client.unwrap(), server: server.unwrap(), _endpoint: endpoint }
}

/// The link, a connection that fills it, and a plain competing one.
struct World {
    _link: UdpLink,
    filling: Over,
    beside: Over,
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl World {
    async fn new(queueing: Queueing, loss: f64, layered: bool, seed: u64) -> Self {
        // The link stands for one outside this host.
        let mut plain = Config::new(Engine::Quic);
        plain.quic.session.loopback_mtu = plain.quic.session.mtu_limit;
        let config = plain.clone().layered(layered);
        let ((endpoint, trust), (other, other_trust)) = (server(&config).await, server(&plain).await);
        let low = endpoint.local_addrs().get(1).copied();
        let mut ports = vec![Port::new(other.local_addrs()[0]), Port::new(endpoint.local_addrs()[0])];
        ports.extend(low.map(|low| Port::new(low).in_layer(Layer::Low)));
        let (there, back) = (link(queueing, loss), link(queueing, 0.0));
        let link = UdpLink::open_ports(&ports, there, back, Seed::new(seed)).await.unwrap();
        let addrs = link.addrs().to_vec();
        let beside = connect(&plain, other, other_trust, &addrs[..1]).await;
        let filling = connect(&config, endpoint, trust, &addrs[1..]).await;
        let world = Self { _link: link, filling, beside, received: Arc::default(), stop: Arc::default() };
        let (client, stop) = (world.filling.client.clone(), Arc::clone(&world.stop));
        tokio::spawn(async move {
            let body = bytes::Bytes::from(vec![7; 100_000]);
            while !stop.load(Relaxed) && client.stats().level(Priority::P3).backlog.bytes < Bytes::kb(1000) {
                let message = Message::new(body.clone()).with_priority(Priority::P3);
                if client.send(message).await.is_err() {
                    return;
                }
                while client.stats().level(Priority::P3).backlog.bytes >= Bytes::kb(500) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
        let (server, received) = (world.filling.server.clone(), Arc::clone(&world.received));
        tokio::spawn(async move {
            while let Ok(message) = server.recv().await {
                received.fetch_add(message.bytes.len() as u64, Relaxed);
            }
        });
        world
    }

    /// Returns the goodput in Mbit/s during the measurement.
    async fn goodput(&self) -> f64 {
        tokio::time::sleep(WARM_UP).await;
        let (before, began) = (self.received.load(Relaxed), Instant::now());
        tokio::time::sleep(MEASURED).await;
        let gained = self.received.load(Relaxed) - before;
        if gained == 0 {
            // No goodput at all is a fault rather than a result, so the connections' states are
            // printed.
            for connection in [&self.filling.client, &self.filling.server] {
                let closed = tokio::time::timeout(Duration::from_millis(10), connection.closed()).await.ok();
                let stats = connection.stats();
                eprintln!("nothing came: {closed:?} {:?} {:?}", stats.lanes, stats.level(Priority::P3));
            }
        }
        gained as f64 * 8e-6 / began.elapsed().as_secs_f64()
    }

    /// Returns the completion times of the plain connection's messages, in ms.
    async fn beside(&self) -> Vec<f64> {
        tokio::time::sleep(WARM_UP).await;
        let (client, server) = (self.beside.client.clone(), self.beside.server.clone());
        let epoch = Instant::now();
        let sending = tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(20));
            while epoch.elapsed() < MEASURED {
                tick.tick().await;
                let mut body = vec![0; 10_000];
                body[..8].copy_from_slice(&u64::try_from(epoch.elapsed().as_nanos()).unwrap().to_be_bytes());
                let _handle = client.send(Message::new(body)).await.unwrap();
            }
        });
        let mut took = Vec::new();
        let end = tokio::time::sleep(MEASURED + Duration::from_secs(1));
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                message = server.recv() => {
                    let sent = u64::from_be_bytes(message.unwrap().bytes[..8].try_into().unwrap());
                    took.push(epoch.elapsed().as_secs_f64() * 1e3 - sent as f64 / 1e6);
                }
            }
        }
        sending.await.unwrap();
        took
    }

    /// Returns the time after which the low lane was stopped.
    async fn stopped(&self, patience: Duration) -> Option<f64> {
        let began = Instant::now();
        let mut idle = 0;
        while began.elapsed() < patience {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let lanes = self.filling.client.stats().lanes;
            let low = lanes.iter().find(|lane| lane.layer == Layer::Low);
            // The test pauses lanes for a second at most.
            idle = if low.is_some_and(|low| low.sent > 0 && !low.usable) { idle + 1 } else { 0 };
            if idle == 40 {
                return Some(began.elapsed().as_secs_f64() - 2.0);
            }
        }
        None
    }

    async fn end(self) {
        self.stop.store(true, Relaxed);
        for over in [self.filling, self.beside] {
            over.client.abort();
            over.server.abort();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // Cargo runs benches as tests, too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("goodput, Mbit/s, of 50 and 80 ms\n{:>8} {:>9} {:>9}", "loss", "one lane", "two");
    for loss in [0.0, 1e-4, 1e-3] {
        let mut row = format!("{loss:>8}");
        for layered in [false, true] {
            let world = World::new(Queueing::Strict, loss, layered, 1).await;
            row += &format!(" {:>9.2}", world.goodput().await);
            world.end().await;
        }
        println!("{row}");
    }
    // The plain connection's few losses determine its slowest messages, so several rounds alternate
    // the order.
    println!("\na plain connection beside it, 10 kB each 20 ms, {ROUNDS} rounds");
    println!(
        "{:>8} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "loss", "lanes", "Mbit/s", "median ms", "mean ms", "p99 ms"
    );
    for loss in [0.0, 1e-3] {
        let mut took = [Vec::new(), Vec::new()];
        for round in 1..=ROUNDS {
            for layered in [false, true] {
                let world = World::new(Queueing::Strict, loss, layered, round).await;
                took[usize::from(layered)].extend(world.beside().await);
                world.end().await;
            }
        }
        for (lanes, mut took) in (1..).zip(took) {
            took.sort_by(f64::total_cmp);
            let mbps = took.len() as f64 * 0.08 / (ROUNDS as f64 * MEASURED.as_secs_f64());
            let mean = took.iter().sum::<f64>() / took.len() as f64;
            let [median, p99] = [50, 99].map(|percent| took[took.len() * percent / 100]);
            println!("{loss:>8} {lanes:>8} {mbps:>9.2} {median:>9.2} {mean:>9.2} {p99:>9.2}");
        }
    }
    let world = World::new(Queueing::DropsLow, 1e-3, true, 1).await;
    println!("\nlow layer dropped, loss 1e-3: {:.2} Mbit/s", world.goodput().await);
    world.end().await;
    let world = World::new(Queueing::Alike, 1e-3, true, 1).await;
    match world.stopped(Duration::from_secs(30)).await {
        Some(after) => println!("both layers alike: low lanes stopped after {after:.1} s"),
        None => println!("both layers alike: low lanes not stopped within 30 s"),
    }
    world.end().await;
}
