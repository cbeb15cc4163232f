//! Rules of the proxy, as origins and clients see them.
#![cfg(feature = "proxy")]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bytes::Bytes as Payload;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use marcato_units::{Bytes, Duration};
use marcato_web::proxy::{
    HealthConfig, PassiveConfig, Proxy, ProxyConfig, Roots, TrustedForwarders, Upstream,
};
use marcato_web::{Config, PeerAddr, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::proxy::{
    BoxError, Speaks, TestBody, breaking_origin, call, certificate, connect, echo, empty, full, get, listen,
    origin, passed_on, proof, proxy_to, request, serve, switch, text, trailers, with_trailers,
};
use crate::support::{Running, until};

/// Head of a request, as it came.
async fn read_head_as_is(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Head of a request in lower case, and its content.
type Seen = (String, Vec<u8>);

/// Reads a request whose content has a length.
async fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let head = read_head_as_is(stream).await?.to_lowercase();
    let length = head.split_once("content-length: ").map(|(_, rest)| rest.split_once("\r\n").unwrap().0);
    let mut content = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut content).await.ok()?;
    Some((head, content))
}

/// Origin that answers each request with the same bytes.
async fn answering(response: impl Into<Vec<u8>>) -> SocketAddr {
    let (listener, address) = listen().await;
    let response: Arc<[u8]> = response.into().into();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let response = Arc::clone(&response);
            tokio::spawn(async move {
                while read_request(&mut stream).await.is_some() {
                    // In parts, of which the first may be read alone.
                    for part in response.chunks(20_000) {
                        if stream.write_all(part).await.is_err() {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
    });
    address
}

/// Origin that keeps connections open, and closes each at its second request.
struct Stale {
    address: SocketAddr,
    /// Requests that were answered.
    answered: Arc<Mutex<Vec<Seen>>>,
}

impl Stale {
    async fn start() -> Self {
        let (listener, address) = listen().await;
        let answered = Arc::<Mutex<Vec<_>>>::default();
        let log = Arc::clone(&answered);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let Some(request) = read_request(&mut stream).await else { return };
                    log.lock().unwrap().push(request);
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                    // The second request is read, and never answered.
                    let _ = read_request(&mut stream).await;
                });
            }
        });
        Self { address, answered }
    }
}

fn configured(address: SocketAddr, change: impl FnOnce(&mut ProxyConfig)) -> Proxy {
    let mut config = ProxyConfig::to(format!("http://{address}"));
    change(&mut config);
    Proxy::new(config).unwrap()
}

/// Makes a connection idle.
async fn warm(proxy: &Proxy) {
    assert_eq!(call(proxy, get(&[])).await.into_body().collect().await.unwrap().to_bytes(), "ok");
    until(|| proxy.counters().upstreams[0].idle == 1).await;
}

#[tokio::test]
async fn an_origin_sees_via_only_if_it_is_asked_for() {
    let address = origin(Speaks::Http1, echo).await;
    for (asked, client, expected) in [
        (false, None, vec![]),
        (false, Some("1.0 other"), vec!["via: 1.0 other"]),
        (true, None, vec!["via: 1.1 marcato"]),
        (true, Some("1.0 other"), vec!["via: 1.0 other", "via: 1.1 marcato"]),
    ] {
        let proxy = configured(address, |config| config.via_to_origins = asked);
        let fields: Vec<_> = client.map(|via| ("via", via)).into_iter().collect();
        let response = call(&proxy, get(&fields)).await;
        assert_eq!(response.headers()["via"], "1.1 marcato");
        let text = text(response).await;
        let seen: Vec<_> = text.lines().filter(|line| line.starts_with("via")).collect();
        assert_eq!(seen, expected);
    }
}

/// Fields of a request of HTTP/1.1 through a server and a proxy, as an origin sees them.
async fn seen_fields(fields: &str, trusted: TrustedForwarders) -> Vec<String> {
    let address = origin(Speaks::Http1, echo).await;
    let proxy = configured(address, |config| config.trusted_forwarders = trusted);
    let running = Running::start(Server::new(), proxy).await;
    let response = running.http1("/", fields).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let (_, seen) = response.split_once("\r\n\r\n").unwrap();
    let ours = ["forwarded:", "x-forwarded-for:", "x-forwarded-host:", "x-forwarded-proto:", "host:"];
    let mut seen: Vec<String> = seen.lines().skip(1).map(str::to_owned).collect();
    seen.retain(|line| !line.is_empty() && !ours.iter().any(|own| line.starts_with(own)));
    seen.sort_unstable();
    seen
}

