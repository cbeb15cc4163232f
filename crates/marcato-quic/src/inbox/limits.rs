//! Limits of the data that an inbox accepts from a peer.

use core::fmt;

use marcato_units::Bytes;

/// Bounds of everything that a peer can make an [`Inbox`](super::Inbox) hold.
///
/// | limits | effect |
/// |---|---|
/// | the three that begin with `unread` | *back-pressure*: [`wants_data`](super::Inbox::wants_data) returns false, and the session leaves the rest in the engine, whose flow control slows the peer down |
/// | twice the above | refusal of a caller that continues feeding |
/// | `hints` | eviction of the oldest |
/// | all others | *fatal*: an honest peer stays below the limits made for its window |
///
/// Data that arrived ahead of a gap cannot be left in the engine, because the data that fills the
/// gap comes the same way. So `ahead` and `parked` must hold all that a peer can send from a loss
/// until its retransmission arrives. That exceeds the connection's flow-control window, because
/// reading from the engine opens it again.
///
/// Payload is never copied: each piece keeps the datagram that it came in alive. So as many
/// datagrams as pieces may be held, however short the pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxLimits {
    /// Bytes readable and not read (4 MiB). At least the length of the longest chunk, which is a
    /// datagram; otherwise a single chunk may count as overfeeding.
    pub unread: Bytes,
    /// Pieces readable and not read (16 384).
    pub unread_pieces: usize,
    /// Complete messages not wholly read (4096).
    pub unread_messages: usize,
    /// Messages with missing bytes (4096).
    pub open_messages: usize,
    /// Bytes of all messages that arrived ahead of a gap in their message (64 MiB).
    pub ahead: Bytes,
    /// Pieces of one message that arrived ahead of a gap (65 536). All of a peer's unacknowledged
    /// data may belong to one message, behind one gap while a lane is silent: 32 MiB in packets of
    /// 1200 bytes are 30 000.
    pub ahead_pieces_per_message: usize,
    /// Bytes of one stream parked for a frame header (8 MiB).
    pub parked_per_stream: Bytes,
    /// Bytes of all streams parked for a frame header (32 MiB).
    pub parked: Bytes,
    /// Pieces that arrived ahead of a gap or are parked for a frame header, together (131 072).
    pub pieces: usize,
    /// Streams with missing bytes; for each kind, also the gaps between those that have ended
    /// (4096). Must not be less than the number that the engine lets the peer open.
    pub streams: usize,
    /// Gaps in the received bytes of one stream (8192).
    pub gaps_per_stream: usize,
    /// Gaps in the received bytes of all streams (131 072).
    pub gaps: usize,
    /// Streams that each carry a part of one message that has not arrived (4096).
    pub streams_per_message: usize,
    /// Gaps between the numbers of settled messages (8192). Senders number in the order of first
    /// sending, so this need not exceed `open_messages`.
    pub id_gaps: usize,
    /// Streams whose content is known from another copy's header (4096).
    pub hints: usize,
    /// Actions not yet polled (65 536).
    pub actions: usize,
}

impl Default for InboxLimits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            unread: Bytes::new(4 * MIB),
            unread_pieces: 16_384,
            unread_messages: 4096,
            open_messages: 4096,
            ahead: Bytes::new(64 * MIB),
            ahead_pieces_per_message: 65_536,
            parked_per_stream: Bytes::new(8 * MIB),
            parked: Bytes::new(32 * MIB),
            pieces: 131_072,
            streams: 4096,
            gaps_per_stream: 8192,
            gaps: 131_072,
            streams_per_message: 4096,
            id_gaps: 8192,
            hints: 4096,
            actions: 65_536,
        }
    }
}

impl InboxLimits {
    /// Upper bound of the bytes of payload and headers held: unread, ahead and parked together.
    pub fn most_bytes(&self) -> Bytes {
        self.unread * 2 + self.ahead + self.parked
    }

    /// Upper bound of the pieces held.
    pub fn most_pieces(&self) -> usize {
        self.unread_pieces.saturating_mul(2).saturating_add(self.pieces)
    }

    /// Upper bound of the messages held.
    pub fn most_messages(&self) -> usize {
        self.unread_messages.saturating_mul(2).saturating_add(self.open_messages)
    }
}

/// Fatal limit among the [`InboxLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InboxLimit {
    /// [`InboxLimits::open_messages`].
    OpenMessages,
    /// [`InboxLimits::ahead`].
    Ahead,
    /// [`InboxLimits::ahead_pieces_per_message`].
    AheadPiecesPerMessage,
    /// [`InboxLimits::parked_per_stream`].
    ParkedPerStream,
    /// [`InboxLimits::parked`].
    Parked,
    /// [`InboxLimits::pieces`].
    Pieces,
    /// [`InboxLimits::streams`].
    Streams,
    /// [`InboxLimits::gaps_per_stream`].
    GapsPerStream,
    /// [`InboxLimits::gaps`].
    Gaps,
    /// [`InboxLimits::streams_per_message`].
    StreamsPerMessage,
    /// [`InboxLimits::id_gaps`].
    IdGaps,
    /// [`InboxLimits::actions`].
    Actions,
}

impl fmt::Display for InboxLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMessages => "open_messages",
            Self::Ahead => "ahead",
            Self::AheadPiecesPerMessage => "ahead_pieces_per_message",
            Self::ParkedPerStream => "parked_per_stream",
            Self::Parked => "parked",
            Self::Pieces => "pieces",
            Self::Streams => "streams",
            Self::GapsPerStream => "gaps_per_stream",
            Self::Gaps => "gaps",
            Self::StreamsPerMessage => "streams_per_message",
            Self::IdGaps => "id_gaps",
            Self::Actions => "actions",
        })
    }
}
