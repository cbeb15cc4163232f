//! The server over loopback: versions, order, flow control, resets, ends and abuse.
#![cfg(feature = "server")]

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::Reason;
use h2::client::{self, SendRequest};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use marcato_identity::{Identity, ServerIdentity, Trust};
use marcato_net::rustls::pki_types::ServerName;
use marcato_web::{Body, Config, Decision, EarlyHints, PeerAddr, Server, Source, Workers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::support::{erased, fetch, read, recording, run, until};

type Content = BoxBody<Bytes, Infallible>;

fn full(content: impl Into<Bytes>) -> Content {
    Full::new(content.into()).boxed()
}

/// Service of the tests. The path tells what it does.
async fn answer(request: Request<Body>) -> Result<Response<Content>, &'static str> {
    let path = request.uri().path().to_owned();
    let mut response = Response::new(full(""));
    if let Some(length) = path.strip_prefix("/bytes/") {
        *response.body_mut() = full(vec![b'x'; length.parse().unwrap()]);
        return Ok(response);
    }
    match path.as_str() {
        "/echo" => *response.body_mut() = full(request.into_body().collect().await.unwrap().to_bytes()),
        "/none" => *response.status_mut() = StatusCode::NO_CONTENT,
        "/none-of-five" => {
            *response.status_mut() = StatusCode::NO_CONTENT;
            response.headers_mut().insert("content-length", HeaderValue::from_static("5"));
        }
        "/peer" => {
            let peer = request.extensions().get::<PeerAddr>().unwrap().0.ip();
            let uri = request.uri().to_string();
            *response.body_mut() = full(format!("{peer} {}", uri.split('/').next().unwrap()));
        }
        "/priority" => {
            let decision = request.extensions().get::<Decision>().unwrap();
            *response.body_mut() = full(format!("{} {}", decision.parameters, decision.source));
        }
        "/hints" => {
            let mut fields = HeaderMap::new();
            fields.insert("link", HeaderValue::from_static("</a.css>; rel=preload"));
            let sent = request.extensions().get::<EarlyHints>().unwrap().send(fields);
            *response.body_mut() = full(sent.to_string());
        }
        "/trailers" => {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let frames = [Frame::data(Bytes::from_static(b"message")), Frame::trailers(trailers)];
            let frames = frames.map(Ok::<_, Infallible>);
            *response.body_mut() = StreamBody::new(tokio_stream(frames)).boxed();
        }
        "/task" => *response.body_mut() = full(tokio::task::id().to_string()),
        "/thread" => {
            // What follows runs where the runtime goes on.
            tokio::task::yield_now().await;
            *response.body_mut() = full(std::thread::current().name().unwrap_or_default().to_owned());
        }
        "/waits" => std::future::pending().await,
        "/fails" => return Err("it fails"),
        "/panics" => panic!("it panics, as the test wants"),
        "/connection" => {
            response.headers_mut().insert("connection", HeaderValue::from_static("close"));
            response.headers_mut().insert("keep-alive", HeaderValue::from_static("timeout=5"));
        }
        _ => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}

/// Stream of items that are there already.
fn tokio_stream<T, const N: usize>(items: [T; N]) -> impl futures_core::Stream<Item = T> {
    struct Items<T, const N: usize>(std::array::IntoIter<T, N>);
    impl<T, const N: usize> Unpin for Items<T, N> {}
    impl<T, const N: usize> futures_core::Stream for Items<T, N> {
        type Item = T;
        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<T>> {
            std::task::Poll::Ready(self.0.next())
        }
    }
    Items(items.into_iter())
}

/// Server that runs until it is dropped, and its address.
struct Running {
    server: Server,
    addr: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn start(server: Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let (served, service) = (server.clone(), erased(tower::service_fn(answer)));
        let task = tokio::spawn(async move {
            served.serve_until(listener, service, async { _ = ended.await }).await;
        });
        Self { server, addr, end: Some(end), task }
    }

    async fn client(&self) -> SendRequest<Bytes> {
        self.client_with(&mut client::Builder::new()).await
    }

    async fn client_with(&self, builder: &mut client::Builder) -> SendRequest<Bytes> {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let (send, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(async move { _ = connection.await });
        send.ready().await.unwrap()
    }
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://test{path}")).body(()).unwrap()
}

fn get_with(path: &str, priority: &str) -> Request<()> {
    let mut request = get(path);
    request.headers_mut().insert("priority", priority.parse().unwrap());
    request
}

async fn text(client: &mut SendRequest<Bytes>, request: Request<()>) -> String {
    String::from_utf8(read(fetch(client, request).await).await.unwrap()).unwrap()
}

#[test]
fn http2_and_http1_share_a_cleartext_port() {
    run(async {
        let running = Running::start(Server::new()).await;
        assert_eq!(text(&mut running.client().await, get("/peer")).await, "127.0.0.1 http:");
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(b"GET /peer HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(
            response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("127.0.0.1 http:"),
            "{response}"
        );
        assert_eq!(running.server.counters().connections, [1, 1, 0]);
    });
}

#[test]
fn alpn_chooses_the_version_over_tls() {
    run(async {
        let identity = Identity::self_signed("server.test").unwrap();
        let presented = ServerIdentity::new(&identity).unwrap();
        let running = Running::start(Server::new().identity(&presented).unwrap()).await;
        for protocol in ["h2", "http/1.1"] {
            let mut tls = Trust::Certificate(identity.certificate().unwrap().clone()).client_tls().unwrap();
            tls.alpn_protocols = vec![protocol.into()];
            let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
            let stream = TcpStream::connect(running.addr).await.unwrap();
            let name = ServerName::try_from("server.test").unwrap();
            let mut stream = connector.connect(name, stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
            if protocol == "h2" {
                let (client, connection) = client::handshake(stream).await.unwrap();
                tokio::spawn(async move { _ = connection.await });
                let mut client = client.ready().await.unwrap();
                assert_eq!(text(&mut client, get("/bytes/300000")).await.len(), 300_000);
            } else {
                stream
                    .write_all(b"GET /peer HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
                    .await
                    .unwrap();
                let mut response = String::new();
                stream.read_to_string(&mut response).await.unwrap();
                assert!(response.ends_with("127.0.0.1 https:"), "{response}");
            }
        }
    });
}

/// Without it, a client could not tell the end from a truncation.
#[test]
fn a_connection_over_tls_ends_with_the_end_of_tls() {
    run(async {
        let identity = Identity::self_signed("server.test").unwrap();
        let presented = ServerIdentity::new(&identity).unwrap();
        let running = Running::start(Server::new().identity(&presented).unwrap()).await;
        let mut tls = Trust::Certificate(identity.certificate().unwrap().clone()).client_tls().unwrap();
        tls.alpn_protocols = vec!["h2".into()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let stream = TcpStream::connect(running.addr).await.unwrap();
        let mut stream =
            connector.connect(ServerName::try_from("server.test").unwrap(), stream).await.unwrap();
        // RFC 9113 §6.7: a PING with a stream is an error of the connection.
        let frames = [frame(4, 0, 0, b""), frame(6, 0, 1, b"12345678")].concat();
        stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frames].concat()).await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        assert!(!all.is_empty());
    });
}

#[test]
fn a_request_slower_than_its_preface_is_still_http1() {
    run(async {
        let running = Running::start(Server::new()).await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(b"P").await.unwrap();
        stream
            .write_all(
                b"OST /echo HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi",
            )
            .await
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.ends_with("\r\n\r\nhi"), "{response}");
    });
}

/// Fields of a response, without the date.
async fn head(client: &mut SendRequest<Bytes>, method: Method, path: &str) -> (StatusCode, String, usize) {
    let mut request = get(path);
    *request.method_mut() = method;
    let response = fetch(client, request).await;
    let status = response.status();
    assert!(response.headers().contains_key("date"));
    let fields = response.headers().iter().filter(|(name, _)| *name != "date");
    let mut fields: Vec<_> =
        fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    fields.sort();
    (status, fields.join(", "), read(response).await.unwrap().len())
}

#[test]
fn heads_are_complete_and_have_no_fields_of_a_connection() {
    run(async {
        let running = Running::start(Server::new()).await;
        let client = &mut running.client().await;
        let ok = StatusCode::OK;
        assert_eq!(head(client, Method::GET, "/bytes/5").await, (ok, "content-length: 5".into(), 5));
        assert_eq!(head(client, Method::HEAD, "/bytes/5").await, (ok, "content-length: 5".into(), 0));
        assert_eq!(head(client, Method::GET, "/bytes/0").await, (ok, "content-length: 0".into(), 0));
        assert_eq!(head(client, Method::GET, "/none").await, (StatusCode::NO_CONTENT, String::new(), 0));
        assert_eq!(head(client, Method::GET, "/connection").await, (ok, "content-length: 0".into(), 0));
    });
}

#[test]
fn responses_that_have_no_content_announce_no_length() {
    run(async {
        let running = Running::start(Server::new()).await;
        let client = &mut running.client().await;
        for method in [Method::GET, Method::HEAD] {
            let expected = (StatusCode::NO_CONTENT, String::new(), 0);
            assert_eq!(head(client, method, "/none-of-five").await, expected);
        }
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream
            .write_all(b"GET /none-of-five HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 204 "), "{response}");
        assert!(!response.contains("content-length") && response.ends_with("\r\n\r\n"), "{response}");
    });
}

fn spawning(spawn: bool) -> Config {
    let mut config = Config::default();
    config.spawn = spawn;
    config
}

#[test]
fn handlers_begin_in_the_task_of_their_connection_by_default() {
    run(async {
        for spawn in [true, false] {
            let running = Running::start(Server::with_config(spawning(spawn))).await;
            let client = &mut running.client().await;
            let tasks = [text(client, get("/task")).await, text(client, get("/task")).await];
            assert_eq!(tasks[0] != tasks[1], spawn, "{tasks:?}");
        }
    });
}

#[test]
fn workers_carry_connections_and_what_their_handlers_wait_for() {
    run(async {
        let workers = Workers::new(2.try_into().unwrap()).unwrap();
        let running = Running::start(Server::new().workers(workers)).await;
        let mut clients = [running.client().await, running.client().await];
        let mut threads = Vec::new();
        for client in &mut clients {
            let thread = text(client, get("/thread")).await;
            assert_eq!(text(client, get("/thread")).await, thread, "a connection stays on its thread");
            threads.push(thread);
        }
        threads.sort();
        assert_eq!(threads, ["web-0", "web-1"]);
    });
}

#[test]
fn a_failing_handler_costs_its_own_response_only() {
    run(async {
        let (recorded, records) = recording();
        for spawn in [true, false] {
            let mut config = spawning(spawn);
            config.log = recorded.log.clone();
            let running = Running::start(Server::with_config(config)).await;
            let client = &mut running.client().await;
            for path in ["/fails", "/panics"] {
                let status = fetch(client, get(path)).await.status();
                assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{path}, spawn {spawn}");
                until(|| !records.lock().unwrap().is_empty()).await;
                let record = records.lock().unwrap().remove(0);
                assert_eq!(record.status, Some(status), "{record}, spawn {spawn}");
            }
            assert_eq!(text(client, get("/bytes/3")).await, "xxx");
            until(|| !records.lock().unwrap().is_empty()).await;
            records.lock().unwrap().clear();
        }
        let running = Running::start(Server::new()).await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream.write_all(b"GET /fails HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 500 "), "{response}");
    });
}

