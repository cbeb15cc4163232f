//! Handler of a request.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Buf as _;
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use tower_service::Service;

use crate::body::Body;
use crate::clock::Dates;
use crate::h2::Tunnel;
use crate::patience::Patience;
use crate::place::Place;
use crate::stage::Stage;

/// Error of a handler or of the body of its response.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Service that a [`Server`](crate::Server) serves: any tower service that can be cloned for each
/// request, such as a `Router` of axum. It has no methods of its own.
pub trait WebService:
    Service<Request<Body>, Response = Response<Self::Content>, Error: Into<BoxError>, Future: Send>
    + Clone
    + Send
    + 'static
{
    /// Body of its responses.
    type Content: Content;
}

impl<S, B> WebService for S
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Content,
{
    type Content = B;
}

/// Body of the responses of a [`WebService`]. It has no methods of its own.
pub trait Content: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static {}

impl<B> Content for B where B: HttpBody<Data: Send, Error: Into<BoxError>> + Send + 'static {}

/// Fields that belong to a connection (RFC 9113 §8.2.2). A response with them is malformed.
pub(crate) static CONNECTION_FIELDS: [HeaderName; 5] = [
    http::header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
];

/// Handler of a request: it lets a service answer, and puts the response on a stage.
///
/// It is a future that can move, so that it can begin in the task of its connection, and go on in a task
/// of its own if it has to wait.
pub(crate) struct Handling<S: WebService> {
    state: State,
    /// What the service is called with, until it is.
    asked: Option<(S, Request<Body>)>,
    method: Method,
    stage: Arc<Stage>,
    dates: Arc<Dates>,
    memory: Memory<S>,
    /// Offer to take over the stream.
    tunnel: Option<Box<Tunnel>>,
    /// Patience with the body of the request.
    patience: Option<Patience>,
}

enum State {
    /// The service has not been called.
    Asked,
    /// The service makes its response, in the place for it.
    Called,
    /// The content is put on the stage, from the place for it.
    Answered,
    Over,
    /// The stream was taken over: the response goes on without the handler.
    TakenOver,
}

/// Memory of a handler, which the next one of its connection uses again.
pub(crate) struct Memory<S: WebService> {
    call: Place<S::Future>,
    content: Place<S::Content>,
}

impl<S: WebService> Default for Memory<S> {
    fn default() -> Self {
        Self { call: Place::default(), content: Place::default() }
    }
}

impl<S: WebService> Handling<S> {
    pub(crate) fn new(
        service: S,
        request: Request<Body>,
        stage: Arc<Stage>,
        dates: Arc<Dates>,
        memory: Memory<S>,
    ) -> Self {
        let method = request.method().clone();
        let asked = Some((service, request));
        Self { state: State::Asked, asked, method, stage, dates, memory, tunnel: None, patience: None }
    }

    /// Bounds the wait of the service for the body of its request.
    pub(crate) fn watched(mut self, patience: Option<Patience>) -> Self {
        self.patience = patience;
        self
    }

    /// Lets the service take over the stream.
    pub(crate) fn offer(mut self, tunnel: Option<Tunnel>) -> Self {
        self.tunnel = tunnel.map(Box::new);
        self
    }

