//! Periodic sources and the expected times of their messages.

use core::time::Duration;

use marcato_units::{Bytes, Time};
use thiserror::Error;

/// Divisor of the period: the time after a release (beyond its jitter) until which its message is
/// expected.
const PATIENCE: u64 = 8;

/// Application's identifier of a periodic source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(pub u64);

/// Traffic profile of a periodic source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Time from one release to the next.
    pub period: Duration,
    /// Length of each message; of the longest, if they differ.
    pub size: Bytes,
    /// Time at which the next message is offered.
    pub next_release: Time,
    /// Largest deviation of a release from its time, either way.
    pub jitter: Duration,
}

impl Source {
    /// Creates a source without jitter.
    pub const fn new(period: Duration, size: Bytes, next_release: Time) -> Self {
        Self { period, size, next_release, jitter: Duration::ZERO }
    }

    /// Sets the jitter: the most by which a release may be early or late.
    #[must_use]
    pub const fn with_jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// Checks that room can be held for this source.
    pub(super) fn check(&self) -> Result<(), DeclareError> {
        if self.period.is_zero() {
            return Err(DeclareError::ZeroPeriod);
        }
        if self.size.is_zero() {
            return Err(DeclareError::ZeroSize);
        }
        if self.jitter >= self.period / 2 && !self.jitter.is_zero() {
            return Err(DeclareError::JitterTooLarge { jitter: self.jitter, period: self.period });
        }
        Ok(())
    }

    /// Returns the time until which a message due at `release` is expected.
    pub(super) fn lapse(&self, release: Time) -> Time {
        release + self.jitter + Duration::from_nanos(nanos(self.period) / PATIENCE)
    }

    /// Returns the number of releases, from the next one on, that have lapsed before `now`.
    pub(super) fn lapsed_before(&self, now: Time) -> u64 {
        let last = self.lapse(self.next_release);
        if now <= last {
            return 0;
        }
        (nanos(now.since(last)) / nanos(self.period).max(1)).saturating_add(1)
    }

    /// Skips a number of releases.
    pub(super) fn skip(&mut self, releases: u64) {
        let span = nanos(self.period).saturating_mul(releases);
        self.next_release += Duration::from_nanos(span);
    }

    /// Moves on to the next period after a message offered at `now`.
    pub(super) fn follow(&mut self, now: Time) {
        let off = now.since(self.next_release).max(self.next_release.since(now));
        // Within its jitter the source keeps its grid; beyond it, the grid moves.
        let grid = if off <= self.jitter { self.next_release } else { now };
        self.next_release = grid + self.period;
    }

    /// Returns whether a message offered at `now` is nearer to the previous release than to the
    /// next.
    pub(super) fn is_early(&self, now: Time) -> bool {
        now < self.next_release - self.period / 2
    }
}

/// Error returned when a source is not accepted. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeclareError {
    /// The period is zero, so every message would be released at once.
    #[error("a source needs a period longer than zero: offer its message without a source instead")]
    ZeroPeriod,
    /// The messages have no bytes, so there would be nothing to reserve.
    #[error("a source needs messages of at least one byte")]
    ZeroSize,
    /// The jitter is so large that releases could not be distinguished.
    #[error("a jitter of {jitter:?} is not below half the period of {period:?}: do not declare the source")]
    JitterTooLarge {
        /// Jitter declared.
        jitter: Duration,
        /// Period declared.
        period: Duration,
    },
    /// The table is full.
    #[error("{limit} sources are declared already: withdraw one first")]
    TooManySources {
        /// Most sources of one connection.
        limit: usize,
    },
}

/// Converts a span to nanoseconds, at most 584 years.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Returns a source of a message each 80 ms, the next one due at 100 ms.
    fn source() -> Source {
        Source::new(Duration::from_millis(80), Bytes::kb(10), ms(100))
    }

    #[test]
    fn impossible_sources_are_refused() {
        let good = source();
        assert_eq!(good.check(), Ok(()));
        assert_eq!(Source { period: Duration::ZERO, ..good }.check(), Err(DeclareError::ZeroPeriod));
        assert_eq!(Source { size: Bytes::ZERO, ..good }.check(), Err(DeclareError::ZeroSize));
        let (jitter, period) = (Duration::from_millis(40), good.period);
        assert_eq!(good.with_jitter(jitter).check(), Err(DeclareError::JitterTooLarge { jitter, period }));
        assert_eq!(good.with_jitter(jitter - Duration::from_nanos(1)).check(), Ok(()));
        // Half of a period of one nanosecond is zero.
        assert_eq!(Source { period: Duration::from_nanos(1), ..good }.check(), Ok(()));
    }

    #[test]
    fn a_message_is_expected_for_an_eighth_of_the_period() {
        let jittery = source().with_jitter(Duration::from_millis(7));
        assert_eq!([source(), jittery].map(|source| source.lapse(ms(100))), [ms(110), ms(117)]);
    }

    #[test]
    fn releases_lapse_one_period_after_the_other() {
        let lapsed = |at| source().lapsed_before(at);
        let after = |at| lapsed(ms(at) + Duration::from_nanos(1));
        assert_eq!([110, 190, 270].map(|at| lapsed(ms(at))), [0, 2, 3]);
        assert_eq!([109, 110, 189, 190].map(after), [0, 1, 1, 2]);
    }

    #[test]
    fn skipped_releases_keep_the_grid() {
        let mut skipping = source();
        skipping.skip(3);
        assert_eq!(skipping.next_release, ms(340));
        skipping.skip(u64::MAX);
        assert_eq!(skipping.next_release, Time::MAX);
    }

    #[test]
    fn a_message_of_the_first_half_period_is_early() {
        assert!(source().is_early(ms(60) - Duration::from_nanos(1)));
        assert!(!source().is_early(ms(60)) && !source().is_early(ms(200)));
    }

    #[test]
    fn only_a_release_beyond_its_jitter_shifts_the_grid() {
        for (at, expected) in [(94, 174), (95, 180), (100, 180), (105, 180), (106, 186)] {
            let mut source = source().with_jitter(Duration::from_millis(5));
            source.follow(ms(at));
            assert_eq!(source.next_release, ms(expected), "released at {at} ms");
        }
    }
}
