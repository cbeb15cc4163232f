//! HTTP/3 over loopback, by the client of another library: requests, order, ends and abuse.
#![cfg(all(feature = "http3", feature = "proxy", feature = "axum"))]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::Code;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use marcato_identity::{Identity, ServerIdentity, Trust};
use marcato_web::files::{Files, FilesConfig};
use marcato_web::proxy::{Proxy, ProxyConfig};
use marcato_web::{Body, Config, Decision, EarlyHints, PeerAddr, Record, Server, ServerName};
use quinn::crypto::rustls::QuicClientConfig;
use tokio::sync::oneshot;

use crate::proxy::{Speaks, origin};
use crate::support::{Pieces, Running, recording, run, until};

type Content = BoxBody<Bytes, &'static str>;
type Stream = RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

fn full(content: impl Into<Bytes>) -> Content {
    Full::new(content.into()).map_err(never).boxed()
}

fn never(error: Infallible) -> &'static str {
    match error {}
}

/// Service of the tests. The path tells what it does.
async fn answer(request: Request<Body>) -> Result<Response<Content>, &'static str> {
    let path = request.uri().path().to_owned();
    let mut response = Response::new(full(""));
    if let Some(length) = path.strip_prefix("/bytes/") {
        let pieces = Pieces::holding(length.parse().unwrap(), ());
        *response.body_mut() = BodyExt::map_err(StreamBody::new(pieces), never).boxed();
        return Ok(response);
    }
    match path.as_str() {
        "/hello" => *response.body_mut() = full("hello"),
        "/echo" => {
            let body = request.into_body().collect().await.map_err(|_| "broken body")?;
            let trailers = body.trailers().map(|trailers| format!("{trailers:?}")).unwrap_or_default();
            let text = format!("{}{trailers}", String::from_utf8_lossy(&body.to_bytes()));
            *response.body_mut() = full(text);
        }
        "/none" => *response.status_mut() = StatusCode::NO_CONTENT,
        "/who" => {
            let extensions = request.extensions();
            let peer = extensions.get::<PeerAddr>().unwrap().0.ip();
            let name = extensions.get::<ServerName>().map(|name| name.0.to_string()).unwrap_or_default();
            let decision = extensions.get::<Decision>().unwrap();
            let (parameters, source) = (decision.parameters, decision.source);
            *response.body_mut() =
                full(format!("{peer} {name} {:?} {parameters} {source}", request.version()));
        }
        "/hints" => {
            let mut fields = HeaderMap::new();
            fields.insert("link", HeaderValue::from_static("</a.css>; rel=preload"));
            let sent = request.extensions().get::<EarlyHints>().unwrap().send(fields);
            *response.body_mut() = full(sent.to_string());
        }
        "/trailers" => {
            let mut trailers = HeaderMap::new();
            trailers.insert("checksum", HeaderValue::from_static("7"));
            let frames = [Ok(Frame::data(Bytes::from_static(b"content"))), Ok(Frame::trailers(trailers))];
            *response.body_mut() = StreamBody::new(futures(frames)).boxed();
        }
        "/first" => {
            response.headers_mut().insert("priority", HeaderValue::from_static("u=0"));
            *response.body_mut() = full(vec![b'f'; 150_000]);
        }
        "/fails" => return Err("on purpose"),
        "/panics" => panic!("on purpose"),
        "/breaks" => {
            let frames = [Ok(Frame::data(Bytes::from_static(b"begin"))), Err("on purpose")];
            *response.body_mut() = StreamBody::new(futures(frames)).boxed();
        }
        "/field" => _ = response.headers_mut().insert("connection", HeaderValue::from_static("close")),
        _ => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}

