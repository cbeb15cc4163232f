//! Page that shows the last connections, before another service.

mod page;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, FORWARDED, LOCATION, REFERRER_POLICY, VIA,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{Either, Full};
use ipnet::IpNet;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::body::Body;
use crate::peer_addr::PeerAddr;
use crate::record::WATCH;
use crate::trace::Traces;

/// Fields of which only a proxy in front of this server writes any.
const OF_PROXIES: [HeaderName; 3] = [FORWARDED, VIA, HeaderName::from_static("x-forwarded-for")];

/// Nothing is loaded, nothing runs, and nothing else shows the page.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Service that answers requests below `/.marcato/`, and passes others to the service behind it.
///
/// | path | response |
/// |---|---|
/// | `/.marcato/` | page with the waterfalls of the last connections |
/// | `/.marcato/trace/ID.sqlog` | [trace](Traces::qlog) of a connection |
///
/// Only clients at the same machine see them, unless [others are allowed](Self::allow). All others get 404, and so
/// do requests that a proxy has passed on: its own address would say nothing about the client.
///
/// In cleartext, `Host` has to be an address or `localhost`. Otherwise a page of any site could read the traces, by
/// a name that it lets point to this machine.
#[derive(Clone, Debug)]
pub struct Watched<S> {
    inner: S,
    /// Traces to be shown; `None` passes all requests on.
    traces: Option<Traces>,
    allowed: Vec<IpNet>,
}

impl<S> Watched<S> {
    /// Creates a service that shows these traces. The [configuration](crate::Config::traces) of the server
    /// has them too.
    pub const fn new(inner: S, traces: Traces) -> Self {
        Self { inner, traces: Some(traces), allowed: Vec::new() }
    }

    /// Creates a service that passes all requests on.
    pub const fn off(inner: S) -> Self {
        Self { inner, traces: None, allowed: Vec::new() }
    }

    /// Shows the same in front of another service.
    pub fn with<T>(self, inner: T) -> Watched<T> {
        Watched { inner, traces: self.traces, allowed: self.allowed }
    }

    /// Lets clients of more networks see the traces.
    #[must_use]
    pub fn allow(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.allowed.extend(networks);
        self
    }

    /// True if the client may see the traces.
    fn admits(&self, request: &Request<Body>) -> bool {
        let Some(PeerAddr(peer)) = request.extensions().get() else { return false };
        let address = peer.ip().to_canonical();
        (address.is_loopback() || self.allowed.iter().any(|network| network.contains(&address)))
            && OF_PROXIES.iter().all(|field| !request.headers().contains_key(field))
            && (request.uri().scheme_str() == Some("https") || is_no_name(request.uri().host()))
    }

    fn respond(&self, request: &Request<Body>, traces: &Traces) -> Response<Full<Bytes>> {
        let status = |status| {
            let mut response = Response::new(Full::default());
            *response.status_mut() = status;
            response
        };
        if !self.admits(request) {
            return status(StatusCode::NOT_FOUND);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = status(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let Some(path) = request.uri().path().strip_prefix(WATCH) else {
            let mut response = status(StatusCode::PERMANENT_REDIRECT);
            response.headers_mut().insert(LOCATION, HeaderValue::from_static(WATCH));
            return response;
        };
        let trace = path.strip_prefix("trace/").and_then(|name| name.strip_suffix(".sqlog"));
        let (content, kind) = match trace {
            None if path.is_empty() => (page::draw(traces), "text/html; charset=utf-8"),
            None => return status(StatusCode::NOT_FOUND),
            Some(id) => match id.parse().ok().and_then(|id| traces.qlog(id)) {
                Some(qlog) => (qlog, "application/qlog+json-seq"),
                None => return status(StatusCode::NOT_FOUND),
            },
        };
        let mut response = Response::new(Full::from(content));
        let fields = [
            (CONTENT_TYPE, HeaderValue::from_static(kind)),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                HeaderValue::from_static("same-origin"),
            ),
        ];
        response.headers_mut().extend(fields);
        response
    }
}

/// True if a host is an address or `localhost`, which no stranger's DNS can give.
fn is_no_name(host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    host.eq_ignore_ascii_case("localhost")
        || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

impl<S, B> Service<Request<Body>> for Watched<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    B: HttpBody<Data = Bytes>,
{
    type Response = Response<Either<Full<Bytes>, B>>;
    type Error = S::Error;
    type Future = WatchedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> WatchedFuture<S::Future> {
        let path = request.uri().path();
        let is_ours = path.starts_with(WATCH) || path == WATCH.trim_end_matches('/');
        let source = match &self.traces {
            Some(traces) if is_ours => Source::Page { response: Some(self.respond(&request, traces)) },
            _ => Source::Inner { future: self.inner.call(request) },
        };
        WatchedFuture { source }
    }
}

pin_project! {
    /// Response of a [`Watched`] service that is being made.
    #[derive(Debug)]
    pub struct WatchedFuture<F> {
        #[pin]
        source: Source<F>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = Projected]
    enum Source<F> {
        Page { response: Option<Response<Full<Bytes>>> },
        Inner { #[pin] future: F },
    }
}

impl<F, B, E> Future for WatchedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<Either<Full<Bytes>, B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().source.project() {
            // A future is not polled after its end.
            Projected::Page { response } => {
                Poll::Ready(Ok(response.take().unwrap_or_default().map(Either::Left)))
            }
            Projected::Inner { future } => {
                let response = ready!(future.poll(cx))?;
                Poll::Ready(Ok(response.map(Either::Right)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_addresses() {
        for host in ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"] {
            assert!(is_no_name(Some(host)), "{host}");
        }
        for host in [Some("rebound.example"), Some("localhost.example"), Some("127.0.0.1.example"), None] {
            assert!(!is_no_name(host), "{host:?}");
        }
    }
}
