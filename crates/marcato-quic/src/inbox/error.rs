//! Why an inbox refuses to go on.

use marcato_units::{Bytes, Priority};
use marcato_wire::{ErrorCode, FrameError, MessageNumber};

use super::limits::InboxLimit;

/// What a peer must not do. All are fatal: close the connection with [`code`](Self::code).
///
/// Offsets `at` are those in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboxError {
    /// Bytes that are no frame stand where a frame has to begin.
    #[error("no frame begins at byte {at} of stream {stream}: {error}")]
    Frame {
        /// The stream.
        stream: u64,
        /// Where the frame would begin.
        at: u64,
        /// What is wrong with it, by the byte from there.
        #[source]
        error: FrameError,
    },
    /// Nothing can come on this stream: it is unidirectional and ours, or no QUIC stream has this id.
    #[error("stream {stream} brings nothing: it is our own unidirectional stream, or no stream at all")]
    NotReceiving {
        /// The stream.
        stream: u64,
    },
    /// Bytes, or a payload that a header announces, lie beyond the last that a QUIC stream has.
    #[error("stream {stream} would go on beyond byte 2^62: no QUIC stream does")]
    StreamTooLong {
        /// The stream.
        stream: u64,
    },
    /// The stream ends at two places, or before bytes that it has. RFC 9000 §4.5.
    #[error("stream {stream} ends at byte {end}, but it has ended elsewhere or has bytes beyond")]
    FinalSize {
        /// The stream.
        stream: u64,
        /// Its later end.
        end: u64,
    },
    /// The stream ends within a frame.
    #[error("stream {stream} ends at byte {end}, within a frame: it must carry whole frames")]
    CutShort {
        /// The stream.
        stream: u64,
        /// Its end.
        end: u64,
    },
    /// The frame may not stand on this kind of stream.
    #[error(
        "the frame at byte {at} of stream {stream} may not be there: MESSAGE goes on message streams, RESET and DONE \
         on the control stream, DONE alone on the way back of a bidirectional stream"
    )]
    Misplaced {
        /// The stream.
        stream: u64,
        /// Where the frame begins.
        at: u64,
    },
    /// A second control stream was opened.
    #[error("stream {stream} is a second control stream: each end may open one")]
    SecondControlStream {
        /// The stream.
        stream: u64,
    },
    /// Bytes follow a frame that has to be the stream's last, at least until DONE has been sent for it.
    #[error(
        "bytes follow the message at byte {at} of stream {stream}: a unidirectional stream carries one, a bidirectional \
         stream the next after DONE"
    )]
    AfterMessage {
        /// The stream.
        stream: u64,
        /// Where the payload ends.
        at: u64,
    },
    /// Two frames of one message have two priorities.
    #[error("message {message} came with {was} and with {now}: all its frames must have its first priority")]
    Priority {
        /// The message.
        message: MessageNumber,
        /// What its first frame said.
        was: Priority,
        /// What a later one says.
        now: Priority,
    },
    /// Two frames of one message say LAST at two places.
    #[error("message {message} ends at {was} and at {now}: it must have one end")]
    TwoEnds {
        /// The message.
        message: MessageNumber,
        /// The end as first told.
        was: Bytes,
        /// The end as told later.
        now: Bytes,
    },
    /// A frame reaches beyond the message's end.
    #[error("message {message} ends at {end}, but has bytes up to {reach}")]
    BeyondEnd {
        /// The message.
        message: MessageNumber,
        /// Its end.
        end: Bytes,
        /// Where the payload of one of its frames ends.
        reach: Bytes,
    },
    /// Of two frames with payload that end at one place, one says LAST and the other does not.
    #[error("message {message} has frames up to {end} with and without LAST: they must agree")]
    LastDiffers {
        /// The message.
        message: MessageNumber,
        /// Where both frames end.
        end: Bytes,
    },
    /// A copy is not where, or what, its twin's header says.
    #[error("stream {stream} does not carry the copy of message {message} that a twin's header promised")]
    Twin {
        /// The stream.
        stream: u64,
        /// The message that was promised.
        message: MessageNumber,
    },
    /// The peer exceeded what this end takes.
    #[error(
        "the peer exceeded the limit {limit} of {most}: it sends less at once, or InboxLimits::{limit} is raised"
    )]
    Limit {
        /// Which limit.
        limit: InboxLimit,
        /// Its value.
        most: u64,
    },
    /// The caller went on feeding although the inbox did not want data. Not the peer's fault.
    #[error("the inbox was fed twice what may be unread: stop feeding it while wants_data() is false")]
    Overfed,
}

impl InboxError {
    /// What to close the connection with.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Limit { .. } | Self::Overfed => ErrorCode::LimitExceeded,
            _ => ErrorCode::ProtocolViolation,
        }
    }
}
