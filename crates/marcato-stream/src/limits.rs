//! Bounds of a connection.

use marcato_sched::conductor;
use marcato_units::{Bytes, Priority};

use crate::{Message, SendError};

/// Bounds of a connection, and of all connections of an endpoint. Data is bounded level by level, so
/// that background data never blocks an urgent message: neither a full queue of the sender, nor data
/// that the receiving application does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queued bytes of each level (64 MiB). At the limit, sending waits.
    pub queued: Bytes,
    /// Undelivered messages of each level (13 107). At the limit, sending waits.
    pub unfinished: usize,
    /// Queued bytes of a message that is sent piece by piece (1
    /// MiB). At the limit, the next piece waits.
    pub streamed: Bytes,
    /// Length of the longest message that is received as a whole (16 MiB).
    /// [`long_messages`](Self::long_messages) determines the handling of longer ones.
    pub max_message: Bytes,
    /// Handling of messages longer than [`max_message`](Self::max_message).
    pub long_messages: LongMessages,
    /// Incomplete messages (4096). A peer that begins more loses its connection.
    pub open_messages: usize,
    /// Bytes of incomplete messages (80 MiB, one of the longest messages of each level). A peer
    /// that sends more loses its connection.
    pub open: Bytes,
    /// Bytes of each level received and not taken by the application (4 MiB). At the limit the peer
    /// is asked to hold the level, until the application has taken half.
    pub unread: Bytes,
    /// Complete messages of each level not taken by the application (16 384), with the same effect.
    pub unread_messages: usize,
    /// Bytes that may follow at all held levels together, each message counted with 64 bytes more
    /// (16 MiB). At the limit, reading stops. It should exceed the data that a peer sends in a round
    /// trip: that is on its way when a level is held.
    pub surplus: Bytes,
    /// Bytes of unreliable messages received and not taken by the application, each counted with 64
    /// bytes more (256 KiB). Beyond the limit the least urgent are dropped, the oldest first. Zero
    /// disables them, and peers are informed.
    pub unreliable: Bytes,
    /// Messages abandoned by the peer and not yet reported to the
    /// application (1024). Beyond the limit the oldest are forgotten.
    pub missed: usize,
    /// Bytes of received data that all connections of an endpoint hold together (1 GiB). While they
    /// hold more, each may hold no more than its fair share, this divided by their number: reading
    /// stops where the application has something to take, and a peer with more in incomplete
    /// messages loses its connection.
    pub memory: Bytes,
    /// Receipts (65 536). While as many wait to be sent, reading stops. Those for messages that the
    /// application has not taken come in addition, and [`unread_messages`](Self::unread_messages)
    /// bounds them. While as many are awaited from the peer, sending a message with a receipt waits.
    pub receipts: usize,
    /// Open requests in each direction (1024). At the limit, `Connection::request` of `marcato-net`
    /// waits, and further requests of the peer are refused.
    pub requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            queued: Bytes::new(64 * MIB),
            unfinished: 13_107,
            streamed: Bytes::new(MIB),
            max_message: Bytes::new(16 * MIB),
            long_messages: LongMessages::Refuse,
            open_messages: 4096,
            open: Bytes::new(80 * MIB),
            unread: Bytes::new(4 * MIB),
            unread_messages: 16_384,
            surplus: Bytes::new(16 * MIB),
            unreliable: Bytes::new(MIB / 4),
            missed: 1024,
            memory: Bytes::new(1024 * MIB),
            receipts: 65_536,
            requests: 1024,
        }
    }
}

impl Limits {
    /// Returns this configuration of a Conductor with the limits' bounds: each level has its share,
    /// so that no level fills another's.
    #[must_use]
    pub fn bound(&self, conductor: conductor::Config) -> conductor::Config {
        conductor::Config {
            max_messages: self.unfinished.saturating_mul(Priority::COUNT),
            max_queued: self.queued * Priority::COUNT as u64,
            ..conductor
        }
    }

    /// Checks whether a message fits beside what its sender `holds` already.
    ///
    /// # Errors
    ///
    /// [`SendError::NeedsReliable`] if it contradicts itself, [`SendError::TooLong`] if it never fits,
    /// [`SendError::Busy`] if it does not fit now.
    pub fn admit(&self, message: &Message, holds: Held) -> Result<(), SendError> {
        let len = Bytes::new(message.body.len() as u64);
        if message.receipt && !message.reliable {
            return Err(SendError::NeedsReliable);
        }
        if len > self.queued {
            return Err(SendError::TooLong { limit: self.queued });
        }
        let full = holds.messages >= self.unfinished || holds.bytes + len > self.queued;
        if full || message.receipt && holds.receipts >= self.receipts {
            return Err(SendError::Busy { priority: message.priority });
        }
        Ok(())
    }
}

/// Undelivered messages of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Messages of one level.
    pub messages: usize,
    /// Queued bytes of that level.
    pub bytes: Bytes,
    /// Receipts that the peer owes, for messages of all levels.
    pub receipts: usize,
}

/// Handling of messages longer than [`Limits::max_message`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LongMessages {
    /// The peer loses its connection.
    #[default]
    Refuse,
    /// They are handed out piece by piece, by
    /// [`Inbound::take_long`](crate::Inbound::take_long). The application has to take
    /// them: while a long message is not read, its level is held at [`Limits::unread`].
    Stream,
}
