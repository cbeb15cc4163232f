//! WebSockets when the server ends: close frames to both sides.
#![cfg(feature = "proxy")]

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use marcato_web::proxy::Proxy;
use marcato_web::{Config, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::proxy::{listen, proof, proxy_to};
use crate::receiver::{pass, run_still, settle, stand_still};
use crate::support::{Running, run, until};

/// Close frame of a server with the status 1001.
const GOING_AWAY: [u8; 4] = [0x88, 0x02, 0x03, 0xe9];

/// Proxy to an origin of a test, and its connection once it has switched.
async fn switching(protocol: &'static str) -> (Proxy, oneshot::Receiver<TcpStream>) {
    let (listener, address) = listen().await;
    let (open, opened) = oneshot::channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            if !head.contains("upgrade: ") {
                // The first request of a client of HTTP/2, after which it knows the server's settings.
                stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.unwrap();
                continue;
            }
            let key = head
                .split_once("sec-websocket-key: ")
                .map_or("", |(_, rest)| rest.split_once("\r\n").unwrap().0);
            let accept = proof(key.as_bytes());
            let response = format!(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: {protocol}\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
            );
            stream.write_all(response.as_bytes()).await.unwrap();
            open.send(stream).unwrap();
            return;
        }
    });
    (proxy_to(address), opened)
}

async fn start(proxy: Proxy, grace: Duration) -> Running {
    let mut config = Config::default();
    config.limits.grace = grace;
    Running::start(Server::with_config(config), proxy).await
}

const GRACE: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

/// Tunnel over HTTP/1.1: client, origin and the server between them.
async fn tunnel(protocol: &'static str, grace: Duration) -> (TcpStream, TcpStream, Running) {
    let (proxy, opened) = switching(protocol).await;
    let running = start(proxy, grace).await;
    let mut client = TcpStream::connect(running.addr).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(client.read_u8().await.unwrap());
    }
    assert!(seen.starts_with(b"HTTP/1.1 101 "));
    (client, opened.await.unwrap(), running)
}

/// Tells a server to end.
fn end(running: Running) -> JoinHandle<Server> {
    tokio::spawn(running.end())
}

async fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// Checks that an origin gets a close frame of a client.
async fn expect_close(origin: &mut TcpStream) {
    let [first, second, mask0, mask1, _, _, high, low] = read::<8>(origin).await;
    assert_eq!([first, second, high ^ mask0, low ^ mask1], [0x88, 0x82, 0x03, 0xe9]);
}

/// Checks that a connection ends without another byte.
async fn expect_end(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "{rest:?}");
}

/// Text of a client, masked.
const TEXT: [u8; 9] = [0x81, 0x83, 1, 2, 3, 4, b'a', b'\n', b'c'];
/// Close frame of a client without a status.
const CLOSE: [u8; 6] = [0x88, 0x80, 1, 2, 3, 4];

#[test]
fn a_websocket_of_http1_is_closed_when_the_server_ends() {
    run(async {
        let (mut client, mut origin, running) = tunnel("websocket", GRACE).await;
        client.write_all(&TEXT).await.unwrap();
        assert_eq!(read::<9>(&mut origin).await, TEXT);
        let ended = end(running);
        assert_eq!(read::<4>(&mut client).await, GOING_AWAY);
        expect_close(&mut origin).await;
        assert!(!ended.is_finished());
        client.write_all(&CLOSE).await.unwrap();
        origin.write_all(&[0x88, 0]).await.unwrap();
        expect_end(&mut client).await;
        expect_end(&mut origin).await;
        ended.await.unwrap();
    });
}

