//! Requests and replies over both engines.

use crate::common::{body, close, for_both_engines, number_of, pair, within};
use marcato_net::{
    CloseReason, Closed, Config, Connection, Endpoint, Engine, Message, NoReply, NotDelivered, Priority,
    Received, Request, RequestError, SendError,
};
use marcato_units::Bytes;
use tokio::task::JoinHandle;

fn config(engine: Engine) -> Config {
    Config::new(engine)
}

/// Replies to each request with its number, and as many bytes as the number.
fn serve(connection: &Connection) {
    let connection = connection.clone();
    tokio::spawn(async move {
        while let Ok(request) = connection.accept_request().await {
            let number = number_of(&request.message().bytes);
            let len = 8 + usize::try_from(number).unwrap() * 100;
            let reply = Message::new(body(number, len)).with_priority(Priority::P0);
            tokio::spawn(request.reply(reply));
        }
    });
}

async fn a_thousand_requests_get_their_own_replies(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    serve(&server);
    let tasks: Vec<_> = (0..1000)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let priority = Priority::ALL[usize::try_from(number % 5).unwrap()];
                let request = Message::new(body(number, 3000)).with_priority(priority);
                (number, client.request(request).await.unwrap())
            })
        })
        .collect();
    for task in tasks {
        let (number, reply) = within(task).await.unwrap();
        assert_eq!(reply.bytes, body(number, 8 + usize::try_from(number).unwrap() * 100));
        assert_eq!(reply.priority, Priority::P0);
    }
    assert_eq!(client.stats().received.stray_exchanges, 0);
    assert_eq!(server.stats().received.stray_exchanges, 0);
    // The server's task ends with the connection.
    let (ours, theirs) = within(async { tokio::join!(client.close(), server.closed()) }).await;
    assert_eq!((ours, theirs), (Ok(()), Closed::ByPeer(CloseReason::default())));
}

async fn replies_come_in_any_order_in_both_directions(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    for (asking, asked) in [(&client, &server), (&server, &client)] {
        let requests = async {
            tokio::try_join!(asking.request(Message::new("first")), asking.request(Message::new("second")))
        };
        let replies = async {
            let mut open = Vec::new();
            for _ in 0..2 {
                open.push(asked.accept_request().await.unwrap());
            }
            while let Some(request) = open.pop() {
                let echo = Message::new(request.message().bytes.clone()).with_receipt();
                request.reply(echo).await.unwrap().received().await.unwrap();
            }
        };
        let (received, ()) = within(async { tokio::join!(requests, replies) }).await;
        let (first, second) = received.unwrap();
        assert_eq!((&first.bytes[..], &second.bytes[..]), (&b"first"[..], &b"second"[..]));
    }
    close(client, server).await;
}

async fn requests_and_messages_are_kept_apart(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    client.send(Message::new("message")).await.unwrap();
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.request(Message::new("request").with_receipt()).await }
    });
    let request = within(server.accept_request()).await.unwrap();
    assert_eq!(request.message().bytes, b"request"[..]);
    assert_eq!(within(server.recv()).await.unwrap().bytes, b"message"[..]);
    let refused = within(request.reply(Message::new("x").unreliable())).await.unwrap_err();
    assert_eq!(refused, SendError::NeedsReliable);
    assert_eq!(within(asking).await.unwrap(), Err(RequestError::NoReply(NoReply::Unanswered)));
    let refused = within(client.request(Message::new("x").unreliable())).await;
    assert_eq!(refused, Err(RequestError::Send(SendError::NeedsReliable)));
    close(client, server).await;
}

async fn a_dropped_request_is_unanswered(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let drops = async { drop(server.accept_request().await.unwrap()) };
    let (reply, ()) = within(async { tokio::join!(client.request(Message::new("?")), drops) }).await;
    assert_eq!(reply, Err(RequestError::NoReply(NoReply::Unanswered)));
    close(client, server).await;
}

async fn a_reply_that_is_abandoned_is_no_reply(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let abandons = async {
        let request = server.accept_request().await.unwrap();
        // More than all buffers hold, so that some of it is still queued.
        let reply = request.reply(Message::new(body(1, 16 << 20))).await.unwrap();
        reply.cancel().unwrap();
    };
    let (reply, ()) = within(async { tokio::join!(client.request(Message::new("?")), abandons) }).await;
    assert_eq!(reply, Err(RequestError::NoReply(NoReply::Unanswered)));
    close(client, server).await;
}

async fn a_reply_that_is_refused_is_no_reply(engine: Engine) {
    let mut config = config(engine);
    config.limits.queued = Bytes::kb(500);
    let (client, server, _listener) = pair(&config).await;
    let replies = async {
        let request = server.accept_request().await.unwrap();
        let refused = request.reply(Message::new(vec![0; 600_000])).await.err();
        assert!(matches!(refused, Some(SendError::TooLong { .. })), "{refused:?}");
    };
    let (reply, ()) = within(async { tokio::join!(client.request(Message::new("?")), replies) }).await;
    assert_eq!(reply, Err(RequestError::NoReply(NoReply::Unanswered)));
    close(client, server).await;
}

/// Task that waits for a reply, and its request as the server has it.
async fn asked(
    client: &Connection,
    server: &Connection,
) -> (JoinHandle<Result<Received, RequestError>>, Request) {
    let client = client.clone();
    let asking = tokio::spawn(async move { client.request(Message::new("?")).await });
    (asking, within(server.accept_request()).await.unwrap())
}

