//! Coupled mode over the kernel's TCP: when it acts, and the data that it never holds back.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{close, pair, with_a_bare_peer, within};
use marcato_net::marcato_sched::coupled::Mode;
use marcato_net::{Config, Connection, Coupled, Engine, Message, Priority};
use tokio::io::AsyncReadExt as _;

fn config(coupled: Coupled) -> Config {
    Config { coupled, ..Config::new(Engine::Tcp) }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_acts_once_urgent_and_background_messages_have_come() {
    let (client, server, _endpoint) = pair(&config(Coupled::Auto)).await;
    exchange(&client, &server, &[Priority::P2, Priority::P3, Priority::P4]).await;
    assert_eq!(client.stats().coupled, None, "background alone has no use for it");
    exchange(&client, &server, &[Priority::P1]).await;
    let stats = client.stats().coupled.unwrap();
    assert_eq!((stats.mode, stats.counters.transitions), (Mode::Startup, 0));
    assert_eq!(server.stats().coupled, None, "it has sent nothing");
    close(client, server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_with_one_level_never_gets_it() {
    for level in Priority::ALL {
        let (client, server, _endpoint) = pair(&config(Coupled::Auto)).await;
        exchange(&client, &server, &[level; 20]).await;
        assert_eq!(client.stats().coupled, None, "{level}");
        close(client, server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_becomes_urgent_counts_as_one() {
    let (client, mut peer) = with_a_bare_peer(&config(Coupled::Auto)).await;
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
async fn it_is_on_from_the_beginning_or_off_for_good() {
    for (coupled, acts) in [(Coupled::On, true), (Coupled::Off, false)] {
        let (client, server, _endpoint) = pair(&config(coupled)).await;
        exchange(&client, &server, &[Priority::P3]).await;
        assert_eq!(client.stats().coupled.is_some(), acts, "{coupled}");
        exchange(&client, &server, &[Priority::P0, Priority::P3]).await;
        assert_eq!(client.stats().coupled.is_some(), acts, "{coupled}");
        close(client, server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_in_both_directions_at_once() {
    let (client, server, _endpoint) = pair(&config(Coupled::On)).await;
    let levels = [Priority::P4, Priority::P0, Priority::P3, Priority::P1, Priority::P2].repeat(40);
    tokio::join!(exchange(&client, &server, &levels), exchange(&server, &client, &levels));
    close(client, server).await;
}
