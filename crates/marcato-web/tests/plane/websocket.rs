//! WebSockets over HTTP/2 (RFC 8441) for handlers of axum, and over HTTP/1.1 as well.
#![cfg(feature = "axum")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::routing::{MethodRouter, any, get as on_get};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use marcato_web::{Config, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::support::{Running, read, run, until};

/// Frame of a client, masked (RFC 6455 §5.2).
fn masked(opcode: u8, payload: &[u8]) -> Bytes {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        len @ 0..126 => frame.push(0x80 | u8::try_from(len).unwrap()),
        len @ 126..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend(u64::try_from(len).unwrap().to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame.into()
}

/// Close frame with the status 1000, as a server sends it.
const CLOSED: [u8; 4] = [0x88, 2, 0x03, 0xe8];

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Binary(_) | Message::Text(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Handler of WebSockets, and what `serve` makes of each.
fn telling<T, F>(
    serve: impl FnOnce(WebSocket) -> F + Clone + Send + Sync + 'static,
) -> (MethodRouter, mpsc::Receiver<T>)
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (tell, told) = mpsc::channel(1);
    let handler = async move |upgrade: WebSocketUpgrade| {
        upgrade.protocols(["chat"]).on_upgrade(async move |socket| _ = tell.send(serve(socket).await).await)
    };
    (any(handler), told)
}

fn router() -> Router {
    let upgrade = async |upgrade: WebSocketUpgrade| upgrade.protocols(["chat"]).on_upgrade(echo);
    Router::new()
        .route("/echo", any(upgrade))
        .route("/get", on_get(upgrade))
        .route("/forbidden", any(async |_: WebSocketUpgrade| (StatusCode::FORBIDDEN, "not you")))
        .route("/hello", on_get(async || "hello"))
}

/// Request for a WebSocket over HTTP/2.
fn connect(path: &str, protocol: &'static str) -> Request<()> {
    let request = Request::connect(format!("http://site.example{path}"));
    let request = request.header("sec-websocket-version", "13").header("sec-websocket-protocol", "chat");
    let mut request = request.body(()).unwrap();
    request.extensions_mut().insert(h2::ext::Protocol::from_static(protocol));
    request
}

/// Client that has the server's settings, as they come with its first response.
async fn client(running: &Running) -> SendRequest<Bytes> {
    // A stream that is not read leaves room on the connection.
    let mut client =
        running.client_with(h2::client::Builder::new().initial_connection_window_size(1 << 20)).await;
    let first = Request::get("http://site.example/hello").body(()).unwrap();
    read(client.send_request(first, true).unwrap().0.await.unwrap()).await.unwrap();
    assert!(client.is_extended_connect_protocol_enabled());
    client
}

async fn open(client: &mut SendRequest<Bytes>, path: &str) -> (RecvStream, SendStream<Bytes>) {
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    let (response, sender) = client.send_request(connect(path, "websocket"), false).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
    assert!(!response.headers().contains_key("content-length"));
    (response.into_body(), sender)
}

/// Next bytes of a stream, at least this many; fewer at its end.
async fn take(stream: &mut RecvStream, wanted: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < wanted
        && let Some(data) = stream.data().await
    {
        let data = data.unwrap();
        stream.flow_control().release_capacity(data.len()).unwrap();
        bytes.extend_from_slice(&data);
    }
    bytes
}

/// Sends bytes as the server gives credit for them.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
        stream.send_data(bytes.split_to(room.min(bytes.len())), false).unwrap();
    }
}

#[test]
fn the_first_settings_offer_extended_connect() {
    run(async {
        let running = Running::start(Server::new(), router()).await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
            .await
            .unwrap();
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(header[3..], [4, 0, 0, 0, 0, 0]);
        let mut settings = vec![0; usize::from(header[2])];
        stream.read_exact(&mut settings).await.unwrap();
        // RFC 8441 §3: SETTINGS_ENABLE_CONNECT_PROTOCOL is 8.
        assert!(settings.chunks(6).any(|setting| setting == [0, 8, 0, 0, 0, 1]), "{settings:?}");
    });
}

#[test]
fn a_handler_of_axum_has_websockets_over_http2() {
    run(async {
        let running = Running::start(Server::new(), router()).await;
        let mut client = client(&running).await;
        let (mut receiver, mut sender) = open(&mut client, "/echo").await;
        for word in ["one", "", "three"] {
            send(&mut sender, masked(1, word.as_bytes())).await;
            let frame = [&[0x81, u8::try_from(word.len()).unwrap()], word.as_bytes()].concat();
            assert_eq!(take(&mut receiver, frame.len()).await, frame);
        }
        // Far more than windows and stage hold.
        let large = vec![b'x'; 3_000_000];
        let frame = masked(2, &large);
        let upload = tokio::spawn(async move {
            send(&mut sender, frame).await;
            sender
        });
        let got = take(&mut receiver, 10 + large.len()).await;
        assert!(got[..2] == [0x82, 127] && got[10..] == large);
        let mut sender = upload.await.unwrap();
        // RFC 6455 §5.5.1: both sides send a close frame, and the stream is over.
        send(&mut sender, masked(8, &1000_u16.to_be_bytes())).await;
        assert_eq!(take(&mut receiver, usize::MAX).await, CLOSED);
        drop((receiver, sender, client));
        until(|| running.server.open_requests() == 0).await;
        running.end().await;
    });
}

