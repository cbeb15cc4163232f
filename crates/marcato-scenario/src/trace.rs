//! Traces: recordings of when a real link could send.
//!
//! References: R. Netravali et al., "Mahimahi: accurate record-and-replay for HTTP", USENIX ATC 2015; K. Winstein,
//! A. Sivaraman and H. Balakrishnan, "Stochastic forecasts achieve high throughput and low delay over cellular
//! networks", NSDI 2013 (where such recordings come from).

use std::str::FromStr;
use std::sync::Arc;

use marcato_units::{Bytes, Duration, Rate};

/// A packet-delivery trace as mahimahi's: a time in whole milliseconds for each opportunity to put
/// [1504 bytes](Self::OPPORTUNITY) on the wire, from the beginning again when it has ended.
///
/// A link that has one sends by it instead of by a rate:
///
/// - A packet leaves the queue at an opportunity. If it is larger than what is left of that, it goes on in the next; if
///   it is smaller, the packet behind it begins in what is left. It is out when its last byte is.
/// - What is left when the queue is empty is gone. A packet that is offered in the very instant of an opportunity still
///   takes what is left of it; in mahimahi, whose clock has milliseconds, it comes too late.
/// - The last time is also how long the trace takes until it begins again: an opportunity at 0 comes together with the
///   last of the round before.
///
/// The bytes are those of the IP packet and of the link's [framing](crate::link::Direction::framing). Mahimahi's framing
/// is 4 bytes, the header of its tun device: 1500 bytes of IP, its MTU, then fill an opportunity exactly, and larger
/// packets do not occur.
///
/// ```
/// use marcato_scenario::trace::Trace;
/// use marcato_units::Duration;
///
/// // 1, 2, 2, 7, 8, 9, 9 ms, ...
/// let trace: Trace = "1\n2\n2\n7\n".parse()?;
/// assert_eq!(trace.period(), Duration::from_millis(7));
/// assert_eq!(trace.mean_rate().as_bps(), 4 * 1504 * 8 * 1000 / 7);
/// # Ok::<(), marcato_scenario::trace::TraceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Ascending; the last is not 0. Shared, since many links may have the same.
    millis: Arc<[u32]>,
}

/// Error returned for a text or list that is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// There is no opportunity.
    #[error("the trace is empty: give a line with a time in ms for each opportunity to send")]
    Empty,
    /// A line does not hold a time.
    #[error(
        "line {line}: {found:?} is no whole number of ms from 0 to 4294967295: write one, and nothing else"
    )]
    NotMillis {
        /// Which line, counted from 1.
        line: usize,
        /// How the line begins.
        found: String,
    },
    /// Time goes back.
    #[error("line {line}: {found} ms comes after {before} ms: sort the lines by time")]
    Descending {
        /// Which line, counted from 1.
        line: usize,
        /// The time in it.
        found: u32,
        /// The time in the line before.
        before: u32,
    },
    /// All opportunities are at 0, so that the trace would begin again at once, for ever.
    #[error("the trace ends at 0 ms, where it begins: end it later")]
    NoTime,
    /// There are more opportunities than [`Trace::MOST`].
    #[error("the trace has more than {} lines: cut it", Trace::MOST)]
    TooMany,
}

impl Trace {
    /// What one opportunity carries, framing included.
    pub const OPPORTUNITY: Bytes = Bytes::new(OPPORTUNITY);

    /// The most opportunities that a trace may have: a quarter of an hour at 100 Mbit/s, and 40 MB of memory.
    pub const MOST: usize = 10_000_000;

    /// A trace with opportunities at these times in ms.
    ///
    /// # Errors
    /// [`TraceError`] if there are none or too many, they descend, or the last is 0. The first counts as line 1.
    pub fn from_millis(millis: impl IntoIterator<Item = u32>) -> Result<Self, TraceError> {
        Self::collect(millis.into_iter().map(Ok))
    }

    /// The times in ms.
    pub fn millis(&self) -> &[u32] {
        &self.millis
    }

    /// How long it takes until it begins again: its last time.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.millis.last().copied().unwrap_or(0).into())
    }

    /// What it carries at most, on average.
    pub fn mean_rate(&self) -> Rate {
        Rate::from_bytes_over(Self::OPPORTUNITY * self.millis.len() as u64, self.period())
    }

    fn collect(times: impl Iterator<Item = Result<u32, TraceError>>) -> Result<Self, TraceError> {
        let mut millis = Vec::new();
        let mut before = 0;
        for (line, time) in (1..).zip(times) {
            let found = time?;
            if line > Self::MOST {
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

    /// Reads the text of a trace file: a whole number of ms in each line.
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

/// Mahimahi's link queue calls it the greatest payload of its tun device.
const OPPORTUNITY: u64 = 1504;

/// How much of a line an error repeats.
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
    fn what_is_no_trace_is_refused_with_its_line_and_a_way_out() {
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
