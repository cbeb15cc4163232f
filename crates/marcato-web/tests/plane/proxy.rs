//! The proxy between real sockets.
#![cfg(feature = "proxy")]

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use http_body_util::channel::Channel;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use marcato_units::Duration;
use marcato_web::proxy::{
    HealthConfig, PassiveConfig, Proxy, ProxyBody, ProxyConfig, Roots, Upstream, UpstreamState,
};
use marcato_web::{PeerAddr, Server};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tower_service::Service;

use crate::support::until;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;
pub(crate) type TestBody = UnsyncBoxBody<Bytes, BoxError>;

pub(crate) fn empty() -> TestBody {
    UnsyncBoxBody::new(Empty::new().map_err(Into::into))
}

pub(crate) fn full(text: &str) -> TestBody {
    UnsyncBoxBody::new(Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(Into::into))
}

pub(crate) fn trailers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    fields
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

/// Body that ends with trailers.
pub(crate) fn with_trailers(text: &'static str, fields: &[(&'static str, &'static str)]) -> TestBody {
    let trailers = trailers(fields);
    let body =
        Full::new(Bytes::from_static(text.as_bytes())).with_trailers(async move { Some(Ok(trailers)) });
    UnsyncBoxBody::new(body.map_err(Into::into))
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Address at which nothing listens.
async fn closed_port() -> SocketAddr {
    listen().await.1
}

/// Version of an origin.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Speaks {
    Http1,
    Http2,
}

/// Origin that answers with a handler.
pub(crate) async fn origin<H, F>(speaks: Speaks, handler: H) -> SocketAddr
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<TestBody>> + Send + 'static,
{
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(speaks, stream, handler.clone()));
        }
    });
    address
}

pub(crate) async fn serve<T, H, F>(speaks: Speaks, stream: T, handler: H)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<TestBody>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let response = handler(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let io = TokioIo::new(stream);
    let _ = match speaks {
        Speaks::Http1 => {
            let mut http1 = hyper::server::conn::http1::Builder::new();
            http1.max_headers(1000).max_buf_size(1 << 20).serve_connection(io, service).with_upgrades().await
        }
        Speaks::Http2 => {
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
        }
    };
}

/// Origin that reads a request and closes the connection.
pub(crate) async fn breaking_origin() -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address) = listen().await;
    let requests = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (address, requests)
}

/// Server of HTTP/1.1 in front of a proxy.
async fn front(proxy: Proxy) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let proxy = proxy.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddr(peer));
                proxy.clone().call(request)
            });
            let http1 = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http1.serve_connection(TokioIo::new(stream), service).with_upgrades());
        }
    });
    address
}

pub(crate) fn proxy_to(address: SocketAddr) -> Proxy {
    Proxy::new(ProxyConfig::to(format!("http://{address}"))).unwrap()
}

pub(crate) fn proxy_among(addresses: &[SocketAddr]) -> Proxy {
    let upstreams = addresses.iter().map(|address| Upstream::new(format!("http://{address}"))).collect();
    Proxy::new(ProxyConfig { upstreams, ..ProxyConfig::default() }).unwrap()
}

pub(crate) async fn call<B>(proxy: &Proxy, request: Request<B>) -> Response<ProxyBody>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let Ok(response) = proxy.clone().call(request).await;
    response
}

pub(crate) async fn text<B: Body>(response: Response<B>) -> String
where
    B::Error: std::fmt::Debug,
{
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) fn request(method: Method, fields: &[(&str, &str)], body: TestBody) -> Request<TestBody> {
    let mut request = Request::builder().method(method).uri("https://site.example/path?q=1");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

pub(crate) fn get(fields: &[(&str, &str)]) -> Request<TestBody> {
    request(Method::GET, fields, empty())
}

/// Lets all tasks run until a number stays as it is.
async fn settled(number: &AtomicU64) -> u64 {
    let (mut last, mut unchanged) = (number.load(Ordering::Relaxed), 0);
    while unchanged < 5000 {
        tokio::task::yield_now().await;
        let now = number.load(Ordering::Relaxed);
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
    }
    last
}

/// Handler that answers with the request's head and body.
pub(crate) async fn echo(request: Request<Incoming>) -> Response<TestBody> {
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        text += &format!("{name}: {}\n", value.to_str().unwrap());
    }
    let body = request.into_body().collect().await.unwrap();
    text += &format!("\n{}", String::from_utf8_lossy(&body.to_bytes()));
    Response::new(full(&text))
}

#[tokio::test]
async fn a_request_reaches_the_origin_with_its_client() {
    let address = origin(Speaks::Http1, echo).await;
    let mut request = get(&[("priority", "u=1, i"), ("x-forwarded-for", "10.0.0.9")]);
    request.extensions_mut().insert(PeerAddr("192.0.2.1:5000".parse().unwrap()));
    let response = call(&proxy_to(address), request).await;
    assert_eq!(
        (response.status(), &response.headers()["via"]),
        (StatusCode::OK, &"1.1 marcato".parse().unwrap())
    );
    let text = text(response).await;
    let mut lines: Vec<_> = text.trim().lines().collect();
    assert_eq!(lines.remove(0), "GET /path?q=1");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "forwarded: for=192.0.2.1;host=site.example;proto=https",
            "host: site.example",
            "priority: u=1, i",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: site.example",
            "x-forwarded-proto: https",
        ]
    );
}

