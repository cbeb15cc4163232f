//! Protocol between the two ends of `marcato perf`, specified in `docs/perf.md`.
//!
//! Each [`Request`] and each [`Reply`] is one message of `marcato/1`. Decoding never panics, and
//! uses no more memory than the message itself. A message that is not understood completely is
//! refused.

use marcato_wire::VarInt;

/// Version of this protocol. Both ends must have the same.
pub const VERSION: u64 = 2;
/// Largest number of sources of one run.
pub const MAX_SOURCES: usize = 64;
/// Largest number of arrivals in one report.
pub const MAX_ARRIVALS: usize = 1024;
/// Longest header of a [`Request::Data`], and so the shortest message that every header fits.
pub const MAX_DATA_HEADER: usize = 2 + 3 * VarInt::MAX_LEN;
/// Longest message of a source.
pub const MAX_MESSAGE: u64 = 1 << 40;

const MAGIC: [u8; 4] = *b"MPRF";
const HELLO: u8 = 1;
const PING: u8 = 2;
const DATA: u8 = 3;
const FINISH: u8 = 4;
const WELCOME: u8 = 16;
const REFUSED: u8 = 17;
const PONG: u8 = 18;
const REPORT: u8 = 19;

/// Anonymous mark of a host. Both ends of a run on one host have the same mark, which differs in
/// every run.
pub type HostMark = [u8; 16];

/// Server's settings for a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceKind {
    /// Requests a report of each message, instead of their number only.
    pub each: bool,
}

/// First message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Random value, new for each run.
    pub nonce: [u8; 16],
    /// Mark of the client's host.
    pub host: HostMark,
    /// Sources that will send; at most [`MAX_SOURCES`].
    pub sources: Vec<SourceKind>,
}

/// Piece of a message of a source. It consists of this header and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the source, counted from 0.
    pub source: u8,
    /// Sequence number of the message within its source, counted from 0.
    pub sequence: u64,
    /// Offset of the piece in the message, in bytes.
    pub offset: u64,
    /// Length of the whole message, in bytes.
    pub total: u64,
}

/// Message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First message.
    Hello(Hello),
    /// Request for the server's time.
    Ping {
        /// Number of the request.
        number: u64,
    },
    /// Piece of a message of a source; the remaining bytes are payload.
    Data(Piece),
    /// End of the data.
    Finish,
}

/// Reason of a server's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Largest number of clients reached.
    Busy,
    /// Different version of the protocol.
    Version,
    /// Message not understood.
    Protocol,
}

impl Refusal {
    const ALL: [Self; 3] = [Self::Busy, Self::Version, Self::Protocol];

    const fn code(self) -> u8 {
        match self {
            Self::Busy => 0,
            Self::Version => 1,
            Self::Protocol => 2,
        }
    }
}

/// Amount received of a source since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Complete messages.
    pub messages: u64,
    /// Bytes of pieces, headers included.
    pub bytes: u64,
}

/// Completion of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Index of the source.
    pub source: u8,
    /// Sequence number of the message.
    pub sequence: u64,
    /// Completion time in ns of the server's clock.
    pub at: u64,
}

/// Report of received data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Time of writing, in ns of the server's clock.
    pub at: u64,
    /// Set in the last report of a run.
    pub last: bool,
    /// CPU time that the server has used in user mode since the run began, in µs.
    pub user: u64,
    /// CPU time that the kernel has used for it, in µs.
    pub system: u64,
    /// Amount received of each source; at most [`MAX_SOURCES`].
    pub totals: Vec<Total>,
    /// Completions since the previous report; at most [`MAX_ARRIVALS`].
    pub arrivals: Vec<Arrival>,
}

/// Message of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Acceptance of the client.
    Welcome {
        /// Mark of the server's host.
        host: HostMark,
    },
    /// Refusal of the client.
    Refused(Refusal),
    /// Reply to a [`Request::Ping`].
    Pong {
        /// Number of the request.
        number: u64,
        /// Time of the request's arrival, in ns of the server's clock.
        received: u64,
        /// Time of the reply, in ns of the server's clock.
        answered: u64,
    },
    /// Report of received data.
    Report(Report),
}

