//! Ends of connections and of their directions, over both engines, and levels that are not taken.

use crate::common::{body, close, for_both_engines, pair, within};
use marcato_net::{
    Bytes, CloseReason, Closed, Config, Connection, Engine, LongMessages, LongSendError, Message,
    NotDelivered, Priority, SendError,
};

fn config(engine: Engine) -> Config {
    Config::new(engine)
}

fn reason() -> CloseReason {
    CloseReason::new(70_000, "back at noon")
}

async fn the_peer_learns_the_reason_after_the_last_message(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    client.send(Message::new(body(1, 300_000)).with_priority(Priority::P4)).await.unwrap();
    let theirs = async {
        assert_eq!(server.recv().await.unwrap().bytes, body(1, 300_000));
        server.recv().await.unwrap_err()
    };
    let (ours, theirs) = within(async { tokio::join!(client.close_with(reason()), theirs) }).await;
    assert_eq!((ours, theirs), (Ok(()), Closed::ByPeer(reason())));
    assert_eq!(
        Closed::ByPeer(reason()).to_string(),
        "the peer has closed the connection (code 70000: back at noon)"
    );
}

async fn the_first_reason_counts(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handle = client.send(Message::new(body(1, 1000)).with_priority(Priority::P4)).await.unwrap();
    let (first, second, theirs) = within(async {
        tokio::join!(client.close_with(reason()), client.close_with(CloseReason::new(1, "no")), async {
            server.recv().await.unwrap();
            server.closed().await
        })
    })
    .await;
    assert_eq!((first, second, theirs), (Ok(()), Ok(()), Closed::ByPeer(reason())));
    handle.acknowledged().await.unwrap();
}

/// The reason passes even if the peer's application takes nothing and much is queued.
async fn the_peer_learns_the_reason_of_an_abort(engine: Engine) {
    let mut config = config(engine);
    config.limits.unread = Bytes::new(100_000);
    let (client, server, _listener) = pair(&config).await;
    let mut handle =
        client.send(Message::new(body(1, 10_000_000)).with_priority(Priority::P4)).await.unwrap();
    let mut more = client.send(Message::new(body(1, 10_000_000)).with_priority(Priority::P4)).await.unwrap();
    within(handle.acknowledged()).await.unwrap();
    client.abort_with(reason());
    assert_eq!(within(server.closed()).await, Closed::Aborted(reason()));
    assert_eq!(within(client.closed()).await, Closed::Local);
    assert!(matches!(within(more.acknowledged()).await, Ok(()) | Err(NotDelivered::Closed(Closed::Local))));
}

/// As a program does that ends at once.
async fn the_reason_of_an_abort_outlives_the_last_handle(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    for number in 0..20 {
        let bulk = Message::new(body(number, 400_000)).with_priority(Priority::P4);
        let _unwatched = client.send(bulk).await.unwrap();
    }
    client.abort_with(reason());
    drop(client);
    assert_eq!(within(server.closed()).await, Closed::Aborted(reason()));
}

async fn an_endpoint_gives_its_reason_to_all(engine: Engine) {
    let (client, server, listener) = pair(&config(engine)).await;
    listener.endpoint.close_with(reason());
    assert_eq!(within(client.closed()).await, Closed::ByPeer(reason()));
    assert_eq!(within(server.closed()).await, Closed::Local);
    let (client, _server, listener) = pair(&config(engine)).await;
    listener.endpoint.abort_with(reason());
    assert_eq!(within(client.closed()).await, Closed::Aborted(reason()));
}

/// Its application may have taken none of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_messages_outlive_their_connection() {
    let mut config = config(Engine::Quic);
    // Reading stops with the first message.
    config.limits.memory = Bytes::new(1);
    let (client, server, _listener) = pair(&config).await;
    for number in 0..5 {
        let mut handle = client.send(Message::new(body(number, 1000))).await.unwrap();
        within(handle.acknowledged()).await.unwrap();
    }
    client.abort_with(reason());
    assert_eq!(within(server.closed()).await, Closed::Aborted(reason()));
    for number in 0..5 {
        assert_eq!(within(server.recv()).await.unwrap().bytes, body(number, 1000));
    }
}

/// Takes messages until the peer sends no more.
async fn drain(connection: &Connection) -> (u64, Closed) {
    let mut bytes = 0;
    loop {
        match connection.recv().await {
            Ok(message) => bytes += message.bytes.len() as u64,
            Err(closed) => return (bytes, closed),
        }
    }
}

