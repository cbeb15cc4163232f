//! Message frames of Marcato, on TCP connections and on QUIC streams.
//!
//! `docs/wire.md` is the normative description; this file follows it field by field.

use core::fmt;

use marcato_units::{Bytes, Priority};

use crate::varint::VarInt;

/// Name of the protocol in TLS's application-layer protocol negotiation (RFC 7301).
pub const ALPN: &[u8] = b"marcato/2";

/// Upper bound of a frame header's length, however its integers are written; with the fewest bytes
/// it takes at most 37.
pub const MAX_FRAME_HEADER: usize = MAX_SINGLE_HEADER + VarInt::MAX_LEN;

/// Upper bound of the header's length of a frame that belongs to no exchange.
pub const MAX_SINGLE_HEADER: usize = 4 * VarInt::MAX_LEN + 4;

/// Largest number of streams on which one run of bytes may travel at once.
pub const MAX_COPIES: u8 = 16;

/// Largest length in bytes of the reason that an application gives for the end of a connection.
pub const MAX_REASON: usize = 512;

const MESSAGE: u8 = 1;
const RESET: u8 = 2;
const DONE: u8 = 3;
const REPORT: u8 = 4;
const END: u8 = 5;
const FINISH: u8 = 6;
const CLOSE: u8 = 7;
const HOLD: u8 = 8;
const WATCH: u8 = 9;
const CLOCK: u8 = 10;

const LAST: u8 = 0x01;
const RECEIPT: u8 = 0x02;
const COPIES: u8 = 0x04;
const ASKS_REPORT: u8 = 0x08;
const REQUEST: u8 = 0x10;
const REPLY: u8 = 0x20;
const STREAM: u8 = 0x40;
const FLAGS: u8 = LAST | RECEIPT | COPIES | ASKS_REPORT | REQUEST | REPLY | STREAM;

/// Number of a message on the wire. Each sender counts up from 0, in the order in which it first
/// sends of each.
///
/// It is at most 2^62 − 1: a larger one cannot be [encoded](Frame::encode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageNumber(pub u64);

impl fmt::Display for MessageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Index of one of the copies of a run of bytes.
///
/// The copies travel on consecutive QUIC streams of one kind, in the order of their indices. Each
/// has the same offset in its stream, behind a header of the same length. So the header of any copy
/// gives the offset of all payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duplicate {
    /// Index of this copy, from 0 (included) to `copies` (excluded).
    pub index: u8,
    /// Number of copies: 2 to [`MAX_COPIES`].
    pub copies: u8,
}

/// MESSAGE frame: `len` bytes of a message follow its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageFrame {
    /// Number of the message.
    pub id: MessageNumber,
    /// Priority of the message, the same in all of its frames.
    pub priority: Priority,
    /// Offset of the payload in the message.
    pub offset: Bytes,
    /// Number of payload bytes that follow; 0 only with `last`.
    pub len: Bytes,
    /// True if the message ends with the payload.
    pub last: bool,
    /// True if the sender asks for [`Frame::Done`] once the receiver wants no more of the message.
    pub receipt: bool,
    /// True if the sender asks for [`Frame::Report`] once the receiving application has taken the
    /// message. The same in all frames of a message.
    pub report: bool,
    /// Part of the message in an exchange, or that it is a stream. The same in all frames of a message.
    pub exchange: Exchange,
    /// Index of this copy, if there are several.
    pub duplicate: Option<Duplicate>,
}

/// Part of a message in an exchange: a request and its reply. The end that sends the request
/// chooses the number of the exchange, at most 2^62 − 1. A stream belongs to none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Exchange {
    /// The message belongs to no exchange.
    #[default]
    None,
    /// The message is the request of this exchange.
    Request(u64),
    /// The message is the reply of this exchange.
    Reply(u64),
    /// The message is a stream: the receiver hands out its bytes as they come.
    Stream,
}

impl Exchange {
    /// Number of the exchange, if there is one.
    pub const fn number(self) -> Option<u64> {
        match self {
            Self::None | Self::Stream => None,
            Self::Request(number) | Self::Reply(number) => Some(number),
        }
    }
}

/// Reason for which an exchange ends without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Its requester wants no reply any more.
    Withdrawn,
    /// The application at the other end will not reply.
    Unanswered,
    /// The other end has too many open requests.
    Refused,
}

impl EndReason {
    const ALL: [Self; 3] = [Self::Withdrawn, Self::Unanswered, Self::Refused];
}

/// Fate of a complete message at the receiving application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The application has taken all of it.
    Taken,
    /// The application has discarded it, or a part of it.
    Discarded,
}

impl Fate {
    const ALL: [Self; 2] = [Self::Taken, Self::Discarded];
}

/// Manner in which an application ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manner {
    /// After everything that it had to send was delivered.
    Closed,
    /// At once: messages may be lost.
    Aborted,
}

impl Manner {
    const ALL: [Self; 2] = [Self::Closed, Self::Aborted];
}

impl MessageFrame {
    /// End of the payload in the message: `offset` + `len`.
    pub fn end(&self) -> Bytes {
        self.offset + self.len
    }
}

