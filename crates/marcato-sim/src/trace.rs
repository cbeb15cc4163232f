//! When a link may send: a recording of a real one.
//!
//! References: R. Netravali et al., "Mahimahi: accurate record-and-replay for HTTP", USENIX ATC 2015; K. Winstein,
//! A. Sivaraman and H. Balakrishnan, "Stochastic forecasts achieve high throughput and low delay over cellular
//! networks", NSDI 2013 (where such recordings come from).

use std::str::FromStr;
use std::sync::Arc;

use marcato_units::{Bytes, Duration, Rate, Time};

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
/// The bytes are those of the IP packet and of the link's [framing](crate::LinkConfig::framing). In mahimahi it is the
/// same with 4 bytes of framing, the header of its tun device: so 1500 bytes of IP, its MTU, fill an opportunity
/// exactly, and larger packets do not occur. [`LinkConfig::from_trace`](crate::LinkConfig::from_trace) sets these 4.
///
/// Time without opportunities, or without packets, costs nothing; to find the next opportunity after a pause takes
/// O(log n) of n.
///
/// ```
/// use marcato_sim::{LinkConfig, Trace};
/// use marcato_units::{Bytes, Duration};
///
/// // 1, 2, 2, 7, 8, 9, 9 ms, ...
/// let trace: Trace = "1\n2\n2\n7\n".parse()?;
/// assert_eq!(trace.period(), Duration::from_millis(7));
/// assert_eq!(trace.mean_rate().as_bps(), 4 * 1504 * 8 * 1000 / 7);
/// let link = LinkConfig::from_trace(trace, Duration::from_millis(20));
/// assert_eq!(link.framing, Bytes::new(4));
/// # Ok::<(), marcato_sim::TraceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Ascending; the last is not 0. Shared, since many links may have the same.
    millis: Arc<[u32]>,
}

/// Why something is no trace.
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

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A [`Trace`] under way.
pub(crate) struct Opportunities {
    trace: Trace,
    /// How often the trace has begun again.
    round: u64,
    /// The opportunity in hand: an index into the trace.
    index: usize,
    /// What is left of it.
    left: u64,
}

impl Opportunities {
    pub(crate) fn new(trace: Trace) -> Self {
        Self { trace, round: 0, index: 0, left: OPPORTUNITY }
    }

    /// When a packet that waits at `now` may begin to leave: `now` or later.
    pub(crate) fn next(&mut self, now: Time) -> Time {
        if self.left == 0 {
            self.pass(1);
        }
        if self.at() < now {
            // Rounds overlap in one instant, in which the last of the one comes before the first of the other.
            let (now, period) = (now.as_nanos(), self.period());
            self.round = (now - 1) / period;
            let within = now - self.round * period;
            self.index = self.trace.millis.partition_point(|&ms| nanos(ms) < within);
            self.left = OPPORTUNITY;
        }
        self.at()
    }

    /// Puts so many bytes on the wire, beginning with the opportunity in hand; returns when the last is out.
    pub(crate) fn take(&mut self, bytes: Bytes) -> Time {
        match self.left.checked_sub(bytes.get()) {
            Some(left) => self.left = left,
            None => {
                let more = bytes.get() - self.left;
                self.pass(more.div_ceil(OPPORTUNITY));
                self.left = (OPPORTUNITY - more % OPPORTUNITY) % OPPORTUNITY;
            }
        }
        self.at()
    }

    /// Goes on by so many opportunities.
    fn pass(&mut self, opportunities: u64) {
        let len = self.trace.millis.len() as u64;
        let index = (self.index as u64).saturating_add(opportunities);
        self.round = self.round.saturating_add(index / len);
        self.index = usize::try_from(index % len).unwrap_or(0);
        self.left = OPPORTUNITY;
    }

    /// The time of the opportunity in hand.
    fn at(&self) -> Time {
        let begun = self.round.saturating_mul(self.period());
        Time::from_nanos(begun.saturating_add(nanos(self.trace.millis[self.index])))
    }

    /// Nanoseconds from round to round; not 0.
    fn period(&self) -> u64 {
        nanos(self.trace.millis[self.trace.millis.len() - 1])
    }
}

