//! Errors of an inbox.

use marcato_units::{Bytes, Priority};
use marcato_wire::{ErrorCode, FrameError, MessageNumber};

use super::limits::InboxLimit;

/// Violation of the protocol or of a limit by the peer. All are fatal: close the connection with
/// [`code`](Self::code).
///
/// Offsets `at` are those in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The bytes where a frame has to begin are no frame.
    #[error("invalid frame at byte {at} of stream {stream}: {error}")]
    Frame {
        /// Stream on which the bytes arrived.
        stream: u64,
        /// Offset at which the frame would begin.
        at: u64,
        /// Error of the decoder, with offsets relative to `at`.
        #[source]
        error: FrameError,
    },
    /// This stream cannot carry data to us: it is our own unidirectional stream, or no QUIC stream
    /// has this id.
    #[error(
        "stream {stream} cannot deliver data: it is this end's own unidirectional stream, or does not exist"
    )]
    NotReceiving {
        /// Number of the stream.
        stream: u64,
    },
    /// Bytes, or an announced payload, lie beyond the largest offset of a QUIC stream.
    #[error("stream {stream} would exceed 2^62 bytes, the maximum of a QUIC stream")]
    StreamTooLong {
        /// Number of the stream.
        stream: u64,
    },
    /// The stream ends at two offsets, or before bytes that it has. RFC 9000 §4.5.
    #[error("stream {stream} ends at byte {end}, but it has ended elsewhere or has bytes beyond")]
    FinalSize {
        /// Number of the stream.
        stream: u64,
        /// Later of the two ends.
        end: u64,
    },
    /// The stream ends within a frame.
    #[error("stream {stream} ends at byte {end}, within a frame: it must carry whole frames")]
    CutShort {
        /// Number of the stream.
        stream: u64,
        /// End of the stream.
        end: u64,
    },
    /// The frame is not allowed on this kind of stream.
    #[error(
        "the frame at byte {at} of stream {stream} is not allowed there: MESSAGE goes on message streams, \
         RESET, DONE, REPORT and END on the control stream, DONE alone in the reverse direction of a bidirectional stream"
    )]
    Misplaced {
        /// Number of the stream.
        stream: u64,
        /// Offset at which the frame begins.
        at: u64,
    },
    /// A second control stream was opened.
    #[error("stream {stream} is a second control stream: each end may open one")]
    SecondControlStream {
        /// Number of the second control stream.
        stream: u64,
    },
    /// Bytes follow a frame that has to be the stream's last, at least until DONE has been sent for
    /// it.
    #[error(
        "bytes follow the message at byte {at} of stream {stream}: a unidirectional stream carries one, a bidirectional \
         stream the next after DONE"
    )]
    AfterMessage {
        /// Number of the stream.
        stream: u64,
        /// End of the payload.
        at: u64,
    },
    /// Two frames of one message have different priorities.
    #[error(
        "message {message} arrived with {was} and with {now}: all its frames must have its first priority"
    )]
    Priority {
        /// Number of the message.
        message: MessageNumber,
        /// Priority of its first frame.
        was: Priority,
        /// Priority of the later frame.
        now: Priority,
    },
    /// Frames of one message differ in what they ask for, or in their exchange.
    #[error("message {message} has frames that differ in REPORT, REQUEST, REPLY or the exchange")]
    FlagsDiffer {
        /// Number of the message.
        message: MessageNumber,
    },
    /// Two frames of one message with LAST have different ends.
    #[error("message {message} ends at {was} and at {now}: it must have one end")]
    TwoEnds {
        /// Number of the message.
        message: MessageNumber,
        /// End given first.
        was: Bytes,
        /// End given later.
        now: Bytes,
    },
    /// A frame reaches beyond the message's end.
    #[error("message {message} ends at {end}, but has bytes up to {reach}")]
    BeyondEnd {
        /// Number of the message.
        message: MessageNumber,
        /// End of the message.
        end: Bytes,
        /// End of the payload of one of its frames.
        reach: Bytes,
    },
    /// Two frames with payload end at the same offset, and only one has LAST.
    #[error("message {message} has frames up to {end} with and without LAST: they must agree")]
    LastDiffers {
        /// Number of the message.
        message: MessageNumber,
        /// Common end of both frames.
        end: Bytes,
    },
    /// A copy does not match the header of another copy, in position or content.
    #[error(
        "stream {stream} does not carry the copy of message {message} that another copy's header announced"
    )]
    DuplicateDiffers {
        /// Stream of the copy.
        stream: u64,
        /// Message announced by the other copy's header.
        message: MessageNumber,
    },
    /// The peer exceeded a limit of this end.
    #[error(
        "the peer exceeded the limit {limit} of {most}: it must send less at once, or this end must raise InboxLimits::{limit}"
    )]
    Limit {
        /// Limit that was exceeded.
        limit: InboxLimit,
        /// Value of the limit.
        most: u64,
    },
    /// The caller continued feeding although the inbox did not want data. Not the peer's fault.
    #[error("the inbox was fed twice its limit of unread data: stop feeding it while wants_data() is false")]
    Overfed,
}

impl InboxError {
    /// Returns the error code to close the connection with.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Limit { .. } | Self::Overfed => ErrorCode::LimitExceeded,
            _ => ErrorCode::ProtocolViolation,
        }
    }
}