#[tokio::test]
async fn names_that_fold_to_others_reach_no_origin() {
    let fields = "X_Forwarded_For: 10.0.0.9\r\nX-Forwarded_Proto: https\r\nx_forwarded-port: 1\r\n\
        X.Forwarded.Host: evil\r\nX_Real_IP: 10.0.0.9\r\nContent_Length: 9\r\nTransfer_Encoding: chunked\r\n\
        Proxy_Authorization: a\r\nMax_Forwards: 0\r\n\
        X-User: real\r\nX_User: forged\r\nX~User: forged\r\nMy_Field: kept\r\nMy.Field: second\r\nOther: x\r\n";
    let expected = ["my_field: kept", "other: x", "x-user: real"];
    assert_eq!(seen_fields(fields, TrustedForwarders::None).await, expected);
    // A trusted forwarder passes on what its clients have invented.
    assert_eq!(seen_fields(fields, TrustedForwarders::All).await, expected);
}

#[tokio::test]
async fn trailers_of_a_request_claim_no_client() {
    let (sent, mut seen) = mpsc::unbounded_channel();
    let address = origin(Speaks::Http2, move |request: Request<Incoming>| {
        let sent = sent.clone();
        async move {
            sent.send(request.into_body().collect().await.unwrap().trailers().cloned()).unwrap();
            Response::new(empty())
        }
    })
    .await;
    let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    let fields = [
        ("x-sum", "7"),
        ("x-forwarded-for", "10.0.0.9"),
        ("x_forwarded_for", "10.0.0.9"),
        ("x-real-ip", "1"),
    ];
    let trailing = trailers(&fields);
    let body = Full::new(Payload::from_static(b"x")).with_trailers(async move { Some(Ok(trailing)) });
    let body = body.map_err(BoxError::from).boxed_unsync();
    call(&proxy, request(Method::POST, &[("te", "trailers")], body)).await;
    assert_eq!(seen.recv().await.unwrap(), Some(trailers(&[("x-sum", "7")])));
}

/// Head of a response with a number of fields.
fn head_of(fields: usize) -> String {
    let many: String = (1..fields).map(|number| format!("x-{number}: v\r\n")).collect();
    format!("HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n")
}

#[tokio::test]
async fn responses_have_as_many_fields_as_the_key_says() {
    for (most, fields, status) in
        [(None, 101, 200), (None, 500, 200), (None, 501, 502), (Some(3), 3, 200), (Some(3), 4, 502)]
    {
        let address = answering(head_of(fields)).await;
        let proxy =
            configured(address, |config| config.response_fields = most.unwrap_or(config.response_fields));
        for _ in 0..5 {
            assert_eq!(call(&proxy, get(&[])).await.status(), status, "{fields} of {most:?}");
        }
        // The others still use the upstream.
        let upstream = &proxy.counters().upstreams[0];
        assert_eq!((upstream.healthy, upstream.failures), (true, 0));
    }
}

#[tokio::test]
async fn responses_of_http2_have_as_many_fields_too() {
    for (fields, status) in [(500, 200), (501, 502)] {
        let address = origin(Speaks::Http2, move |_| async move {
            // The library adds the date.
            let fields =
                (1..fields).fold(Response::builder(), |head, number| head.header(format!("x-{number}"), "v"));
            fields.body(empty()).unwrap()
        })
        .await;
        let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
        assert_eq!(call(&proxy, get(&[])).await.status(), status, "{fields}");
        assert!(proxy.counters().upstreams[0].healthy);
    }
}

