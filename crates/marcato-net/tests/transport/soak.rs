//! Many connections that live and end in every way. Run by `.ci/long`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::common::{body, localhost, number_of, server, server_at, until, within};
use bytes::Bytes as Payload;
use marcato_lab::{Datagram, LinkConfig, Loss, UdpLink};
use marcato_net::marcato_quic::PathScheduler;
use marcato_net::{
    ChangeError, Config, Connection, Endpoint, Engine, LaneConfig, LongMessages, Message, NotDelivered,
    Remote,
};
use marcato_units::{Bytes, Priority, Rate, Seed, Stream};
use tokio::sync::Semaphore;

const CONNECTIONS: u64 = 2000;
const AT_ONCE: usize = 16;

#[derive(Default)]
struct Counts {
    messages: AtomicU64,
    delivered: AtomicU64,
    cancelled: AtomicU64,
    expired: AtomicU64,
    aborted: AtomicU64,
}

/// Returns the required content of a message with this number.
fn contents(number: u64) -> Payload {
    body(number, 8 + usize::try_from(number.wrapping_mul(0x9e37_79b9) % 30_000).unwrap())
}

fn priority(random: &mut Stream) -> Priority {
    Priority::ALL[usize::try_from(random.next_u64() % 5).unwrap()]
}

/// Runs one connection from its begin to its end.
async fn live(connection: Connection, mut random: Stream, counts: Arc<Counts>) {
    let mut handles = Vec::new();
    for number in 0..20 + random.next_u64() % 60 {
        let mut message = Message::new(contents(number)).with_priority(priority(&mut random));
        match random.next_u64() % 10 {
            0 => message = message.with_lifetime(Duration::ZERO),
            1 => message = Message::new(body(number, 300)).with_priority(Priority::P1).unreliable(),
            2 => {
                let mut long = connection.send_long(priority(&mut random)).unwrap();
                let whole = contents(number);
                for piece in whole.chunks(7000) {
                    long.write(whole.slice_ref(piece)).await.unwrap();
                }
                if random.next_u64().is_multiple_of(2) {
                    long.finish().await.unwrap();
                    let _ = long.acknowledged().await;
                }
                counts.messages.fetch_add(1, Relaxed);
                continue;
            }
            _ => {}
        }
        let handle = connection.send(message).await.unwrap();
        counts.messages.fetch_add(1, Relaxed);
        // Occasionally the message has already left.
        for _ in 0..random.next_u64() % 3 {
            tokio::task::yield_now().await;
        }
        match random.next_u64() % 8 {
            0 => assert!(matches!(handle.cancel(), Ok(()) | Err(ChangeError::TooLate))),
            1 => _ = handle.reprioritise(priority(&mut random)),
            _ => {}
        }
        handles.push(handle);
    }
    if random.next_u64().is_multiple_of(10) {
        counts.aborted.fetch_add(1, Relaxed);
        return;
    }
    for handle in &mut handles {
        let count = match within(handle.acknowledged()).await {
            Ok(()) => &counts.delivered,
            Err(NotDelivered::Cancelled) => &counts.cancelled,
            Err(NotDelivered::Expired) => &counts.expired,
            Err(other) => panic!("{other}"),
        };
        count.fetch_add(1, Relaxed);
    }
    within(connection.close()).await.unwrap();
}

/// Reads messages, and checks that they are as sent.
async fn take(connection: Connection) {
    let mut seen = BTreeSet::new();
    while let Ok(received) = connection.recv().await {
        let number = number_of(&received.bytes);
        assert!(received.bytes == contents(number) || received.bytes == body(number, 300), "{number}");
        assert!(seen.insert(number), "{number} came twice");
    }
}

