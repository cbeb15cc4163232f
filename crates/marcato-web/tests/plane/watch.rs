//! Traces of connections, and the page that shows them.
#![cfg(feature = "watch")]

use std::convert::Infallible;

use crate::support::{RawClient, Running, fetch, get, get_with, headers, read, run, until};
use bytes::Bytes;
use h2::client;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use marcato_web::{Body, Config, PeerAddr, Server, Traces, Watched};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tower_service::Service as _;

/// Service whose paths begin with the length of their content.
async fn bytes(request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
    let length = request.uri().path().split('/').nth(1).and_then(|length| length.parse().ok());
    Ok(Response::new(Full::from(vec![b'x'; length.unwrap_or(0)])))
}

async fn start(traces: &Traces) -> Running {
    let mut config = Config::default();
    config.traces = Some(traces.clone());
    let service = Watched::new(tower::service_fn(bytes), traces.clone());
    Running::start(Server::with_config(config), service).await
}

/// Events of a trace: name and data, without the header.
fn events(traces: &Traces, id: u64) -> Vec<(String, Value)> {
    let qlog = traces.qlog(id).unwrap();
    let mut records = qlog.split('\u{1e}').filter(|record| !record.is_empty()).map(|record| {
        assert!(record.ends_with('\n'));
        serde_json::from_str::<Value>(record).unwrap()
    });
    let header = records.next().unwrap();
    assert_eq!(header["file_schema"], "urn:ietf:params:qlog:file:sequential");
    assert_eq!(header["trace"]["common_fields"]["group_id"], id.to_string());
    let records: Vec<Value> = records.collect();
    assert!(records.is_sorted_by(|a, b| a["time"].as_f64() <= b["time"].as_f64()));
    records
        .iter()
        .map(|record| (record["name"].as_str().unwrap().to_owned(), record["data"].clone()))
        .collect()
}

#[test]
fn a_trace_tells_when_the_bytes_of_each_response_left() {
    run(async {
        let traces = Traces::new(4);
        let running = start(&traces).await;
        let mut builder = client::Builder::new();
        builder.initial_window_size(10_000_000).initial_connection_window_size(65_535);
        let client = &mut running.client_with(&mut builder).await;
        let mut photo = fetch(client, get_with("/500000/photo", "u=5")).await.into_body();
        // The photo has filled the window of the connection: the style comes before what is left of it.
        let mut filled = 0;
        while filled < 65_535 {
            filled += photo.data().await.unwrap().unwrap().len();
        }
        let style = fetch(client, get_with("/25000/style", "u=0")).await;
        photo.flow_control().release_capacity(filled).unwrap();
        assert_eq!(read(style).await.unwrap().len(), 25_000);
        while let Some(data) = photo.data().await {
            let data = data.unwrap();
            photo.flow_control().release_capacity(data.len()).unwrap();
        }
        until(|| running.server.open_requests() == 0).await;
        let [id] = traces.ids()[..] else { panic!("{:?}", traces.ids()) };
        let events = events(&traces, id);
        let of = |name: &str, number: u64| -> Vec<&Value> {
            let mine = events.iter().filter(|(event, data)| event == name && data["response"] == number);
            mine.map(|(_, data)| data).collect()
        };
        assert_eq!(of("web:request", 1)[0]["target"], "/25000/style");
        assert_eq!(of("web:decision", 1)[0]["source"], "header");
        assert_eq!(
            (&of("web:response", 0)[0]["status"], &of("web:response", 0)[0]["length"]),
            (&200.into(), &500_000.into())
        );
        assert_eq!(of("web:available", 0).len(), 1);
        for (number, bytes, level) in [(0, 500_000, "P3"), (1, 25_000, "P0")] {
            let grants = of("web:granted", number);
            let mut offset = 0;
            for grant in &grants {
                assert_eq!((&grant["offset"], &grant["level"]), (&offset.into(), &level.into()));
                offset += grant["length"].as_u64().unwrap();
            }
            assert_eq!(offset, bytes);
            assert_eq!(of("web:ended", number)[0]["outcome"], "complete");
        }
        // The last bytes of the style left before those of the photo.
        let last = |number: u64| {
            events
                .iter()
                .rposition(|(name, data)| name == "web:granted" && data["response"] == number)
                .unwrap()
        };
        assert!(last(1) < last(0), "{events:?}");
    });
}

#[test]
fn responses_that_end_early_say_why() {
    run(async {
        let traces = Traces::new(4);
        let running = start(&traces).await;
        let mut builder = client::Builder::new();
        builder.initial_window_size(1000);
        let client = &mut running.client_with(&mut builder).await;
        drop(fetch(client, get("/100000")).await);
        until(|| running.server.open_requests() == 0).await;
        let events = events(&traces, traces.ids()[0]);
        let (_, ended) = events.iter().find(|(name, _)| name == "web:ended").unwrap();
        assert_eq!(ended["outcome"], "reset");
    });
}

#[test]
fn without_traces_nothing_is_kept() {
    run(async {
        let traces = Traces::new(4);
        let service = Watched::new(tower::service_fn(bytes), traces.clone());
        let running = Running::start(Server::new(), service).await;
        assert!(running.http1("/5", "").await.ends_with("xxxxx"));
        assert!(traces.ids().is_empty());
        assert!(running.http1("/.marcato/", "").await.contains("No request yet"));
    });
}