fn nanos(ms: u32) -> u64 {
    u64::from(ms) * NANOS_PER_MILLI
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(millis: &[u32]) -> Trace {
        Trace::from_millis(millis.iter().copied()).unwrap()
    }

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
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
    fn packets_share_an_opportunity_and_go_on_in_the_next() {
        let mut opportunities = Opportunities::new(trace(&[1, 2, 2, 7]));
        assert_eq!(opportunities.next(ms(0)), ms(1));
        // Three of 500 bytes, and a piece of 4 of the fourth; two more; then a large one takes three.
        for at in [1, 1, 1, 2, 2, 2] {
            assert_eq!(opportunities.take(Bytes::new(500)), ms(at));
            assert_eq!(opportunities.next(ms(at)), ms(at));
        }
        assert_eq!(opportunities.left, 2 * 1504 - 6 * 500);
        assert_eq!(opportunities.take(Bytes::new(8 + 2 * 1504 + 1)), ms(8));
        assert_eq!(opportunities.left, 1503);
    }

    #[test]
    fn what_nobody_took_is_gone_and_the_trace_begins_again() {
        let mut opportunities = Opportunities::new(trace(&[1, 2, 2, 7]));
        assert_eq!(opportunities.next(Time::from_nanos(2_000_001)), ms(7));
        assert_eq!(opportunities.next(ms(7)), ms(7));
        assert_eq!(opportunities.next(ms(8)), ms(8));
        // The 1504 bytes of 9 ms are there twice.
        assert_eq!(opportunities.next(ms(9)), ms(9));
        assert_eq!(opportunities.take(Trace::OPPORTUNITY), ms(9));
        assert_eq!(opportunities.next(ms(9)), ms(9));
        assert_eq!(opportunities.take(Trace::OPPORTUNITY), ms(9));
        assert_eq!(opportunities.next(ms(9)), ms(14));
        // A year later; it ends a millisecond after a round does.
        let year = 365 * 24 * 3600 * 1000;
        assert_eq!(opportunities.next(ms(year)), ms(year));
        assert_eq!(opportunities.next(ms(year + 2)), ms(year + 6));
        // And at the end of time.
        assert_eq!(opportunities.next(Time::MAX), Time::MAX);
        assert_eq!(opportunities.take(Bytes::MAX), Time::MAX);
        assert_eq!(opportunities.next(Time::MAX), Time::MAX);
    }

    #[test]
    fn the_last_of_a_round_comes_before_the_first_of_the_next() {
        let mut opportunities = Opportunities::new(trace(&[0, 0, 3]));
        assert_eq!(opportunities.next(ms(3)), ms(3));
        // At 3 ms there is room for three.
        assert_eq!(opportunities.take(Bytes::new(3 * 1504)), ms(3));
        assert_eq!(opportunities.next(ms(3)), ms(6));
    }

    proptest! {
        /// Against a list of all opportunities, one by one.
        #[test]
        fn opportunities_agree_with_a_plain_list(
            mut millis in prop::collection::vec(0u32..12, 1..8),
            steps in prop::collection::vec((0u64..9, 1u64..4000), 1..40),
        ) {
            millis.sort_unstable();
            *millis.last_mut().unwrap() += 1;
            let trace = trace(&millis);
            let period = u64::from(*millis.last().unwrap());
            let mut list: Vec<(Time, u64)> = (0..1000u64)
                .flat_map(|round| millis.iter().map(move |&at| (ms(round * period + u64::from(at)), 1504)))
                .collect();
            let mut opportunities = Opportunities::new(trace);
            let mut now = Time::ZERO;
            for (pause, bytes) in steps {
                now += Duration::from_millis(pause);
                let mut usable = list.iter_mut().filter(|(at, left)| *at >= now && *left > 0);
                let (mut first, mut rest) = (None, bytes);
                let out_at = loop {
                    let (at, left) = usable.next().unwrap();
                    first.get_or_insert(*at);
                    let piece = rest.min(*left);
                    *left -= piece;
                    rest -= piece;
                    if rest == 0 {
                        break *at;
                    }
                };
                prop_assert_eq!(Some(opportunities.next(now)), first);
                prop_assert_eq!(opportunities.take(Bytes::new(bytes)), out_at);
                now = out_at;
            }
        }
    }
}