/// Reason why a message is not valid in this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Message of another protocol.
    #[error("the peer does not speak marcato perf: is another program listening there?")]
    NotPerf,
    /// Message of another version of this protocol.
    #[error("the peer is of version {version} of marcato perf, this is {VERSION}: update one of them")]
    Version {
        /// Version of the peer.
        version: u64,
    },
    /// Message of an unknown type.
    #[error("a message of type {kind} is not known")]
    Type {
        /// Type of the message.
        kind: u8,
    },
    /// Message too short or too long for its type.
    #[error("a message is too short or too long for its type")]
    Length,
    /// Message with a value out of range.
    #[error("{what} of {value} is out of range")]
    Value {
        /// Name of the value.
        what: &'static str,
        /// Value received.
        value: u64,
    },
}

/// Reader from the front of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], ProtocolError> {
        let (front, rest) = self.0.split_at_checked(len).ok_or(ProtocolError::Length)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        self.bytes(N)?.try_into().map_err(|_| ProtocolError::Length)
    }

    fn byte(&mut self) -> Result<u8, ProtocolError> {
        self.array().map(|[byte]| byte)
    }

    fn integer(&mut self) -> Result<u64, ProtocolError> {
        let (value, len) = VarInt::decode(self.0).map_err(|_| ProtocolError::Length)?;
        self.bytes(len)?;
        Ok(value.get())
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, ProtocolError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(ProtocolError::Value { what, value: other.into() }),
        }
    }

    /// Reads the number of items that follow, at most `most`.
    fn count(&mut self, what: &'static str, most: usize) -> Result<usize, ProtocolError> {
        let value = self.integer()?;
        let count = usize::try_from(value).ok().filter(|count| *count <= most);
        count.ok_or(ProtocolError::Value { what, value })
    }

    fn source(&mut self) -> Result<u8, ProtocolError> {
        let source = self.byte()?;
        if usize::from(source) < MAX_SOURCES {
            Ok(source)
        } else {
            Err(ProtocolError::Value { what: "a source", value: source.into() })
        }
    }

    fn end(&self) -> Result<(), ProtocolError> {
        if self.0.is_empty() { Ok(()) } else { Err(ProtocolError::Length) }
    }
}

/// Writer to the end of a message.
struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Writes an integer. A value beyond the wire format is replaced by the largest possible one;
    /// nanoseconds reach it after 146 years.
    fn integer(&mut self, value: u64) {
        let mut room = [0; VarInt::MAX_LEN];
        let written = VarInt::new(value).unwrap_or(VarInt::MAX).encode(&mut room);
        self.0.extend_from_slice(&room[..written.unwrap_or(0)]);
    }

    fn count(&mut self, count: usize) {
        self.integer(count as u64);
    }
}

impl Piece {
    /// Writes the piece's header, with which the piece begins.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer(out);
        out.byte(DATA);
        out.byte(self.source);
        out.integer(self.sequence);
        out.integer(self.offset);
        out.integer(self.total);
    }
}

impl Request {
    /// Writes the message; for a piece, only its header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(Hello { nonce, host, sources }) => {
                out.push(HELLO);
                out.extend_from_slice(&MAGIC);
                let mut writer = Writer(out);
                writer.integer(VERSION);
                writer.0.extend_from_slice(nonce);
                writer.0.extend_from_slice(host);
                writer.count(sources.len());
                sources.iter().for_each(|source| writer.byte(source.each.into()));
            }
            Self::Ping { number } => {
                out.push(PING);
                Writer(out).integer(*number);
            }
            Self::Data(piece) => piece.encode(out),
            Self::Finish => out.push(FINISH),
        }
    }

    /// Decodes a whole message.
    ///
    /// # Errors
    ///
    /// If it is not a valid message of a client.
    pub fn decode(message: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader(message);
        let request = match reader.byte()? {
            HELLO => {
                if reader.array()? != MAGIC {
                    return Err(ProtocolError::NotPerf);
                }
                let version = reader.integer()?;
                if version != VERSION {
                    return Err(ProtocolError::Version { version });
                }
                let (nonce, host) = (reader.array()?, reader.array()?);
                let count = reader.count("a number of sources", MAX_SOURCES)?;
                let kinds = (0..count).map(|_| Ok(SourceKind { each: reader.flag("a kind of source")? }));
                Self::Hello(Hello { nonce, host, sources: kinds.collect::<Result<_, _>>()? })
            }
            PING => Self::Ping { number: reader.integer()? },
            DATA => {
                let source = reader.source()?;
                let (sequence, offset, total) = (reader.integer()?, reader.integer()?, reader.integer()?);
                if total > MAX_MESSAGE {
                    return Err(ProtocolError::Value { what: "a length", value: total });
                }
                let end = offset.checked_add(message.len() as u64);
                if end.is_none_or(|end| end > total) {
                    return Err(ProtocolError::Value { what: "an offset", value: offset });
                }
                return Ok(Self::Data(Piece { source, sequence, offset, total }));
            }
            FINISH => Self::Finish,
            kind => return Err(ProtocolError::Type { kind }),
        };
        reader.end()?;
        Ok(request)
    }
}