#[tokio::test]
async fn the_host_can_be_the_upstreams() {
    let address = origin(Speaks::Http1, echo).await;
    let config = ProxyConfig { preserve_host: false, ..ProxyConfig::to(format!("http://{address}")) };
    let response = call(&Proxy::new(config).unwrap(), get(&[])).await;
    assert!(text(response).await.contains(&format!("\nhost: {address}\n")));
}

#[tokio::test]
async fn http2_has_the_host_as_its_authority() {
    let address = origin(Speaks::Http2, echo).await;
    let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    for _ in 0..3 {
        let text =
            text(call(&proxy, get(&[("te", "trailers"), ("cookie", "a"), ("cookie", "b")])).await).await;
        assert!(text.starts_with("GET http://site.example/path?q=1\n"), "{text}");
        assert!(text.contains("\nte: trailers\n") && text.contains("\ncookie: a; b\n"), "{text}");
        assert!(!text.contains("\nhost:"), "{text}");
    }
    assert_eq!(proxy.counters().upstreams[0].connections, 1);
}

#[tokio::test]
async fn the_origins_priority_reaches_the_client() {
    let address = origin(Speaks::Http1, |_| async {
        let response = Response::builder().header("priority", "u=0").header("keep-alive", "timeout=5");
        response.body(empty()).unwrap()
    })
    .await;
    let response = call(&proxy_to(address), get(&[("priority", "u=5")])).await;
    assert_eq!(response.headers()["priority"], "u=0");
    assert!(!response.headers().contains_key("keep-alive"));
}

/// Fields of a request as the origin gets it, and of the response to it, after fields were added to both.
pub(crate) async fn passed_on(
    add: impl Fn(&mut HeaderMap) + Clone + Send + Sync + 'static,
) -> [HeaderMap; 2] {
    let (sent, mut seen) = mpsc::unbounded_channel();
    let mut request = get(&[]);
    add(request.headers_mut());
    let address = origin(Speaks::Http1, move |request| {
        sent.send(request.headers().clone()).unwrap();
        let mut response = Response::new(empty());
        add(response.headers_mut());
        // The library frames its response by itself.
        response.headers_mut().remove("upgrade");
        async { response }
    })
    .await;
    let response = call(&proxy_to(address), request).await;
    [seen.recv().await.unwrap(), response.headers().clone()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_hop_by_hop_field_reaches_either_side(
        named in proptest::collection::vec("x-[a-z]{1,6}", 0..4),
        fixed in proptest::sample::subsequence(
            vec!["keep-alive", "proxy-connection", "te", "upgrade", "proxy-authorization", "http2-settings"],
            0..6,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fields: Vec<String> =
            named.iter().cloned().chain(fixed.iter().map(|name| (*name).to_owned())).collect();
        let connection = named.join(", ");
        let add = move |headers: &mut HeaderMap| {
            for name in &fields {
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), "v".parse().unwrap());
            }
            headers.append("connection", connection.parse().unwrap());
            headers.append("y-kept", "v".parse().unwrap());
        };
        runtime.block_on(async {
            for headers in passed_on(add).await {
                let mut kept: Vec<_> = headers
                    .keys()
                    .map(HeaderName::as_str)
                    .filter(|name| !name.contains("forwarded"))
                    .filter(|name| !["via", "host", "date", "content-length", "y-kept"].contains(name))
                    .collect();
                kept.sort_unstable();
                assert_eq!(kept, [""; 0]);
                assert_eq!(headers["y-kept"], "v");
            }
        });
    }
}

#[tokio::test]
async fn trailers_pass_in_both_directions_over_http2() {
    let (sent, mut seen) = mpsc::unbounded_channel();
    let address = origin(Speaks::Http2, move |request| {
        let sent = sent.clone();
        async move {
            let body = request.into_body().collect().await.unwrap();
            sent.send(body.trailers().cloned()).unwrap();
            Response::new(with_trailers("answer", &[("grpc-status", "0")]))
        }
    })
    .await;
    let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    let body = with_trailers("question", &[("x-checksum", "7")]);
    let response = call(&proxy, request(Method::POST, &[("te", "trailers")], body)).await;
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers(), Some(&trailers(&[("grpc-status", "0")])));
    assert_eq!(body.to_bytes(), "answer");
    assert_eq!(seen.recv().await.unwrap(), Some(trailers(&[("x-checksum", "7")])));
}