#[test]
fn a_frame_of_a_websocket_ends_before_the_close_frame() {
    run(async {
        let (mut client, mut origin, running) = tunnel("WebSocket", GRACE).await;
        let mut frame = vec![0x82, 126, 0x01, 0x00];
        frame.extend([7; 256]);
        origin.write_all(&frame[..100]).await.unwrap();
        assert_eq!(read::<100>(&mut client).await, frame[..100]);
        client.write_all(&TEXT[..7]).await.unwrap();
        assert_eq!(read::<7>(&mut origin).await, TEXT[..7]);
        let ended = end(running);
        origin.write_all(&frame[100..200]).await.unwrap();
        assert_eq!(read::<100>(&mut client).await, frame[100..200]);
        // What follows the frame goes nowhere.
        origin.write_all(&[&frame[200..], &[0x81, 1, b'x']].concat()).await.unwrap();
        assert_eq!(read::<60>(&mut client).await, frame[200..]);
        assert_eq!(read::<4>(&mut client).await, GOING_AWAY);
        client.write_all(&[&TEXT[7..], &TEXT].concat()).await.unwrap();
        assert_eq!(read::<2>(&mut origin).await, TEXT[7..]);
        expect_close(&mut origin).await;
        drop((client, origin));
        ended.await.unwrap();
    });
}

#[test]
fn a_websocket_that_closes_already_gets_no_other_close_frame() {
    run(async {
        let (mut client, mut origin, running) = tunnel("websocket", GRACE).await;
        client.write_all(&CLOSE).await.unwrap();
        assert_eq!(read::<6>(&mut origin).await, CLOSE);
        let ended = end(running);
        // The client gets one, as the origin has not answered.
        assert_eq!(read::<4>(&mut client).await, GOING_AWAY);
        drop(client);
        expect_end(&mut origin).await;
        drop(origin);
        ended.await.unwrap();
    });
}

#[test]
fn a_silent_websocket_delays_the_end_for_the_grace_at_most() {
    run(async {
        let (mut client, mut origin, running) = tunnel("websocket", Duration::from_millis(20)).await;
        running.end().await;
        assert_eq!(read::<4>(&mut client).await, GOING_AWAY);
        expect_close(&mut origin).await;
    });
}

#[test]
fn a_websocket_without_an_answer_is_cut_after_five_seconds() {
    run_still(async {
        stand_still();
        let (mut client, mut origin, running) = tunnel("websocket", GRACE).await;
        let ended = end(running);
        assert_eq!(read::<4>(&mut client).await, GOING_AWAY);
        expect_close(&mut origin).await;
        pass(SECOND * 4).await;
        assert!(!ended.is_finished());
        pass(SECOND * 2).await;
        until(|| ended.is_finished()).await;
        expect_end(&mut client).await;
        expect_end(&mut origin).await;
    });
}

#[test]
fn tunnels_of_other_protocols_go_on_while_the_server_ends() {
    run(async {
        let (mut client, mut origin, running) = tunnel("other", GRACE).await;
        let ended = end(running);
        for byte in *b"word" {
            client.write_u8(byte).await.unwrap();
            assert_eq!(read::<1>(&mut origin).await, [byte]);
            origin.write_u8(byte).await.unwrap();
            assert_eq!(read::<1>(&mut client).await, [byte]);
        }
        assert!(!ended.is_finished());
        drop((client, origin));
        ended.await.unwrap();
    });
}

/// Grace that ends before a tunnel is idle for too long.
const SHORT: Duration = Duration::from_secs(60);

#[test]
fn the_server_waits_for_tunnels_within_its_grace() {
    run_still(async {
        stand_still();
        for closes in [true, false] {
            let (mut client, mut origin, running) = tunnel("other", SHORT).await;
            let server = running.server.clone();
            let ended = end(running);
            // The tunnel is no connection of the server any more.
            until(|| server.open_connections() == 0).await;
            settle().await;
            pass(SHORT - SECOND).await;
            assert!(!ended.is_finished());
            client.write_u8(1).await.unwrap();
            assert_eq!(read::<1>(&mut origin).await, [1]);
            if closes {
                drop((client, origin));
            } else {
                pass(SECOND * 2).await;
            }
            until(|| ended.is_finished()).await;
        }
    });
}