/// Frame; of a MESSAGE, its header.
///
/// ```
/// use marcato_units::{Bytes, Priority};
/// use marcato_wire::{Decoded, Exchange, Frame, MAX_FRAME_HEADER, MessageFrame, MessageNumber};
/// let greeting = Frame::Message(MessageFrame {
///     id: MessageNumber(7),
///     priority: Priority::P0,
///     offset: Bytes::ZERO,
///     len: Bytes::new(5),
///     last: true,
///     receipt: false,
///     report: false,
///     exchange: Exchange::None,
///     duplicate: None,
/// });
/// let mut out = [0; MAX_FRAME_HEADER];
/// let written = greeting.encode(&mut out)?;
/// assert_eq!(out[..written], [0x01, 0x07, 0x00, 0x01, 0x00, 0x05]);
/// assert_eq!(Frame::decode(&out)?, Decoded::Frame { frame: greeting, len: written });
/// assert_eq!(Frame::decode(&out[..2])?, Decoded::Incomplete { needed: 6 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Type 1: a run of a message's bytes follows.
    Message(MessageFrame),
    /// Type 2: the sender abandons a message. The receiver's part of it is void, unless that is the
    /// whole.
    Reset {
        /// Number of the message.
        id: MessageNumber,
        /// Reason code of the application; at most 2^62 − 1.
        code: u64,
    },
    /// Type 3: the receiver wants no more of a message: it has the whole, or received a RESET.
    Done {
        /// Number of the message.
        id: MessageNumber,
    },
    /// Type 4: the receiver's application has taken a complete message, or has discarded it.
    Report {
        /// Number of the message.
        id: MessageNumber,
        /// Fate of the message at the application.
        fate: Fate,
    },
    /// Type 5: an exchange ends without a reply.
    End {
        /// Number of the exchange.
        exchange: u64,
        /// Reason for its end.
        reason: EndReason,
    },
    /// Type 6: the sender begins no more messages.
    Finish,
    /// Type 7: the application ends the connection. `len` bytes of its reason, text in UTF-8, follow
    /// this header. Only on TCP; QUIC has CONNECTION_CLOSE.
    Close {
        /// Manner of the end.
        manner: Manner,
        /// Code of the application.
        code: u32,
        /// Length of the reason, at most [`MAX_REASON`].
        len: usize,
    },
    /// Type 8: the receiver asks for no more data of a level for now, or for more again.
    Hold {
        /// Level concerned.
        priority: Priority,
        /// Set to hold the level, unset to release it.
        held: bool,
    },
    /// Type 9: the sender of messages asks for [`Frame::Clock`] at this interval, while they arrive.
    Watch {
        /// Interval in ms; 0 if it wants no more. At most 2^62 − 1.
        interval: u64,
    },
    /// Type 10: the receiver's clock when this frame left. The time that it takes to arrive tells the
    /// queueing on the way back.
    Clock {
        /// Time in ms since an arbitrary beginning, modulo 2^32.
        time: u32,
    },
}

/// Result of reading a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decoded {
    /// Complete frame, of a MESSAGE the header.
    Frame {
        /// Frame that was read.
        frame: Frame,
        /// Number of bytes that it took, of a MESSAGE its header only. At most
        /// [`MAX_FRAME_HEADER`].
        len: usize,
    },
    /// Part of a frame, valid so far.
    Incomplete {
        /// Least number of bytes of the frame, those given included: reading fewer again gives the
        /// same result.
        needed: usize,
    },
}

/// Error returned for bytes that are no frame. Offsets count from the frame's first byte, and are
/// those of the field's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The type is unknown, and so is the length of the frame.
    #[error(
        "frame type {value} at byte {at} is unknown: it must be 1 (MESSAGE), 2 (RESET), 3 (DONE), 4 (REPORT), 5 (END), 6 (FINISH), 7 (CLOSE), 8 (HOLD), 9 (WATCH) or 10 (CLOCK)"
    )]
    Type {
        /// Offset of the type.
        at: usize,
        /// Type that was read.
        value: u64,
    },
    /// The priority is none of the five.
    #[error("priority {value} at byte {at} is unknown: it must be 0 to 4")]
    Priority {
        /// Offset of the priority.
        at: usize,
        /// Value instead of a priority.
        value: u8,
    },
    /// The reason for the end of an exchange is unknown.
    #[error(
        "reason {value} at byte {at} is unknown: it must be 0 (WITHDRAWN), 1 (UNANSWERED) or 2 (REFUSED)"
    )]
    Reason {
        /// Offset of the reason.
        at: usize,
        /// Value instead of a reason.
        value: u8,
    },
    /// The message is two of a request, a reply and a stream.
    #[error("flags {value:#04x} at byte {at} have two of REQUEST, REPLY and STREAM: set one of them")]
    Exchange {
        /// Offset of the flags.
        at: usize,
        /// All flags.
        value: u8,
    },
    /// A reserved bit is set.
    #[error("flags {value:#04x} at byte {at} have a reserved bit set: only those of 0x7f are allowed")]
    Flags {
        /// Offset of the flags.
        at: usize,
        /// All flags.
        value: u8,
    },
    /// The fate of a message is unknown.
    #[error("fate {value} at byte {at} is unknown: it must be 0 (TAKEN) or 1 (DISCARDED)")]
    Fate {
        /// Offset of the fate.
        at: usize,
        /// Value instead of a fate.
        value: u8,
    },
    /// The manner of an end is unknown.
    #[error("manner {value} at byte {at} is unknown: it must be 0 (CLOSED) or 1 (ABORTED)")]
    Manner {
        /// Offset of the manner.
        at: usize,
        /// Value instead of a manner.
        value: u8,
    },
    /// The application's code for the end is too large.
    #[error("code {value} at byte {at} is too large: it must stay below 2^32")]
    Code {
        /// Offset of the code.
        at: usize,
        /// Code that was read.
        value: u64,
    },
    /// The reason for the end is too long.
    #[error("a reason of {len} bytes at byte {at} is too long: it has at most 512")]
    ReasonLength {
        /// Offset of the length.
        at: usize,
        /// Length that was read.
        len: u64,
    },
    /// The state of a level is unknown.
    #[error("state {value} at byte {at} is unknown: it must be 0 (RELEASED) or 1 (HELD)")]
    Held {
        /// Offset of the state.
        at: usize,
        /// Value instead of a state.
        value: u8,
    },
    /// The time of a clock is too large.
    #[error("time {value} at byte {at} is too large: it must stay below 2^32")]
    Clock {
        /// Offset of the time.
        at: usize,
        /// Time that was read.
        value: u64,
    },
    /// The copy's index or the number of copies is out of range.
    #[error("invalid copy {index} of {copies} at byte {at}: there must be 2 to 16 copies, counted from 0")]
    Duplicate {
        /// Offset of the copy's index; the number of copies is the byte after.
        at: usize,
        /// Index of the copy.
        index: u8,
        /// Number of copies.
        copies: u8,
    },
    /// The frame has neither payload nor the end of a message.
    #[error("length 0 at byte {at} without LAST: the length must be 1 or more, or LAST be set")]
    Empty {
        /// Offset of the length.
        at: usize,
    },
    /// The message exceeds the largest length.
    #[error("length {len} at byte {at} after offset {offset} is too large: their sum must stay below 2^62")]
    TooLong {
        /// Offset of the length.
        at: usize,
        /// Offset in the message.
        offset: Bytes,
        /// Length of the payload.
        len: Bytes,
    },
}