/// Stream of frames that are there already.
fn futures<const N: usize>(frames: [Result<Frame<Bytes>, &'static str>; N]) -> Ready {
    Ready(frames.into_iter().rev().collect())
}

struct Ready(Vec<Result<Frame<Bytes>, &'static str>>);

impl futures_core::Stream for Ready {
    type Item = Result<Frame<Bytes>, &'static str>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.pop())
    }
}

/// Server of HTTP/3, and what its clients need.
struct Served {
    running: Running,
    trust: Trust,
}

impl Served {
    async fn start(config: Config) -> Self {
        Self::of(config, tower::service_fn(answer)).await
    }

    async fn of(config: Config, service: impl marcato_web::WebService) -> Self {
        let identity = Identity::self_signed("localhost").unwrap();
        let trust = Trust::Certificate(identity.certificate().unwrap().clone());
        let server = Server::with_config(config).identity(&ServerIdentity::new(&identity).unwrap()).unwrap();
        Self { running: Running::start(server, service).await, trust }
    }

    /// Connects with windows of these sizes, for each stream and for all.
    async fn quic(&self, window: u32, all: u32) -> quinn::Connection {
        let mut tls = self.trust.client_tls().unwrap();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(window.into()).receive_window(all.into());
        config.transport_config(Arc::new(transport));
        let own = if self.running.addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let endpoint = quinn::Endpoint::client(own.parse().unwrap()).unwrap();
        endpoint.connect_with(config, self.running.addr, "localhost").unwrap().await.unwrap()
    }

    async fn client(&self) -> Client {
        Client::over(self.quic(1 << 20, 8 << 20).await).await
    }
}

#[test]
fn clients_of_both_families_reach_a_listener_of_all_addresses() {
    run(async {
        let identity = Identity::self_signed("localhost").unwrap();
        let trust = Trust::Certificate(identity.certificate().unwrap().clone());
        let server = Server::new().identity(&ServerIdentity::new(&identity).unwrap()).unwrap();
        let listener = tokio::net::TcpListener::bind("[::]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let running = Running::start_at(listener, server, tower::service_fn(answer)).await;
        let mut served = Served { running, trust };
        // Any address of the machine: the answer comes from the one that was asked.
        for address in ["127.0.0.1", "127.0.0.2", "::1"] {
            served.running.addr = SocketAddr::new(address.parse().unwrap(), port);
            assert_eq!(served.client().await.text("/hello").await, "hello", "{address}");
        }
    });
}

/// Client of the library.
struct Client {
    requests: SendRequest<h3_quinn::OpenStreams, Bytes>,
    connection: quinn::Connection,
    driver: tokio::task::JoinHandle<h3::error::ConnectionError>,
}

impl Client {
    async fn over(connection: quinn::Connection) -> Self {
        let transport = h3_quinn::Connection::new(connection.clone());
        let (mut driver, requests) = h3::client::new(transport).await.unwrap();
        let driver = tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        Self { requests, connection, driver }
    }

    async fn ask(&mut self, request: Request<()>) -> Stream {
        let mut stream = self.requests.send_request(request).await.unwrap();
        // A server that has answered already may stop the rest of the request, also its end (RFC 9114 §4.1).
        let _ = stream.finish().await;
        stream
    }

    async fn fetch(&mut self, path: &str) -> (Response<()>, Vec<u8>) {
        let mut stream = self.ask(get(path)).await;
        (stream.recv_response().await.unwrap(), read(&mut stream).await.unwrap())
    }

    async fn text(&mut self, path: &str) -> String {
        String::from_utf8(self.fetch(path).await.1).unwrap()
    }
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("https://localhost{path}")).body(()).unwrap()
}

fn get_with(path: &str, name: &'static str, value: &'static str) -> Request<()> {
    let mut request = get(path);
    request.headers_mut().insert(name, HeaderValue::from_static(value));
    request
}

async fn read(stream: &mut Stream) -> Result<Vec<u8>, h3::error::StreamError> {
    let mut content = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        let len = data.remaining();
        content.extend_from_slice(&data.copy_to_bytes(len));
    }
    Ok(content)
}

/// Bytes of a request for a path, as a client without a library sends them: HEADERS, with the fields of the static table
/// and literals alone (RFC 9204 §4.5).
fn raw_request(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    raw_method(17, path, fields)
}

/// Bytes of a request as [`raw_request`] has them, with the method of this row of the static table.
fn raw_method(method: u8, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0, 0xc0 | method, 0xc0 | 23, 0x50, 9];
    section.extend_from_slice(b"localhost");
    section.push(0x51);
    section.extend(literal(7, 0, path));
    for (name, value) in fields {
        section.extend(literal(3, 0x20, name));
        section.extend(literal(7, 0, value));
    }
    frame(1, &section)
}

