//! Reader of the priority signals in the byte stream of an HTTP/2 client.
//!
//! It sees the client's bytes before the library of HTTP/2 does. A weight or an update is therefore known
//! before the library reports its request.

use marcato_sched::order::StreamId;
use thiserror::Error;

use crate::error_code::ErrorCode;
use crate::tree::{Dependency, Weight};
use crate::update::{Http2UpdateError, STREAM_BITS, Update};

/// Bytes with which a client begins (RFC 9113 §3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of a frame's header (RFC 9113 §4.1).
const HEADER: usize = 9;
/// Types of frames (RFC 9113 §6).
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;
/// Flag of SETTINGS and PING (RFC 9113 §6.5, §6.7).
const FLAG_ACK: u8 = 0x1;
/// Flags of HEADERS (RFC 9113 §6.2). CONTINUATION has the first of them.
const FLAG_END_HEADERS: u8 = 0x4;
const FLAG_PADDED: u8 = 0x8;
const FLAG_PRIORITY: u8 = 0x20;
/// Length of a priority in HEADERS and PRIORITY.
const DEPENDENCY: usize = 5;
/// Length of one setting (RFC 9113 §6.5.1).
const SETTING: usize = 6;
/// Length of a WINDOW_UPDATE (RFC 9113 §6.9).
const INCREMENT: usize = 4;
/// Identifier of SETTINGS_NO_RFC7540_PRIORITIES (RFC 9218 §2.1).
const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// Signal in the byte stream of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A HEADERS frame, which opens its stream unless it carries trailers.
    Headers {
        /// Stream of the frame.
        stream: StreamId,
        /// Priority in the frame; `None` without the PRIORITY flag.
        dependency: Option<Dependency>,
    },
    /// A PRIORITY frame (RFC 9113 §6.3).
    Priority {
        /// Stream of the frame.
        stream: StreamId,
        /// Its new priority.
        dependency: Dependency,
    },
    /// A PRIORITY_UPDATE frame (RFC 9218 §7.1).
    Update(Update),
    /// SETTINGS_NO_RFC7540_PRIORITIES in the first SETTINGS frame (RFC 9218 §2.1).
    NoRfc7540Priorities(bool),
}

/// Counts of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameCounters {
    /// Frames whose header was read, of all types.
    pub frames: u64,
    /// HEADERS frames that had a priority.
    pub weighted: u64,
    /// PRIORITY frames.
    pub priorities: u64,
    /// PRIORITY_UPDATE frames that were read.
    pub updates: u64,
    /// PRIORITY frames of a wrong length, and PRIORITY_UPDATE frames with an unusable field.
    pub ignored: u64,
    /// SETTINGS and PING frames, which this end has to answer.
    pub answered: u64,
}

/// Incremental reader of the signals that a library of HTTP/2 does not report.
///
/// Give it every byte of the client, also those that go to the library. It needs no header
/// compression: all signals are in fixed places. It keeps at most 300 bytes, of one frame.
///
/// It checks only what it reads. At a byte stream that is not HTTP/2 it [stops](Self::has_stopped),
/// and leaves the answer to the library.
///
/// ```
/// use marcato_units::Bytes;
/// use marcato_web::{Event, FrameReader};
///
/// let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
/// let mut events = Vec::new();
/// reader.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", |event| events.push(event))?;
/// // A SETTINGS frame with SETTINGS_NO_RFC7540_PRIORITIES = 1.
/// reader.feed(b"\0\0\x06\x04\0\0\0\0\0\0\x09\0\0\0\x01", |event| events.push(event))?;
/// assert_eq!(events, [Event::NoRfc7540Priorities(true)]);
/// # Ok::<(), marcato_web::FrameReadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FrameReader {
    state: State,
    max_frame_size: u32,
    kept: [u8; KEPT],
    len: usize,
    first_settings: First,
    credit: u64,
    counters: FrameCounters,
    /// HEADERS frames so far. They may wrap: a head is only told from the one before it.
    heads: u32,
    /// True if the latest frame carries fields, and if it has the last of them.
    in_head: bool,
    ends_head: bool,
}

/// Most bytes kept: a whole PRIORITY_UPDATE.
const KEPT: usize = Update::MAX_PAYLOAD;

/// Part of the stream that comes next. Its first `len` bytes are kept, except of the preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Preface,
    Header,
    /// Beginning of a payload, of which `keep` bytes are read. Then `left` bytes are skipped.
    Payload {
        kind: Kind,
        stream: u32,
        keep: usize,
        left: usize,
    },
    /// Settings, of which `left` bytes follow.
    Settings {
        left: usize,
    },
    Skip {
        left: usize,
    },
    Stopped,
}

