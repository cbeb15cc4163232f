//! Room of a buffer.

use marcato_units::Bytes;

use crate::{Backlog, Counters, Packet};

/// Room of a buffer. The packet in transmission has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Number of packets of any size.
    Packets(u64),
    /// Number of bytes in any number of packets.
    Bytes(Bytes),
}

/// Error returned for a [`Limit`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The limit is zero packets.
    #[error("a limit of 0 packets would drop everything: allow at least 1 packet")]
    NoPackets,
    /// The limit is zero bytes.
    #[error("a limit of 0 bytes would drop everything: allow at least one packet of the link's MTU")]
    NoBytes,
}

impl Limit {
    /// Returns whether a packet of `len` bytes may join `backlog`.
    pub fn admits(self, backlog: Backlog, len: Bytes) -> bool {
        match self {
            Self::Packets(limit) => backlog.packets < limit,
            Self::Bytes(limit) => backlog.bytes.checked_add(len).is_some_and(|sum| sum <= limit),
        }
    }

    /// Returns whether `backlog` is within the limit.
    pub(crate) fn holds(self, backlog: Backlog) -> bool {
        match self {
            Self::Packets(limit) => backlog.packets <= limit,
            Self::Bytes(limit) => backlog.bytes <= limit,
        }
    }

    /// Counts `packet` as part of `backlog`. If there is no room for it, counts its loss and hands
    /// it back.
    ///
    /// # Errors
    /// The packet, if there is no room for it.
    pub fn take<P: Packet>(self, packet: P, backlog: &mut Backlog, counters: &mut Counters) -> Result<P, P> {
        let len = packet.len();
        counters.enqueued.count(len);
        if !self.admits(*backlog, len) {
            counters.overflow(&packet);
            return Err(packet);
        }
        backlog.push(len);
        Ok(packet)
    }

    /// Checks that a packet can pass this limit, and returns it.
    ///
    /// # Errors
    /// [`LimitError`] if it admits no packet.
    pub fn checked(self) -> Result<Self, LimitError> {
        match self {
            Self::Packets(0) => Err(LimitError::NoPackets),
            Self::Bytes(Bytes::ZERO) => Err(LimitError::NoBytes),
            possible => Ok(possible),
        }
    }
}
