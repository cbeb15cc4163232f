//! What an inbox hands out: pieces of messages, things to do, and counts.

use bytes::Bytes;
use marcato_units::{Bytes as ByteCount, Priority};
use marcato_wire::MessageNumber;

/// The next bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whose bytes: the peer's number for the message.
    pub message: MessageNumber,
    /// What the message matters.
    pub priority: Priority,
    /// Where in the message they begin: where the piece before ended.
    pub offset: ByteCount,
    /// The bytes; none only if `last`.
    pub bytes: Bytes,
    /// Whether the message is now complete.
    pub last: bool,
}

/// What the session has to do, or to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send STOP_SENDING with [`ErrorCode::Settled`](marcato_wire::ErrorCode::Settled): what the stream still carries is
    /// not wanted. The inbox ignores whatever comes on it from now on.
    Stop {
        /// The stream, opened by the peer.
        stream: u64,
    },
    /// Send DONE for the message: on this stream if it is bidirectional, else on our control stream.
    Done {
        /// The stream that asked for it.
        stream: u64,
        /// The message, which is settled.
        message: MessageNumber,
    },
    /// Tell the application that the peer gave the message up: what was read of it is void, and no more comes.
    Reset {
        /// The message. The application may never have heard of it.
        message: MessageNumber,
        /// Why, in the words of the application.
        code: u64,
    },
    /// The peer wants no more of a message that *we* sent: DONE came.
    Acknowledged {
        /// The stream on which it came: ours if bidirectional, which may now be used again, else the control stream.
        stream: u64,
        /// The message, by our number. Nobody has checked that there is one.
        message: MessageNumber,
    },
}

/// What an inbox has seen since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxCounters {
    /// Frames whose header was read.
    pub frames: u64,
    /// Frames whose payload was placed by a twin's header before their own.
    pub foretold: u64,
    /// Payload that was new to its message.
    pub accepted: ByteCount,
    /// Payload that its message had already from another stream: the price of copies.
    pub duplicate: ByteCount,
    /// Bytes that their stream had already.
    pub repeated: ByteCount,
    /// Payload of settled messages, and bytes of streams that were stopped, reset or have ended.
    pub late: ByteCount,
    /// Payload that had arrived but not been read when its message was given up.
    pub discarded: ByteCount,
    /// Messages that became complete.
    pub completed: u64,
    /// Messages that the peer gave up before they were complete.
    pub given_up: u64,
    /// Streams that the peer reset.
    pub resets: u64,
    /// [`Action::Stop`]s.
    pub stops: u64,
    /// [`Action::Done`]s.
    pub dones: u64,
    /// [`Action::Acknowledged`]s.
    pub acknowledged: u64,
    /// Hints of twins that were forgotten for want of room.
    pub hints_evicted: u64,
    /// The most bytes that were readable at once.
    pub unread_peak: ByteCount,
    /// The most bytes that were ahead of a gap at once.
    pub ahead_peak: ByteCount,
    /// The most bytes that waited for a frame header at once.
    pub parked_peak: ByteCount,
}

/// What an inbox holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxLoad {
    /// Bytes that can be read.
    pub unread: ByteCount,
    /// Pieces that can be read.
    pub unread_pieces: usize,
    /// Complete messages of which a part was not read.
    pub unread_messages: usize,
    /// Messages of which something is missing.
    pub open_messages: usize,
    /// Bytes that arrived ahead of a gap in their message.
    pub ahead: ByteCount,
    /// Pieces that did.
    pub ahead_pieces: usize,
    /// Bytes that wait for a frame header.
    pub parked: ByteCount,
    /// Pieces that do.
    pub parked_pieces: usize,
    /// Streams of which something is missing.
    pub streams: usize,
    /// Gaps in what has arrived of them.
    pub gaps: usize,
    /// Streams whose content a twin's header has told.
    pub hints: usize,
    /// Gaps between the numbers of settled messages.
    pub id_gaps: usize,
    /// Actions to be polled.
    pub actions: usize,
}