/// String with a length of as many bits (RFC 9204 §4.1.2).
fn literal(bits: u32, flags: u8, text: &str) -> Vec<u8> {
    let most = (1_usize << bits) - 1;
    let mut bytes = Vec::new();
    if text.len() < most {
        bytes.push(flags | u8::try_from(text.len()).unwrap());
    } else {
        bytes.push(flags | u8::try_from(most).unwrap());
        let mut left = text.len() - most;
        while left >= 128 {
            bytes.push(u8::try_from(left % 128).unwrap() | 128);
            left /= 128;
        }
        bytes.push(u8::try_from(left).unwrap());
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

fn varint(value: usize) -> Vec<u8> {
    match value {
        0..64 => vec![u8::try_from(value).unwrap()],
        64..16_384 => (u16::try_from(value).unwrap() | 0x4000).to_be_bytes().to_vec(),
        _ => (u32::try_from(value).unwrap() | 0x8000_0000).to_be_bytes().to_vec(),
    }
}

fn frame(kind: usize, payload: &[u8]) -> Vec<u8> {
    [varint(kind), varint(payload.len()), payload.to_vec()].concat()
}

/// PRIORITY_UPDATE of a request (RFC 9218 §7.2).
fn update(stream: u8, value: &str) -> Vec<u8> {
    frame(0xf0700, &[&[stream], value.as_bytes()].concat())
}

/// Sends the head of a control stream (RFC 9114 §6.2.1).
async fn control(connection: &quinn::Connection) -> quinn::SendStream {
    let mut control = connection.open_uni().await.unwrap();
    control.write_all(&[0, 4, 0]).await.unwrap();
    control
}

async fn raw_ask(connection: &quinn::Connection, request: &[u8]) -> (quinn::SendStream, quinn::RecvStream) {
    let (mut send, recv) = connection.open_bi().await.unwrap();
    send.write_all(request).await.unwrap();
    let _ = send.finish();
    (send, recv)
}

/// Code with which the server ends a connection.
async fn end_code(connection: &quinn::Connection) -> u64 {
    match connection.closed().await {
        quinn::ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
        other => panic!("{other}"),
    }
}

fn ended(records: &Arc<std::sync::Mutex<Vec<Record>>>, count: usize) -> bool {
    records.lock().unwrap().len() >= count
}

#[test]
fn the_other_versions_tell_of_http3_and_it_is_there() {
    run(async {
        let served = Served::start(Config::default()).await;
        let mut tls = served.trust.client_tls().unwrap();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = tokio::net::TcpStream::connect(served.running.addr).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(
            &mut stream,
            b"GET /hello HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        )
        .await
        .unwrap();
        let mut response = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut response).await.unwrap();
        let told = format!("alt-svc: h3=\":{}\"; ma=86400\r\n", served.running.addr.port());
        assert!(response.contains(&told), "{response}");

        let mut client = served.client().await;
        let (head, content) = client.fetch("/hello").await;
        assert_eq!((head.status(), head.version()), (StatusCode::OK, Version::HTTP_3));
        assert_eq!(content, b"hello");
        assert_eq!(&head.headers()["content-length"], "5");
        assert!(head.headers().contains_key("date") && !head.headers().contains_key("alt-svc"));
        assert_eq!(served.running.server.counters().connections, [0, 1, 1]);
    });
}

#[test]
fn http3_is_left_out_if_it_is_not_wanted() {
    run(async {
        let mut config = Config::default();
        config.http3 = false;
        let served = Served::start(config).await;
        // Its port is free.
        std::net::UdpSocket::bind(served.running.addr).unwrap();
    });
}

#[test]
fn a_handler_knows_its_client_and_the_priority() {
    run(async {
        let served = Served::start(Config::default()).await;
        let mut client = served.client().await;
        assert_eq!(client.text("/who").await, "127.0.0.1 localhost HTTP/3.0 u=3 default");
        let mut stream = client.ask(get_with("/who", "priority", "u=1, i")).await;
        stream.recv_response().await.unwrap();
        let told = String::from_utf8(read(&mut stream).await.unwrap()).unwrap();
        assert_eq!(told, "127.0.0.1 localhost HTTP/3.0 u=1, i header");
    });
}

#[test]
fn bodies_and_trailers_pass_both_ways() {
    run(async {
        let served = Served::start(Config::default()).await;
        let mut client = served.client().await;
        let mut stream = client.requests.send_request(get("/echo")).await.unwrap();
        // Far more than the windows of the server.
        let sent = vec![b'u'; 3_000_000];
        for piece in sent.chunks(50_000) {
            stream.send_data(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", HeaderValue::from_static("9"));
        stream.send_trailers(trailers).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 200);
        let content = read(&mut stream).await.unwrap();
        assert_eq!(content.len(), sent.len() + "{\"checksum\": \"9\"}".len());
        assert!(content.starts_with(&sent) && content.ends_with(b"{\"checksum\": \"9\"}"));

        let mut stream = client.ask(get("/trailers")).await;
        stream.recv_response().await.unwrap();
        assert_eq!(read(&mut stream).await.unwrap(), b"content");
        assert_eq!(stream.recv_trailers().await.unwrap().unwrap()["checksum"], "7");
    });
}

#[test]
fn hints_come_before_the_response() {
    run(async {
        let served = Served::start(Config::default()).await;
        let mut client = served.client().await;
        let mut stream = client.ask(get("/hints")).await;
        let hints = stream.recv_response().await.unwrap();
        assert_eq!(hints.status(), StatusCode::EARLY_HINTS);
        assert_eq!(&hints.headers()["link"], "</a.css>; rel=preload");
        assert_eq!(stream.recv_response().await.unwrap().status(), 200);
        assert_eq!(read(&mut stream).await.unwrap(), b"true");
    });
}

#[test]
fn heads_without_content_end_their_stream() {
    run(async {
        let served = Served::start(Config::default()).await;
        let mut client = served.client().await;
        let (head, content) = client.fetch("/none").await;
        assert_eq!((head.status(), content.len()), (StatusCode::NO_CONTENT, 0));
        assert!(!head.headers().contains_key("content-length"));
        let mut request = get("/hello");
        *request.method_mut() = Method::HEAD;
        let mut stream = client.ask(request).await;
        let head = stream.recv_response().await.unwrap();
        assert_eq!(&head.headers()["content-length"], "5");
        assert_eq!(read(&mut stream).await.unwrap(), b"");
        // A field of a connection would make the response malformed.
        assert!(!client.fetch("/field").await.0.headers().contains_key("connection"));
    });
}

#[test]
fn handlers_that_fail_end_their_own_stream_alone() {
    run(async {
        let (config, records) = recording();
        let served = Served::start(config).await;
        let mut client = served.client().await;
        for path in ["/fails", "/panics"] {
            assert_eq!(client.fetch(path).await.0.status(), StatusCode::INTERNAL_SERVER_ERROR, "{path}");
        }
        let mut stream = client.ask(get("/breaks")).await;
        let head = stream.recv_response().await;
        let error = match head {
            Ok(_) => read(&mut stream).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(format!("{error:?}").contains("H3_INTERNAL_ERROR"), "{error:?}");
        assert_eq!(client.text("/hello").await, "hello");
        until(|| ended(&records, 4)).await;
        let broken = |record: &&Record| !record.complete;
        let broken: Vec<String> = records
            .lock()
            .unwrap()
            .iter()
            .filter(broken)
            .map(|record| record.uri.path().to_owned())
            .collect();
        assert_eq!(broken, ["/breaks"]);
    });
}

#[test]
fn urgent_responses_pass_what_was_asked_before() {
    run(async {
        let served = Served::start(Config::default()).await;
        // One window for all streams: whoever has the turn takes all of it.
        let client = served.quic(50_000_000, 200_000).await;
        let _control = control(&client).await;
        let bulk = raw_ask(&client, &raw_request("/bytes/3000000", &[("priority", "u=6")])).await;
        let mut bulk = bulk.1;
        let mut first = [0; 10];
        bulk.read_exact(&mut first).await.unwrap();
        let urgent = raw_ask(&client, &raw_request("/bytes/150000", &[("priority", "u=0")])).await;
        let urgent = tokio::spawn(async move { drain(urgent.1).await });
        let mut before = first.len();
        // The window that opens is the urgent response's, until that is over.
        while !urgent.is_finished() {
            let chunk = bulk.read_chunk(1000, true).await.unwrap().unwrap();
            before += chunk.bytes.len();
        }
        assert!(urgent.await.unwrap() >= 150_000);
        assert!(before < 2_000_000, "{before} bytes of the background came first");
    });
}

/// Reads a stream to its end. Returns the number of bytes.
async fn drain(mut stream: quinn::RecvStream) -> usize {
    let mut read = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await.unwrap() {
        read += chunk.bytes.len();
    }
    read
}

#[test]
fn updates_before_and_after_their_request_change_the_order() {
    run(async {
        let (config, records) = recording();
        let served = Served::start(config).await;
        let client = served.quic(1 << 20, 8 << 20).await;
        let mut control = control(&client).await;
        // The first comes before its request, as browsers send it.
        control.write_all(&update(0, "u=5, i")).await.unwrap();
        until(|| client.stats().frame_tx.stream > 0).await;
        let held = raw_ask(&client, &raw_request("/bytes/5000000", &[("priority", "u=2")])).await.1;
        control.write_all(&update(0, "u=7")).await.unwrap();
        drop((drain(held).await, control));
        until(|| ended(&records, 1)).await;
        let record = records.lock().unwrap()[0].clone();
        assert_eq!(
            (record.decision.parameters.to_string(), record.decision.source.to_string()),
            ("u=7".into(), "update".into())
        );
    });
}

#[test]
fn wrong_updates_end_the_connection() {
    run(async {
        let served = Served::start(Config::default()).await;
        for (payload, code) in [(&b"\x02u=1"[..], 0x108), (b"", 0x106)] {
            let client = served.quic(1 << 20, 8 << 20).await;
            let mut control = control(&client).await;
            control.write_all(&frame(0xf0700, payload)).await.unwrap();
            assert_eq!(end_code(&client).await, code);
        }
        assert_eq!(served.running.server.counters().violations, 2);
    });
}

#[test]
fn malformed_requests_are_refused_one_by_one() {
    run(async {
        let served = Served::start(Config::default()).await;
        let client = served.quic(1 << 20, 8 << 20).await;
        let _control = control(&client).await;
        let post =
            |fields: &[(&str, &str)], body: &[u8]| [raw_method(20, "/echo", fields), frame(0, body)].concat();
        let cases = [
            raw_request("/hello", &[("connection", "close")]),
            raw_request("/hello", &[("transfer-encoding", "chunked")]),
            raw_request("/hello", &[("te", "gzip")]),
            post(&[("content-length", "3")], b"four"),
        ];
        let count = cases.len() as u64;
        for case in cases {
            let mut response = raw_ask(&client, &case).await.1;
            let error = response.read_to_end(1000).await.unwrap_err();
            let quinn::ReadToEndError::Read(quinn::ReadError::Reset(code)) = error else { panic!("{error}") };
            assert_eq!(code.into_inner(), Code::H3_MESSAGE_ERROR.value());
        }
        assert_eq!(served.running.server.counters().malformed, count);
        // A body that turns out shorter is the handler's to notice.
        let (mut send, response) = client.open_bi().await.unwrap();
        send.write_all(&raw_method(20, "/echo", &[("content-length", "100")])).await.unwrap();
        until(|| served.running.server.open_requests() == 1).await;
        send.write_all(&frame(0, b"less")).await.unwrap();
        send.finish().unwrap();
        assert!(drain(response).await > 0);
        assert_eq!((served.running.server.counters().malformed, client.close_reason()), (count, None));
    });
}

#[test]
fn very_many_fields_are_refused_and_harm_nobody() {
    run(async {
        let served = Served::start(Config::default()).await;
        let client = served.quic(1 << 20, 8 << 20).await;
        let _control = control(&client).await;
        // The library would reserve memory for as many fields as there are lines of one byte, and panic.
        let section = [vec![0, 0, 0xc0 | 17, 0xc0 | 23], vec![0xc0 | 2; 24_577]].concat();
        let response = raw_ask(&client, &frame(1, &section)).await.1;
        let mut response = response;
        let _ = response.read_to_end(10_000).await;
        assert_eq!(served.running.server.counters().requests, 0);
        let mut another = served.client().await;
        assert_eq!(another.text("/hello").await, "hello");
        // Fewer, and still more than allowed.
        let fields = vec![("a", "b"); 120];
        let mut response = raw_ask(&client, &raw_request("/hello", &fields)).await.1;
        let head = response.read_to_end(10_000).await.unwrap();
        assert!(head.windows(3).any(|part| part == b"431") || head.contains(&(0xc0 | 0x3f)), "{head:?}");
    });
}

#[test]
fn a_response_that_nobody_takes_is_reset_and_its_handler_ends() {
    run(async {
        let (mut config, records) = recording();
        config.limits.stall = Duration::from_millis(200);
        let served = Served::start(config).await;
        let client = served.quic(10_000, 8 << 20).await;
        let _control = control(&client).await;
        let stuck = raw_ask(&client, &raw_request("/bytes/3000000", &[])).await.1;
        // So is one that waits for the window of the whole connection.
        let crowded = served.quic(1 << 20, 10_000).await;
        let _crowded_control = self::control(&crowded).await;
        let _kept = raw_ask(&crowded, &raw_request("/bytes/3000000", &[])).await;
        // Others go on meanwhile.
        let other = raw_ask(&client, &raw_request("/hello", &[])).await.1;
        assert!(drain(other).await > 5);
        until(|| served.running.server.counters().stalled == 2).await;
        until(|| ended(&records, 3)).await;
        assert!(records.lock().unwrap().iter().any(|record| !record.complete));
        let mut stuck = stuck;
        let error = stuck.read_to_end(usize::MAX).await.unwrap_err();
        assert!(matches!(error, quinn::ReadToEndError::Read(quinn::ReadError::Reset(_))), "{error}");
    });
}

#[test]
fn a_client_that_goes_away_ends_its_handlers() {
    run(async {
        let (config, records) = recording();
        let served = Served::start(config).await;
        let client = served.quic(10_000, 8 << 20).await;
        let _control = control(&client).await;
        // One response is stopped, another lost with the connection.
        let mut stopped = raw_ask(&client, &raw_request("/bytes/3000000", &[])).await.1;
        let mut first = [0; 10];
        stopped.read_exact(&mut first).await.unwrap();
        stopped.stop(0x10c_u32.into()).unwrap();
        until(|| served.running.server.counters().cancelled == 1).await;
        let mut lost = raw_ask(&client, &raw_request("/bytes/3000000", &[])).await.1;
        lost.read_exact(&mut first).await.unwrap();
        client.close(0x10c_u32.into(), b"");
        until(|| ended(&records, 2)).await;
        assert!(records.lock().unwrap().iter().all(|record| !record.complete));
        assert_eq!(served.running.end().await.open_requests(), 0);
    });
}

#[test]
fn a_client_that_only_resets_is_disconnected() {
    run(async {
        let served = Served::start(Config::default()).await;
        let client = served.quic(1000, 8 << 20).await;
        let _control = control(&client).await;
        let flood = async {
            loop {
                let (mut send, mut recv) = client.open_bi().await?;
                let _ = send.write_all(&raw_request("/bytes/100000", &[])).await;
                let _ = recv.stop(0x10c_u32.into());
                let _ = send.finish();
            }
        };
        let end: Result<(), quinn::ConnectionError> = flood.await;
        assert!(end.is_err());
        assert_eq!(end_code(&client).await, 0x107);
        assert_eq!(served.running.server.counters().violations, 1);
    });
}

#[test]
fn open_requests_are_finished_when_the_server_ends() {
    run(async {
        let (asked, came) = oneshot::channel::<()>();
        let (go, wait) = oneshot::channel::<()>();
        let parts = Arc::new(std::sync::Mutex::new(Some((asked, wait))));
        let service = tower::service_fn(move |_: Request<Body>| {
            let parts = parts.lock().unwrap().take();
            async move {
                if let Some((asked, wait)) = parts {
                    let _ = asked.send(());
                    let _ = wait.await;
                }
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("late")))
            }
        });
        let (config, records) = recording();
        let served = Served::of(config, service).await;
        let mut client = served.client().await;
        let mut stream = client.ask(get("/late")).await;
        came.await.unwrap();
        let ending = tokio::spawn(served.running.end());
        // The client is told, and asks for nothing more.
        while client.requests.send_request(get("/new")).await.is_ok() {
            tokio::task::yield_now().await;
        }
        go.send(()).unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 200);
        assert_eq!(read(&mut stream).await.unwrap(), b"late");
        drop(stream);
        assert!(client.driver.await.unwrap().is_h3_no_error());
        assert_eq!(ending.await.unwrap().open_requests(), 0);
        assert!(records.lock().unwrap().iter().any(|record| record.complete && record.uri.path() == "/late"));
    });
}

#[test]
fn idle_connections_and_slow_heads_end() {
    run(async {
        let mut config = Config::default();
        config.limits.idle = Duration::from_millis(50);
        let served = Served::start(config).await;
        let client = served.client().await;
        assert!(client.driver.await.unwrap().is_h3_no_error());

        let mut config = Config::default();
        config.limits.handshake = Duration::from_millis(300);
        let served = Served::start(config).await;
        let client = served.quic(1 << 20, 8 << 20).await;
        let _control = control(&client).await;
        let (mut send, mut recv) = client.open_bi().await.unwrap();
        send.write_all(&raw_request("/hello", &[])[..5]).await.unwrap();
        let error = recv.read_to_end(100).await.unwrap_err();
        assert!(matches!(error, quinn::ReadToEndError::Read(quinn::ReadError::Reset(_))), "{error}");
        assert_eq!(served.running.server.counters().slow_heads, 1);
    });
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    run(async {
        let mut config = Config::default();
        config.limits.connections = 1;
        let served = Served::start(config).await;
        let mut client = served.client().await;
        assert_eq!(client.text("/hello").await, "hello");
        let mut tls = served.trust.client_tls().unwrap();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let endpoint = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let connecting = endpoint.connect_with(config, served.running.addr, "localhost").unwrap();
        if let Ok(second) = connecting.await {
            assert_eq!(end_code(&second).await, 0x107);
        }
        assert_eq!(client.text("/hello").await, "hello");
        client.connection.close(0x100_u32.into(), b"");
    });
}

/// Response by one version of HTTP: status, the fields that may not differ, and content.
type Answer = (StatusCode, Vec<(String, String)>, Vec<u8>);

/// Fields that a version or the time of the response decides.
fn told(headers: &HeaderMap) -> Vec<(String, String)> {
    let differ = ["date", "alt-svc", "connection", "via", "transfer-encoding"];
    let fields = headers.iter().filter(|(name, _)| !differ.contains(&name.as_str()));
    let mut told: Vec<_> =
        fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    told.sort();
    told
}

impl Served {
    /// Answer over TCP: HTTP/2, or HTTP/1.1 with hyper's client.
    async fn over_tcp(&self, alpn: &str, request: Request<()>) -> Answer {
        let mut tls = self.trust.client_tls().unwrap();
        tls.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let stream = tokio::net::TcpStream::connect(self.running.addr).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let mut request = request.map(|()| http_body_util::Empty::<Bytes>::new());
        let response = if alpn == "h2" {
            let executor = hyper_util::rt::TokioExecutor::new();
            let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
            tokio::spawn(connection);
            send.send_request(request).await.unwrap()
        } else {
            let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            request.headers_mut().insert("host", HeaderValue::from_static("localhost"));
            *request.uri_mut() = request.uri().path_and_query().unwrap().as_str().parse().unwrap();
            send.send_request(request).await.unwrap()
        };
        let (head, body) = response.into_parts();
        (head.status, told(&head.headers), body.collect().await.unwrap().to_bytes().to_vec())
    }

    async fn over_quic(&self, request: Request<()>) -> Answer {
        let mut client = self.client().await;
        let mut stream = client.ask(request).await;
        let head = stream.recv_response().await.unwrap();
        (head.status(), told(head.headers()), read(&mut stream).await.unwrap())
    }

    /// Checks that all versions answer a request alike. Returns the answer.
    async fn alike(&self, request: impl Fn() -> Request<()>) -> Answer {
        let over = self.over_quic(request()).await;
        assert_eq!(over, self.over_tcp("h2", request()).await, "{:?}", request());
        assert_eq!(over, self.over_tcp("http/1.1", request()).await, "{:?}", request());
        over
    }
}

#[test]
fn files_are_the_same_over_all_versions() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..=u8::MAX).cycle().take(700_000).collect();
        std::fs::write(directory.path().join("large.bin"), &content).unwrap();
        std::fs::write(directory.path().join("site.css"), "a { color: red }".repeat(500)).unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        let files = Files::new(FilesConfig::new(directory.path())).unwrap();
        let served = Served::of(Config::default(), files).await;
        let (status, _, whole) = served.alike(|| get("/large.bin")).await;
        assert_eq!((status, whole == content), (StatusCode::OK, true));
        let (status, fields, part) =
            served.alike(|| get_with("/large.bin", "range", "bytes=1000-1999")).await;
        assert_eq!((status, part.as_slice()), (StatusCode::PARTIAL_CONTENT, &content[1000..2000]));
        assert!(fields.contains(&("content-range".into(), "bytes 1000-1999/700000".into())));
        let head = || {
            let mut request = get("/site.css");
            *request.method_mut() = Method::HEAD;
            request
        };
        let (_, fields, none) = served.alike(head).await;
        assert!(none.is_empty() && fields.contains(&("content-length".into(), "8000".into())));
        let etag: &'static str = fields.iter().find(|(name, _)| name == "etag").unwrap().1.clone().leak();
        for (path, name, value, expected) in [
            ("/site.css", "if-none-match", etag, StatusCode::NOT_MODIFIED),
            ("/large.bin", "range", "bytes=800000-", StatusCode::RANGE_NOT_SATISFIABLE),
            ("/sub", "accept", "*/*", StatusCode::PERMANENT_REDIRECT),
            ("/missing", "accept", "*/*", StatusCode::NOT_FOUND),
        ] {
            assert_eq!(served.alike(|| get_with(path, name, value)).await.0, expected, "{path}");
        }
    });
}

