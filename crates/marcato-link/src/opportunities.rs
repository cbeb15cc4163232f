//! Transmission opportunities of a link that follows a trace.

use marcato_units::{Bytes, Time};

use crate::trace::Trace;

/// Bytes that one opportunity carries.
const OPPORTUNITY: u64 = Trace::OPPORTUNITY.get();

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Position in a [`Trace`] that a link follows.
///
/// Time without opportunities or packets costs nothing. Finding the next opportunity after a pause
/// takes O(log n) for n opportunities.
#[derive(Debug)]
pub struct Opportunities {
    trace: Trace,
    /// Number of completed passes through the trace.
    round: u64,
    /// Index of the current opportunity in the trace.
    index: usize,
    /// Bytes left of the current opportunity.
    left: u64,
}

impl Opportunities {
    /// Creates a position at the start of the trace.
    pub fn new(trace: Trace) -> Self {
        Self { trace, round: 0, index: 0, left: OPPORTUNITY }
    }

    /// Returns the time at which a packet that waits at `now` may begin to leave: `now` or later.
    #[inline]
    pub fn next(&mut self, now: Time) -> Time {
        if self.left == 0 {
            self.pass(1);
        }
        if self.at() < now {
            // Two rounds meet in one instant: the last opportunity of one precedes the first of the
            // other.
            let (now, period) = (now.as_nanos(), self.period());
            self.round = (now - 1) / period;
            let within = now - self.round * period;
            self.index = self.trace.millis().partition_point(|&ms| nanos(ms) < within);
            self.left = OPPORTUNITY;
        }
        self.at()
    }

    /// Puts `bytes` on the wire, beginning with the current opportunity. Returns the time at which
    /// the last byte leaves.
    #[inline]
    pub fn take(&mut self, bytes: Bytes) -> Time {
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

    /// Returns the bytes already taken of opportunities after `now`.
    pub fn promised(&self, now: Time) -> f64 {
        if self.at() <= now {
            return 0.0;
        }
        let number = self.round as f64 * self.trace.millis().len() as f64 + self.index as f64 + 1.0;
        let taken = (number - self.until(now)) * OPPORTUNITY as f64 - self.left as f64;
        taken.max(0.0)
    }

    /// Returns the bytes of all opportunities up to `now`.
    pub fn capacity(&self, now: Time) -> f64 {
        self.until(now) * OPPORTUNITY as f64
    }

    /// Returns the number of opportunities up to `now`.
    fn until(&self, now: Time) -> f64 {
        let (now, period, millis) = (now.as_nanos(), self.period(), self.trace.millis());
        let rest = millis.partition_point(|&at| nanos(at) <= now % period);
        (now / period) as f64 * millis.len() as f64 + rest as f64
    }

    /// Advances by this number of opportunities.
    fn pass(&mut self, opportunities: u64) {
        let len = self.trace.millis().len() as u64;
        let index = (self.index as u64).saturating_add(opportunities);
        self.round = self.round.saturating_add(index / len);
        self.index = usize::try_from(index % len).unwrap_or(0);
        self.left = OPPORTUNITY;
    }

    /// Returns the time of the current opportunity.
    fn at(&self) -> Time {
        let begun = self.round.saturating_mul(self.period());
        Time::from_nanos(begun.saturating_add(nanos(self.trace.millis()[self.index])))
    }

    /// Returns the length of a round in nanoseconds; never 0.
    fn period(&self) -> u64 {
        nanos(self.trace.millis()[self.trace.millis().len() - 1])
    }
}

fn nanos(ms: u32) -> u64 {
    u64::from(ms) * NANOS_PER_MILLI
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Duration;
    use proptest::prelude::*;

    fn trace(millis: &[u32]) -> Trace {
        Trace::from_millis(millis.iter().copied()).unwrap()
    }

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn packets_share_an_opportunity_and_go_on_in_the_next() {
        let mut opportunities = Opportunities::new(trace(&[1, 2, 2, 7]));
        assert_eq!(opportunities.next(ms(0)), ms(1));
        // Three packets of 500 bytes and 4 bytes of the fourth; two more; then a large one takes
        // three opportunities.
        for at in [1, 1, 1, 2, 2, 2] {
            assert_eq!(opportunities.take(Bytes::new(500)), ms(at));
            assert_eq!(opportunities.next(ms(at)), ms(at));
        }
        assert_eq!(opportunities.left, 2 * 1504 - 6 * 500);
        assert_eq!(opportunities.take(Bytes::new(8 + 2 * 1504 + 1)), ms(8));
        assert_eq!(opportunities.left, 1503);
    }

    #[test]
    fn unused_opportunities_are_lost_and_the_trace_repeats() {
        let mut opportunities = Opportunities::new(trace(&[1, 2, 2, 7]));
        assert_eq!(opportunities.next(Time::from_nanos(2_000_001)), ms(7));
        assert_eq!(opportunities.next(ms(7)), ms(7));
        assert_eq!(opportunities.next(ms(8)), ms(8));
        // The opportunity at 9 ms occurs twice.
        assert_eq!(opportunities.next(ms(9)), ms(9));
        assert_eq!(opportunities.take(Trace::OPPORTUNITY), ms(9));
        assert_eq!(opportunities.next(ms(9)), ms(9));
        assert_eq!(opportunities.take(Trace::OPPORTUNITY), ms(9));
        assert_eq!(opportunities.next(ms(9)), ms(14));
        // A year later, which is a millisecond after the end of a round.
        let year = 365 * 24 * 3600 * 1000;
        assert_eq!(opportunities.next(ms(year)), ms(year));
        assert_eq!(opportunities.next(ms(year + 2)), ms(year + 6));
        // Saturates at the end of time.
        assert_eq!(opportunities.next(Time::MAX), Time::MAX);
        assert_eq!(opportunities.take(Bytes::MAX), Time::MAX);
        assert_eq!(opportunities.next(Time::MAX), Time::MAX);
    }

    #[test]
    fn the_last_of_a_round_comes_before_the_first_of_the_next() {
        let mut opportunities = Opportunities::new(trace(&[0, 0, 3]));
        assert_eq!(opportunities.next(ms(3)), ms(3));
        // Three opportunities fall on 3 ms.
        assert_eq!(opportunities.take(Bytes::new(3 * 1504)), ms(3));
        assert_eq!(opportunities.next(ms(3)), ms(6));
    }

    proptest! {
        /// Compares with a plain list of all opportunities.
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
