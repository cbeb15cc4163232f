//! Coupled mode: when it acts, and the data that it never holds back.
#![cfg(target_os = "linux")]

use std::time::Duration;

use crate::common::{close, for_both_engines, localhost, pair, server_at, with_a_bare_peer, within};
use marcato_net::{
    Config, Connection, Coupling, Endpoint, Engine, LaneConfig, LaneStats, Message, Metrics, Priority,
};
use marcato_quic::PathScheduler;
use tokio::io::AsyncReadExt as _;

fn config(engine: Engine, coupled: Coupling) -> Config {
    Config { coupled, ..Config::new(engine) }
}

/// Sends a message at each of these levels, and waits until all are acknowledged.
async fn exchange(client: &Connection, server: &Connection, levels: &[Priority]) {
    let mut handles = Vec::new();
    for level in levels {
        handles.push(client.send(Message::new(vec![1; 100_000]).with_priority(*level)).await.unwrap());
    }
    for _ in levels {
        within(server.recv()).await.unwrap();
    }
    for handle in &mut handles {
        within(handle.acknowledged()).await.unwrap();
    }
}

/// Returns the bytes of messages that have arrived.
fn arrived(connection: &Connection) -> u64 {
    connection.stats().received.level_bytes.iter().map(|bytes| bytes.get()).sum()
}

async fn by_default_it_acts_once_messages_of_both_kinds_have_come(engine: Engine) {
    let (client, server, _endpoint) = pair(&Config::new(engine)).await;
    exchange(&client, &server, &[Priority::P2, Priority::P3, Priority::P4]).await;
    assert_eq!(client.stats().coupled, None, "background alone has no use for it");
    exchange(&client, &server, &[Priority::P1]).await;
    let stats = client.stats();
    let coupled = stats.coupled.unwrap();
    assert_eq!(stats.lanes.iter().map(|lane| lane.coupled).collect::<Vec<_>>(), [Some(coupled)]);
    assert_eq!(server.stats().coupled, None, "it has sent nothing");
    close(client, server).await;
}

async fn a_connection_with_one_level_never_gets_it(engine: Engine) {
    for level in Priority::ALL {
        let mut all = Vec::new();
        for coupled in [Coupling::Auto, Coupling::Off] {
            let (client, server, _endpoint) = pair(&config(engine, coupled)).await;
            exchange(&client, &server, &[level; 20]).await;
            // Without this state there is no governor, no cap, and no timer for the next look.
            let stats = client.stats();
            assert_eq!(stats.coupled, None, "{level}");
            assert!(stats.lanes.iter().all(|lane| lane.coupled.is_none()), "{level}");
            all.push((stats.level(level).sent, arrived(&server)));
            close(client, server).await;
        }
        assert_eq!(all[0], all[1], "{level}: as many messages and bytes as without the mode");
    }
}

async fn it_is_on_from_the_beginning_or_off_for_good(engine: Engine) {
    for (coupled, acts) in [(Coupling::On, true), (Coupling::Off, false)] {
        let (client, server, _endpoint) = pair(&config(engine, coupled)).await;
        exchange(&client, &server, &[Priority::P3]).await;
        assert_eq!(client.stats().coupled.is_some(), acts, "{coupled}");
        exchange(&client, &server, &[Priority::P0, Priority::P3]).await;
        assert_eq!(client.stats().coupled.is_some(), acts, "{coupled}");
        close(client, server).await;
    }
}

async fn everything_arrives_in_both_directions_at_once(engine: Engine) {
    let (client, server, _endpoint) = pair(&config(engine, Coupling::On)).await;
    let levels = [Priority::P4, Priority::P0, Priority::P3, Priority::P1, Priority::P2].repeat(40);
    tokio::join!(exchange(&client, &server, &levels), exchange(&server, &client, &levels));
    close(client, server).await;
}

