//! Way of a request through the proxy.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body, SizeHint};
use http_body_util::Empty;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;

use super::activity::IdleTimer;
use super::balance;
use super::body::{Ends, ProxyBody};
use super::choice::{Chooser, Tie};
use super::complaints::{Complaints, Kind as Complaint};
use super::config::{Balance, ProxyConfig};
use super::connect::Purpose;
use super::counters::{ProxyCounters, Totals};
use super::exchange::{Answer, Route, Template, attempt};
use super::forwarded::Forwarded;
use super::guard::{self, Checked, Rejection};
use super::headers::{accepts_trailers, add_via, join_cookies, strip_hop_by_hop, strip_lookalikes};
use super::origin::{Origin, Permit};
use super::upgrade;
use super::upload::{BoxError, Upload, UploadFault};
use super::websocket::{self, Download, Handshake};
use crate::early_hints::EarlyHints;
use crate::ending::Ending;
use crate::patience::Wait;
use crate::peer_addr::PeerAddr;

/// State that all requests share.
pub(super) struct Shared {
    config: ProxyConfig,
    origins: Vec<Arc<Origin>>,
    chooser: Mutex<Chooser>,
    totals: Arc<Totals>,
    complaints: Complaints,
}

impl Shared {
    pub(super) fn new(config: ProxyConfig, origins: Vec<Arc<Origin>>) -> Self {
        let chooser = Mutex::new(Chooser::new(origins.len()));
        Self { config, origins, chooser, totals: Arc::default(), complaints: Complaints::default() }
    }

    pub(super) fn counters(&self) -> ProxyCounters {
        let upstreams = self.origins.iter().map(|origin| origin.state()).collect();
        ProxyCounters { upstreams, ..self.totals.read() }
    }

    /// Writes a warning that all upstreams are full, unless there were many.
    fn complain_of_load(&self) {
        if let Some(omitted) = self.complaints.may_write(Complaint::Full, Instant::now()) {
            let origins: Vec<&str> = self.origins.iter().map(|origin| origin.uri()).collect();
            let omitted = (omitted > 0).then_some(omitted);
            tracing::warn!(
                origin = origins.join(" "),
                outcome = "503",
                omitted,
                "no upstream has room for a request: add upstreams, or raise `max-in-flight`"
            );
        }
    }

    /// Admits a request to an upstream; `None` if all that may be used are full.
    fn admit(&self, tried: &[usize], tie: Tie) -> Option<(usize, Permit)> {
        // The lock is held until the request is counted, so that no upstream exceeds its bound.
        let mut chooser = self.chooser.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let candidates: Vec<_> = self
            .origins
            .iter()
            .enumerate()
            .map(|(index, origin)| origin.candidate(now, tried.contains(&index)))
            .collect();
        let index = chooser.choose(&candidates, tie)?;
        self.origins.get(index).map(|origin| (index, origin.admit()))
    }
}

/// Kind of exchange that a request begins.
enum Kind {
    Plain,
    /// Upgrade of HTTP/1.1 to one of these protocols.
    Upgrade {
        client: OnUpgrade,
        protocols: HeaderValue,
        ending: Option<Ending>,
    },
    /// Extended CONNECT of HTTP/2 or HTTP/3.
    WebSocket {
        handshake: Handshake,
        body: UnsyncBoxBody<Bytes, BoxError>,
        ending: Option<Ending>,
    },
}

