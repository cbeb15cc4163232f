//! End of a session of plain streams.

use bytes::Bytes as Payload;
use marcato_stream::Cause;
use noq_proto::ConnectionError;

use crate::crypto;

/// End of a session of plain streams.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// This end has closed it.
    Local,
    /// The peer's application has closed it (RFC 9000 §10.2).
    Application {
        /// Code of the application.
        code: u64,
        /// Reason of the application.
        reason: Payload,
    },
    /// The connection was lost.
    Lost {
        /// Cause, for programs.
        cause: Cause,
        /// Cause, as text.
        reason: String,
    },
}

impl From<&ConnectionError> for End {
    fn from(reason: &ConnectionError) -> Self {
        match reason {
            ConnectionError::LocallyClosed => Self::Local,
            ConnectionError::ApplicationClosed(close) => {
                Self::Application { code: close.error_code.into_inner(), reason: close.reason.clone() }
            }
            reason => Self::Lost { cause: crypto::cause(reason), reason: crypto::end(reason) },
        }
    }
}

impl std::error::Error for End {}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local => f.write_str("closed at this end"),
            Self::Application { code, reason } => {
                write!(f, "closed by the peer: code {code}, {}", String::from_utf8_lossy(reason))
            }
            Self::Lost { reason, .. } => f.write_str(reason),
        }
    }
}
