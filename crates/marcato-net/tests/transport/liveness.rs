//! Slow, dead and unresponsive peers over TCP, and the end of a connection in each case.
#![cfg(target_os = "linux")]

use std::time::Duration;

use crate::common::{body, close, pair, with_a_bare_peer, within};
use marcato_net::{Cause, Closed, Config, Connection, Engine, Message, NotDelivered, Priority};
use marcato_units::Bytes;
use marcato_wire::{Decoded, Frame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// More than the buffers of both kernels hold.
const MUCH: usize = 32 << 20;

/// Returns the shortest configuration: a silent host is dead after 4 s.
fn config() -> Config {
    let mut config = Config::new(Engine::Tcp);
    config.tcp.idle_timeout = Duration::from_secs(1);
    config.limits.unread = Bytes::kb(64);
    config.limits.surplus = Bytes::kb(64);
    config
}

/// Makes the kernel drop all further packets to this socket, as if the cable had been cut.
fn cut(peer: &TcpStream) {
    // BPF_RET | BPF_K: passes this number of bytes of each segment.
    let drop_all = [socket2::SockFilter::new(0x06, 0, 0, 0)];
    socket2::SockRef::from(peer).attach_filter(&drop_all).unwrap();
}

async fn until(condition: impl Fn() -> bool) {
    within(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Waits until the peer's window is closed and all that was in flight is acknowledged.
async fn until_stuck(client: &Connection) {
    until(|| {
        let lane = client.stats().lanes[0];
        lane.backlog > Bytes::ZERO && lane.in_flight.is_zero()
    })
    .await;
}

/// Number of messages that fill an inbox.
const MANY: u8 = 64;

/// Sends so many whole messages that the other end, which takes none, stops reading although it has
/// asked for the level to be held.
async fn fill_the_inbox_of(client: &Connection, peer: &mut TcpStream) {
    for id in 0..MANY {
        // MESSAGE with LAST and RECEIPT, at offset 0, with 4096 bytes.
        peer.write_all(&[1, id, 2, 3, 0, 0x50, 0]).await.unwrap();
        peer.write_all(&[7; 4096]).await.unwrap();
    }
    until(|| client.stats().received.stops > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_peer_that_reads_nothing_for_long_is_kept() {
    let (client, mut peer) = with_a_bare_peer(&config()).await;
    let mut message = client.send(Message::new(body(1, MUCH))).await.unwrap();
    until_stuck(&client).await;
    // The kernel's clock counts here, so this time is real: twice the limit.
    let ended = tokio::time::timeout(Duration::from_secs(8), client.closed()).await;
    assert!(ended.is_err(), "{ended:?}");
    let mut rest = vec![0; 1 << 20];
    let mut len = 0;
    while len < MUCH {
        len += within(peer.read(&mut rest)).await.unwrap();
    }
    // DONE for message 0.
    peer.write_all(&[3, 0]).await.unwrap();
    assert_eq!(within(message.acknowledged()).await, Ok(()));
}

/// Nothing is granted while the peer takes nothing, but a lifetime ends all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_expires_although_the_peer_reads_nothing() {
    let (client, _peer) = with_a_bare_peer(&config()).await;
    let _bulk = client.send(Message::new(body(1, MUCH))).await.unwrap();
    until_stuck(&client).await;
    let brief = Message::new("x").with_lifetime(marcato_net::Duration::from_millis(20));
    let mut message = client.send(brief).await.unwrap();
    assert_eq!(within(message.acknowledged()).await, Err(NotDelivered::Expired));
}

/// Nothing leaves, but the end of a lifetime makes room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_waits_no_longer_than_the_lifetime_before_it() {
    let mut config = config();
    config.limits.unfinished = 1;
    let (client, _peer) = with_a_bare_peer(&config).await;
    let _bulk = client.send(Message::new(body(1, MUCH)).with_priority(Priority::P4)).await.unwrap();
    until_stuck(&client).await;
    let brief = Message::new("x").with_lifetime(marcato_net::Duration::from_millis(200));
    let mut first = client.send(brief.with_priority(Priority::P1)).await.unwrap();
    within(client.send(Message::new("y").with_priority(Priority::P1))).await.unwrap();
    assert_eq!(within(first.acknowledged()).await, Err(NotDelivered::Expired));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 6 s of the kernel's clock, which no test can move"]
async fn a_quiet_connection_is_kept_at_both_ends() {
    let (client, server, _listener) = pair(&config()).await;
    // The kernel's clock counts here as well: more than the limit.
    let ended = tokio::time::timeout(Duration::from_secs(6), async {
        tokio::select! {
            closed = client.closed() => closed,
            closed = server.closed() => closed,
        }
    });
    assert!(ended.await.is_err());
    close(client, server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_vanishes_with_a_closed_window_is_noticed() {
    let (client, peer) = with_a_bare_peer(&config()).await;
    let mut message = client.send(Message::new(body(1, MUCH))).await.unwrap();
    until_stuck(&client).await;
    cut(&peer);
    let closed = within(client.closed()).await;
    assert_eq!(closed.cause(), Some(Cause::TimedOut), "{closed}");
    assert_eq!(within(message.acknowledged()).await, Err(NotDelivered::Closed(closed)));
}

/// Returns the time for which a peer's host can have been silent when it counts as dead.
/// `unanswered` data waits for it, or nothing does.
async fn silence_of_a_vanished_peer(config: &Config, unanswered: bool) -> Duration {
    let (client, mut peer) = with_a_bare_peer(config).await;
    // The last segment of the peer comes after this moment.
    let before = client.now();
    // MESSAGE with LAST and RECEIPT, at offset 0, with one byte, and its DONE.
    peer.write_all(&[1, 0, 2, 3, 0, 1, 7]).await.unwrap();
    within(client.recv()).await.unwrap();
    let mut done = [0; 2];
    within(peer.read_exact(&mut done)).await.unwrap();
    assert_eq!(done, [3, 0]);
    cut(&peer);
    if unanswered {
        client.send(Message::new("are you there?")).await.unwrap();
    }
    let closed = within(client.closed()).await;
    assert_eq!(closed.cause(), Some(Cause::TimedOut), "{closed}");
    client.now().since(before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_peer_is_not_given_up_before_the_idle_timeout() {
    let mut config = config();
    // More than the least that the detection allows.
    config.tcp.idle_timeout = Duration::from_secs(7);
    let (unanswered, quiet) =
        tokio::join!(silence_of_a_vanished_peer(&config, true), silence_of_a_vanished_peer(&config, false));
    assert!(unanswered.min(quiet) >= config.tcp.idle_timeout, "{unanswered:?} and {quiet:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_vanishes_while_reading_is_paused_is_noticed() {
    let (client, mut peer) = with_a_bare_peer(&config()).await;
    fill_the_inbox_of(&client, &mut peer).await;
    cut(&peer);
    let closed = within(client.closed()).await;
    assert_eq!(closed.cause(), Some(Cause::TimedOut), "{closed}");
    // Messages that had arrived can still be taken.
    assert_eq!(within(client.recv()).await.unwrap().bytes, [7; 4096][..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_noticed_while_reading_is_paused() {
    let mut config = config();
    // The check of the peer's host comes too late for this test.
    config.tcp.idle_timeout = Duration::from_secs(10_000);
    let (client, mut peer) = with_a_bare_peer(&config).await;
    fill_the_inbox_of(&client, &mut peer).await;
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let closed = within(client.closed()).await;
    assert!(matches!(closed, Closed::Lost { .. }), "{closed}");
}

/// The acknowledgement that closing waits for comes after messages that the application does not
/// take. Those are declined: they are not acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_although_the_own_inbox_is_full() {
    let mut config = config();
    config.tcp.linger = Duration::from_millis(200);
    let (client, mut peer) = with_a_bare_peer(&config).await;
    fill_the_inbox_of(&client, &mut peer).await;
    let mut hello = client.send(Message::new("hello")).await.unwrap();
    peer.write_all(&[3, 0]).await.unwrap();
    let mut sent = Vec::new();
    let (closed, read) = within(async { tokio::join!(client.close(), peer.read_to_end(&mut sent)) }).await;
    assert_eq!((closed, read.is_ok()), (Ok(()), true));
    assert_eq!(within(hello.acknowledged()).await, Ok(()));
    let received = client.stats().received;
    assert!(received.declined > 0 && received.unread_peak < Bytes::kb(300), "{received:?}");
    let (mut rest, mut done, mut holds) = (&sent[..], 0, Vec::new());
    while let Decoded::Frame { frame, len } = Frame::decode(rest).unwrap() {
        rest = &rest[len..];
        match frame {
            Frame::Message(message) => rest = &rest[usize::try_from(message.len.get()).unwrap()..],
            Frame::Done { .. } => done += 1,
            Frame::Hold { priority, held } => holds.push((priority, held)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(done + received.declined, u64::from(MANY));
    assert_eq!(holds, [(Priority::P2, true)]);
}

/// Lets the tasks of this thread do what they can at once.
async fn settle() {
    for _ in 0..3000 {
        tokio::task::yield_now().await;
    }
}

/// Time passes here where the test says so.
#[tokio::test(start_paused = true)]
async fn an_application_that_takes_messages_has_its_patience_anew() {
    // The runtime moves its clock only when it has nothing to do.
    tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let mut config = config();
    config.tcp.linger = Duration::from_secs(10);
    config.tcp.close_timeout = Duration::from_secs(3600);
    let (client, mut peer) = with_a_bare_peer(&config).await;
    let mut number = 0;
    let mut fill = async |client: &Connection, count: u8| {
        let stops = client.stats().received.stops;
        for _ in 0..count {
            // MESSAGE with LAST and RECEIPT, at offset 0, with 8192 bytes.
            peer.write_all(&[1, number, 2, 3, 0, 0x60, 0]).await.unwrap();
            peer.write_all(&[7; 8192]).await.unwrap();
            number += 1;
        }
        until(|| client.stats().received.stops > stops).await;
    };
    // The peer does not acknowledge it, so closing waits.
    let _hello = client.send(Message::new("hello")).await.unwrap();
    let closing = client.clone();
    let _closing = tokio::spawn(async move { closing.close().await });
    settle().await;
    fill(&client, 24).await;
    settle().await;
    tokio::time::advance(Duration::from_secs(6)).await;
    settle().await;
    for _ in 0..22 {
        client.recv().await.unwrap();
    }
    settle().await;
    fill(&client, 36).await;
    settle().await;
    tokio::time::advance(Duration::from_secs(6)).await;
    settle().await;
    assert_eq!(client.stats().received.declined, 0);
    // Now it has taken none for long: what still comes is declined.
    tokio::time::advance(Duration::from_secs(11)).await;
    until(|| client.stats().received.declined > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_although_the_peer_takes_nothing() {
    let mut config = config();
    config.tcp.close_timeout = Duration::from_millis(500);
    let (client, _peer) = with_a_bare_peer(&config).await;
    let mut message = client.send(Message::new(body(1, MUCH))).await.unwrap();
    until_stuck(&client).await;
    let Err(closed) = within(client.close()).await else { panic!("nothing was delivered") };
    assert!(closed.to_string().contains("took nothing"), "{closed}");
    assert_eq!(within(message.acknowledged()).await, Err(NotDelivered::Closed(closed)));
}

/// The driver looks at the inbox each time that anything happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_that_stays_stopped_has_stopped_once() {
    let (client, mut peer) = with_a_bare_peer(&config()).await;
    fill_the_inbox_of(&client, &mut peer).await;
    for number in 0..20 {
        let message = body(number, 1000);
        let _message = client.send(Message::new(message.clone())).await.unwrap();
        // Receipts and the HOLD come between the messages.
        let mut seen = Vec::new();
        within(async {
            while !seen.windows(message.len()).any(|window| window == message) {
                peer.read_buf(&mut seen).await.unwrap();
            }
        })
        .await;
    }
    assert_eq!(client.stats().received.stops, 1);
}

/// Time passes here where the test says so.
#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_peer_that_takes_little_by_little() {
    // The runtime moves its clock only when it has nothing to do.
    tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let mut config = config();
    config.tcp.close_timeout = Duration::from_secs(60);
    let (client, mut peer) = with_a_bare_peer(&config).await;
    // One message: only the bytes that are acknowledged show that it goes on.
    let _message = client.send(Message::new(body(1, MUCH))).await.unwrap();
    until_stuck(&client).await;
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    settle().await;
    let mut some = vec![0; 2 << 20];
    for _ in 0..3 {
        let sent = client.stats().lanes[0].sent_bytes;
        peer.read_exact(&mut some).await.unwrap();
        until(|| {
            let lane = client.stats().lanes[0];
            lane.sent_bytes > sent && lane.in_flight.is_zero()
        })
        .await;
        tokio::time::advance(Duration::from_secs(61)).await;
        settle().await;
        assert!(!closing.is_finished());
    }
    // The peer's kernel may take a little more.
    while !closing.is_finished() {
        tokio::time::advance(Duration::from_secs(61)).await;
        settle().await;
    }
    let closed = closing.await.unwrap().unwrap_err();
    assert!(closed.to_string().contains("took nothing"), "{closed}");
}
