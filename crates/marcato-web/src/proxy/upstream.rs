//! Server to which requests are passed.

use std::path::PathBuf;

use http::uri::{Authority, Uri};
use thiserror::Error;

/// Server to which requests are passed, and its share of them.
///
/// | URI | protocol |
/// |---|---|
/// | `http://host:port` | HTTP/1.1 in cleartext |
/// | `h2c://host:port` | HTTP/2 in cleartext, with prior knowledge (RFC 9113 §3.3) |
/// | `https://host:port` | HTTP/2 or HTTP/1.1 over TLS, as ALPN decides |
/// | `unix:/run/app.sock` | HTTP/1.1 in cleartext, over the Unix socket of an absolute path |
///
/// A port that is absent is 80, or 443 for `https`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// URI with scheme, host and port, without a path.
    pub uri: String,
    /// Share of requests relative to other upstreams, from 1 to [`MAX_WEIGHT`](Self::MAX_WEIGHT).
    pub weight: u32,
}

impl Upstream {
    /// Largest weight: 1000.
    pub const MAX_WEIGHT: u32 = 1000;

    /// Creates an upstream with weight 1.
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), weight: 1 }
    }

    /// Sets the weight.
    #[must_use]
    pub const fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }
}

impl From<&str> for Upstream {
    fn from(uri: &str) -> Self {
        Self::new(uri)
    }
}

/// Protocol of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http1,
    Http2,
    Tls,
}

impl Scheme {
    const fn default_port(self) -> u16 {
        match self {
            Self::Http1 | Self::Http2 => 80,
            Self::Tls => 443,
        }
    }
}

/// Upstream whose URI has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) scheme: Scheme,
    /// Host and port as configured: the `Host` field of requests.
    pub(super) authority: Authority,
    pub(super) port: u16,
    /// Path of a Unix socket, which is used in place of host and port.
    pub(super) socket: Option<PathBuf>,
}

impl Target {
    pub(super) fn parse(uri: &str) -> Result<Self, UpstreamError> {
        if let Some(path) = uri.strip_prefix("unix:") {
            // A path of the system's has 108 bytes, with a zero at its end.
            if !path.starts_with('/') || path.contains('\0') || path.len() > 107 {
                return Err(UpstreamError::Socket);
            }
            let authority = Authority::from_static("localhost");
            return Ok(Self { scheme: Scheme::Http1, authority, port: 80, socket: Some(path.into()) });
        }
        let parsed: Uri = uri.parse().map_err(|_| UpstreamError::Malformed)?;
        let scheme = match parsed.scheme_str() {
            Some("http") => Scheme::Http1,
            Some("h2c") => Scheme::Http2,
            Some("https") => Scheme::Tls,
            _ => return Err(UpstreamError::Scheme),
        };
        let authority = parsed.authority().ok_or(UpstreamError::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(UpstreamError::UserInfo);
        }
        if authority.host().is_empty() {
            return Err(UpstreamError::Malformed);
        }
        // An authority ends in ":" or in a number out of range if it has a colon but no port.
        let after_host = &authority.as_str()[authority.host().len()..];
        let port = match (after_host.is_empty(), authority.port_u16()) {
            (true, _) => scheme.default_port(),
            (false, Some(port)) if port != 0 => port,
            (false, _) => return Err(UpstreamError::Port),
        };
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() {
            return Err(UpstreamError::Path);
        }
        Ok(Self { scheme, authority: authority.clone(), port, socket: None })
    }

    /// Name or address of the host, without the brackets of an IPv6 address.
    pub(super) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }
}

/// Error returned for the URI of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UpstreamError {
    /// The text is no URI with a host.
    #[error("no URI with a host: write it as http://host:port")]
    Malformed,
    /// The scheme is absent or unknown.
    #[error("unknown scheme: begin with http://, h2c:// or https://")]
    Scheme,
    /// The URI has a user or a password.
    #[error("URI with a user: give host and port alone")]
    UserInfo,
    /// The port is zero or out of range.
    #[error("port out of range: give one from 1 to 65535")]
    Port,
    /// The path of a Unix socket is relative or too long.
    #[error("no path of a Unix socket: write it as unix:/run/app.sock, in at most 107 bytes")]
    Socket,
    /// The URI has a path or a query.
    #[error("URI with a path: give host and port alone, and rewrite paths before the proxy")]
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(uri: &str) -> Result<(Scheme, String, u16), UpstreamError> {
        Target::parse(uri).map(|target| (target.scheme, target.host().to_owned(), target.port))
    }

    #[test]
    fn schemes_have_their_ports() {
        assert_eq!(parse("http://127.0.0.1:3000"), Ok((Scheme::Http1, "127.0.0.1".into(), 3000)));
        assert_eq!(parse("http://a.example/"), Ok((Scheme::Http1, "a.example".into(), 80)));
        assert_eq!(parse("h2c://a.example"), Ok((Scheme::Http2, "a.example".into(), 80)));
        assert_eq!(parse("https://[::1]"), Ok((Scheme::Tls, "::1".into(), 443)));
        assert_eq!(parse("https://[::1]:8443"), Ok((Scheme::Tls, "::1".into(), 8443)));
    }

    #[test]
    fn unusable_uris_are_refused() {
        assert_eq!(parse("127.0.0.1:3000"), Err(UpstreamError::Scheme));
        assert_eq!(parse("/path"), Err(UpstreamError::Scheme));
        assert_eq!(parse("ftp://a.example"), Err(UpstreamError::Scheme));
        assert_eq!(parse("http://"), Err(UpstreamError::Malformed));
        assert_eq!(parse("http://a b"), Err(UpstreamError::Malformed));
        assert_eq!(parse("http://user@a.example"), Err(UpstreamError::UserInfo));
        assert_eq!(parse("http://a.example:0"), Err(UpstreamError::Port));
        assert_eq!(parse("http://a.example:70000"), Err(UpstreamError::Port));
        assert_eq!(parse("http://a.example/base"), Err(UpstreamError::Path));
        assert_eq!(parse("http://a.example?q"), Err(UpstreamError::Path));
        assert_eq!(parse("unix:run/app.sock"), Err(UpstreamError::Socket));
        assert_eq!(parse("unix://run/app.sock"), Ok((Scheme::Http1, "localhost".into(), 80)));
        assert_eq!(parse(&format!("unix:/{}", "x".repeat(107))), Err(UpstreamError::Socket));
    }
}