#[test]
fn a_handler_of_axum_has_websockets_over_http1() {
    run(async {
        let running = Running::start(Server::new(), router()).await;
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        let head = b"GET /echo HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
            sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            seen.push(stream.read_u8().await.unwrap());
        }
        assert!(seen.starts_with(b"HTTP/1.1 101 "));
        stream.write_all(&masked(1, b"word")).await.unwrap();
        let mut frame = [0; 6];
        stream.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame, b"\x81\x04word");
    });
}

#[test]
fn a_handler_that_ends_its_direction_still_hears_its_client() {
    run(async {
        let (tell, mut told) = mpsc::channel(1);
        let handler = async move |mut request: axum::extract::Request| {
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgraded.await.unwrap());
                io.write_all(b"last").await.unwrap();
                io.shutdown().await.unwrap();
                let mut rest = String::new();
                io.read_to_string(&mut rest).await.unwrap();
                tell.send(rest).await.unwrap();
            });
            [("sec-websocket-protocol", "chat")]
        };
        let running = Running::start(Server::new(), router().route("/half", any(handler))).await;
        let mut client = client(&running).await;
        let (mut receiver, mut sender) = open(&mut client, "/half").await;
        // The stream is over for the client while its handler still reads.
        assert_eq!(take(&mut receiver, usize::MAX).await, b"last");
        send(&mut sender, Bytes::from_static(b"heard")).await;
        sender.send_data(Bytes::new(), true).unwrap();
        assert_eq!(told.recv().await.unwrap(), "heard");
    });
}

#[test]
fn an_upgrade_that_a_handler_refuses_is_a_response() {
    run(async {
        let running = Running::start(Server::new(), router()).await;
        let mut client = client(&running).await;
        for (path, status, content) in [
            ("/forbidden", StatusCode::FORBIDDEN, "not you"),
            ("/get", StatusCode::METHOD_NOT_ALLOWED, ""),
            ("/none", StatusCode::NOT_FOUND, ""),
        ] {
            std::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
            let (response, _sender) = client.send_request(connect(path, "websocket"), false).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), status, "{path}");
            assert_eq!(read(response).await.unwrap(), content.as_bytes(), "{path}");
        }
        until(|| running.server.open_requests() == 0).await;
    });
}

#[test]
fn protocols_other_than_websocket_are_answered_with_501() {
    run(async {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let router = router().fallback(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { "handler" }
        });
        let running = Running::start(Server::new(), router).await;
        let mut client = client(&running).await;
        for protocol in ["connect-udp", "webtransport", "websockets", "WebSocket"] {
            std::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
            let (response, _sender) = client.send_request(connect("/any", protocol), false).unwrap();
            assert_eq!(response.await.unwrap().status(), StatusCode::NOT_IMPLEMENTED, "{protocol}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_server_that_offers_none_takes_no_websocket() {
    run(async {
        let mut config = Config::default();
        config.extended_connect = false;
        let running = Running::start(Server::with_config(config), router()).await;
        let mut client = running.client().await;
        let first = Request::get("http://site.example/hello").body(()).unwrap();
        read(client.send_request(first, true).unwrap().0.await.unwrap()).await.unwrap();
        assert!(!client.is_extended_connect_protocol_enabled());
    });
}

#[test]
fn a_websocket_that_is_not_read_holds_its_handler_back() {
    run(async {
        let (flood, mut told) = telling(async |mut socket| {
            let mut sent = 0;
            while socket.send(Message::Binary(vec![0; 1000].into())).await.is_ok() {
                sent += 1;
            }
            sent
        });
        let mut config = Config::default();
        config.limits.stall = Duration::from_millis(100);
        let router = router().route("/flood", flood);
        let running = Running::start(Server::with_config(config), router).await;
        let mut client = client(&running).await;
        let (mut receiver, _sender) = open(&mut client, "/flood").await;
        // The client gives no credit: the server gives up, and the handler learns of it.
        let sent = told.recv().await.unwrap();
        // The window of the client (64 KiB), what is staged (32 KiB), and what the library of the handler holds.
        assert!((60..400).contains(&sent), "{sent}");
        assert_eq!(running.server.counters().stalled, 1);
        while let Some(data) = receiver.data().await {
            if let Err(error) = data {
                assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
                break;
            }
        }
        until(|| running.server.open_requests() == 0).await;
    });
}

#[test]
fn a_client_that_resets_its_stream_ends_the_websocket() {
    run(async {
        let (listen, mut told) = telling(async |mut socket| {
            let first = socket.recv().await.is_some_and(|message| message.is_ok());
            let second = socket.recv().await.is_some_and(|message| message.is_ok());
            (first, second)
        });
        let router = router().route("/listen", listen);
        let running = Running::start(Server::new(), router).await;
        let mut client = client(&running).await;
        let (receiver, mut sender) = open(&mut client, "/listen").await;
        send(&mut sender, masked(1, b"word")).await;
        // The server has read it once it has given its credit back.
        sender.send_reset(h2::Reason::CANCEL);
        drop(receiver);
        assert!(!told.recv().await.unwrap().1);
        until(|| running.server.open_requests() == 0).await;
        assert_eq!(running.server.counters().cancelled, 1);
    });
}
