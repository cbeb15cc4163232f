//! Receipts of the receiving transport and of the receiving application, over both engines.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::common::{body, close, for_both_engines, pair, within};
use bytes::Bytes as Payload;
use marcato_net::{Bytes, Config, Engine, LongMessages, Message, NotDelivered, Priority, SendError};

fn config(engine: Engine) -> Config {
    Config::new(engine)
}

/// Configuration under which messages of more than 1000 bytes are streamed.
fn streaming(engine: Engine) -> Config {
    let mut config = config(engine);
    config.limits.max_message = Bytes::new(1000);
    config.limits.long_messages = LongMessages::Stream;
    config
}

/// Returns whether this would wait now.
fn waits<T>(future: impl Future<Output = T>) -> bool {
    matches!(pin!(future).poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
}

async fn a_message_is_received_when_its_application_takes_it(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handle = client.send(Message::new(body(7, 5000)).with_receipt()).await.unwrap();
    within(handle.acknowledged()).await.unwrap();
    // A second message is acknowledged after it, so a report of the first would have arrived.
    within(client.send(Message::new("x")).await.unwrap().acknowledged()).await.unwrap();
    assert!(waits(handle.received()));
    // The more urgent of the two is the one that was sent first.
    let taken = within(server.recv()).await.unwrap();
    assert_eq!(taken.bytes, body(7, 5000));
    for _ in 0..2 {
        assert_eq!(within(handle.received()).await, Ok(()));
    }
    within(server.recv()).await.unwrap();
    assert_eq!(client.stats().received.stray_reports, 0);
    close(client, server).await;
}

async fn without_asking_there_is_no_receipt(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handle = client.send(Message::new("plain")).await.unwrap();
    assert_eq!(within(handle.received()).await, Err(NotDelivered::NoReceipt));
    within(server.recv()).await.unwrap();
    let refused = client.try_send(&Message::new("x").unreliable().with_receipt()).unwrap_err();
    assert_eq!(refused, SendError::NeedsReliable);
    close(client, server).await;
}

async fn many_messages_are_each_reported_once(engine: Engine) {
    const COUNT: u64 = 2000;
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handles = Vec::new();
    for number in 0..COUNT {
        let message = Message::new(body(number, 100)).with_receipt();
        handles.push(client.send(message).await.unwrap());
    }
    for _ in 0..COUNT {
        within(server.recv()).await.unwrap();
    }
    for handle in &mut handles {
        within(handle.received()).await.unwrap();
    }
    assert_eq!(client.stats().received.stray_reports, 0);
    close(client, server).await;
}

async fn reports_arrive_although_the_receiver_closes_at_once(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handles = Vec::new();
    for number in 0..100 {
        handles.push(client.send(Message::new(body(number, 100)).with_receipt()).await.unwrap());
    }
    for _ in 0..100 {
        within(server.recv()).await.unwrap();
    }
    within(server.close()).await.unwrap();
    for handle in &mut handles {
        assert_eq!(within(handle.received()).await, Ok(()));
    }
}

async fn a_message_that_nobody_takes_is_not_received(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handle = client.send(Message::new("unread").with_receipt()).await.unwrap();
    within(handle.acknowledged()).await.unwrap();
    drop(server);
    let closed = within(client.closed()).await;
    assert_eq!(within(handle.received()).await, Err(NotDelivered::NotTaken(closed)));
    assert_eq!(within(handle.acknowledged()).await, Ok(()));
}

async fn a_cancelled_message_is_not_received(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    // More than the server keeps unread, so that not all of the second can leave.
    let mut messages = Vec::new();
    for number in 0..2 {
        let message = Message::new(body(number, 16 << 20)).with_receipt().with_priority(Priority::P4);
        messages.push(within(client.send(message)).await.unwrap());
    }
    let mut behind = messages.pop().unwrap();
    behind.cancel().unwrap();
    assert_eq!(within(behind.received()).await, Err(NotDelivered::Cancelled));
    assert_eq!(within(behind.acknowledged()).await, Err(NotDelivered::Cancelled));
    drop(messages);
    within(server.recv()).await.unwrap();
    close(client, server).await;
}

async fn a_long_message_is_received_with_its_last_piece(engine: Engine) {
    let (client, server, _listener) = pair(&streaming(engine)).await;
    let sent = body(3, 300_000);
    let mut long = client.send_long(Priority::P2).unwrap().with_receipt();
    for part in sent.chunks(70_000) {
        long.write(Payload::copy_from_slice(part)).await.unwrap();
    }
    long.finish().await.unwrap();
    let mut arriving = within(server.accept_long()).await.unwrap();
    let mut received = Vec::new();
    while received.len() < sent.len() {
        assert!(waits(long.received()), "after {} bytes", received.len());
        received.extend(within(arriving.next()).await.unwrap().unwrap());
    }
    assert_eq!(received, sent);
    // The last piece was returned, although the application has not asked for the end.
    let report = within(long.received()).await;
    assert_eq!((report, within(arriving.next()).await), (Ok(()), Ok(None)));
    close(client, server).await;
}

async fn a_dropped_long_message_is_unwanted(engine: Engine) {
    let (client, server, _listener) = pair(&streaming(engine)).await;
    for complete in [true, false] {
        let mut long = client.send_long(Priority::P2).unwrap().with_receipt();
        long.write(body(3, 300_000)).await.unwrap();
        if complete {
            long.finish().await.unwrap();
            within(long.acknowledged()).await.unwrap();
        }
        let mut arriving = within(server.accept_long()).await.unwrap();
        within(arriving.next()).await.unwrap().unwrap();
        drop(arriving);
        within(long.finish()).await.unwrap();
        assert_eq!(within(long.received()).await, Err(NotDelivered::Unwanted), "complete: {complete}");
        assert_eq!(within(long.acknowledged()).await, Ok(()));
    }
    let mut plain = client.send_long(Priority::P2).unwrap();
    plain.write("short").await.unwrap();
    plain.finish().await.unwrap();
    assert_eq!(within(plain.received()).await, Err(NotDelivered::NoReceipt));
    within(server.recv()).await.unwrap();
    close(client, server).await;
}

async fn awaited_receipts_are_bounded(engine: Engine) {
    let mut config = config(engine);
    config.limits.receipts = 3;
    let (client, server, _listener) = pair(&config).await;
    let receipt = || Message::new("x").with_receipt();
    let mut handles = Vec::new();
    for _ in 0..3 {
        handles.push(client.try_send(&receipt()).unwrap());
    }
    for handle in &mut handles {
        within(handle.acknowledged()).await.unwrap();
    }
    let busy = client.try_send(&receipt()).unwrap_err();
    assert_eq!(busy, SendError::Busy { priority: Priority::P2 });
    // Messages without receipts are not concerned.
    client.try_send(&Message::new("y")).unwrap();
    let sending = client.clone();
    let fourth = tokio::spawn(async move { sending.send(receipt()).await.unwrap().received().await });
    for _ in 0..5 {
        within(server.recv()).await.unwrap();
    }
    within(fourth).await.unwrap().unwrap();
    close(client, server).await;
}

/// However a message ends, the place of its receipt is free for the next one.
async fn places_of_receipts_are_free_again_after_every_end(engine: Engine) {
    let mut config = streaming(engine);
    config.limits.receipts = 1;
    // The level is soon held, and reading never stops.
    config.limits.unread = Bytes::kb(64);
    let (client, server, _listener) = pair(&config).await;
    // More than leaves before the client knows that the level is held.
    let much = || Message::new(body(1, 12 << 20)).with_receipt().with_priority(Priority::P4);
    for _ in 0..3 {
        let mut cancelled = within(client.send(much())).await.unwrap();
        cancelled.cancel().unwrap();
        assert_eq!(within(cancelled.received()).await, Err(NotDelivered::Cancelled));

        let late = much().with_lifetime(marcato_net::Duration::from_nanos(1));
        let mut late = within(client.send(late)).await.unwrap();
        assert_eq!(within(late.received()).await, Err(NotDelivered::Expired));

        let mut taken = within(client.send(Message::new("taken").with_receipt())).await.unwrap();
        while within(server.recv()).await.unwrap().bytes != b"taken"[..] {}
        assert_eq!(within(taken.received()).await, Ok(()));

        let long = Message::new(body(2, 5000)).with_receipt().with_priority(Priority::P0);
        let mut unwanted = within(client.send(long)).await.unwrap();
        // Of the others, the server may have seen a beginning.
        while within(server.accept_long()).await.unwrap().priority() != Priority::P0 {}
        assert_eq!(within(unwanted.received()).await, Err(NotDelivered::Unwanted));
    }
    within(client.send(Message::new("last").with_receipt())).await.unwrap();
    while within(server.recv()).await.unwrap().bytes != b"last"[..] {}
}

/// Reports that wait stop reading at their limit, and it continues when they have left.
async fn few_receipts_at_once_are_enough(engine: Engine) {
    const COUNT: u64 = 500;
    let sending = config(engine);
    let mut receiving = config(engine);
    receiving.limits.receipts = 1;
    let server = crate::common::server(&receiving).await;
    let remote = server.remote();
    let (client, accepted) = within(async {
        tokio::join!(marcato_net::Endpoint::connect(&sending, &remote), server.endpoint.accept())
    })
    .await;
    let (client, server) = (client.unwrap(), accepted.unwrap());
    let mut handles = Vec::new();
    for number in 0..COUNT {
        handles.push(client.send(Message::new(body(number, 100)).with_receipt()).await.unwrap());
    }
    for _ in 0..COUNT {
        within(server.recv()).await.unwrap();
    }
    for handle in &mut handles {
        within(handle.received()).await.unwrap();
    }
    close(client, server).await;
}

/// Reports travel on a stream that has to end before the connection does. Nothing but the close
/// itself may be needed for that, such as a keep-alive.
async fn a_close_after_a_receipt_waits_for_no_timer(engine: Engine) {
    let mut config = config(engine);
    config.quic.session.keep_alive = None;
    for _ in 0..10 {
        let (client, server, _listener) = pair(&config).await;
        for (from, to) in [(&client, &server), (&server, &client)] {
            // The second of two reports is acknowledged at once, so the engine rests afterwards.
            for _ in 0..2 {
                let mut handle = from.send(Message::new("x").with_receipt()).await.unwrap();
                within(to.recv()).await.unwrap();
                within(handle.received()).await.unwrap();
            }
        }
        close(client, server).await;
    }
}

for_both_engines! {
    a_message_is_received_when_its_application_takes_it
    without_asking_there_is_no_receipt
    many_messages_are_each_reported_once
    reports_arrive_although_the_receiver_closes_at_once
    a_message_that_nobody_takes_is_not_received
    a_cancelled_message_is_not_received
    a_long_message_is_received_with_its_last_piece
    a_dropped_long_message_is_unwanted
    awaited_receipts_are_bounded
    few_receipts_at_once_are_enough
    a_close_after_a_receipt_waits_for_no_timer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_of_receipts_over_tcp_are_free_again() {
    places_of_receipts_are_free_again_after_every_end(Engine::Tcp).await;
}
