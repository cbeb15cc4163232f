//! Admission of requests: networks and passwords.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

use crate::config::{self, User};
use crate::passwords::Credentials;

/// Most entries of `X-Forwarded-For` that are looked at.
const MAX_FORWARDERS: usize = 64;

/// Rule of who is served, in use.
#[derive(Debug)]
pub(crate) struct Admission {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
    pub(crate) users: Arc<[User]>,
    /// Value of `WWW-Authenticate`.
    pub(crate) challenge: HeaderValue,
    /// True if the client needs a certificate.
    pub(crate) by_certificate: bool,
}

impl Admission {
    pub(crate) fn new(rule: &config::Admission) -> Self {
        let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", rule.realm);
        Self {
            allow: rule.allow.clone(),
            deny: rule.deny.clone(),
            users: rule.users.clone().into(),
            challenge: HeaderValue::try_from(challenge)
                .unwrap_or_else(|_| HeaderValue::from_static("Basic realm=\"restricted\"")),
            by_certificate: rule.client_certificate.value,
        }
    }

    /// Returns true if the rule asks for something.
    pub(crate) fn is_strict(&self) -> bool {
        self.by_network() || self.by_certificate || !self.users.is_empty()
    }

    fn by_network(&self) -> bool {
        !self.allow.is_empty() || !self.deny.is_empty()
    }

    /// Returns whether the network of a client is admitted. One that is unknown is not.
    pub(crate) fn admits(&self, client: Option<IpAddr>) -> bool {
        let Some(client) = client else { return !self.by_network() };
        let has = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&client));
        !has(&self.deny) && (self.allow.is_empty() || has(&self.allow))
    }
}

/// Returns the client of a request: its peer, or what trusted proxies say of theirs. `None` if they say nothing
/// that can be read.
///
/// Each proxy appends its own peer to `X-Forwarded-For`, so that the last entry that is no proxy is the client. What
/// stands before it is the client's own word.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, proxies: &[IpNet]) -> Option<IpAddr> {
    let is_proxy = |address: &IpAddr| proxies.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    if !is_proxy(&client) {
        return Some(client);
    }
    let fields: Vec<&HeaderValue> = headers.get_all("x-forwarded-for").iter().collect();
    let entries = fields.iter().rev().flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b','));
    for entry in entries.take(MAX_FORWARDERS) {
        let text = std::str::from_utf8(entry).ok()?.trim();
        let address = text.parse().or_else(|_| text.parse::<std::net::SocketAddr>().map(|at| at.ip()));
        client = address.ok()?.to_canonical();
        if !is_proxy(&client) {
            break;
        }
    }
    Some(client)
}

/// Returns the credentials of a request; `None` if there are none of the scheme `Basic` (RFC 7617 §2).
pub(crate) fn credentials(headers: &HeaderMap) -> Option<Credentials> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let field = fields.next()?;
    // RFC 9110 §11.6.2: the field has one value.
    if fields.next().is_some() {
        return None;
    }
    let (scheme, token) = field.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = decode(token.trim())?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some(Credentials { name, password: decoded[colon + 1..].to_vec() })
}

/// Decodes base64 with padding (RFC 4648 §4).
fn decode(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(allow: &[&str], deny: &[&str]) -> Admission {
        let read = |networks: &[&str]| networks.iter().map(|network| network.parse().unwrap()).collect();
        let rule = config::Admission { allow: read(allow), deny: read(deny), ..config::Admission::default() };
        Admission::new(&rule)
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn networks_admit_what_they_allow_and_do_not_deny() {
        let admits = |rule: &Admission, client: &str| rule.admits(client.parse().ok());
        let both = rule(&["192.0.2.0/24", "2001:db8::/32"], &["192.0.2.7/32"]);
        assert!(admits(&both, "192.0.2.1") && admits(&both, "2001:db8::1"));
        assert!(!admits(&both, "192.0.2.7") && !admits(&both, "198.51.100.1") && !both.admits(None));
        let deny = rule(&[], &["192.0.2.0/24"]);
        assert!(!admits(&deny, "192.0.2.1") && admits(&deny, "198.51.100.1") && !deny.admits(None));
        assert!(rule(&[], &[]).admits(None));
    }

    #[test]
    fn the_client_is_the_last_that_is_no_trusted_proxy() {
        let proxies = ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        let of = |peer: &str, fields: &[&str]| {
            let fields: Vec<_> = fields.iter().map(|value| ("x-forwarded-for", *value)).collect();
            client(peer.parse().unwrap(), &headers(&fields), &proxies).map(|client| client.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("192.0.2.1", &["198.51.100.1"]), some("192.0.2.1"));
        assert_eq!(of("10.0.0.1", &["203.0.113.9, 198.51.100.1"]), some("198.51.100.1"));
        assert_eq!(of("::ffff:10.0.0.1", &["203.0.113.9", "198.51.100.1, 10.2.3.4"]), some("198.51.100.1"));
        assert_eq!(of("::1", &["[2001:db8::1]:443"]), some("2001:db8::1"));
        assert_eq!(of("10.0.0.1", &[]), some("10.0.0.1"));
        assert_eq!(of("10.0.0.1", &["198.51.100.1, unknown"]), None);
        assert_eq!(of("10.0.0.1", &["198.51.100.1,"]), None);
    }

    #[test]
    fn credentials_are_read_as_rfc_7617_has_them() {
        let read =
            |value: &str| credentials(&headers(&[("authorization", value)])).map(|it| (it.name, it.password));
        let expected = Some(("Aladdin".to_owned(), b"open sesame".to_vec()));
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), expected);
        assert_eq!(read("basic  QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), expected);
        assert_eq!(read("Basic dGVzdDoxMjPCow=="), Some(("test".to_owned(), "123\u{a3}".into())));
        for wrong in ["Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Basic", "Basic !", "Basic QWxhZGRpbg=="] {
            assert!(read(wrong).is_none(), "{wrong}");
        }
        let twice = [("authorization", "Basic YTpi"), ("authorization", "Basic YTpi")];
        assert!(credentials(&headers(&twice)).is_none());
    }
}
