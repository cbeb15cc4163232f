//! Noise of round trips that no queue explains.

use marcato_units::{Duration, Rate};

use super::config::CoupledConfig;

/// Differences that are kept: a quarter of them may be jumps of the path, which are no noise.
const KEPT: usize = 16;
/// Differences below which there is no noise yet.
const LEAST_TAKEN: usize = 6;
/// Rounds after a change of the cap that are no noise.
const SETTLING: u32 = 1;
/// Part of the least round trip that noise is at most taken for.
const MAX_PART: u32 = 4;

/// Differences between the least round trips of two rounds, one after the other, under one cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noise {
    /// Least round trip of the round before; `None` if the cap has changed since.
    before: Option<Duration>,
    /// Rounds to come in which the queue still follows the last change of the cap.
    settling: u32,
    /// Latest differences, in a ring.
    latest: [Duration; KEPT],
    /// Differences that were ever taken.
    taken: usize,
    /// Upper quartile of those that are kept.
    quartile: Duration,
}

impl Noise {
    pub(super) const fn new() -> Self {
        Self { before: None, settling: 0, latest: [Duration::ZERO; KEPT], taken: 0, quartile: Duration::ZERO }
    }

    /// Takes note of the least round trip of a round.
    pub(super) fn round(&mut self, least: Duration) {
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        if let Some(before) = self.before {
            self.latest[self.taken % KEPT] = least.max(before) - least.min(before);
            self.taken += 1;
            let mut sorted = self.latest;
            let kept = &mut sorted[..self.taken.min(KEPT)];
            kept.sort_unstable();
            // Of a few, the queue's own change at the beginning would be most.
            self.quartile = if kept.len() < LEAST_TAKEN { Duration::ZERO } else { kept[kept.len() * 3 / 4] };
        }
        self.before = Some(least);
    }

    /// Forgets the round before: the cap has changed, and the queue with it.
    pub(super) const fn cap_changed(&mut self) {
        (self.before, self.settling) = (None, SETTLING);
    }

    /// Part of the round trip that is noise, beyond the packet by which any round differs from the next.
    pub(super) fn level(&self, base: Duration, rate: Rate, config: &CoupledConfig) -> Duration {
        // Of independent normal differences, the upper quartile is twice the mean deviation.
        self.quartile.saturating_sub(rate.transmission_time(config.mss)).min(base / MAX_PART)
    }

    /// Number of rounds over which a rate has to be measured.
    pub(super) fn rounds(&self, base: Duration) -> u32 {
        let quartile = self.quartile.saturating_mul(100);
        if quartile < base.saturating_mul(2) {
            1
        } else if quartile < base.saturating_mul(6) {
            2
        } else {
            4
        }
    }
}