    /// Runs the handler until it has to wait. Returns its memory if it has ended, also by a panic; if not,
    /// it goes on in a task of its own.
    pub(crate) fn begin(&mut self) -> Option<Memory<S>> {
        // What wakes it is registered when its own task asks again.
        let mut cx = Context::from_waker(Waker::noop());
        // A panic ends the handler, and not the connection.
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut *self).poll(&mut cx))) {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(())) => Some(std::mem::take(&mut self.memory)),
            Err(_) => {
                self.state = State::Over;
                self.stage.fail();
                Some(Memory::default())
            }
        }
    }

    /// Answers in place of a service that failed.
    fn apologise(&self, error: &BoxError) {
        tracing::warn!(%error, "the service failed");
        self.refuse(StatusCode::INTERNAL_SERVER_ERROR);
    }

    /// Answers in place of the service.
    fn refuse(&self, status: StatusCode) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        self.dates.stamp(response.headers_mut());
        self.stage.head(response, true);
        self.stage.announce();
    }

    /// Puts the head of a response on the stage, and its content into the place for it.
    fn answer(&mut self, response: Response<S::Content>) -> State {
        let (mut parts, content) = response.into_parts();
        prepare(&mut parts.headers, &self.dates);
        let has_content = has_content(&self.method, parts.status);
        if has_no_length(&self.method, parts.status) {
            // A client that takes it for the length of a missing content resets the stream.
            parts.headers.remove(CONTENT_LENGTH);
        }
        if let Some(length) = content.size_hint().exact()
            && (has_content || self.method == Method::HEAD)
            && !has_no_length(&self.method, parts.status)
            && !parts.headers.contains_key(CONTENT_LENGTH)
            // RFC 9110 §8.6: a response to HEAD may omit it. Its handler may not know the length.
            && (length > 0 || has_content)
        {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let is_end = !has_content || content.is_end_stream();
        // A service with content of its own has the bytes of the client as the body of the request.
        if let Some(tunnel) = self.tunnel.take().filter(|_| is_end && parts.status.is_success()) {
            self.stage.head(Response::from_parts(parts, ()), false);
            tunnel.open(Arc::clone(&self.stage));
            return State::TakenOver;
        }
        self.stage.head(Response::from_parts(parts, ()), is_end);
        if is_end {
            self.stage.announce();
            return State::Over;
        }
        self.memory.content.put(content);
        State::Answered
    }

    /// Puts content on the stage, as far as there is room.
    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let stage = &self.stage;
        loop {
            if !ready!(stage.poll_room(cx)) {
                return Poll::Ready(());
            }
            let Some(mut content) = self.memory.content.get() else { return Poll::Ready(()) };
            let frame = match content.as_mut().poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    stage.rest();
                    return Poll::Pending;
                }
            };
            match frame {
                None => stage.complete(None),
                Some(Err(error)) => {
                    let error: BoxError = error.into();
                    tracing::debug!(%error, "the body of a response failed");
                    stage.fail();
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(mut data) => {
                        let len = data.remaining();
                        stage.push(data.copy_to_bytes(len));
                        if !content.is_end_stream() {
                            continue;
                        }
                        stage.complete(None);
                    }
                    Err(frame) => match frame.into_trailers() {
                        Ok(trailers) => stage.complete(Some(trailers)),
                        Err(_) => continue,
                    },
                },
            }
            return Poll::Ready(());
        }
    }
}

impl<S: WebService> Future for Handling<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            this.state = match this.state {
                State::Asked => {
                    let Some((service, _)) = &mut this.asked else { return Poll::Ready(()) };
                    let ready = ready!(service.poll_ready(cx));
                    match (ready, this.asked.take()) {
                        (Ok(()), Some((mut service, request))) => {
                            this.memory.call.put(service.call(request));
                            State::Called
                        }
                        (Err(error), _) => {
                            this.apologise(&error.into());
                            State::Over
                        }
                        (Ok(()), None) => State::Over,
                    }
                }
                State::Called => {
                    let Some(call) = this.memory.call.get() else { return Poll::Ready(()) };
                    let response = match call.poll(cx) {
                        Poll::Ready(response) => Some(response),
                        Poll::Pending => {
                            let Some(patience) = &mut this.patience else { return Poll::Pending };
                            ready!(patience.poll(cx));
                            None
                        }
                    };
                    this.memory.call.clear();
                    match response {
                        Some(Ok(response)) => this.answer(response),
                        // RFC 9110 §15.5.9: the request was not complete in time.
                        None => {
                            this.refuse(StatusCode::REQUEST_TIMEOUT);
                            State::Over
                        }
                        Some(Err(error)) => {
                            this.apologise(&error.into());
                            State::Over
                        }
                    }
                }
                State::Answered => {
                    ready!(this.poll_content(cx));
                    this.memory.content.clear();
                    State::Over
                }
                State::Over | State::TakenOver => return Poll::Ready(()),
            };
        }
    }
}

impl<S: WebService> Drop for Handling<S> {
    fn drop(&mut self) {
        // Nothing happens if the response is complete. It is not after a panic.
        if !matches!(self.state, State::TakenOver) {
            self.stage.fail();
        }
    }
}

impl<S: WebService> Unpin for Handling<S> {}

/// Calls a service once it is ready.
pub(crate) async fn call<S: WebService>(
    service: &mut S,
    request: Request<Body>,
) -> Result<Response<S::Content>, BoxError> {
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    service.call(request).await.map_err(Into::into)
}

/// Removes fields of a connection, and adds the date.
fn prepare(headers: &mut HeaderMap, dates: &Dates) {
    if headers.keys().any(|name| CONNECTION_FIELDS.contains(name)) {
        for field in &CONNECTION_FIELDS {
            headers.remove(field);
        }
    }
    if !headers.contains_key(DATE) {
        dates.stamp(headers);
    }
}

/// True if a response has content (RFC 9110 §6.4.1).
pub(crate) fn has_content(method: &Method, status: StatusCode) -> bool {
    *method != Method::HEAD
        && !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED
}

/// True if a response must not announce a length: it opens a tunnel, or its status excludes content (RFC 9110
/// §8.6).
fn has_no_length(method: &Method, status: StatusCode) -> bool {
    *method == Method::CONNECT && status.is_success()
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
}