#[test]
fn trailers_and_early_hints_arrive() {
    run(async {
        let running = Running::start(Server::new()).await;
        let client = &mut running.client().await;
        let (mut body, _) = (fetch(client, get("/trailers")).await.into_body(), ());
        assert_eq!(body.data().await.unwrap().unwrap(), "message");
        assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");

        poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
        let (mut response, _) = client.send_request(get("/hints"), true).unwrap();
        let interim = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!(
            (interim.status(), &interim.headers()["link"]),
            (StatusCode::EARLY_HINTS, &HeaderValue::from_static("</a.css>; rel=preload"))
        );
        assert_eq!(read(response.await.unwrap()).await.unwrap(), b"true");
    });
}

#[test]
fn uploads_pass_windows_of_both_sizes() {
    run(async {
        let running = Running::start(Server::new()).await;
        let client = &mut running.client().await;
        let content = Bytes::from((0..3_000_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
        let request = Request::post("http://test/echo").body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        let mut left = content.clone();
        let upload = async {
            while !left.is_empty() {
                stream.reserve_capacity(left.len().min(100_000));
                let capacity = poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
                let part = left.split_to(capacity.min(left.len()));
                stream.send_data(part, left.is_empty()).unwrap();
            }
        };
        let download = async { read(response.await.unwrap()).await.unwrap() };
        let ((), echoed) = tokio::join!(upload, download);
        assert!(echoed == content, "{} of {} bytes", echoed.len(), content.len());
    });
}

#[test]
fn urgent_responses_overtake_what_has_not_been_granted() {
    run(async {
        let running = Running::start(Server::new()).await;
        let mut builder = client::Builder::new();
        // Streams have credit, the connection has little: it is the bottleneck.
        builder.initial_window_size(10_000_000).initial_connection_window_size(65_535);
        let client = &mut running.client_with(&mut builder).await;
        let mut photo = fetch(client, get_with("/bytes/2000000", "u=5")).await.into_body();
        let mut style = fetch(client, get_with("/bytes/25000", "u=0")).await.into_body();
        let (mut photo_bytes, mut style_bytes) = (0, 0);
        while style_bytes < 25_000 {
            tokio::select! {
                biased;
                Some(data) = style.data() => {
                    let data = data.unwrap();
                    style.flow_control().release_capacity(data.len()).unwrap();
                    style_bytes += data.len();
                }
                Some(data) = photo.data() => {
                    let data = data.unwrap();
                    photo.flow_control().release_capacity(data.len()).unwrap();
                    photo_bytes += data.len();
                }
            }
        }
        // The window that was full of it: nothing overtakes what has been sent. And a frame that this
        // task can read when the connection's has delivered it between the two branches.
        assert!(photo_bytes <= 65_535 + 16_384, "{photo_bytes} bytes of the photo came first");
        while let Some(data) = photo.data().await {
            let data = data.unwrap();
            photo.flow_control().release_capacity(data.len()).unwrap();
            photo_bytes += data.len();
        }
        assert_eq!(photo_bytes, 2_000_000);
    });
}

#[test]
fn a_slow_reader_of_one_response_delays_no_other() {
    run(async {
        let running = Running::start(Server::new()).await;
        let mut builder = client::Builder::new();
        builder.initial_window_size(1000).initial_connection_window_size(10_000_000);
        let client = &mut running.client_with(&mut builder).await;
        // The urgent one is not read at all.
        let slow = fetch(client, get_with("/bytes/100000", "u=0")).await;
        for _ in 0..3 {
            assert_eq!(text(client, get_with("/bytes/50000", "u=7")).await.len(), 50_000);
        }
        assert_eq!(read(slow).await.unwrap().len(), 100_000);
    });
}

#[test]
fn reset_responses_return_everything() {
    run(async {
        let running = Running::start(Server::new()).await;
        let mut builder = client::Builder::new();
        builder.initial_window_size(50_000).initial_connection_window_size(200_000);
        let client = &mut running.client_with(&mut builder).await;
        for round in 0..50 {
            let mut response = fetch(client, get("/bytes/1000000")).await;
            if round % 2 == 0 {
                let data = response.body_mut().data().await.unwrap().unwrap();
                response.body_mut().flow_control().release_capacity(data.len()).unwrap();
            }
            // Dropping it resets the stream.
            drop(response);
        }
        assert_eq!(text(client, get("/bytes/700000")).await.len(), 700_000);
        assert!(running.server.counters().cancelled >= 45, "{:?}", running.server.counters());
    });
}

#[test]
fn handlers_see_the_decision_and_the_log_has_it() {
    run(async {
        let (config, records) = recording();
        let running = Running::start(Server::with_config(config)).await;
        let client = &mut running.client().await;
        let mut image = get("/priority");
        image.headers_mut().insert("sec-fetch-dest", HeaderValue::from_static("image"));
        assert_eq!(text(client, image).await, "u=2, i destination");
        assert_eq!(text(client, get_with("/priority", "u=4")).await, "u=4 header");
        assert_eq!(text(client, get("/priority")).await, "u=3 default");
        drop(running.end);
        running.task.await.unwrap();
        let records = records.lock().unwrap();
        let lines: Vec<String> = records.iter().map(ToString::to_string).collect();
        assert_eq!(records.len(), 3, "{lines:?}");
        assert_eq!(records[1].decision.source, Source::Header);
        assert!(records.iter().all(|record| record.complete && record.waited.is_some()), "{lines:?}");
        assert!(
            lines[1].contains("status=200 bytes=10 priority=\"u=4\" source=header level=P3"),
            "{lines:?}"
        );
    });
}

#[test]
fn prefetches_of_clients_that_save_data_are_declined_if_told_to() {
    run(async {
        let mut config = Config::default();
        config.guess = toml::from_str("decline-prefetch = true").unwrap();
        let running = Running::start(Server::with_config(config)).await;
        let client = &mut running.client().await;
        let mut request = get("/bytes/100");
        request.headers_mut().insert("sec-purpose", HeaderValue::from_static("prefetch"));
        assert_eq!(fetch(client, request.clone()).await.status(), StatusCode::OK);
        request.headers_mut().insert("save-data", HeaderValue::from_static("on"));
        let response = fetch(client, request).await;
        assert_eq!(
            (response.status(), &response.headers()["cache-control"]),
            (StatusCode::SERVICE_UNAVAILABLE, &HeaderValue::from_static("no-store"))
        );
        assert_eq!(running.server.counters().declined, 1);
    });
}

#[test]
fn the_end_of_the_server_finishes_open_requests() {
    run(async {
        let mut running = Running::start(Server::new()).await;
        let mut builder = client::Builder::new();
        builder.initial_window_size(50_000);
        let client = &mut running.client_with(&mut builder).await;
        let open = fetch(client, get("/bytes/1000000")).await;
        drop(running.end.take());
        // It accepts no more.
        while TcpStream::connect(running.addr).await.is_ok() {}
        assert_eq!(read(open).await.unwrap().len(), 1_000_000);
        running.task.await.unwrap();
    });
}

#[test]
fn connections_have_a_limit() {
    run(async {
        let mut config = Config::default();
        config.limits.connections = 1;
        let running = Running::start(Server::with_config(config)).await;
        let mut first = running.client().await;
        assert_eq!(text(&mut first, get("/bytes/1")).await, "x");
        let mut second = TcpStream::connect(running.addr).await.unwrap();
        assert_eq!(second.read(&mut [0; 10]).await.unwrap_or(0), 0);
        let counters = running.server.counters();
        assert_eq!((counters.crowded, running.server.open_connections()), (1, 1));
        assert_eq!(text(&mut first, get("/bytes/1")).await, "x");
    });
}

/// Bytes of a frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends frames after the preface, and returns the code of GOAWAY with which the server closes.
async fn goaway(running: &Running, frames: &[u8]) -> Option<Reason> {
    let mut stream = TcpStream::connect(running.addr).await.unwrap();
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, b""), frames].concat();
    // The server may close before it has read everything.
    let _ = stream.write_all(&preface).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let mut rest = answer.as_slice();
    while rest.len() >= 9 {
        let len = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        if rest[3] == 7 {
            return Some(u32::from_be_bytes(rest[13..17].try_into().unwrap()).into());
        }
        rest = &rest[(9 + len).min(rest.len())..];
    }
    None
}

