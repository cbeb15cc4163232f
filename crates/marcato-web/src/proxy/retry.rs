//! Rule for retries.

use http::{Method, StatusCode};
use thiserror::Error;

use super::complaints::{Kind, with_causes};
use super::connect::ConnectError;

/// Failure of one attempt. Its text is for the log.
#[derive(Debug, Error)]
pub(super) enum Fault {
    /// No connection was made.
    #[error("{0}")]
    Connect(ConnectError),
    /// The connection closed before the request was sent.
    #[error("connection closed before the request was sent, check the origin: {0}")]
    Unsent(hyper::Error),
    /// The origin did not process the request, and said so (RFC 9113 §6.8, §8.7).
    #[error("origin refused the request unprocessed, check its limits: {0}")]
    Refused(hyper::Error),
    /// A connection that had been idle closed as the request was sent.
    #[error("idle connection closed: set `idle-timeout` below the origin's: {0}")]
    Stale(hyper::Error),
    /// The connection broke before the head of the response.
    #[error("connection broke before the response, check the origin: {0}")]
    Broken(hyper::Error),
    /// The head of the response was not usable.
    #[error("response is malformed, check the origin and its protocol: {0}")]
    Malformed(hyper::Error),
    /// The head of the response was larger than allowed. Its error is absent for the number of fields
    /// over HTTP/2.
    #[error("head of the response is too large, raise `response-head` or `response-fields`{}", detail(.0))]
    TooLarge(Option<hyper::Error>),
    /// The head of the response was late.
    #[error("response is late, check the origin or raise `response-timeout`")]
    Late,
    /// The request cannot be written in the upstream's version.
    #[error("request cannot be written for the origin, send fewer or other fields: {0}")]
    Request(http::Error),
}

impl Fault {
    /// Classifies an error without a response over a connection that was reused, or was not.
    pub(super) fn from_error(error: hyper::Error, reused: bool) -> Self {
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            if let Some(h2) = cause.downcast_ref::<h2::Error>() {
                return match h2.reason() {
                    Some(h2::Reason::REFUSED_STREAM) => Self::Refused(error),
                    // RFC 9113 §6.8: streams above the last one of GOAWAY were not processed. The
                    // library reports it for those streams only.
                    Some(h2::Reason::NO_ERROR) if h2.is_go_away() => Self::Refused(error),
                    // The origin asks for HTTP/1.1, or found a fault in the request.
                    Some(h2::Reason::PROTOCOL_ERROR | h2::Reason::HTTP_1_1_REQUIRED) => {
                        Self::Malformed(error)
                    }
                    _ => Self::Broken(error),
                };
            }
            source = cause.source();
        }
        if error.is_parse_too_large() {
            Self::TooLarge(Some(error))
        } else if error.is_parse() {
            Self::Malformed(error)
        } else if reused {
            Self::Stale(error)
        } else {
            Self::Broken(error)
        }
    }

    /// Returns true if the request may be sent again, provided that its body may.
    ///
    /// RFC 9110 §9.2.2: a proxy MUST NOT automatically retry non-idempotent requests. One that
    /// certainly was not processed is no retry to the origin.
    pub(super) fn allows_retry(&self, method: &Method) -> bool {
        match self {
            Self::Connect(ConnectError::NoUpgrade) => false,
            Self::Connect(_) | Self::Unsent(_) | Self::Refused(_) => true,
            Self::Stale(_) | Self::Broken(_) => method.is_idempotent(),
            // An origin that is late may be overloaded: a second request would make it worse.
            Self::Malformed(_) | Self::TooLarge(_) | Self::Late | Self::Request(_) => false,
        }
    }

    /// Returns true if the next attempt needs a new connection.
    pub(super) const fn distrusts_pool(&self) -> bool {
        matches!(self, Self::Unsent(_) | Self::Stale(_))
    }

    /// Returns true if the upstream is to blame.
    ///
    /// An origin may close idle connections, and may refuse a request as it shuts down. One whose head is
    /// too large has answered: clients that ask for it must not take the upstream from the others.
    pub(super) const fn blames_upstream(&self) -> bool {
        match self {
            Self::Connect(ConnectError::NoUpgrade)
            | Self::Refused(_)
            | Self::Stale(_)
            | Self::TooLarge(_)
            | Self::Request(_) => false,
            Self::Connect(_) | Self::Unsent(_) | Self::Broken(_) | Self::Malformed(_) | Self::Late => true,
        }
    }

    /// Kind of the warning about it.
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Connect(ConnectError::Tls(_)) => Kind::Tls,
            Self::Connect(_) => Kind::Connect,
            Self::Unsent(_) | Self::Refused(_) | Self::Stale(_) | Self::Broken(_) => Kind::Closed,
            Self::Malformed(_) | Self::TooLarge(_) | Self::Request(_) => Kind::Malformed,
            Self::Late => Kind::Late,
        }
    }

    /// Text for the log, with all causes.
    pub(super) fn reason(&self) -> String {
        let cause: Option<&(dyn std::error::Error + 'static)> = match self {
            Self::Connect(error) => error.cause(),
            Self::Unsent(error)
            | Self::Refused(error)
            | Self::Stale(error)
            | Self::Broken(error)
            | Self::Malformed(error) => Some(error),
            Self::Request(error) => Some(error),
            Self::TooLarge(error) => error.as_ref().map(|error| error as _),
            Self::Late => None,
        };
        with_causes(&self.to_string(), cause)
    }

    /// Status of the response to the client.
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::Connect(ConnectError::Timeout) | Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Connect(ConnectError::NoUpgrade) => StatusCode::NOT_IMPLEMENTED,
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Connect(_)
            | Self::Unsent(_)
            | Self::Refused(_)
            | Self::Stale(_)
            | Self::Broken(_)
            | Self::TooLarge(_)
            | Self::Malformed(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

fn detail(error: &Option<hyper::Error>) -> String {
    error.as_ref().map_or_else(String::new, |error| format!(": {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_origins_are_not_asked_again() {
        assert!(!Fault::Late.allows_retry(&Method::GET));
        assert_eq!(Fault::Late.status(), StatusCode::GATEWAY_TIMEOUT);
    }

    #[test]
    fn a_request_never_sent_is_retried_with_any_method() {
        let fault = Fault::Connect(ConnectError::Timeout);
        assert!(fault.allows_retry(&Method::POST) && fault.blames_upstream());
        assert_eq!(fault.status(), StatusCode::GATEWAY_TIMEOUT);
        let fault = Fault::Connect(ConnectError::NoUpgrade);
        assert!(!fault.allows_retry(&Method::GET) && !fault.blames_upstream());
        assert_eq!(fault.status(), StatusCode::NOT_IMPLEMENTED);
    }
}