#[test]
fn a_proxy_answers_alike_over_all_versions() {
    run(async {
        let address = origin(Speaks::Http1, async |request: http::Request<hyper::body::Incoming>| {
            let told = format!("{} {:?}", request.uri(), request.headers().get("x-forwarded-proto"));
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Response::builder()
                .header("x-origin", "yes")
                .body(crate::proxy::full(&format!("{told} {}", String::from_utf8_lossy(&body))))
                .unwrap()
        })
        .await;
        let proxy = Proxy::new(ProxyConfig::to(format!("http://{address}"))).unwrap();
        let served = Served::of(Config::default(), proxy).await;
        let (status, fields, content) = served.alike(|| get("/path?query=1")).await;
        assert_eq!((status, content.as_slice()), (StatusCode::OK, &b"/path?query=1 Some(\"https\") "[..]));
        assert!(fields.contains(&("x-origin".into(), "yes".into())));
        let mut client = served.client().await;
        let request = Request::post("https://localhost/upload").body(()).unwrap();
        let mut stream = client.requests.send_request(request).await.unwrap();
        stream.send_data(Bytes::from(vec![b'u'; 300_000])).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 200);
        assert!(read(&mut stream).await.unwrap().len() > 300_000);
        // An origin that is gone.
        let gone = Proxy::new(ProxyConfig::to("http://127.0.0.1:9")).unwrap();
        let served = Served::of(Config::default(), gone).await;
        assert_eq!(served.alike(|| get("/")).await.0, StatusCode::BAD_GATEWAY);
    });
}

