//! Handler of a request, in a task of its own.

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Buf as _;
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use tower_service::Service;

use crate::body::Body;
use crate::clock::Dates;
use crate::h2::Stage;

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
const CONNECTION_FIELDS: [HeaderName; 5] = [
    http::header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
];

/// Gives the response up if its handler ends without it: by a panic.
struct Unfinished<'a>(&'a Stage);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// Lets a service answer a request, and puts the response on a stage.
pub(crate) async fn answer<S: WebService>(
    mut service: S,
    request: Request<Body>,
    stage: Arc<Stage>,
    dates: Arc<Dates>,
) {
    let unfinished = Unfinished(&stage);
    let method = request.method().clone();
    match call(&mut service, request).await {
        Ok(response) => pump(response, &method, &stage, &dates).await,
        Err(error) => {
            tracing::warn!(%error, "the service failed");
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            dates.stamp(response.headers_mut());
            stage.head(response, true);
            stage.announce();
        }
    }
    drop(unfinished);
}

/// Calls a service once it is ready.
pub(crate) async fn call<S: WebService>(
    service: &mut S,
    request: Request<Body>,
) -> Result<Response<S::Content>, BoxError> {
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    service.call(request).await.map_err(Into::into)
}

/// Puts a response on the stage, as far as there is room.
async fn pump<B: Content>(response: Response<B>, method: &Method, stage: &Stage, dates: &Dates) {
    let (mut parts, body) = response.into_parts();
    prepare(&mut parts.headers, dates);
    let has_content = has_content(method, parts.status);
    if let Some(length) = body.size_hint().exact()
        && (has_content || *method == Method::HEAD)
        && !is_tunnel(method, parts.status)
        && !parts.headers.contains_key(CONTENT_LENGTH)
        // RFC 9110 §8.6: a response to HEAD may omit it. Its handler may not know the length.
        && (length > 0 || has_content)
    {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let is_end = !has_content || body.is_end_stream();
    stage.head(Response::from_parts(parts, ()), is_end);
    if is_end {
        stage.announce();
        return;
    }
    let mut body = pin!(body);
    loop {
        // The connection is told when there is nothing more at once: a head with its first bytes, and
        // the last bytes with the end.
        let frame = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
            Poll::Pending => {
                stage.announce();
                Poll::Pending
            }
            ready => ready,
        });
        match frame.await {
            None => return stage.complete(None),
            Some(Err(error)) => {
                let error: BoxError = error.into();
                tracing::debug!(%error, "the body of a response failed");
                return stage.fail();
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(mut data) => {
                    let len = data.remaining();
                    stage.push(data.copy_to_bytes(len));
                    if body.is_end_stream() {
                        return stage.complete(None);
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return stage.complete(Some(trailers));
                    }
                }
            },
        }
        if !poll_fn(|cx| stage.poll_room(cx)).await {
            return;
        }
    }
}

/// Removes fields of a connection, and adds the date.
fn prepare(headers: &mut HeaderMap, dates: &Dates) {
    for field in &CONNECTION_FIELDS {
        headers.remove(field);
    }
    if !headers.contains_key(DATE) {
        dates.stamp(headers);
    }
}

/// True if a response has content (RFC 9110 §6.4.1).
fn has_content(method: &Method, status: StatusCode) -> bool {
    *method != Method::HEAD
        && !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED
}

/// True if a response opens a tunnel, which has no length (RFC 9110 §8.6).
fn is_tunnel(method: &Method, status: StatusCode) -> bool {
    *method == Method::CONNECT && status.is_success()
}
