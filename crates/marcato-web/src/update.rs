//! PRIORITY_UPDATE frames: RFC 9218 §7.

use std::collections::BTreeMap;

use marcato_sched::order::StreamId;
use marcato_wire::VarInt;
use thiserror::Error;

use crate::error_code::ErrorCode;
use crate::priority::{FieldError, PriorityField};

/// Bits of a stream id in a frame of HTTP/2. The other bit is reserved (RFC 9113 §4.1).
pub(crate) const STREAM_BITS: u32 = 0x7fff_ffff;

/// Update of the priority of one request (RFC 9218 §7).
///
/// It has a complete set of parameters: those absent have their default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Update {
    /// Stream of the request.
    pub stream: StreamId,
    /// Parameters of the request.
    pub field: PriorityField,
}

impl Update {
    /// Type of the frame in HTTP/2 (RFC 9218 §7.1).
    pub const HTTP2_TYPE: u8 = 0x10;
    /// Type of the frame of HTTP/3 that updates a request (RFC 9218 §7.2).
    pub const HTTP3_REQUEST_TYPE: u64 = 0xf0700;
    /// Type of the frame of HTTP/3 that updates a push (RFC 9218 §7.2).
    pub const HTTP3_PUSH_TYPE: u64 = 0xf0701;
    /// Most bytes of a payload that are read. A longer one has a field that is too long.
    pub const MAX_PAYLOAD: usize = VarInt::MAX_LEN + PriorityField::MAX_LEN;

    /// Reads the payload of a frame of HTTP/2 that a client sent on stream `frame_stream`.
    ///
    /// ```
    /// use marcato_web::Update;
    /// let update = Update::from_http2(0, b"\0\0\0\x05u=1")?;
    /// assert_eq!((update.stream.0, update.field.to_string().as_str()), (5, "u=1"));
    /// # Ok::<(), marcato_web::Http2UpdateError>(())
    /// ```
    ///
    /// # Errors
    /// [`Http2UpdateError`], whose [code](Http2UpdateError::code) closes the connection if there is
    /// one.
    pub fn from_http2(frame_stream: u32, payload: &[u8]) -> Result<Self, Http2UpdateError> {
        // RFC 9218 §7.1: a frame on any other stream MUST be treated as PROTOCOL_ERROR.
        if frame_stream != 0 {
            return Err(Http2UpdateError::OnStream);
        }
        // RFC 9113 §4.2: a frame too short for its mandatory fields is a FRAME_SIZE_ERROR.
        let (&stream, value) = payload.split_first_chunk().ok_or(Http2UpdateError::TooShort)?;
        let stream = u32::from_be_bytes(stream) & STREAM_BITS;
        // RFC 9218 §7.1: stream 0 MUST be answered with PROTOCOL_ERROR, and so MUST a push stream
        // that is idle. No stream is pushed, so all of them are.
        if stream == 0 {
            return Err(Http2UpdateError::StreamZero);
        }
        if stream.is_multiple_of(2) {
            return Err(Http2UpdateError::Push);
        }
        Ok(Self { stream: StreamId(stream.into()), field: PriorityField::parse(value)? })
    }

