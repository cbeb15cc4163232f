//! Ends of connections and responses whose client does nothing for too long.
//!
//! Time passes only where a test says so.
#![cfg(feature = "server")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;
use http::{Request, Response};
use http_body_util::StreamBody;
use marcato_web::{Body, Config, Server};

use crate::receiver::{
    GOAWAY, PING, Receiver, Terms, chunks_of, ended, pass, run_still, settle, still_until,
};
use crate::support::{Pieces, Running, frame};

/// Server whose paths name lengths, and a count of the bodies that it holds.
async fn start(config: Config) -> (Running, Arc<()>) {
    let held = Arc::new(());
    let counted = Arc::clone(&held);
    let service = tower::service_fn(move |request: Request<Body>| {
        let length = request.uri().path().trim_start_matches('/').parse().unwrap();
        let body = StreamBody::new(Pieces::holding(length, Arc::clone(&counted)));
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    (Running::start(Server::with_config(config), service).await, held)
}

/// References to what the server holds: one for each body, and some for the service itself.
fn held(held: &Arc<()>) -> usize {
    Arc::strong_count(held)
}

const SECOND: Duration = Duration::from_secs(1);

/// Reads frames up to the end of the connection. Returns whether the server has announced it.
async fn closes(client: &mut Receiver) -> bool {
    let mut announced = false;
    while let Some((kind, ..)) = client.next().await {
        announced |= kind == GOAWAY;
    }
    announced
}

#[test]
fn a_response_without_any_credit_is_reset_after_the_stall() {
    run_still(async {
        let (running, bodies) = start(chunks_of(1)).await;
        // SETTINGS_INITIAL_WINDOW_SIZE = 0.
        let terms = Terms { stream_window: 0, ..Terms::default() };
        let mut client = Receiver::connect(running.addr, terms).await;
        settle().await;
        let none = held(&bodies);
        let [stream] = client.ask([("/1000000", "u=3")]).await;
        still_until(|| held(&bodies) > none).await;
        settle().await;
        pass(SECOND * 59).await;
        assert_eq!((running.server.counters().stalled, running.server.open_requests()), (0, 1));
        pass(SECOND * 2).await;
        assert_eq!(client.read_until_reset(stream).await, Reason::CANCEL);
        assert_eq!((running.server.counters().stalled, running.server.open_requests()), (1, 0));
        // The handler and what it held are gone.
        still_until(|| held(&bodies) == none).await;
        // The connection is idle from now on, and ends.
        pass(SECOND * 74).await;
        assert_eq!(running.server.open_connections(), 1);
        pass(SECOND * 2).await;
        assert!(closes(&mut client).await);
    });
}

#[test]
fn a_response_whose_window_is_used_up_is_reset_after_the_stall() {
    run_still(async {
        let (running, bodies) = start(chunks_of(1)).await;
        let terms = Terms { stream_window: 65_535, ..Terms::default() };
        let mut client = Receiver::connect(running.addr, terms).await;
        settle().await;
        let none = held(&bodies);
        let streams = client.ask([("/1000000", "u=3"), ("/1000000", "u=5")]).await;
        client.read_bytes(2 * 65_535).await;
        pass(SECOND * 40).await;
        // Credit for one of them; the other one has none for a minute.
        client.credit(streams[0], 10).await;
        client.read_bytes(10).await;
        pass(SECOND * 25).await;
        assert_eq!(client.read_until_reset(streams[1]).await, Reason::CANCEL);
        assert_eq!((running.server.counters().stalled, running.server.open_requests()), (1, 1));
        pass(SECOND * 36).await;
        assert_eq!(client.read_until_reset(streams[0]).await, Reason::CANCEL);
        still_until(|| held(&bodies) == none).await;
        assert_eq!(running.server.counters().stuck, 0);
        // The connection serves on.
        client.credit(0, 1000).await;
        let [next] = client.ask([("/1000", "u=3")]).await;
        client.read_until_end(next).await;
    });
}

#[test]
fn credit_of_single_bytes_is_enough_to_go_on() {
    run_still(async {
        let (running, _) = start(chunks_of(1)).await;
        let terms = Terms { stream_window: 0, ..Terms::default() };
        let mut client = Receiver::connect(running.addr, terms).await;
        let [stream] = client.ask([("/1000000", "u=3")]).await;
        for bytes in 1..=10 {
            settle().await;
            pass(SECOND * 50).await;
            client.credit(stream, 1).await;
            client.content().await;
            assert_eq!(client.bytes(), bytes);
        }
        assert_eq!(running.server.counters().stalled, 0);
    });
}

#[test]
fn a_stalled_response_stops_no_other_of_its_connection() {
    run_still(async {
        let (running, _) = start(chunks_of(1)).await;
        let terms = Terms { stream_window: 0, ..Terms::default() };
        let mut client = Receiver::connect(running.addr, terms).await;
        let [stalled] = client.ask([("/1000000", "u=0")]).await;
        // Progress of others does not keep it either.
        for _ in 0..7 {
            let [other] = client.ask([("/50000", "u=7")]).await;
            client.credit(other, 50_000).await;
            client.read_until_end(other).await;
            pass(SECOND * 10).await;
        }
        assert_eq!(client.read_until_reset(stalled).await, Reason::CANCEL);
        assert_eq!((running.server.counters().stalled, running.server.counters().stuck), (1, 0));
    });
}

#[test]
fn a_connection_whose_window_is_closed_ends_after_the_stall() {
    run_still(async {
        for pings in [false, true] {
            let (running, bodies) = start(chunks_of(1)).await;
            let terms = Terms { more_window: 0, ..Terms::default() };
            let mut client = Receiver::connect(running.addr, terms).await;
            settle().await;
            let none = held(&bodies);
            client.ask([("/1000000", "u=3")]).await;
            client.read_bytes(65_535).await;
            settle().await;
            for _ in 0..5 {
                pass(SECOND * 11).await;
                if pings {
                    // Their answers are no progress.
                    client.send(&frame(PING, 0, 0, b"12345678")).await;
                    while client.next().await.expect("the connection is open").0 != PING {}
                }
            }
            assert_eq!(running.server.counters().stuck, 0);
            pass(SECOND * 6).await;
            closes(&mut client).await;
            assert_eq!((running.server.counters().stuck, running.server.open_requests()), (1, 0));
            still_until(|| held(&bodies) < none).await;
        }
    });
}

#[test]
fn a_connection_whose_buffers_are_full_ends_after_the_stall() {
    run_still(async {
        for segments in [1, 60] {
            let (running, _) = start(chunks_of(segments)).await;
            let mut client = Receiver::connect(running.addr, Terms::default()).await;
            client.ask([("/9000000", "u=3")]).await;
            // It reads now and then, which is progress.
            for _ in 0..3 {
                client.read_bytes(300_000).await;
                settle().await;
                pass(SECOND * 50).await;
                assert_eq!(running.server.counters().stuck, 0);
            }
            pass(SECOND * 11).await;
            still_until(|| running.server.counters().stuck == 1).await;
            assert_eq!(running.server.open_requests(), 0);
        }
    });
}

#[test]
fn idle_time_counts_from_the_end_of_the_last_stream() {
    run_still(async {
        let (running, _) = start(chunks_of(1)).await;
        let terms = Terms { stream_window: 0, ..Terms::default() };
        let mut client = Receiver::connect(running.addr, terms).await;
        let [stream] = client.ask([("/100", "u=3")]).await;
        for _ in 0..2 {
            settle().await;
            pass(SECOND * 50).await;
            client.credit(stream, 50).await;
            client.content().await;
        }
        // The request took 100 s, and is over.
        client.read_until_end(stream).await;
        pass(SECOND * 74).await;
        let [stream] = client.ask([("/0", "u=3")]).await;
        client.read_until_end(stream).await;
        pass(SECOND * 74).await;
        assert_eq!(running.server.open_connections(), 1);
        // A PING does not make it busy.
        client.send(&frame(PING, 0, 0, b"12345678")).await;
        settle().await;
        pass(SECOND * 2).await;
        assert!(closes(&mut client).await, "GOAWAY came");
        drop(client);
        still_until(|| running.server.open_connections() == 0).await;
        assert_eq!(running.server.counters().broken, 0);
    });
}

#[test]
fn a_client_that_stays_after_goaway_is_closed_after_the_grace() {
    run_still(async {
        let (running, _) = start(chunks_of(1)).await;
        let terms = Terms { stream_window: 10, ..Terms::default() };
        let mut client = Receiver::connect(running.addr, terms).await;
        let [stream] = client.ask([("/1000", "u=3")]).await;
        client.read_bytes(10).await;
        let server = running.server.clone();
        let end = tokio::spawn(running.end());
        while client.next().await.expect("the connection is open").0 != GOAWAY {}
        // The open response goes on during the grace.
        pass(SECOND * 20).await;
        client.credit(stream, 10).await;
        assert_eq!(client.content().await, (stream, 10));
        pass(SECOND * 9).await;
        assert_eq!((server.open_requests(), server.open_connections()), (1, 1));
        pass(SECOND * 2).await;
        closes(&mut client).await;
        drop(client);
        assert_eq!((server.open_requests(), server.counters().broken), (0, 1));
        ended(end).await;
    });
}

#[test]
fn responses_that_end_within_the_grace_end_the_connection() {
    run_still(async {
        let (running, _) = start(chunks_of(1)).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [stream] = client.ask([("/300000", "u=3")]).await;
        client.read_bytes(10).await;
        let server = running.server.clone();
        let end = tokio::spawn(running.end());
        client.read_until_end(stream).await;
        closes(&mut client).await;
        assert_eq!((client.bytes(), server.counters().broken), (300_000, 0));
        drop(client);
        ended(end).await;
    });
}
