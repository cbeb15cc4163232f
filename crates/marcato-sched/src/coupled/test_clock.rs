//! When a test is due that takes our part of the queue away.

use marcato_units::{Duration, Time};

/// Least time between tests, and the first and largest factor for it.
///
/// Each test leaves our part of the queue to others, which keep some of it. docs/results.md has what more and
/// fewer tests gave.
const TEST_EVERY: Duration = Duration::from_secs(1);
const BACKOFF_FROM: u32 = 4;
const BACKOFF_MAX: u32 = 32;
/// Round trips until a test, times the factor.
const TEST_ROUNDS: u32 = 10;
/// Time in steady mode after which competing begins anew.
const FLAPPING: Duration = Duration::from_secs(20);

/// Clock of the tests. It outlives the modes: a test that misled makes the next one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestClock {
    /// Factor of the time between tests.
    backoff: u32,
    /// Time at which competing ended last.
    ended: Option<Time>,
}

impl TestClock {
    pub(super) const fn new() -> Self {
        Self { backoff: 1, ended: None }
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
        } else {
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
        now + rtt.saturating_mul(TEST_ROUNDS).saturating_mul(self.backoff).max(TEST_EVERY)
    }

    /// Time after which a much larger rate is reason for a test before that.
    pub(super) fn early(&self, rtt: Duration) -> Duration {
        rtt.saturating_mul(TEST_ROUNDS).saturating_mul((self.backoff / 4).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_mode_that_ends_soon_makes_tests_rare() {
        let after = |seconds| {
            let mut clock = TestClock { backoff: 2, ended: Some(Time::from_secs(20)) };
            clock.steady_was_wrong(Time::from_secs(seconds));
            clock.backoff
        };
        assert_eq!([39, 40].map(after), [8, BACKOFF_FROM]);
        let mut clock = TestClock { backoff: 2, ended: None };
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
