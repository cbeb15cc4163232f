//! Fields of requests and responses that the order looks at.

use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use marcato_sched::order::StreamId;
use marcato_units::Bytes;

use crate::decision::Decision;
use crate::guess::{GuessTable, RequestHints, ResponseHints};
use crate::signals::{RequestError, Signals};

static PRIORITY: HeaderName = HeaderName::from_static("priority");
static SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
static SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
static SAVE_DATA: HeaderName = HeaderName::from_static("save-data");

fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    headers.get(name).map(HeaderValue::as_bytes)
}

/// Returns the lines of the field `priority` (RFC 9218 §5).
fn priorities(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers.get_all(&PRIORITY).iter().map(HeaderValue::as_bytes)
}

/// Returns the length that a head announces.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub(crate) fn request_hints<'a>(headers: &'a HeaderMap, path: &'a str) -> RequestHints<'a> {
    RequestHints {
        path,
        destination: field(headers, &SEC_FETCH_DEST),
        purpose: field(headers, &SEC_PURPOSE),
        save_data: field(headers, &SAVE_DATA),
    }
}

fn response_hints(headers: &HeaderMap) -> ResponseHints<'_> {
    ResponseHints {
        content_type: field(headers, &CONTENT_TYPE),
        disposition: field(headers, &CONTENT_DISPOSITION),
        length: content_length(headers).map(Bytes::new),
    }
}

/// Decides about the urgency of a request. Guesses count until the client has shown a signal.
pub(crate) fn decide_request(
    signals: &mut Signals,
    table: &GuessTable,
    stream: StreamId,
    headers: &HeaderMap,
    hints: &RequestHints<'_>,
) -> Result<Decision, RequestError> {
    let counts = !signals.ignores_guesses();
    let guess = counts.then(|| table.request(hints)).flatten();
    signals.request(stream, priorities(headers), guess)
}

/// Decides again about a request, by the head of its response; `None` if it is not open.
pub(crate) fn decide_response(
    signals: &mut Signals,
    table: &GuessTable,
    stream: StreamId,
    headers: &HeaderMap,
) -> Option<Decision> {
    let counts = !signals.ignores_guesses();
    let guess = counts.then(|| table.response(signals.guess(stream), &response_hints(headers))).flatten();
    signals.response(stream, priorities(headers), guess).ok()
}
