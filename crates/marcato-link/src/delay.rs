//! Summary of a distribution of delays.

use marcato_units::Duration;

use crate::histogram::Histogram;

/// Summary of the distribution of a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelaySummary {
    /// Number of values.
    pub count: u64,
    /// Minimum.
    pub min: Duration,
    /// Mean.
    pub mean: Duration,
    /// Median. Quantiles are within 1/32 of the true ones.
    pub p50: Duration,
    /// 95th percentile.
    pub p95: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Maximum.
    pub max: Duration,
}

impl DelaySummary {
    /// Returns the summary of `histogram`; `None` if it is empty.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        Some(Self {
            count: histogram.count(),
            min: histogram.min()?,
            mean: histogram.mean()?,
            p50: histogram.quantile(0.5)?,
            p95: histogram.quantile(0.95)?,
            p99: histogram.quantile(0.99)?,
            max: histogram.max()?,
        })
    }
}