#[test]
fn the_page_shows_both_versions_and_links_their_traces() {
    run(async {
        let traces = Traces::new(4);
        let running = start(&traces).await;
        let mut client = running.client().await;
        assert_eq!(
            read(fetch(&mut client, get_with("/2000/style.css", "u=0")).await).await.unwrap().len(),
            2000
        );
        running.http1("/3/old", "").await;
        until(|| running.server.open_requests() == 0).await;
        let response = running.http1("/.marcato/", "").await;
        let (head, page) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(
            head.contains("content-security-policy: default-src 'none'; style-src 'unsafe-inline'"),
            "{head}"
        );
        assert!(head.contains("cache-control: no-store") && head.contains("nosniff"), "{head}");
        assert!(page.contains("<svg") && page.contains("prefers-color-scheme"), "{page}");
        assert!(page.contains("0 /2000/style.css") && page.contains("2 kB, u=0 header"), "{page}");
        assert!(page.contains("0 /3/old") && page.contains("HTTP/1.1"), "{page}");
        for outside in ["<script", "://", "url(", "@import"] {
            assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
        }
        // The requests for the page itself are in no trace.
        let ids = traces.ids();
        assert_eq!(ids.len(), 2);
        for id in ids {
            assert!(page.contains(&format!("href=\"trace/{id}.sqlog\"")));
            let trace = running.http1(&format!("/.marcato/trace/{id}.sqlog"), "").await;
            assert!(trace.contains("content-type: application/qlog+json-seq"), "{trace}");
            assert!(trace.ends_with(&traces.qlog(id).unwrap()));
        }
        for path in ["/.marcato/trace/99.sqlog", "/.marcato/trace/x.sqlog", "/.marcato/other"] {
            assert!(running.http1(path, "").await.starts_with("HTTP/1.1 404 "), "{path}");
        }
        assert!(running.http1("/.marcato", "").await.contains("location: /.marcato/\r\n"));
    });
}

#[test]
fn hostile_targets_are_text_on_the_page() {
    run(async {
        let traces = Traces::new(8);
        let running = start(&traces).await;
        for target in ["/3/<script>alert(1)</script>", "/3/\"onload='x'&lt;{}", "/3?\"><svg/onload=x>"] {
            let mut stream = TcpStream::connect(running.addr).await.unwrap();
            let request = format!("GET {target} HTTP/1.1\r\nhost: <b>\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let mut client = RawClient::connect(running.addr, b"").await;
            client.send(&headers(1, target)).await;
            // The library refuses some of them: by a response, a reset, or the end.
            while client
                .next()
                .await
                .is_some_and(|(kind, _, stream, _)| stream != 1 || !matches!(kind, 0 | 3))
            {}
        }
        until(|| running.server.open_requests() == 0).await;
        let page = running.http1("/.marcato/", "").await;
        assert!(page.contains("/3/&quot;onload=&#39;x&#39;&amp;lt;{}"), "{page}");
        for markup in ["<script", "<b>", "\"onload", "<svg/"] {
            assert!(!page.contains(markup), "{markup}: {page}");
        }
    });
}

/// Status of a request for the page from an address.
async fn status(peer: &str, uri: &str, field: Option<&'static str>) -> StatusCode {
    let mut watched =
        Watched::new(tower::service_fn(bytes), Traces::new(1)).allow(["192.0.2.0/24".parse().unwrap()]);
    let mut request = Request::get(uri).body(Body::empty()).unwrap();
    request.extensions_mut().insert(PeerAddr(peer.parse().unwrap()));
    if let Some(field) = field {
        request.headers_mut().insert(field, HeaderValue::from_static("1"));
    }
    watched.call(request).await.unwrap().status()
}

#[test]
fn only_clients_that_are_allowed_see_the_page() {
    run(async {
        let (ok, hidden) = (StatusCode::OK, StatusCode::NOT_FOUND);
        for (peer, uri, field, expected) in [
            ("127.0.0.1:5", "http://127.0.0.1/.marcato/", None, ok),
            ("[::1]:5", "http://localhost:8080/.marcato/", None, ok),
            ("[::ffff:127.0.0.1]:5", "http://[::1]/.marcato/", None, ok),
            ("192.0.2.9:5", "https://site.example/.marcato/", None, ok),
            ("198.51.100.9:5", "https://site.example/.marcato/", None, hidden),
            ("198.51.100.9:5", "http://127.0.0.1/.marcato/trace/1.sqlog", None, hidden),
            // A page of a stranger, whose name points here.
            ("127.0.0.1:5", "http://rebound.example/.marcato/", None, hidden),
            ("127.0.0.1:5", "/.marcato/", None, hidden),
            // A proxy at this machine.
            ("127.0.0.1:5", "http://127.0.0.1/.marcato/", Some("x-forwarded-for"), hidden),
            ("127.0.0.1:5", "http://127.0.0.1/.marcato/", Some("forwarded"), hidden),
            ("127.0.0.1:5", "http://127.0.0.1/.marcato/", Some("via"), hidden),
            ("198.51.100.9:5", "http://site.example/3", None, ok),
        ] {
            assert_eq!(status(peer, uri, field).await, expected, "{peer} {uri} {field:?}");
        }
    });
}