async fn soak(engine: Engine) {
    let mut config = Config::new(engine);
    config.limits.long_messages = LongMessages::Stream;
    config.limits.queued = Bytes::new(1 << 20);
    let config = Arc::new(config);
    let server = server(&config).await;
    let remote = server.remote();
    let counts = Arc::<Counts>::default();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let clients = {
        let (counts, places) = (Arc::clone(&counts), Arc::clone(&places));
        tokio::spawn(async move {
            let mut clients = Vec::new();
            for number in 0..CONNECTIONS {
                let place = Arc::clone(&places).acquire_owned().await.unwrap();
                let (config, remote, counts) = (Arc::clone(&config), remote.clone(), Arc::clone(&counts));
                clients.push(tokio::spawn(async move {
                    let connection = within(Endpoint::connect(&config, &remote)).await.unwrap();
                    let random = Seed::new(number).stream("soak");
                    live(connection, random, counts).await;
                    drop(place);
                }));
            }
            for client in clients {
                client.await.unwrap();
            }
        })
    };
    let mut takers = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = within(server.endpoint.accept()).await.unwrap();
        takers.push(tokio::spawn(take(connection)));
    }
    clients.await.unwrap();
    for taker in takers {
        within(taker).await.unwrap();
    }
    // A place of a handshake may be free later than that of its connection.
    let stats = until(&server.endpoint, |stats| (stats.connections, stats.handshakes) == (0, 0)).await;
    assert_eq!((stats.accepted, stats.refused), (CONNECTIONS, 0));
    let of = |count: &AtomicU64| count.load(Relaxed);
    println!(
        "{engine:?}: {CONNECTIONS} connections, {} of them dropped halfway; {} messages, {} delivered, {} cancelled, {} expired",
        of(&counts.aborted),
        of(&counts.messages),
        of(&counts.delivered),
        of(&counts.cancelled),
        of(&counts.expired)
    );
}

/// Number of messages that an earlier version was tested with.
const MANY: u64 = 377_315;

/// Sends messages of all levels over two lanes that lose 2 % in either direction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn hundreds_of_thousands_of_messages_survive_losses() {
    let mut config = Config::new(Engine::Quic);
    config.quic.session.loopback_mtu = config.quic.session.mtu_limit;
    config.quic.session.path_scheduler = PathScheduler::RoundRobin;
    let server = server_at(&config, &[localhost().into(), localhost().into()]).await;
    let mut addrs = Vec::new();
    let mut links = Vec::new();
    for (lane, server) in server.endpoint.local_addrs().iter().enumerate() {
        let line = || {
            LinkConfig::<Datagram>::new(Rate::from_mbps(200), Duration::from_millis(2))
                .loss(Loss::Random(0.02))
        };
        let link = UdpLink::open(*server, line(), line(), Seed::new(lane as u64)).await.unwrap();
        addrs.push(link.addrs()[0]);
        links.push(link);
    }
    let remote = Remote { lanes: addrs.into_iter().map(LaneConfig::new).collect(), ..server.remote() };
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(&config, &remote), server.endpoint.accept()) }).await;
    let (client, accepted) = (client.unwrap(), accepted.unwrap());
    let short = |number: u64| body(number, 8 + usize::try_from(number % 300).unwrap());
    let sending = client.clone();
    let sender = tokio::spawn(async move {
        for number in 0..MANY {
            let priority = Priority::ALL[usize::try_from(number % 5).unwrap()];
            sending.send(Message::new(short(number)).with_priority(priority)).await.unwrap();
        }
    });
    let mut seen = vec![false; usize::try_from(MANY).unwrap()];
    for _ in 0..MANY {
        let message = within(accepted.recv()).await.unwrap();
        let number = number_of(&message.bytes);
        assert_eq!(message.bytes, short(number));
        assert!(!std::mem::replace(&mut seen[usize::try_from(number).unwrap()], true), "{number} came twice");
    }
    within(sender).await.unwrap();
    within(client.close()).await.unwrap();
    assert!(within(accepted.recv()).await.is_err());
    let lost: u64 = links.iter().map(|link| link.forward().lost + link.back().lost).sum();
    println!("{MANY} messages, {lost} datagrams lost");
    assert!(lost > 1000, "{lost}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn two_thousand_tcp_connections_live_and_end() {
    soak(Engine::Tcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn two_thousand_quic_connections_live_and_end() {
    soak(Engine::Quic).await;
}
