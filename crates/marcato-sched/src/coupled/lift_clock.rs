//! When a lift may be made.

use marcato_units::{Duration, Time};

/// Least and largest wait after a lift that found our own queue.
const WAIT_FROM: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(32);

/// Time after the first round in which senders that began together would take each other for others.
const SETTLING: Duration = Duration::from_secs(9);

/// Clock of the lifts. It outlives the modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LiftClock {
    not_before: Time,
    /// End of the time in which senders that began together settle.
    settled: Option<Time>,
    wait: Duration,
}

impl LiftClock {
    pub(super) const fn new() -> Self {
        Self { not_before: Time::ZERO, settled: None, wait: WAIT_FROM }
    }

    /// Returns whether a lift may be made, on a path with noise or without.
    pub(super) fn is_due(&mut self, now: Time, is_noisy: bool) -> bool {
        let settled = *self.settled.get_or_insert(now + SETTLING);
        now >= self.not_before && (is_noisy || now >= settled)
    }

    /// Takes note of a lift that said nothing.
    pub(super) fn void(&mut self, now: Time) {
        self.not_before = now + WAIT_FROM;
    }

    /// Takes note of a lift that found our own queue.
    pub(super) fn own(&mut self, now: Time) {
        self.not_before = now + self.wait;
        self.wait = self.wait.saturating_mul(2).min(WAIT_MAX);
    }

    /// Takes note of a lift that found room.
    pub(super) fn gained(&mut self, now: Time) {
        (self.not_before, self.wait) = (now, WAIT_FROM);
    }
}
