//! Fields that tell the origin of the client: RFC 7239.

use std::fmt::Write;
use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;

use super::headers::is_claim;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Facts about the client's request that its origin cannot see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarded<'a> {
    pub(super) peer: Option<IpAddr>,
    pub(super) scheme: &'a str,
    pub(super) host: Option<&'a Authority>,
}

impl Forwarded<'_> {
    /// Writes the fields. Those that the request has are removed unless its peer is trusted.
    pub(super) fn write(&self, headers: &mut HeaderMap, trusted: bool) {
        if !trusted {
            let invented: Vec<HeaderName> =
                headers.keys().filter(|name| is_claim(name.as_str())).cloned().collect();
            for name in invented {
                headers.remove(name);
            }
        }
        // The values consist of checked parts, and a full map refuses a field instead of failing.
        if let Ok(value) = HeaderValue::from_str(&self.element()) {
            let _ = headers.try_append(header::FORWARDED, value);
        }
        if let Some(value) = self.peer.and_then(|peer| HeaderValue::from_str(&peer.to_string()).ok()) {
            let _ = headers.try_append(X_FORWARDED_FOR, value);
        }
        // The first proxy knows best which scheme and host the client used.
        if !headers.contains_key(X_FORWARDED_PROTO)
            && let Ok(value) = HeaderValue::from_str(self.scheme)
        {
            let _ = headers.try_append(X_FORWARDED_PROTO, value);
        }
        if !headers.contains_key(X_FORWARDED_HOST)
            && let Some(Ok(value)) = self.host.map(|host| HeaderValue::from_str(host.as_str()))
        {
            let _ = headers.try_append(X_FORWARDED_HOST, value);
        }
    }

    /// Element of the `Forwarded` field (RFC 7239 §4).
    fn element(&self) -> String {
        let mut element = match self.peer {
            Some(IpAddr::V4(address)) => format!("for={address}"),
            // RFC 7239 §6: an IPv6 address stands in brackets and is therefore quoted.
            Some(IpAddr::V6(address)) => format!("for=\"[{address}]\""),
            None => "for=unknown".to_owned(),
        };
        if let Some(host) = self.host {
            // A colon is not part of a token. An authority has neither quotes nor backslashes.
            let _ = match host.as_str() {
                host if host.contains([':', '[']) => write!(element, ";host=\"{host}\""),
                host => write!(element, ";host={host}"),
            };
        }
        let _ = write!(element, ";proto={}", self.scheme);
        element
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fields: &[(&str, &str)], forwarded: Forwarded<'_>, trusted: bool) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        forwarded.write(&mut headers, trusted);
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    const INVENTED: [(&str, &str); 6] = [
        ("forwarded", "for=10.0.0.9"),
        ("x-forwarded-for", "10.0.0.9"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-port", "1"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "10.0.0.9"),
    ];

    #[test]
    fn fields_of_strangers_are_replaced() {
        let host = "a.example".parse().unwrap();
        let forwarded = Forwarded { peer: "192.0.2.1".parse().ok(), scheme: "http", host: Some(&host) };
        let expected = [
            "forwarded: for=192.0.2.1;host=a.example;proto=http",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: a.example",
            "x-forwarded-proto: http",
        ];
        assert_eq!(written(&INVENTED, forwarded, false), expected);
        assert_eq!(written(&[], forwarded, true), expected);
    }

    #[test]
    fn fields_of_trusted_forwarders_are_kept() {
        let host = "a.example".parse().unwrap();
        let forwarded = Forwarded { peer: "192.0.2.1".parse().ok(), scheme: "http", host: Some(&host) };
        assert_eq!(
            written(&INVENTED, forwarded, true),
            [
                "forwarded: for=10.0.0.9",
                "forwarded: for=192.0.2.1;host=a.example;proto=http",
                "x-forwarded-for: 10.0.0.9",
                "x-forwarded-for: 192.0.2.1",
                "x-forwarded-host: evil.example",
                "x-forwarded-port: 1",
                "x-forwarded-proto: https",
                "x-real-ip: 10.0.0.9",
            ]
        );
    }

    #[test]
    fn addresses_and_ports_are_quoted() {
        let host = "a.example:8443".parse().unwrap();
        let forwarded = Forwarded { peer: "2001:db8::1".parse().ok(), scheme: "https", host: Some(&host) };
        assert_eq!(forwarded.element(), "for=\"[2001:db8::1]\";host=\"a.example:8443\";proto=https");
        let unknown = Forwarded { peer: None, scheme: "https", host: None };
        assert_eq!(unknown.element(), "for=unknown;proto=https");
    }
}