#[tokio::test]
async fn trailers_pass_in_both_directions_over_http1() {
    let (sent, mut seen) = mpsc::unbounded_channel();
    let address = origin(Speaks::Http1, move |request| {
        let sent = sent.clone();
        async move {
            assert_eq!(request.headers()["te"], "trailers");
            let body = request.into_body().collect().await.unwrap();
            sent.send(body.trailers().cloned()).unwrap();
            let response = Response::builder().header("trailer", "x-sum");
            let body = Unsized(with_trailers("answer", &[("x-sum", "9")]));
            response.body(body.boxed_unsync()).unwrap()
        }
    })
    .await;
    // A length would leave no room for trailers: the body is chunked.
    let body = with_trailers("question", &[("x-checksum", "7")]);
    let fields = [("te", "trailers"), ("trailer", "x-checksum")];
    let response =
        call(&proxy_to(address), request(Method::POST, &fields, Unsized(body).boxed_unsync())).await;
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers(), Some(&trailers(&[("x-sum", "9")])));
    assert_eq!(seen.recv().await.unwrap(), Some(trailers(&[("x-checksum", "7")])));
}

/// Body that does not tell its length.
struct Unsized(TestBody);

impl Body for Unsized {
    type Data = Bytes;
    type Error = BoxError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

#[tokio::test]
async fn a_get_request_keeps_its_body() {
    let address = origin(Speaks::Http1, echo).await;
    let body = Unsized(full("query")).boxed_unsync();
    let text = text(call(&proxy_to(address), request(Method::GET, &[], body)).await).await;
    assert!(text.contains("\ntransfer-encoding: chunked\n") && text.ends_with("\n\nquery"), "{text}");
}

#[tokio::test]
async fn connections_are_reused() {
    let address = origin(Speaks::Http1, echo).await;
    let proxy = proxy_to(address);
    for _ in 0..5 {
        text(call(&proxy, get(&[])).await).await;
        until(|| proxy.counters().upstreams[0].idle == 1).await;
    }
    let upstream = &proxy.counters().upstreams[0];
    assert_eq!((upstream.connections, upstream.requests, upstream.in_flight), (1, 5, 0));
}

#[tokio::test]
async fn any_method_is_retried_where_no_connection_is_made() {
    let (closed, open) = (closed_port().await, origin(Speaks::Http1, echo).await);
    for method in [Method::GET, Method::POST] {
        let proxy = proxy_among(&[closed, open]);
        let response = call(&proxy, request(method, &[], full("body"))).await;
        assert!(text(response).await.ends_with("\n\nbody"));
        let [first, second] = &proxy.counters().upstreams[..] else { panic!("two upstreams") };
        assert_eq!((first.failures, first.retries, second.requests, second.retries), (1, 0, 1, 1));
    }
}

#[tokio::test]
async fn only_idempotent_requests_are_sent_twice() {
    for (method, status) in [
        (Method::GET, StatusCode::OK),
        (Method::DELETE, StatusCode::OK),
        (Method::POST, StatusCode::BAD_GATEWAY),
        (Method::PATCH, StatusCode::BAD_GATEWAY),
    ] {
        let (breaking, requests) = breaking_origin().await;
        let proxy = proxy_among(&[breaking, origin(Speaks::Http1, echo).await]);
        let response = call(&proxy, request(method, &[], empty())).await;
        assert_eq!((response.status(), requests.load(Ordering::Relaxed)), (status, 1));
    }
}

#[tokio::test]
async fn retries_end_with_a_short_text() {
    let (breaking, requests) = breaking_origin().await;
    let proxy = proxy_to(breaking);
    let response = call(&proxy, get(&[])).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    // No cache keeps what may be over in a moment.
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!(text(response).await, "bad gateway\n");
    assert_eq!(requests.load(Ordering::Relaxed), 3);
    let counters = proxy.counters();
    assert_eq!((counters.bad_gateways, counters.upstreams[0].retries), (1, 2));
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_nothing() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            // It promises to stay open, and closes.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        }
    });
    let config = ProxyConfig { retries: 1, ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    for _ in 0..20 {
        assert_eq!(text(call(&proxy, get(&[])).await).await, "ok");
    }
    let upstream = &proxy.counters().upstreams[0];
    assert_eq!((upstream.failures, upstream.connections), (0, 20));
}

