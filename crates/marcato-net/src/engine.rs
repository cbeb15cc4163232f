//! Transport protocols.

use std::fmt;

/// Transport protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// The kernel's TCP, with TLS 1.3 unless that is [switched off](crate::ServerSecurity::Plaintext): one
    /// lane.
    Tcp,
    /// Multipath QUIC over UDP: up to sixteen lanes.
    #[default]
    Quic,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
        })
    }
}