/// Error returned for a frame that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The buffer is too short. Nothing was written.
    #[error("the frame takes {needed} bytes but there is room for {room}: give it MAX_FRAME_HEADER")]
    NoRoom {
        /// Number of bytes that the frame takes.
        needed: usize,
        /// Length of the buffer.
        room: usize,
    },
    /// A number exceeds 2^62 − 1.
    #[error("{field} is {value}: it must stay below 2^62")]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// The message exceeds the largest length.
    #[error("offset {offset} and length {len} are too large: their sum must stay below 2^62")]
    TooLong {
        /// Offset in the message.
        offset: Bytes,
        /// Length of the payload.
        len: Bytes,
    },
    /// The frame has neither payload nor the end of a message.
    #[error("a MESSAGE without payload must be the last: omit it")]
    Empty,
    /// The reason for the end is too long.
    #[error("a reason has at most 512 bytes, not {len}: shorten it")]
    ReasonLength {
        /// Length of the reason.
        len: usize,
    },
    /// The copy's index or the number of copies is out of range.
    #[error("invalid copy {index} of {copies}: there must be 2 to 16 copies, counted from 0")]
    Duplicate {
        /// Index of the copy.
        index: u8,
        /// Number of copies.
        copies: u8,
    },
}

/// Integer in `field`, if it can be written.
fn varint(field: &'static str, value: u64) -> Result<VarInt, EncodeError> {
    VarInt::new(value).ok_or(EncodeError::TooLarge { field, value })
}

impl Duplicate {
    const fn is_possible(self) -> bool {
        self.copies >= 2 && self.copies <= MAX_COPIES && self.index < self.copies
    }
}

impl Frame {
    /// Length of the frame's message number, or of its exchange's; 0 if it has neither.
    fn subject_len(&self) -> Result<usize, EncodeError> {
        let (field, number) = match *self {
            Self::Message(MessageFrame { id, .. })
            | Self::Reset { id, .. }
            | Self::Done { id }
            | Self::Report { id, .. } => ("the message's number", id.0),
            Self::End { exchange, .. } => ("the exchange's number", exchange),
            Self::Finish
            | Self::Close { .. }
            | Self::Hold { .. }
            | Self::Watch { .. }
            | Self::Clock { .. } => return Ok(0),
        };
        Ok(varint(field, number)?.encoded_len())
    }

    /// Number of bytes that [`encode`](Self::encode) writes.
    ///
    /// # Errors
    /// [`EncodeError`] if the frame cannot be written into any buffer.
    pub fn encoded_len(&self) -> Result<usize, EncodeError> {
        let id = self.subject_len()?;
        Ok(match *self {
            Self::Message(message) => {
                let offset = varint("the offset", message.offset.get())?.encoded_len();
                let len = varint("the length", message.len.get())?.encoded_len();
                // Both terms are below 2^62, so the sum does not saturate.
                if message.end().get() > VarInt::MAX.get() {
                    return Err(EncodeError::TooLong { offset: message.offset, len: message.len });
                }
                if message.len.is_zero() && !message.last {
                    return Err(EncodeError::Empty);
                }
                let copies = match message.duplicate {
                    Some(duplicate) if duplicate.is_possible() => 2,
                    Some(Duplicate { index, copies }) => {
                        return Err(EncodeError::Duplicate { index, copies });
                    }
                    None => 0,
                };
                let exchange = match message.exchange.number() {
                    Some(number) => varint("the exchange's number", number)?.encoded_len(),
                    None => 0,
                };
                1 + id + 1 + 1 + copies + exchange + offset + len
            }
            Self::Reset { code, .. } => 1 + id + varint("the code", code)?.encoded_len(),
            Self::Done { .. } => 1 + id,
            Self::Report { .. } | Self::End { .. } => 1 + id + 1,
            Self::Finish => 1,
            Self::Close { len, .. } if len > MAX_REASON => return Err(EncodeError::ReasonLength { len }),
            Self::Close { code, len, .. } => {
                let code = varint("the code", code.into())?.encoded_len();
                1 + 1 + code + varint("the length", len as u64)?.encoded_len()
            }
            Self::Hold { .. } => 3,
            Self::Watch { interval } => 1 + varint("the interval", interval)?.encoded_len(),
            Self::Clock { time } => 1 + varint("the time", time.into())?.encoded_len(),
        })
    }