async fn metrics_have_its_state(engine: Engine) {
    let (client, server, _endpoint) = pair(&config(engine, Coupling::Auto)).await;
    let metrics = Metrics::new();
    metrics.watch("a", &client);
    exchange(&client, &server, &[Priority::P4]).await;
    assert!(metrics.encode().contains("marcato_coupled_connections{connection=\"a\"} 0\n"));
    exchange(&client, &server, &[Priority::P0]).await;
    exchange(&client, &server, &[Priority::P0, Priority::P4]).await;
    let text = metrics.encode();
    assert!(text.contains("marcato_coupled_connections{connection=\"a\"} 1\n"), "{text}");
    let series = "marcato_coupled_seconds_total{connection=\"a\",mode=";
    let seconds = |line: &str| -> Option<f64> { line.strip_prefix(series)?.split(' ').nth(1)?.parse().ok() };
    assert!(text.lines().filter_map(seconds).sum::<f64>() > 0.0, "{text}");
    close(client, server).await;
}

for_both_engines! {
    by_default_it_acts_once_messages_of_both_kinds_have_come
    a_connection_with_one_level_never_gets_it
    it_is_on_from_the_beginning_or_off_for_good
    everything_arrives_in_both_directions_at_once
    metrics_have_its_state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_lane_of_quic_has_its_own_state() {
    let mut config = config(Engine::Quic, Coupling::Auto);
    config.quic.session.path_scheduler = PathScheduler::RoundRobin;
    let server = server_at(&config, &[localhost().into(), localhost().into()]).await;
    let remote = server.remote().and_lane(LaneConfig::new(server.endpoint.local_addrs()[1]));
    let connected = async { tokio::join!(Endpoint::connect(&config, &remote), server.endpoint.accept()) };
    let (client, accepted) = within(connected).await;
    let (client, accepted) = (client.unwrap(), accepted.unwrap());
    // Acknowledgements of both may arrive together, so the governors may agree for a while.
    let differ = |lanes: &[LaneStats]| match lanes {
        [first, second] => {
            first.coupled.is_some() && second.coupled.is_some() && first.coupled != second.coupled
        }
        _ => false,
    };
    within(async {
        while !differ(&client.stats().lanes) {
            exchange(&client, &accepted, &[Priority::P0, Priority::P4]).await;
        }
    })
    .await;
    let stats = client.stats();
    assert_eq!(stats.coupled, stats.lanes[0].coupled, "the first lane's is the connection's");
    close(client, accepted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_becomes_urgent_counts_as_one() {
    let (client, mut peer) = with_a_bare_peer(&config(Engine::Tcp, Coupling::Auto)).await;
    // The peer reads nothing, so most of it stays in the queue.
    let mut last = None;
    for _ in 0..20 {
        last = Some(client.send(Message::new(vec![4; 1 << 20]).with_priority(Priority::P4)).await.unwrap());
    }
    assert_eq!(client.stats().coupled, None);
    last.unwrap().reprioritise(Priority::P0).unwrap();
    let mut bytes = vec![0; 1 << 20];
    within(async {
        while client.stats().coupled.is_none() {
            assert!(peer.read(&mut bytes).await.unwrap() > 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_becomes_urgent_wakes_the_driver() {
    let mut config = config(Engine::Tcp, Coupling::Auto);
    // The check of the peer's host comes long after the end of the test: nothing else wakes the driver.
    config.tcp.idle_timeout = Duration::from_secs(3600);
    let (client, _peer) = with_a_bare_peer(&config).await;
    let mut last = None;
    for _ in 0..20 {
        last = Some(client.send(Message::new(vec![4; 1 << 20]).with_priority(Priority::P4)).await.unwrap());
    }
    // The peer reads nothing. Once its window is full, nothing is in flight, and the socket stays full.
    within(async {
        let is_full = |lane: &LaneStats| lane.in_flight.is_zero() && !lane.backlog.is_zero();
        while !client.stats().lanes.iter().any(is_full) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    last.unwrap().reprioritise(Priority::P0).unwrap();
    within(async {
        while client.stats().coupled.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
