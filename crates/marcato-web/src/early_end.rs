//! Reasons for which a connection ends early, over either version of HTTP.

use std::io;

use crate::clocks::Overdue;
use crate::h2::Violation;

/// Reason for which a connection ends before its client or the server meant it to. Each is counted as broken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EarlyEnd {
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("http/1.1 failed: {0}")]
    Http1(#[from] hyper::Error),
    #[error("http/2 failed: {0}")]
    Http2(#[from] ::h2::Error),
    #[cfg(feature = "http3")]
    #[error("http/3 failed: {0}")]
    Http3(#[from] ::h3::error::ConnectionError),
    #[cfg(feature = "http3")]
    #[error("the client did not allow the streams of HTTP/3 in time")]
    NoStreams,
    #[error("the client violated the protocol: {0:?}")]
    Violation(Violation),
    #[error("the client did not begin with HTTP/2 in time")]
    Silent,
    #[error(transparent)]
    Overdue(#[from] Overdue),
    #[error("the configuration of the exchange is invalid")]
    Configuration,
}
