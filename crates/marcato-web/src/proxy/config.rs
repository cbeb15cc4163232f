//! Configuration of a proxy.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use http::header::HeaderValue;
use http::uri::PathAndQuery;
use marcato_units::{Bytes, Duration};

use super::error::ProxyError;
use super::upstream::{Scheme, Target, Upstream};
use crate::proxy_header::ProxyVersion;

/// Configuration of a proxy.
///
/// ```
/// use marcato_units::Duration;
/// use marcato_web::proxy::{HealthConfig, ProxyConfig, Upstream};
///
/// let config = ProxyConfig {
///     upstreams: vec![Upstream::new("http://10.0.0.1:3000").with_weight(2), "h2c://10.0.0.2:3000".into()],
///     health: Some(HealthConfig { path: "/health".into(), ..HealthConfig::default() }),
///     response_timeout: Duration::from_secs(10),
///     ..ProxyConfig::default()
/// };
/// config.validate()?;
/// # Ok::<(), marcato_web::proxy::ProxyError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyConfig {
    /// Upstreams, from 1 to [`MAX_UPSTREAMS`](Self::MAX_UPSTREAMS). None by default.
    pub upstreams: Vec<Upstream>,
    /// Longest time to resolve a name, to connect and to shake hands. 5 s by default.
    pub connect_timeout: Duration,
    /// Longest time from the last progress of a request to the head of its response. 60 s by
    /// default.
    ///
    /// The time does not run while the client owes bytes of the request.
    pub response_timeout: Duration,
    /// Longest time without a frame of either body, while a body is awaited. 60 s by default.
    pub body_idle_timeout: Duration,
    /// Longest time without a byte in either direction of an upgraded connection. 5 min by default.
    pub tunnel_idle_timeout: Duration,
    /// Most retries of a request, up to [`MAX_RETRIES`](Self::MAX_RETRIES). 2 by default.
    pub retries: u32,
    /// Choice of the upstream for a request.
    pub balance: Balance,
    /// Name of the cookie of [`Balance::Cookie`]. `upstream` by default.
    pub cookie: String,
    /// Version of the PROXY protocol's header that tells an upstream of the client of each connection. None by
    /// default. Connections then serve one request each, and `h2c` upstreams are not possible.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Health checks. None by default.
    pub health: Option<HealthConfig>,
    /// Rule that rests an upstream after failed requests.
    pub passive: PassiveConfig,
    /// Most requests and tunnels in flight to each upstream. 1024 by default.
    pub max_in_flight: u32,
    /// Most idle connections of HTTP/1.1 kept to each upstream. 64 by default.
    pub max_idle: usize,
    /// Longest time for which an idle connection of HTTP/1.1 is reused. 30 s by default.
    pub idle_timeout: Duration,
    /// True to pass on the host that the client asked for, false to ask for the upstream's. True by
    /// default.
    ///
    /// Set it to false for an origin that knows only its own name, as most do over `https`.
    pub preserve_host: bool,
    /// Forwarders whose `Forwarded` and `X-Forwarded-*` fields are kept. None by default.
    pub trusted_forwarders: TrustedForwarders,
    /// Name of the proxy in `Via` (RFC 9110 §7.6.3). `marcato` by default.
    pub via: String,
    /// True to add `Via` to requests as well as to responses. False by default.
    ///
    /// RFC 9110 §7.6.3 asks for it. Origins then take the request for one of a shared proxy: nginx, for
    /// one, stops compressing (`gzip_proxied`). Set it to true where requests could run in a circle.
    pub via_to_origins: bool,
    /// Most bytes of the head of a response over HTTP/1.1, and of its fields over HTTP/2 (RFC 9113
    /// §10.5.1). 64 KiB by default; a larger head is answered with 502.
    pub response_head: Bytes,
    /// Most fields of a response, and of its trailers. 500 by default; more are answered with 502.
    pub response_fields: u32,
    /// Most bytes of a request's body that are kept until its response begins, so that the request can be
    /// sent again. 64 KiB by default, 0 for none.
    ///
    /// A request with a longer body is sent once, unless no byte of the body was taken.
    pub kept_body: Bytes,
    /// Roots of the certificates of `https` upstreams. The system's by default.
    pub roots: Roots,
}

impl ProxyConfig {
    /// Most upstreams: 256.
    pub const MAX_UPSTREAMS: usize = 256;
    /// Most retries: 16.
    pub const MAX_RETRIES: u32 = 16;
    /// Range of [`response_head`](Self::response_head): 1 KiB to 1 MiB.
    pub const RESPONSE_HEAD: RangeInclusive<u64> = 1 << 10..=1 << 20;
    /// Largest number of [`response_fields`](Self::response_fields): 10 000.
    pub const MAX_RESPONSE_FIELDS: u32 = 10_000;
    /// Largest [`kept_body`](Self::kept_body): 16 MiB.
    pub const MAX_KEPT_BODY: u64 = 16 << 20;