impl Reply {
    /// Writes the message. Of a report, at most [`MAX_SOURCES`] totals and [`MAX_ARRIVALS`]
    /// arrivals are written.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Welcome { host } => {
                out.push(WELCOME);
                out.extend_from_slice(&MAGIC);
                Writer(out).integer(VERSION);
                out.extend_from_slice(host);
            }
            Self::Refused(refusal) => {
                out.push(REFUSED);
                out.extend_from_slice(&MAGIC);
                out.push(refusal.code());
            }
            Self::Pong { number, received, answered } => {
                out.push(PONG);
                let mut writer = Writer(out);
                [*number, *received, *answered].into_iter().for_each(|value| writer.integer(value));
            }
            Self::Report(Report { at, last, user, system, totals, arrivals }) => {
                out.push(REPORT);
                let mut writer = Writer(out);
                writer.integer(*at);
                writer.byte((*last).into());
                writer.integer(*user);
                writer.integer(*system);
                writer.count(totals.len().min(MAX_SOURCES));
                for total in totals.iter().take(MAX_SOURCES) {
                    writer.integer(total.messages);
                    writer.integer(total.bytes);
                }
                writer.count(arrivals.len().min(MAX_ARRIVALS));
                for arrival in arrivals.iter().take(MAX_ARRIVALS) {
                    writer.byte(arrival.source);
                    writer.integer(arrival.sequence);
                    writer.integer(arrival.at);
                }
            }
        }
    }

    /// Decodes a whole message.
    ///
    /// # Errors
    ///
    /// If it is not a valid message of a server.
    pub fn decode(message: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader(message);
        let kind = reader.byte()?;
        if matches!(kind, WELCOME | REFUSED) && reader.array()? != MAGIC {
            return Err(ProtocolError::NotPerf);
        }
        let reply = match kind {
            WELCOME => {
                let version = reader.integer()?;
                if version != VERSION {
                    return Err(ProtocolError::Version { version });
                }
                Self::Welcome { host: reader.array()? }
            }
            REFUSED => {
                let code = reader.byte()?;
                let refusal = Refusal::ALL.into_iter().find(|refusal| refusal.code() == code);
                Self::Refused(refusal.ok_or(ProtocolError::Value { what: "a refusal", value: code.into() })?)
            }
            PONG => Self::Pong {
                number: reader.integer()?,
                received: reader.integer()?,
                answered: reader.integer()?,
            },
            REPORT => {
                let (at, last) = (reader.integer()?, reader.flag("an end")?);
                let (user, system) = (reader.integer()?, reader.integer()?);
                let count = reader.count("a number of sources", MAX_SOURCES)?;
                let totals = (0..count)
                    .map(|_| Ok(Total { messages: reader.integer()?, bytes: reader.integer()? }))
                    .collect::<Result<_, _>>()?;
                let count = reader.count("a number of arrivals", MAX_ARRIVALS)?;
                let arrivals = (0..count)
                    .map(|_| {
                        let (source, sequence) = (reader.source()?, reader.integer()?);
                        Ok(Arrival { source, sequence, at: reader.integer()? })
                    })
                    .collect::<Result<_, _>>()?;
                Self::Report(Report { at, last, user, system, totals, arrivals })
            }
            kind => return Err(ProtocolError::Type { kind }),
        };
        reader.end()?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn integer() -> impl Strategy<Value = u64> {
        (0..=VarInt::MAX.get(), 0u32..62).prop_map(|(value, shift)| value >> shift)
    }

    fn request() -> impl Strategy<Value = Request> {
        let kinds =
            prop::collection::vec(any::<bool>().prop_map(|each| SourceKind { each }), 0..=MAX_SOURCES);
        prop_oneof![
            (any::<[u8; 16]>(), any::<[u8; 16]>(), kinds)
                .prop_map(|(nonce, host, sources)| Request::Hello(Hello { nonce, host, sources })),
            integer().prop_map(|number| Request::Ping { number }),
            Just(Request::Finish),
        ]
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let source = 0..u8::try_from(MAX_SOURCES).unwrap();
        let total = (integer(), integer()).prop_map(|(messages, bytes)| Total { messages, bytes });
        let arrival = (source, integer(), integer());
        let arrival = arrival.prop_map(|(source, sequence, at)| Arrival { source, sequence, at });
        let report = (
            integer(),
            any::<bool>(),
            (integer(), integer()),
            prop::collection::vec(total, 0..=MAX_SOURCES),
            prop::collection::vec(arrival, 0..20),
        );
        prop_oneof![
            any::<[u8; 16]>().prop_map(|host| Reply::Welcome { host }),
            prop::sample::select(&Refusal::ALL[..]).prop_map(Reply::Refused),
            (integer(), integer(), integer()).prop_map(|(number, received, answered)| Reply::Pong {
                number,
                received,
                answered
            }),
            report.prop_map(|(at, last, (user, system), totals, arrivals)| Reply::Report(Report {
                at,
                last,
                user,
                system,
                totals,
                arrivals
            })),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_shorter_or_longer_is(request in request(), reply in reply()) {
            let mut out = Vec::new();
            request.encode(&mut out);
            prop_assert_eq!(Request::decode(&out), Ok(request));
            for cut in 0..out.len() {
                prop_assert!(Request::decode(&out[..cut]).is_err());
            }
            out.push(0);
            prop_assert!(Request::decode(&out).is_err());

            let mut out = Vec::new();
            reply.encode(&mut out);
            prop_assert_eq!(Reply::decode(&out), Ok(reply));
            for cut in 0..out.len() {
                prop_assert!(Reply::decode(&out[..cut]).is_err());
            }
            out.push(0);
            prop_assert!(Reply::decode(&out).is_err());
        }

        #[test]
        fn a_piece_counts_with_its_header(
            source in 0..u8::try_from(MAX_SOURCES).unwrap(), sequence in integer(),
            offset in 0..1u64 << 39, payload in 0..100usize, rest in 0..1u64 << 38,
        ) {
            // The header's length depends on the total, whose integer takes at most eight bytes
            // here.
            let mut out = Vec::new();
            let piece = Piece { source, sequence, offset, total: offset + MAX_DATA_HEADER as u64 + 100 + rest };
            piece.encode(&mut out);
            prop_assert!(out.len() <= MAX_DATA_HEADER);
            out.resize(out.len() + payload, 7);
            prop_assert_eq!(Request::decode(&out), Ok(Request::Data(piece)));
            // A piece must not extend beyond its message.
            let mut out = Vec::new();
            Piece { total: offset, ..piece }.encode(&mut out);
            prop_assert!(Request::decode(&out).is_err());
        }

        #[test]
        fn no_bytes_are_too_wild(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Request::decode(&bytes), Reply::decode(&bytes));
        }
    }

    #[test]
    fn strangers_and_other_versions_are_told_from_garbage() {
        assert_eq!(Request::decode(b"\x01GET / HTTP/1.1"), Err(ProtocolError::NotPerf));
        assert_eq!(Request::decode(b"\x01MPRF\x01"), Err(ProtocolError::Version { version: 1 }));
        assert_eq!(Request::decode(&[9]), Err(ProtocolError::Type { kind: 9 }));
        assert_eq!(Request::decode(&[]), Err(ProtocolError::Length));
        let many = [&b"\x01MPRF\x02"[..], &[0; 32], &[0x40, 65]].concat();
        let what = "a number of sources";
        assert_eq!(Request::decode(&many), Err(ProtocolError::Value { what, value: 65 }));
    }
}
