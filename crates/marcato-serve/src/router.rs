//! Router: the site and the route of each request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, LOCATION, STRICT_TRANSPORT_SECURITY, WWW_AUTHENTICATE};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::{Either, Full};
use ipnet::IpNet;
use marcato_web::compression::{CompressedBody, Compression, Negotiated};
use marcato_web::files::{FileBody, Files, FilesFuture};
use marcato_web::proxy::{Proxy, ProxyBody, ProxyFuture};
use marcato_web::{Body, ClientCertificate, PeerAddr, ServerName};
use tower_service::Service;

use crate::admission::{self, Admission};
use crate::certificates::Certificates;
use crate::config::{self, FieldChanges, HostPattern, Redirect};
use crate::error_pages::{self, ErrorPages};
use crate::passwords::{Passwords, Verdict};

/// Sites by their names.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// Networks of proxies in front.
    proxies: Vec<IpNet>,
    passwords: Arc<Passwords>,
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
    /// Changes of responses to requests that no route has.
    pub(crate) fields: FieldChanges,
    pub(crate) hsts: Option<HeaderValue>,
    /// First of its names that is no wildcard.
    pub(crate) name: Option<String>,
    /// Rule for requests that no route has.
    pub(crate) admission: Option<Arc<Admission>>,
    pub(crate) error_pages: ErrorPages,
}

/// Route whose content is open.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) path: String,
    /// Path as a content reads it.
    pub(crate) plain: String,
    pub(crate) is_exact: bool,
    /// Path that replaces the route's own in requests.
    pub(crate) rewrite: Option<String>,
    pub(crate) content: Content,
    /// Number of the content: routes with the same one have the same files, or the same origin.
    pub(crate) content_number: usize,
    /// Paths that are tried where a directory has no file.
    pub(crate) try_files: Vec<String>,
    /// Compression of the responses, if they are compressed.
    pub(crate) compression: Option<Compression>,
    /// Changes of requests and responses, of the site and of the route.
    pub(crate) request_fields: FieldChanges,
    pub(crate) fields: FieldChanges,
    pub(crate) body_limit: Option<u64>,
    pub(crate) admission: Option<Arc<Admission>>,
}

/// Source of responses.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Files(Files),
    Origin(Proxy),
    Redirect(Redirect),
}

impl Sites {
    /// Creates a server without sites. The checks of passwords go on from one configuration to the next.
    pub(crate) fn new(proxies: Vec<IpNet>, passwords: Arc<Passwords>) -> Self {
        Self { proxies, passwords, ..Self::default() }
    }

    pub(crate) fn passwords(&self) -> Arc<Passwords> {
        Arc::clone(&self.passwords)
    }

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

impl Route {
    /// Returns the path behind that of the route, which is `path`; `None` if the route has not this one.
    fn rest<'p>(&self, own: &str, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(own)?;
        let is_here = match self.is_exact {
            true => matches!(rest, "" | "/"),
            // A segment is a whole one: `/api` is not `/apis`.
            false => rest.is_empty() || rest.starts_with('/') || own.is_empty(),
        };
        is_here.then_some(rest)
    }

    /// Returns the path of a request as the content sees it; `rest` is what stands behind the route's.
    fn rewritten(&self, rest: &str) -> Option<String> {
        let slash = if rest.starts_with('/') || self.is_exact { "" } else { "/" };
        let path = match (self.rewrite.as_deref()?, self.is_exact) {
            ("", _) => format!("{}{rest}", if rest.starts_with('/') { "" } else { "/" }),
            (to, true) => to.to_owned(),
            (to, false) if rest.is_empty() => to.to_owned(),
            (to, false) => format!("{to}{slash}{rest}"),
        };
        Some(path)
    }
}

