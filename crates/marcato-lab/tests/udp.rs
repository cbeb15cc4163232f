//! Emulated link between real sockets. Upper bounds on time are not tested: machines are busy.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::time::{Duration, Instant};

use marcato_lab::{LinkConfig, UdpLink};
use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_units::{Bytes, Rate, Seed};
use tokio::net::UdpSocket;

async fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it takes far too long")
}

#[tokio::test]
async fn datagrams_pass_both_ways_in_order_and_never_early() {
    let (client, server) = (socket().await, socket().await);
    let link = || LinkConfig::new(Rate::from_mbps(8), Duration::from_millis(20));
    let between = UdpLink::open(server.local_addr().unwrap(), link(), link(), Seed::new(1)).await.unwrap();
    let began = Instant::now();
    for number in 0..20u8 {
        client.send_to(&[number; 972], between.addr()).await.unwrap();
    }
    let mut datagram = [0; 2000];
    let mut from = None;
    for number in 0..20u8 {
        let (len, address) = within(server.recv_from(&mut datagram)).await.unwrap();
        assert_eq!((len, datagram[0]), (972, number));
        // 1000 bytes at 8 Mbit/s take a millisecond each.
        assert!(began.elapsed() >= Duration::from_millis(21 + u64::from(number)));
        from = Some(address);
    }
    server.send_to(b"answer", from.unwrap()).await.unwrap();
    let (len, address) = within(client.recv_from(&mut datagram)).await.unwrap();
    assert_eq!((&datagram[..len], address), (&b"answer"[..], between.addr()));
    assert!(began.elapsed() >= Duration::from_millis(60));
    let (forward, back) = (between.forward(), between.back());
    assert_eq!((forward.offered, forward.delivered, forward.dropped), (20, 20, 0));
    assert_eq!(forward.delivered_bytes, Bytes::kb(20));
    assert_eq!((back.offered, between.strangers()), (1, 0));
}

#[tokio::test]
async fn datagrams_beyond_the_room_of_the_queue_do_not_arrive() {
    let (client, server) = (socket().await, socket().await);
    let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(5) }).unwrap();
    // So slow that only the first packet leaves while the burst is being sent.
    let slow = LinkConfig::new(Rate::from_kbps(100), Duration::ZERO).queue(queue);
    let back = LinkConfig::new(Rate::from_mbps(1), Duration::ZERO);
    let between = UdpLink::open(server.local_addr().unwrap(), slow, back, Seed::new(1)).await.unwrap();
    for number in 0..50u8 {
        client.send_to(&[number; 972], between.addr()).await.unwrap();
    }
    let mut datagram = [0; 2000];
    let mut arrived = Vec::new();
    let counters = within(async {
        loop {
            let counters = between.forward();
            let is_over = counters.offered == 50 && counters.offered == counters.delivered + counters.dropped;
            if is_over && arrived.len() as u64 == counters.delivered {
                return counters;
            }
            match server.try_recv(&mut datagram) {
                Ok(_) => arrived.push(datagram[0]),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    server.try_recv(&mut datagram).unwrap_err();
    assert!(counters.dropped > 0 && arrived.is_sorted(), "{counters:?} {arrived:?}");
}

#[tokio::test]
async fn a_link_belongs_to_whoever_sends_first() {
    let (client, stranger, server) = (socket().await, socket().await, socket().await);
    let link = || LinkConfig::new(Rate::from_mbps(100), Duration::ZERO);
    let between = UdpLink::open(server.local_addr().unwrap(), link(), link(), Seed::new(1)).await.unwrap();
    let mut datagram = [0; 100];
    client.send_to(b"first", between.addr()).await.unwrap();
    let (len, _) = within(server.recv_from(&mut datagram)).await.unwrap();
    assert_eq!(&datagram[..len], b"first");
    stranger.send_to(b"second", between.addr()).await.unwrap();
    client.send_to(b"third", between.addr()).await.unwrap();
    let (len, _) = within(server.recv_from(&mut datagram)).await.unwrap();
    assert_eq!(&datagram[..len], b"third");
    assert_eq!(between.strangers(), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_no_panic() {
    let gone = socket().await.local_addr().unwrap();
    let client = socket().await;
    let link = || LinkConfig::new(Rate::from_mbps(100), Duration::ZERO);
    let between = UdpLink::open(gone, link(), link(), Seed::new(1)).await.unwrap();
    within(async {
        // The system reports that the first was not received; the link goes on.
        while between.forward().delivered < 3 {
            client.send_to(b"anybody?", between.addr()).await.unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await;
}