#[test]
fn a_router_of_axum_is_served() {
    run(async {
        let peer = async |axum::extract::ConnectInfo(peer): axum::extract::ConnectInfo<SocketAddr>| {
            peer.ip().to_string()
        };
        let router = axum::Router::new()
            .route("/peer", axum::routing::get(peer))
            .route("/echo", axum::routing::post(async |body: String| body));
        let served = Served::of(Config::default(), router).await;
        assert_eq!(served.alike(|| get("/peer")).await.2, b"127.0.0.1");
        assert_eq!(served.alike(|| get("/echo")).await.0, StatusCode::METHOD_NOT_ALLOWED);
        let mut client = served.client().await;
        let request = Request::post("https://localhost/echo").body(()).unwrap();
        let mut stream = client.requests.send_request(request).await.unwrap();
        stream.send_data(Bytes::from_static(b"text")).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 200);
        assert_eq!(read(&mut stream).await.unwrap(), b"text");
    });
}

#[test]
fn a_changed_priority_changes_the_order_on_the_wire() {
    run(async {
        let served = Served::start(Config::default()).await;
        // The update of the client, or the field of the response, puts the second before the first.
        for (path, is_updated) in [("/bytes/150000", true), ("/first", false)] {
            let client = served.quic(50_000_000, 200_000).await;
            let mut control = control(&client).await;
            let mut first = raw_ask(&client, &raw_request("/bytes/3000000", &[("priority", "u=3")])).await.1;
            first.read_exact(&mut [0; 10]).await.unwrap();
            let second = raw_ask(&client, &raw_request(path, &[("priority", "u=3")])).await.1;
            if is_updated {
                control.write_all(&update(4, "u=1")).await.unwrap();
            }
            let second = tokio::spawn(drain(second));
            let mut before = 10;
            while !second.is_finished() {
                before += first.read_chunk(1000, true).await.unwrap().unwrap().bytes.len();
            }
            assert!(second.await.unwrap() >= 150_000);
            assert!(before < 2_000_000, "{path}: {before} bytes of the first came before");
        }
    });
}

