//! Fields of one connection: RFC 9110 §7.6.1.

use std::collections::HashSet;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Version};

/// Fields that concern one connection only (RFC 9110 §7.6.1), and credentials for the next proxy.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    // RFC 7540 §3.2.1: part of an upgrade to HTTP/2, which the proxy does not do.
    HeaderName::from_static("http2-settings"),
    // RFC 9110 §11.7: these concern the next proxy. A reverse proxy acts as an origin.
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
];

/// Removes the fields that concern one connection only, and those that `Connection` names.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // RFC 9110 §7.6.1: an intermediary MUST remove the fields that Connection names before it
    // forwards the message.
    let named: Vec<HeaderName> =
        tokens(headers, &header::CONNECTION).filter_map(|token| HeaderName::from_bytes(token).ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Removes fields that an origin could take for others.
///
/// Gateways such as CGI and WSGI fold names: `X_Forwarded_For` and `X-Forwarded-For` have one name there
/// (RFC 3875 §4.1.18). A field goes if its name has a character other than letters, digits and hyphens,
/// and folds to that of a field that the proxy writes or removes, or of another field of the request.
pub(super) fn strip_lookalikes(headers: &mut HeaderMap) {
    let is_odd = |name: &HeaderName| !name.as_str().bytes().all(is_plain);
    let odd: Vec<HeaderName> = headers.keys().filter(|name| is_odd(name)).cloned().collect();
    let mut folds = HashSet::new();
    for name in odd {
        let fold = folded(&name);
        if is_claim(&fold) || is_guarded(&fold) || headers.contains_key(&fold) || !folds.insert(fold) {
            headers.remove(name);
        }
    }
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Returns a name as gateways see it, with hyphens for what they cannot tell apart.
fn folded(name: &HeaderName) -> String {
    name.as_str().bytes().map(|byte| if is_plain(byte) { char::from(byte) } else { '-' }).collect()
}

/// Returns true for a field that tells where a request came from, which any client can invent.
pub(super) fn is_claim(name: &str) -> bool {
    matches!(name, "forwarded" | "x-real-ip") || name.starts_with("x-forwarded-")
}

/// Returns true for a field that the proxy answers for: those of one connection, and those that frame or
/// route a message.
fn is_guarded(name: &str) -> bool {
    let framing = [header::CONTENT_LENGTH, header::HOST, header::TRAILER, header::MAX_FORWARDS, header::VIA];
    HOP_BY_HOP.iter().chain(&framing).any(|guarded| guarded == name)
}

/// Removes fields that a trailer section must not have (RFC 9110 §6.5.1).
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    for name in HOP_BY_HOP.iter().chain(&[
        header::CONTENT_LENGTH,
        header::HOST,
        header::TRAILER,
        header::CONTENT_ENCODING,
        header::CONTENT_TYPE,
        header::CONTENT_RANGE,
        header::AUTHORIZATION,
        header::SET_COOKIE,
        header::MAX_FORWARDS,
    ]) {
        trailers.remove(name);
    }
    // A server may merge trailers with the fields, which the proxy has written.
    let claims: Vec<HeaderName> = trailers.keys().filter(|name| is_claim(&folded(name))).cloned().collect();
    for name in claims {
        trailers.remove(name);
    }
    strip_lookalikes(trailers);
}

/// Iterates over the members of a field that is a list of tokens.
pub(super) fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// Returns true if a list of tokens has this member.
pub(super) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &[u8]) -> bool {
    tokens(headers, name).any(|member| member.eq_ignore_ascii_case(token))
}

/// Returns true if the client accepts trailers (RFC 9110 §10.1.4).
pub(super) fn accepts_trailers(headers: &HeaderMap) -> bool {
    has_token(headers, &header::TE, b"trailers")
}

/// Appends the proxy's entry to `Via` (RFC 9110 §7.6.3).
pub(super) fn add_via(headers: &mut HeaderMap, received: Version, name: &str) {
    let version = match received {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    };
    if let Ok(entry) = HeaderValue::from_str(&format!("{version} {name}")) {
        // A full map refuses the field; the request then goes on without it.
        let _ = headers.try_append(header::VIA, entry);
    }
}

