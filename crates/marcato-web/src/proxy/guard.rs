//! Guard against requests that two servers could read differently.

use http::header::{self, HeaderMap};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, StatusCode, Version};
use http_body::SizeHint;
use thiserror::Error;

use super::headers::{has_token, tokens};

/// Facts about a request that passed the guard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// Host and port that the client asked for; `None` in HTTP/1.0 without a `Host` field.
    pub(super) host: Option<Authority>,
    /// Length that the request declares.
    pub(super) length: Option<u64>,
}

/// Checks the head of a request.
pub(super) fn check(head: &Parts, body: &SizeHint) -> Result<Checked, Rejection> {
    if head.headers.values().any(|value| !is_clean(value.as_bytes())) {
        return Err(Rejection::FieldValue);
    }
    let length = content_length(&head.headers)?;
    transfer_encoding(head, length)?;
    // RFC 9113 §8.1.1: a request whose length differs from its body is malformed.
    if let (Some(length), Some(exact)) = (length, body.exact())
        && length != exact
    {
        return Err(Rejection::WrongLength);
    }
    let host = host(head)?;
    // RFC 9110 §9.3.8: the origin would send cookies and credentials back as content. A recipient of its
    // own ends a TRACE, and this one does not support the method.
    if head.method == Method::TRACE {
        return Err(Rejection::Trace);
    }
    if has_dot_segment(head.uri.path()) {
        return Err(Rejection::DotSegment);
    }
    // RFC 9110 §7.6.2: with a value of 0, an intermediary MUST NOT forward OPTIONS.
    if head.method == Method::OPTIONS
        && head.headers.get(header::MAX_FORWARDS).is_some_and(|value| is_zero(value.as_bytes()))
    {
        return Err(Rejection::MaxForwards);
    }
    Ok(Checked { host, length })
}

/// Returns true for a path with a segment of one dot or two, as an origin could read it.
///
/// RFC 3986 §5.2.4: clients remove them. A route was chosen by the path as it is: behind it, an origin that
/// removes them would answer for another path. Some take an encoded slash or a backslash for a slash, and
/// leave out what follows a semicolon.
fn has_dot_segment(path: &str) -> bool {
    // Most paths have no dot in front of a slash, and no escape.
    if !path.contains("/.") && !path.contains(['%', '\\']) {
        return false;
    }
    let decoded = ["%2e", "%2f", "%5c"]
        .iter()
        .zip([".", "/", "/"])
        .fold(path.to_ascii_lowercase().replace('\\', "/"), |path, (escape, byte)| {
            path.replace(escape, byte)
        });
    decoded.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

/// Reduces `Max-Forwards` of OPTIONS by one (RFC 9110 §7.6.2).
pub(super) fn count_forward(method: &Method, headers: &mut HeaderMap) {
    if *method != Method::OPTIONS {
        return;
    }
    let value = headers.get(header::MAX_FORWARDS).and_then(|value| decimal(value.as_bytes()));
    if let Some(value) = value {
        headers.insert(header::MAX_FORWARDS, value.saturating_sub(1).into());
    }
}

/// Returns false for bytes that may end a line elsewhere (RFC 9110 §5.5).
fn is_clean(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

fn is_zero(value: &[u8]) -> bool {
    decimal(value) == Some(0)
}

/// Reads digits without a sign, as RFC 9110 §8.6 has them.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    value.iter().try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Rejection> {
    let mut length = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        // RFC 9110 §8.6: a list of equal lengths MAY be taken as one; any other list is invalid.
        for member in value.as_bytes().split(|byte| *byte == b',') {
            let member = decimal(member.trim_ascii()).ok_or(Rejection::ContentLength)?;
            if length.is_some_and(|length| length != member) {
                return Err(Rejection::ContentLength);
            }
            length = Some(member);
        }
    }
    Ok(length)
}

fn transfer_encoding(head: &Parts, length: Option<u64>) -> Result<(), Rejection> {
    if !head.headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(());
    }
    // RFC 9112 §6.1: both fields ought to be handled as an attempt to smuggle a request.
    if length.is_some() {
        return Err(Rejection::BothFramings);
    }
    // RFC 9113 §8.2.2 and RFC 9114 §4.2: the field makes a request malformed. RFC 9112 §6.1:
    // framing by it MUST be treated as faulty in HTTP/1.0.
    if head.version != Version::HTTP_11 {
        return Err(Rejection::TransferEncoding);
    }
    let mut codings = tokens(&head.headers, &header::TRANSFER_ENCODING);
    match (codings.next(), codings.next()) {
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(()),
        // RFC 9112 §6.3: without chunked as the last coding the length is unknown.
        _ if !has_token(&head.headers, &header::TRANSFER_ENCODING, b"chunked") => {
            Err(Rejection::TransferEncoding)
        }
        // RFC 9112 §6.1: a coding that is not understood is answered with 501.
        _ => Err(Rejection::Coding),
    }
}

