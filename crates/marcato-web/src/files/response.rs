//! Responses that carry no file.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use super::body::FileBody;
use super::path;

/// Value of `X-Content-Type-Options`: browsers do not guess another type (Fetch §3.6).
pub(super) const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Methods of every resource.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// Returns a response that tells what is wrong and what to do.
pub(super) fn problem(status: StatusCode, message: &str, request: &Parts) -> Response<FileBody> {
    let text = Bytes::from(format!("{message}\n"));
    let len = text.len();
    let body = if request.method == Method::HEAD { FileBody::empty() } else { FileBody::held(text) };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, len.into());
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

/// Answers OPTIONS (RFC 9110 §9.3.7).
pub(super) fn options() -> Response<FileBody> {
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

/// Answers any other method. RFC 9110 §15.5.6: the response MUST have `Allow`.
pub(super) fn not_allowed(request: &Parts) -> Response<FileBody> {
    let message = "files are only read: use GET or HEAD";
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, message, request);
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

/// Answers while the process lacks memory or descriptors.
pub(super) fn busy(request: &Parts) -> Response<FileBody> {
    let message = "the server has too many files open: try again later";
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, message, request);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Redirects from the path of a directory to that path with a slash. Names below are relative to it.
///
/// The reference begins with `./`, so that neither a colon nor slashes in the request make it point to
/// another server.
pub(super) fn redirect(path: &str, request: &Parts) -> Response<FileBody> {
    let mut location = String::from("./");
    path::encode(path.rsplit('/').next().unwrap_or_default(), &mut location);
    location.push('/');
    if let Some(query) = request.uri.query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response =
        problem(StatusCode::PERMANENT_REDIRECT, "the path is a directory: add a slash", request);
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
