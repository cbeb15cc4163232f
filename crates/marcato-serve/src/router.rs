//! Router: the site and the route of each request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, LOCATION, STRICT_TRANSPORT_SECURITY};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use marcato_web::compression::{CompressedBody, Compression, Negotiated};
use marcato_web::files::{FileBody, Files, FilesFuture};
use marcato_web::proxy::{Proxy, ProxyBody, ProxyFuture};
use marcato_web::{Body, ServerName};
use tower_service::Service;

use crate::certificates::Certificates;
use crate::config::{HostPattern, Redirect};

/// Sites by their names.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    exact: HashMap<String, Arc<Site>>,
    /// Sites of the names directly below these.
    below: HashMap<String, Arc<Site>>,
    default: Option<Arc<Site>>,
}

/// Site that is open.
#[derive(Debug)]
pub(crate) struct Site {
    /// Routes, the most specific first.
    pub(crate) routes: Vec<Route>,
    /// Response of requests that no route has.
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    pub(crate) hsts: Option<HeaderValue>,
    /// First of its names that is no wildcard.
    pub(crate) name: Option<String>,
}

/// Route whose content is open.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) is_exact: bool,
    pub(crate) strips_prefix: bool,
    pub(crate) content: Content,
    /// Compression of the responses, if they are compressed.
    pub(crate) compression: Option<Compression>,
    /// Fields of the site and of the route.
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
}

/// Source of responses.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Files(Files),
    Origin(Proxy),
    Redirect(Redirect),
}

impl Sites {
    pub(crate) fn add(&mut self, hosts: &[HostPattern], is_default: bool, site: Arc<Site>) {
        for host in hosts {
            let map = if host.is_wildcard() { &mut self.below } else { &mut self.exact };
            map.insert(host.name().to_owned(), Arc::clone(&site));
        }
        if is_default {
            self.default = Some(site);
        }
    }

    /// Returns whether a site has this host, in lower case, among its names.
    fn names(&self, host: &str) -> bool {
        self.exact.contains_key(host)
            || host.split_once('.').is_some_and(|(_, it)| self.below.contains_key(it))
    }

    /// Returns the site of a host in lower case.
    fn of(&self, host: &str) -> Option<&Arc<Site>> {
        let below = || self.below.get(host.split_once('.')?.1);
        self.exact.get(host).or_else(below).or(self.default.as_ref())
    }
}

impl Site {
    /// Returns the route of a path, and the path behind the route's.
    fn route<'p>(&self, path: &'p str) -> Option<(usize, &'p str)> {
        self.routes.iter().enumerate().find_map(|(index, route)| {
            let rest = path.strip_prefix(route.path.as_str())?;
            let is_here = match route.is_exact {
                true => matches!(rest, "" | "/"),
                // A segment is a whole one: `/api` is not `/apis`.
                false => rest.is_empty() || rest.starts_with('/') || route.path.is_empty(),
            };
            is_here.then_some((index, rest))
        })
    }
}

/// State of a listener that its requests share.
#[derive(Debug, Default)]
pub(crate) struct ListenerState {
    /// Port of `https` to which all requests are redirected; 0 for none.
    pub(crate) redirect: AtomicU32,
}

/// Router of a listener.
#[derive(Clone)]
pub(crate) struct Router {
    sites: Arc<ArcSwap<Sites>>,
    certificates: Arc<Certificates>,
    listener: Arc<ListenerState>,
    is_tls: bool,
}

/// Body of a response.
pub(crate) type RouterBody = CompressedBody<ContentBody>;

/// Body as its source has it.
type ContentBody = Either<FileBody, Either<ProxyBody, Full<Bytes>>>;

/// Host of a request, or the reason why it has none.
enum Asked<'r> {
    Host(Cow<'r, str>),
    /// HTTP/1.0 without a field `Host`.
    Nothing,
    Malformed,
}

impl Router {
    pub(crate) fn new(
        sites: Arc<ArcSwap<Sites>>,
        certificates: Arc<Certificates>,
        listener: Arc<ListenerState>,
        is_tls: bool,
    ) -> Self {
        Self { sites, certificates, listener, is_tls }
    }

