//! Requests that another server could read differently, through a server and a proxy to an origin.
#![cfg(feature = "proxy")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use marcato_web::{Body, Config, Decision, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::proxy::{BoxError, Speaks, full, origin, proxy_to};
use crate::support::{Running, fetch, run, until};

/// Server in front of an origin, which notes the requests that it has seen.
struct Front {
    running: Running,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Front {
    async fn start(configure: impl FnOnce(&mut Config)) -> Self {
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&seen);
        let address = origin(Speaks::Http1, move |request| {
            let line = format!("{} {}", request.method(), request.uri());
            let scheme = request.headers()["x-forwarded-proto"].to_str().unwrap().to_owned();
            log.lock().unwrap().push(line);
            async move {
                // A request counts once its content has come.
                let content = request.into_body().collect().await;
                match content {
                    Ok(_) => Response::new(full(&scheme)),
                    Err(_) => Response::builder().status(500).body(full("")).unwrap(),
                }
            }
        })
        .await;
        let mut config = Config::default();
        configure(&mut config);
        Self { running: Running::start(Server::with_config(config), proxy_to(address)).await, seen }
    }

    /// Sends bytes in pieces of one size, and returns all that the server answers.
    async fn send(&self, text: &[u8], piece: usize) -> String {
        let mut stream = TcpStream::connect(self.running.addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in text.chunks(piece) {
            // The server may have closed.
            if stream.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let mut answer = Vec::new();
        // An answer may be followed by a reset, as the rest was not read.
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut buffer).await {
            answer.extend_from_slice(&buffer[..len]);
        }
        String::from_utf8(answer).unwrap()
    }

    /// Statuses of the answers to bytes.
    async fn statuses(&self, text: &str) -> Vec<String> {
        let whole = statuses(&self.send(text.as_bytes(), text.len()).await);
        assert_eq!(statuses(&self.send(text.as_bytes(), 7).await), whole, "{text:?} in parts");
        whole
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn statuses(answer: &str) -> Vec<String> {
    let lines = answer.split("HTTP/1.1 ").skip(1);
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

const END: &str = "GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn usual_requests_follow_each_other_on_a_connection() {
    let front = Front::start(|_| {}).await;
    let text = "\r\nPOST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\n\n\nPOST /2 HTTP/1.1\r\nHost: a\r\n\
        Transfer-Encoding: chunked\r\n\r\n3\r\n\n\n\n\r\n1 ;a=b\r\nx\r\n0\r\nX: 1\r\n\r\n";
    assert_eq!(front.statuses(&format!("{text}{END}")).await, ["200"; 3]);
    assert_eq!(front.seen()[..3], ["POST /1", "POST /2", "GET /end"]);
    assert_eq!(front.running.server.counters().violations, 0);
}

#[tokio::test]
async fn a_lone_line_feed_is_refused_wherever_a_line_ends() {
    let front = Front::start(|_| {}).await;
    for text in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\nContent-Length: 5\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
    ] {
        assert_eq!(front.statuses(&format!("{text}{END}")).await, ["400"], "{text:?}");
    }
    assert!(front.seen().is_empty());
    // A connection is counted once it has ended, which its client may see before.
    until(|| front.running.server.counters().violations == 12).await;
}

#[tokio::test]
async fn chunks_are_as_rfc_9112_has_them() {
    let front = Front::start(|_| {}).await;
    for content in [
        "0 \r\n\r\n",
        "0\t\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3;a\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcX0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: 1\n\r\n",
        "3\r\nabc\r\n0\r\n\n",
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let text = format!("{head}{content}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n{END}");
        assert_eq!(front.statuses(&text).await, ["400"], "{content:?}");
        let seen = front.seen();
        assert!(seen.iter().all(|line| line == "POST /"), "{content:?}: {seen:?}");
    }
}

#[tokio::test]
async fn a_server_takes_no_https_in_cleartext_and_no_other_scheme() {
    let front = Front::start(|_| {}).await;
    for (target, status) in [
        ("http://a/x", "200"),
        ("HTTP://a/x", "200"),
        ("https://a/x", "421"),
        ("ftp://a/x", "400"),
        ("ws://a/x", "400"),
        ("gopher://a/x", "400"),
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(front.statuses(&text).await, [status], "{target}");
    }
    assert_eq!(front.seen(), ["GET /x"; 4]);
}

async fn status_of(client: &mut SendRequest<Bytes>, target: &str) -> StatusCode {
    fetch(client, Request::get(target).body(()).unwrap()).await.status()
}

#[tokio::test]
async fn schemes_of_http2_are_those_of_the_connection_too() {
    let front = Front::start(|_| {}).await;
    let client = &mut front.running.client().await;
    assert_eq!(status_of(client, "http://a/x").await, StatusCode::OK);
    assert_eq!(status_of(client, "https://a/x").await, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(status_of(client, "ftp://a/x").await, StatusCode::BAD_REQUEST);
    assert_eq!(front.seen(), ["GET /x"]);
}

#[tokio::test]
async fn a_trusted_gateway_may_ask_for_https_in_cleartext() {
    let front = Front::start(|config| config.trusted = vec!["127.0.0.0/8".parse().unwrap()]).await;
    let text = "GET https://a/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = front.send(text.as_bytes(), text.len()).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhttps"), "{answer}");
    assert_eq!(status_of(&mut front.running.client().await, "https://a/x").await, StatusCode::OK);
}

#[tokio::test]
async fn no_trace_reaches_an_origin() {
    let front = Front::start(|_| {}).await;
    for fields in ["", "Cookie: secret=1\r\n", "Max-Forwards: 0\r\n", "Max-Forwards: 5\r\n"] {
        let text = format!("TRACE / HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n");
        let answer = front.send(text.as_bytes(), text.len()).await;
        assert!(answer.starts_with("HTTP/1.1 501 ") && !answer.contains("secret"), "{answer}");
    }
    assert!(front.seen().is_empty());
}

#[tokio::test]
async fn paths_that_origins_resolve_to_others_are_refused() {
    let front = Front::start(|_| {}).await;
    for (path, status) in [
        ("/api/../admin", "400"),
        ("/api/./admin", "400"),
        ("/api/%2e%2E/admin", "400"),
        ("/api/..;x/admin", "400"),
        ("/api/..%2fadmin", "400"),
        ("/api/..%5Cadmin", "400"),
        ("/..", "400"),
        ("http://a/api/../admin", "400"),
        ("/api/..admin/a.b?x=/../y", "200"),
    ] {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(front.statuses(&text).await, [status], "{path}");
    }
    let client = &mut front.running.client().await;
    assert_eq!(status_of(client, "http://a/api/../admin").await, StatusCode::BAD_REQUEST);
    assert_eq!(front.seen(), ["GET /api/..admin/a.b?x=/../y"; 2]);
}

#[tokio::test]
async fn requests_have_as_many_fields_as_the_key_says() {
    for most in [None, Some(3), Some(300)] {
        let front = Front::start(|config| config.limits.fields = most.unwrap_or(config.limits.fields)).await;
        let most = most.unwrap_or(100);
        for (fields, status) in [(most, "200"), (most + 1, "431")] {
            let many: String = (2..fields).map(|number| format!("x-{number}: v\r\n")).collect();
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{many}Connection: close\r\n\r\n");
            assert_eq!(front.statuses(&text).await, [status], "{fields} of {most}");
            let mut request = Request::get("http://a/").body(()).unwrap();
            for number in 0..fields {
                request.headers_mut().append("x", number.into());
            }
            let response = fetch(&mut front.running.client().await, request).await;
            assert_eq!(response.status().as_str(), status, "{fields} of {most} over HTTP/2");
        }
        assert_eq!(front.seen().len(), 3);
    }
}

#[tokio::test]
async fn the_head_of_a_request_is_as_long_as_the_key_says() {
    for most in [1 << 10, 16 << 10, 100_000] {
        let front =
            Front::start(|config| config.limits.header_list = marcato_units::Bytes::new(most as u64)).await;
        for (length, status) in [(most, "200"), (most + 1, "431"), (3 * most, "431")] {
            let start = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: ";
            let text = format!("{start}{}\r\n\r\n", "v".repeat(length - start.len() - 4));
            for piece in [text.len(), 5000, 5000, text.len()] {
                let answer = front.send(text.as_bytes(), piece).await;
                assert_eq!(statuses(&answer), [status], "{length} of {most} in pieces of {piece}");
            }
        }
    }
}

#[tokio::test]
async fn targets_without_a_path_reach_an_origin_with_one() {
    let front = Front::start(|_| {}).await;
    for (line, seen) in [
        ("GET http://a?x=1", "GET /?x=1"),
        ("GET http://a", "GET /"),
        ("OPTIONS *", "OPTIONS *"),
        ("OPTIONS http://a/x", "OPTIONS /x"),
    ] {
        let text = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(front.statuses(&text).await, ["200"], "{line}");
        assert_eq!(front.seen(), [seen; 2]);
    }
}

/// Server whose service answers as its paths say.
async fn of_paths(grace: Duration) -> Running {
    let mut config = Config::default();
    config.limits.grace = grace;
    let service = async |request: Request<Body>| {
        let decision = request.extensions().get::<Decision>().unwrap();
        let text = format!("{:?} {}", decision.source, decision.parameters.urgency);
        let (sender, broken) = Channel::<Bytes, BoxError>::new(1);
        let body = match request.uri().path() {
            "/never" => std::future::pending().await,
            "/broken" => {
                sender.abort("broken".into());
                broken.boxed_unsync()
            }
            _ => full(&text),
        };
        Ok::<_, Infallible>(Response::new(body))
    };
    Running::start(Server::with_config(config), tower::service_fn(service)).await
}

#[test]
fn an_idle_connection_of_http1_does_not_delay_the_end() {
    run(async {
        let running = of_paths(Duration::from_secs(3600)).await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
        running.end().await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
    });
}

#[test]
fn a_request_of_http1_delays_the_end_for_the_grace_at_most() {
    run(async {
        let running = of_paths(Duration::from_millis(20)).await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        until(|| running.server.open_requests() == 1).await;
        running.end().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
}

#[test]
fn a_body_of_http1_that_fails_is_counted() {
    run(async {
        let running = of_paths(Duration::ZERO).await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        // The connection ends without the end of the response.
        let _ = stream.read_to_end(&mut Vec::new()).await;
        until(|| running.server.counters().failed == 1).await;
    });
}

#[test]
fn a_handler_of_http1_sees_the_priority_that_is_asked_for() {
    run(async {
        let running = of_paths(Duration::ZERO).await;
        for (field, seen) in
            [("priority: u=1\r\n", "Header u=1"), ("", "Default u=3"), ("priority: ?\r\n", "Default u=3")]
        {
            let response = running.http1("/", field).await;
            assert!(response.ends_with(&format!("\r\n\r\n{seen}")), "{response}");
        }
    });
}
