//! Best effort or less than it.

/// The class in which the network serves a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Best effort: ordinary traffic.
    #[default]
    High,
    /// Lower effort (DSCP LE, RFC 8622): served only where no [`High`](Self::High) packet waits.
    Low,
}