/// Passes a request on, and returns the response to it.
pub(super) async fn forward<B>(shared: &Arc<Shared>, request: Request<B>) -> Response<ProxyBody>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    shared.totals.requests.one();
    let (mut head, body) = request.into_parts();
    let reject = |rejection: Rejection| {
        shared.totals.rejected.one();
        tracing::debug!(error = %rejection, "request rejected");
        text(rejection.status())
    };
    let hint = if body.is_end_stream() { SizeHint::with_exact(0) } else { body.size_hint() };
    let checked = match guard::check(&head, &hint) {
        Ok(checked) => checked,
        Err(rejection) => return reject(rejection),
    };
    let idle = shared.config.body_idle_timeout;
    if let Some(wait) = head.extensions.remove::<Arc<Wait>>() {
        // The proxy has a bound of its own for it.
        wait.leave();
    }
    let ending = head.extensions.remove::<Ending>();
    let (kind, upload) = if head.method == Method::CONNECT {
        let protocol = head.extensions.remove::<h2::ext::Protocol>();
        // RFC 8441 §4: a CONNECT without a protocol asks for a tunnel to its authority.
        if !protocol.is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case(websocket::PROTOCOL)) {
            return reject(Rejection::Tunnel);
        }
        let Some(handshake) = Handshake::new() else { return text(StatusCode::SERVICE_UNAVAILABLE) };
        let body = websocket::upload(body);
        (Kind::WebSocket { handshake, body, ending }, Upload::new(Empty::new(), idle, 0, &shared.totals))
    } else {
        let kept = usize::try_from(shared.config.kept_body.get()).unwrap_or(usize::MAX);
        let upload = Upload::new(body, idle, kept, &shared.totals);
        let protocols =
            if head.version == Version::HTTP_11 { upgrade::requested(&head.headers) } else { None };
        match (head.extensions.remove::<OnUpgrade>(), protocols) {
            (Some(client), Some(protocols)) => (Kind::Upgrade { client, protocols, ending }, upload),
            _ => (Kind::Plain, upload),
        }
    };
    let version = head.version;
    let is_secure = head.uri.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let peer = head.extensions.get::<PeerAddr>().map(|peer| peer.0.ip().to_canonical());
    let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let seeds = shared.origins.iter().map(|origin| origin.seed());
    let tie = balance::tie(&shared.config, seeds, peer, path, &head.headers);
    let template = match template(shared, head, checked, &kind) {
        Ok(template) => template,
        Err(rejection) => return reject(rejection),
    };
    let (mut response, index) = pass(shared, &template, &upload, kind, tie).await;
    if shared.config.balance == Balance::Cookie
        && let Some(origin) =
            index.filter(|_| tie != Tie::Upstream(index)).and_then(|it| shared.origins.get(it))
    {
        balance::set_cookie(response.headers_mut(), &shared.config.cookie, origin.seed(), is_secure);
    }
    *response.version_mut() = version;
    response
}

/// Tries upstreams until one answers. Returns its response and its index.
async fn pass(
    shared: &Arc<Shared>,
    template: &Template,
    upload: &Arc<Upload>,
    kind: Kind,
    tie: Tie,
) -> (Response<ProxyBody>, Option<usize>) {
    let Shared { config, totals, .. } = &**shared;
    let purpose = if matches!(kind, Kind::Plain) { Purpose::Requests } else { Purpose::Upgrade };
    let mut route = Route { purpose, fresh: false };
    let mut tried = Vec::new();
    loop {
        let Some((index, permit)) = shared.admit(&tried, tie) else {
            totals.overloaded.one();
            shared.complain_of_load();
            return (text(StatusCode::SERVICE_UNAVAILABLE), None);
        };
        let origin = &permit.origin;
        let Some(outbound) = upload.renew(&origin.tally) else {
            totals.bad_gateways.one();
            origin.complain(Complaint::Closed, "502", || {
                "the body of a request was begun, and cannot be sent again".to_owned()
            });
            return (text(StatusCode::BAD_GATEWAY), None);
        };
        origin.tally.requests.one();
        if !tried.is_empty() {
            origin.tally.retries.one();
        }
        let fault = match attempt(origin, template, upload, outbound, route, config.response_timeout).await {
            Ok(answer) => {
                origin.success();
                upload.release();
                return (accept(shared, answer, permit, upload, kind), Some(index));
            }
            Err(fault) => fault,
        };
        if let Some(fault) = upload.fault() {
            totals.client_faults.one();
            let status = match fault {
                UploadFault::Idle => StatusCode::REQUEST_TIMEOUT,
                UploadFault::Broken => StatusCode::BAD_REQUEST,
                UploadFault::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            };
            return (text(status), None);
        }
        if fault.blames_upstream() {
            origin.failure();
        }
        let again = tried.len() < usize::try_from(config.retries).unwrap_or(usize::MAX);
        if !again || !fault.allows_retry(&template.method) || !upload.is_whole() {
            let status = fault.status();
            origin.complain(fault.kind(), status.as_str(), || fault.reason());
            return (give_up(totals, status), None);
        }
        if fault.blames_upstream() {
            origin.complain(fault.kind(), "retried", || fault.reason());
        } else {
            tracing::debug!(origin = origin.uri(), error = fault.reason(), "attempt failed");
        }
        route.fresh = fault.distrusts_pool();
        tried.push(index);
    }
}