#[test]
fn a_body_that_nobody_reads_is_stopped() {
    run(async {
        let served = Served::start(Config::default()).await;
        let client = served.quic(1 << 20, 8 << 20).await;
        let _control = control(&client).await;
        let (mut send, response) = client.open_bi().await.unwrap();
        send.write_all(&[raw_method(20, "/hello", &[]), frame(0, b"some of it")].concat()).await.unwrap();
        assert!(drain(response).await > 5);
        assert_eq!(send.stopped().await.unwrap(), Some(0x100_u32.into()));
    });
}

#[test]
fn a_shorter_body_than_announced_is_an_error_for_its_handler() {
    run(async {
        let served = Served::start(Config::default()).await;
        let mut client = served.client().await;
        let mut request = Request::post("https://localhost/echo").body(()).unwrap();
        request.headers_mut().insert("content-length", HeaderValue::from_static("100"));
        let mut stream = client.requests.send_request(request).await.unwrap();
        stream.send_data(Bytes::from_static(b"less")).await.unwrap();
        until(|| served.running.server.open_requests() == 1).await;
        stream.finish().await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
    });
}

#[test]
fn a_stopped_response_ends_its_handler() {
    run(async {
        let (alive, dropped) = oneshot::channel::<()>();
        let alive = Arc::new(std::sync::Mutex::new(Some(alive)));
        let service = tower::service_fn(move |_: Request<Body>| {
            let alive = alive.lock().unwrap().take();
            async move {
                std::future::pending::<()>().await;
                drop(alive);
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("never")))
            }
        });
        let served = Served::of(Config::default(), service).await;
        let client = served.quic(1 << 20, 8 << 20).await;
        let _control = control(&client).await;
        let mut response = raw_ask(&client, &raw_request("/", &[])).await.1;
        until(|| served.running.server.open_requests() == 1).await;
        response.stop(0x10c_u32.into()).unwrap();
        assert!(dropped.await.is_err(), "the handler is dropped");
    });
}

