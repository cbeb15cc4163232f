//! Bounds of what clients may use: rates of addresses, slow heads, floods that have to be answered, and
//! slow readers.
#![cfg(feature = "server")]

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{RawClient, Running, fetch, fields, frame, get, get_with, headers, read, run, until};
use bytes::Bytes;
use h2::{Reason, client};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{Channel, Full};
use marcato_web::{Body, Config, EarlyHints, RateLimit, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Service whose paths name the length of their content.
async fn bytes(request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
    let length = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
    Ok(Response::new(Full::from(vec![b'x'; length])))
}

async fn start(configure: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::default();
    configure(&mut config);
    Running::start(Server::with_config(config), tower::service_fn(bytes)).await
}

/// An hour between two, so that none comes back during a test.
fn burst(of: u32) -> Option<RateLimit> {
    Some(RateLimit { per_second: NonZeroU32::MIN, burst: NonZeroU32::new(of).unwrap() })
}

#[test]
fn requests_over_the_rate_are_told_when_to_come_again() {
    run(async {
        let running = start(|config| config.limits.request_rate = burst(20)).await;
        let client = &mut running.client().await;
        let mut statuses = Vec::new();
        let mut again = None;
        // One may come back each second, so the last ones are refused however slow this is.
        while again.is_none() {
            let response = fetch(client, get("/3")).await;
            statuses.push(response.status());
            again = response.headers().get("retry-after").cloned();
            assert!(statuses.len() < 10_000);
        }
        assert_eq!(
            (statuses.pop().unwrap(), again.unwrap()),
            (StatusCode::TOO_MANY_REQUESTS, "1".parse().unwrap())
        );
        assert!(statuses.len() >= 20 && statuses.iter().all(|status| *status == StatusCode::OK));
        // Another connection of the address has nothing left either, and another version neither.
        until_refused(&running).await;
        let counters = running.server.counters();
        assert!(counters.requests_over_rate >= 2, "{counters:?}");
        assert_eq!(running.server.known_addresses(), 1);
    });
}

/// Makes requests of HTTP/1.1 until one is refused.
async fn until_refused(running: &Running) {
    loop {
        let response = running.http1("/3", "").await;
        if response.starts_with("HTTP/1.1 429 ") {
            assert!(response.contains("\r\nretry-after: 1\r\n"), "{response}");
            return;
        }
        assert!(response.ends_with("xxx"), "{response}");
    }
}

/// True if a new connection is closed at once.
async fn is_closed(running: &Running) -> bool {
    let mut stream = TcpStream::connect(running.addr).await.unwrap();
    // What is written tells the server nothing that it answers.
    let _ = stream.write_all(b"GET /3 HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    stream.read(&mut [0; 1]).await.unwrap_or(0) == 0
}

#[test]
fn connections_over_the_rate_are_closed() {
    run(async {
        let running = start(|config| config.limits.connection_rate = burst(3)).await;
        let mut opened = 0;
        while !is_closed(&running).await {
            opened += 1;
            assert!(opened < 10_000);
        }
        assert!(opened >= 3, "{opened}");
        assert!(running.server.counters().connections_over_rate >= 1);
    });
}

#[test]
fn an_address_has_so_many_connections_open_and_no_more() {
    run(async {
        let running = start(|config| config.limits.open_per_address = NonZeroU32::new(2)).await;
        let first = running.client().await;
        let second = &mut running.client().await;
        assert!(is_closed(&running).await);
        assert_eq!(running.server.counters().connections_over_open, 1);
        assert_eq!(read(fetch(second, get("/3")).await).await.unwrap(), b"xxx");
        drop(first);
        until(|| running.server.open_connections() < 2).await;
        assert!(!is_closed(&running).await);
    });
}

#[test]
fn trusted_addresses_have_no_rates() {
    run(async {
        let running = start(|config| {
            (config.limits.request_rate, config.limits.connection_rate) = (burst(1), burst(1));
            config.limits.open_per_address = NonZeroU32::new(1);
            config.trusted = vec!["127.0.0.0/8".parse().unwrap()];
        })
        .await;
        let _open = running.client().await;
        for _ in 0..10 {
            assert!(running.http1("/3", "").await.ends_with("xxx"));
        }
        assert_eq!(running.server.known_addresses(), 0);
    });
}

#[test]
fn rates_follow_the_configuration() {
    run(async {
        let running = start(|_| {}).await;
        assert!(!is_closed(&running).await);
        let mut config = Config::default();
        config.limits.connection_rate = burst(1);
        running.server.configure(config.clone());
        while !is_closed(&running).await {}
        // The same again forgets nothing.
        running.server.configure(config);
        assert_eq!(running.server.known_addresses(), 1);
        running.server.configure(Config::default());
        assert!(!is_closed(&running).await);
    });
}

/// Server that gives the head of a request little time, and all else more than a test has. Whole heads
/// arrive within that time on a busy machine, too.
async fn impatient() -> Running {
    start(|config| config.limits.handshake = Duration::from_secs(1)).await
}

/// Sends a byte now and then until the server closes the connection.
async fn dribble(mut stream: TcpStream, bytes: &[u8]) {
    let mut bytes = bytes.iter().cycle();
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let mut buffer = [0; 1024];
    loop {
        tokio::select! {
            read = stream.read(&mut buffer) => if read.unwrap_or(0) == 0 { return },
            _ = pace.tick() => if stream.write_all(&[*bytes.next().unwrap()]).await.is_err() { return },
        }
    }
}

/// Reads up to the first three bytes of content.
async fn content_of(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"xxx") {
        seen.push(stream.read_u8().await.unwrap());
    }
}

#[test]
fn slow_heads_of_http1_end_the_connection() {
    run(async {
        let running = impatient().await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(b"GET /3 HTTP/1.1\r\nhost: test\r\nx-long: ").await.unwrap();
        dribble(stream, b"y").await;
        assert_eq!(running.server.counters().slow_heads, 1);
        // The second head of a connection as well.
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(b"GET /3 HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        content_of(&mut stream).await;
        stream.write_all(b"GET /3 HTTP/1.1\r\nx-long: ").await.unwrap();
        dribble(stream, b"y").await;
        assert_eq!(running.server.counters().slow_heads, 2);
        assert!(running.http1("/3", "").await.ends_with("xxx"));
    });
}

#[test]
fn slow_heads_of_http2_end_the_connection() {
    run(async {
        let running = impatient().await;
        // The library writes before the first head, so that the handshake is over.
        let whole = headers(1, "/3");
        for unfinished in [
            // A frame that is never complete, and one whose CONTINUATION never comes.
            whole[..whole.len() - 1].to_vec(),
            frame(1, 1, 1, &fields("/3")),
        ] {
            let before = running.server.counters().slow_heads;
            let mut client = RawClient::connect(running.addr, b"").await;
            client.send(&unfinished).await;
            client.goaway().await;
            assert_eq!(running.server.counters().slow_heads, before + 1);
        }
        // Empty frames that carry on forever do not make it another head.
        let mut client = RawClient::connect(running.addr, b"").await;
        client.send(&frame(1, 1, 1, &fields("/3"))).await;
        dribble(client.0, &frame(9, 0, 1, b"")).await;
        assert_eq!(running.server.counters().slow_heads, 3);
        assert_eq!(read(fetch(&mut running.client().await, get("/3")).await).await.unwrap(), b"xxx");
    });
}

/// Beginning of a connection of HTTP/2, before its first frame.
const PREFACE: [&[u8]; 2] = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\x04\0\0\0\0\0"];

#[test]
fn early_ends_count_as_broken_over_both_versions() {
    run(async {
        let slow = headers(1, "/3");
        // Far more than sockets hold, with windows as large as they may be.
        let large = [
            frame(4, 0, 0, b"\0\x04\x7f\xff\xff\xff"),
            frame(8, 0, 0, &[0x7f, 0, 0, 0]),
            headers(1, "/32000000"),
        ];
        let versions: [[Vec<u8>; 4]; 2] = [
            [
                b"GET /3 HTTP/1.1\r\nhost: test\r\n\r\n".to_vec(),
                b"GET /3 HTTP/1.1\r\nhost: te".to_vec(),
                b"GET /3 HTTP/1.1\nhost: test\n\n".to_vec(),
                b"GET /32000000 HTTP/1.1\r\nhost: test\r\n\r\n".to_vec(),
            ],
            [
                [&PREFACE.concat(), &headers(1, "/3")[..]].concat(),
                [&PREFACE.concat(), &slow[..slow.len() - 1]].concat(),
                // An update of a priority is longer.
                [&PREFACE.concat(), &frame(0x10, 0, 0, b"")[..]].concat(),
                [&PREFACE.concat(), &large.concat()[..]].concat(),
            ],
        ];
        for [whole, slow, wrong, large] in versions {
            let running = start(|config| {
                config.limits.handshake = Duration::from_secs(1);
                config.limits.grace = Duration::ZERO;
            })
            .await;
            let send = async |bytes: &[u8]| {
                let mut stream = TcpStream::connect(running.addr).await.unwrap();
                stream.write_all(bytes).await.unwrap();
                stream
            };
            let counters = || running.server.counters();
            // A client that leaves once it has its response breaks nothing.
            let mut stream = send(&whole).await;
            content_of(&mut stream).await;
            stream.shutdown().await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
            until(|| running.server.open_connections() == 0).await;
            assert_eq!(counters().broken, 0);
            let _slow = send(&slow).await;
            until(|| counters().broken == 1).await;
            assert_eq!((counters().slow_heads, counters().violations), (1, 0));
            let _wrong = send(&wrong).await;
            until(|| counters().broken == 2).await;
            assert_eq!((counters().slow_heads, counters().violations), (1, 1));
            let mut large = send(&large).await;
            content_of(&mut large).await;
            assert_eq!(running.end().await.counters().broken, 3);
        }
    });
}

#[test]
fn content_may_take_longer_than_a_head() {
    run(async {
        let running = impatient().await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream
            .write_all(b"POST /3 HTTP/1.1\r\nhost: test\r\ncontent-length: 60\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        for _ in 0..60 {
            pace.tick().await;
            if stream.write_all(b"x").await.is_err() {
                break;
            }
        }
        let mut client = RawClient::connect(running.addr, b"").await;
        // A POST, whose DATA frame takes its time.
        client.send(&frame(1, 4, 1, b"\x83\x86\x41\x04test\x44\x02/3")).await;
        let data = frame(0, 1, 1, &[b'x'; 60]);
        for byte in data {
            pace.tick().await;
            client.send(&[byte]).await;
        }
        assert_eq!(running.server.counters().slow_heads, 0);
    });
}

#[test]
fn eight_early_hints_wait_and_none_follows_the_response() {
    run(async {
        let began = Arc::<Notify>::default();
        let has_begun = Arc::clone(&began);
        let service = tower::service_fn(move |request: Request<Body>| {
            let began = Arc::clone(&began);
            async move {
                let hints = request.extensions().get::<EarlyHints>().unwrap().clone();
                let sent = (0..20).filter(|_| hints.send(HeaderMap::new())).count();
                let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
                tokio::spawn(async move {
                    began.notified().await;
                    let after = hints.send(HeaderMap::new());
                    _ = sender.send_data(format!("{sent} {after}").into()).await;
                });
                Ok::<_, Infallible>(Response::new(body))
            }
        });
        let running = Running::start(Server::new(), service).await;
        let response = fetch(&mut running.client().await, get("/")).await;
        has_begun.notify_one();
        assert_eq!(read(response).await.unwrap(), b"8 false");
    });
}

#[test]
fn floods_of_pings_and_of_settings_end_the_connection() {
    run(async {
        let running = start(|_| {}).await;
        let ping = frame(6, 0, 0, b"12345678");
        for (number, flood) in [ping, frame(4, 0, 0, b"")].into_iter().enumerate() {
            let mut client = RawClient::connect(running.addr, b"").await;
            // The server may close before all of it is written.
            let _ = client.0.write_all(&flood.repeat(100_000)).await;
            assert_eq!(client.goaway().await, Some(u32::from(Reason::ENHANCE_YOUR_CALM)));
            assert_eq!(running.server.counters().violations, number as u64 + 1);
        }
        assert_eq!(read(fetch(&mut running.client().await, get("/3")).await).await.unwrap(), b"xxx");
    });
}

#[test]
fn pings_beside_content_are_no_flood() {
    run(async {
        let running = start(|_| {}).await;
        let stream = TcpStream::connect(running.addr).await.unwrap();
        let mut builder = client::Builder::new();
        builder.initial_window_size(1000).initial_connection_window_size(100_000);
        let (client, mut connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        tokio::spawn(async move { _ = connection.await });
        let mut client = client.ready().await.unwrap();
        let mut body = fetch(&mut client, get("/2000000")).await.into_body();
        let (mut bytes, mut answers) = (0, 0);
        // A client that measures the path: one PING for what it has received.
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            bytes += data.len();
            body.flow_control().release_capacity(data.len()).unwrap();
            pings.ping(h2::Ping::opaque()).await.unwrap();
            answers += 1;
        }
        assert!(bytes == 2_000_000 && answers > 1500, "{bytes} bytes, {answers} answers");
    });
}

#[test]
fn a_slow_reader_stops_no_other_stream_or_connection() {
    run(async {
        let running = start(|_| {}).await;
        // SETTINGS_INITIAL_WINDOW_SIZE = 0: credit comes by WINDOW_UPDATE only.
        let mut client = RawClient::connect(running.addr, b"\0\x04\0\0\0\0").await;
        client.send(&headers(1, "/100000")).await;
        let mut other = running.client().await;
        let mut slow_bytes = 0;
        for round in 0..50_u32 {
            let credit = |stream, bytes: u32| frame(8, 0, stream, &bytes.to_be_bytes());
            let stream = 3 + 2 * round;
            client.send(&credit(1, 1)).await;
            client.send(&[headers(stream, "/1000"), credit(stream, 1000)].concat()).await;
            let (mut bytes, mut slow) = (0, 0);
            while bytes < 1000 || slow < 1 {
                let (kind, _, id, payload) = client.next().await.unwrap();
                match (kind, id) {
                    (0, 1) => slow += payload.len(),
                    (0, _) => bytes += payload.len(),
                    _ => {}
                }
            }
            slow_bytes += slow;
            assert_eq!((bytes, slow_bytes), (1000, round as usize + 1));
            assert_eq!(read(fetch(&mut other, get_with("/5000", "u=7")).await).await.unwrap().len(), 5000);
        }
    });
}

#[test]
fn a_client_that_reads_nothing_stops_no_other_and_is_closed() {
    run(async {
        let running = start(|config| config.limits.stall = Duration::from_millis(500)).await;
        let mut silent = RawClient::connect(running.addr, b"\0\x04\x7f\xff\xff\xff").await;
        // Window of the connection: as large as it may be.
        silent.send(&[frame(8, 0, 0, &[0x7f, 0, 0, 0]), headers(1, "/50000000")].concat()).await;
        let mut other = running.client().await;
        while running.server.counters().stuck == 0 {
            assert_eq!(read(fetch(&mut other, get("/50000")).await).await.unwrap().len(), 50_000);
        }
        // A connection closes after its requests end, and only the other client's stays open.
        until(|| running.server.open_requests() == 0 && running.server.open_connections() == 1).await;
    });
}