    fn answer(&self, mut request: Request<Body>) -> Answer {
        let host = match asked(&request) {
            Asked::Host(host) => Some(host),
            Asked::Nothing => None,
            Asked::Malformed => {
                return Answer::text(StatusCode::BAD_REQUEST, "the request needs one field `host`\n");
            }
        };
        match self.listener.redirect.load(Relaxed) {
            0 => {}
            port => return self.to_https(host.as_deref(), port, request.uri()),
        }
        let sites = self.sites.load();
        let Some(site) =
            sites.default.as_ref().filter(|_| host.is_none()).or_else(|| sites.of(host.as_deref()?))
        else {
            return Answer::text(StatusCode::MISDIRECTED_REQUEST, "this server has no such site\n");
        };
        let name = request.extensions().get::<ServerName>().map(|ServerName(name)| &**name);
        if self.is_tls && host.as_deref().is_some_and(|host| self.certificates.misdirects(name, host)) {
            // RFC 9110 §15.5.20: the client then asks on another connection.
            return Answer::text(
                StatusCode::MISDIRECTED_REQUEST,
                "the certificate of this connection is for other hosts\n",
            );
        }
        let site = Arc::clone(site);
        let Some((index, rest)) = site.route(request.uri().path()) else {
            let mut answer = Answer::text(StatusCode::NOT_FOUND, "this site has nothing here\n");
            answer.dress = Some(Dress { site, route: None, is_tls: self.is_tls });
            return answer;
        };
        let route = &site.routes[index];
        let mut negotiated = None;
        let kind = match &route.content {
            Content::Redirect(redirect) => {
                let mut response = message(redirect.status, "");
                match redirect.location(rest, request.uri().query()) {
                    Some(location) => _ = response.headers_mut().insert(LOCATION, location),
                    None => *response.status_mut() = StatusCode::BAD_REQUEST,
                }
                Kind::Ready(Some(response))
            }
            content => {
                if route.strips_prefix
                    && let Some(uri) = stripped(request.uri(), rest)
                {
                    *request.uri_mut() = uri;
                }
                let compression = route.compression.as_ref();
                negotiated = compression.map(|compression| compression.negotiate(&mut request));
                match content {
                    Content::Files(files) => Kind::Files(files.clone().call(request)),
                    Content::Origin(proxy) => Kind::Origin(proxy.clone().call(request)),
                    Content::Redirect(_) => Kind::Ready(None),
                }
            }
        };
        Answer { kind, dress: Some(Dress { site, route: Some(index), is_tls: self.is_tls }), negotiated }
    }
}

impl Router {
    /// Returns a redirect to `https`: to the host of the request if a site or its certificate has it, or else
    /// to the first name of the default site. A client chooses no other target.
    fn to_https(&self, host: Option<&str>, port: u32, uri: &Uri) -> Answer {
        let sites = self.sites.load();
        let known = host.filter(|host| sites.names(host) || self.certificates.covers(host));
        match known.or_else(|| sites.default.as_ref()?.name.as_deref()) {
            Some(host) => to_https(host, port, uri),
            None => Answer::text(StatusCode::MISDIRECTED_REQUEST, "this server has no such site\n"),
        }
    }
}

/// Returns the host of a request, in lower case, without a port and a final dot.
fn asked<B>(request: &Request<B>) -> Asked<'_> {
    let mut fields = request.headers().get_all(HOST).iter();
    let (field, second) = (fields.next(), fields.next());
    // RFC 9112 §3.2: one field exactly, but HTTP/1.0 may have none.
    if second.is_some() || field.is_none() && request.version() == Version::HTTP_11 {
        return Asked::Malformed;
    }
    let parsed = field.map(|field| http::uri::Authority::try_from(field.as_bytes()));
    let host = match (request.uri().authority(), &parsed) {
        (_, Some(Err(_))) => return Asked::Malformed,
        // RFC 9113 §8.3.1: both name the same in HTTP/2. The target decides in HTTP/1.1.
        (Some(target), Some(Ok(field)))
            if request.version() > Version::HTTP_11
                && !target.as_str().eq_ignore_ascii_case(field.as_str()) =>
        {
            return Asked::Malformed;
        }
        (Some(target), _) => Cow::Borrowed(target.host()),
        (None, Some(Ok(field))) => Cow::Owned(field.host().to_owned()),
        (None, None) if request.version() < Version::HTTP_11 => return Asked::Nothing,
        (None, None) => return Asked::Malformed,
    };
    if host.is_empty() {
        return Asked::Malformed;
    }
    Asked::Host(normal(host))
}

