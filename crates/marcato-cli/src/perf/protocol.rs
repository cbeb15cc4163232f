//! Protocol between the two ends of `marcato perf`, specified in `docs/perf.md`.
//!
//! Each [`Request`] and each [`Reply`] is one message of `marcato/2`. Decoding never panics, and
//! uses no more memory than the message itself. A message that is not understood completely is
//! refused.
//!
//! The format is binary and of our own: a server reports every 100 ms, with up to [`MAX_ARRIVALS`]
//! arrivals on the connection that is measured. As text they would be several times as long.

use std::fmt;
use std::time::Duration;

use marcato_units::{Bytes, Layer};
use marcato_wire::VarInt;

use super::load::Load;
use super::quantity::{shown_size, shown_span};
use super::scheduler::PathName;

/// Version of this protocol. Both ends must have the same.
pub const VERSION: u64 = 3;
/// Largest number of sources of one run.
pub const MAX_SOURCES: usize = 64;
/// Largest number of arrivals in one report.
pub const MAX_ARRIVALS: usize = 1024;
/// Largest number of connections of one run.
pub const MAX_CONNECTIONS: u8 = 128;
/// Largest number of lanes in one report.
pub const MAX_REPORTED_LANES: usize = 32;
/// Longest header of a piece, and so the shortest message that every header fits. Offset and total
/// take at most four bytes each, because of [`MAX_MESSAGE`].
pub const MAX_DATA_HEADER: usize = 2 + 2 * VarInt::MAX_LEN + 2 * 4;
/// Longest message of a source.
pub const MAX_MESSAGE: u64 = (1 << 30) - 1;

const MAGIC: [u8; 4] = *b"MPRF";
const HELLO: u8 = 1;
const PING: u8 = 2;
const DATA: u8 = 3;
const FINISH: u8 = 4;
const START: u8 = 5;
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

/// First message of a client on each connection of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Random value, new for each run, and the same on all its connections.
    pub nonce: [u8; 16],
    /// Mark of the client's host.
    pub host: HostMark,
    /// Number of this connection within its run, counted from 0.
    pub number: u8,
    /// Number of connections of the run; at most [`MAX_CONNECTIONS`].
    pub connections: u8,
    /// Sources of the client; at most [`MAX_SOURCES`].
    pub sources: Vec<SourceKind>,
    /// Load that the server is asked to send.
    pub load: Option<Load>,
}

/// Piece of a message of a source, in either direction. It consists of this header and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the source, counted from 0.
    pub source: u8,
    /// Sequence number of the message within its source, counted from 0.
    pub sequence: u64,
    /// Release of the message in ns of the sender's clock.
    pub released: u64,
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
    /// Start of the load that the server was asked to send.
    Start,
    /// End of the run: all data has been sent and received, or the client gives up the rest.
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
    /// Load with a duration above this number of ns.
    Duration {
        /// Longest duration.
        most: u64,
    },
    /// Load with a message above this number of bytes.
    Size {
        /// Longest message.
        most: u64,
    },
    /// Load with a rate above this one in bit/s, or without a rate.
    Rate {
        /// Highest rate.
        most: u64,
    },
    /// Load with more periodic sources than room can be reserved for.
    Sources {
        /// Largest number of sources.
        most: u64,
    },
    /// Run with more than this number of connections.
    Connections {
        /// Largest number of connections.
        most: u64,
    },
}

impl Refusal {
    /// Returns the code, and the bound if the refusal has one.
    const fn code(self) -> (u8, Option<u64>) {
        match self {
            Self::Busy => (0, None),
            Self::Version => (1, None),
            Self::Protocol => (2, None),
            Self::Duration { most } => (3, Some(most)),
            Self::Size { most } => (4, Some(most)),
            Self::Rate { most } => (5, Some(most)),
            Self::Sources { most } => (6, Some(most)),
            Self::Connections { most } => (7, Some(most)),
        }
    }