/// Frame whose payload is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// HEADERS with a priority. Padded ones begin with the length of the padding.
    Headers {
        padded: bool,
    },
    Priority,
    Update,
    /// WINDOW_UPDATE of the connection.
    Credit,
}

/// Progress towards the end of the first SETTINGS frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Awaited,
    Reading,
    Read,
}

impl FrameReader {
    /// Largest frame of a client whose peer has not allowed larger ones (RFC 9113 §4.2): 16 384 bytes.
    pub const MAX_FRAME_SIZE: u32 = 16_384;

    /// Window of a connection at its beginning (RFC 9113 §6.9.2). No setting changes it.
    pub const INITIAL_WINDOW: u64 = 65_535;

    /// Creates a reader of a client that may send payloads up to `max_frame_size` bytes: the setting
    /// SETTINGS_MAX_FRAME_SIZE of this end.
    pub const fn new(max_frame_size: u32) -> Self {
        Self {
            state: State::Preface,
            max_frame_size,
            kept: [0; KEPT],
            len: 0,
            first_settings: First::Awaited,
            credit: 0,
            counters: FrameCounters {
                frames: 0,
                weighted: 0,
                priorities: 0,
                updates: 0,
                ignored: 0,
                answered: 0,
            },
            heads: 0,
            in_head: false,
            ends_head: false,
        }
    }

    /// Reads the next bytes of the client, and reports every signal that is complete with them.
    ///
    /// The split of the stream into calls changes nothing.
    ///
    /// # Errors
    /// [`FrameReadError`] if a signal is an error of the connection. The reader has then stopped.
    pub fn feed(&mut self, mut bytes: &[u8], mut report: impl FnMut(Event)) -> Result<(), FrameReadError> {
        while !bytes.is_empty() {
            match self.state {
                State::Preface => {
                    let expected = &PREFACE[self.len..];
                    let len = expected.len().min(bytes.len());
                    let (now, rest) = bytes.split_at(len);
                    if now != &expected[..len] {
                        self.state = State::Stopped;
                        return Ok(());
                    }
                    bytes = rest;
                    self.len += len;
                    if self.len == PREFACE.len() {
                        self.next(State::Header);
                    }
                }
                State::Header => {
                    bytes = self.keep(bytes, HEADER);
                    if self.len == HEADER {
                        self.begin_frame(&mut report)?;
                    }
                }
                State::Payload { kind, stream, keep, left } => {
                    bytes = self.keep(bytes, keep);
                    if self.len == keep {
                        self.end_payload(kind, stream, &mut report)?;
                        self.next(State::skip(left));
                    }
                }
                State::Settings { left } => {
                    bytes = self.keep(bytes, SETTING);
                    if self.len == SETTING {
                        self.end_setting(&mut report)?;
                        let left = left - SETTING;
                        if left == 0 {
                            self.first_settings = First::Read;
                        }
                        self.next(if left == 0 { State::Header } else { State::Settings { left } });
                    }
                }
                State::Skip { left } => {
                    let len = bytes.len().min(left);
                    bytes = &bytes[len..];
                    self.state = State::skip(left - len);
                }
                State::Stopped => return Ok(()),
            }
        }
        Ok(())
    }

    /// Returns true if nothing more is read, because the stream is not HTTP/2 or has had an error.
    pub fn has_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// Counts since the beginning.
    pub const fn counters(&self) -> FrameCounters {
        self.counters
    }

    /// Bytes by which the client has enlarged the window of the connection (RFC 9113 §6.9), beyond the
    /// first [`Self::INITIAL_WINDOW`].
    ///
    /// Libraries hand the window out in the order in which streams asked for it. A server that knows it
    /// hands it out by priority.
    pub const fn credit(&self) -> u64 {
        self.credit
    }

    /// Number of the HEADERS frame whose fields are not complete, if there is one. CONTINUATION frames
    /// belong to it.
    ///
    /// The library reports nothing of a request before its fields are complete.
    pub fn open_head(&self) -> Option<u32> {
        let is_complete = self.ends_head && self.state == State::Header;
        (self.in_head && !is_complete).then_some(self.heads)
    }

    fn next(&mut self, state: State) {
        self.state = state;
        self.len = 0;
    }