    /// Writes the frame to the beginning of `out`, and returns the number of bytes.
    ///
    /// Every integer takes the fewest bytes that hold it. [`MAX_FRAME_HEADER`] bytes are always
    /// enough.
    ///
    /// # Errors
    /// [`EncodeError`]; `out` is then unchanged.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let needed = self.encoded_len()?;
        let room = out.len();
        let out = out.get_mut(..needed).ok_or(EncodeError::NoRoom { needed, room })?;
        let mut writer = Writer { out };
        match *self {
            Self::Message(message) => {
                writer.byte(MESSAGE);
                writer.varint(message.id.0);
                // The index is 0 to 4.
                writer.byte(message.priority as u8);
                let flag = |set, bit| if set { bit } else { 0 };
                writer.byte(
                    flag(message.last, LAST)
                        | flag(message.receipt, RECEIPT)
                        | flag(message.duplicate.is_some(), COPIES)
                        | flag(message.report, ASKS_REPORT)
                        | flag(matches!(message.exchange, Exchange::Request(_)), REQUEST)
                        | flag(matches!(message.exchange, Exchange::Reply(_)), REPLY)
                        | flag(message.exchange == Exchange::Stream, STREAM),
                );
                if let Some(Duplicate { index, copies }) = message.duplicate {
                    writer.byte(index);
                    writer.byte(copies);
                }
                if let Some(exchange) = message.exchange.number() {
                    writer.varint(exchange);
                }
                writer.varint(message.offset.get());
                writer.varint(message.len.get());
            }
            Self::Reset { id, code } => {
                writer.byte(RESET);
                writer.varint(id.0);
                writer.varint(code);
            }
            Self::Done { id } => {
                writer.byte(DONE);
                writer.varint(id.0);
            }
            Self::Report { id, fate } => {
                writer.byte(REPORT);
                writer.varint(id.0);
                // The index is 0 or 1.
                writer.byte(fate as u8);
            }
            Self::End { exchange, reason } => {
                writer.byte(END);
                writer.varint(exchange);
                // The index is 0 to 2.
                writer.byte(reason as u8);
            }
            Self::Finish => writer.byte(FINISH),
            Self::Close { manner, code, len } => {
                writer.byte(CLOSE);
                // The index is 0 or 1.
                writer.byte(manner as u8);
                writer.varint(code.into());
                writer.varint(len as u64);
            }
            Self::Hold { priority, held } => {
                writer.byte(HOLD);
                writer.byte(priority as u8);
                writer.byte(held.into());
            }
            Self::Watch { interval } => {
                writer.byte(WATCH);
                writer.varint(interval);
            }
            Self::Clock { time } => {
                writer.byte(CLOCK);
                writer.varint(time.into());
            }
        }
        Ok(needed)
    }

    /// Reads the frame that `bytes` begin with; the bytes after it are ignored.
    ///
    /// Integers may take more bytes than they need, as in QUIC (RFC 9000 §16), the type's included.
    ///
    /// # Errors
    /// [`FrameError`] at the first byte with which no frame can continue.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, FrameError> {
        let mut reader = Reader { bytes, at: 0 };
        match reader.frame() {
            Ok(frame) => Ok(Decoded::Frame { frame, len: reader.at }),
            Err(Stop::Incomplete { needed }) => Ok(Decoded::Incomplete { needed }),
            Err(Stop::Malformed(error)) => Err(error),
        }
    }
}

/// Writer of fields into bytes that were counted beforehand.
struct Writer<'a> {
    out: &'a mut [u8],
}

impl Writer<'_> {
    fn byte(&mut self, byte: u8) {
        if let Some((first, rest)) = core::mem::take(&mut self.out).split_first_mut() {
            *first = byte;
            self.out = rest;
        }
    }

    fn varint(&mut self, value: u64) {
        let written = VarInt::new(value).and_then(|value| value.encode(self.out)).unwrap_or(0);
        self.out = core::mem::take(&mut self.out).get_mut(written..).unwrap_or_default();
    }
}

/// Reason for which reading a frame ended early.
enum Stop {
    Incomplete { needed: usize },
    Malformed(FrameError),
}

impl From<FrameError> for Stop {
    fn from(error: FrameError) -> Self {
        Self::Malformed(error)
    }
}

