//! Causes for which a connection is lost.

use std::fmt;

/// Cause for which a connection was lost, or could not be established: what a program decides by. The text beside it is
/// for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The peer, or the path to it, was silent for too long.
    TimedOut,
    /// The peer's host does not know the connection: it has restarted, or its program has ended.
    Reset,
    /// The peer's server has no room for the connection.
    Crowded,
    /// The peer's program aborted the connection, and gave no code.
    Aborted,
    /// The stream ended where it must not: the peer's program has ended, or somebody has cut it.
    Cut,
    /// TLS failed, for example because a certificate is not trusted; with the alert that the peer sent, if it did
    /// (RFC 8446 §6).
    Tls {
        /// Code of the peer's alert.
        alert: Option<u8>,
    },
    /// One end broke a rule of the protocol or exceeded a limit.
    Protocol,
    /// The operating system reported an error of the network.
    Network,
    /// This end has stopped the connection: its task or its endpoint is gone.
    Stopped,
}

impl Cause {
    /// Returns whether another attempt may succeed, though nothing is changed at either end.
    ///
    /// ```
    /// use marcato_stream::Cause;
    /// assert!(Cause::Reset.is_retryable());
    /// assert!(!Cause::Protocol.is_retryable());
    /// ```
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::TimedOut | Self::Reset | Self::Crowded | Self::Aborted | Self::Cut | Self::Network => true,
            // RFC 8446 §6: close_notify, internal_error and user_canceled say nothing about the configuration.
            Self::Tls { alert } => matches!(alert, Some(0 | 80 | 90)),
            Self::Protocol | Self::Stopped => false,
        }
    }

    /// Name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed-out",
            Self::Reset => "reset",
            Self::Crowded => "crowded",
            Self::Aborted => "aborted",
            Self::Cut => "cut",
            Self::Tls { .. } => "tls",
            Self::Protocol => "protocol",
            Self::Network => "network",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