    /// Returns the advice for a client, whose server has this name.
    #[must_use]
    pub fn advice(self, server: &str) -> String {
        let bound = match self {
            Self::Busy => {
                return format!(
                    "{server} already serves its maximum number of clients: try again later, or raise its \
                     --max-clients"
                );
            }
            Self::Version => {
                return format!("{server} has another version of marcato perf: update one of the two ends");
            }
            Self::Protocol => {
                return format!(
                    "{server} does not understand this client: check that it runs `marcato perf server`"
                );
            }
            Self::Duration { .. } => "shorten --duration, or raise its --max-duration",
            Self::Size { .. } => "send shorter messages, or raise its --backlog",
            Self::Rate { .. } => "bound the bulk data with --bitrate, or raise its --max-bitrate",
            Self::Sources { .. } => "give fewer --source, or start it with --path-scheduler lowrtt or rr",
            Self::Connections { .. } => "lower --parallel, or raise its --max-clients",
        };
        format!("{server} refuses: {self}; {bound}")
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        Ok(match reader.byte()? {
            0 => Self::Busy,
            1 => Self::Version,
            2 => Self::Protocol,
            3 => Self::Duration { most: reader.integer()? },
            4 => Self::Size { most: reader.integer()? },
            5 => Self::Rate { most: reader.integer()? },
            6 => Self::Sources { most: reader.integer()? },
            7 => Self::Connections { most: reader.integer()? },
            code => return Err(ProtocolError::Value { what: "a refusal", value: code.into() }),
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the maximum number of clients is reached"),
            Self::Version => f.write_str("the versions differ"),
            Self::Protocol => f.write_str("a message was not understood"),
            Self::Duration { most } => {
                write!(f, "a server sends for at most {}", shown_span(Duration::from_nanos(*most)))
            }
            Self::Size { most } => {
                write!(f, "a server sends messages of at most {}", shown_size(Bytes::new(*most)))
            }
            Self::Rate { most } => {
                write!(f, "a server sends at most {} kbit/s on a connection", most / 1000)
            }
            Self::Sources { most } => write!(f, "a server reserves room for at most {most} sources"),
            Self::Connections { most } => write!(f, "a run has at most {most} connections"),
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

/// State of one of the server's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedLane {
    /// Identifier within the connection.
    pub id: u8,
    /// Class in which the network should serve it.
    pub layer: Layer,
    /// Smoothed round-trip time, in whole µs.
    pub srtt: Duration,
    /// Congestion window.
    pub cwnd: Bytes,
    /// Bytes handed over and not sent.
    pub unsent: Bytes,
    /// Data packets sent.
    pub packets: u64,
    /// Packets lost; over TCP, packets retransmitted.
    pub lost: u64,
}

impl ReportedLane {
    fn encode(&self, out: &mut Writer<'_>) {
        out.byte(self.id);
        out.byte((self.layer == Layer::Low).into());
        out.integer(u64::try_from(self.srtt.as_micros()).unwrap_or(u64::MAX));
        for value in [self.cwnd.get(), self.unsent.get(), self.packets, self.lost] {
            out.integer(value);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        Ok(Self {
            id: reader.byte()?,
            layer: if reader.flag("a layer")? { Layer::Low } else { Layer::High },
            srtt: Duration::from_micros(reader.integer()?),
            cwnd: Bytes::new(reader.integer()?),
            unsent: Bytes::new(reader.integer()?),
            packets: reader.integer()?,
            lost: reader.integer()?,
        })
    }
}

/// Progress of the load that the server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Set once the server sends no more data.
    pub ended: bool,
    /// Number of messages released so far of each source; at most [`MAX_SOURCES`].
    pub released: Vec<u64>,
    /// Lanes; at most [`MAX_REPORTED_LANES`].
    pub lanes: Vec<ReportedLane>,
}

impl Progress {
    fn encode(&self, out: &mut Writer<'_>) {
        out.byte(self.ended.into());
        out.count(self.released.len().min(MAX_SOURCES));
        self.released.iter().take(MAX_SOURCES).for_each(|count| out.integer(*count));
        out.count(self.lanes.len().min(MAX_REPORTED_LANES));
        self.lanes.iter().take(MAX_REPORTED_LANES).for_each(|lane| lane.encode(out));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        let ended = reader.flag("an end of sending")?;
        let count = reader.count("a number of sources", MAX_SOURCES)?;
        let released = (0..count).map(|_| reader.integer()).collect::<Result<_, _>>()?;
        let count = reader.count("a number of lanes", MAX_REPORTED_LANES)?;
        let lanes = (0..count).map(|_| ReportedLane::decode(reader)).collect::<Result<_, _>>()?;
        Ok(Self { ended, released, lanes })
    }
}

/// Report of received data, and of sent data if the server sends.
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
    /// Progress of the server's load, if it sends one.
    pub progress: Option<Progress>,
}

/// Message of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Acceptance of the client.
    Welcome {
        /// Mark of the server's host.
        host: HostMark,
        /// Lane scheduler of what the server sends; `None` over TCP.
        path: Option<PathName>,
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
    /// Piece of a message of a source; the remaining bytes are payload.
    Data(Piece),
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
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], ProtocolError> {
        let (front, rest) = self.0.split_at_checked(len).ok_or(ProtocolError::Length)?;
        self.0 = rest;
        Ok(front)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        self.bytes(N)?.try_into().map_err(|_| ProtocolError::Length)
    }

    pub(super) fn byte(&mut self) -> Result<u8, ProtocolError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn integer(&mut self) -> Result<u64, ProtocolError> {
        let (value, len) = VarInt::decode(self.0).map_err(|_| ProtocolError::Length)?;
        self.bytes(len)?;
        Ok(value.get())
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, ProtocolError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(ProtocolError::Value { what, value: other.into() }),
        }
    }

