//! Strict framing of the requests of HTTP/1.1: RFC 9112 §2.2, §6 and §7.1.
//!
//! The library takes a lone LF as the end of a line, and spaces behind the size of a chunk. Another server
//! in front may read both otherwise, and then see other requests than this one: that is how requests are
//! smuggled. This follows the requests of a connection, and finds such bytes. It frames as the library does,
//! which refuses all that is wrong in other ways.

/// Bytes of a line that are looked at: enough for the fields that frame a message.
const LINE: usize = 64;

/// Follower of the requests of a connection. It reads no clock and no socket.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    /// First bytes of the line, without its end.
    line: Vec<u8>,
    /// Length of the line.
    len: usize,
    /// Last byte of the line.
    last: u8,
    /// Length of the content that the head announces.
    length: u64,
    is_chunked: bool,
    /// True once the head has a line.
    has_begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Lines of a head.
    Head,
    /// Lines of a trailer section.
    Trailers,
    /// Content without chunks, of which so much is left.
    Content(u64),
    /// Line of a chunk's size.
    Size(u64, Part),
    /// Content of a chunk, of which so much is left.
    Chunk(u64),
    /// CR behind a chunk.
    ChunkCr,
    /// LF behind a chunk.
    ChunkLf,
}

/// Part of the line of a chunk's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    First,
    Digits,
    /// Bad whitespace, which only an extension may follow (RFC 9112 §7.1.1).
    Space,
    Extension,
    Lf,
}

impl Framing {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Head,
            line: Vec::new(),
            len: 0,
            last: 0,
            length: 0,
            is_chunked: false,
            has_begun: false,
        }
    }

    /// Follows bytes. Returns the place of the first that is refused; nothing behind it can be read.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let taken = match &mut self.state {
                State::Head | State::Trailers => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    self.extend(&rest[..end.unwrap_or(rest.len())]);
                    match end {
                        // RFC 9112 §2.2: a recipient MAY take a lone LF as the end of a line.
                        Some(end) if self.last != b'\r' || !self.end_line() => return Some(at + end),
                        Some(end) => end + 1,
                        None => rest.len(),
                    }
                }
                State::Content(left) | State::Chunk(left) => {
                    let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    *left -= taken as u64;
                    match self.state {
                        State::Content(0) => self.state = State::Head,
                        State::Chunk(0) => self.state = State::ChunkCr,
                        _ => {}
                    }
                    taken
                }
                State::Size(..) | State::ChunkCr | State::ChunkLf => match self.step(rest[0]) {
                    Some(state) => {
                        self.state = state;
                        1
                    }
                    None => return Some(at),
                },
            };
            at += taken;
        }
        None
    }

    /// Follows a byte around a chunk; `None` if it is refused.
    fn step(&self, byte: u8) -> Option<State> {
        let next = match (self.state, byte) {
            (State::ChunkCr, b'\r') => State::ChunkLf,
            (State::ChunkLf, b'\n') => State::Size(0, Part::First),
            (State::Size(size, Part::First | Part::Digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16)?;
                State::Size(size.checked_mul(16)?.checked_add(digit.into())?, Part::Digits)
            }
            (State::Size(size, Part::Digits | Part::Space), b' ' | b'\t') => State::Size(size, Part::Space),
            (State::Size(size, Part::Digits | Part::Space), b';') => State::Size(size, Part::Extension),
            (State::Size(size, Part::Digits | Part::Extension), b'\r') => State::Size(size, Part::Lf),
            (State::Size(0, Part::Lf), b'\n') => State::Trailers,
            (State::Size(size, Part::Lf), b'\n') => State::Chunk(size),
            (State::Size(size, Part::Extension), _) if byte != b'\n' => State::Size(size, Part::Extension),
            _ => return None,
        };
        Some(next)
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = LINE - self.line.len();
        self.line.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.len += bytes.len();
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// Ends a line of a head or of trailers. Returns false if it is refused.
    fn end_line(&mut self) -> bool {
        let is_whole = self.len <= LINE;
        let text = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let mut is_fine = true;
        if self.len == 1 {
            if self.state == State::Trailers || self.has_begun {
                self.state = self.after();
                (self.length, self.is_chunked, self.has_begun) = (0, false, false);
            }
            // RFC 9112 §2.2: empty lines before a request are ignored.
        } else if self.state == State::Head {
            // The first line of a head has no colon there.
            if value(text, b"transfer-encoding").is_some() {
                self.is_chunked = true;
            } else if let Some(value) = value(text, b"content-length") {
                let length = if is_whole { decimal(value.trim_ascii()) } else { None };
                is_fine = length.is_some();
                self.length = length.unwrap_or(0);
            }
            self.has_begun = true;
        }
        self.line.clear();
        (self.len, self.last) = (0, 0);
        is_fine
    }

    /// Returns what follows a section that has ended.
    const fn after(&self) -> State {
        match self.state {
            State::Trailers => State::Head,
            // RFC 9112 §6.3: Transfer-Encoding overrides Content-Length.
            _ if self.is_chunked => State::Size(0, Part::First),
            _ if self.length > 0 => State::Content(self.length),
            _ => State::Head,
        }
    }
}

