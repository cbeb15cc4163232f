//! Errors of a proxy.

use marcato_units::Bytes;
use thiserror::Error;

use super::config::ProxyConfig;
use super::upstream::{Upstream, UpstreamError};

/// Error returned when a proxy is created.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// There is no upstream, or there are too many.
    #[error("{number} upstreams: give 1 to {}", ProxyConfig::MAX_UPSTREAMS)]
    Upstreams {
        /// Number of upstreams.
        number: usize,
    },
    /// The URI of an upstream is not usable.
    #[error("upstream {uri:?}: {source}")]
    Upstream {
        /// URI of the upstream.
        uri: String,
        /// Reason.
        source: UpstreamError,
    },
    /// The weight of an upstream is out of range.
    #[error("upstream {uri:?} has weight {weight}: give 1 to {}", Upstream::MAX_WEIGHT)]
    Weight {
        /// URI of the upstream.
        uri: String,
        /// Its weight.
        weight: u32,
    },
    /// There are too many retries.
    #[error("{retries} retries: give at most {}", ProxyConfig::MAX_RETRIES)]
    Retries {
        /// Number of retries.
        retries: u32,
    },
    /// No request may be in flight.
    #[error("max_in_flight is 0: give at least 1")]
    MaxInFlight,
    /// The bound of a response's head is out of range.
    #[error("response_head is {bytes}: give 1 KiB to 1 MiB")]
    ResponseHead {
        /// Bytes as given.
        bytes: Bytes,
    },
    /// The bound of a response's fields is out of range.
    #[error("response_fields is {number}: give 1 to 10000")]
    ResponseFields {
        /// Number as given.
        number: u32,
    },
    /// The bound of kept bodies is out of range.
    #[error("kept_body is {bytes}: give at most 16 MiB")]
    KeptBody {
        /// Bytes as given.
        bytes: Bytes,
    },
    /// A threshold is zero.
    #[error("{name} is 0: give at least 1")]
    Threshold {
        /// Name of the threshold.
        name: &'static str,
    },
    /// A duration is zero or longer than a year.
    #[error("{name} is out of range: give more than 0 and at most a year")]
    Duration {
        /// Name of the duration.
        name: &'static str,
    },
    /// The path of health checks is not usable.
    #[error("{path:?} is no path for health checks: begin with / and escape spaces")]
    HealthPath {
        /// Path as given.
        path: String,
    },
    /// The name of the proxy is no token.
    #[error("{via:?} is no name for the Via field: use letters, digits, hyphens and dots")]
    Via {
        /// Name as given.
        via: String,
    },
    /// The name of the cookie is no token.
    #[error("{name:?} is no name of a cookie: use letters, digits and hyphens")]
    Cookie {
        /// Name as given.
        name: String,
    },
    /// An upstream of `h2c` would be told of one client for the requests of many.
    #[error(
        "upstream {uri:?} has requests of many clients on a connection: use http:// with the PROXY protocol"
    )]
    SharedConnection {
        /// URI of the upstream.
        uri: String,
    },
    /// An upstream of `https` has a host that certificates cannot name.
    #[error("certificates cannot name host {host:?}: give a DNS name or an address")]
    ServerName {
        /// Host of the upstream.
        host: String,
    },
    /// The system's roots are not usable.
    #[error("found no usable root certificate: install the system's, or give roots")]
    Roots,
    /// The TLS library refuses its configuration.
    #[error("TLS could not be set up, report this as a bug: {0}")]
    Tls(#[from] rustls::Error),
    /// Health checks need a runtime.
    #[error("health checks need a runtime: create the proxy within tokio")]
    NoRuntime,
}