impl Site {
    /// Returns the route of a path, and the path behind the route's.
    fn route<'p>(&self, path: &'p str) -> Option<(usize, &'p str)> {
        let mut routes = self.routes.iter().enumerate();
        routes.find_map(|(index, route)| Some((index, route.rest(&route.path, path)?)))
    }

    /// Returns the route of a path as contents read it.
    fn route_of_plain(&self, path: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.rest(&route.plain, path).is_some())
    }

    /// Returns the rule that a path of a content stands under: that of the route to which it belongs, if that
    /// route has the same content.
    fn admission_within(&self, content: usize, path: &str) -> Option<&Arc<Admission>> {
        let route = self.route_of_plain(&plain(path)).filter(|route| route.content_number == content)?;
        route.admission.as_ref()
    }

    /// Returns the rules that a request has to meet.
    ///
    /// Beside that of its route there is that of the route to which its path belongs once it is decoded, and, if a
    /// path is rewritten, that of the route which has the same content below that path. Otherwise `/%70rivate` would
    /// be served without the rule of `/private`.
    fn admissions(&self, path: &str) -> Vec<Arc<Admission>> {
        let Some((index, rest)) = self.route(path) else { return self.admission.iter().cloned().collect() };
        if self.routes.iter().all(|route| route.admission.is_none()) {
            return Vec::new();
        }
        let route = &self.routes[index];
        let rewritten = route.rewritten(rest);
        let rules = [
            route.admission.as_ref(),
            self.route_of_plain(&plain(path)).and_then(|route| route.admission.as_ref()),
            rewritten.and_then(|path| self.admission_within(route.content_number, &path)),
        ];
        let mut found: Vec<Arc<Admission>> = Vec::new();
        for rule in rules.into_iter().flatten() {
            if !found.iter().any(|other| Arc::ptr_eq(other, rule)) {
                found.push(Arc::clone(rule));
            }
        }
        found
    }
}

/// Returns a path as a content may read it: decoded once, without empty segments and those of dots, which also
/// backslashes may end.
pub(crate) fn plain(path: &str) -> String {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let digit = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high << 4 | low).unwrap_or(b'%'));
                rest = behind.get(2..).unwrap_or_default();
            }
            (b'\\', ..) => decoded.push(b'/'),
            _ => decoded.push(*first),
        }
    }
    let decoded = String::from_utf8_lossy(&decoded);
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split(['/', '\\']) {
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            one => segments.push(one),
        }
    }
    segments.iter().flat_map(|segment| ["/", segment]).collect()
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
pub(crate) type ContentBody = Either<FileBody, Either<ProxyBody, Full<Bytes>>>;

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

    fn answer(&self, request: Request<Body>) -> Answer {
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
        let asked = Asking { site: Arc::clone(site), is_tls: self.is_tls, passed: Vec::new() };
        let rules = asked.site.admissions(request.uri().path());
        if rules.is_empty() {
            return asked.proceed(request);
        }
        let peer = request.extensions().get::<PeerAddr>().map(|peer| peer.0.ip());
        let client = peer.and_then(|peer| admission::client(peer, request.headers(), &sites.proxies));
        asked.admit(request, rules, client, &sites.passwords)
    }
}

/// Request on its way to the content of a site.
struct Asking {
    site: Arc<Site>,
    is_tls: bool,
    /// Rules that the request has met.
    passed: Vec<Arc<Admission>>,
}

impl Asking {
    /// Returns the response to a request that has to meet these rules.
    fn admit(
        mut self,
        request: Request<Body>,
        rules: Vec<Arc<Admission>>,
        client: Option<IpAddr>,
        passwords: &Arc<Passwords>,
    ) -> Answer {
        if !rules.iter().all(|rule| rule.admits(client)) {
            return self.refuse(&request, StatusCode::FORBIDDEN, "this client is not served here\n");
        }
        let certificate = request.extensions().get::<ClientCertificate>();
        if certificate.is_none() && rules.iter().any(|rule| rule.by_certificate) {
            return self.refuse(&request, StatusCode::FORBIDDEN, "this needs a certificate of the client\n");
        }
        let asking: Vec<_> = rules.iter().filter(|rule| !rule.users.is_empty()).cloned().collect();
        self.passed = rules;
        let Some(first) = asking.first() else { return self.proceed(request) };
        let challenge = first.challenge.clone();
        let Some(credentials) = admission::credentials(request.headers()) else {
            return self.challenge(&request, challenge);
        };
        if asking.iter().all(|rule| passwords.knows(&rule.users, &credentials)) {
            return self.proceed(request);
        }
        let (passwords, credentials) = (Arc::clone(passwords), Arc::new(credentials));
        let verdict = async move {
            for rule in asking {
                let check =
                    Arc::clone(&passwords).check(Arc::clone(&rule.users), client, Arc::clone(&credentials));
                match check.await {
                    Verdict::Right => {}
                    verdict => return verdict,
                }
            }
            Verdict::Right
        };
        let checking = Checking { verdict: Box::pin(verdict), asked: Some((self, request, challenge)) };
        Answer { kind: Kind::Checking(Box::new(checking)), dress: None, negotiated: None }
    }