    /// Reads the payload of a frame of type [`HTTP3_REQUEST_TYPE`](Self::HTTP3_REQUEST_TYPE) or
    /// [`HTTP3_PUSH_TYPE`](Self::HTTP3_PUSH_TYPE) from the client's control stream.
    ///
    /// On another stream the frame is an error of type `H3_FRAME_UNEXPECTED`, whatever it holds.
    ///
    /// # Errors
    /// [`Http3UpdateError`], whose [code](Http3UpdateError::code) closes the connection if there is
    /// one.
    pub fn from_http3(frame_type: u64, payload: &[u8]) -> Result<Self, Http3UpdateError> {
        match frame_type {
            Self::HTTP3_REQUEST_TYPE => {}
            // RFC 9218 §7.2: a push that has not been promised MUST be treated as H3_ID_ERROR. None
            // ever is.
            Self::HTTP3_PUSH_TYPE => return Err(Http3UpdateError::Push),
            frame_type => return Err(Http3UpdateError::AnotherType { frame_type }),
        }
        // RFC 9114 §7.1: a payload that ends before its fields do MUST be treated as H3_FRAME_ERROR.
        let (stream, len) = VarInt::decode(payload).map_err(|_| Http3UpdateError::TooShort)?;
        // RFC 9218 §7.2: a stream that is no request stream MUST be treated as H3_ID_ERROR. Request
        // streams are the bidirectional ones of the client (RFC 9114 §6.1), multiples of 4 (RFC 9000
        // §2.1).
        if !stream.get().is_multiple_of(4) {
            return Err(Http3UpdateError::NoRequest { stream: StreamId(stream.get()) });
        }
        Ok(Self { stream: StreamId(stream.get()), field: PriorityField::parse(&payload[len..])? })
    }
}

/// Error returned for a PRIORITY_UPDATE frame of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Http2UpdateError {
    /// The frame was sent on a stream.
    #[error("PRIORITY_UPDATE belongs on stream 0: close the connection with PROTOCOL_ERROR")]
    OnStream,
    /// The payload is shorter than the stream id.
    #[error("PRIORITY_UPDATE is shorter than 4 bytes: close the connection with FRAME_SIZE_ERROR")]
    TooShort,
    /// The frame updates stream 0.
    #[error("PRIORITY_UPDATE names stream 0: close the connection with PROTOCOL_ERROR")]
    StreamZero,
    /// The frame updates a push stream, and none is promised.
    #[error("PRIORITY_UPDATE names a push that was not promised: close the connection with PROTOCOL_ERROR")]
    Push,
    /// The field is not read.
    #[error("PRIORITY_UPDATE has an unusable field, ignore the frame: {0}")]
    Field(#[from] FieldError),
}

impl Http2UpdateError {
    /// Code with which the connection is closed; `None` if the frame is ignored.
    pub const fn code(self) -> Option<ErrorCode> {
        match self {
            Self::OnStream | Self::StreamZero | Self::Push => Some(ErrorCode::Http2Protocol),
            Self::TooShort => Some(ErrorCode::Http2FrameSize),
            // RFC 9218 §7: such a frame MAY be treated as an error. Ignoring it harms no one.
            Self::Field(_) => None,
        }
    }
}

/// Error returned for a PRIORITY_UPDATE frame of HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Http3UpdateError {
    /// The frame has another type.
    #[error("{frame_type:#x} is no type of PRIORITY_UPDATE: read such frames only")]
    AnotherType {
        /// Type of the frame.
        frame_type: u64,
    },
    /// The payload ends within the id.
    #[error("PRIORITY_UPDATE ends within its id: close the connection with H3_FRAME_ERROR")]
    TooShort,
    /// The frame updates a stream that carries no request.
    #[error("PRIORITY_UPDATE names stream {}, which carries no request: close the connection with H3_ID_ERROR", .stream.0)]
    NoRequest {
        /// Stream that the frame names.
        stream: StreamId,
    },
    /// The frame updates a push, and none is promised.
    #[error("PRIORITY_UPDATE names a push that was not promised: close the connection with H3_ID_ERROR")]
    Push,
    /// The field is not read.
    #[error("PRIORITY_UPDATE has an unusable field, ignore the frame: {0}")]
    Field(#[from] FieldError),
}

impl Http3UpdateError {
    /// Code with which the connection is closed; `None` if the frame is ignored.
    pub const fn code(self) -> Option<ErrorCode> {
        match self {
            Self::TooShort => Some(ErrorCode::Http3Frame),
            Self::NoRequest { .. } | Self::Push => Some(ErrorCode::Http3Id),
            Self::AnotherType { .. } | Self::Field(_) => None,
        }
    }
}