/// Reader of fields, with its position.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// Reads the next byte; the rest of the frame has at least `after` bytes.
    fn byte(&mut self, after: usize) -> Result<u8, Stop> {
        let &byte = self.bytes.get(self.at).ok_or(Stop::Incomplete { needed: self.at + 1 + after })?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads the next integer; the rest of the frame has at least `after` bytes.
    fn varint(&mut self, after: usize) -> Result<u64, Stop> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (value, len) = VarInt::decode(rest)
            .map_err(|truncated| Stop::Incomplete { needed: self.at + truncated.needed + after })?;
        self.at += len;
        Ok(value.get())
    }

    fn frame(&mut self) -> Result<Frame, Stop> {
        // The shortest frame, FINISH, is its type.
        let frame_type = self.varint(0)?;
        if frame_type == u64::from(MESSAGE) {
            self.message().map(Frame::Message)
        } else if frame_type == u64::from(RESET) {
            Ok(Frame::Reset { id: MessageNumber(self.varint(1)?), code: self.varint(0)? })
        } else if frame_type == u64::from(DONE) {
            Ok(Frame::Done { id: MessageNumber(self.varint(0)?) })
        } else if frame_type == u64::from(REPORT) {
            let id = MessageNumber(self.varint(1)?);
            let at = self.at;
            let value = self.byte(0)?;
            let fate = Fate::ALL.get(usize::from(value)).copied();
            Ok(Frame::Report { id, fate: fate.ok_or(FrameError::Fate { at, value })? })
        } else if frame_type == u64::from(END) {
            let exchange = self.varint(1)?;
            let at = self.at;
            let value = self.byte(0)?;
            let reason = EndReason::ALL.get(usize::from(value)).copied();
            Ok(Frame::End { exchange, reason: reason.ok_or(FrameError::Reason { at, value })? })
        } else if frame_type == u64::from(FINISH) {
            Ok(Frame::Finish)
        } else if frame_type == u64::from(CLOSE) {
            self.close()
        } else if frame_type == u64::from(HOLD) {
            let priority = self.priority(1)?;
            let at = self.at;
            match self.byte(0)? {
                value @ (0 | 1) => Ok(Frame::Hold { priority, held: value == 1 }),
                value => Err(FrameError::Held { at, value }.into()),
            }
        } else if frame_type == u64::from(WATCH) {
            Ok(Frame::Watch { interval: self.varint(0)? })
        } else if frame_type == u64::from(CLOCK) {
            let at = self.at;
            let value = self.varint(0)?;
            let time = u32::try_from(value).map_err(|_| FrameError::Clock { at, value })?;
            Ok(Frame::Clock { time })
        } else {
            Err(FrameError::Type { at: 0, value: frame_type }.into())
        }
    }

    /// Reads a priority; the rest of the frame has at least `after` bytes.
    fn priority(&mut self, after: usize) -> Result<Priority, Stop> {
        let at = self.at;
        let value = self.byte(after)?;
        let priority = Priority::from_index(usize::from(value));
        priority.ok_or(Stop::Malformed(FrameError::Priority { at, value }))
    }

    /// Reads the fields after the type of a CLOSE.
    fn close(&mut self) -> Result<Frame, Stop> {
        let at = self.at;
        let value = self.byte(2)?;
        let manner = Manner::ALL.get(usize::from(value)).copied().ok_or(FrameError::Manner { at, value })?;
        let at = self.at;
        let value = self.varint(1)?;
        let code = u32::try_from(value).map_err(|_| FrameError::Code { at, value })?;
        let at = self.at;
        let value = self.varint(0)?;
        let len = usize::try_from(value).ok().filter(|len| *len <= MAX_REASON);
        Ok(Frame::Close { manner, code, len: len.ok_or(FrameError::ReasonLength { at, len: value })? })
    }

    /// Reads the fields after the type of a MESSAGE.
    fn message(&mut self) -> Result<MessageFrame, Stop> {
        let id = MessageNumber(self.varint(4)?);
        let priority = self.priority(3)?;
        let at = self.at;
        let flags = self.byte(2)?;
        if flags & !FLAGS != 0 {
            return Err(FrameError::Flags { at, value: flags }.into());
        }
        if (flags & (REQUEST | REPLY | STREAM)).count_ones() > 1 {
            return Err(FrameError::Exchange { at, value: flags }.into());
        }
        let in_exchange = flags & (REQUEST | REPLY) != 0;
        let more = usize::from(in_exchange);
        let last = flags & LAST != 0;
        let duplicate = if flags & COPIES != 0 {
            let at = self.at;
            let duplicate = Duplicate { index: self.byte(3 + more)?, copies: self.byte(2 + more)? };
            if !duplicate.is_possible() {
                return Err(
                    FrameError::Duplicate { at, index: duplicate.index, copies: duplicate.copies }.into()
                );
            }
            Some(duplicate)
        } else {
            None
        };
        let exchange = match if in_exchange { Some(self.varint(2)?) } else { None } {
            Some(number) if flags & REQUEST != 0 => Exchange::Request(number),
            Some(number) => Exchange::Reply(number),
            None if flags & STREAM != 0 => Exchange::Stream,
            None => Exchange::None,
        };
        let offset = Bytes::new(self.varint(1)?);
        let at = self.at;
        let len = Bytes::new(self.varint(0)?);
        if (offset + len).get() > VarInt::MAX.get() {
            return Err(FrameError::TooLong { at, offset, len }.into());
        }
        if len.is_zero() && !last {
            return Err(FrameError::Empty { at }.into());
        }
        let (receipt, report) = (flags & RECEIPT != 0, flags & ASKS_REPORT != 0);
        Ok(MessageFrame { id, priority, offset, len, last, receipt, report, exchange, duplicate })
    }
}

/// Application error codes of Marcato in QUIC's STOP_SENDING, RESET_STREAM and CONNECTION_CLOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// CONNECTION_CLOSE: no error; all that the sender had to send was delivered.
    NoError,
    /// STOP_SENDING and the RESET_STREAM that answers it: the receiver wants no more of the
    /// message.
    Settled,
    /// RESET_STREAM: the sender continues without this stream; its data go elsewhere, or were
    /// abandoned.
    Abandoned,
    /// CONNECTION_CLOSE: the peer broke a rule of this protocol.
    ProtocolViolation,
    /// CONNECTION_CLOSE: the peer exceeded a limit of its receiver.
    LimitExceeded,
    /// CONNECTION_CLOSE: the application ended the connection before everything was delivered.
    Aborted,
    /// CONNECTION_CLOSE: the server has no room for the connection.
    Crowded,
    /// CONNECTION_CLOSE: the application ended the connection in this manner, and gave a code.
    Application(Manner, u32),
}

/// Codes of an application that closed a connection, and of one that aborted it, begin here.
const CLOSED: u64 = 1 << 32;
const ABORTED: u64 = 2 << 32;

impl ErrorCode {
    /// Code as QUIC carries it.
    pub const fn get(self) -> u64 {
        match self {
            Self::NoError => 0,
            Self::Settled => 1,
            Self::Abandoned => 2,
            Self::ProtocolViolation => 3,
            Self::LimitExceeded => 4,
            Self::Aborted => 5,
            Self::Crowded => 6,
            Self::Application(Manner::Closed, code) => CLOSED + code as u64,
            Self::Application(Manner::Aborted, code) => ABORTED + code as u64,
        }
    }