    fn challenge(self, request: &Request<Body>, challenge: HeaderValue) -> Answer {
        let mut answer = self.refuse(request, StatusCode::UNAUTHORIZED, "this needs a name and a password\n");
        if let Kind::Ready(Some(response)) = &mut answer.kind {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        answer
    }

    /// Returns a response of the server itself, with the fields of the site.
    fn refuse(self, request: &Request<Body>, status: StatusCode, text: &'static str) -> Answer {
        let route = self.site.route(request.uri().path()).map(|(index, _)| index);
        let mut answer = Answer::text(status, text);
        answer.dress = Some(Dress { site: self.site, route, is_tls: self.is_tls });
        answer
    }

    /// Returns the response to a request that is admitted.
    fn proceed(self, mut request: Request<Body>) -> Answer {
        let Self { site, is_tls, passed } = self;
        let Some((index, rest)) = site.route(request.uri().path()) else {
            let mut answer = Answer::text(StatusCode::NOT_FOUND, "this site has nothing here\n");
            answer.dress = Some(Dress { site, route: None, is_tls });
            return answer;
        };
        let route = &site.routes[index];
        let mut negotiated = None;
        let kind = match &route.content {
            _ if route.body_limit.is_some_and(|most| request.body().size_hint().lower() > most) => {
                Kind::Ready(Some(message(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long\n")))
            }
            Content::Redirect(redirect) => {
                let mut response = message(redirect.status, "");
                match redirect.location(rest, request.uri().query()) {
                    Some(location) => _ = response.headers_mut().insert(LOCATION, location),
                    None => *response.status_mut() = StatusCode::BAD_REQUEST,
                }
                Kind::Ready(Some(response))
            }
            content => {
                let path = route.rewritten(rest);
                let uri = path.map(|path| with_path(request.uri(), &path));
                if let Some(most) = route.body_limit {
                    request.body_mut().limit(most);
                }
                let compression = route.compression.as_ref();
                negotiated = compression.map(|compression| compression.negotiate(&mut request));
                change_request(&route.request_fields, request.headers_mut());
                match (uri, content) {
                    // The path stays within its content, or nothing is served.
                    (Some(None), _) => {
                        Kind::Ready(Some(message(StatusCode::BAD_REQUEST, "this path cannot be rewritten\n")))
                    }
                    (uri, content) => {
                        if let Some(uri) = uri.flatten() {
                            *request.uri_mut() = uri;
                        }
                        match content {
                            Content::Files(files) if !route.try_files.is_empty() => Kind::Tried(Box::new(
                                Tries::new(files.clone(), &site, index, passed, request),
                            )),
                            Content::Files(files) => Kind::Files(files.clone().call(request)),
                            Content::Origin(proxy) => Kind::Origin(proxy.clone().call(request)),
                            Content::Redirect(_) => Kind::Ready(None),
                        }
                    }
                }
            }
        };
        Answer { kind, dress: Some(Dress { site, route: Some(index), is_tls }), negotiated }
    }
}

/// Changes the fields of a request.
fn change_request(changes: &FieldChanges, headers: &mut HeaderMap) {
    for name in &changes.remove {
        headers.remove(name);
    }
    if changes.set.is_empty() {
        return;
    }
    // RFC 9110 §7.6.1: a proxy removes what `Connection` names. A client could remove by it what is set here.
    let is_set =
        |token: &str| changes.set.iter().any(|(name, _)| name.as_str().eq_ignore_ascii_case(token.trim()));
    let options: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
    headers.remove(CONNECTION);
    for option in options {
        let kept = option
            .to_str()
            .map(|text| text.split(',').filter(|it| !is_set(it)).collect::<Vec<_>>().join(","));
        if let Ok(Ok(kept)) = kept.map(HeaderValue::try_from)
            && !kept.is_empty()
        {
            headers.append(CONNECTION, kept);
        }
    }
    for (name, value) in &changes.set {
        headers.insert(name, value.clone());
    }
}

/// Request of a file that is tried at several paths.
struct Tries {
    files: Files,
    future: FilesFuture,
    /// Request without a body, which files do not read.
    request: Request<()>,
    /// Paths to try, the last one first.
    paths: Vec<Uri>,
}

impl Tries {
    fn new(
        mut files: Files,
        site: &Site,
        index: usize,
        passed: Vec<Arc<Admission>>,
        request: Request<Body>,
    ) -> Self {
        let route = &site.routes[index];
        let request = request.map(drop);
        let asked = request.uri().path().trim_end_matches('/').to_owned();
        let is_open = |path: &String| {
            // A rule of another route holds for its files, also where they are reached by another path.
            let below = route.rewrite.as_ref().map(|_| format!("{}{path}", route.path));
            let rules = [
                site.admission_within(route.content_number, path),
                below.and_then(|path| site.admission_within(route.content_number, &path)),
            ];
            rules.into_iter().flatten().all(|rule| passed.iter().any(|other| Arc::ptr_eq(other, rule)))
        };
        let paths = route.try_files.iter().map(|path| path.replacen(config::PATH, &asked, 1));
        let paths = paths.filter(|path| path.starts_with('/')).filter(is_open);
        let mut paths: Vec<Uri> = paths.filter_map(|path| with_path(request.uri(), &path)).collect();
        paths.reverse();
        let mut first = Request::new(());
        clone_head(&request, &mut first);
        Self { future: files.call(first), files, request, paths }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<FileBody>> {
        loop {
            let Ok(response) = ready!(Pin::new(&mut self.future).poll(cx));
            if response.status() != StatusCode::NOT_FOUND {
                return Poll::Ready(response);
            }
            let Some(uri) = self.paths.pop() else { return Poll::Ready(response) };
            let mut next = Request::new(());
            clone_head(&self.request, &mut next);
            *next.uri_mut() = uri;
            self.future = self.files.call(next);
        }
    }
}

/// Copies what files read of a request.
fn clone_head(from: &Request<()>, to: &mut Request<()>) {
    *to.method_mut() = from.method().clone();
    *to.uri_mut() = from.uri().clone();
    *to.version_mut() = from.version();
    to.headers_mut().clone_from(from.headers());
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
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{path}{query}")).ok()?);
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
    Tried(Box<Tries>),
    Origin(ProxyFuture),
    /// Request whose password is checked.
    Checking(Box<Checking>),
}

struct Checking {
    verdict: Pin<Box<dyn Future<Output = Verdict> + Send>>,
    /// Request, and the challenge for a wrong password; until the verdict.
    asked: Option<(Asking, Request<Body>, HeaderValue)>,
}

/// Fields that a response will get.
struct Dress {
    site: Arc<Site>,
    route: Option<usize>,
    is_tls: bool,
}

impl Dress {
    fn dress(&self, response: &mut Response<ContentBody>) {
        let is_of_origin = match response.body() {
            Either::Right(Either::Left(body)) => !body.is_of_proxy(),
            _ => false,
        };
        if let Some((body, content_type)) = self.site.error_pages.page(response.status(), is_of_origin) {
            let headers = response.headers_mut();
            for name in error_pages::OF_CONTENT {
                headers.remove(name);
            }
            headers.insert(CONTENT_TYPE, content_type);
            *response.body_mut() = Either::Right(Either::Right(Full::new(body)));
        }
        let headers = response.headers_mut();
        // RFC 6797 §7.2: not in cleartext.
        if let Some(hsts) = self.site.hsts.as_ref().filter(|_| self.is_tls) {
            headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        let fields = self.route.map_or(&self.site.fields, |route| &self.site.routes[route].fields);
        for name in &fields.remove {
            headers.remove(name);
        }
        for (name, value) in &fields.set {
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
        if let Kind::Checking(checking) = &mut self.kind {
            let verdict = ready!(checking.verdict.as_mut().poll(cx));
            let Some((asked, request, challenge)) = checking.asked.take() else { return Poll::Pending };
            *self = match verdict {
                Verdict::Right => asked.proceed(request),
                Verdict::Wrong => asked.challenge(&request, challenge),
                Verdict::Busy => asked.refuse(
                    &request,
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many passwords are being checked: try again later\n",
                ),
            };
        }
        let mut response = match &mut self.kind {
            // What is admitted is checked no more.
            Kind::Checking(_) => return Poll::Pending,
            Kind::Ready(response) => {
                let Some(response) = response.take() else { return Poll::Pending };
                response
            }
            Kind::Tried(tries) => ready!(tries.poll(cx)).map(Either::Left),
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