#[test]
fn requests_behind_goaway_are_rejected() {
    run(async {
        let (go, wait) = oneshot::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(Some(wait)));
        let service = tower::service_fn(move |_: Request<Body>| {
            let wait = wait.lock().unwrap().take();
            async move {
                if let Some(wait) = wait {
                    let _ = wait.await;
                }
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("late")))
            }
        });
        let served = Served::of(Config::default(), service).await;
        let client = served.quic(1 << 20, 8 << 20).await;
        let _control = control(&client).await;
        let mut of_server = client.accept_uni().await.unwrap();
        while of_server.read_chunk(1, true).await.unwrap().unwrap().bytes[0] != 0 {
            of_server = client.accept_uni().await.unwrap();
        }
        let open = raw_ask(&client, &raw_request("/", &[])).await.1;
        let server = served.running.server.clone();
        until(|| server.open_requests() == 1).await;
        let ending = tokio::spawn(served.running.end());
        // GOAWAY names the first request that is not served: the one after the open one.
        let mut told = Vec::new();
        while !told.ends_with(&[7, 1, 4]) {
            told.extend_from_slice(&of_server.read_chunk(1, true).await.unwrap().unwrap().bytes);
        }
        let mut rejected = raw_ask(&client, &raw_request("/", &[])).await.1;
        let error = rejected.read_to_end(100).await.unwrap_err();
        let quinn::ReadToEndError::Read(quinn::ReadError::Reset(code)) = error else { panic!("{error}") };
        assert_eq!(code.into_inner(), Code::H3_REQUEST_REJECTED.value());
        go.send(()).unwrap();
        assert!(drain(open).await > 4);
        assert_eq!(ending.await.unwrap().counters().requests, 1);
    });
}