    /// Creates the default configuration for one upstream.
    pub fn to(uri: impl Into<String>) -> Self {
        Self { upstreams: vec![Upstream::new(uri)], ..Self::default() }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// [`ProxyError`] for the first value that cannot be used.
    pub fn validate(&self) -> Result<(), ProxyError> {
        self.targets().map(drop)
    }

    /// Checks the configuration and reads the URIs of the upstreams.
    pub(super) fn targets(&self) -> Result<Vec<Target>, ProxyError> {
        if self.upstreams.is_empty() || self.upstreams.len() > Self::MAX_UPSTREAMS {
            return Err(ProxyError::Upstreams { number: self.upstreams.len() });
        }
        let mut targets = Vec::with_capacity(self.upstreams.len());
        for Upstream { uri, weight } in &self.upstreams {
            if !(1..=Upstream::MAX_WEIGHT).contains(weight) {
                return Err(ProxyError::Weight { uri: uri.clone(), weight: *weight });
            }
            let target =
                Target::parse(uri).map_err(|source| ProxyError::Upstream { uri: uri.clone(), source })?;
            targets.push(target);
        }
        if self.proxy_protocol.is_some()
            && let Some((upstream, _)) =
                self.upstreams.iter().zip(&targets).find(|(_, target)| target.scheme == Scheme::Http2)
        {
            return Err(ProxyError::SharedConnection { uri: upstream.uri.clone() });
        }
        if self.retries > Self::MAX_RETRIES {
            return Err(ProxyError::Retries { retries: self.retries });
        }
        if self.max_in_flight == 0 {
            return Err(ProxyError::MaxInFlight);
        }
        if !Self::RESPONSE_HEAD.contains(&self.response_head.get()) {
            return Err(ProxyError::ResponseHead { bytes: self.response_head });
        }
        if !(1..=Self::MAX_RESPONSE_FIELDS).contains(&self.response_fields) {
            return Err(ProxyError::ResponseFields { number: self.response_fields });
        }
        if self.kept_body.get() > Self::MAX_KEPT_BODY {
            return Err(ProxyError::KeptBody { bytes: self.kept_body });
        }
        let mut durations = vec![
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("body_idle_timeout", self.body_idle_timeout),
            ("tunnel_idle_timeout", self.tunnel_idle_timeout),
            ("idle_timeout", self.idle_timeout),
            ("passive.rest", self.passive.rest),
        ];
        if self.passive.failures == 0 {
            return Err(ProxyError::Threshold { name: "passive.failures" });
        }
        if let Some(health) = &self.health {
            if !health.path.starts_with('/') || PathAndQuery::try_from(health.path.as_str()).is_err() {
                return Err(ProxyError::HealthPath { path: health.path.clone() });
            }
            for (name, threshold) in [
                ("health.healthy_after", health.healthy_after),
                ("health.unhealthy_after", health.unhealthy_after),
            ] {
                if threshold == 0 {
                    return Err(ProxyError::Threshold { name });
                }
            }
            durations.extend([("health.interval", health.interval), ("health.timeout", health.timeout)]);
        }
        for (name, duration) in durations {
            if duration.is_zero() || duration > MAX_DURATION {
                return Err(ProxyError::Duration { name });
            }
        }
        // RFC 9110 §7.6.3: a pseudonym is a token.
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if self.cookie.is_empty() || !self.cookie.bytes().all(token) {
            return Err(ProxyError::Cookie { name: self.cookie.clone() });
        }
        if self.via.is_empty() || !self.via.bytes().all(token) || HeaderValue::from_str(&self.via).is_err() {
            return Err(ProxyError::Via { via: self.via.clone() });
        }
        Ok(targets)
    }
}

/// Longest duration of a configuration: far beyond any use, and far below an overflow of the clock.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            upstreams: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            body_idle_timeout: Duration::from_secs(60),
            tunnel_idle_timeout: Duration::from_secs(300),
            retries: 2,
            balance: Balance::default(),
            cookie: "upstream".to_owned(),
            proxy_protocol: None,
            health: None,
            passive: PassiveConfig::default(),
            max_in_flight: 1024,
            max_idle: 64,
            idle_timeout: Duration::from_secs(30),
            preserve_host: true,
            trusted_forwarders: TrustedForwarders::None,
            via: "marcato".to_owned(),
            via_to_origins: false,
            response_head: Bytes::new(64 << 10),
            response_fields: 500,
            kept_body: Bytes::new(64 << 10),
            roots: Roots::Native,
        }
    }
}

/// Choice of the upstream for a request, among those that are healthy and have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Upstream with the fewest requests in flight per weight; equal ones take turns.
    #[default]
    Least,
    /// Upstreams take turns, by weight.
    Turns,
    /// Upstream that belongs to the client's address.
    Address,
    /// Upstream that belongs to the path and the query.
    Path,
    /// Upstream that has served the client before, by a cookie.
    Cookie,
}