fn normal(host: Cow<'_, str>) -> Cow<'_, str> {
    let trimmed = |host: &str| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
    };
    let is_normal =
        !host.starts_with('[') && !host.ends_with('.') && !host.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_normal { host } else { Cow::Owned(trimmed(&host)) }
}

/// Returns a redirect to a host.
fn to_https(host: &str, port: u32, uri: &Uri) -> Answer {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = if path.starts_with('/') { path } else { "/" };
    let mut response = message(StatusCode::PERMANENT_REDIRECT, "");
    match HeaderValue::try_from(format!("https://{host}{port}{path}")) {
        Ok(location) => _ = response.headers_mut().insert(LOCATION, location),
        Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
    }
    Answer { kind: Kind::Ready(Some(response)), dress: None, negotiated: None }
}

/// Returns a URI with another path; `None` if that cannot be.
fn stripped(uri: &Uri, rest: &str) -> Option<Uri> {
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{slash}{rest}{query}")).ok()?);
    Uri::from_parts(parts).ok()
}

fn message(status: StatusCode, text: &'static str) -> Response<ContentBody> {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    let mut response = Response::new(Either::Right(Either::Right(body)));
    *response.status_mut() = status;
    if !text.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    response
}

/// Response that is being made.
pub(crate) struct Answer {
    kind: Kind,
    dress: Option<Dress>,
    /// Compression that the client accepts, if the route has any.
    negotiated: Option<Negotiated>,
}

enum Kind {
    Ready(Option<Response<ContentBody>>),
    Files(FilesFuture),
    Origin(ProxyFuture),
}

/// Fields that a response will get.
struct Dress {
    site: Arc<Site>,
    route: Option<usize>,
    is_tls: bool,
}

impl Dress {
    fn dress(&self, response: &mut Response<ContentBody>) {
        let headers = response.headers_mut();
        // RFC 6797 §7.2: not in cleartext.
        if let Some(hsts) = self.site.hsts.as_ref().filter(|_| self.is_tls) {
            headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        let fields = self.route.map_or(&self.site.fields, |route| &self.site.routes[route].fields);
        for (name, value) in fields {
            headers.insert(name, value.clone());
        }
    }
}

impl Answer {
    fn text(status: StatusCode, text: &'static str) -> Self {
        Self { kind: Kind::Ready(Some(message(status, text))), dress: None, negotiated: None }
    }
}

impl Future for Answer {
    type Output = Result<Response<RouterBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = match &mut self.kind {
            Kind::Ready(response) => {
                let Some(response) = response.take() else { return Poll::Pending };
                response
            }
            Kind::Files(future) => {
                let Ok(response) = ready!(Pin::new(future).poll(cx));
                response.map(Either::Left)
            }
            Kind::Origin(future) => {
                let Ok(response) = ready!(Pin::new(future).poll(cx));
                response.map(|body| Either::Right(Either::Left(body)))
            }
        };
        if let Some(dress) = &self.dress {
            dress.dress(&mut response);
        }
        // The fields of the configuration decide too: a type, or `no-transform`.
        Poll::Ready(Ok(match &self.negotiated {
            Some(negotiated) => negotiated.apply(response),
            None => response.map(CompressedBody::plain),
        }))
    }
}

impl Service<Request<Body>> for Router {
    type Response = Response<RouterBody>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // All contents are always ready, and bound what they do at once by their answers.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        self.answer(request)
    }
}
