//! Control stream of a client of HTTP/3, for its updates of priorities: RFC 9218 §7.2.

use marcato_wire::VarInt;

use crate::update::{Http3UpdateError, Update};

/// Type of the control stream (RFC 9114 §6.2.1).
const CONTROL: u64 = 0x00;

/// Reader of a unidirectional stream of a client of HTTP/3, for [updates](Update) of priorities.
///
/// It reads along: the same bytes go to a library of HTTP/3, which may know no updates and skip them. Of a stream of another
/// type than control it tells nothing.
///
/// ```
/// use marcato_web::ControlReader;
/// // The type of the stream, empty SETTINGS, and an update of stream 4.
/// let bytes = b"\x00\x04\x00\x80\x0f\x07\x00\x04\x04u=1";
/// let mut reader = ControlReader::default();
/// let mut updates = Vec::new();
/// reader.feed(bytes, |update| updates.push(update));
/// let update = updates.pop().ok_or("none")??;
/// assert_eq!((update.stream.0, update.field.to_string().as_str()), (4, "u=1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ControlReader {
    state: State,
    /// Bytes of a number that has not arrived as a whole.
    partial: Vec<u8>,
    /// Frames that have begun and were not counted.
    frames: u32,
}

#[derive(Debug, Default)]
enum State {
    /// The type of the stream follows.
    #[default]
    Begin,
    /// The type of a frame follows.
    Type,
    /// The length of a frame of this type follows.
    Length(u64),
    /// The payload of an update follows: this many bytes of it are still to come, and these have arrived.
    Payload(u64, u64, Vec<u8>),
    /// This many bytes of another frame follow.
    Skip(u64),
    /// The stream is no control stream.
    Other,
}

impl ControlReader {
    /// Reads the next bytes of the stream, and tells of each update in them.
    pub fn feed(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Result<Update, Http3UpdateError>)) {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Other => return,
                State::Begin => {
                    let Some(kind) = self.number(&mut bytes) else { return };
                    self.state = if kind == CONTROL { State::Type } else { State::Other };
                }
                State::Type => {
                    let Some(kind) = self.number(&mut bytes) else { return };
                    self.state = State::Length(kind);
                }
                State::Length(kind) => {
                    let kind = *kind;
                    let Some(len) = self.number(&mut bytes) else { return };
                    self.frames += 1;
                    let is_update = matches!(kind, Update::HTTP3_REQUEST_TYPE | Update::HTTP3_PUSH_TYPE);
                    self.state = match (is_update, len) {
                        (true, 0) => {
                            tell(Update::from_http3(kind, &[]));
                            State::Type
                        }
                        (true, _) => State::Payload(kind, len, Vec::new()),
                        (false, 0) => State::Type,
                        (false, _) => State::Skip(len),
                    };
                }
                State::Payload(kind, left, payload) => {
                    let part = take(&mut bytes, left);
                    // A longer payload has a field that is too long, which is told of as such.
                    let room = (Update::MAX_PAYLOAD + 1).saturating_sub(payload.len());
                    payload.extend_from_slice(part.get(..room).unwrap_or(part));
                    if *left == 0 {
                        tell(Update::from_http3(*kind, payload));
                        self.state = State::Type;
                    }
                }
                State::Skip(left) => {
                    take(&mut bytes, left);
                    if *left == 0 {
                        self.state = State::Type;
                    }
                }
            }
        }
    }

    /// Takes the number of frames that have begun since this was last asked.
    pub const fn take_frames(&mut self) -> u32 {
        std::mem::replace(&mut self.frames, 0)
    }

    /// Reads a number; `None` if its end has not arrived.
    fn number(&mut self, bytes: &mut &[u8]) -> Option<u64> {
        loop {
            let (first, rest) = bytes.split_first()?;
            self.partial.push(*first);
            *bytes = rest;
            if let Ok((number, _)) = VarInt::decode(&self.partial) {
                self.partial.clear();
                return Some(number.get());
            }
        }
    }
}

/// Takes as many of the next bytes as there are left.
fn take<'a>(bytes: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    let (part, rest) = bytes.split_at(len);
    *bytes = rest;
    *left -= len as u64;
    part
}

#[cfg(test)]
mod tests {
    use marcato_sched::order::StreamId;
    use proptest::prelude::*;

    use super::*;
    use crate::priority::PriorityField;

    fn number(value: u64) -> Vec<u8> {
        let mut bytes = [0; VarInt::MAX_LEN];
        let len = VarInt::new(value).unwrap().encode(&mut bytes).unwrap();
        bytes[..len].to_vec()
    }

    fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
        [number(kind), number(payload.len() as u64), payload.to_vec()].concat()
    }

    fn read(stream: &[u8], cut: usize) -> Vec<Result<Update, Http3UpdateError>> {
        let (mut reader, mut told) = (ControlReader::default(), Vec::new());
        for part in stream.chunks(cut.max(1)) {
            reader.feed(part, |update| told.push(update));
        }
        told
    }

    fn update(stream: u64, value: &str) -> Update {
        Update { stream: StreamId(stream), field: PriorityField::parse(value.as_bytes()).unwrap() }
    }

    #[test]
    fn updates_are_read_between_other_frames_however_they_are_cut() {
        let stream = [
            number(CONTROL),
            frame(4, &[6, 0x44, 0]),
            frame(Update::HTTP3_REQUEST_TYPE, b"\x04u=1, i"),
            frame(0x21, b""),
            frame(Update::HTTP3_REQUEST_TYPE, b"\x40\x80u=5"),
            frame(0x40, &[7; 300]),
            frame(Update::HTTP3_REQUEST_TYPE, b"\x00"),
        ]
        .concat();
        let mut reader = ControlReader::default();
        reader.feed(&stream, |_| {});
        assert_eq!((reader.take_frames(), reader.take_frames()), (6, 0));
        let expected = [Ok(update(4, "u=1, i")), Ok(update(128, "u=5")), Ok(update(0, ""))];
        for cut in 1..stream.len() {
            assert_eq!(read(&stream, cut), expected, "{cut}");
        }
    }

    #[test]
    fn streams_of_other_types_have_no_updates() {
        let updates = frame(Update::HTTP3_REQUEST_TYPE, b"\x00u=1");
        for kind in [1, 2, 3, 0x21] {
            assert_eq!(read(&[number(kind), updates.clone()].concat(), 5), [], "{kind}");
        }
    }

    #[test]
    fn wrong_updates_are_told_of_with_their_codes() {
        let codes = |kind, payload: &[u8]| {
            let told = read(&[number(CONTROL), frame(kind, payload)].concat(), 7);
            told.into_iter().map(|update| update.unwrap_err().code()).collect::<Vec<_>>()
        };
        use crate::error_code::ErrorCode::{Http3Frame, Http3Id};
        assert_eq!(codes(Update::HTTP3_REQUEST_TYPE, b""), [Some(Http3Frame)]);
        assert_eq!(codes(Update::HTTP3_REQUEST_TYPE, b"\x02u=1"), [Some(Http3Id)]);
        assert_eq!(codes(Update::HTTP3_PUSH_TYPE, b"\x00u=1"), [Some(Http3Id)]);
        assert_eq!(codes(Update::HTTP3_REQUEST_TYPE, &[vec![0], vec![b'a'; 5000]].concat()), [None]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_alike_in_parts_and_at_once(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            cut in 1..20_usize,
        ) {
            let stream = [number(CONTROL), bytes].concat();
            prop_assert_eq!(read(&stream, cut), read(&stream, usize::MAX));
        }
    }
}