/// Joins the `cookie` fields into one.
///
/// RFC 9113 §8.2.3: a client of HTTP/2 may split them, and they MUST be joined by "; " before they
/// reach another context.
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).into_iter();
    let (Some(first), Some(second)) = (cookies.next(), cookies.next()) else { return };
    let mut joined = [first.as_bytes(), second.as_bytes()].join(b"; ".as_slice());
    for cookie in cookies {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(cookie.as_bytes());
    }
    if let Ok(value) = HeaderValue::from_bytes(&joined) {
        headers.insert(header::COOKIE, value);
    }
}

/// Returns true if a client of HTTP/1.1 omits the body of this method unless a field frames it.
pub(super) fn rarely_has_body(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn fields_that_connection_names_are_removed() {
        let mut headers = map(&[
            ("connection", "close, X-One ,,"),
            ("connection", "x-two,\tin valid"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("close", "4"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("x-three", "3")]));
    }

    #[test]
    fn tokens_ignore_case_and_spaces() {
        let headers = map(&[("te", "gzip;q=0.5, Trailers")]);
        assert!(accepts_trailers(&headers));
        assert!(!accepts_trailers(&map(&[("te", "trailers2")])));
        assert!(has_token(&map(&[("connection", "keep-alive,UPGRADE")]), &header::CONNECTION, b"upgrade"));
    }

    #[test]
    fn via_is_appended() {
        let mut headers = map(&[("via", "1.0 fred")]);
        add_via(&mut headers, Version::HTTP_2, "marcato");
        assert_eq!(headers, map(&[("via", "1.0 fred"), ("via", "2 marcato")]));
    }

    #[test]
    fn split_cookies_are_joined() {
        let mut headers = map(&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")]);
        join_cookies(&mut headers);
        assert_eq!(headers, map(&[("cookie", "a=1; b=2; c=3")]));
        join_cookies(&mut headers);
        assert_eq!(headers, map(&[("cookie", "a=1; b=2; c=3")]));
    }

    /// Fields of one connection: RFC 9110 §7.6.1, §7.8, §10.1.4 and §11.7, RFC 9112 §6.1, RFC 7540 §3.2.1.
    const OF_ONE_CONNECTION: [&str; 10] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-authentication-info",
    ];

    #[test]
    fn lookalikes_of_guarded_and_present_fields_are_removed() {
        let mut headers = map(&[
            ("content_length", "5"),
            ("max.forwards", "5"),
            ("x_forwarded_for", "a"),
            ("x_user", "b"),
            ("x-user", "c"),
            ("a_b", "d"),
            ("a.b", "e"),
            ("x-forwarded-for", "f"),
        ]);
        strip_lookalikes(&mut headers);
        let expected = map(&[("x-user", "c"), ("a_b", "d"), ("x-forwarded-for", "f")]);
        assert_eq!(headers, expected);
    }

    proptest! {
        #[test]
        fn no_hop_by_hop_field_passes(
            named in proptest::collection::vec("[a-zA-Z][a-zA-Z-]{0,8}", 0..5),
            separator in "[ \t]{0,2},[ \t,]{0,2}",
            present in proptest::collection::vec(proptest::sample::select(&OF_ONE_CONNECTION[..]), 0..12),
            others in proptest::collection::vec("x[a-z]{0,3}", 0..5),
        ) {
            let mut headers = HeaderMap::new();
            for name in named.iter().chain(&others) {
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), "v".parse().unwrap());
            }
            for name in present {
                headers.append(name, "v".parse().unwrap());
            }
            headers.append(header::CONNECTION, named.join(&separator).parse().unwrap());
            strip_hop_by_hop(&mut headers);
            for name in OF_ONE_CONNECTION {
                prop_assert!(!headers.contains_key(name));
            }
            for name in &named {
                prop_assert!(!headers.contains_key(name.as_str()));
            }
            for name in others {
                let removed = named.iter().any(|other| other.eq_ignore_ascii_case(&name));
                prop_assert_eq!(headers.contains_key(&name), !removed);
            }
        }
    }
}