#[test]
fn a_single_connection_waits_for_its_tunnel() {
    run_still(async {
        stand_still();
        for closes in [true, false] {
            let (proxy, opened) = switching("other").await;
            let (mut client, io) = tokio::io::duplex(1000);
            let peer = "192.0.2.1:50000".parse().unwrap();
            let (end, ended) = oneshot::channel::<()>();
            let mut config = Config::default();
            config.limits.grace = SHORT;
            let server = Server::with_config(config);
            let serving = server.clone();
            let served = tokio::spawn(async move {
                serving.serve_connection_until(io, peer, proxy, async { _ = ended.await }).await;
            });
            let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
            client.write_all(head).await.unwrap();
            let mut origin = opened.await.unwrap();
            until(|| server.open_connections() == 0).await;
            if !closes {
                drop(end);
            }
            settle().await;
            pass(SHORT).await;
            assert!(!served.is_finished());
            origin.write_u8(1).await.unwrap();
            while client.read_u8().await.unwrap() != 1 {}
            if closes {
                drop((client, origin));
            } else {
                // One time of grace for the connection, and one for the tunnel.
                pass(SHORT).await;
            }
            until(|| served.is_finished()).await;
        }
    });
}

/// WebSocket over HTTP/2.
async fn extended(client: &mut SendRequest<Bytes>) -> (RecvStream, SendStream<Bytes>) {
    // The server's settings have arrived with its first response.
    let first = Request::get("http://site.example/").body(()).unwrap();
    client.send_request(first, true).unwrap().0.await.unwrap();
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    let mut request = Request::connect("http://site.example/chat").body(()).unwrap();
    request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    let (response, sender) = client.send_request(request, false).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    (response.into_body(), sender)
}

/// Next bytes of a stream; `None` at its end.
async fn data(stream: &mut RecvStream) -> Option<Bytes> {
    loop {
        let data = stream.data().await?.unwrap();
        if !data.is_empty() {
            return Some(data);
        }
    }
}

#[test]
fn a_websocket_of_http2_is_closed_when_the_server_ends() {
    run(async {
        let (proxy, opened) = switching("websocket").await;
        let running = start(proxy, GRACE).await;
        let mut client = running.client().await;
        let (mut receiver, mut sender) = extended(&mut client).await;
        let mut origin = opened.await.unwrap();
        sender.send_data(Bytes::from_static(&TEXT), false).unwrap();
        assert_eq!(read::<9>(&mut origin).await, TEXT);
        origin.write_all(&[0x81, 2, b'a']).await.unwrap();
        assert_eq!(data(&mut receiver).await.unwrap()[..], [0x81, 2, b'a']);
        let ended = end(running);
        expect_close(&mut origin).await;
        origin.write_all(&[b'b', 0x81, 1, b'c', 0x88, 0]).await.unwrap();
        let mut rest = Vec::new();
        while rest.len() < 5 {
            rest.extend(data(&mut receiver).await.unwrap());
        }
        assert_eq!(rest, [b"b", &GOING_AWAY[..]].concat());
        sender.send_data(Bytes::from_static(&CLOSE), false).unwrap();
        assert_eq!(data(&mut receiver).await, None);
        expect_end(&mut origin).await;
        drop((receiver, sender, client));
        ended.await.unwrap();
    });
}

#[test]
fn bytes_in_one_direction_keep_a_tunnel_open() {
    run_still(async {
        stand_still();
        // A tunnel is closed after 300 s without a byte.
        for from_client in [true, false] {
            let (mut client, mut origin, _running) = tunnel("other", GRACE).await;
            for number in 0..4 {
                pass(SECOND * 200).await;
                let (from, to) =
                    if from_client { (&mut client, &mut origin) } else { (&mut origin, &mut client) };
                from.write_u8(number).await.unwrap();
                assert_eq!(read::<1>(to).await, [number]);
            }
            let (proxy, opened) = switching("websocket").await;
            let running = start(proxy, GRACE).await;
            let mut client = running.client().await;
            let (mut receiver, mut sender) = extended(&mut client).await;
            let mut origin = opened.await.unwrap();
            for number in 0..4 {
                pass(SECOND * 200).await;
                if from_client {
                    sender.send_data(Bytes::from_static(&TEXT), false).unwrap();
                    assert_eq!(read::<9>(&mut origin).await, TEXT);
                } else {
                    origin.write_all(&[0x81, 1, number]).await.unwrap();
                    assert_eq!(data(&mut receiver).await.unwrap()[..], [0x81, 1, number]);
                }
            }
        }
    });
}