#[test]
fn clients_that_violate_the_protocol_by_signals_are_told_so() {
    run(async {
        let running = Running::start(Server::new()).await;
        // PRIORITY_UPDATE that is too short, that names stream 0, and of too many streams.
        let short = frame(0x10, 0, 0, b"\0\0");
        assert_eq!(goaway(&running, &short).await, Some(Reason::FRAME_SIZE_ERROR));
        let zero = frame(0x10, 0, 0, b"\0\0\0\0u=1");
        assert_eq!(goaway(&running, &zero).await, Some(Reason::PROTOCOL_ERROR));
        let many: Vec<u8> = (0..200_u32)
            .flat_map(|n| frame(0x10, 0, 0, &[&(2 * n + 1).to_be_bytes(), b"u=1".as_slice()].concat()))
            .collect();
        assert_eq!(goaway(&running, &many).await, Some(Reason::PROTOCOL_ERROR));
        let flood: Vec<u8> = (0..5000).flat_map(|_| frame(0x2, 0, 1, b"\0\0\0\0\x10")).collect();
        assert_eq!(goaway(&running, &flood).await, Some(Reason::ENHANCE_YOUR_CALM));
        assert_eq!(running.server.counters().violations, 4);
    });
}

/// Fields of a request for `/bytes/1`, compressed (RFC 7541): three of the static table, and a path.
const FIELDS: &[u8] = b"\x82\x86\x41\x04test\x44\x08/bytes/1";

