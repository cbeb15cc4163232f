//! Instant in nanoseconds since the origin of the run.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Instant: nanoseconds since the origin of the run.
///
/// In virtual time the origin is the start of the simulation. Over real sockets it is an instant
/// that the program chose once. 64 bits of nanoseconds last 584 years. Arithmetic saturates at both
/// ends, so that no span, however absurd, makes time run backwards.
///
/// ```
/// use marcato_units::{Duration, Time};
/// let sent = Time::from_millis(40);
/// assert_eq!(sent + Duration::from_millis(2), Time::from_nanos(42_000_000));
/// assert_eq!(Time::from_millis(42) - sent, Duration::from_millis(2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Origin of the run.
    pub const ZERO: Self = Self(0);
    /// Time that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// Instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Instant `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Instant `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds since the origin, with their fraction: for reports, not for decisions.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds since the origin, with their fraction: for reports, not for decisions.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Span since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// `duration` in whole nanoseconds, saturating at 584 years.
const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_secs(1) + Duration::MAX, Time::MAX);
        assert_eq!(Time::from_secs(1) - Time::from_secs(2), Duration::ZERO);
    }

    #[test]
    fn a_time_is_printed_with_all_its_nanoseconds() {
        assert_eq!(std::format!("{}", Time::from_nanos(1_000_000_007)), "1.000000007 s");
    }
}
