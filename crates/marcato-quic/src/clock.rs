//! Conversion between the engine's time and ours.

use std::time::Instant;

use marcato_units::{Duration, Time};

/// Translates between [`Time`], which counts from the run's origin, and the engine's `Instant`,
/// which cannot be made from a number. The owner of the run sets the origin's instant; nothing here
/// reads a clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(pub(crate) Instant);

impl Clock {
    pub(crate) fn instant(self, time: Time) -> Instant {
        // No timer is set for times beyond the platform's range.
        self.0.checked_add(Duration::from_nanos(time.as_nanos())).unwrap_or(self.0)
    }

    pub(crate) fn time(self, instant: Instant) -> Time {
        let since = instant.saturating_duration_since(self.0).as_nanos();
        Time::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }
}