#[tokio::test]
async fn a_late_head_is_a_gateway_timeout() {
    let address = origin(Speaks::Http1, |_| std::future::pending()).await;
    let response_timeout = Duration::from_millis(20);
    let config = ProxyConfig { response_timeout, ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    assert_eq!(call(&proxy, get(&[])).await.status(), StatusCode::GATEWAY_TIMEOUT);
    let counters = proxy.counters();
    assert_eq!((counters.timeouts, counters.upstreams[0].failures), (1, 1));
    assert_eq!((counters.upstreams[0].requests, counters.upstreams[0].in_flight), (1, 0));
}

#[tokio::test]
async fn a_silent_handshake_is_a_gateway_timeout() {
    let (_listener, address) = listen().await;
    let config = ProxyConfig {
        connect_timeout: Duration::from_millis(20),
        roots: Roots::Given(Arc::new(certificate().1)),
        retries: 0,
        ..ProxyConfig::to(format!("https://{address}"))
    };
    let response = call(&Proxy::new(config).unwrap(), get(&[])).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn a_response_that_falls_silent_ends_with_an_error() {
    let (sender, body) = Channel::<Bytes, BoxError>::new(1);
    let body = Arc::new(std::sync::Mutex::new(Some(body.boxed_unsync())));
    let address = origin(Speaks::Http1, move |_| {
        let body = body.lock().unwrap().take().unwrap();
        async { Response::new(body) }
    })
    .await;
    let body_idle_timeout = Duration::from_millis(20);
    let config = ProxyConfig { body_idle_timeout, ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    let response = call(&proxy, get(&[])).await;
    assert_eq!(response.status(), StatusCode::OK);
    let error = response.into_body().collect().await.unwrap_err();
    assert!(error.to_string().contains("20ms"), "{error}");
    let counters = proxy.counters();
    assert_eq!((counters.broken_responses, counters.upstreams[0].in_flight), (1, 0));
    drop(sender);
}

#[tokio::test]
async fn a_truncated_response_ends_with_an_error() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok").await;
        }
    });
    let proxy = proxy_to(address);
    let response = call(&proxy, get(&[])).await;
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(proxy.counters().broken_responses, 1);
}

#[tokio::test]
async fn a_broken_request_is_the_clients_fault() {
    let address = origin(Speaks::Http1, echo).await;
    let proxy = proxy_to(address);
    let (sender, body) = Channel::<Bytes, BoxError>::new(1);
    sender.abort("reset".into());
    let response = call(&proxy, request(Method::POST, &[], body.boxed_unsync())).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let counters = proxy.counters();
    assert_eq!((counters.client_faults, counters.upstreams[0].failures), (1, 0));
}

#[tokio::test]
async fn a_silent_client_times_out() {
    let address = origin(Speaks::Http1, echo).await;
    let body_idle_timeout = Duration::from_millis(20);
    let config = ProxyConfig { body_idle_timeout, ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    let (_sender, body) = Channel::<Bytes, BoxError>::new(1);
    let response = call(&proxy, request(Method::POST, &[], body.boxed_unsync())).await;
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(proxy.counters().client_faults, 1);
}

#[tokio::test]
async fn failed_requests_rest_an_upstream() {
    let (breaking, requests) = breaking_origin().await;
    let good = origin(Speaks::Http1, echo).await;
    let upstreams = [breaking, good].map(|address| Upstream::new(format!("http://{address}"))).to_vec();
    let passive = PassiveConfig { failures: 2, rest: Duration::from_secs(600) };
    let proxy = Proxy::new(ProxyConfig { upstreams, passive, ..ProxyConfig::default() }).unwrap();
    for _ in 0..12 {
        assert_eq!(call(&proxy, get(&[])).await.status(), StatusCode::OK);
    }
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    let healthy: Vec<_> = proxy.counters().upstreams.iter().map(|upstream| upstream.healthy).collect();
    assert_eq!(healthy, [false, true]);
}

#[tokio::test]
async fn checks_take_an_upstream_out_and_back() {
    let status = Arc::new(AtomicUsize::new(200));
    let answer = Arc::clone(&status);
    let address = origin(Speaks::Http1, move |request| {
        let checks = request.uri().path() == "/health";
        let status = if checks { answer.load(Ordering::Relaxed) } else { 200 };
        let status = StatusCode::from_u16(u16::try_from(status).unwrap()).unwrap();
        async move { Response::builder().status(status).body(full("state")).unwrap() }
    })
    .await;
    let health = HealthConfig {
        path: "/health".into(),
        timeout: Duration::from_secs(60),
        interval: Duration::from_millis(1),
        healthy_after: 2,
        unhealthy_after: 2,
    };
    let config = ProxyConfig { health: Some(health), ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    let state = || -> UpstreamState { proxy.counters().upstreams.remove(0) };
    until(|| state().checks > 2).await;
    assert!(state().healthy);
    status.store(503, Ordering::Relaxed);
    until(|| !state().healthy).await;
    // The only upstream is tried all the same.
    assert_eq!(call(&proxy, get(&[])).await.status(), StatusCode::OK);
    assert!(!state().healthy && state().failed_checks >= 2);
    status.store(204, Ordering::Relaxed);
    until(|| state().healthy).await;
    // Checks share one connection, as their bodies are read.
    assert!(state().connections <= 2);
}

#[tokio::test]
async fn checks_end_with_the_last_clone() {
    let (listener, address) = listen().await;
    let health = HealthConfig { interval: Duration::from_millis(1), ..HealthConfig::default() };
    let config = ProxyConfig { health: Some(health), ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let connection = tokio::spawn(serve(Speaks::Http1, stream, echo));
    let clone = proxy.clone();
    drop(proxy);
    let checks = clone.counters().upstreams[0].checks;
    until(|| clone.counters().upstreams[0].checks > checks + 2).await;
    drop(clone);
    // The connection ends because nobody holds it.
    connection.await.unwrap();
}

#[test]
fn checks_need_a_runtime() {
    let config =
        ProxyConfig { health: Some(HealthConfig::default()), ..ProxyConfig::to("http://127.0.0.1:1") };
    assert!(Proxy::new(config).unwrap_err().to_string().contains("runtime"));
}

#[tokio::test]
async fn requests_above_the_bound_are_refused() {
    let address = origin(Speaks::Http1, echo).await;
    let config = ProxyConfig { max_in_flight: 1, ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    let first = call(&proxy, get(&[])).await;
    assert_eq!(call(&proxy, get(&[])).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(proxy.counters().overloaded, 1);
    // A response occupies its place until its body has ended.
    text(first).await;
    let third = call(&proxy, get(&[])).await;
    assert_eq!(third.status(), StatusCode::OK);
    drop(third);
    assert_eq!(proxy.counters().upstreams[0].in_flight, 0);
}

#[tokio::test]
async fn requests_go_where_fewest_are_in_flight() {
    let one = origin(Speaks::Http1, echo).await;
    let two = origin(Speaks::Http1, echo).await;
    let proxy = proxy_among(&[one, two]);
    let mut responses = Vec::new();
    for _ in 0..6 {
        responses.push(call(&proxy, get(&[])).await);
    }
    let in_flight: Vec<_> = proxy.counters().upstreams.iter().map(|upstream| upstream.in_flight).collect();
    assert_eq!(in_flight, [3, 3]);
}

const CHUNK: usize = 64 * 1024;
/// Chunks of a body larger than all buffers on its way: 64 MiB.
const CHUNKS: u64 = 1024;

/// Body of many chunks, which counts those taken from it.
struct Large {
    taken: Arc<AtomicU64>,
}

impl Body for Large {
    type Data = Bytes;
    type Error = BoxError;
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.taken.load(Ordering::Relaxed) == CHUNKS {
            return Poll::Ready(None);
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; CHUNK])))))
    }
}

