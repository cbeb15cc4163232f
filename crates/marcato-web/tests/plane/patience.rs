//! Ends of connections and responses whose client does nothing for too long.
//!
//! Time passes only where a test says so.
#![cfg(feature = "server")]

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use marcato_web::{Body, BoxError, Config, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::receiver::{
    GOAWAY, PING, Receiver, Terms, chunks_of, ended, pass, run_still, settle, stand_still,
};
use crate::support::{Pieces, Running, fields, frame, recording, run, until};

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
        until(|| held(&bodies) > none).await;
        settle().await;
        pass(SECOND * 59).await;
        assert_eq!((running.server.counters().stalled, running.server.open_requests()), (0, 1));
        pass(SECOND * 2).await;
        assert_eq!(client.read_until_reset(stream).await, Reason::CANCEL);
        assert_eq!((running.server.counters().stalled, running.server.open_requests()), (1, 0));
        // The handler and what it held are gone.
        until(|| held(&bodies) == none).await;
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
        until(|| held(&bodies) == none).await;
        assert_eq!(running.server.counters().stuck, 0);
        // The connection serves on.
        client.credit(0, 1000).await;
        let [next] = client.ask([("/1000", "u=3")]).await;
        client.read_until_end(next).await;
    });
}

#[test]
fn a_response_that_has_all_the_credit_it_wants_has_not_stalled() {
    run_still(async {
        let (running, _) = start(chunks_of(1)).await;
        let terms = Terms { stream_window: 1000, ..Terms::default() };
        let mut client = Receiver::connect(running.addr, terms).await;
        let [stream] = client.ask([("/1000000", "u=3")]).await;
        client.read_bytes(1000).await;
        pass(SECOND * 40).await;
        client.credit(stream, 0x7fff_0000).await;
        client.read_bytes(100_000).await;
        pass(SECOND * 40).await;
        client.read_until_end(stream).await;
        assert_eq!(running.server.counters().stalled, 0);
    });
}

