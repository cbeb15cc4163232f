//! Fate of a stream that this end sends.

/// Fate of a stream that this end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The peer has all of it.
    Finished,
    /// The peer reads no more of it.
    Stopped(u64),
    /// This end has reset it.
    Reset,
}
