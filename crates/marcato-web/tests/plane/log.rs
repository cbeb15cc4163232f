//! Records of requests: what they name, and which responses were sent as a whole.
#![cfg(feature = "server")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Channel, Full};
use marcato_web::{Body, LogFormat, PeerAddr, Record, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::support::{Running, fetch, get, read, recording, run, until};

type Content = BoxBody<Bytes, Infallible>;

/// Server whose records are kept. `/held` ends when it is told to.
struct Kept {
    running: Running,
    records: Arc<Mutex<Vec<Record>>>,
    more: Arc<Notify>,
}

async fn start() -> Kept {
    let (config, records) = recording();
    let more = Arc::<Notify>::default();
    let told = Arc::clone(&more);
    let service = tower::service_fn(move |request: Request<Body>| {
        let told = Arc::clone(&told);
        async move { Ok::<_, Infallible>(answer(request, told)) }
    });
    Kept { running: Running::start(Server::with_config(config), service).await, records, more }
}

fn answer(request: Request<Body>, told: Arc<Notify>) -> Response<Content> {
    let text = |text: &'static str| Full::new(Bytes::from_static(text.as_bytes())).boxed();
    let mut response = Response::new(text(""));
    match request.uri().path() {
        "/none" => *response.status_mut() = StatusCode::NO_CONTENT,
        "/same" => *response.status_mut() = StatusCode::NOT_MODIFIED,
        "/moved" => *response.status_mut() = StatusCode::FOUND,
        "/text" => *response.body_mut() = text("text"),
        // The library does not ask again after the announced length.
        "/announced" | "/held" => {
            let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
            let is_held = request.uri().path() == "/held";
            if !is_held {
                response.headers_mut().insert("content-length", 4.into());
            }
            *response.body_mut() = body.boxed();
            tokio::spawn(async move {
                let _ = sender.send(Frame::data(Bytes::from_static(b"text"))).await;
                told.notified().await;
                let _ = sender.send(Frame::data(Bytes::from_static(b"rest"))).await;
            });
        }
        _ => unreachable!(),
    }
    response
}

impl Kept {
    /// Sends a request of HTTP/1.1 on a connection of its own, and returns that.
    async fn ask(&self, method: &Method, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.running.addr).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: a.test\r\nreferer: http://b.test/\r\nuser-agent: tester\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    async fn logged(&self, count: usize) -> Vec<Record> {
        until(|| self.records.lock().unwrap().len() == count).await;
        self.records.lock().unwrap().clone()
    }
}

#[test]
fn responses_without_content_are_complete_over_both_versions() {
    run(async {
        let kept = start().await;
        let client = &mut kept.running.client().await;
        let mut count = 0;
        for (method, path) in [
            (Method::GET, "/none"),
            (Method::GET, "/same"),
            (Method::GET, "/moved"),
            (Method::GET, "/text"),
            (Method::HEAD, "/text"),
        ] {
            let mut response = Vec::new();
            kept.ask(&method, path).await.read_to_end(&mut response).await.unwrap();
            let mut request = get(path);
            *request.method_mut() = method.clone();
            read(fetch(client, request).await).await.unwrap();
            count += 2;
            for record in &kept.logged(count).await[count - 2..] {
                assert!(record.complete, "{record}");
            }
        }
        // Its body goes on after the length that the head has announced.
        let mut response = Vec::new();
        kept.ask(&Method::GET, "/announced").await.read_to_end(&mut response).await.unwrap();
        assert!(response.ends_with(b"\r\n\r\ntext"));
        assert!(kept.logged(count + 1).await[count].complete);
    });
}