    /// Reads the number of items that follow, at most `most`.
    pub(super) fn count(&mut self, what: &'static str, most: usize) -> Result<usize, ProtocolError> {
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
pub(super) struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes an integer. A value beyond the wire format is replaced by the largest possible one;
    /// nanoseconds reach it after 146 years.
    pub(super) fn integer(&mut self, value: u64) {
        let mut room = [0; VarInt::MAX_LEN];
        let written = VarInt::new(value).unwrap_or(VarInt::MAX).encode(&mut room);
        self.0.extend_from_slice(&room[..written.unwrap_or(0)]);
    }

    pub(super) fn count(&mut self, count: usize) {
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
        out.integer(self.released);
        out.integer(self.offset);
        out.integer(self.total);
    }

    /// Decodes the header after its type, of a message with this length.
    fn decode(reader: &mut Reader<'_>, len: usize) -> Result<Self, ProtocolError> {
        let (source, sequence, released) = (reader.source()?, reader.integer()?, reader.integer()?);
        let (offset, total) = (reader.integer()?, reader.integer()?);
        if total > MAX_MESSAGE {
            return Err(ProtocolError::Value { what: "a length", value: total });
        }
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > total) {
            return Err(ProtocolError::Value { what: "an offset", value: offset });
        }
        Ok(Self { source, sequence, released, offset, total })
    }
}

