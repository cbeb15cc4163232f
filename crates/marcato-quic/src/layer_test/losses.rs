//! Losses of high lanes, with and without packets of low ones.

use marcato_units::{Duration, Time};

use super::{PriorityTest, Verdict};

/// Losses required while low lanes send before rates are compared ...
const MANY_LOST: u64 = 8;
/// ... and loss rate required: less harms little.
const RATE: f64 = 0.002;
/// Losses that have to be expected in pauses before rates are compared: a Poisson variable of mean
/// 12 is below 4 once in 400 times.
const EXPECTED: f64 = 12.0;
/// Time until losses are compared again, once they were found as frequent in pauses.
const LOSS_GAP: Duration = Duration::from_secs(60);
/// Number of packets of a low loss rate that are remembered: older ones count less and less.
const REMEMBERED: u64 = 10_000;

/// Acknowledgements and losses of high lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) acked: u64,
    pub(super) lost: u64,
}

impl Tally {
    fn total(&self) -> u64 {
        self.acked + self.lost
    }

    fn rate(&self) -> f64 {
        self.lost as f64 / self.total().max(1) as f64
    }

    fn age(&mut self) {
        if self.total() > REMEMBERED {
            self.acked /= 2;
            self.lost /= 2;
        }
    }
}

/// Losses of several comparisons, because they are rare.
#[derive(Debug)]
pub(super) struct Losses {
    /// While low lanes sent, and while they paused.
    pub(super) on: Tally,
    pub(super) off: Tally,
    /// Time before which they are not compared, and interval to the comparison after that.
    from: Time,
    gap: Duration,
}

impl Losses {
    pub(super) fn new(now: Time) -> Self {
        Self { on: Tally::default(), off: Tally::default(), from: now, gap: LOSS_GAP }
    }

    /// Forgets all packets.
    pub(super) fn clear(&mut self) {
        (self.on, self.off) = Default::default();
    }

    /// Compares loss rates; `None` if there is nothing to compare.
    pub(super) fn compare(&mut self, now: Time, test: &PriorityTest) -> Option<Verdict> {
        let with = self.on.rate();
        if now < self.from || self.on.lost < MANY_LOST || with < RATE {
            // Old rates say little about the present.
            self.on.age();
            self.off.age();
            return None;
        }
        let expected = with * self.off.total() as f64;
        let allowed = self.off.lost as f64 * f64::from(test.lossier) / 1000.0;
        // Once pauses have more losses than the final comparison allows, its result is certain.
        if expected.max(allowed) < EXPECTED {
            return Some(Verdict::Suspect);
        }
        self.clear();
        if expected > allowed {
            return Some(Verdict::Harm);
        }
        self.from = now + self.gap;
        self.gap = (self.gap * 2).min(test.longest_retest);
        Some(Verdict::Clear)
    }
}