    /// Keeps bytes until there are `most`, and returns the others.
    fn keep<'a>(&mut self, bytes: &'a [u8], most: usize) -> &'a [u8] {
        let (now, rest) = bytes.split_at(bytes.len().min(most - self.len));
        self.kept[self.len..self.len + now.len()].copy_from_slice(now);
        self.len += now.len();
        rest
    }

    /// Decides by the header of a frame how much of its payload is kept.
    fn begin_frame(&mut self, report: &mut impl FnMut(Event)) -> Result<(), FrameReadError> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3, ..] = self.kept;
        let len = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & STREAM_BITS;
        self.counters.frames += 1;
        self.heads = self.heads.wrapping_add(u32::from(kind == HEADERS));
        self.in_head = matches!(kind, HEADERS | CONTINUATION);
        self.ends_head = flags & FLAG_END_HEADERS != 0;
        self.counters.answered += u64::from(matches!(kind, SETTINGS | PING) && flags & FLAG_ACK == 0);
        if len > self.max_frame_size as usize {
            // RFC 9113 §4.2: the library answers with FRAME_SIZE_ERROR.
            self.state = State::Stopped;
            return Ok(());
        }
        let state = match kind {
            HEADERS if flags & FLAG_PRIORITY == 0 => {
                report(Event::Headers { stream: StreamId(stream.into()), dependency: None });
                State::skip(len)
            }
            HEADERS => {
                let padded = flags & FLAG_PADDED != 0;
                State::payload(Kind::Headers { padded }, stream, DEPENDENCY + usize::from(padded), len)
            }
            PRIORITY if len == DEPENDENCY => State::payload(Kind::Priority, stream, DEPENDENCY, len),
            PRIORITY => {
                // RFC 9113 §6.3: an error of the stream, which the library resets.
                self.counters.ignored += 1;
                State::skip(len)
            }
            WINDOW_UPDATE if stream == 0 && len == INCREMENT => {
                State::payload(Kind::Credit, stream, INCREMENT, len)
            }
            // A payload that is too long for its field is read as far as it decides about the
            // connection.
            Update::HTTP2_TYPE => State::payload(Kind::Update, stream, KEPT.min(len), len),
            SETTINGS if flags & FLAG_ACK == 0 => {
                let first = self.first_settings == First::Awaited;
                self.first_settings = if first && len > 0 { First::Reading } else { First::Read };
                match len.is_multiple_of(SETTING) {
                    true if len == 0 => State::Header,
                    true => State::Settings { left: len },
                    false => State::Stopped,
                }
            }
            _ => State::skip(len),
        };
        self.next(state);
        if let State::Payload { kind: Kind::Update, keep: 0, .. } = state {
            self.end_payload(Kind::Update, stream, report)?;
            self.next(State::Header);
        }
        Ok(())
    }

    /// Reports the signal in a payload, whose beginning is kept.
    fn end_payload(
        &mut self,
        kind: Kind,
        frame_stream: u32,
        report: &mut impl FnMut(Event),
    ) -> Result<(), FrameReadError> {
        let stream = StreamId(frame_stream.into());
        match kind {
            Kind::Headers { padded } => {
                self.counters.weighted += 1;
                let dependency = Some(self.dependency(usize::from(padded)));
                report(Event::Headers { stream, dependency });
            }
            Kind::Priority => {
                self.counters.priorities += 1;
                report(Event::Priority { stream, dependency: self.dependency(0) });
            }
            Kind::Credit => {
                let [i0, i1, i2, i3, ..] = self.kept;
                self.credit += u64::from(u32::from_be_bytes([i0, i1, i2, i3]) & STREAM_BITS);
            }
            Kind::Update => match Update::from_http2(frame_stream, &self.kept[..self.len]) {
                Ok(update) => {
                    self.counters.updates += 1;
                    report(Event::Update(update));
                }
                Err(error) => match error.code() {
                    Some(code) => {
                        self.state = State::Stopped;
                        return Err(FrameReadError::Update { error, code });
                    }
                    None => self.counters.ignored += 1,
                },
            },
        }
        Ok(())
    }

    /// Priority at an offset of the kept bytes (RFC 7540 §6.3).
    fn dependency(&self, offset: usize) -> Dependency {
        let mut bytes = [0; DEPENDENCY];
        bytes.copy_from_slice(&self.kept[offset..offset + DEPENDENCY]);
        let [p0, p1, p2, p3, weight] = bytes;
        let parent = u32::from_be_bytes([p0, p1, p2, p3]);
        Dependency {
            parent: StreamId((parent & STREAM_BITS).into()),
            weight: Weight::from_wire(weight),
            exclusive: parent & !STREAM_BITS != 0,
        }
    }

    /// Reports a setting.
    fn end_setting(&mut self, report: &mut impl FnMut(Event)) -> Result<(), FrameReadError> {
        let [i0, i1, v0, v1, v2, v3, ..] = self.kept;
        if u16::from_be_bytes([i0, i1]) != NO_RFC7540_PRIORITIES {
            return Ok(());
        }
        let value = u32::from_be_bytes([v0, v1, v2, v3]);
        // RFC 9218 §2.1: any other value MUST be treated as PROTOCOL_ERROR.
        if value > 1 {
            self.state = State::Stopped;
            return Err(FrameReadError::Setting { value });
        }
        // RFC 9218 §2.1: the first SETTINGS frame decides. A later change MAY be an error; here it has
        // no effect.
        if self.first_settings == First::Reading {
            report(Event::NoRfc7540Priorities(value == 1));
        }
        Ok(())
    }
}