fn host(head: &Parts) -> Result<Option<Authority>, Rejection> {
    let mut fields = head.headers.get_all(header::HOST).into_iter();
    let field = fields.next();
    // RFC 9112 §3.2: a request with several Host fields MUST be answered with 400.
    if fields.next().is_some() {
        return Err(Rejection::Host);
    }
    let field = match field {
        // RFC 9110 §7.2: the field is empty if the target has no authority.
        Some(field) if field.is_empty() => None,
        Some(field) => {
            Some(Authority::try_from(field.as_bytes()).map_err(|_| Rejection::Host).and_then(plain)?)
        }
        None => None,
    };
    let target = head.uri.authority().cloned().map(plain).transpose()?;
    match (head.version, target, field) {
        // RFC 9112 §3.2: a request of HTTP/1.1 without a Host field MUST be answered with 400.
        (Version::HTTP_11, None, None) => Err(Rejection::Host),
        // RFC 9113 §8.3.1, RFC 9114 §4.3.1: a Host field that differs makes the request malformed.
        (Version::HTTP_2 | Version::HTTP_3, Some(target), Some(field)) if target != field => {
            Err(Rejection::Host)
        }
        // RFC 9112 §3.2.2: a target in absolute form overrides the field.
        (_, Some(target), _) => Ok(Some(target)),
        (_, None, field) => Ok(field),
    }
}

/// Refuses an authority with a user (RFC 9110 §4.2.4), without a host, or with delimiters.
///
/// RFC 3986 §3.2.2 allows a comma or a semicolon in a host. No host has them, and they could forge
/// members of a list in a field that repeats the host.
fn plain(authority: Authority) -> Result<Authority, Rejection> {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
    if !authority.as_str().bytes().all(usual) || authority.host().is_empty() {
        return Err(Rejection::Host);
    }
    Ok(authority)
}

/// Error returned for a request that is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Rejection {
    #[error("field value with CR, LF or NUL: send visible characters")]
    FieldValue,
    #[error("unusable Content-Length: send one decimal number")]
    ContentLength,
    #[error("Content-Length differs from the length of the body: send the body's")]
    WrongLength,
    #[error("both Transfer-Encoding and Content-Length: send one of them")]
    BothFramings,
    #[error("Transfer-Encoding does not frame this request: use chunked, in HTTP/1.1 only")]
    TransferEncoding,
    #[error("unknown transfer coding: use chunked alone")]
    Coding,
    #[error("unusable host: send one Host field or authority, without a user")]
    Host,
    #[error("target is no path: send one that begins with a slash")]
    Target,
    #[error("target has a segment of dots: resolve it before sending")]
    DotSegment,
    #[error("TRACE is not forwarded: ask the origin directly")]
    Trace,
    #[error("Max-Forwards is 0: send a higher value")]
    MaxForwards,
    #[error("tunnel to another protocol than WebSocket over HTTP/1.1: connect to the origin directly")]
    Tunnel,
}

impl Rejection {
    /// Status of the response.
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::Coding | Self::Tunnel | Self::Trace => StatusCode::NOT_IMPLEMENTED,
            // RFC 9110 §7.6.2: the proxy answers as the final recipient, and does not offer the method.
            Self::MaxForwards => StatusCode::METHOD_NOT_ALLOWED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use proptest::prelude::*;

