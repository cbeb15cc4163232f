//! Round-trip time of a flow, smoothed, in ticks.

/// Upper bound of a round trip, 2^23 ticks or 8.6 s: no trap waits longer for the end of one.
pub(super) const MAX_RTT: u32 = 1 << 23;

/// Smoothed round-trip time in ticks; 0 until the first sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SmoothedRtt(u32);

impl SmoothedRtt {
    pub(super) const fn new() -> Self {
        Self(0)
    }

    /// Smoothed round-trip time; 0 if there was no sample.
    pub(super) const fn ticks(self) -> u32 {
        self.0
    }

    /// Takes a sample into account: by a half if it is more than a quarter longer, else by a
    /// quarter.
    pub(super) fn sample(&mut self, sample: u32) {
        let sample = sample.clamp(1, MAX_RTT);
        if self.0 == 0 {
            self.0 = sample;
            return;
        }
        // One sample at most halves or doubles what it is compared with: a round trip that a loss
        // held open is not the path's.
        let sample = sample.clamp((self.0 >> 1).max(1), self.0 << 1);
        // A queue that fills makes the round trip grow fast, and a response must not be looked for
        // too early.
        let grows = sample > self.0 + (self.0 >> 2);
        let shift = if grows { 1 } else { 2 };
        self.0 = self.0 - (self.0 >> shift) + (sample >> shift);
        self.0 = self.0.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rtt_follows_its_samples_and_no_single_one_throws_it() {
        let mut rtt = SmoothedRtt::new();
        rtt.sample(1000);
        assert_eq!(rtt.0, 1000);
        rtt.sample(1_000_000);
        assert_eq!(rtt.0, 1500);
        for _ in 0..100 {
            rtt.sample(5000);
        }
        assert!((4990..=5000).contains(&rtt.0), "{}", rtt.0);
        for _ in 0..100 {
            rtt.sample(0);
        }
        assert!((1..8).contains(&rtt.0), "{}", rtt.0);
    }

    #[test]
    fn a_sample_more_than_a_quarter_longer_counts_by_half() {
        for (sample, expected) in [(124, 106), (125, 106), (126, 113)] {
            let mut rtt = SmoothedRtt::new();
            rtt.sample(100);
            rtt.sample(sample);
            assert_eq!(rtt.0, expected, "{sample}");
        }
    }
}