impl State {
    /// Payload of `len` bytes of which the first `keep` are read.
    fn payload(kind: Kind, stream: u32, keep: usize, len: usize) -> Self {
        match len.checked_sub(keep) {
            Some(left) => Self::Payload { kind, stream, keep, left },
            // RFC 9113 §4.2: too short for its fields. The library answers with FRAME_SIZE_ERROR.
            None => Self::Stopped,
        }
    }

    const fn skip(left: usize) -> Self {
        if left == 0 { Self::Header } else { Self::Skip { left } }
    }
}

/// Error returned for a signal that is an error of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameReadError {
    /// A PRIORITY_UPDATE frame is wrong.
    #[error("{error}")]
    Update {
        /// Error of the frame.
        error: Http2UpdateError,
        /// Code with which the connection is closed.
        code: ErrorCode,
    },
    /// The setting SETTINGS_NO_RFC7540_PRIORITIES is neither 0 nor 1.
    #[error(
        "SETTINGS_NO_RFC7540_PRIORITIES is {value}, not 0 or 1: close the connection with PROTOCOL_ERROR"
    )]
    Setting {
        /// Value of the setting.
        value: u32,
    },
}

impl FrameReadError {
    /// Code with which the connection is closed.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Update { code, .. } => code,
            Self::Setting { .. } => ErrorCode::Http2Protocol,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::PriorityField;
    use proptest::prelude::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![len[1], len[2], len[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
        [PREFACE.to_vec(), frames.concat()].concat()
    }

    /// Feeds bytes in pieces of `piece` bytes. Returns what was reported, the outcome, and the reader.
    fn read(bytes: &[u8], piece: usize) -> (Vec<Event>, Result<(), FrameReadError>, FrameReader) {
        let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
        let mut events = Vec::new();
        for piece in bytes.chunks(piece) {
            let fed = reader.feed(piece, |event| events.push(event));
            assert!(reader.len <= KEPT);
            if fed.is_err() {
                return (events, fed, reader);
            }
        }
        (events, Ok(()), reader)
    }

    fn dependency(parent: u64, weight: u16, exclusive: bool) -> Dependency {
        Dependency { parent: StreamId(parent), weight: Weight::new(weight).unwrap(), exclusive }
    }

    const NO_PRIORITIES: &[u8] = b"\0\x09\0\0\0\x01";
    const OTHER_SETTING: &[u8] = b"\0\x03\0\0\0\x64";

    /// Stream with every signal, and frames without any between them.
    fn busy() -> (Vec<u8>, Vec<Event>) {
        let bytes = stream(&[
            frame(SETTINGS, 0, 0, &[OTHER_SETTING, NO_PRIORITIES, OTHER_SETTING].concat()),
            frame(SETTINGS, 1, 0, b""),
            frame(0x8, 0, 0, b"\0\x01\0\0"),
            frame(PRIORITY, 0, 3, b"\0\0\0\0\xc8"),
            frame(HEADERS, FLAG_PRIORITY | 0x5, 15, b"\x80\0\0\x0d\x29headers"),
            frame(HEADERS, FLAG_PRIORITY | FLAG_PADDED, 17, b"\x02\0\0\0\x03\x15headers\0\0"),
            frame(0x9, 0x4, 17, &[0xff; 700]),
            frame(HEADERS, 0x5, 19, b"more headers"),
            frame(0x0, 0, 17, &[0x10; 5000]),
            frame(Update::HTTP2_TYPE, 0, 0, b"\0\0\0\x15u=1, i"),
            frame(0xfa, 0xff, 7, b"unknown"),
            frame(PRIORITY, 0, 17, b"\x80\0\0\x0f\xff"),
        ]);
        let field = PriorityField::parse(b"u=1, i").unwrap();
        let events = vec![
            Event::NoRfc7540Priorities(true),
            Event::Priority { stream: StreamId(3), dependency: dependency(0, 201, false) },
            Event::Headers { stream: StreamId(15), dependency: Some(dependency(13, 42, true)) },
            Event::Headers { stream: StreamId(17), dependency: Some(dependency(3, 22, false)) },
            Event::Headers { stream: StreamId(19), dependency: None },
            Event::Update(Update { stream: StreamId(21), field }),
            Event::Priority { stream: StreamId(17), dependency: dependency(15, 256, true) },
        ];
        (bytes, events)
    }

    #[test]
    fn every_signal_is_reported_in_order() {
        let (bytes, expected) = busy();
        let (events, outcome, reader) = read(&bytes, bytes.len());
        assert_eq!((events, outcome), (expected, Ok(())));
        let counters =
            FrameCounters { frames: 12, weighted: 2, priorities: 2, updates: 1, ignored: 0, answered: 1 };
        assert_eq!(reader.counters(), counters);
        assert!(!reader.has_stopped());
    }

    #[test]
    fn a_head_is_open_until_its_last_fields() {
        let bytes = stream(&[
            frame(SETTINGS, 0, 0, NO_PRIORITIES),
            frame(HEADERS, 0, 1, b"fields"),
            frame(CONTINUATION, 0, 1, b""),
            frame(CONTINUATION, FLAG_END_HEADERS, 1, b"more"),
            frame(0x0, 0, 1, b"content"),
            frame(HEADERS, FLAG_END_HEADERS, 3, b""),
            frame(HEADERS, FLAG_END_HEADERS | FLAG_PRIORITY, 5, b"\0\0\0\0\0"),
        ]);
        let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
        let mut heads = vec![None];
        for byte in bytes {
            reader.feed(&[byte], |_| {}).unwrap();
            if heads.last() != Some(&reader.open_head()) {
                heads.push(reader.open_head());
            }
        }
        // The second one has nothing after its header.
        assert_eq!(heads, [None, Some(1), None, Some(3), None]);
    }

    #[test]
    fn pieces_of_any_length_give_the_same_events() {
        let (bytes, expected) = busy();
        for piece in 1..40 {
            assert_eq!(read(&bytes, piece).0, expected, "{piece}");
        }
    }

    #[test]
    fn only_the_first_settings_frame_decides() {
        let later = stream(&[frame(SETTINGS, 0, 0, OTHER_SETTING), frame(SETTINGS, 0, 0, NO_PRIORITIES)]);
        assert_eq!(read(&later, 7).0, []);
        let empty = stream(&[frame(SETTINGS, 0, 0, b""), frame(SETTINGS, 0, 0, NO_PRIORITIES)]);
        assert_eq!(read(&empty, 7).0, []);
        let acknowledged = stream(&[frame(SETTINGS, FLAG_ACK, 0, b""), frame(SETTINGS, 0, 0, NO_PRIORITIES)]);
        assert_eq!(read(&acknowledged, 7).0, [Event::NoRfc7540Priorities(true)]);
        let again = stream(&[frame(SETTINGS, 0, 0, NO_PRIORITIES), frame(SETTINGS, 0, 0, b"\0\x09\0\0\0\0")]);
        assert_eq!(read(&again, 7).0, [Event::NoRfc7540Priorities(true)]);
    }

    #[test]
    fn settings_other_than_0_and_1_close_the_connection() {
        let bytes = stream(&[frame(SETTINGS, 0, 0, b"\0\x09\0\0\x01\0")]);
        let (_, outcome, reader) = read(&bytes, 5);
        assert_eq!(outcome, Err(FrameReadError::Setting { value: 256 }));
        assert_eq!(outcome.unwrap_err().code(), ErrorCode::Http2Protocol);
        assert!(reader.has_stopped());
    }

    #[test]
    fn wrong_updates_close_the_connection() {
        let code = |frame_stream, payload: &[u8]| {
            let after = frame(PRIORITY, 0, 3, b"\0\0\0\0\xc8");
            let bytes = stream(&[frame(Update::HTTP2_TYPE, 0, frame_stream, payload), after]);
            let (events, outcome, mut reader) = read(&bytes, 3);
            assert!(events.is_empty() && reader.has_stopped());
            assert_eq!(reader.feed(&bytes, |event| panic!("{event:?}")), Ok(()));
            outcome.unwrap_err().code()
        };
        assert_eq!(code(1, b"\0\0\0\x01u=1"), ErrorCode::Http2Protocol);
        assert_eq!(code(0, b"\0\0\0\0u=1"), ErrorCode::Http2Protocol);
        assert_eq!(code(0, b"\0\0\0"), ErrorCode::Http2FrameSize);
        assert_eq!(code(0, b""), ErrorCode::Http2FrameSize);
    }

    #[test]
    fn unusable_updates_are_counted_and_ignored() {
        let long = [b"\0\0\0\x01".as_slice(), &[b'a'; 5000]].concat();
        let bytes = stream(&[
            frame(Update::HTTP2_TYPE, 0, 0, b"\0\0\0\x01u="),
            frame(Update::HTTP2_TYPE, 0, 0, &long),
            frame(PRIORITY, 0, 3, b"\0\0\0\0"),
            frame(Update::HTTP2_TYPE, 0, 0, b"\0\0\0\x01u=2"),
        ]);
        let (events, outcome, reader) = read(&bytes, 11);
        assert_eq!((events.len(), outcome), (1, Ok(())));
        assert_eq!((reader.counters().ignored, reader.counters().updates), (3, 1));
    }

    #[test]
    fn the_longest_field_is_read() {
        let value = format!("u=1, {}", "a".repeat(PriorityField::MAX_LEN - 5));
        let payload = [b"\0\0\0\x01", value.as_bytes()].concat();
        let bytes = stream(&[frame(Update::HTTP2_TYPE, 0, 0, &payload)]);
        assert_eq!(read(&bytes, 100).2.counters().updates, 1);
    }

    #[test]
    fn a_stream_of_another_protocol_stops_the_reader() {
        for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\t"] {
            let (events, outcome, reader) = read(bytes, 5);
            assert_eq!((events, outcome, reader.has_stopped()), (vec![], Ok(()), true));
            assert_eq!(reader.counters().frames, 0);
        }
    }