#[tokio::test]
async fn the_head_of_a_response_is_as_long_as_the_key_says() {
    for (most, length, status) in [
        (64 << 10, 64 << 10, 200),
        (64 << 10, (64 << 10) + 1, 502),
        (64 << 10, 100_000, 502),
        (100_000, 100_000, 200),
        (1 << 10, 1025, 502),
        (1 << 10, 1024, 200),
    ] {
        let start = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: ";
        let value = "v".repeat(length - start.len() - 4);
        let address = answering(format!("{start}{value}\r\n\r\n")).await;
        let proxy = configured(address, |config| config.response_head = Bytes::new(most));
        for _ in 0..10 {
            let response = call(&proxy, get(&[])).await;
            assert_eq!(response.status(), status, "{length} of {most}");
            let received = response.headers().get("x").map_or(0, |value| value.len());
            assert_eq!(received, if status == 200 { value.len() } else { 0 });
        }
    }
}

#[tokio::test]
async fn the_fields_of_a_response_over_http2_have_the_same_bound() {
    let address = origin(Speaks::Http2, |request: Request<Incoming>| async move {
        // RFC 9113 §6.5.2: a field counts with 32 bytes more than its name and value.
        let len: usize = request.uri().query().unwrap().parse().unwrap();
        Response::builder().header("x", "v".repeat(len)).body(empty()).unwrap()
    })
    .await;
    let config =
        ProxyConfig { response_head: Bytes::new(8 << 10), ..ProxyConfig::to(format!("h2c://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    for (len, status) in [(7 << 10, 200), (9 << 10, 502), (100, 200)] {
        let request = Request::get(format!("http://a.test/?{len}")).body(empty()).unwrap();
        assert_eq!(call(&proxy, request).await.status(), status, "{len}");
    }
}

#[tokio::test]
async fn requests_share_a_connection_of_http2_that_is_being_made() {
    let address = origin(Speaks::Http2, |_| async { Response::new(empty()) }).await;
    let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let proxy = proxy.clone();
        asked.spawn(async move { call(&proxy, get(&[])).await.status() });
    }
    assert!(asked.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(proxy.counters().upstreams[0].connections, 1);
}

#[tokio::test]
async fn a_retry_goes_to_an_upstream_that_was_not_tried() {
    let ((breaking, _), working) =
        (breaking_origin().await, origin(Speaks::Http1, |_| async { Response::new(full("ok")) }).await);
    // By its weight the turn is with the first one, again and again.
    let upstreams = vec![
        Upstream::new(format!("http://{breaking}")).with_weight(1000),
        Upstream::new(format!("http://{working}")),
    ];
    let passive = PassiveConfig { failures: 1000, ..PassiveConfig::default() };
    let proxy = Proxy::new(ProxyConfig { upstreams, passive, retries: 1, ..ProxyConfig::default() }).unwrap();
    for _ in 0..10 {
        assert_eq!(text(call(&proxy, get(&[])).await).await, "ok");
    }
    assert!(proxy.counters().upstreams[0].failures >= 9);
}

#[tokio::test]
async fn trailers_of_a_response_cannot_stand_for_its_fields() {
    let address = origin(Speaks::Http2, |_| async {
        let fields = [("x-sum", "1"), ("set-cookie", "a=b"), ("x_forwarded_for", "10.0.0.9")];
        Response::new(with_trailers("content", &fields))
    })
    .await;
    let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    let collected = call(&proxy, get(&[("te", "trailers")])).await.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers(), Some(&trailers(&[("x-sum", "1")])));
}

#[test]
fn a_tunnel_whose_response_is_dropped_ends_in_both_directions() {
    crate::support::run(async {
        let proxy = proxy_to(origin(Speaks::Http1, switch).await);
        let (mut sender, body) = Channel::<Payload, BoxError>::new(4);
        let mut response = call(&proxy, connect(Some("websocket"), body.boxed_unsync())).await.into_body();
        sender.send_data(Payload::from_static(b"word")).await.unwrap();
        assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), "word");
        drop(response);
        // The client has not ended its direction.
        until(|| proxy.counters().upstreams[0].in_flight == 0).await;
        drop(sender);
    });
}

