//! Reasons for which a reconnecting client ends.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Cause, Closed, ConnectError};

/// Reason for which a [`Reconnecting`](crate::Reconnecting) client has ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// This end closed it.
    #[error("this end has closed the client")]
    Local,
    /// The connection ended for a reason that the next one would meet as well: the peer's
    /// application closed it, or the peer refused this end's certificate.
    #[error(transparent)]
    Peer(Closed),
    /// The attempt to connect failed for a reason that further ones would meet as well.
    #[error("{0}")]
    Refused(Arc<ConnectError>),
    /// There was no lasting connection for too long.
    #[error("there was no lasting connection for {limit:?}: {reason}")]
    GaveUp {
        /// [`ReconnectConfig::give_up_after`](crate::ReconnectConfig::give_up_after).
        limit: Duration,
        /// Last failure, as text.
        reason: String,
    },
}

impl From<Ended> for Closed {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Local => Self::Local,
            Ended::Peer(closed) => closed,
            Ended::Refused(error) => Self::lost(error.cause(), error.to_string()),
            gave_up @ Ended::GaveUp { .. } => Self::lost(Cause::TimedOut, gave_up.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;

    use rustls::AlertDescription as Alert;

    use super::*;
    use crate::error::{Alerted, ConfigError};

    #[test]
    fn failures_of_the_network_pass_and_refusals_do_not() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let source = || io::Error::from(io::ErrorKind::ConnectionReset);
        let reason = || "closed".to_owned();
        for passing in [
            ConnectError::Bind { addr, source: source() },
            ConnectError::Unknown { host: "server.test".to_owned(), source: source() },
            ConnectError::Unreachable { addr, source: source() },
            ConnectError::TimedOut { addr },
            ConnectError::Ended { addr, cause: Cause::Crowded, reason: reason() },
            ConnectError::Tls { addr, source: source() },
            ConnectError::Tls { addr, source: io::Error::new(io::ErrorKind::UnexpectedEof, "eof") },
            #[cfg(feature = "quic")]
            ConnectError::Session(marcato_quic::ConnectError::TooMany { limit: 1 }),
        ] {
            assert!(passing.is_retryable(), "{passing}");
        }
        for lasting in [
            ConnectError::Config(ConfigError::NoAddress),
            ConnectError::NotTls { addr },
            ConnectError::NotPlaintext { addr },
            ConnectError::Protocol { addr },
            ConnectError::Tls { addr, source: io::Error::other(rustls::Error::DecryptError) },
        ] {
            assert!(!lasting.is_retryable(), "{lasting}");
        }
        for (alert, passes) in [
            (Alert::InternalError, true),
            (Alert::UserCanceled, true),
            (Alert::BadCertificate, false),
            (Alert::ProtocolVersion, false),
        ] {
            let tcp = io::Error::other(rustls::Error::AlertReceived(alert));
            for source in [tcp, Alerted { alert, reason: reason() }.into()] {
                assert_eq!(ConnectError::Tls { addr, source }.is_retryable(), passes, "{alert:?}");
            }
        }
    }
}