async fn length<B: Body<Data = Bytes> + Unpin>(mut body: B) -> usize
where
    B::Error: std::fmt::Debug,
{
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    length
}

#[tokio::test]
async fn a_slow_client_holds_back_a_large_response() {
    for (speaks, scheme) in [(Speaks::Http1, "http"), (Speaks::Http2, "h2c")] {
        let taken = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&taken);
        let address = origin(speaks, move |_| {
            let body = Large { taken: Arc::clone(&counter) };
            async { Response::new(body.boxed_unsync()) }
        })
        .await;
        let proxy = Proxy::new(ProxyConfig::to(format!("{scheme}://{address}"))).unwrap();
        let response = call(&proxy, get(&[])).await;
        let held = settled(&taken).await;
        assert!(held < CHUNKS / 4, "{held} chunks left the origin");
        assert_eq!(length(response.into_body()).await, CHUNK * usize::try_from(CHUNKS).unwrap());
        assert_eq!(proxy.counters().upstreams[0].received.get(), CHUNKS * CHUNK as u64);
    }
}

#[tokio::test]
async fn a_slow_origin_holds_back_a_large_request() {
    for (speaks, scheme) in [(Speaks::Http1, "http"), (Speaks::Http2, "h2c")] {
        let gate = Arc::new(Semaphore::new(0));
        let opens = Arc::clone(&gate);
        let address = origin(speaks, move |request| {
            let gate = Arc::clone(&opens);
            async move {
                gate.acquire().await.unwrap().forget();
                Response::new(full(&length(request.into_body()).await.to_string()))
            }
        })
        .await;
        let proxy = Proxy::new(ProxyConfig::to(format!("{scheme}://{address}"))).unwrap();
        let taken = Arc::<AtomicU64>::default();
        let body = Large { taken: Arc::clone(&taken) }.boxed_unsync();
        let request = request(Method::POST, &[], body);
        let response = tokio::spawn({
            let proxy = proxy.clone();
            async move { call(&proxy, request).await }
        });
        let held = settled(&taken).await;
        assert!(held < CHUNKS / 4, "{held} chunks left the client");
        gate.add_permits(1);
        assert_eq!(text(response.await.unwrap()).await, (CHUNKS * CHUNK as u64).to_string());
        assert_eq!(proxy.counters().upstreams[0].sent.get(), CHUNKS * CHUNK as u64);
    }
}

#[tokio::test]
async fn a_slow_client_does_not_stop_another() {
    let address = origin(Speaks::Http2, |request| async move {
        match request.uri().path() {
            "/large" => Response::new(Large { taken: Arc::default() }.boxed_unsync()),
            _ => Response::new(full("small")),
        }
    })
    .await;
    let proxy = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    let mut slow = Vec::new();
    for _ in 0..20 {
        let request = Request::get("http://site.example/large").body(empty()).unwrap();
        slow.push(call(&proxy, request).await);
    }
    assert_eq!(text(call(&proxy, get(&[])).await).await, "small");
    assert_eq!(proxy.counters().upstreams[0].connections, 1);
}