/// Store of updates that arrive before their request (RFC 9218 §7).
///
/// It keeps the latest update of each stream, of at most a given number of streams. If it is full, the
/// update that has waited longest makes room. Its request then has the priority of its field, which
/// Chromium sends with the same value.
#[derive(Clone, Debug)]
pub struct Updates {
    limit: usize,
    fields: BTreeMap<StreamId, (Arrival, PriorityField)>,
    arrivals: BTreeMap<Arrival, StreamId>,
    next: Arrival,
    dropped: u64,
}

/// Number of an update, in the order of arrival.
type Arrival = u64;

impl Updates {
    /// Creates a store of updates for at most `limit` streams: as many as a client may have open.
    pub const fn new(limit: usize) -> Self {
        Self { limit, fields: BTreeMap::new(), arrivals: BTreeMap::new(), next: 0, dropped: 0 }
    }

    /// Keeps an update, in place of an earlier one of the same stream.
    pub fn keep(&mut self, update: Update) {
        self.take(update.stream);
        if self.fields.len() >= self.limit {
            self.dropped += 1;
            let Some((_, longest)) = self.arrivals.pop_first() else { return };
            self.fields.remove(&longest);
        }
        self.arrivals.insert(self.next, update.stream);
        self.fields.insert(update.stream, (self.next, update.field));
        self.next += 1;
    }

    /// Removes the update of a stream and returns its parameters; `None` if none is kept.
    pub fn take(&mut self, stream: StreamId) -> Option<PriorityField> {
        // It is, but for clients that prioritise ahead of their requests.
        if self.fields.is_empty() {
            return None;
        }
        let (arrival, field) = self.fields.remove(&stream)?;
        self.arrivals.remove(&arrival);
        Some(field)
    }

    /// Removes the updates of all streams before `stream`, whose requests cannot arrive any more.
    ///
    /// In HTTP/2 a new stream closes all idle ones before it (RFC 9113 §5.1.1).
    pub fn forget_before(&mut self, stream: StreamId) {
        while let Some((&first, _)) = self.fields.first_key_value().filter(|(first, _)| **first < stream) {
            self.take(first);
        }
    }

    /// Returns true if an update of the stream is kept.
    pub fn contains(&self, stream: StreamId) -> bool {
        self.fields.contains_key(&stream)
    }