async fn the_server_learns_of_a_cancelled_request(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let (asking, request) = asked(&client, &server).await;
    asking.abort();
    within(request.withdrawn()).await;
    assert_eq!(within(request.reply(Message::new("late"))).await.unwrap_err(), SendError::Withdrawn);
    // Neither end takes any notice of it later.
    serve(&server);
    within(client.request(Message::new(body(1, 8)))).await.unwrap();
    assert_eq!(client.stats().received.stray_exchanges, 0);
    assert_eq!(server.stats().received.stray_exchanges, 0);
}

async fn a_request_that_is_not_sent_in_time_fails(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    // More than the server keeps unread, so that the request waits behind it.
    for number in 0..2 {
        let bulk = Message::new(body(number, 16 << 20)).with_priority(Priority::P0);
        within(client.send(bulk)).await.unwrap();
    }
    let request = Message::new("?").with_priority(Priority::P0);
    let late = client.request(request.with_lifetime(marcato_net::Duration::from_nanos(1)));
    assert_eq!(within(late).await, Err(RequestError::NotDelivered(NotDelivered::Expired)));
    for _ in 0..2 {
        within(server.recv()).await.unwrap();
    }
    assert_eq!(server.stats().received.stray_exchanges, 0);
    close(client, server).await;
}

async fn a_late_reply_is_discarded_and_counted(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    // The server replies before it can have heard that the request was cancelled.
    let (asking, request) = asked(&client, &server).await;
    asking.abort();
    let _ = asking.await;
    // Either the reply is late, or the cancellation was first.
    let late = within(request.reply(Message::new("late").with_receipt())).await;
    let discarded = match late {
        Ok(mut reply) => {
            assert_eq!(within(reply.received()).await, Err(NotDelivered::Unwanted));
            1
        }
        Err(error) => {
            assert_eq!(error, SendError::Withdrawn);
            0
        }
    };
    assert_eq!(client.stats().received.stray_exchanges, discarded);
    close(client, server).await;
}

async fn the_end_of_the_connection_fails_all_requests(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.request(Message::new(body(number, 100))).await })
        })
        .collect();
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(within(server.accept_request()).await.unwrap());
    }
    server.abort();
    within(open[0].withdrawn()).await;
    let closed = within(client.closed()).await;
    for task in tasks {
        let failed = within(task).await.unwrap().unwrap_err();
        assert_eq!(failed, RequestError::NoReply(NoReply::Closed(closed.clone())));
    }
    assert!(matches!(within(server.accept_request()).await, Err(Closed::Local)));
    let late = within(client.request(Message::new("late"))).await;
    assert_eq!(late, Err(RequestError::Send(SendError::Closed(closed))));
}

async fn open_requests_are_bounded_at_both_ends(engine: Engine) {
    let mut few = config(engine);
    few.limits.requests = 2;
    let listener = crate::common::server(&few).await;
    let remote = listener.remote();
    // A client with the same limit waits; one with another is refused.
    let careful = within(Endpoint::connect(&few, &remote)).await.unwrap();
    let server = within(listener.endpoint.accept()).await.unwrap();
    serve(&server);
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let client = careful.clone();
            tokio::spawn(async move { client.request(Message::new(body(number, 100))).await })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap().unwrap();
    }
    assert_eq!(server.stats().received.refused_requests, 0);
    close(careful, server).await;

    let hasty = within(Endpoint::connect(&config(engine), &remote)).await.unwrap();
    let server = within(listener.endpoint.accept()).await.unwrap();
    let tasks: Vec<_> = (0..5)
        .map(|number| {
            let client = hasty.clone();
            tokio::spawn(async move { client.request(Message::new(body(number, 100))).await })
        })
        .collect();
    // All have arrived when the last is refused.
    within(async {
        while server.stats().received.refused_requests < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    serve(&server);
    let mut refused = 0;
    for task in tasks {
        match within(task).await.unwrap() {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, RequestError::NoReply(NoReply::Refused));
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 3);
}

async fn the_most_urgent_request_is_accepted_first(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let order = [Priority::P3, Priority::P0, Priority::P4, Priority::P2];
    let asked = order.map(|priority| {
        let client = client.clone();
        tokio::spawn(async move { client.request(Message::new("?").with_priority(priority)).await })
    });
    within(async {
        while server.stats().received.messages.iter().sum::<u64>() < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut accepted = Vec::new();
    for _ in order {
        let request = within(server.accept_request()).await.unwrap();
        accepted.push(request.message().priority);
        request.reply(Message::new("!")).await.unwrap();
    }
    assert_eq!(accepted, [Priority::P0, Priority::P2, Priority::P3, Priority::P4]);
    for reply in asked {
        within(reply).await.unwrap().unwrap();
    }
    close(client, server).await;
}

for_both_engines! {
    the_most_urgent_request_is_accepted_first
    a_thousand_requests_get_their_own_replies
    replies_come_in_any_order_in_both_directions
    requests_and_messages_are_kept_apart
    a_dropped_request_is_unanswered
    a_reply_that_is_abandoned_is_no_reply
    a_reply_that_is_refused_is_no_reply
    the_server_learns_of_a_cancelled_request
    a_request_that_is_not_sent_in_time_fails
    a_late_reply_is_discarded_and_counted
    the_end_of_the_connection_fails_all_requests
    open_requests_are_bounded_at_both_ends
}