#[test]
fn the_end_of_a_server_waits_no_longer_than_the_grace() {
    run(async {
        let mut config = Config::default();
        config.limits.grace = Duration::from_millis(50);
        let service = tower::service_fn(async |_: Request<Body>| {
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("never")))
        });
        let served = Served::of(config, service).await;
        let client = served.quic(1 << 20, 8 << 20).await;
        let _control = control(&client).await;
        let _open = raw_ask(&client, &raw_request("/", &[])).await;
        let server = served.running.server.clone();
        until(|| server.open_requests() == 1).await;
        assert_eq!(served.running.end().await.counters().broken, 1);
        // It was told so, and not left to find out.
        assert_eq!(end_code(&client).await, 0x100);
    });
}

#[test]
fn connections_that_clients_end_in_order_are_not_broken() {
    run(async {
        let served = Served::start(Config::default()).await;
        let server = served.running.server.clone();
        for (code, broken) in [(0x100_u32, 0), (0, 0), (0x102, 1)] {
            let client = served.quic(1 << 20, 8 << 20).await;
            let _control = control(&client).await;
            assert!(drain(raw_ask(&client, &raw_request("/hello", &[])).await.1).await > 5);
            client.close(code.into(), b"");
            until(|| server.open_connections() == 0).await;
            assert_eq!(server.counters().broken, broken, "{code:#x}");
        }
    });
}

#[test]
fn a_flood_of_frames_between_requests_ends_the_connection() {
    run(async {
        let served = Served::start(Config::default()).await;
        for flood in [update(0, "u=1"), frame(0x21, b"reserved"), frame(0xd, b"\x00")] {
            let client = served.quic(1 << 20, 8 << 20).await;
            let mut control = control(&client).await;
            control.write_all(&flood.repeat(900)).await.unwrap();
            // A request in between: so many are fine.
            assert!(drain(raw_ask(&client, &raw_request("/hello", &[])).await.1).await > 5);
            let _ = control.write_all(&flood.repeat(1900)).await;
            assert_eq!(end_code(&client).await, 0x107);
        }
        assert_eq!(served.running.server.counters().violations, 3);
    });
}