/// Configuration of health checks.
///
/// A check is a GET request. It succeeds if the status of the response is from 200 to 399.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// Path of the request. `/` by default.
    pub path: String,
    /// Time between two checks of an upstream. 5 s by default.
    pub interval: Duration,
    /// Longest time to the head of the response. 2 s by default.
    pub timeout: Duration,
    /// Successive checks that bring an unhealthy upstream back. 2 by default.
    pub healthy_after: u32,
    /// Successive failed checks that make an upstream unhealthy. 3 by default.
    pub unhealthy_after: u32,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            healthy_after: 2,
            unhealthy_after: 3,
        }
    }
}

/// Rule that rests an upstream after failed requests.
///
/// A request fails if no connection is made, if its connection breaks before the head of the
/// response, or if the head is late. Any response is a success, also one with status 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassiveConfig {
    /// Successive failures that rest an upstream. 3 by default.
    pub failures: u32,
    /// Time for which the upstream rests. 10 s by default.
    ///
    /// The next failure after that rests it again; a success forgets the failures.
    pub rest: Duration,
}

impl Default for PassiveConfig {
    fn default() -> Self {
        Self { failures: 3, rest: Duration::from_secs(10) }
    }
}

/// Forwarders whose `Forwarded` and `X-Forwarded-*` fields are kept.
///
/// Fields from other peers are removed, because any client could invent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrustedForwarders {
    /// No peer: the proxy is the first one that clients meet.
    #[default]
    None,
    /// Every peer: only trusted proxies reach this one.
    All,
    /// Peers with one of these addresses.
    Addresses(Vec<IpAddr>),
}

impl TrustedForwarders {
    /// Returns true if the fields of a request from this peer are kept.
    pub(super) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match (self, peer) {
            (Self::None, _) | (Self::Addresses(_), None) => false,
            (Self::All, _) => true,
            (Self::Addresses(addresses), Some(peer)) => {
                addresses.iter().any(|address| address.to_canonical() == peer.to_canonical())
            }
        }
    }
}

/// Roots of the certificates of upstreams.
#[derive(Clone, Debug, Default)]
pub enum Roots {
    /// Roots of the operating system.
    #[default]
    Native,
    /// Given roots.
    Given(Arc<rustls::RootCertStore>),
}

impl PartialEq for Roots {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Native, Self::Native) => true,
            (Self::Given(one), Self::Given(other)) => one.roots == other.roots,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::UpstreamError;

    fn refused(change: impl FnOnce(&mut ProxyConfig)) -> String {
        let mut config = ProxyConfig::to("http://127.0.0.1:3000");
        config.health = Some(HealthConfig::default());
        assert!(config.validate().is_ok());
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn unusable_values_are_named() {
        assert!(refused(|c| c.upstreams.clear()).contains("0 upstreams"));
        assert!(refused(|c| c.upstreams = vec!["http://a".into(); 257]).contains("257 upstreams"));
        assert!(refused(|c| c.upstreams[0].weight = 0).contains("weight 0"));
        assert!(refused(|c| c.upstreams[0].uri = "a".into()).contains(&UpstreamError::Scheme.to_string()));
        assert!(refused(|c| c.retries = 17).contains("17 retries"));
        assert!(refused(|c| c.max_in_flight = 0).contains("max_in_flight"));
        assert!(refused(|c| c.response_head = Bytes::new(1023)).contains("response_head"));
        assert!(refused(|c| c.response_head = Bytes::new((1 << 20) + 1)).contains("response_head"));
        assert!(refused(|c| c.response_fields = 0).contains("response_fields"));
        assert!(refused(|c| c.response_fields = 10_001).contains("response_fields"));
        assert!(refused(|c| c.kept_body = Bytes::new((16 << 20) + 1)).contains("kept_body"));
        assert!(refused(|c| c.connect_timeout = Duration::ZERO).contains("connect_timeout"));
        assert!(refused(|c| c.response_timeout = Duration::MAX).contains("response_timeout"));
        assert!(refused(|c| c.passive.failures = 0).contains("passive.failures"));
        assert!(refused(|c| c.via = "two words".into()).contains("two words"));
    }

    #[test]
    fn unusable_health_checks_are_named() {
        fn health(c: &mut ProxyConfig) -> &mut HealthConfig {
            c.health.as_mut().unwrap()
        }
        assert!(refused(|c| health(c).path = "health".into()).contains("\"health\""));
        assert!(refused(|c| health(c).path = "/a b".into()).contains("\"/a b\""));
        assert!(refused(|c| health(c).healthy_after = 0).contains("health.healthy_after"));
        assert!(refused(|c| health(c).unhealthy_after = 0).contains("health.unhealthy_after"));
        assert!(refused(|c| health(c).interval = Duration::ZERO).contains("health.interval"));
        assert!(refused(|c| health(c).timeout = Duration::ZERO).contains("health.timeout"));
    }

    #[test]
    fn only_listed_addresses_are_trusted() {
        let listed = TrustedForwarders::Addresses(vec!["192.0.2.1".parse().unwrap()]);
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        let other = "192.0.2.2".parse().unwrap();
        assert!(listed.trusts(Some(mapped)));
        assert!(!listed.trusts(Some(other)) && !listed.trusts(None));
        assert!(TrustedForwarders::All.trusts(None) && !TrustedForwarders::None.trusts(Some(other)));
    }
}
