//! Representation of a file: validators, fields, and the responses made of them.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG,
    LAST_MODIFIED, RANGE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::body::{FileBody, Piece, Source};
use super::conditional::{Precondition, Validators, permits_range};
use super::etag::EntityTag;
use super::range::Selection;
use super::response;
use crate::encoding::Coding;

/// Representation of a file, without its content.
#[derive(Clone, Debug)]
pub(super) struct Representation {
    tag: EntityTag,
    modified: u64,
    len: u64,
    /// Fields of a response with all of the content. They have an empty `Date`, so that a copy need not
    /// grow for it.
    headers: HeaderMap,
}

/// Properties of a representation.
#[derive(Clone, Debug)]
pub(super) struct Properties<'a> {
    /// Length of the content.
    pub(super) len: u64,
    /// Entity tag.
    pub(super) tag: EntityTag,
    /// Time of the last modification, in seconds of Unix, not in the future.
    pub(super) modified: u64,
    /// Value of `Content-Type`.
    pub(super) content_type: HeaderValue,
    /// Coding of the content.
    pub(super) coding: Coding,
    /// True if the choice depends on `Accept-Encoding`.
    pub(super) varies: bool,
    /// Value of `Cache-Control`.
    pub(super) cache_control: Option<&'a HeaderValue>,
}

impl Representation {
    /// Creates a representation.
    pub(super) fn new(properties: Properties<'_>) -> Self {
        let Properties { len, tag, modified, content_type, coding, varies, cache_control } = properties;
        let mut headers = HeaderMap::with_capacity(10);
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CONTENT_LENGTH, len.into());
        headers.insert(ETAG, tag.value().clone());
        headers.insert(LAST_MODIFIED, date(modified));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, response::NOSNIFF);
        headers.insert(DATE, HeaderValue::from_static(""));
        if let Some(name) = coding.name() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        if varies {
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        if let Some(value) = cache_control {
            headers.insert(CACHE_CONTROL, value.clone());
        }
        Self { tag, modified, len, headers }
    }

    /// Entity tag.
    pub(super) const fn tag(&self) -> &EntityTag {
        &self.tag
    }

    /// Answers a GET or HEAD request. Only responses with parts ask for a boundary.
    pub(super) fn reply(
        &self,
        request: &Parts,
        source: Source,
        boundary: impl FnOnce() -> String,
    ) -> Response<FileBody> {
        let validators = Validators { tag: &self.tag, modified: self.modified };
        match Precondition::evaluate(&request.headers, validators) {
            Precondition::Holds => {}
            Precondition::NotModified => return self.not_modified(),
            Precondition::Failed => {
                let message = "the file is not the version that the request names: fetch it anew";
                return response::problem(StatusCode::PRECONDITION_FAILED, message, request);
            }
        }
        // RFC 9110 §14.2: `Range` MUST be ignored for methods other than GET.
        if request.method == Method::HEAD {
            return self.response(StatusCode::OK, FileBody::empty());
        }
        match self.select(request, validators) {
            Selection::Whole => self.response(StatusCode::OK, FileBody::part(source, 0..self.len)),
            Selection::Unsatisfiable => {
                let message = "no range begins within the file: ask for one below its length";
                let mut response = response::problem(StatusCode::RANGE_NOT_SATISFIABLE, message, request);
                // RFC 9110 §15.5.17: the field tells the length.
                response.headers_mut().insert(CONTENT_RANGE, text(format!("bytes */{}", self.len)));
                response
            }
            Selection::Parts(parts) => match parts.as_slice() {
                // RFC 9110 §15.3.7.2: a single range MUST NOT be sent as multipart.
                [part] => self.part(source, part.clone()),
                parts => self.parts(source, parts, &boundary()),
            },
        }
    }

    /// Returns the ranges that the request asks for and may have.
    fn select(&self, request: &Parts, validators: Validators<'_>) -> Selection {
        let mut lines = request.headers.get_all(RANGE).iter();
        match (lines.next(), lines.next()) {
            // RFC 9110 §13.2.2, step 5.
            (Some(value), None) if permits_range(&request.headers, validators) => {
                Selection::parse(value.as_bytes(), self.len)
            }
            _ => Selection::Whole,
        }
    }

    fn response(&self, status: StatusCode, body: FileBody) -> Response<FileBody> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = self.headers.clone();
        response
    }

    /// 304. RFC 9110 §15.4.5: it MUST have these fields if the response with content had them.
    fn not_modified(&self) -> Response<FileBody> {
        let mut response = Response::new(FileBody::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        for name in [ETAG, VARY, CACHE_CONTROL] {
            if let Some(value) = self.headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }

    fn part(&self, source: Source, part: Range<u64>) -> Response<FileBody> {
        let range = self.content_range(&part);
        let len = part.end - part.start;
        let mut response = self.response(StatusCode::PARTIAL_CONTENT, FileBody::part(source, part));
        response.headers_mut().insert(CONTENT_RANGE, text(range));
        response.headers_mut().insert(CONTENT_LENGTH, len.into());
        response
    }

    /// Several ranges as `multipart/byteranges` (RFC 9110 §14.6). The response as a whole has no
    /// `Content-Range` (RFC 9110 §15.3.7.2).
    fn parts(&self, source: Source, parts: &[Range<u64>], boundary: &str) -> Response<FileBody> {
        let content_type = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or("application/octet-stream");
        let mut pieces = VecDeque::with_capacity(2 * parts.len() + 1);
        let mut len = 0_u64;
        let mut push = |piece: String| {
            len += u64::try_from(piece.len()).unwrap_or(0);
            Piece::Text(Bytes::from(piece))
        };
        let mut separator = "";
        for part in parts {
            let range = self.content_range(part);
            pieces.push_back(push(format!(
                "{separator}--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {range}\r\n\r\n"
            )));
            pieces.push_back(Piece::Part(part.clone()));
            separator = "\r\n";
        }
        pieces.push_back(push(format!("\r\n--{boundary}--\r\n")));
        len += parts.iter().map(|part| part.end - part.start).sum::<u64>();
        let mut response = self.response(StatusCode::PARTIAL_CONTENT, FileBody::pieces(source, pieces));
        let content_type = text(format!("multipart/byteranges; boundary={boundary}"));
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response.headers_mut().insert(CONTENT_LENGTH, len.into());
        response
    }

    /// Value of `Content-Range`, whose last position is inclusive (RFC 9110 §14.4).
    fn content_range(&self, part: &Range<u64>) -> String {
        format!("bytes {}-{}/{}", part.start, part.end.saturating_sub(1), self.len)
    }
}

/// Field value of a text that has only visible characters and spaces.
fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""))
}

/// Value of a date field (RFC 9110 §5.6.7). The format has four digits for the year.
fn date(seconds: u64) -> HeaderValue {
    const YEAR_10000: u64 = 253_402_300_800;
    let since = std::time::Duration::from_secs(seconds.min(YEAR_10000 - 1));
    text(httpdate::fmt_http_date(std::time::UNIX_EPOCH + since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_outside_the_format_are_clamped() {
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