    fn check_request(version: Version, uri: &str, fields: &[(&str, &str)]) -> Result<Checked, Rejection> {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0, &SizeHint::default())
    }

    fn http1(fields: &[(&str, &str)]) -> Result<Checked, Rejection> {
        check_request(Version::HTTP_11, "/", &[fields, &[("host", "a.example")]].concat())
    }

    #[test]
    fn both_framings_are_refused() {
        let fields = [("transfer-encoding", "chunked"), ("content-length", "5")];
        assert_eq!(http1(&fields), Err(Rejection::BothFramings));
    }

    #[test]
    fn differing_lengths_are_refused() {
        assert_eq!(http1(&[("content-length", "5"), ("content-length", "6")]), Err(Rejection::ContentLength));
        assert_eq!(http1(&[("content-length", "5, 6")]), Err(Rejection::ContentLength));
        let equal = http1(&[("content-length", "5, 5"), ("content-length", "5")]).unwrap();
        assert_eq!(equal.length, Some(5));
    }

    #[test]
    fn lengths_are_decimal_digits() {
        for value in ["", "+5", "-5", "0x5", "5 5", "5,", "18446744073709551616"] {
            assert_eq!(http1(&[("content-length", value)]), Err(Rejection::ContentLength), "{value}");
        }
    }

    #[test]
    fn only_chunked_is_a_transfer_coding() {
        assert!(http1(&[("transfer-encoding", "Chunked")]).is_ok());
        for (value, rejection) in [
            ("gzip, chunked", Rejection::Coding),
            ("chunked, chunked", Rejection::Coding),
            ("identity", Rejection::TransferEncoding),
            ("xchunked", Rejection::TransferEncoding),
            ("", Rejection::TransferEncoding),
        ] {
            assert_eq!(http1(&[("transfer-encoding", value)]), Err(rejection), "{value}");
        }
    }

    #[test]
    fn only_http_1_1_has_transfer_codings() {
        for version in [Version::HTTP_10, Version::HTTP_2, Version::HTTP_3] {
            let checked = check_request(version, "http://a.example/", &[("transfer-encoding", "chunked")]);
            assert_eq!(checked, Err(Rejection::TransferEncoding));
        }
    }

    #[test]
    fn a_length_matches_the_body() {
        let head = Request::builder().uri("http://a.example/").header("content-length", "5");
        let (head, ()) = head.body(()).unwrap().into_parts();
        assert_eq!(check(&head, &SizeHint::with_exact(4)), Err(Rejection::WrongLength));
        assert!(check(&head, &SizeHint::with_exact(5)).is_ok());
    }

    #[test]
    fn one_host_is_required() {
        assert_eq!(check_request(Version::HTTP_11, "/", &[]), Err(Rejection::Host));
        assert_eq!(http1(&[("host", "a.example")]), Err(Rejection::Host));
        assert_eq!(check_request(Version::HTTP_10, "/", &[]).unwrap().host, None);
        for value in ["user@a.example", "a b", "a/b", "a.example,b.example", "a;for=b", "a=b", ":80"] {
            let checked = check_request(Version::HTTP_11, "/", &[("host", value)]);
            assert_eq!(checked, Err(Rejection::Host), "{value}");
        }
    }

    #[test]
    fn a_target_overrides_the_host_of_http1_only() {
        let fields = [("host", "b.example")];
        let host = |version| check_request(version, "http://a.example/", &fields).map(|checked| checked.host);
        assert_eq!(host(Version::HTTP_11), Ok(Some("a.example".parse().unwrap())));
        assert_eq!(host(Version::HTTP_2), Err(Rejection::Host));
        assert_eq!(host(Version::HTTP_3), Err(Rejection::Host));
    }

    #[test]
    fn line_ends_and_zeros_are_not_clean() {
        assert!(is_clean(b"a\tb\xff") && is_clean(b""));
        assert!(!is_clean(b"a\r") && !is_clean(b"\n") && !is_clean(b"a\0b"));
    }

    #[test]
    fn forwards_are_counted() {
        let mut headers = HeaderMap::new();
        headers.insert(header::MAX_FORWARDS, 2_u64.into());
        count_forward(&Method::GET, &mut headers);
        assert_eq!(headers[header::MAX_FORWARDS], "2");
        count_forward(&Method::OPTIONS, &mut headers);
        assert_eq!(headers[header::MAX_FORWARDS], "1");
        let (mut head, ()) =
            Request::builder().uri("http://a/").method("OPTIONS").body(()).unwrap().into_parts();
        head.headers.insert(header::MAX_FORWARDS, 0_u64.into());
        assert_eq!(check(&head, &SizeHint::default()), Err(Rejection::MaxForwards));
    }

    #[test]
    fn segments_of_dots_are_found_as_origins_read_them() {
        for path in [
            "/..",
            "/.",
            "/a/../b",
            "/a/./b",
            "/a/..;x/b",
            "/a/%2e%2E/b",
            "/a/.%2e",
            "/a%2f..%2fb",
            "/a/..%2Fb",
            "/a%5C..%5cb",
            "/a\\..\\b",
            "/a%2f.;x",
            "/a/%2e",
        ] {
            assert!(has_dot_segment(path), "{path}");
        }
        for path in [
            "/",
            "/a.b",
            "/.well-known/x",
            "/..a/b",
            "/a../b",
            "/a/...",
            "/%20..",
            "/a;/..b",
            "/%252e%252e/b",
        ] {
            assert!(!has_dot_segment(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn accepted_lengths_agree(values in proptest::collection::vec("[ 0-9,+]{0,3}", 0..4)) {
            let fields: Vec<_> = values.iter().map(|value| ("content-length", value.as_str())).collect();
            if let Ok(Checked { length: Some(length), .. }) = http1(&fields) {
                for member in values.iter().flat_map(|value| value.split(',')) {
                    prop_assert_eq!(member.trim().parse(), Ok(length));
                }
            }
        }
    }
}