#[test]
fn only_bytes_with_credit_count_as_granted() {
    run_still(async {
        let (running, _) = start(chunks_of(1)).await;
        let mut client =
            Receiver::connect(running.addr, Terms { stream_window: 10, ..Terms::default() }).await;
        let [stream] = client.ask([("/1000", "u=3")]).await;
        client.read_bytes(10).await;
        settle().await;
        assert_eq!(client.unread(&running.server), 0);
        client.credit(stream, 990).await;
        client.read_until_end(stream).await;
        assert_eq!((client.bytes(), client.unread(&running.server)), (1000, 0));
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
            until(|| held(&bodies) < none).await;
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
            let granted = || running.server.counters().granted.iter().map(|bytes| bytes.get()).sum::<u64>();
            // It reads now and then, which is progress.
            for _ in 0..3 {
                let before = granted();
                client.read_bytes(300_000).await;
                until(|| granted() > before).await;
                settle().await;
                pass(SECOND * 50).await;
                assert_eq!(running.server.counters().stuck, 0);
            }
            // The kernel of a busy machine may tell of the last room late, which is progress again.
            let mut waited = 0;
            while running.server.counters().stuck == 0 && waited < 6 {
                pass(SECOND * 11).await;
                waited += 1;
            }
            until(|| running.server.open_requests() == 0).await;
            assert_eq!(running.server.counters().stuck, 1);
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
        until(|| running.server.open_connections() == 0).await;
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
fn idle_time_does_not_prolong_the_grace() {
    run_still(async {
        let mut config = chunks_of(1);
        config.limits.idle = SECOND * 10;
        let (running, _) = start(config).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [stream] = client.ask([("/10", "u=3")]).await;
        client.read_until_end(stream).await;
        let server = running.server.clone();
        let end = tokio::spawn(running.end());
        // Without an answer to the PING that follows GOAWAY, the connection stays open for the grace.
        while client.next().await.expect("the connection is open").0 != GOAWAY {}
        for _ in 0..2 {
            pass(SECOND * 14).await;
            assert_eq!(server.open_connections(), 1);
        }
        pass(SECOND * 3).await;
        until(|| server.open_connections() == 0).await;
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

/// Server whose paths name what a handler does with the body of its request.
async fn uploads(config: Config) -> Running {
    let service = tower::service_fn(async |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let body = request.into_body();
        let content: UnsyncBoxBody<Bytes, BoxError> = match path.as_str() {
            "/read" => {
                body.collect().await?;
                UnsyncBoxBody::new(Empty::new().map_err(Into::into))
            }
            "/echo" => UnsyncBoxBody::new(body.map_err(Into::into)),
            "/later" => {
                // It looks once, and is busy with something else when more comes.
                let mut body = body;
                let is_pending =
                    poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending())).await;
                assert!(is_pending);
                tokio::time::sleep(SECOND * 120).await;
                UnsyncBoxBody::new(body.map_err(Into::into))
            }
            _ => std::future::pending().await,
        };
        Ok::<_, BoxError>(Response::new(content))
    });
    Running::start(Server::with_config(config), service).await
}

/// HEADERS of a POST whose body follows.
fn post(stream: u32, path: &str) -> Vec<u8> {
    let mut block = fields(path);
    // The second entry of the static table is GET, and the third POST.
    block[0] = 0x83;
    frame(1, 4, stream, &block)
}

#[test]
fn a_body_that_never_comes_over_http2_is_answered_with_408() {
    run_still(async {
        let (config, records) = recording();
        let running = uploads(config).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        client.send(&[post(1, "/read"), frame(0, 0, 1, b"some")].concat()).await;
        until(|| running.server.open_requests() == 1).await;
        settle().await;
        pass(SECOND * 59).await;
        // A byte is progress; a frame without one is none.
        client.send(&frame(0, 0, 1, b"x")).await;
        settle().await;
        pass(SECOND * 59).await;
        client.send(&frame(0, 0, 1, b"")).await;
        settle().await;
        assert_eq!((running.server.counters().late_bodies, running.server.open_requests()), (0, 1));
        pass(SECOND * 2).await;
        client.read_until_end(1).await;
        assert_eq!((running.server.counters().late_bodies, running.server.open_requests()), (1, 0));
        let records = records.lock().unwrap();
        assert_eq!((records[0].status, records[0].complete), (Some(StatusCode::REQUEST_TIMEOUT), true));
    });
}

#[test]
fn bytes_that_a_handler_has_not_looked_at_are_progress() {
    run_still(async {
        let (config, records) = recording();
        let running = uploads(config).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        client.send(&post(1, "/later")).await;
        until(|| running.server.open_requests() == 1).await;
        settle().await;
        pass(SECOND * 59).await;
        client.send(&frame(0, 1, 1, b"come")).await;
        settle().await;
        pass(SECOND * 60).await;
        assert_eq!((running.server.counters().late_bodies, running.server.open_requests()), (0, 1));
        pass(SECOND * 2).await;
        client.read_until_end(1).await;
        assert_eq!((client.bytes(), running.server.counters().late_bodies), (4, 0));
        until(|| running.server.open_requests() == 0).await;
        assert_eq!(records.lock().unwrap()[0].status, Some(StatusCode::OK));
    });
}

#[test]
fn a_body_that_never_comes_over_http1_is_answered_with_408() {
    run_still(async {
        stand_still();
        let running = uploads(Config::default()).await;
        let mut client = TcpStream::connect(running.addr).await.unwrap();
        let head = b"POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nsome";
        client.write_all(head).await.unwrap();
        until(|| running.server.open_requests() == 1).await;
        settle().await;
        pass(SECOND * 59).await;
        client.write_all(b"x").await.unwrap();
        settle().await;
        pass(SECOND * 59).await;
        assert_eq!((running.server.counters().late_bodies, running.server.open_requests()), (0, 1));
        pass(SECOND * 2).await;
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        let response = response.to_lowercase();
        assert!(response.starts_with("http/1.1 408 ") && response.contains("\r\nconnection: close\r\n"));
        until(|| running.server.open_requests() == 0).await;
        assert_eq!(running.server.counters().late_bodies, 1);
    });
}

#[test]
fn a_silent_body_ends_no_response_that_has_begun() {
    run_still(async {
        let running = uploads(Config::default()).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        // One handler has answered, and the other one does not wait for the body.
        client.send(&[post(1, "/echo"), post(3, "/busy")].concat()).await;
        until(|| running.server.open_requests() == 2).await;
        settle().await;
        pass(SECOND * 1000).await;
        assert_eq!((running.server.counters().late_bodies, running.server.open_requests()), (0, 2));
        client.send(&frame(0, 1, 1, b"late")).await;
        client.read_until_end(1).await;
        assert_eq!(client.bytes(), 4);
    });
}

#[cfg(feature = "proxy")]
#[test]
fn a_proxied_body_has_the_bound_of_its_proxy() {
    use marcato_web::proxy::{Proxy, ProxyConfig};
    run_still(async {
        stand_still();
        let origin = uploads(Config::default()).await;
        let mut config = ProxyConfig::to(format!("http://{}", origin.addr));
        config.body_idle_timeout = SECOND * 30;
        let short = Proxy::new(config.clone()).unwrap();
        config.body_idle_timeout = SECOND * 1000;
        let long = Proxy::new(config).unwrap();
        for (proxy, bound) in [(short, 30), (long, 1000)] {
            let mut server = Config::default();
            server.limits.stall = SECOND * 100;
            let front = Running::start(Server::with_config(server), proxy).await;
            let mut client = TcpStream::connect(front.addr).await.unwrap();
            // The origin reads nothing of the body.
            let head = b"POST /busy HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nsome";
            client.write_all(head).await.unwrap();
            until(|| front.server.open_requests() == 1).await;
            settle().await;
            pass(SECOND * (bound - 1)).await;
            assert_eq!(front.server.open_requests(), 1, "{bound}");
            pass(SECOND * 2).await;
            let mut response = [0; 13];
            client.read_exact(&mut response).await.unwrap();
            assert_eq!(&response, b"HTTP/1.1 408 ");
            assert_eq!(front.server.counters().late_bodies, 0);
        }
    });
}

#[test]
fn a_request_whose_handler_is_dropped_is_over() {
    run(async {
        for is_http2 in [false, true] {
            for is_aborted in [false, true] {
                let (mut config, records) = recording();
                config.limits.grace = Duration::from_millis(20);
                let service = tower::service_fn(async |_: Request<Body>| {
                    std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
                });
                let server = Server::with_config(config);
                let (mut client, io) = tokio::io::duplex(1000);
                let peer = "192.0.2.1:50000".parse().unwrap();
                let (end, ended) = tokio::sync::oneshot::channel::<()>();
                let serving = server.clone();
                let task = tokio::spawn(async move {
                    serving.serve_connection_until(io, peer, service, async { _ = ended.await }).await;
                });
                let head = match is_http2 {
                    false => b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
                    true => [
                        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(),
                        &frame(4, 0, 0, b""),
                        &frame(1, 5, 1, &fields("/")),
                    ]
                    .concat(),
                };
                client.write_all(&head).await.unwrap();
                until(|| server.open_requests() == 1).await;
                if is_aborted {
                    task.abort();
                } else {
                    drop(end);
                }
                _ = task.await;
                until(|| server.open_requests() == 0).await;
                let records = records.lock().unwrap();
                let seen: Vec<_> = records.iter().map(|record| (record.status, record.complete)).collect();
                assert_eq!(seen, [(None, false)], "{is_http2} {is_aborted}");
            }
        }
    });
}

#[test]
fn a_closed_connection_still_takes_what_its_client_sends() {
    run_still(async {
        stand_still();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        // A line that ends with LF alone, and a PING of three bytes.
        let http1 = b"GET / HTTP/1.1\nhost: a\r\n\r\n".to_vec();
        let http2 = [&preface[..], &frame(6, 0, 0, b"abc")].concat();
        for (faulty, leaves) in [(&http1, false), (&http1, true), (&http2, false), (&http2, true)] {
            let running = uploads(Config::default()).await;
            let mut client = TcpStream::connect(running.addr).await.unwrap();
            client.write_all(faulty).await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert!(!answer.is_empty());
            // A socket that were closed now would reset the connection, and the answer could be lost.
            for _ in 0..3 {
                client.write_all(&[b'x'; 1000]).await.unwrap();
                settle().await;
                assert_eq!(running.server.open_connections(), 1);
            }
            if leaves {
                drop(client);
            } else {
                pass(SECOND).await;
            }
            until(|| running.server.open_connections() == 0).await;
        }
    });
}

#[test]
fn a_preface_of_http2_may_come_in_pieces() {
    run_still(async {
        stand_still();
        let running = uploads(Config::default()).await;
        let mut client = TcpStream::connect(running.addr).await.unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        for piece in preface.chunks(5) {
            client.write_all(piece).await.unwrap();
            settle().await;
            // The server looks again after some milliseconds.
            pass(Duration::from_millis(10)).await;
        }
        let mut header = [0; 9];
        client.read_exact(&mut header).await.unwrap();
        assert_eq!(header[3], 4, "SETTINGS");
        assert_eq!(running.server.counters().connections, [1, 0, 0]);
    });
}

#[test]
fn a_client_that_says_nothing_is_closed_and_counted() {
    run_still(async {
        stand_still();
        let running = uploads(Config::default()).await;
        let mut silent = TcpStream::connect(running.addr).await.unwrap();
        let mut slow = TcpStream::connect(running.addr).await.unwrap();
        slow.write_all(b"PRI * ").await.unwrap();
        until(|| running.server.open_connections() == 2).await;
        settle().await;
        pass(SECOND * 9).await;
        assert_eq!((running.server.counters().failed_handshakes, running.server.open_connections()), (0, 2));
        pass(SECOND * 2).await;
        for client in [&mut silent, &mut slow] {
            // A reset is an end as well.
            assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
        }
        until(|| running.server.open_connections() == 0).await;
        assert_eq!(running.server.counters().failed_handshakes, 2);
    });
}

#[test]
fn a_client_that_only_begins_the_preface_of_http2_is_closed() {
    run_still(async {
        stand_still();
        let running = uploads(Config::default()).await;
        let mut client = TcpStream::connect(running.addr).await.unwrap();
        // It tells the version, and the rest of the preface never comes.
        client.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        until(|| running.server.counters().connections == [1, 0, 0]).await;
        settle().await;
        pass(SECOND * 9).await;
        assert_eq!((running.server.counters().broken, running.server.open_connections()), (0, 1));
        pass(SECOND * 2).await;
        until(|| running.server.open_connections() == 0).await;
        assert_eq!(running.server.counters().broken, 1);
    });
}
