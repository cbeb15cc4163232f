//! Rules for the fields of a response.

use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    IF_RANGE, RANGE, VARY,
};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::codec::Codec;
use super::types::Types;

/// Digests of content with its coding (RFC 9530 §2, §3, and the fields before it).
static DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// Returns true if a response depends on `Accept-Encoding`: for some client it is compressed.
pub(super) fn may_vary(head: &Parts, types: &Types) -> bool {
    let headers = &head.headers;
    let has_content = !head.status.is_informational()
        && !matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        );
    let is_part = headers.contains_key(CONTENT_RANGE) && head.status != StatusCode::PARTIAL_CONTENT;
    has_content
        && !is_part
        && headers.get(CONTENT_TYPE).is_some_and(|value| types.has(value))
        && !headers.contains_key(CONTENT_ENCODING)
        && !forbids_transformation(headers)
        && !DIGESTS.iter().any(|name| headers.contains_key(name))
}

/// Returns true if `Cache-Control` has `no-transform` (RFC 9111 §5.2.2.6; RFC 9110 §7.7: a proxy MUST obey it).
pub(super) fn forbids_transformation(headers: &HeaderMap) -> bool {
    has_member(headers, &CACHE_CONTROL, b"no-transform")
}

/// Returns true if a list names a member.
fn has_member(headers: &HeaderMap, name: &HeaderName, wanted: &[u8]) -> bool {
    let members = headers.get_all(name).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    members.map(<[u8]>::trim_ascii).any(|member| member.eq_ignore_ascii_case(wanted))
}

/// Removes a range on the condition of a date.
///
/// RFC 9110 §13.1.5: the date is that of the content as it is and of the compressed one, so that it does not
/// tell which of them the client holds a part of. Their tags differ.
pub(super) fn drop_dated_range(headers: &mut HeaderMap) {
    let is_date = |value: &HeaderValue| !value.as_bytes().contains(&b'"');
    if headers.get_all(IF_RANGE).iter().any(is_date) {
        headers.remove(IF_RANGE);
        headers.remove(RANGE);
    }
}

/// Length of the content by the head.
pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Adds `Accept-Encoding` to `Vary` (RFC 9110 §12.5.5).
pub(super) fn vary(headers: &mut HeaderMap) {
    if !has_member(headers, &VARY, b"accept-encoding") && !has_member(headers, &VARY, b"*") {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

/// Changes the fields of content into those of compressed content.
pub(super) fn encode(headers: &mut HeaderMap, codec: Codec) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(codec.name()));
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    if let Some(weak) = headers.get(ETAG).and_then(weakened) {
        headers.insert(ETAG, weak);
    }
}

/// Returns the weak form of a strong tag (RFC 9110 §8.8.3).
fn weakened(tag: &HeaderValue) -> Option<HeaderValue> {
    if !tag.as_bytes().starts_with(b"\"") {
        return None;
    }
    HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok()
}

/// Gives 304 the fields of the response that the client has.
///
/// RFC 9110 §15.4.5: the tag MUST be the one of that response. A client that names the weak form of a strong
/// tag has compressed content.
pub(super) fn not_modified(headers: &mut HeaderMap, known: &[HeaderValue], types: &Types) {
    let Some(weak) = headers.get(ETAG).and_then(weakened) else { return };
    let names =
        |value: &HeaderValue| value.as_bytes().windows(weak.len()).any(|part| part == weak.as_bytes());
    if known.iter().any(names) && headers.get(CONTENT_TYPE).is_none_or(|value| types.has(value)) {
        headers.insert(ETAG, weak);
        vary(headers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_the_directive_itself_forbids_transformation() {
        for (value, forbids) in [
            ("no-transform", true),
            ("max-age=60, No-Transform", true),
            ("public,no-transform ,max-age=1", true),
            ("no-transformation", false),
            ("x-no-transform", false),
            ("", false),
        ] {
            let headers = headers(&[("cache-control", "public"), ("cache-control", value)]);
            assert_eq!(forbids_transformation(&headers), forbids, "{value}");
        }
    }

    #[test]
    fn vary_names_the_field_once() {
        for (before, after) in [
            (vec![], vec!["accept-encoding"]),
            (vec!["origin"], vec!["origin", "accept-encoding"]),
            (vec!["Origin, Accept-Encoding"], vec!["Origin, Accept-Encoding"]),
            (vec!["origin", "accept-encoding"], vec!["origin", "accept-encoding"]),
            (vec!["*"], vec!["*"]),
        ] {
            let fields: Vec<_> = before.into_iter().map(|value| ("vary", value)).collect();
            let mut headers = headers(&fields);
            vary(&mut headers);
            assert_eq!(headers.get_all(VARY).iter().collect::<Vec<_>>(), after);
        }
    }

    #[test]
    fn only_ranges_on_the_condition_of_a_date_are_removed() {
        for (condition, stays) in
            [("\"tag\"", true), ("W/\"tag\"", true), ("Sun, 06 Nov 1994 08:49:37 GMT", false), ("", false)]
        {
            let mut headers = headers(&[("range", "bytes=1-"), ("if-range", condition)]);
            drop_dated_range(&mut headers);
            assert_eq!((headers.contains_key(RANGE), headers.contains_key(IF_RANGE)), (stays, stays));
        }
        let mut headers = headers(&[("range", "bytes=1-")]);
        drop_dated_range(&mut headers);
        assert!(headers.contains_key(RANGE));
    }
}
