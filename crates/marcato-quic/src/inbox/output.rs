//! Output of an inbox: pieces of messages, actions and counters.

use bytes::Bytes as Payload;
use marcato_units::{Bytes, Priority};
use marcato_wire::{EndReason, Exchange, Fate, MessageNumber};

/// Next bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The peer's number for the message.
    pub message: MessageNumber,
    /// Priority of the message.
    pub priority: Priority,
    /// Set if its sender asks for a [report](crate::Session::report).
    pub report: bool,
    /// Part of the message in an exchange.
    pub exchange: Exchange,
    /// Set if bytes of the message arrived before the handshake was complete.
    pub early: bool,
    /// Offset in the message: the end of the piece before.
    pub offset: Bytes,
    /// Content; empty only if `last`.
    pub bytes: Payload,
    /// Set if the message is now complete.
    pub last: bool,
}

/// Action that the session has to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send STOP_SENDING with [`ErrorCode::Settled`](marcato_wire::ErrorCode::Settled): the rest of
    /// the stream is not wanted. The inbox ignores its bytes from now on.
    Stop {
        /// Stream, opened by the peer.
        stream: u64,
    },
    /// Send DONE for the message: on this stream if it is bidirectional, else on our control
    /// stream.
    Done {
        /// Stream that requested the receipt.
        stream: u64,
        /// Message, which is settled.
        message: MessageNumber,
    },
    /// Inform the application that the peer abandoned the message: the bytes already read are void,
    /// and no more follow.
    Reset {
        /// Message; the application may never have seen any of it.
        message: MessageNumber,
        /// Reason, as a code of the application.
        code: u64,
    },
    /// The peer sent DONE: it wants no more of a message that *we* sent.
    Acknowledged {
        /// Stream on which DONE arrived. It is ours if bidirectional, and may be used again; else
        /// it is the control stream.
        stream: u64,
        /// Message, by our number. The inbox has not checked that it exists.
        message: MessageNumber,
    },
    /// The peer sent REPORT: its application has taken a message that *we* sent, or discarded it.
    Reported {
        /// Message, by our number. The inbox has not checked that it exists.
        message: MessageNumber,
        /// Fate of the message.
        fate: Fate,
    },
    /// The peer sent END: it ends an exchange without a reply.
    Ended {
        /// Number of the exchange. The inbox has not checked that it exists.
        exchange: u64,
        /// Reason for its end.
        reason: EndReason,
    },
    /// The peer sent FINISH: it begins no more messages, and all its messages have arrived.
    Finished,
    /// The peer sent HOLD: it wants no more data of this level for now, or wants it again.
    Held {
        /// Level concerned.
        priority: Priority,
        /// Set to hold the level.
        held: bool,
    },
    /// The peer sent WATCH: it wants this end's clock while data arrives.
    Watched {
        /// Interval in ms; 0 if it wants no more.
        interval: u64,
    },
    /// The peer sent CLOCK.
    Clock {
        /// Its clock in ms, modulo 2^32.
        time: u32,
    },
}

/// Counters of an inbox since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxCounters {
    /// Frames whose header was read.
    pub frames: u64,
    /// Frames whose payload was placed by another copy's header before their own arrived.
    pub announced: u64,
    /// Payload that was new to its message.
    pub accepted: Bytes,
    /// Payload that another stream had already delivered: the cost of copies.
    pub duplicate: Bytes,
    /// Bytes that their stream had already received.
    pub repeated: Bytes,
    /// Payload of settled messages, and bytes of streams that were stopped, reset or have ended.
    pub late: Bytes,
    /// Payload that had arrived but not been read when its message was abandoned.
    pub discarded: Bytes,
    /// Messages that became complete.
    pub completed: u64,
    /// Messages that the peer abandoned before they were complete.
    pub given_up: u64,
    /// Streams that the peer reset.
    pub resets: u64,
    /// [`Action::Stop`]s.
    pub stops: u64,
    /// [`Action::Done`]s.
    pub dones: u64,
    /// [`Action::Acknowledged`]s.
    pub acknowledged: u64,
    /// [`Action::Reported`]s.
    pub reported: u64,
    /// [`Action::Ended`]s.
    pub ended: u64,
    /// Hints from other copies that were evicted for lack of room.
    pub hints_evicted: u64,
    /// Largest number of readable bytes at once.
    pub unread_peak: Bytes,
    /// Largest number of bytes ahead of a gap at once.
    pub ahead_peak: Bytes,
    /// Largest number of bytes parked for a frame header at once.
    pub parked_peak: Bytes,
}

/// Current load of an inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxLoad {
    /// Bytes that can be read.
    pub unread: Bytes,
    /// Pieces that can be read.
    pub unread_pieces: usize,
    /// Complete messages not wholly read.
    pub unread_messages: usize,
    /// Messages with missing bytes.
    pub open_messages: usize,
    /// Bytes that arrived ahead of a gap in their message.
    pub ahead: Bytes,
    /// Pieces that arrived ahead of a gap in their message.
    pub ahead_pieces: usize,
    /// Bytes parked for a frame header.
    pub parked: Bytes,
    /// Pieces parked for a frame header.
    pub parked_pieces: usize,
    /// Streams with missing bytes.
    pub streams: usize,
    /// Gaps in these streams.
    pub gaps: usize,
    /// Streams whose content is known from another copy's header.
    pub hints: usize,
    /// Gaps between the numbers of settled messages.
    pub id_gaps: usize,
    /// Actions not yet polled.
    pub actions: usize,
}
