//! Content of a packet.

use marcato_units::Priority;
use noq_proto::StreamId;

use crate::outbox::{Key, Run};

/// Content of a packet, as far as the session knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Run of bytes of a message on this stream, carried by a packet or a batch of packets.
    Run { key: Key, stream: StreamId, run: Run, priority: Priority, pinned: bool },
    /// Run of bytes of a plain stream, carried by a packet or a batch of packets.
    Stream { stream: StreamId, run: Run, priority: Priority },
    /// Frames that the engine sends by itself in a session of plain streams. They may carry lost runs.
    Resent { priority: Priority, generation: u32 },
    /// Data that the engine retransmitted by itself.
    Repair { priority: Priority, pinned: bool },
    /// Frames that the engine sends by itself: control frames, and probes of silent lanes.
    Control,
    /// Packets of the handshake, probes of the MTU, and unreliable messages.
    Other,
}

impl Load {
    /// Returns the priority of the data; `None` for frames of the engine.
    pub(crate) const fn priority(self) -> Option<Priority> {
        match self {
            Self::Run { priority, .. }
            | Self::Stream { priority, .. }
            | Self::Resent { priority, .. }
            | Self::Repair { priority, .. } => Some(priority),
            Self::Control | Self::Other => None,
        }
    }

    /// Returns whether a packet with this content carries, or may carry, data of the application.
    pub(crate) const fn is_data(self) -> bool {
        matches!(self, Self::Run { .. } | Self::Stream { .. } | Self::Resent { .. } | Self::Repair { .. })
    }
}