#[test]
fn responses_that_a_graceful_end_finished_are_complete() {
    run(async {
        let kept = start().await;
        let client = &mut kept.running.client().await;
        let mut response = fetch(client, get("/held")).await.into_body();
        response.data().await.unwrap().unwrap();
        let mut stream = kept.ask(&Method::GET, "/held").await;
        let mut head = [0; 16];
        stream.read_exact(&mut head).await.unwrap();
        let Kept { running, records, more } = kept;
        let addr = running.addr;
        let ended = tokio::spawn(running.end());
        // It accepts no more: its end has begun.
        while TcpStream::connect(addr).await.is_ok() {}
        // Both handlers have begun: each takes one of these.
        more.notify_one();
        until(|| {
            more.notify_waiters();
            records.lock().unwrap().len() == 2
        })
        .await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.ends_with(b"rest\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
        assert_eq!(response.data().await.unwrap().unwrap(), "rest");
        ended.await.unwrap();
        for record in records.lock().unwrap().iter() {
            assert!(record.complete && record.bytes.get() == 8, "{record}");
        }
    });
}

#[test]
fn responses_whose_client_went_away_are_not_complete() {
    run(async {
        let kept = start().await;
        let mut stream = kept.ask(&Method::GET, "/held").await;
        stream.read_exact(&mut [0; 16]).await.unwrap();
        drop(stream);
        let records = kept.logged(1).await;
        assert!(!records[0].complete, "{}", records[0]);
    });
}

#[test]
fn formats_leave_out_parts_that_a_record_lacks() {
    run(async {
        let kept = start().await;
        kept.ask(&Method::GET, "/none").await.read_to_end(&mut Vec::new()).await.unwrap();
        let mut record = kept.logged(1).await.remove(0);
        let common = LogFormat::Common.line(&record);
        assert!(common.starts_with("127.0.0.1 - - ["), "{common}");
        assert!(common.ends_with("] \"GET /none HTTP/1.1\" 204 -"), "{common}");
        // A client of a socket for both versions of IP, whose tunnel was not opened.
        record.peer = PeerAddr("[::ffff:192.0.2.1]:50000".parse().unwrap());
        (record.method, record.uri) = (Method::CONNECT, "b.test:443".parse().unwrap());
        (record.status, record.referer) = (None, None);
        let common = LogFormat::Common.line(&record);
        assert!(common.starts_with("192.0.2.1 - - ["), "{common}");
        assert!(common.ends_with("] \"CONNECT b.test:443 HTTP/1.1\" - -"), "{common}");
        assert!(LogFormat::Combined.line(&record).ends_with("- - \"-\" \"tester\""));
        let json: serde_json::Value = serde_json::from_str(&LogFormat::Json.line(&record)).unwrap();
        let json = json.as_object().unwrap();
        assert!(json.values().all(|value| !value.is_null()), "{json:?}");
        assert_eq!((json.get("status"), json.get("referer"), &json["bytes"]), (None, None, &0.into()));
    });
}

#[test]
fn records_name_host_referer_and_agent_over_both_versions() {
    run(async {
        let kept = start().await;
        let mut response = Vec::new();
        kept.ask(&Method::GET, "/text").await.read_to_end(&mut response).await.unwrap();
        let mut request = Request::get("http://a.test/text").body(()).unwrap();
        request.headers_mut().insert("referer", "http://b.test/".parse().unwrap());
        request.headers_mut().insert("user-agent", "tester".parse().unwrap());
        let client = &mut kept.running.client().await;
        read(fetch(client, request).await).await.unwrap();
        for record in kept.logged(2).await {
            let line = record.to_string();
            assert!(line.starts_with("time=20") && line.contains(" uri=http://a.test/text "), "{line}");
            assert!(line.ends_with(" referer=\"http://b.test/\" user_agent=\"tester\""), "{line}");
            assert_eq!(record.host(), Some("a.test"));
            let combined = LogFormat::Combined.line(&record);
            assert!(combined.contains("] \"GET /text HTTP/"), "{combined}");
            assert!(combined.ends_with("\" 200 4 \"http://b.test/\" \"tester\""), "{combined}");
        }
    });
}
