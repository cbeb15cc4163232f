//! Histogram of durations in a fixed amount of memory.

use marcato_units::Duration;

/// Binary logarithm of the number of buckets per power of two.
const PARTS_LOG2: u32 = 5;
const PARTS: u64 = 1 << PARTS_LOG2;
/// Exponent from which spans, of 2^42 ns or 73 minutes and more, share the last bucket.
const LAST_OCTAVE: u32 = 42;
const BUCKETS: usize = ((LAST_OCTAVE - PARTS_LOG2 + 1) as usize) << PARTS_LOG2;

/// Histogram of durations whose buckets are a thirty-second of a power of two wide. It takes 9728
/// bytes.
///
/// Minimum, maximum and mean are exact. A [quantile](Self::quantile) lies within 1/32 of the true
/// one for durations below 73 minutes; up to 64 ns it is exact.
///
/// ```
/// use marcato_link::Histogram;
/// use marcato_units::Duration;
///
/// let mut histogram = Histogram::default();
/// (1..=100).for_each(|ms| histogram.record(Duration::from_millis(ms)));
/// let median = histogram.quantile(0.5).map(|span| span.as_secs_f64());
/// assert!(median.is_some_and(|median| (median - 0.050).abs() <= 0.050 / 32.0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

/// Returns the bucket of a duration in nanoseconds.
#[expect(clippy::cast_possible_truncation, reason = "below the number of buckets")]
fn bucket(nanos: u64) -> usize {
    if nanos < PARTS {
        return nanos as usize;
    }
    let octave = nanos.ilog2();
    let part = (nanos >> (octave - PARTS_LOG2)) - PARTS;
    let index = u64::from(octave - PARTS_LOG2 + 1) * PARTS + part;
    (index as usize).min(BUCKETS - 1)
}

/// Returns the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (row, part) = ((bucket >> PARTS_LOG2) as u64, bucket as u64 % PARTS);
    match row.checked_sub(1) {
        None => part,
        Some(shift) => ((PARTS + part) << shift) + ((1 << shift) >> 1),
    }
}

impl Histogram {
    /// Adds a duration.
    pub fn record(&mut self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the least duration; `None` if the histogram is empty.
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.min))
    }

    /// Returns the greatest duration; `None` if the histogram is empty.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.max))
    }

    /// Returns the mean duration; `None` if the histogram is empty.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        Some(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// Returns the duration that a share `quantile` of all does not exceed, within 1/32; `None` if
    /// the histogram is empty. The share is clamped to 0 to 1.
    #[expect(clippy::cast_possible_truncation, reason = "at most the count")]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let rank = (libm::ceil(quantile.clamp(0.0, 1.0) * self.count as f64) as u64).clamp(1, self.count);
        if rank == self.count {
            return self.max();
        }
        let mut below = 0;
        let index = self.buckets.iter().position(|&n| {
            below += n;
            below >= rank
        })?;
        Some(Duration::from_nanos(middle(index).clamp(self.min, self.max)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_histogram_is_as_small_as_documented() {
        assert_eq!(BUCKETS * 8, 9728);
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        let empty = Histogram::default();
        assert_eq!((empty.min(), empty.mean(), empty.max()), (None, None, None));
        assert_eq!(empty.quantile(0.5), None);
    }

    #[test]
    fn the_middle_of_a_bucket_lies_in_it_and_buckets_ascend() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(middle(index)), index);
        }
        assert!((1..BUCKETS).all(|index| middle(index - 1) < middle(index)));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        #[expect(clippy::cast_possible_truncation, reason = "at most 400")]
        fn quantiles_are_near_those_of_the_sorted_spans(
            mut spans in prop::collection::vec((0u32..42, any::<u64>()), 1..400), quantile in 0.0f64..=1.0,
        ) {
            let mut nanos: Vec<u64> = spans.drain(..).map(|(octave, bits)| bits % (1 << octave).max(1)).collect();
            let mut histogram = Histogram::default();
            nanos.iter().for_each(|&n| histogram.record(Duration::from_nanos(n)));
            nanos.sort_unstable();
            let rank = ((quantile * nanos.len() as f64).ceil() as usize).clamp(1, nanos.len());
            let exact = nanos[rank - 1] as f64;
            let near = histogram.quantile(quantile).unwrap().as_nanos() as f64;
            prop_assert!((near - exact).abs() <= exact / 32.0, "{near} for {exact}");
            prop_assert_eq!(histogram.min(), Some(Duration::from_nanos(nanos[0])));
            prop_assert_eq!(histogram.max(), nanos.last().map(|&n| Duration::from_nanos(n)));
            let mean = nanos.iter().map(|&n| u128::from(n)).sum::<u128>() / nanos.len() as u128;
            prop_assert_eq!(histogram.mean().map(|m| m.as_nanos()), Some(mean));
        }
    }
}
