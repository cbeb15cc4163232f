//! Best effort and lower effort.

/// Class in which the network serves a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Best effort: ordinary traffic.
    #[default]
    High,
    /// Lower effort (DSCP LE, RFC 8622): served only while no [`High`](Self::High) packet waits.
    Low,
}

impl Layer {
    /// Returns the name used in files and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
        }
    }
}