#[test]
fn floods_of_requests_and_resets_end_the_connection() {
    run(async {
        let running = Running::start(Server::new()).await;
        let pairs = |count: u32| -> Vec<u8> {
            let pair =
                |n: u32| [frame(1, 5, 2 * n + 1, FIELDS), frame(3, 0, 2 * n + 1, &[0, 0, 0, 8])].concat();
            (0..count).flat_map(pair).collect()
        };
        assert_eq!(goaway(&running, &pairs(20_000)).await, Some(Reason::ENHANCE_YOUR_CALM));
        // Others go on.
        assert_eq!(text(&mut running.client().await, get("/bytes/3")).await, "xxx");
    });
}

#[test]
fn resets_that_are_spread_out_end_the_connection_as_well() {
    run(async {
        let running = Running::start(Server::new()).await;
        let mut client = running.client().await;
        let mut sent = 0_u64;
        // Each response has begun before it is reset, so the library counts none of them.
        loop {
            if poll_fn(|cx| client.poll_ready(cx)).await.is_err() {
                break;
            }
            let Ok((response, _)) = client.send_request(get("/bytes/10000000"), true) else { break };
            let Ok(response) = response.await else { break };
            drop(response);
            sent += 1;
            assert!(sent < 2000, "{:?}", running.server.counters());
        }
        assert!((450..700).contains(&sent), "{sent}");
        assert_eq!(running.server.counters().violations, 1);
    });
}