    /// Number of streams whose update is kept.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns true if no update is kept.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Number of updates that were dropped because the store was full.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn update(stream: u64, value: &str) -> Update {
        Update { stream: StreamId(stream), field: PriorityField::parse(value.as_bytes()).unwrap() }
    }

    #[test]
    fn http2_payloads_are_read() {
        assert_eq!(Update::from_http2(0, b"\0\0\0\x01u=0, i"), Ok(update(1, "u=0, i")));
        // The reserved bit is ignored (RFC 9218 §7.1).
        assert_eq!(Update::from_http2(0, b"\xff\xff\xff\xff"), Ok(update(0x7fff_ffff, "")));
    }

    #[test]
    fn http2_errors_have_the_code_that_the_rfc_demands() {
        let code = |stream, payload: &[u8]| Update::from_http2(stream, payload).unwrap_err().code();
        assert_eq!(code(1, b"\0\0\0\x01u=0"), Some(ErrorCode::Http2Protocol));
        assert_eq!(code(0, b"\0\0\0"), Some(ErrorCode::Http2FrameSize));
        assert_eq!(code(0, b"\x80\0\0\0u=0"), Some(ErrorCode::Http2Protocol));
        assert_eq!(code(0, b"\0\0\0\x02u=0"), Some(ErrorCode::Http2Protocol));
        assert_eq!(code(0, b"\0\0\0\x01u="), None);
        assert_eq!((ErrorCode::Http2Protocol.number(), ErrorCode::Http2FrameSize.number()), (1, 6));
    }

    #[test]
    fn http3_payloads_are_read() {
        let read = |payload: &[u8]| Update::from_http3(Update::HTTP3_REQUEST_TYPE, payload);
        assert_eq!(read(b"\x04u=2, i"), Ok(update(4, "u=2, i")));
        assert_eq!(read(b"\x40\x40u=2"), Ok(update(64, "u=2")));
        assert_eq!(read(b"\0"), Ok(update(0, "")));
    }

    #[test]
    fn http3_errors_have_the_code_that_the_rfc_demands() {
        let code = |kind, payload: &[u8]| Update::from_http3(kind, payload).unwrap_err().code();
        let request = Update::HTTP3_REQUEST_TYPE;
        assert_eq!(code(request, b""), Some(ErrorCode::Http3Frame));
        assert_eq!(code(request, b"\x40"), Some(ErrorCode::Http3Frame));
        assert_eq!(code(request, b"\x02u=1"), Some(ErrorCode::Http3Id));
        assert_eq!(code(Update::HTTP3_PUSH_TYPE, b"\0u=1"), Some(ErrorCode::Http3Id));
        assert_eq!(code(request, b"\0u=,"), None);
        assert_eq!(code(0x0f, b"\0u=1"), None);
        assert_eq!((ErrorCode::Http3Frame.number(), ErrorCode::Http3Id.number()), (0x106, 0x108));
    }

    #[test]
    fn messages_name_the_code_that_they_demand() {
        for error in [
            Http2UpdateError::OnStream,
            Http2UpdateError::TooShort,
            Http2UpdateError::StreamZero,
            Http2UpdateError::Push,
        ] {
            assert!(error.to_string().ends_with(&error.code().unwrap().to_string()), "{error}");
        }
        let no_request = Http3UpdateError::NoRequest { stream: StreamId(2) };
        for error in [Http3UpdateError::TooShort, no_request, Http3UpdateError::Push] {
            assert!(error.to_string().ends_with(&error.code().unwrap().to_string()), "{error}");
        }
    }

    #[test]
    fn the_latest_update_of_a_stream_is_kept() {
        let mut updates = Updates::new(2);
        updates.keep(update(5, "u=1"));
        updates.keep(update(5, "i"));
        assert_eq!((updates.len(), updates.dropped()), (1, 0));
        assert_eq!(updates.take(StreamId(5)), Some(update(5, "i").field));
        assert_eq!(updates.take(StreamId(5)), None);
        assert!(updates.is_empty());
    }

    #[test]
    fn a_full_store_drops_the_longest_kept() {
        let mut updates = Updates::new(2);
        updates.keep(update(5, "u=1"));
        updates.keep(update(3, "u=2"));
        updates.keep(update(5, "u=4"));
        updates.keep(update(7, "u=3"));
        assert!(!updates.contains(StreamId(3)) && updates.contains(StreamId(5)));
        assert_eq!((updates.len(), updates.dropped()), (2, 1));
    }

    #[test]
    fn a_store_without_room_keeps_nothing() {
        let mut updates = Updates::new(0);
        updates.keep(update(5, "u=1"));
        assert_eq!((updates.len(), updates.dropped()), (0, 1));
    }

    #[test]
    fn streams_before_a_new_one_are_forgotten() {
        let mut updates = Updates::new(4);
        for stream in [1, 3, 5] {
            updates.keep(update(stream, "u=1"));
        }
        updates.forget_before(StreamId(5));
        assert_eq!((updates.len(), updates.contains(StreamId(5)), updates.dropped()), (1, true, 0));
    }

    proptest! {
        #[test]
        fn the_store_never_exceeds_its_limit(
            limit in 0..5_usize,
            steps in proptest::collection::vec((0..9_u64, any::<u8>()), 0..60),
        ) {
            let mut updates = Updates::new(limit);
            for (stream, step) in steps {
                match step % 8 {
                    0 => updates.forget_before(StreamId(stream)),
                    1 => { updates.take(StreamId(stream)); }
                    _ => {
                        updates.keep(update(stream, "u=1"));
                        prop_assert_eq!(updates.contains(StreamId(stream)), limit > 0);
                    }
                }
                prop_assert!(updates.len() <= limit);
                prop_assert_eq!(updates.fields.len(), updates.arrivals.len());
            }
        }
    }
}