fn give_up(totals: &Totals, status: StatusCode) -> Response<ProxyBody> {
    match status {
        StatusCode::GATEWAY_TIMEOUT => totals.timeouts.one(),
        StatusCode::BAD_GATEWAY => totals.bad_gateways.one(),
        _ => totals.rejected.one(),
    }
    text(status)
}

/// Writes the head of a request as upstreams see it.
fn template(shared: &Shared, head: Parts, checked: Checked, kind: &Kind) -> Result<Template, Rejection> {
    let Parts { mut method, uri, version, mut headers, extensions, .. } = head;
    let path = match uri.path_and_query() {
        Some(path) if path.as_str().starts_with('/') => path.clone(),
        // RFC 9112 §3.2.4: a server-wide OPTIONS has the target "*".
        Some(path) if path.as_str() == "*" && method == Method::OPTIONS => path.clone(),
        // An absolute target may have no path, or a query alone.
        Some(path) if path.as_str().starts_with('?') => {
            PathAndQuery::try_from(format!("/{}", path.as_str())).map_err(|_| Rejection::Target)?
        }
        Some(_) => return Err(Rejection::Target),
        None => PathAndQuery::from_static("/"),
    };
    guard::count_forward(&method, &mut headers);
    let trailers = accepts_trailers(&headers);
    strip_hop_by_hop(&mut headers);
    strip_lookalikes(&mut headers);
    join_cookies(&mut headers);
    // The checked length alone frames the body, and Connection cannot take it away.
    headers.remove(header::CONTENT_LENGTH);
    if let Some(length) = checked.length.filter(|_| !matches!(kind, Kind::WebSocket { .. })) {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let client = extensions.get::<PeerAddr>().map(|peer| peer.0);
    let peer = client.map(|client| client.ip().to_canonical());
    let scheme = match uri.scheme_str() {
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => "https",
        _ => "http",
    };
    let trusted = shared.config.trusted_forwarders.trusts(peer);
    Forwarded { peer, scheme, host: checked.host.as_ref() }.write(&mut headers, trusted);
    if shared.config.via_to_origins {
        add_via(&mut headers, version, &shared.config.via);
    }
    let upgrade = match kind {
        Kind::Plain => None,
        Kind::Upgrade { protocols, .. } => Some(protocols.clone()),
        Kind::WebSocket { handshake, .. } => {
            method = Method::GET;
            handshake.write(&mut headers);
            Some(HeaderValue::from_static(websocket::PROTOCOL))
        }
    };
    let host = checked.host.filter(|_| shared.config.preserve_host);
    let hints = extensions.get::<EarlyHints>().cloned();
    Ok(Template { method, path, headers, host, trailers, upgrade, hints, client })
}

/// Turns an upstream's answer into the client's response.
fn accept(
    shared: &Shared,
    answer: Answer,
    permit: Permit,
    upload: &Upload,
    kind: Kind,
) -> Response<ProxyBody> {
    let Shared { config, totals, .. } = shared;
    let Answer { mut response, lease } = answer;
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let switched = if switches { response.extensions_mut().remove::<OnUpgrade>() } else { None };
    let received = response.version();
    let (mut head, incoming) = response.into_parts();
    let bad_gateway = || {
        permit.origin.complain(Complaint::Malformed, "502", || {
            "origin switches protocols as nobody asked it to, or answers an upgrade wrongly: check it"
                .to_owned()
        });
        totals.bad_gateways.one();
        text(StatusCode::BAD_GATEWAY)
    };
    let idle = config.tunnel_idle_timeout;
    match (kind, switched) {
        (Kind::Upgrade { client, protocols, ending }, Some(origin)) => {
            let Some(protocol) = upgrade::accepted(&head.headers, &protocols) else { return bad_gateway() };
            clean(&mut head.headers, received, &config.via);
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(websocket::PROTOCOL.as_bytes());
            head.headers.insert(header::UPGRADE, protocol);
            let tunnel = upgrade::Tunnel { idle, permit, totals: Arc::clone(totals), ending, is_websocket };
            tokio::spawn(tunnel.join(client, origin));
            with_head(head.status, head.headers, ProxyBody::text(""))
        }
        (Kind::WebSocket { handshake, body, ending }, Some(origin)) => {
            let protocol = HeaderValue::from_static(websocket::PROTOCOL);
            if upgrade::accepted(&head.headers, &protocol).is_none() || !handshake.is_accepted(&head.headers)
            {
                return bad_gateway();
            }
            clean(&mut head.headers, received, &config.via);
            // RFC 8441 §5: the field and the status 101 belong to HTTP/1.1.
            head.headers.remove(header::SEC_WEBSOCKET_ACCEPT);
            let download = Download::new(origin, body, idle, permit, Arc::clone(totals), ending);
            with_head(StatusCode::OK, head.headers, ProxyBody::tunnel(download))
        }
        // RFC 9110 §7.8: only a request for an upgrade is answered with 101. To an extended
        // CONNECT, a status of 2xx would mean that the tunnel is open (RFC 8441 §5).
        (kind, _) if switches || matches!(kind, Kind::WebSocket { .. }) && head.status.is_success() => {
            bad_gateway()
        }
        _ => {
            clean(&mut head.headers, received, &config.via);
            let ends = Ends { permit, lease, totals: Arc::clone(totals) };
            upload.activity.touch();
            let timer = IdleTimer::new(Arc::clone(&upload.activity), config.body_idle_timeout);
            let body = ProxyBody::relay(incoming, ends, timer, config.body_idle_timeout);
            with_head(head.status, head.headers, body)
        }
    }
}

/// Removes the fields of a response that concern one connection only, and adds `Via`.
fn clean(headers: &mut HeaderMap, received: Version, via: &str) {
    // RFC 9112 §6.3: Transfer-Encoding overrides Content-Length, which MUST then be removed.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers);
    add_via(headers, received, via);
}

fn with_head(status: StatusCode, headers: HeaderMap, body: ProxyBody) -> Response<ProxyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Response of the proxy itself, which names no internals.
fn text(status: StatusCode) -> Response<ProxyBody> {
    let body = ProxyBody::text(match status {
        StatusCode::BAD_REQUEST => "bad request\n",
        StatusCode::METHOD_NOT_ALLOWED => "method not allowed\n",
        StatusCode::REQUEST_TIMEOUT => "request timeout\n",
        StatusCode::PAYLOAD_TOO_LARGE => "request body too long\n",
        StatusCode::NOT_IMPLEMENTED => "not implemented\n",
        StatusCode::SERVICE_UNAVAILABLE => "service unavailable\n",
        StatusCode::GATEWAY_TIMEOUT => "gateway timeout\n",
        _ => "bad gateway\n",
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        // RFC 9110 §15.5.6: the response MUST have Allow. As the final recipient the proxy allows
        // none.
        headers.insert(header::ALLOW, HeaderValue::from_static(""));
    }
    with_head(status, headers, body)
}