#[tokio::test]
async fn requests_with_two_framings_are_refused() {
    let (breaking, requests) = breaking_origin().await;
    let proxy = proxy_to(breaking);
    for (fields, status) in [
        (&[("transfer-encoding", "chunked"), ("content-length", "4")][..], StatusCode::BAD_REQUEST),
        (&[("content-length", "4"), ("content-length", "5")], StatusCode::BAD_REQUEST),
        (&[("content-length", "+4")], StatusCode::BAD_REQUEST),
        (&[("content-length", "5")], StatusCode::BAD_REQUEST),
        (&[("transfer-encoding", "gzip, chunked")], StatusCode::NOT_IMPLEMENTED),
        (&[("transfer-encoding", "identity")], StatusCode::BAD_REQUEST),
        (&[("host", "a"), ("host", "b")], StatusCode::BAD_REQUEST),
    ] {
        let response = call(&proxy, request(Method::POST, fields, full("body"))).await;
        assert_eq!(response.status(), status, "{fields:?}");
    }
    assert_eq!((proxy.counters().rejected, requests.load(Ordering::Relaxed)), (7, 0));
}

#[tokio::test]
async fn bytes_that_end_lines_get_past_no_server() {
    let (breaking, requests) = breaking_origin().await;
    let address = front(proxy_to(breaking)).await;
    for value in ["a\0b", "a\rb", "a\r\n\rX: b"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Value: {value}\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{value:?}: {answer}");
    }
    assert_eq!(requests.load(Ordering::Relaxed), 0);
}

/// Handler that switches to a protocol and echoes bytes.
pub(crate) async fn switch(mut request: Request<Incoming>) -> Response<TestBody> {
    assert_eq!((request.method(), request.version()), (&Method::GET, Version::HTTP_11));
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
        tokio::io::copy(&mut read, &mut write).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let key = request.headers().get("sec-websocket-key").map_or(b"".as_slice(), HeaderValue::as_bytes);
    let proof = proof(key);
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "upgrade")
        .header("upgrade", &request.headers()["upgrade"])
        .header("sec-websocket-accept", proof)
        .body(empty())
        .unwrap()
}

/// Value of `Sec-WebSocket-Accept` for a key.
pub(crate) fn proof(key: &[u8]) -> String {
    let proof = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    base64(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &proof).as_ref())
}

/// Base64 of 20 bytes, for the proof of a handshake.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digit = |bits: &[u8]| (0..6).fold(0, |digit, i| digit << 1 | bits.get(i).copied().unwrap_or(0));
    let mut text: String =
        bits.chunks(6).map(|bits| char::from(ALPHABET[usize::from(digit(bits))])).collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

pub(crate) const UPGRADE: &str =
    "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";

pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

#[tokio::test]
async fn an_upgrade_joins_both_sides() {
    let proxy = proxy_to(origin(Speaks::Http1, switch).await);
    let mut stream = TcpStream::connect(front(proxy.clone()).await).await.unwrap();
    stream.write_all(UPGRADE.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(
        head.contains("\r\nupgrade: websocket\r\n") && head.contains("\r\nconnection: upgrade\r\n"),
        "{head}"
    );
    for word in ["one", "two", "three"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut echoed = vec![0; word.len()];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(echoed, word.as_bytes());
    }
    assert_eq!(proxy.counters().upstreams[0].in_flight, 1);
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    until(|| proxy.counters().upstreams[0].in_flight == 0).await;
    let counters = proxy.counters();
    assert_eq!((counters.tunnels, counters.idle_tunnels), (1, 0));
    assert_eq!((counters.tunnel_sent.get(), counters.tunnel_received.get()), (11, 11));
}

#[tokio::test]
async fn a_silent_upgrade_is_closed() {
    let address = origin(Speaks::Http1, switch).await;
    let tunnel_idle_timeout = Duration::from_millis(20);
    let config = ProxyConfig { tunnel_idle_timeout, ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    let mut stream = TcpStream::connect(front(proxy.clone()).await).await.unwrap();
    stream.write_all(UPGRADE.as_bytes()).await.unwrap();
    read_head(&mut stream).await;
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(proxy.counters().idle_tunnels, 1);
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_response() {
    let proxy = proxy_to(origin(Speaks::Http1, echo).await);
    let mut stream = TcpStream::connect(front(proxy.clone()).await).await.unwrap();
    stream.write_all(UPGRADE.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("http/1.1 200 "));
    assert_eq!(proxy.counters().tunnels, 0);
}

#[tokio::test]
async fn upgrades_to_http_do_not_reach_the_origin() {
    let proxy = proxy_to(origin(Speaks::Http1, echo).await);
    let mut stream = TcpStream::connect(front(proxy).await).await.unwrap();
    let text = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n\r\n";
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(!answer.contains("upgrade") && !answer.contains("http2-settings"), "{answer}");
}

#[tokio::test]
async fn a_switch_that_nobody_asked_for_is_a_bad_gateway() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let head =
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
            let _ = stream.write_all(head).await;
            let _ = stream.read(&mut buffer).await;
        }
    });
    assert_eq!(call(&proxy_to(address), get(&[])).await.status(), StatusCode::BAD_GATEWAY);
}

