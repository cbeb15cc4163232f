//! Reasons for which a reconnecting client ends.

use std::sync::Arc;
use std::time::Duration;

use rustls::AlertDescription as Alert;

use crate::error::{Closed, ConnectError};
use crate::tls::Alerted;

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
            other => Self::Lost { reason: other.to_string() },
        }
    }
}

/// Returns whether an attempt that failed so may succeed later without a change at either end.
pub(super) fn is_passing(error: &ConnectError) -> bool {
    match error {
        // Interfaces, names, routes and servers come and go.
        ConnectError::Bind { .. }
        | ConnectError::Unknown { .. }
        | ConnectError::Unreachable { .. }
        | ConnectError::TimedOut { .. }
        | ConnectError::Ended { .. } => true,
        // Without an error of TLS, the network ended the handshake.
        ConnectError::Tls { source, .. } => {
            let Some(source) = source.get_ref() else { return true };
            match (source.downcast_ref(), source.downcast_ref()) {
                (Some(rustls::Error::AlertReceived(alert)), _) => is_passing_alert(*alert),
                (Some(_), _) => false,
                (None, Some(Alerted { alert, .. })) => is_passing_alert(*alert),
                (None, None) => true,
            }
        }
        #[cfg(feature = "quic")]
        ConnectError::Session(marcato_quic::ConnectError::TooMany { .. }) => true,
        _ => false,
    }
}

/// Returns whether a handshake that an alert ended may succeed later (RFC 8446 §6).
fn is_passing_alert(alert: Alert) -> bool {
    matches!(alert, Alert::CloseNotify | Alert::UserCanceled | Alert::InternalError)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;

    use super::*;
    use crate::error::ConfigError;

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
            ConnectError::Ended { addr, reason: reason() },
            ConnectError::Tls { addr, source: source() },
            ConnectError::Tls { addr, source: io::Error::new(io::ErrorKind::UnexpectedEof, "eof") },
            #[cfg(feature = "quic")]
            ConnectError::Session(marcato_quic::ConnectError::TooMany { limit: 1 }),
        ] {
            assert!(is_passing(&passing), "{passing}");
        }
        for lasting in [
            ConnectError::Config(ConfigError::NoAddress),
            ConnectError::NotTls { addr },
            ConnectError::NotPlaintext { addr },
            ConnectError::Protocol { addr },
            ConnectError::Tls { addr, source: io::Error::other(rustls::Error::DecryptError) },
        ] {
            assert!(!is_passing(&lasting), "{lasting}");
        }
        for (alert, passes) in [
            (Alert::InternalError, true),
            (Alert::UserCanceled, true),
            (Alert::BadCertificate, false),
            (Alert::ProtocolVersion, false),
        ] {
            let tcp = io::Error::other(rustls::Error::AlertReceived(alert));
            for source in [tcp, Alerted { alert, reason: reason() }.into()] {
                assert_eq!(is_passing(&ConnectError::Tls { addr, source }), passes, "{alert:?}");
            }
        }
    }
}
