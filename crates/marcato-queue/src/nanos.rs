//! Times and spans in nanoseconds, as the controllers of queues calculate.

use marcato_units::{Duration, Time};

/// Upper bound of the steps in one call.
const MOST_STEPS: u64 = 1 << 16;

/// Time `nanos` nanoseconds after `t`.
pub(crate) const fn after(t: Time, nanos: u64) -> Time {
    Time::from_nanos(t.as_nanos().saturating_add(nanos))
}

/// `value` as a signed number, for differences.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// `span` in nanoseconds.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Clock of a controller without a timer: it tells the steps that are due. The first call starts it.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    period: u64,
    /// Time of the next step; `None` before the first call.
    next: Option<Time>,
}

impl Steps {
    /// Creates a clock of this period, which is not zero.
    pub(crate) fn every(period: u64) -> Self {
        Self { period, next: None }
    }

    /// Takes the times of the steps that are due at `now`. Beyond the most steps the clock jumps.
    pub(crate) fn due(&mut self, now: Time) -> impl Iterator<Item = Time> + use<> {
        let (first, period) = (self.next.unwrap_or_else(|| after(now, self.period)), self.period);
        let passed = now.as_nanos().checked_sub(first.as_nanos()).map_or(0, |late| late / period + 1);
        let steps = passed.min(MOST_STEPS);
        let next = after(first, steps.saturating_mul(period));
        self.next = Some(if next > now { next } else { after(now, period) });
        (0..steps).map(move |step| after(first, step * period))
    }
}