impl Request {
    /// Writes the message; for a piece, only its header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(Hello { nonce, host, number, connections, sources, load }) => {
                out.push(HELLO);
                out.extend_from_slice(&MAGIC);
                let mut writer = Writer(out);
                writer.integer(VERSION);
                writer.bytes(nonce);
                writer.bytes(host);
                writer.byte(*number);
                writer.byte(*connections);
                writer.count(sources.len());
                sources.iter().for_each(|source| writer.byte(source.each.into()));
                writer.byte(load.is_some().into());
                if let Some(load) = load {
                    load.encode(&mut writer);
                }
            }
            Self::Ping { number } => {
                out.push(PING);
                Writer(out).integer(*number);
            }
            Self::Data(piece) => piece.encode(out),
            Self::Start => out.push(START),
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
                let (number, connections) = (reader.byte()?, reader.byte()?);
                if connections > MAX_CONNECTIONS || number >= connections {
                    return Err(ProtocolError::Value {
                        what: "a number of connections",
                        value: number.into(),
                    });
                }
                let count = reader.count("a number of sources", MAX_SOURCES)?;
                let kinds = (0..count).map(|_| Ok(SourceKind { each: reader.flag("a kind of source")? }));
                let sources = kinds.collect::<Result<_, _>>()?;
                let load =
                    if reader.flag("a flag of a load")? { Some(Load::decode(&mut reader)?) } else { None };
                Self::Hello(Hello { nonce, host, number, connections, sources, load })
            }
            PING => Self::Ping { number: reader.integer()? },
            DATA => return Piece::decode(&mut reader, message.len()).map(Self::Data),
            START => Self::Start,
            FINISH => Self::Finish,
            kind => return Err(ProtocolError::Type { kind }),
        };
        reader.end()?;
        Ok(request)
    }
}