pub(crate) fn connect(protocol: Option<&'static str>, body: TestBody) -> Request<TestBody> {
    let mut request =
        Request::connect("https://site.example/chat").version(Version::HTTP_2).body(body).unwrap();
    if let Some(protocol) = protocol {
        request.extensions_mut().insert(h2::ext::Protocol::from_static(protocol));
    }
    request
}

#[tokio::test]
async fn a_websocket_of_http2_becomes_an_upgrade() {
    let proxy = proxy_to(origin(Speaks::Http1, switch).await);
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(4);
    let response = call(&proxy, connect(Some("websocket"), body.boxed_unsync())).await;
    assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
    for name in ["upgrade", "connection", "sec-websocket-accept"] {
        assert!(!response.headers().contains_key(name));
    }
    let mut body = response.into_body();
    for word in ["one", "two", "three"] {
        sender.send_data(Bytes::from_static(word.as_bytes())).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), word);
    }
    assert_eq!(proxy.counters().upstreams[0].in_flight, 1);
    drop(sender);
    assert!(body.frame().await.is_none());
    drop(body);
    until(|| proxy.counters().upstreams[0].in_flight == 0).await;
    let counters = proxy.counters();
    assert_eq!((counters.tunnels, counters.tunnel_sent.get(), counters.tunnel_received.get()), (1, 11, 11));
}

#[tokio::test]
async fn only_options_asks_for_the_whole_server() {
    let proxy = proxy_to(origin(Speaks::Http1, echo).await);
    for (method, status) in [(Method::OPTIONS, StatusCode::OK), (Method::GET, StatusCode::BAD_REQUEST)] {
        let mut request = get(&[("host", "site.example")]);
        (*request.method_mut(), *request.uri_mut()) = (method, "*".parse().unwrap());
        let response = call(&proxy, request).await;
        assert_eq!(response.status(), status);
        if status == StatusCode::OK {
            assert!(text(response).await.starts_with("OPTIONS *\n"));
        }
    }
}

#[tokio::test]
async fn an_upgrade_for_a_websocket_announces_no_content() {
    let address = origin(Speaks::Http1, |request| async {
        let fields = ["content-length", "transfer-encoding"];
        if fields.iter().any(|name| request.headers().contains_key(*name)) {
            return Response::builder().status(StatusCode::BAD_REQUEST).body(full("content")).unwrap();
        }
        switch(request).await
    })
    .await;
    let (_sender, body) = Channel::<Bytes, BoxError>::new(4);
    let mut request = connect(Some("websocket"), body.boxed_unsync());
    request.headers_mut().insert("content-length", "3".parse().unwrap());
    assert_eq!(call(&proxy_to(address), request).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_endless_answer_to_a_health_check_is_not_read() {
    let (listener, address) = listen().await;
    let health = HealthConfig {
        interval: Duration::from_secs(3600),
        timeout: Duration::from_secs(3600),
        ..HealthConfig::default()
    };
    let config = ProxyConfig { health: Some(health), ..ProxyConfig::to(format!("http://{address}")) };
    let proxy = Proxy::new(config).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    // The connection is closed after 64 KiB of it.
    while stream.write_all(&[b'x'; 1 << 16]).await.is_ok() {}
    assert!(proxy.counters().upstreams[0].healthy);
}

#[tokio::test]
async fn a_websocket_that_is_not_accepted_is_no_tunnel() {
    // 200 would open the tunnel of HTTP/2.
    let proxy = proxy_to(origin(Speaks::Http1, echo).await);
    let response = call(&proxy, connect(Some("websocket"), empty())).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    let refusing = origin(Speaks::Http1, |_| async {
        Response::builder().status(StatusCode::FORBIDDEN).body(full("no")).unwrap()
    })
    .await;
    let response = call(&proxy_to(refusing), connect(Some("websocket"), empty())).await;
    assert_eq!((response.status(), text(response).await.as_str()), (StatusCode::FORBIDDEN, "no"));
}

#[tokio::test]
async fn unknown_tunnels_and_upgrades_to_h2c_are_not_implemented() {
    let address = origin(Speaks::Http1, echo).await;
    for protocol in [None, Some("connect-udp")] {
        let response = call(&proxy_to(address), connect(protocol, empty())).await;
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
    }
    let http2 = Proxy::new(ProxyConfig::to(format!("h2c://{address}"))).unwrap();
    let response = call(&http2, connect(Some("websocket"), empty())).await;
    assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
}

/// Configuration of a server with a certificate of its own, and roots that accept it.
pub(crate) fn certificate() -> (rustls::ServerConfig, rustls::RootCertStore) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    (config, roots)
}

/// Proxy to an origin of TLS.
async fn tls_proxy(
    speaks: Speaks,
    roots: impl FnOnce(rustls::RootCertStore) -> rustls::RootCertStore,
) -> Proxy {
    let (mut config, own) = certificate();
    config.alpn_protocols = match speaks {
        Speaks::Http1 => vec![b"http/1.1".to_vec()],
        Speaks::Http2 => vec![b"h2".to_vec()],
    };
    let (listener, address) = listen().await;
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(speaks, stream, echo));
            }
        }
    });
    let roots = Roots::Given(Arc::new(roots(own)));
    Proxy::new(ProxyConfig { roots, ..ProxyConfig::to(format!("https://{address}")) }).unwrap()
}

