//! Load that one end of a connection sends.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use marcato_units::{Bytes, Priority, Rate};

use super::protocol::{MAX_DATA_HEADER, MAX_SOURCES, ProtocolError, Reader, Writer};
use super::quantity::{priority, shown_size, shown_span, size, span};
use super::scheduler::StreamName;

/// Shortest message: it must hold the header of its piece.
pub(crate) const MIN_MESSAGE: Bytes = Bytes::new(32);
/// Longest message that `marcato perf` accepts as a whole.
const MAX_MESSAGE: Bytes = Bytes::new(16_000_000);
/// Shortest period of a source.
const SHORTEST_PERIOD: Duration = Duration::from_micros(100);
/// Largest number of messages of one source. Each takes up to 32 bytes of memory.
const MOST_MESSAGES: u128 = 10_000_000;
/// Longest duration and period on the wire: a day, as on the command line.
const DAY: Duration = Duration::from_secs(86_400);
/// Lowest and highest rate of bulk data on the wire, as on the command line, in bit/s.
const RATES: std::ops::RangeInclusive<u64> = 1000..=1_000_000_000_000;

const _: () = assert!(MAX_DATA_HEADER as u64 <= MIN_MESSAGE.get());

/// Periodic source: a message of this size in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// Time between two messages.
    pub period: Duration,
    /// Length of each message.
    pub size: Bytes,
    /// Priority of each message.
    pub priority: Priority,
}

impl FromStr for SourceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (period, bytes, level) = match parts[..] {
            [period, bytes] => (period, bytes, "p0"),
            [period, bytes, level] => (period, bytes, level),
            _ => return Err("write PERIOD:SIZE or PERIOD:SIZE:PRIORITY, for example 100ms:10kB:p0".into()),
        };
        let source = Self { period: span(period)?, size: sendable(bytes)?, priority: priority(level)? };
        if source.period < SHORTEST_PERIOD {
            return Err(format!("a period of {period} is too short: give at least 100us"));
        }
        Ok(source)
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (period, size) = (shown_span(self.period), shown_size(self.size));
        write!(f, "{period}:{size}:p{}", self.priority.index())
    }
}

/// Endless background data, in messages of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkSpec {
    /// Priority of each message.
    pub priority: Priority,
    /// Length of each message.
    pub size: Bytes,
}

impl FromStr for BulkSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (level, bytes) = text.split_once(':').unwrap_or((text, "64kB"));
        Ok(Self { priority: priority(level)?, size: sendable(bytes)? })
    }
}

impl fmt::Display for BulkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}:{}", self.priority.index(), shown_size(self.size))
    }
}

fn sendable(text: &str) -> Result<Bytes, String> {
    let bytes = size(text)?;
    if !(MIN_MESSAGE..=MAX_MESSAGE).contains(&bytes) {
        return Err(format!("give messages of 32B to 16MB, not {text}"));
    }
    Ok(bytes)
}

/// Bulk data with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkLoad {
    /// Messages.
    pub spec: BulkSpec,
    /// Rate; `None` for as much as fits.
    pub bitrate: Option<Rate>,
    /// Amount after whose delivery the sender stops.
    pub bytes: Option<Bytes>,
    /// Set if messages are unreliable, and so fit one packet each.
    pub unreliable: bool,
}

/// Load that one end of a connection sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Order in which messages are sent.
    pub stream: StreamName,
    /// Duration of sending.
    pub duration: Duration,
    /// Seed of the sources' phases and of the filling.
    pub seed: u64,
    /// Periodic sources; at most [`MAX_SOURCES`], bulk included.
    pub sources: Vec<SourceSpec>,
    /// Bulk data. Its index follows those of the sources.
    pub bulk: Option<BulkLoad>,
}

impl Load {
    /// Returns the number of sources, bulk included.
    pub(crate) fn len(&self) -> usize {
        self.sources.len() + usize::from(self.bulk.is_some())
    }

    /// Returns the number of messages that a source has at most.
    pub(crate) fn most_messages(&self, source: &SourceSpec) -> u128 {
        self.duration.as_nanos() / source.period.as_nanos().max(1) + 1
    }

    /// Returns a source that would send too many messages.
    pub(crate) fn endless(&self) -> Option<SourceSpec> {
        self.sources.iter().copied().find(|source| self.most_messages(source) > MOST_MESSAGES + 1)
    }

    /// Returns the length of the longest message.
    pub(crate) fn longest(&self) -> Bytes {
        let sizes = self.sources.iter().map(|source| source.size);
        sizes.chain(self.bulk.map(|bulk| bulk.spec.size)).max().unwrap_or_default()
    }