#[tokio::test]
async fn an_upgrade_for_a_websocket_names_its_version() {
    let address = origin(Speaks::Http1, |request| async {
        // RFC 6455 §4.1.
        match request.headers().get("sec-websocket-version").is_some_and(|version| version == "13") {
            true => switch(request).await,
            false => Response::builder().status(StatusCode::UPGRADE_REQUIRED).body(empty()).unwrap(),
        }
    })
    .await;
    assert_eq!(call(&proxy_to(address), connect(Some("websocket"), empty())).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_body_is_sent_again_after_a_stale_connection() {
    let stale = Stale::start().await;
    let proxy = proxy_to(stale.address);
    warm(&proxy).await;
    let response = call(&proxy, request(Method::PUT, &[], full("body"))).await;
    assert_eq!((response.status(), text(response).await.as_str()), (StatusCode::OK, "ok"));
    let answered = stale.answered.lock().unwrap().clone();
    assert_eq!(answered.len(), 2);
    assert!(answered[1].0.starts_with("put /path?q=1 http/1.1\r\n"), "{}", answered[1].0);
    assert_eq!(answered[1].1, b"body");
    let counters = proxy.counters();
    assert_eq!((counters.upstreams[0].replayed_bodies, counters.upstreams[0].connections), (1, 2));
    // The connection, or the body, may be gone before the request was written.
    assert_eq!((counters.bad_gateways, counters.unkept_bodies, counters.kept.get()), (0, 0, 0));
}

#[tokio::test]
async fn posts_and_bodies_beyond_the_kept_part_are_not_resent() {
    for (method, length, kept) in [(Method::POST, 4, 64), (Method::PUT, 65, 64), (Method::PUT, 1, 0)] {
        let stale = Stale::start().await;
        let proxy = configured(stale.address, |config| config.kept_body = Bytes::new(kept));
        warm(&proxy).await;
        let response = call(&proxy, request(method, &[], full(&"x".repeat(length)))).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY, "{length}");
        assert_eq!(stale.answered.lock().unwrap().len(), 1);
        let counters = proxy.counters();
        let unkept = u64::from(length as u64 > kept);
        assert_eq!(
            (counters.unkept_bodies, counters.upstreams[0].replayed_bodies, counters.kept.get()),
            (unkept, 0, 0)
        );
    }
}

#[tokio::test]
async fn a_body_is_kept_until_its_response_begins() {
    let (seen, mut came) = mpsc::unbounded_channel();
    let (go, gate) = tokio::sync::watch::channel(false);
    let address = origin(Speaks::Http1, move |request: Request<Incoming>| {
        let (seen, mut gate) = (seen.clone(), gate.clone());
        async move {
            let mut body = request.into_body();
            seen.send(body.frame().await.unwrap().unwrap().into_data().unwrap()).unwrap();
            gate.wait_for(|open| *open).await.unwrap();
            Response::new(full("early"))
        }
    })
    .await;
    let proxy = proxy_to(address);
    let (mut sender, body) = Channel::<Payload, BoxError>::new(1);
    let waiting = tokio::spawn({
        let proxy = proxy.clone();
        async move { call(&proxy, request(Method::PUT, &[], body.boxed_unsync())).await }
    });
    sender.send_data(Payload::from_static(b"part")).await.unwrap();
    assert_eq!(came.recv().await.unwrap(), "part");
    assert_eq!(proxy.counters().kept.get(), 4);
    go.send(true).unwrap();
    let response = waiting.await.unwrap();
    assert_eq!(proxy.counters().kept.get(), 0);
    assert_eq!(text(response).await, "early");
}

/// Origin of HTTP/2 that answers at once, with what a handler makes of the body of a request.
async fn answering_at_once<F>(respond: impl Fn(Incoming) -> F + Clone + Send + Sync + 'static) -> Proxy
where
    F: Future<Output = TestBody> + Send + 'static,
{
    let address = origin(Speaks::Http2, move |request: Request<Incoming>| {
        let content = respond(request.into_body());
        async { Response::new(content.await) }
    })
    .await;
    Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap()
}

#[tokio::test]
async fn a_body_is_not_kept_while_its_response_runs() {
    let proxy = answering_at_once(async |body| body.map_err(Into::into).boxed_unsync()).await;
    let (mut sender, body) = Channel::<Payload, BoxError>::new(1);
    let mut echo = call(&proxy, request(Method::PUT, &[], body.boxed_unsync())).await.into_body();
    for word in ["one", "two"] {
        sender.send_data(Payload::from_static(word.as_bytes())).await.unwrap();
        assert_eq!(echo.frame().await.unwrap().unwrap().into_data().unwrap(), word);
        assert_eq!(proxy.counters().kept.get(), 0, "{word}");
    }
    drop(sender);
    assert!(echo.collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn bytes_of_a_request_keep_its_silent_response_open() {
    let (seen, mut came) = mpsc::unbounded_channel();
    let proxy = answering_at_once(move |mut body| {
        let (mut sender, response) = Channel::<Payload, BoxError>::new(1);
        let seen = seen.clone();
        tokio::spawn(async move {
            while let Some(frame) = body.frame().await {
                seen.send(frame.unwrap().into_data().unwrap()).unwrap();
            }
            sender.send_data(Payload::from_static(b"all")).await.unwrap();
        });
        std::future::ready(response.boxed_unsync())
    })
    .await;
    let idle = ProxyConfig::default().body_idle_timeout;
    let (mut sender, body) = Channel::<Payload, BoxError>::new(1);
    let mut response = call(&proxy, request(Method::PUT, &[], body.boxed_unsync())).await.into_body();
    let mut is_pending =
        async || poll_fn(|cx| Poll::Ready(Pin::new(&mut response).poll_frame(cx).is_pending())).await;
    assert!(is_pending().await);
    for _ in 0..4 {
        sender.send_data(Payload::from_static(b"more")).await.unwrap();
        assert_eq!(came.recv().await.unwrap(), "more");
        tokio::time::pause();
        tokio::time::advance(idle.mul_f64(0.6)).await;
        tokio::time::resume();
        assert!(is_pending().await);
    }
    drop(sender);
    assert_eq!(response.collect().await.unwrap().to_bytes(), "all");
}

#[tokio::test]
async fn a_connection_returns_once_the_rest_of_its_request_is_sent() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        loop {
            // It answers before it has read the body.
            if read_head_as_is(&mut stream).await.is_none() {
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            let mut rest = Vec::new();
            while !rest.ends_with(b"0\r\n\r\n") {
                rest.push(stream.read_u8().await.unwrap());
            }
        }
    });
    let proxy = proxy_to(address);
    for _ in 0..2 {
        let (mut sender, body) = Channel::<Payload, BoxError>::new(1);
        let response = call(&proxy, request(Method::PUT, &[], body.boxed_unsync())).await;
        assert_eq!(text(response).await, "ok");
        assert_eq!(proxy.counters().upstreams[0].idle, 0);
        sender.send_data(Payload::from_static(b"rest")).await.unwrap();
        drop(sender);
        until(|| proxy.counters().upstreams[0].idle == 1).await;
    }
    assert_eq!(proxy.counters().upstreams[0].connections, 1);
}

#[tokio::test]
async fn a_retry_after_a_stale_connection_takes_a_new_one() {
    let stale = Stale::start().await;
    let proxy = configured(stale.address, |config| config.retries = 1);
    // Two connections are idle, and neither serves a second request.
    let (one, two) = tokio::join!(call(&proxy, get(&[])), call(&proxy, get(&[])));
    tokio::join!(text(one), text(two));
    until(|| proxy.counters().upstreams[0].idle == 2).await;
    assert_eq!(text(call(&proxy, get(&[])).await).await, "ok");
    assert_eq!(proxy.counters().upstreams[0].connections, 3);
}

#[tokio::test]
async fn checks_pass_by_statuses_below_400_alone() {
    for (status, passes) in [(200, true), (204, true), (302, true), (400, false), (404, false), (500, false)]
    {
        let address = origin(Speaks::Http1, move |_| async move {
            Response::builder().status(status).body(empty()).unwrap()
        })
        .await;
        let health = HealthConfig {
            interval: Duration::from_millis(1),
            timeout: Duration::from_secs(60),
            unhealthy_after: 2,
            ..HealthConfig::default()
        };
        let proxy = configured(address, |config| config.health = Some(health));
        let state = || proxy.counters().upstreams.remove(0);
        until(|| state().checks > 3).await;
        // More checks may be made meanwhile, and all have the same outcome.
        let state = state();
        assert_eq!((state.healthy, state.failed_checks > 0), (passes, !passes), "{status}");
    }
}

#[tokio::test]
async fn a_success_between_two_failures_forgets_the_first() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let Some((head, _)) = read_request(&mut stream).await else { continue };
            if head.starts_with("post") {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .await;
            }
        }
    });
    let passive = PassiveConfig { failures: 2, rest: Duration::from_secs(600) };
    let proxy = configured(address, |config| (config.passive, config.retries) = (passive, 0));
    let is_healthy = async |method| {
        call(&proxy, request(method, &[], empty())).await;
        proxy.counters().upstreams[0].healthy
    };
    for _ in 0..3 {
        assert!(is_healthy(Method::GET).await && is_healthy(Method::POST).await);
    }
    assert!(is_healthy(Method::GET).await);
    assert!(!is_healthy(Method::GET).await);
}