#[tokio::test]
async fn alpn_decides_the_version_of_an_origin() {
    let text2 = text(call(&tls_proxy(Speaks::Http2, |roots| roots).await, get(&[])).await).await;
    assert!(text2.starts_with("GET https://site.example/path?q=1\n"), "{text2}");
    let text1 = text(call(&tls_proxy(Speaks::Http1, |roots| roots).await, get(&[])).await).await;
    assert!(text1.starts_with("GET /path?q=1\n"), "{text1}");
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_refused() {
    let proxy = tls_proxy(Speaks::Http2, |_| certificate().1).await;
    assert_eq!(call(&proxy, get(&[])).await.status(), StatusCode::BAD_GATEWAY);
    assert!(!proxy.counters().upstreams[0].healthy);
}

#[tokio::test]
async fn a_future_of_the_proxy_moves_between_threads() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    let mut proxy = proxy_to(origin(Speaks::Http1, echo).await);
    let Ok(response) = assert_send(proxy.call(get(&[]))).await;
    let response: Response<ProxyBody> = assert_send(response);
    assert_eq!(response.status(), StatusCode::OK);
}

/// Connection of HTTP/2 to a server in front of a proxy.
pub(crate) async fn http2_front(proxy: Proxy) -> h2::client::SendRequest<Bytes> {
    let (listener, address) = listen().await;
    let server = Server::new();
    tokio::spawn(async move { server.serve(listener, proxy).await });
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let mut connection = Box::pin(connection);
    let mut sender = sender.ready().await.unwrap();
    // The settings of the server arrive with its first response.
    let request = Request::get("http://site.example/").body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    tokio::select! {
        _ = response => {}
        _ = &mut connection => panic!("the connection has ended"),
    }
    tokio::spawn(connection);
    sender.ready().await.unwrap()
}

#[tokio::test]
async fn a_server_passes_requests_and_early_hints_on() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|len| len > 0) {
                    let head = b"HTTP/1.1 102 Processing\r\nX: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: close\r\n\r\n\
                        HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    stream.write_all(head).await.unwrap();
                }
            });
        }
    });
    let mut client = http2_front(proxy_to(address)).await;
    let request = Request::get("http://site.example/").body(()).unwrap();
    let (mut response, _) = client.send_request(request, true).unwrap();
    let interim = std::future::poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!(interim.status(), StatusCode::EARLY_HINTS);
    assert_eq!(interim.headers()["link"], "</a.css>");
    assert!(!interim.headers().contains_key("connection"));
    let mut response = response.await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["via"]),
        (StatusCode::OK, &"1.1 marcato".parse().unwrap())
    );
    assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "ok");
}

#[tokio::test]
async fn a_server_passes_websockets_of_http2_on() {
    let proxy = proxy_to(
        origin(Speaks::Http1, |request| async {
            if request.headers().contains_key("upgrade") {
                switch(request).await
            } else {
                echo(request).await
            }
        })
        .await,
    );
    let mut client = http2_front(proxy.clone()).await;
    assert!(client.is_extended_connect_protocol_enabled());
    let mut request = Request::connect("http://site.example/chat").body(()).unwrap();
    request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    let (response, mut sender) = client.send_request(request, false).unwrap();
    let mut response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    for word in ["one", "two", "three"] {
        sender.send_data(Bytes::from_static(word.as_bytes()), false).unwrap();
        assert_eq!(response.body_mut().data().await.unwrap().unwrap(), word);
    }
    sender.send_data(Bytes::new(), true).unwrap();
    // The stream ends, perhaps with an empty frame.
    while let Some(data) = response.body_mut().data().await {
        assert_eq!(data.unwrap(), "");
    }
    until(|| proxy.counters().upstreams[0].in_flight == 0).await;
    assert_eq!(proxy.counters().tunnel_received.get(), 11);
}

#[tokio::test]
async fn a_server_passes_upgrades_of_http1_on() {
    let proxy = proxy_to(origin(Speaks::Http1, switch).await);
    let (listener, address) = listen().await;
    tokio::spawn(async move { Server::new().serve(listener, proxy).await });
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(UPGRADE.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("http/1.1 101 "));
    // Bytes that no head of a request may have.
    stream.write_all(b"a\n\0\r").await.unwrap();
    let mut echoed = [0; 4];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"a\n\0\r");
}
