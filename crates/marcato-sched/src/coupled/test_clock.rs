//! When a test is due that takes our part of the queue away.

use marcato_units::{Duration, Time};

/// Least time between tests, and the first and largest factor for it.
///
/// Each test leaves our part of the queue to others, which keep some of it. docs/results.md has what more and
/// fewer tests gave.
const TEST_EVERY: Duration = Duration::from_secs(1);
const BACKOFF_FROM: u32 = 4;
const BACKOFF_MAX: u32 = 32;
/// Longest period at which senders that compete test together.
const TEST_PERIOD_MAX: Duration = Duration::from_secs(256);
/// Least time until the next test after an end that was taken back, and the longest.
const HOLD_FROM: Duration = Duration::from_secs(8);
const HOLD_MAX: Duration = Duration::from_secs(128);
/// Round trips until a test, times the factor.
const TEST_ROUNDS: u32 = 10;
/// Time in steady mode after which competing begins anew.
const FLAPPING: Duration = Duration::from_secs(30);

/// Clock of the tests. It outlives the modes: a test that misled makes the next one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestClock {
    /// Factor of the time between tests.
    backoff: u32,
    /// Time at which competing ended last.
    ended: Option<Time>,
    /// Least time until the next test: longer with each end that was taken back.
    hold: Duration,
}

impl TestClock {
    pub(super) const fn new() -> Self {
        Self { backoff: 1, ended: None, hold: Duration::ZERO }
    }

    /// Begins with the shortest time between tests.
    pub(super) const fn restart(&mut self) {
        self.backoff = BACKOFF_FROM;
    }

    /// Sets the time between tests when steady mode was wrong: the shortest one, or a longer one if competing has
    /// ended only lately, because a test misled.
    pub(super) fn steady_was_wrong(&mut self, now: Time) {
        if self.ended.is_some_and(|ended| now.since(ended) < FLAPPING) {
            self.others_remain();
            self.hold = self.hold.saturating_mul(2).clamp(HOLD_FROM, HOLD_MAX);
        } else {
            self.hold = Duration::ZERO;
            self.restart();
        }
    }

    /// Makes the next test later: this one has found others.
    pub(super) fn others_remain(&mut self) {
        self.backoff = (self.backoff * 4).min(BACKOFF_MAX);
    }

    /// Takes note that competing has ended.
    pub(super) const fn competing_ended(&mut self, now: Time) {
        self.ended = Some(now);
    }

    /// Time of the next test of a sender that begins to compete.
    pub(super) fn due(&self, now: Time, rtt: Duration) -> Time {
        let wait =
            rtt.saturating_mul(TEST_ROUNDS).saturating_mul(self.backoff).max(TEST_EVERY).max(self.hold);
        let mut period = TEST_EVERY;
        while period < wait && period < TEST_PERIOD_MAX.max(self.hold) {
            period = period.saturating_mul(2);
        }
        // A multiple of the period, which is a power of two: senders whose waits differ meet at the larger one.
        let earliest = (now + wait.min(period) * 3 / 4).since(Time::ZERO).as_nanos();
        let periods = earliest.div_ceil(period.as_nanos().max(1));
        Time::ZERO + period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX))
    }

    /// Time without a queue after which competing ends: no less than this one, and more after ends that were taken back.
    pub(super) fn quiet(&self, least: Duration) -> Duration {
        least.max(self.hold)
    }

    /// Time after which a much larger rate is reason for a test before that.
    pub(super) fn early(&self, rtt: Duration) -> Duration {
        rtt.saturating_mul(TEST_ROUNDS).saturating_mul((self.backoff / 4).max(1)).max(self.hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_mode_that_ends_soon_makes_tests_rare() {
        let after = |seconds| {
            let mut clock = TestClock { backoff: 2, ended: Some(Time::from_secs(20)), ..TestClock::new() };
            clock.steady_was_wrong(Time::from_secs(seconds));
            clock.backoff
        };
        assert_eq!([49, 50].map(after), [8, BACKOFF_FROM]);
        let mut clock = TestClock { backoff: 2, ..TestClock::new() };
        clock.steady_was_wrong(Time::from_secs(30));
        assert_eq!(clock.backoff, BACKOFF_FROM);
    }

    #[test]
    fn a_test_that_fails_makes_the_next_one_later() {
        let mut clock = TestClock::new();
        clock.restart();
        let due = |clock: &TestClock| clock.due(Time::ZERO, Duration::from_millis(50)).since(Time::ZERO);
        let mut seen = [Duration::ZERO; 4];
        for wait in &mut seen {
            *wait = due(&clock);
            clock.others_remain();
        }
        assert_eq!(seen.map(|wait| wait.as_millis()), [2000, 8000, 16_000, 16_000]);
        // Short round trips do not make tests frequent.
        assert_eq!(clock.due(Time::ZERO, Duration::from_millis(1)), Time::from_secs(1));
    }
}