#[tokio::test]
async fn a_connection_is_reused_until_its_idle_time_is_over() {
    let address = answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let proxy = configured(address, |config| config.idle_timeout = Duration::from_secs(3000));
    for (idle, connections) in [(0, 1), (2000, 1), (2000, 1), (3000, 2)] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(idle)).await;
        tokio::time::resume();
        warm(&proxy).await;
        assert_eq!(proxy.counters().upstreams[0].connections, connections, "after {idle} s");
    }
}

#[tokio::test]
async fn so_many_connections_stay_idle_and_no_more() {
    let address = origin(Speaks::Http1, |_| async { Response::new(full("ok")) }).await;
    for most in [0, 2] {
        let proxy = configured(address, |config| config.max_idle = most);
        let mut responses = Vec::new();
        for _ in 0..5 {
            responses.push(call(&proxy, get(&[])).await);
        }
        for response in responses {
            text(response).await;
        }
        until(|| proxy.counters().upstreams[0].dropped + proxy.counters().upstreams[0].idle as u64 == 5)
            .await;
        assert_eq!(proxy.counters().upstreams[0].idle, most);
    }
}

#[tokio::test]
async fn te_is_named_in_connection() {
    for (fields, expected) in [
        (&[("te", "trailers")][..], Some("te")),
        (&[("te", "gzip, trailers;q=0.5")], None),
        (&[("te", "Trailers, deflate"), ("connection", "te")], Some("te")),
        (&[("connection", "te")], None),
        (&[], None),
    ] {
        let (listener, address) = listen().await;
        let seen = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (head, _) = read_request(&mut stream).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            head
        });
        call(&proxy_to(address), get(fields)).await;
        let head = seen.await.unwrap();
        let lines = |name: &str| -> Vec<String> {
            head.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
        };
        assert_eq!(lines("connection: "), Vec::from_iter(expected), "{fields:?}");
        assert_eq!(lines("te: "), Vec::from_iter(expected.map(|_| "trailers")), "{fields:?}");
    }
}

