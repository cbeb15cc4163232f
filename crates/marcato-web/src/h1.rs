//! HTTP/1.1: a connection with one response at a time.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Poller, Poll, ready};

use bytes::Buf as _;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use marcato_sched::exchange::Parameters;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::body::Body;
use crate::clocks::{Clocks, Due, Seen};
use crate::decision::{Decision, Source};
use crate::early_end::EarlyEnd;
use crate::early_hints::EarlyHints;
use crate::handler::{WebService, call, has_content};
use crate::head_timer::{HeadTimer, OpenRequest, Timed};
use crate::patience::Patience;
use crate::priority::PriorityField;
use crate::record::Record;
use crate::server::{Context, Shutdown};
use crate::trace::Outcome;

/// Fields of a request for which the library has memory on its stack. It answers more with 431, as this
/// server does.
const LIBRARY_FIELDS: usize = 100;
/// Smallest buffer of the library.
const LEAST_BUFFER: usize = 8192;

/// Serves a connection of HTTP/1.1 until it ends.
///
/// # Errors
/// If the connection breaks, or the client violates the protocol.
pub(crate) async fn serve<I, S>(
    io: I,
    service: S,
    context: Arc<Context>,
    shutdown: Shutdown,
) -> Result<(), EarlyEnd>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: WebService,
{
    let limits = context.config.limits;
    let scheme = if context.is_tls { Scheme::HTTPS } else { Scheme::HTTP };
    let heads = HeadTimer::default();
    let (timer, shared) = (heads.clone(), Arc::clone(&context));
    let respond = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (mut service, context, scheme) = (service.clone(), Arc::clone(&context), scheme.clone());
        let timer = timer.clone();
        let open = timer.complete();
        async move {
            context.counters.requests.one();
            let (mut head, body) = request.into_parts();
            // The log has the host, and the service the target as HTTP/2 has it.
            head.uri = absolute(head.uri, &head.method, head.headers.get(HOST), scheme);
            let record = Record::begin(&head, decide(&head.headers), &context);
            let mut entry = Entry { record, context, _open: open };
            let method = head.method.clone();
            if let Some(response) = entry.context.refusal(&head) {
                entry.record.head(response.status(), None);
                entry.record.complete = true;
                return Ok(response.map(|()| Logged::new(None, entry)));
            }
            let mut request = Request::from_parts(head, Body::http1(body));
            let context = &entry.context;
            context.introduce(request.extensions_mut());
            request.extensions_mut().insert(entry.record.decision);
            let mut patience = Patience::with(&mut request, context);
            let is_connect = *request.method() == Method::CONNECT;
            let is_tunnel = is_connect || request.headers().contains_key(UPGRADE);
            if is_tunnel {
                request.extensions_mut().insert(context.ending.clone());
            }
            request.extensions_mut().insert(EarlyHints::default());
            let mut called = pin!(call(&mut service, request));
            let answered = poll_fn(|cx| match (called.as_mut().poll(cx), &mut patience) {
                (Poll::Ready(answered), _) => Poll::Ready(Some(answered)),
                (Poll::Pending, Some(patience)) => patience.poll(cx).map(|()| None),
                (Poll::Pending, None) => Poll::Pending,
            });
            let mut response = match answered.await {
                Some(Ok(response)) => response.map(|body| Logged::new(Some(body), entry)),
                // RFC 9110 §15.5.9: the request was not complete in time. What may follow is no request.
                None => {
                    let mut response = Response::new(Logged::new(None, entry));
                    *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    response
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "the service failed");
                    entry.context.counters.failed.one();
                    let mut response = Response::new(Logged::new(None, entry));
                    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                    response
                }
            };
            let context = Arc::clone(&response.body().entry.context);
            context.advertise(response.headers_mut());
            let (status, length) = (response.status(), response.body().size_hint().exact());
            if is_tunnel && (status == StatusCode::SWITCHING_PROTOCOLS || is_connect && status.is_success()) {
                timer.tunnel();
            }
            let has_content = has_content(&method, status) && !response.body().is_end_stream();
            let announced = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
            let announced = announced.and_then(|length| length.parse().ok()).or(length);
            let body = response.body_mut();
            body.entry.record.head(status, length);
            // The library asks for no content that it does not send.
            body.entry.record.complete = !has_content;
            body.announced = announced;
            Ok::<_, Infallible>(response)
        }
    });
    let most_head = usize::try_from(limits.header_list.get()).unwrap_or(usize::MAX);
    let mut builder = http1::Builder::new();
    if limits.fields > LIBRARY_FIELDS {
        builder.max_headers(limits.fields);
    }
    // hyper counts the time between two requests as that for the head of the next one.
    let connection = builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        // The buffer alone would refuse a head that comes in parts, and take one that comes whole.
        .max_header_size(most_head)
        .max_buf_size(most_head.max(LEAST_BUFFER))
        .serve_connection(TokioIo::new(Timed::new(io, heads.clone())), respond)
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut shutdown = Some(shutdown);
    let mut clocks = Clocks::new(limits, Instant::now());
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if let Some(ending) = &mut shutdown
            && ending.as_mut().poll(cx).is_ready()
        {
            shutdown = None;
            clocks.drain(Instant::now());
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            if heads.is_refused() {
                shared.counters.violations.one();
            }
            // The library's time is up between two requests, or in the middle of a head that was sent
            // along with the request before it.
            let is_idle = matches!(&result, Err(error) if error.is_timeout()) && heads.since().is_none();
            return Poll::Ready(if is_idle { Ok(()) } else { result.map_err(EarlyEnd::from) });
        }
        // The library ends idle connections, and knows what waits for the client.
        let seen = Seen { has_requests: true, waits: false, head_since: heads.since() };
        loop {
            let next = match clocks.next(Instant::now(), seen) {
                Ok(Some(next)) => next,
                Ok(None) | Err(Due::Drain) => return Poll::Pending,
                Err(Due::End(overdue)) => return Poll::Ready(Err(shared.overdue(overdue))),
            };
            let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if sleep.deadline() != next {
                sleep.as_mut().reset(next);
            }
            ready!(sleep.as_mut().poll(cx));
        }
    })
    .await
}

