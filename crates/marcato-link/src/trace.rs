//! Traces: recordings of the times at which a real link could send.
//!
//! References: R. Netravali et al., "Mahimahi: accurate record-and-replay for HTTP", USENIX ATC
//! 2015; K. Winstein, A. Sivaraman and H. Balakrishnan, "Stochastic forecasts achieve high
//! throughput and low delay over cellular networks", NSDI 2013 (the source of such recordings).

use std::str::FromStr;
use std::sync::Arc;

use marcato_units::{Bytes, Duration, Rate};

/// Packet-delivery trace in mahimahi's format.
///
/// Each line is a time in whole milliseconds: an opportunity to put [1504 bytes](Self::OPPORTUNITY)
/// on the wire. After the last one the trace starts over. A link with a trace sends at these
/// opportunities instead of at a rate:
///
/// - A packet leaves the queue at an opportunity. If it exceeds the opportunity's remaining bytes,
///   it continues in the next one. If it is smaller, the next packet starts in the remainder. A
///   packet is sent once its last byte is.
/// - The remainder is lost when the queue is empty. A packet offered at the very instant of an
///   opportunity still uses the remainder. In mahimahi, whose clock counts milliseconds, it is too
///   late.
/// - The last time is also the period of the trace. An opportunity at 0 coincides with the last one
///   of the previous period.
///
/// The bytes are those of the IP packet and of the link's framing. Mahimahi's framing is 4 bytes,
/// the header of its tun device. An IP packet of its MTU, 1500 bytes, then fills an opportunity
/// exactly, and larger packets do not occur.
///
/// ```
/// use marcato_link::Trace;
/// use marcato_units::Duration;
///
/// // 1, 2, 2, 7, 8, 9, 9 ms, ...
/// let trace: Trace = "1\n2\n2\n7\n".parse()?;
/// assert_eq!(trace.period(), Duration::from_millis(7));
/// assert_eq!(trace.mean_rate().as_bps(), 4 * 1504 * 8 * 1000 / 7);
/// # Ok::<(), marcato_link::TraceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Ascending times, the last above 0. Shared, since many links may use the same trace.
    millis: Arc<[u32]>,
}

/// Error returned for a text or list that is not a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// No opportunity in the trace.
    #[error("the trace is empty: give a line with a time in ms for each opportunity to send")]
    Empty,
    /// Line that is not a time.
    #[error(
        "line {line}: {found:?} is no whole number of ms from 0 to 4294967295: write one, and nothing else"
    )]
    NotMillis {
        /// Number of the line, counted from 1.
        line: usize,
        /// Beginning of the line.
        found: String,
    },
    /// Time earlier than the one before it.
    #[error("line {line}: {found} ms comes after {before} ms: sort the lines by time")]
    Descending {
        /// Number of the line, counted from 1.
        line: usize,
        /// Time in this line.
        found: u32,
        /// Time in the line before.
        before: u32,
    },
    /// All opportunities at 0, so that the trace would repeat forever without time passing.
    #[error("the trace ends at 0 ms, where it begins: end it later")]
    NoTime,
    /// More opportunities than [`Trace::MAX_OPPORTUNITIES`].
    #[error("the trace has more than {} lines: cut it", Trace::MAX_OPPORTUNITIES)]
    TooMany,
}

impl Trace {
    /// Bytes that one opportunity carries, including framing.
    pub const OPPORTUNITY: Bytes = Bytes::new(OPPORTUNITY);

    /// Largest number of opportunities of a trace: a quarter of an hour at 100 Mbit/s, and 40 MB of
    /// memory.
    pub const MAX_OPPORTUNITIES: usize = 10_000_000;

    /// Creates a trace from opportunities at these times in ms.
    ///
    /// # Errors
    /// [`TraceError`] if there are none or too many, they descend, or the last is 0. The first
    /// counts as line 1.
    pub fn from_millis(millis: impl IntoIterator<Item = u32>) -> Result<Self, TraceError> {
        Self::collect(millis.into_iter().map(Ok))
    }

    /// Returns the times in ms.
    pub fn millis(&self) -> &[u32] {
        &self.millis
    }

    /// Returns the period after which the trace starts over: its last time.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.millis.last().copied().unwrap_or(0).into())
    }

    /// Returns the average capacity.
    pub fn mean_rate(&self) -> Rate {
        Rate::from_bytes_over(Self::OPPORTUNITY * self.millis.len() as u64, self.period())
    }

    fn collect(times: impl Iterator<Item = Result<u32, TraceError>>) -> Result<Self, TraceError> {
        let mut millis = Vec::new();
        let mut before = 0;
        for (line, time) in (1..).zip(times) {
            let found = time?;
            if line > Self::MAX_OPPORTUNITIES {
                return Err(TraceError::TooMany);
            }
            if found < before {
                return Err(TraceError::Descending { line, found, before });
            }
            millis.push(found);
            before = found;
        }
        match millis.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoTime),
            Some(_) => Ok(Self { millis: millis.into() }),
        }
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    /// Reads the text of a trace file: a whole number of ms per line.
    fn from_str(text: &str) -> Result<Self, TraceError> {
        Self::collect((1..).zip(text.lines()).map(|(line, content)| {
            let content = content.trim();
            content.parse().map_err(|_| {
                let found = content.chars().take(MOST_SHOWN).collect();
                TraceError::NotMillis { line, found }
            })
        }))
    }
}

/// Largest payload of the tun device in mahimahi's link queue.
const OPPORTUNITY: u64 = 1504;

/// Number of characters of a line that an error repeats.
const MOST_SHOWN: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(millis: &[u32]) -> Trace {
        Trace::from_millis(millis.iter().copied()).unwrap()
    }

    #[test]
    fn a_trace_is_read_with_any_line_ends_and_written_back() {
        assert_eq!("0\n1\n1\n5".parse(), Ok(trace(&[0, 1, 1, 5])));
        assert_eq!("0\r\n1\r\n 1 \r\n5\r\n".parse(), Ok(trace(&[0, 1, 1, 5])));
        assert_eq!("4294967295\n".parse(), Ok(trace(&[u32::MAX])));
    }

    #[test]
    fn a_text_that_is_no_trace_is_refused_with_line_and_remedy() {
        let message = |text: &str| text.parse::<Trace>().unwrap_err().to_string();
        assert!(message("").contains("empty: give a line"));
        let expected =
            "line 2: \"\" is no whole number of ms from 0 to 4294967295: write one, and nothing else";
        assert_eq!(message("1\n\n2\n"), expected);
        assert!(message("1\n2.5\n").starts_with("line 2: \"2.5\" is no whole number"));
        assert!(message("-1\n").starts_with("line 1: \"-1\" is"));
        assert!(message("1\n4294967296\n").starts_with("line 2: \"4294967296\" is"));
        assert!(message(&"x".repeat(1000)).len() < 150);
        assert_eq!(message("1\n7\n3\n"), "line 3: 3 ms comes after 7 ms: sort the lines by time");
        assert_eq!(message("0\n0\n"), "the trace ends at 0 ms, where it begins: end it later");
        assert_eq!(Trace::from_millis(0..), Err(TraceError::TooMany));
        assert_eq!(Trace::from_millis([]), Err(TraceError::Empty));
    }

    #[test]
    fn the_mean_rate_counts_what_an_opportunity_carries() {
        assert_eq!(trace(&[1, 2, 3, 4]).mean_rate(), Rate::from_bps(4 * 1504 * 8 * 250));
        assert_eq!(trace(&[5, 10, 10]).mean_rate(), Rate::from_bps(3 * 1504 * 8 * 100));
    }
}