impl Reply {
    /// Writes the message; for a piece, only its header. Of a report, at most [`MAX_SOURCES`] totals
    /// and [`MAX_ARRIVALS`] arrivals are written.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Welcome { host, path } => {
                out.push(WELCOME);
                out.extend_from_slice(&MAGIC);
                let mut writer = Writer(out);
                writer.integer(VERSION);
                writer.bytes(host);
                // 0 stands for TCP.
                writer.byte(path.map_or(0, |path| path.code() + 1));
            }
            Self::Refused(refusal) => {
                out.push(REFUSED);
                out.extend_from_slice(&MAGIC);
                let (code, most) = refusal.code();
                out.push(code);
                most.into_iter().for_each(|most| Writer(out).integer(most));
            }
            Self::Pong { number, received, answered } => {
                out.push(PONG);
                let mut writer = Writer(out);
                [*number, *received, *answered].into_iter().for_each(|value| writer.integer(value));
            }
            Self::Report(Report { at, last, user, system, totals, arrivals, progress }) => {
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
                writer.byte(progress.is_some().into());
                if let Some(progress) = progress {
                    progress.encode(&mut writer);
                }
            }
            Self::Data(piece) => piece.encode(out),
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
                let (host, code) = (reader.array()?, reader.byte()?);
                let wrong = ProtocolError::Value { what: "a lane scheduler", value: code.into() };
                let path = code.checked_sub(1).map(|code| PathName::of(code).ok_or(wrong)).transpose()?;
                Self::Welcome { host, path }
            }
            REFUSED => Self::Refused(Refusal::decode(&mut reader)?),
            DATA => return Piece::decode(&mut reader, message.len()).map(Self::Data),
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
                let progress = if reader.flag("a flag of progress")? {
                    Some(Progress::decode(&mut reader)?)
                } else {
                    None
                };
                Self::Report(Report { at, last, user, system, totals, arrivals, progress })
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

    use marcato_units::{Priority, Rate};

    use super::super::load::{BulkLoad, BulkSpec, SourceSpec};
    use super::super::scheduler::StreamName;
    use super::*;

    fn integer() -> impl Strategy<Value = u64> {
        (0..=VarInt::MAX.get(), 0u32..62).prop_map(|(value, shift)| value >> shift)
    }

    fn load() -> impl Strategy<Value = Load> {
        let size = (32..=16_000_000u64).prop_map(Bytes::new);
        let priority = prop::sample::select(&Priority::ALL[..]);
        let period = (100_000..=86_400_000_000_000u64).prop_map(Duration::from_nanos);
        let source = (period.clone(), size.clone(), priority.clone());
        let source = source.prop_map(|(period, size, priority)| SourceSpec { period, size, priority });
        let bitrate = prop::option::of((1000..=1_000_000_000_000u64).prop_map(Rate::from_bps));
        let bytes = prop::option::of((1..=VarInt::MAX.get()).prop_map(Bytes::new));
        let bulk = (priority, size, bitrate, bytes, any::<bool>());
        let bulk = bulk.prop_map(|(priority, size, bitrate, bytes, unreliable)| BulkLoad {
            spec: BulkSpec { priority, size },
            bitrate,
            bytes,
            unreliable,
        });
        let stream = (0..4u8).prop_map(|code| StreamName::of(code).unwrap());
        let sources = prop::collection::vec(source, 0..MAX_SOURCES);
        (stream, period, any::<u64>(), sources, prop::option::of(bulk)).prop_map(
            |(stream, duration, seed, sources, bulk)| Load { stream, duration, seed, sources, bulk },
        )
    }

    fn request() -> impl Strategy<Value = Request> {
        let kinds =
            prop::collection::vec(any::<bool>().prop_map(|each| SourceKind { each }), 0..=MAX_SOURCES);
        let number = (1..=MAX_CONNECTIONS).prop_flat_map(|connections| (0..connections, Just(connections)));
        let hello = (any::<[u8; 16]>(), any::<[u8; 16]>(), number, kinds, prop::option::of(load()));
        let hello = hello.prop_map(|(nonce, host, (number, connections), sources, load)| {
            Request::Hello(Hello { nonce, host, number, connections, sources, load })
        });
        prop_oneof![
            hello,
            integer().prop_map(|number| Request::Ping { number }),
            Just(Request::Start),
            Just(Request::Finish),
        ]
    }

    fn progress() -> impl Strategy<Value = Progress> {
        let amounts = (integer(), integer(), integer(), integer());
        let us = (0..1u64 << 50).prop_map(Duration::from_micros);
        let lane = (any::<u8>(), any::<bool>(), us, amounts);
        let lane = lane.prop_map(|(id, low, srtt, (cwnd, unsent, packets, lost))| ReportedLane {
            id,
            layer: if low { Layer::Low } else { Layer::High },
            srtt,
            cwnd: Bytes::new(cwnd),
            unsent: Bytes::new(unsent),
            packets,
            lost,
        });
        let released = prop::collection::vec(integer(), 0..=MAX_SOURCES);
        (any::<bool>(), released, prop::collection::vec(lane, 0..=MAX_REPORTED_LANES))
            .prop_map(|(ended, released, lanes)| Progress { ended, released, lanes })
    }

    fn refusal() -> impl Strategy<Value = Refusal> {
        prop_oneof![
            Just(Refusal::Busy),
            Just(Refusal::Version),
            Just(Refusal::Protocol),
            integer().prop_map(|most| Refusal::Duration { most }),
            integer().prop_map(|most| Refusal::Size { most }),
            integer().prop_map(|most| Refusal::Rate { most }),
            integer().prop_map(|most| Refusal::Sources { most }),
            integer().prop_map(|most| Refusal::Connections { most }),
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
            prop::option::of(progress()),
        );
        let path = prop::option::of((0..4u8).prop_map(|code| PathName::of(code).unwrap()));
        prop_oneof![
            (any::<[u8; 16]>(), path).prop_map(|(host, path)| Reply::Welcome { host, path }),
            refusal().prop_map(Reply::Refused),
            (integer(), integer(), integer()).prop_map(|(number, received, answered)| Reply::Pong {
                number,
                received,
                answered
            }),
            report.prop_map(|(at, last, (user, system), totals, arrivals, progress)| {
                Reply::Report(Report { at, last, user, system, totals, arrivals, progress })
            }),
        ]
    }

    proptest! {
        #[test]
        fn requests_and_replies_are_read_back_only_if_whole(request in request(), reply in reply()) {
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
            released in integer(), offset in 0..1u64 << 28, payload in 0..100usize, rest in 0..1u64 << 28,
        ) {
            let mut out = Vec::new();
            let piece = Piece {
                source, sequence, released, offset, total: offset + MAX_DATA_HEADER as u64 + 100 + rest,
            };
            piece.encode(&mut out);
            prop_assert!(out.len() <= MAX_DATA_HEADER);
            out.resize(out.len() + payload, 7);
            prop_assert_eq!(Request::decode(&out), Ok(Request::Data(piece)));
            prop_assert_eq!(Reply::decode(&out), Ok(Reply::Data(piece)));
            // A piece must not extend beyond its message.
            let mut out = Vec::new();
            Piece { total: offset, ..piece }.encode(&mut out);
            prop_assert!(Request::decode(&out).is_err() && Reply::decode(&out).is_err());
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
        let many = [&b"\x01MPRF\x03"[..], &[0; 32], &[0, 1], &[0x40, 65]].concat();
        let what = "a number of sources";
        assert_eq!(Request::decode(&many), Err(ProtocolError::Value { what, value: 65 }));
        // Connections are counted from 0, and there are at most 128.
        for (number, connections) in [(0, 0), (1, 1), (0, 129)] {
            let hello = [&b"\x01MPRF\x03"[..], &[0; 32], &[number, connections, 0, 0]].concat();
            let what = "a number of connections";
            assert_eq!(Request::decode(&hello), Err(ProtocolError::Value { what, value: number.into() }));
        }
    }

    #[test]
    fn refusals_of_version_2_are_understood_by_it() {
        // Version 2 knew these three, without a bound, and refuses anything longer.
        for (code, refusal) in (0..).zip([Refusal::Busy, Refusal::Version, Refusal::Protocol]) {
            let mut out = Vec::new();
            Reply::Refused(refusal).encode(&mut out);
            assert_eq!(out, [REFUSED, b'M', b'P', b'R', b'F', code]);
        }
    }

    #[test]
    fn loads_out_of_range_are_refused() {
        let source =
            SourceSpec { period: Duration::from_millis(1), size: Bytes::kb(1), priority: Priority::P0 };
        let bulk = BulkLoad {
            spec: BulkSpec { priority: Priority::P4, size: Bytes::kb(64) },
            bitrate: None,
            bytes: None,
            unreliable: false,
        };
        let load = Load {
            stream: StreamName::Cats,
            duration: Duration::from_secs(1),
            seed: 1,
            sources: vec![source],
            bulk: Some(bulk),
        };
        let refused = |load: Load| {
            let mut out = Vec::new();
            let load = Some(load);
            let (nonce, host, sources) = ([0; 16], [0; 16], vec![]);
            Request::Hello(Hello { nonce, host, number: 0, connections: 1, sources, load }).encode(&mut out);
            match Request::decode(&out) {
                Err(ProtocolError::Value { what, .. }) => what,
                other => panic!("{other:?}"),
            }
        };
        let with = |source| Load { sources: vec![source], ..load.clone() };
        let bulky = |bulk| Load { bulk: Some(bulk), ..load.clone() };
        assert_eq!(refused(with(SourceSpec { period: Duration::from_micros(99), ..source })), "a period");
        assert_eq!(refused(with(SourceSpec { size: Bytes::new(31), ..source })), "a length");
        assert_eq!(refused(with(SourceSpec { size: Bytes::new(16_000_001), ..source })), "a length");
        assert_eq!(refused(bulky(BulkLoad { bitrate: Some(Rate::from_bps(999)), ..bulk })), "a rate");
        let long = Load { duration: Duration::from_secs(86_401), ..load.clone() };
        assert_eq!(refused(long), "a duration");
        let many = Load { sources: vec![source; MAX_SOURCES], ..load.clone() };
        assert_eq!(refused(many), "a number of sources");
    }
}