    /// Manner and application's code of the end that this code of CONNECTION_CLOSE stands for;
    /// `None` if it gives none.
    pub fn application(code: u64) -> Option<(Manner, u32)> {
        let manner = match code >> 32 {
            1 => Manner::Closed,
            2 => Manner::Aborted,
            _ => return None,
        };
        // The lower half has 32 bits.
        u32::try_from(code & 0xffff_ffff).ok().map(|code| (manner, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::vec::Vec;

    const HELLO: MessageFrame = MessageFrame {
        id: MessageNumber(7),
        priority: Priority::P0,
        offset: Bytes::ZERO,
        len: Bytes::new(5),
        last: true,
        receipt: false,
        report: false,
        exchange: Exchange::None,
        duplicate: None,
    };

    fn written(frame: Frame) -> Vec<u8> {
        let mut out = [0; MAX_FRAME_HEADER];
        let len = frame.encode(&mut out).unwrap();
        out[..len].to_vec()
    }

    /// Bytes of the example below this heading of docs/wire.md.
    fn example(description: &str, heading: &str) -> Vec<u8> {
        let (_, section) = description.split_once(heading).unwrap();
        let (_, example) = section.split_once("```hex\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        example
            .lines()
            .flat_map(|line| line.split('#').next().unwrap().split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect()
    }

    #[test]
    fn the_example_of_a_report_is_what_is_written() {
        let expected = example(include_str!("../../../docs/wire.md"), "### A REPORT");
        let frame = Frame::Report { id: MessageNumber(300), fate: Fate::Discarded };
        assert_eq!(written(frame), expected);
        assert_eq!(Frame::decode(&expected), Ok(Decoded::Frame { frame, len: expected.len() }));
    }

    #[test]
    fn the_example_of_an_end_is_what_is_written() {
        let expected = example(include_str!("../../../docs/wire.md"), "### The end of a connection");
        let mut ours = written(Frame::Hold { priority: Priority::P4, held: true });
        ours.extend(written(Frame::Finish));
        ours.extend(written(Frame::Close { manner: Manner::Closed, code: 300, len: 4 }));
        ours.extend(b"done");
        assert_eq!(ours, expected);
    }

    #[test]
    fn the_example_of_clocks_is_what_is_written() {
        let expected = example(include_str!("../../../docs/wire.md"), "### Clocks as an example");
        let mut ours = written(Frame::Watch { interval: 20 });
        ours.extend(written(Frame::Clock { time: 70_000 }));
        assert_eq!(ours, expected);
    }

    #[test]
    fn codes_of_an_application_are_apart_from_all_others() {
        for manner in Manner::ALL {
            for code in [0, 7, u32::MAX] {
                let sent = ErrorCode::Application(manner, code).get();
                assert_eq!(ErrorCode::application(sent), Some((manner, code)));
            }
        }
        assert_eq!(ErrorCode::Application(Manner::Aborted, 7).get(), 0x2_0000_0007);
        for other in [ErrorCode::NoError.get(), ErrorCode::Aborted.get(), 3 << 32, VarInt::MAX.get()] {
            assert_eq!(ErrorCode::application(other), None);
        }
    }

    #[test]
    fn the_example_of_an_exchange_is_what_is_written() {
        let expected = example(include_str!("../../../docs/wire.md"), "### An exchange");
        let message = |id, exchange, len| {
            let (id, len) = (MessageNumber(id), Bytes::new(len));
            Frame::Message(MessageFrame { id, exchange, len, receipt: true, ..HELLO })
        };
        let mut ours = written(message(7, Exchange::Request(64), 4));
        ours.extend(b"time");
        ours.extend(written(message(0, Exchange::Reply(64), 2)));
        ours.extend(b"12");
        ours.extend(written(Frame::End { exchange: 65, reason: EndReason::Unanswered }));
        assert_eq!(ours, expected);
    }

    #[test]
    fn the_example_of_the_wire_description_is_what_is_written() {
        let description = include_str!("../../../docs/wire.md");
        let expected = example(description, "### A MESSAGE");
        let frame = Frame::Message(MessageFrame {
            id: MessageNumber(300),
            priority: Priority::P1,
            offset: Bytes::new(16_384),
            len: Bytes::new(5),
            last: true,
            receipt: true,
            report: false,
            exchange: Exchange::None,
            duplicate: Some(Duplicate { index: 1, copies: 2 }),
        });
        let mut ours = written(frame);
        ours.extend(b"hello");
        assert_eq!(ours, expected);
        assert_eq!(Frame::decode(&expected), Ok(Decoded::Frame { frame, len: expected.len() - 5 }));
    }

    #[test]
    fn integers_in_more_bytes_than_they_need_are_read() {
        let mut long = [0_u8; MAX_FRAME_HEADER];
        let mut at = 0;
        for field in [&[0xc0, 0, 0, 0, 0, 0, 0, 1][..], &[0xc0, 0, 0, 0, 0, 0, 0, 7], &[0, 5 | REQUEST, 0, 2]]
        {
            long[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        long[at] = 0xc0;
        long[at + 7] = 9;
        long[at + 8] = 0xc0;
        long[at + 16] = 0xc0;
        long[at + 23] = 5;
        let frame = Frame::Message(MessageFrame {
            duplicate: Some(Duplicate { index: 0, copies: 2 }),
            exchange: Exchange::Request(9),
            ..HELLO
        });
        assert_eq!(Frame::decode(&long), Ok(Decoded::Frame { frame, len: MAX_FRAME_HEADER }));
    }

    /// By the tables of docs/wire.md: the shortest frame with this beginning.
    #[test]
    fn missing_bytes_are_counted_up_to_the_shortest_frame() {
        let incomplete: [(&[u8], usize); 29] = [
            (&[], 1),
            (&[CLOSE], 4),
            (&[CLOSE, 0], 4),
            (&[CLOSE, 0, 0x80], 7),
            (&[HOLD], 3),
            (&[HOLD, 0], 3),
            (&[WATCH], 2),
            (&[CLOCK], 2),
            (&[CLOCK, 0x80], 5),
            (&[DONE], 2),
            (&[RESET], 3),
            (&[RESET, 7], 3),
            (&[END], 3),
            (&[END, 7], 3),
            (&[MESSAGE, 7, 0, REQUEST], 7),
            (&[MESSAGE, 7, 0, REPLY, 0x40], 8),
            (&[MESSAGE, 7, 0, COPIES | REPLY, 0], 9),
            (&[REPORT], 3),
            (&[REPORT, 7], 3),
            (&[REPORT, 0x40], 4),
            (&[MESSAGE], 6),
            (&[MESSAGE, 7], 6),
            (&[MESSAGE, 7, 0], 6),
            (&[MESSAGE, 7, 0, 0], 6),
            (&[MESSAGE, 7, 0, 0, 0], 6),
            (&[MESSAGE, 7, 0, COPIES], 8),
            (&[MESSAGE, 7, 0, COPIES, 0], 8),
            (&[MESSAGE, 7, 0, COPIES, 0, 2, 0], 8),
            (&[MESSAGE, 0xc0], 13),
        ];
        for (bytes, needed) in incomplete {
            assert_eq!(Frame::decode(bytes), Ok(Decoded::Incomplete { needed }), "{bytes:?}");
        }
    }

    #[test]
    fn a_message_may_end_with_the_last_byte_that_can_be_counted() {
        let offset = Bytes::new(VarInt::MAX.get() - HELLO.len.get());
        let frame = Frame::Message(MessageFrame { offset, ..HELLO });
        let bytes = written(frame);
        assert_eq!(Frame::decode(&bytes), Ok(Decoded::Frame { frame, len: bytes.len() }));
    }

    #[test]
    fn error_codes_are_those_of_the_wire_description() {
        let description = include_str!("../../../docs/wire.md");
        let codes = [
            ("NO_ERROR", ErrorCode::NoError),
            ("SETTLED", ErrorCode::Settled),
            ("ABANDONED", ErrorCode::Abandoned),
            ("PROTOCOL_VIOLATION", ErrorCode::ProtocolViolation),
            ("LIMIT_EXCEEDED", ErrorCode::LimitExceeded),
            ("ABORTED", ErrorCode::Aborted),
            ("CROWDED", ErrorCode::Crowded),
        ];
        for (name, code) in codes {
            assert!(description.contains(&format!("| {} | {name} |", code.get())), "{name}");
        }
    }

    #[test]
    fn malformed_frames_are_refused_by_place_and_remedy() {
        let refused: [(&[u8], &str); 19] = [
            (&[7, 2], "manner 2 at byte 1 is unknown: it must be 0 (CLOSED) or 1 (ABORTED)"),
            (
                &[7, 0, 0xc0, 0, 0, 1, 0, 0, 0, 0, 0],
                "code 4294967296 at byte 2 is too large: it must stay below 2^32",
            ),
            (&[7, 0, 0, 0x42, 1], "a reason of 513 bytes at byte 3 is too long: it has at most 512"),
            (
                &[10, 0xc0, 0, 0, 1, 0, 0, 0, 0],
                "time 4294967296 at byte 1 is too large: it must stay below 2^32",
            ),
            (&[8, 5], "priority 5 at byte 1 is unknown: it must be 0 to 4"),
            (&[8, 0, 2], "state 2 at byte 2 is unknown: it must be 0 (RELEASED) or 1 (HELD)"),
            (
                &[0],
                "frame type 0 at byte 0 is unknown: it must be 1 (MESSAGE), 2 (RESET), 3 (DONE), 4 (REPORT), 5 (END), 6 (FINISH), 7 (CLOSE), 8 (HOLD), 9 (WATCH) or 10 (CLOCK)",
            ),
            (
                &[0x40, 0x63],
                "frame type 99 at byte 0 is unknown: it must be 1 (MESSAGE), 2 (RESET), 3 (DONE), 4 (REPORT), 5 (END), 6 (FINISH), 7 (CLOSE), 8 (HOLD), 9 (WATCH) or 10 (CLOCK)",
            ),
            (&[1, 7, 0, 0x31], "flags 0x31 at byte 3 have two of REQUEST, REPLY and STREAM: set one of them"),
            (&[1, 7, 0, 0x51], "flags 0x51 at byte 3 have two of REQUEST, REPLY and STREAM: set one of them"),
            (
                &[5, 7, 3],
                "reason 3 at byte 2 is unknown: it must be 0 (WITHDRAWN), 1 (UNANSWERED) or 2 (REFUSED)",
            ),
            (&[4, 7, 2], "fate 2 at byte 2 is unknown: it must be 0 (TAKEN) or 1 (DISCARDED)"),
            (&[1, 7, 5], "priority 5 at byte 2 is unknown: it must be 0 to 4"),
            (&[1, 7, 0, 129], "flags 0x81 at byte 3 have a reserved bit set: only those of 0x7f are allowed"),
            (
                &[1, 7, 0, 4, 0, 1],
                "invalid copy 0 of 1 at byte 4: there must be 2 to 16 copies, counted from 0",
            ),
            (
                &[1, 7, 0, 4, 2, 2],
                "invalid copy 2 of 2 at byte 4: there must be 2 to 16 copies, counted from 0",
            ),
            (
                &[1, 7, 0, 4, 2, 17],
                "invalid copy 2 of 17 at byte 4: there must be 2 to 16 copies, counted from 0",
            ),
            (
                &[1, 7, 0, 0, 9, 0],
                "length 0 at byte 5 without LAST: the length must be 1 or more, or LAST be set",
            ),
            (
                &[1, 7, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "length 1 B at byte 12 after offset 4611686018427387903 B is too large: their sum must stay below 2^62",
            ),
        ];
        for (bytes, words) in refused {
            assert_eq!(format!("{}", Frame::decode(bytes).unwrap_err()), words);
        }
    }

    #[test]
    fn a_frame_that_could_not_be_read_back_is_refused() {
        let mut out = [0xaa; MAX_FRAME_HEADER];
        let mut refused = |frame: Frame| frame.encode(&mut out).unwrap_err();
        let message = |change: fn(&mut MessageFrame)| {
            let mut frame = HELLO;
            change(&mut frame);
            Frame::Message(frame)
        };
        let large = 1 << 62;
        assert_eq!(
            refused(Frame::Done { id: MessageNumber(large) }),
            EncodeError::TooLarge { field: "the message's number", value: large }
        );
        assert_eq!(
            refused(Frame::Reset { id: MessageNumber(0), code: large }),
            EncodeError::TooLarge { field: "the code", value: large }
        );
        let len = MAX_REASON + 1;
        assert_eq!(
            refused(Frame::Close { manner: Manner::Closed, code: 0, len }),
            EncodeError::ReasonLength { len }
        );
        let field = "the exchange's number";
        assert_eq!(
            refused(Frame::End { exchange: large, reason: EndReason::Refused }),
            EncodeError::TooLarge { field, value: large }
        );
        assert_eq!(
            refused(message(|frame| frame.exchange = Exchange::Reply(1 << 62))),
            EncodeError::TooLarge { field, value: large }
        );
        assert_eq!(
            refused(message(|frame| frame.offset = Bytes::MAX)),
            EncodeError::TooLarge { field: "the offset", value: u64::MAX }
        );
        assert_eq!(
            refused(message(|frame| frame.offset = Bytes::new(VarInt::MAX.get()))),
            EncodeError::TooLong { offset: Bytes::new(VarInt::MAX.get()), len: Bytes::new(5) }
        );
        assert_eq!(
            refused(message(|frame| {
                frame.len = Bytes::ZERO;
                frame.last = false;
            })),
            EncodeError::Empty
        );
        assert_eq!(
            refused(message(|frame| frame.duplicate = Some(Duplicate { index: 0, copies: 17 }))),
            EncodeError::Duplicate { index: 0, copies: 17 }
        );
        assert_eq!(out, [0xaa; MAX_FRAME_HEADER]);
        assert_eq!(
            Frame::Message(HELLO).encode(&mut out[..5]),
            Err(EncodeError::NoRoom { needed: 6, room: 5 })
        );
        assert_eq!(out, [0xaa; MAX_FRAME_HEADER]);
    }

    /// Integers of all magnitudes.
    fn number() -> impl Strategy<Value = u64> {
        (0..=VarInt::MAX.get(), 0u32..62).prop_map(|(value, shift)| value >> shift)
    }

    prop_compose! {
        fn message()(
            id in number(), priority in 0..Priority::COUNT, offset in number(), len in number(), last: bool,
            receipt: bool, report: bool, exchange in exchange(), duplicate in prop::option::of((2..=MAX_COPIES).prop_flat_map(|copies| (0..copies, Just(copies))))
        ) -> Frame {
            let len = len.min(VarInt::MAX.get() - offset);
            Frame::Message(MessageFrame {
                id: MessageNumber(id),
                priority: Priority::ALL[priority],
                offset: Bytes::new(offset),
                len: Bytes::new(len),
                last: last || len == 0,
                receipt,
                report,
                exchange,
                duplicate: duplicate.map(|(index, copies)| Duplicate { index, copies }),
            })
        }
    }

    fn exchange() -> impl Strategy<Value = Exchange> {
        prop_oneof![
            Just(Exchange::None),
            Just(Exchange::Stream),
            number().prop_map(Exchange::Request),
            number().prop_map(Exchange::Reply)
        ]
    }

    fn frame() -> impl Strategy<Value = Frame> {
        prop_oneof![
            4 => message(),
            1 => (number(), number()).prop_map(|(id, code)| Frame::Reset { id: MessageNumber(id), code }),
            1 => number().prop_map(|id| Frame::Done { id: MessageNumber(id) }),
            1 => (number(), prop::sample::select(&Fate::ALL[..]))
                .prop_map(|(id, fate)| Frame::Report { id: MessageNumber(id), fate }),
            1 => (number(), prop::sample::select(&EndReason::ALL[..]))
                .prop_map(|(exchange, reason)| Frame::End { exchange, reason }),
            1 => Just(Frame::Finish),
            1 => (prop::sample::select(&Manner::ALL[..]), any::<u32>(), 0..=MAX_REASON)
                .prop_map(|(manner, code, len)| Frame::Close { manner, code, len }),
            1 => (0..Priority::COUNT, any::<bool>())
                .prop_map(|(level, held)| Frame::Hold { priority: Priority::ALL[level], held }),
            1 => number().prop_map(|interval| Frame::Watch { interval }),
            1 => any::<u32>().prop_map(|time| Frame::Clock { time }),
        ]
    }

    proptest! {
        #[test]
        fn frames_are_read_back_and_any_part_of_one_is_incomplete(frame in frame(), tail: [u8; 4]) {
            let mut bytes = written(frame);
            let len = bytes.len();
            prop_assert!(len <= 37);
            for cut in 0..len {
                match Frame::decode(&bytes[..cut]) {
                    Ok(Decoded::Incomplete { needed }) => prop_assert!(cut < needed && needed <= len),
                    other => prop_assert!(false, "{other:?} from {cut} of {len} bytes"),
                }
            }
            bytes.extend(tail);
            prop_assert_eq!(Frame::decode(&bytes), Ok(Decoded::Frame { frame, len }));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            match Frame::decode(&bytes) {
                Ok(Decoded::Frame { frame, len }) => {
                    prop_assert!(len <= bytes.len().min(MAX_FRAME_HEADER));
                    let again = written(frame);
                    prop_assert_eq!(Frame::decode(&again), Ok(Decoded::Frame { frame, len: again.len() }));
                }
                Ok(Decoded::Incomplete { needed }) => {
                    prop_assert!(bytes.len() < needed && needed <= MAX_FRAME_HEADER);
                }
                Err(_) => {}
            }
        }

        #[test]
        fn copies_have_headers_of_one_length(frame in message(), copies in 2..=MAX_COPIES) {
            let Frame::Message(mut first) = frame else { unreachable!("message() makes MESSAGE frames") };
            first.duplicate = Some(Duplicate { index: 0, copies });
            let other = MessageFrame { duplicate: Some(Duplicate { index: copies - 1, copies }), ..first };
            prop_assert_eq!(Frame::Message(first).encoded_len(), Frame::Message(other).encoded_len());
        }
    }
}