async fn one_direction_ends_and_the_other_goes_on(engine: Engine) {
    let mut config = config(engine);
    // The last messages arrive long before they are taken.
    config.limits.unread = Bytes::new(50_000);
    let (client, server, _listener) = pair(&config).await;
    for (number, priority) in (0..20).zip(Priority::ALL.into_iter().cycle()) {
        client.send(Message::new(body(number, 30_000)).with_priority(priority)).await.unwrap();
    }
    let (finished, drained) = within(async { tokio::join!(client.finish(), drain(&server)) }).await;
    assert_eq!((finished, drained), (Ok(()), (600_000, Closed::Finished)));
    assert_eq!(client.try_send(&Message::new("more")).unwrap_err(), SendError::Finished);
    let mut long = client.send_long(Priority::P2).unwrap();
    assert_eq!(long.finish().await, Err(LongSendError::Send(SendError::Finished)));
    for number in 0..5 {
        server.send(Message::new(body(number, 30_000))).await.unwrap();
        assert_eq!(within(client.recv()).await.unwrap().bytes, body(number, 30_000));
    }
    // No reply can come any more, and none is waited for.
    assert!(within(server.request(Message::new("?"))).await.is_err());
    within(server.finish()).await.unwrap();
    assert_eq!(within(client.recv()).await, Err(Closed::Finished));
    close(client, server).await;
}

async fn empty_messages_arrive(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut handle = client.send(Message::new("").with_receipt().with_priority(Priority::P0)).await.unwrap();
    assert!(within(server.recv()).await.unwrap().bytes.is_empty());
    within(handle.acknowledged()).await.unwrap();
    within(handle.received()).await.unwrap();
    within(client.send(Message::new("").unreliable()).await.unwrap().acknowledged()).await.unwrap();
    assert!(within(server.recv()).await.unwrap().bytes.is_empty());
    let mut long = client.send_long(Priority::P3).unwrap();
    long.finish().await.unwrap();
    within(long.acknowledged()).await.unwrap();
    assert!(within(server.recv()).await.unwrap().bytes.is_empty());
    let answer = async {
        let request = server.accept_request().await.unwrap();
        assert!(request.message().bytes.is_empty());
        request.reply(Message::new("")).await.unwrap();
    };
    let (reply, ()) = within(async { tokio::join!(client.request(Message::new("")), answer) }).await;
    assert!(reply.unwrap().bytes.is_empty());
    close(client, server).await;
}

/// The background is held, whether it comes in many messages, in one long one, or whole.
async fn unread_background_does_not_stop_urgent_data(engine: Engine) {
    for len in [1000, 200_000, 3_000_000] {
        let mut config = config(engine);
        config.limits.unread = Bytes::new(100_000);
        config.limits.max_message = Bytes::new(2_000_000);
        config.limits.long_messages = LongMessages::Stream;
        let (client, server, _listener) = pair(&config).await;
        // More than is read of held levels, and more than the kernel's buffers hold.
        let all = 40_000_000 / len;
        let sending = client.clone();
        let sender = tokio::spawn(async move {
            for number in 0..all {
                let message = Message::new(body(number as u64, len)).with_priority(Priority::P4);
                sending.send(message).await.unwrap();
            }
        });
        let exchange = || async {
            let answer = async {
                let request = server.accept_request().await.unwrap();
                request.reply(Message::new("!").with_priority(Priority::P0)).await.unwrap();
            };
            let request = client.request(Message::new("?").with_priority(Priority::P0));
            let (reply, ()) = within(async { tokio::join!(request, answer) }).await;
            reply.unwrap();
        };
        // Urgent data passes while the background fills what there is, and after.
        within(async {
            while server.stats().received.holds[4] == 0 {
                exchange().await;
            }
        })
        .await;
        for _ in 0..100 {
            exchange().await;
        }
        let received = server.stats().received;
        assert_eq!((received.holds, received.stops), ([0, 0, 0, 0, 1], 0), "{len}");
        assert!(received.unread_peak < Bytes::new(20_000_000), "{len}: {received:?}");
        let mut left = all;
        while left > 0 {
            if len > 2_000_000 {
                let mut long = within(server.accept_long()).await.unwrap();
                while within(long.next()).await.unwrap().is_some() {}
            } else {
                assert_eq!(within(server.recv()).await.unwrap().bytes.len(), len);
            }
            left -= 1;
        }
        within(sender).await.unwrap();
        close(client, server).await;
    }
}

for_both_engines! {
    the_peer_learns_the_reason_after_the_last_message
    the_first_reason_counts
    the_peer_learns_the_reason_of_an_abort
    the_reason_of_an_abort_outlives_the_last_handle
    an_endpoint_gives_its_reason_to_all
    one_direction_ends_and_the_other_goes_on
    empty_messages_arrive
    unread_background_does_not_stop_urgent_data
}