    /// Returns the sum of the rates of all sources in bit/s; `None` if bulk data has no rate.
    pub(crate) fn rate(&self) -> Option<u128> {
        let of = |source: &SourceSpec| {
            u128::from(source.size.get()) * 8_000_000_000 / source.period.as_nanos().max(1)
        };
        let bulk = self.bulk.map_or(Some(0), |bulk| bulk.bitrate.map(|rate| rate.as_bps().into()))?;
        Some(self.sources.iter().map(of).sum::<u128>() + bulk)
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let level = |priority: Priority| u8::try_from(priority.index()).unwrap_or(u8::MAX);
        out.byte(self.stream.code());
        out.integer(ns(self.duration));
        out.bytes(&self.seed.to_be_bytes());
        out.byte(self.bulk.is_some().into());
        if let Some(bulk) = &self.bulk {
            out.byte(level(bulk.spec.priority));
            out.integer(bulk.spec.size.get());
            out.integer(bulk.bitrate.map_or(0, Rate::as_bps));
            out.integer(bulk.bytes.map_or(0, Bytes::get));
            out.byte(bulk.unreliable.into());
        }
        out.count(self.sources.len());
        for source in &self.sources {
            out.integer(ns(source.period));
            out.integer(source.size.get());
            out.byte(level(source.priority));
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        let code = reader.byte()?;
        let wrong = ProtocolError::Value { what: "a stream scheduler", value: code.into() };
        let stream = StreamName::of(code).ok_or(wrong)?;
        let duration = span_of(reader, "a duration", Duration::ZERO)?;
        let seed = u64::from_be_bytes(reader.array()?);
        let bulk = if reader.flag("a flag of bulk data")? { Some(BulkLoad::decode(reader)?) } else { None };
        let most = MAX_SOURCES - usize::from(bulk.is_some());
        let sources = (0..reader.count("a number of sources", most)?).map(|_| SourceSpec::decode(reader));
        Ok(Self { stream, duration, seed, sources: sources.collect::<Result<_, _>>()?, bulk })
    }
}

impl SourceSpec {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        let period = span_of(reader, "a period", SHORTEST_PERIOD)?;
        Ok(Self { period, size: size_of(reader)?, priority: priority_of(reader)? })
    }
}

impl BulkLoad {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        let (priority, size) = (priority_of(reader)?, size_of(reader)?);
        let bitrate = match reader.integer()? {
            0 => None,
            value if RATES.contains(&value) => Some(Rate::from_bps(value)),
            value => return Err(ProtocolError::Value { what: "a rate", value }),
        };
        let bytes = Some(Bytes::new(reader.integer()?)).filter(|bytes| *bytes > Bytes::ZERO);
        let unreliable = reader.flag("a flag of unreliable data")?;
        Ok(Self { spec: BulkSpec { priority, size }, bitrate, bytes, unreliable })
    }
}

fn priority_of(reader: &mut Reader<'_>) -> Result<Priority, ProtocolError> {
    let index = reader.byte()?;
    let wrong = ProtocolError::Value { what: "a priority", value: index.into() };
    Priority::from_index(index.into()).ok_or(wrong)
}

fn size_of(reader: &mut Reader<'_>) -> Result<Bytes, ProtocolError> {
    let value = reader.integer()?;
    let size = Some(Bytes::new(value)).filter(|size| (MIN_MESSAGE..=MAX_MESSAGE).contains(size));
    size.ok_or(ProtocolError::Value { what: "a length", value })
}

fn span_of(
    reader: &mut Reader<'_>,
    what: &'static str,
    shortest: Duration,
) -> Result<Duration, ProtocolError> {
    let value = reader.integer()?;
    let span = Some(Duration::from_nanos(value)).filter(|span| (shortest..=DAY).contains(span));
    span.ok_or(ProtocolError::Value { what, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        let bulk = BulkLoad {
            spec: "p4".parse().unwrap(),
            bitrate: Some(Rate::from_mbps(2)),
            bytes: None,
            unreliable: false,
        };
        Load {
            stream: StreamName::Cats,
            duration: Duration::from_secs(10),
            seed: 1,
            sources: vec!["100ms:10kB".parse().unwrap(), "1s:1MB:p2".parse().unwrap()],
            bulk: Some(bulk),
        }
    }

    #[test]
    fn sources_are_read_as_they_are_shown() {
        for text in ["100ms:10kB:p0", "20ms:33B:p1", "1.5s:2.5MB:p4"] {
            assert_eq!(text.parse::<SourceSpec>().unwrap().to_string(), text);
        }
        assert_eq!("100ms:10kB".parse::<SourceSpec>().unwrap().to_string(), "100ms:10kB:p0");
        assert_eq!("p4".parse::<BulkSpec>().unwrap().to_string(), "p4:64kB");
        assert_eq!("p3:1MB".parse::<BulkSpec>().unwrap().to_string(), "p3:1MB");
        for wrong in
            ["100ms", "100ms:10kB:p0:x", "10kB:100ms", "0s:10kB", "100ms:1B", "100ms:17MB", "1us:1kB"]
        {
            assert!(wrong.parse::<SourceSpec>().is_err(), "{wrong}");
        }
        assert!("64kB".parse::<BulkSpec>().is_err());
    }

    #[test]
    fn the_rate_of_a_load_is_the_sum_of_its_sources() {
        // 10 kB in 100 ms are 0.8 Mbit/s, 1 MB in 1 s are 8 Mbit/s.
        assert_eq!((load().rate(), load().longest(), load().len()), (Some(10_800_000), Bytes::kb(1000), 3));
        let unpaced = BulkLoad { bitrate: None, ..load().bulk.unwrap() };
        assert_eq!(Load { bulk: Some(unpaced), ..load() }.rate(), None);
        assert_eq!(load().endless(), None);
        let fast: SourceSpec = "1ms:1kB".parse().unwrap();
        let long = Load { duration: Duration::from_secs(10_001), sources: vec![fast], ..load() };
        assert_eq!(long.endless(), Some(fast));
    }
}