    #[test]
    fn frames_that_the_library_refuses_stop_the_reader() {
        let long = vec![0; FrameReader::MAX_FRAME_SIZE as usize + 1];
        for bad in [
            frame(0x0, 0, 1, &long),
            frame(SETTINGS, 0, 0, b"\0\x09\0\0\0"),
            frame(HEADERS, FLAG_PRIORITY, 1, b"\0\0\0\0"),
            frame(HEADERS, FLAG_PRIORITY | FLAG_PADDED, 1, b"\0\0\0\0\0"),
        ] {
            let bytes = stream(&[bad, frame(HEADERS, 0, 1, b"")]);
            let (events, outcome, reader) = read(&bytes, 9);
            assert_eq!((events, outcome, reader.has_stopped()), (vec![], Ok(()), true));
        }
        let largest = stream(&[frame(0x0, 0, 1, &long[1..]), frame(HEADERS, 0, 1, b"")]);
        assert_eq!(read(&largest, 999).0.len(), 1);
    }

    #[test]
    fn a_reader_is_small() {
        assert!(size_of::<FrameReader>() <= 368, "{}", size_of::<FrameReader>());
    }

    prop_compose! {
        fn any_frame()(
            kind in prop_oneof![0..12_u8, Just(Update::HTTP2_TYPE), any::<u8>()],
            flags in any::<u8>(),
            stream in prop_oneof![Just(0), 0..20_u32, any::<u32>()],
            payload in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..12),
                Just(b"\0\0\0\x05u=1, i".to_vec()),
                Just(NO_PRIORITIES.to_vec()),
                Just(vec![0; 400]),
            ],
        ) -> Vec<u8> {
            frame(kind, flags, stream, &payload)
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            frames in proptest::collection::vec(any_frame(), 0..12),
            cuts in proptest::collection::vec(0..200_usize, 0..12),
        ) {
            let bytes = stream(&frames);
            let (whole, outcome, _) = read(&bytes, bytes.len());
            let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
            let (mut events, mut left, mut last) = (Vec::new(), &bytes[..], Ok(()));
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, rest) = left.split_at(cut.min(left.len()));
                left = rest;
                last = last.and(reader.feed(now, |event| events.push(event)));
            }
            prop_assert_eq!((events, last), (whole.clone(), outcome));
            prop_assert_eq!(read(&bytes, 1).0, whole);
        }
    }
}