/// Returns the value of a field, if this line is that field.
fn value<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    if start.eq_ignore_ascii_case(name) { rest.strip_prefix(b":") } else { None }
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    text.iter().try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that pass, in pieces of one size.
    fn passed(text: &[u8], piece: usize) -> usize {
        let mut framing = Framing::new();
        let mut before = 0;
        for bytes in text.chunks(piece) {
            if let Some(at) = framing.follow(bytes) {
                return before + at;
            }
            before += bytes.len();
        }
        before
    }

    /// Checks that all of a text passes, or all before its first `^`.
    fn check(text: &str) {
        let stop = text.find('^').unwrap_or(text.len());
        let text = text.replace('^', "");
        for piece in [1, 2, 7, text.len()] {
            assert_eq!(passed(text.as_bytes(), piece), stop, "{text:?} in pieces of {piece}");
        }
    }

    #[test]
    fn usual_requests_pass_one_after_the_other() {
        check(
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length:  3 \r\n\r\n\n\n\n\
             \r\n\r\nPOST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\n\n\n\r\nA;x=\"1\"\r\n0123456789\r\n\
             2 \t;y\r\nab\r\n000\r\nTrailer: 1\r\n\r\nGET / HTTP/1.1\r\nX: 1\r\n\r\n",
        );
    }

    #[test]
    fn a_lone_line_feed_ends_no_line() {
        check("GET / HTTP/1.1^\nHost: a\r\n\r\n");
        check("GET / HTTP/1.1\r\nHost: a^\n\r\n");
        check("GET / HTTP/1.1\r\nHost: a\r\n^\n");
        check("^\nGET / HTTP/1.1\r\n\r\n");
        check("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n\nGET / HTTP/1.1^\n\r\n");
        check("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: 1^\n\r\n");
        check("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n^\n");
    }

    #[test]
    fn the_size_of_a_chunk_stands_alone() {
        for size in [
            "^ 3", "3 ^\r", "3\t ^\r", "3 ^3\r", "^;", "^\r", "^-3", "3^x", "3^\n", "3;a^\n", "3\r^a",
            "3;a\r^a",
        ] {
            check(&format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{size}\nabc\r\n0\r\n\r\n"));
        }
        check("POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\n\r\n3\r\nabc^d");
        check("POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\n\r\n3\r\nabc\r^d");
        check("POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\n\r\n1000000000000000^0");
    }

    #[test]
    fn chunks_override_a_length() {
        for fields in
            ["Content-Length: 9\r\nTransfer-Encoding: x", "Transfer-Encoding: x\r\nContent-Length: 9"]
        {
            check(&format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n0\r\n\r\nGET / HTTP/1.1^\n"));
        }
    }

    #[test]
    fn a_length_is_one_decimal_number() {
        for value in ["^", " ^", "+5^", "5, 5^", "0x5^", "18446744073709551616^"] {
            let (value, _) = value.split_once('^').unwrap();
            check(&format!("POST / HTTP/1.1\r\nContent-Length:{value}\r^\n\r\n"));
        }
        check(&format!("POST / HTTP/1.1\r\nContent-Length:{:70}\r^\n\r\n", 5));
        check("POST / HTTP/1.1\r\nX-Content-Length: a\r\nContent-Length-X: a\r\n\r\n");
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("\r\n"), Just("\n"), Just("\r"), Just("3"), Just(" "), Just(";"), Just("abc"), Just("0\r\n\r\n"),
                    Just("POST / HTTP/1.1\r\n"), Just("Content-Length: 3\r\n"), Just("Transfer-Encoding: chunked\r\n"),
                ],
                0..20,
            ),
            piece in 1..9_usize,
        ) {
            let text = parts.concat();
            prop_assert_eq!(passed(text.as_bytes(), piece), passed(text.as_bytes(), text.len().max(1)));
        }
    }
}