/// Returns the priority that the client asks for. There is nothing to order on this connection, but
/// the log and an origin may use it.
fn decide(headers: &http::HeaderMap) -> Decision {
    let lines = headers.get_all("priority").iter().map(HeaderValue::as_bytes);
    match PriorityField::combine(lines) {
        Ok(field) if headers.contains_key("priority") => {
            Decision { parameters: field.parameters(), source: Source::Header }
        }
        _ => Decision { parameters: Parameters::default(), source: Source::Default },
    }
}

/// Returns the target of a request as HTTP/2 has it: with scheme and authority.
fn absolute(uri: Uri, method: &Method, host: Option<&HeaderValue>, scheme: Scheme) -> Uri {
    if *method == Method::CONNECT || uri.authority().is_some() {
        return uri;
    }
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = uri.clone().into_parts();
    if let Some(authority) = authority {
        parts.scheme = Some(scheme);
        parts.authority = Some(authority);
        parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    }
    Uri::from_parts(parts).unwrap_or(uri)
}

/// Entry of a request in the log, which is written when the request is over: also if its handler is dropped.
struct Entry {
    record: Record,
    context: Arc<Context>,
    /// The request is not over.
    _open: OpenRequest,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.context.log(&self.record);
    }
}

/// Body of a response whose end is recorded.
struct Logged<B> {
    /// Body of the service; `None` if that failed.
    body: Option<Pin<Box<B>>>,
    entry: Entry,
    /// Length of the content, if its head announces one.
    announced: Option<u64>,
}

impl<B: HttpBody> Logged<B> {
    fn new(body: Option<B>, entry: Entry) -> Self {
        Self { body: body.map(Box::pin), entry, announced: None }
    }
}

impl<B: HttpBody> HttpBody for Logged<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Poller<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        let is_end = body.is_end_stream();
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.remaining());
                let urgency = self.entry.record.decision.parameters.urgency;
                let level = self.entry.context.config.levels().level(urgency);
                self.entry.record.passed(bytes, level);
                // The library may not ask again after the last byte that was announced.
                self.entry.record.complete = is_end || self.announced == Some(self.entry.record.bytes.get());
            }
            Some(Err(_)) => {
                self.entry.context.counters.failed.one();
                self.entry.record.trace_failure(Outcome::Failed);
            }
            None => self.entry.record.complete = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}
