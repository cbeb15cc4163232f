//! Bucket of tokens that fills at a rate.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use marcato_units::{Duration, Time};
use serde::Deserialize;

const SECOND: u64 = 1_000_000_000;

/// Rate with a burst.
///
/// In any time `t`, at most `per_second * t + burst` pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RateLimit {
    /// Passes in a second, in the long run.
    pub per_second: NonZeroU32,
    /// Passes at once, after a time without any.
    pub burst: NonZeroU32,
}

impl RateLimit {
    /// Creates a limit. A rate or a burst of 0 counts as 1.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self { per_second: at_least_one(per_second), burst: at_least_one(burst) }
    }

    /// Nanoseconds between two passes at the rate. They are rounded up, so that the rate is never exceeded.
    fn interval(self) -> u64 {
        SECOND.div_ceil(u64::from(self.per_second.get()))
    }
}

/// Bucket of tokens, by the generic cell rate algorithm (ITU-T I.371): its whole state is the time at
/// which it is full again.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes a token.
    ///
    /// # Errors
    /// The time until there is one, if the bucket is empty. That costs nothing.
    pub(crate) fn take(&self, now: Time, limit: RateLimit) -> Result<(), Duration> {
        let now = now.as_nanos();
        let interval = limit.interval();
        let depth = interval.saturating_mul(u64::from(limit.burst.get()));
        let next = |full_at: u64| full_at.max(now).saturating_add(interval);
        self.full_at
            .fetch_update(Relaxed, Relaxed, |full_at| Some(next(full_at)).filter(|next| next - now <= depth))
            .map(drop)
            .map_err(|full_at| Duration::from_nanos(next(full_at).saturating_sub(now).saturating_sub(depth)))
    }

    /// Time at which the bucket is full again.
    pub(crate) fn full_at(&self) -> Time {
        Time::from_nanos(self.full_at.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let (bucket, limit) = (Bucket::default(), RateLimit::new(10, 3));
        let at = Time::from_millis;
        assert_eq!([0, 0, 0].map(|ms| bucket.take(at(ms), limit)), [Ok(()); 3]);
        assert_eq!(bucket.take(at(0), limit), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take(at(60), limit), Err(Duration::from_millis(40)));
        assert_eq!(bucket.take(at(100), limit), Ok(()));
        assert!(bucket.take(at(199), limit).is_err());
        // After a silence the burst is back, and no more than it.
        assert_eq!((0..5).filter(|_| bucket.take(at(10_000), limit).is_ok()).count(), 3);
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_rate_times_time_and_burst(
            per_second in 1..2000_u32,
            burst in 1..50_u32,
            gaps in prop::collection::vec(0..20_000_000_u64, 1..300),
        ) {
            let (bucket, limit) = (Bucket::default(), RateLimit::new(per_second, burst));
            let mut now = 0;
            let mut passed = Vec::new();
            for gap in gaps {
                now += gap;
                if bucket.take(Time::from_nanos(now), limit).is_ok() {
                    passed.push(now);
                }
            }
            for first in 0..passed.len() {
                for last in first..passed.len() {
                    let seconds = (passed[last] - passed[first]) as f64 / 1e9;
                    let most = f64::from(per_second) * seconds + f64::from(burst);
                    prop_assert!((last - first + 1) as f64 <= most + 1e-6);
                }
            }
        }

        #[test]
        fn a_client_that_waits_as_told_passes(
            per_second in 1..2000_u32,
            burst in 1..50_u32,
            start in 0..10_000_000_000_u64,
        ) {
            let (bucket, limit) = (Bucket::default(), RateLimit::new(per_second, burst));
            let mut now = Time::from_nanos(start);
            for _ in 0..200 {
                if let Err(wait) = bucket.take(now, limit) {
                    prop_assert!(!wait.is_zero());
                    now += wait;
                    prop_assert_eq!(bucket.take(now, limit), Ok(()));
                }
            }
        }
    }
}
