//! The engine's time and ours.

use std::time::Instant;

use marcato_units::{Duration, Time};

/// Translates between [`Time`], which counts from the run's origin, and the engine's `Instant`, which cannot be made
/// from a number. Whoever owns the run says which instant its origin is; nothing here reads a clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(pub(crate) Instant);

impl Clock {
    pub(crate) fn instant(self, time: Time) -> Instant {
        // Beyond what the platform can represent, nothing is ever waited for.
        self.0.checked_add(Duration::from_nanos(time.as_nanos())).unwrap_or(self.0)
    }

    pub(crate) fn time(self, instant: Instant) -> Time {
        let since = instant.saturating_duration_since(self.0).as_nanos();
        Time::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }
}