/// Server for both versions of IP, in front of an origin that shows what it sees.
async fn dual(configure: impl FnOnce(&mut Config), trusted: TrustedForwarders) -> (Running, SocketAddr) {
    let address = origin(Speaks::Http1, echo).await;
    let proxy = configured(address, |config| config.trusted_forwarders = trusted);
    let mut config = Config::default();
    configure(&mut config);
    let listener = TcpListener::bind("[::]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let running = Running::start_at(listener, Server::with_config(config), proxy).await;
    (running, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Response to a request of IPv4.
async fn fetch_from(address: SocketAddr, fields: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn an_ipv4_client_of_an_ipv6_socket_keeps_its_address() {
    let forged = "x-forwarded-for: 10.0.0.9\r\n";
    let (_running, address) = dual(|_| {}, TrustedForwarders::None).await;
    let seen = fetch_from(address, forged).await;
    assert!(seen.contains("\nx-forwarded-for: 127.0.0.1\n") && !seen.contains("10.0.0.9"), "{seen}");
    assert!(seen.contains("\nforwarded: for=127.0.0.1;"), "{seen}");
    let trusted = TrustedForwarders::Addresses(vec!["127.0.0.1".parse().unwrap()]);
    let (_running, address) = dual(|_| {}, trusted).await;
    let seen = fetch_from(address, forged).await;
    assert!(seen.contains("\nx-forwarded-for: 10.0.0.9\nx-forwarded-for: 127.0.0.1\n"), "{seen}");
}

#[tokio::test]
async fn an_ipv4_client_of_an_ipv6_socket_is_in_its_network() {
    let limit = |config: &mut Config| config.limits.request_rate = Some(marcato_web::RateLimit::new(1, 1));
    let trust = |config: &mut Config| {
        limit(config);
        config.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    };
    let (running, address) = dual(trust, TrustedForwarders::None).await;
    for _ in 0..5 {
        assert!(fetch_from(address, "").await.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(running.server.known_addresses(), 0);
    let (running, address) = dual(limit, TrustedForwarders::None).await;
    fetch_from(address, "").await;
    assert_eq!(running.server.known_addresses(), 1);
}

/// Fields of one connection, as RFC 9110 §7.6.1 and §11.7 name them, and some of other documents.
const OF_ONE_CONNECTION: [&str; 7] = [
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "http2-settings",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-authentication-info",
];

#[tokio::test]
async fn no_field_of_one_connection_reaches_the_other() {
    let add = |headers: &mut HeaderMap| {
        for name in OF_ONE_CONNECTION {
            headers.append(name, "v".parse().unwrap());
        }
        headers.append("connection", "x-one, te".parse().unwrap());
        headers.append("x-one", "v".parse().unwrap());
        headers.append("te", "gzip".parse().unwrap());
        headers.append("x-kept", "v".parse().unwrap());
    };
    for headers in passed_on(add).await {
        for name in OF_ONE_CONNECTION.into_iter().chain(["connection", "x-one", "te", "transfer-encoding"]) {
            assert!(!headers.contains_key(name), "{name}");
        }
        assert_eq!(headers["x-kept"], "v");
    }
}

#[tokio::test]
async fn a_websocket_needs_the_proof_of_its_origin() {
    type Answer = fn(&[u8]) -> Option<String>;
    let answers: [(&str, Answer); 4] = [
        ("right", |key| Some(proof(key))),
        ("wrong", |key| Some(proof(&[key, b"x"].concat()))),
        ("of another", |_| Some(proof(b"dGhlIHNhbXBsZSBub25jZQ=="))),
        ("absent", |_| None),
    ];
    for (what, answer) in answers {
        let (listener, address) = listen().await;
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = read_head_as_is(&mut stream).await.unwrap();
            let key = head.split_once("sec-websocket-key: ").unwrap().1.split_once("\r\n").unwrap().0;
            let field = answer(key.as_bytes())
                .map_or(String::new(), |proof| format!("sec-websocket-accept: {proof}\r\n"));
            let response = format!(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n{field}\r\n"
            );
            stream.write_all(response.as_bytes()).await.unwrap();
            let _ = stream.read_u8().await;
        });
        let proxy = proxy_to(address);
        let (_sender, body) = Channel::<Payload, BoxError>::new(1);
        let response = call(&proxy, connect(Some("websocket"), body.boxed_unsync())).await;
        let expected = if what == "right" { (StatusCode::OK, 1, 0) } else { (StatusCode::BAD_GATEWAY, 0, 1) };
        let counters = proxy.counters();
        assert_eq!((response.status(), counters.tunnels, counters.bad_gateways), expected, "{what}");
    }
}

#[tokio::test]
async fn an_origin_of_http2_alone_takes_no_upgrades() {
    let asked = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&asked);
    let address = origin(Speaks::Http2, move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Response::new(empty()) }
    })
    .await;
    let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    let running = Running::start(Server::new(), proxy.clone()).await;
    let response = running.http1("/chat", "upgrade: websocket\r\nconnection: upgrade\r\n").await;
    assert!(response.starts_with("HTTP/1.1 501 "), "{response}");
    assert_eq!(call(&proxy, connect(Some("websocket"), empty())).await.status(), StatusCode::NOT_IMPLEMENTED);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    assert!(proxy.counters().upstreams[0].healthy);
}

#[tokio::test]
async fn a_client_of_a_test_may_have_a_mapped_address() {
    let address = origin(Speaks::Http1, echo).await;
    let mut request: Request<TestBody> = get(&[]);
    request.extensions_mut().insert(PeerAddr("[::ffff:192.0.2.1]:5000".parse().unwrap()));
    let seen = text(call(&proxy_to(address), request).await).await;
    assert!(seen.contains("\nx-forwarded-for: 192.0.2.1\n"), "{seen}");
}

#[tokio::test]
async fn chunks_of_a_response_override_its_length() {
    let address = answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    )
    .await;
    let response = call(&proxy_to(address), get(&[])).await;
    assert_eq!(response.status(), StatusCode::OK);
    for name in ["content-length", "transfer-encoding"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    assert_eq!(text(response).await, "ok");
}

#[tokio::test]
async fn the_connection_that_was_used_last_is_used_next() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                while read_request(&mut stream).await.is_some() {
                    let head =
                        format!("HTTP/1.1 200 OK\r\nx-number: {number}\r\ncontent-length: 2\r\n\r\nok");
                    stream.write_all(head.as_bytes()).await.unwrap();
                }
            });
        }
    });
    for last in [0, 1] {
        let proxy = proxy_to(address);
        let mut responses = vec![call(&proxy, get(&[])).await, call(&proxy, get(&[])).await];
        let latest = responses.remove(last);
        text(responses.remove(0)).await;
        until(|| proxy.counters().upstreams[0].idle == 1).await;
        let expected = latest.headers()["x-number"].clone();
        text(latest).await;
        until(|| proxy.counters().upstreams[0].idle == 2).await;
        assert_eq!(call(&proxy, get(&[])).await.headers()["x-number"], expected);
    }
}