#[test]
fn a_request_that_is_reset_before_its_response_ends_its_handler() {
    run(async {
        let running = Running::start(Server::new()).await;
        let mut client = running.client().await;
        let asked = client.send_request(get("/waits"), true).unwrap();
        while running.server.open_requests() == 0 {
            tokio::task::yield_now().await;
        }
        drop(asked);
        while running.server.open_requests() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(running.server.counters().cancelled, 1);
        assert_eq!(text(&mut client, get("/bytes/3")).await, "xxx");
    });
}

#[test]
fn responses_without_content_are_recorded_as_complete() {
    run(async {
        let (config, records) = recording();
        let running = Running::start(Server::with_config(config)).await;
        let client = &mut running.client().await;
        for path in ["/none", "/none-of-five", "/bytes/0"] {
            fetch(client, get(path)).await;
        }
        drop(running.end);
        running.task.await.unwrap();
        let complete: Vec<bool> = records.lock().unwrap().iter().map(|record| record.complete).collect();
        assert_eq!(complete, [true; 3]);
    });
}

#[test]
fn clients_that_take_responses_may_reset_more_of_them() {
    run(async {
        let running = Running::start(Server::new()).await;
        let mut client = running.client().await;
        // Four more for each.
        for _ in 0..100 {
            assert_eq!(text(&mut client, get("/bytes/1")).await, "x");
        }
        for _ in 0..700 {
            drop(fetch(&mut client, get("/bytes/10000000")).await);
        }
        assert_eq!(text(&mut client, get("/bytes/1")).await, "x");
        assert_eq!(running.server.counters().violations, 0);
    });
}

#[test]
fn endless_continuations_end_the_connection() {
    run(async {
        let running = Running::start(Server::new()).await;
        let mut frames = frame(1, 1, 1, FIELDS);
        for number in 0..5000 {
            // A field that is not indexed: "x-00001: y".
            let field = [b"\x00\x07".as_slice(), format!("x-{number:05}").as_bytes(), b"\x01y"].concat();
            frames.extend(frame(9, 0, 1, &field));
        }
        let reason = goaway(&running, &frames).await;
        assert!(reason.is_some_and(|reason| reason != Reason::NO_ERROR), "{reason:?}");
        assert_eq!(text(&mut running.client().await, get("/bytes/3")).await, "xxx");
    });
}

#[test]
fn a_router_of_axum_fits_as_it_is() {
    run(async {
        let router = axum::Router::new().route("/hello", axum::routing::get(async || "from axum"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move { Server::new().serve(listener, router).await });
        let (client, connection) = client::handshake(TcpStream::connect(addr).await.unwrap()).await.unwrap();
        tokio::spawn(async move { _ = connection.await });
        let mut client = client.ready().await.unwrap();
        assert_eq!(text(&mut client, get("/hello")).await, "from axum");
    });
}