#[tokio::test]
async fn a_slow_client_is_no_silent_origin() {
    let (mut sender, body) = Channel::<Payload, BoxError>::new(1);
    let body = Arc::new(Mutex::new(Some(body.boxed_unsync())));
    let address = origin(Speaks::Http1, move |_| {
        let body = body.lock().unwrap().take().unwrap();
        async { Response::new(body) }
    })
    .await;
    let proxy = configured(address, |config| config.body_idle_timeout = Duration::from_secs(3000));
    let mut body = call(&proxy, get(&[])).await.into_body();
    // The client waits once, so that the time runs.
    let is_pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending())).await;
    assert!(is_pending);
    for word in ["one", "two"] {
        sender.send_data(Payload::from_static(word.as_bytes())).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), word);
        // It takes nothing for long: the origin owes nothing meanwhile.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(9000)).await;
        tokio::time::resume();
        let is_pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending())).await;
        assert!(is_pending, "{word}");
    }
}

#[tokio::test]
async fn a_request_that_an_origin_refuses_is_sent_again() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut has_refused = false;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            if std::mem::replace(&mut has_refused, true) {
                respond.send_response(Response::new(()), true).unwrap();
            } else {
                // RFC 9113 §8.7: the request was not processed.
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            }
        }
    });
    let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    let response = call(&proxy, request(Method::POST, &[], full("body"))).await;
    assert_eq!(response.status(), StatusCode::OK);
    let upstream = &proxy.counters().upstreams[0];
    assert_eq!((upstream.retries, upstream.failures), (1, 0));
}

#[tokio::test]
async fn a_websocket_over_tls_takes_http1_of_an_origin_with_both() {
    let (mut tls, roots) = certificate();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = acceptor.accept(stream).await.unwrap();
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                tokio::spawn(serve(Speaks::Http2, stream, echo));
            } else {
                tokio::spawn(serve(Speaks::Http1, stream, switch));
            }
        }
    });
    let roots = Roots::Given(Arc::new(roots));
    let proxy = Proxy::new(ProxyConfig { roots, ..ProxyConfig::to(format!("https://{address}")) }).unwrap();
    // A connection of HTTP/2 that is open does not serve an upgrade either.
    assert!(text(call(&proxy, get(&[])).await).await.starts_with("GET https://"));
    let (_sender, body) = Channel::<Payload, BoxError>::new(1);
    let response = call(&proxy, connect(Some("websocket"), body.boxed_unsync())).await;
    assert_eq!((response.status(), proxy.counters().tunnels), (StatusCode::OK, 1));
}
