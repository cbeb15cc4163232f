//! Losses in bursts: a wire that is good or bad.
//!
//! References: E. N. Gilbert, "Capacity of a burst-noise channel", Bell System Technical Journal 39(5), 1960;
//! E. O. Elliott, "Estimates of error rates for codes on burst-noise channels", ibid. 42(5), 1963; the names p and r
//! are those of G. Haßlinger and O. Hohlfeld, "The Gilbert-Elliott model for packet loss in real time services on the
//! Internet", MMB 2008 (their h and k are one minus the losses here).

use marcato_units::Stream;

/// A wire with a good and a bad state, which loses packets with a probability of its own in each.
///
/// Time is counted in packets: each sees the state, and then the state changes or not. The first sees the good state or
/// the bad one as often as a packet in the midst of many would.
///
/// ```
/// use marcato_sim::{GilbertElliott, Loss};
///
/// // One packet in a hundred is lost, on average five in a row.
/// let bursts = GilbertElliott::bursts(0.01, 5.0)?;
/// assert!((bursts.mean_loss() - 0.01).abs() < 1e-12);
/// let loss = Loss::GilbertElliott(bursts);
/// # Ok::<(), marcato_sim::GilbertElliottError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// From good to bad.
    p: f64,
    /// From bad to good.
    r: f64,
    loss_good: f64,
    loss_bad: f64,
}

/// Why losses cannot come in such bursts.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GilbertElliottError {
    /// A probability is none.
    #[error("{what} is {value}: give a probability from 0 to 1")]
    Probability {
        /// Which of them.
        what: &'static str,
        /// What was given.
        value: f64,
    },
    /// A burst of less than a packet.
    #[error("a mean burst of {0} packets is no burst: give 1 packet or more")]
    Burst(f64),
    /// Between such bursts there would be less than one packet.
    #[error(
        "a mean loss of {mean_loss} in bursts of {mean_burst} packets leaves less than a packet between bursts: lose \
         at most {most}, or in longer bursts"
    )]
    Frequent {
        /// The mean loss wanted.
        mean_loss: f64,
        /// The mean burst wanted.
        mean_burst: f64,
        /// The most that such bursts can lose.
        most: f64,
    },
}

impl GilbertElliott {
    /// Goes bad with probability `p` and good again with probability `r` after each packet; loses nothing while good
    /// and everything while bad.
    ///
    /// # Errors
    /// [`GilbertElliottError::Probability`] if one of them is below 0, above 1 or no number.
    pub fn new(p: f64, r: f64) -> Result<Self, GilbertElliottError> {
        Ok(Self { p: probability("p", p)?, r: probability("r", r)?, loss_good: 0.0, loss_bad: 1.0 })
    }

    /// Loses `mean_loss` of all packets (0 to 1), on average `mean_burst` in a row.
    ///
    /// # Errors
    /// [`GilbertElliottError`] if the loss is no probability, the burst shorter than a packet, or both together leave
    /// less than one packet on average between bursts.
    pub fn bursts(mean_loss: f64, mean_burst: f64) -> Result<Self, GilbertElliottError> {
        let mean_loss = probability("the mean loss", mean_loss)?;
        if !(mean_burst >= 1.0 && mean_burst.is_finite()) {
            return Err(GilbertElliottError::Burst(mean_burst));
        }
        // The stay in the bad state is geometric with mean 1 / r, and the share of it p / (p + r).
        let r = 1.0 / mean_burst;
        let p = r * mean_loss / (1.0 - mean_loss);
        if p > 1.0 {
            let most = mean_burst / (1.0 + mean_burst);
            return Err(GilbertElliottError::Frequent { mean_loss, mean_burst, most });
        }
        Self::new(p, r)
    }

    /// With these probabilities of loss instead, in the good state and in the bad one.
    ///
    /// # Errors
    /// [`GilbertElliottError::Probability`] if one of them is below 0, above 1 or no number.
    pub fn losses(self, good: f64, bad: f64) -> Result<Self, GilbertElliottError> {
        let loss_good = probability("the loss in the good state", good)?;
        let loss_bad = probability("the loss in the bad state", bad)?;
        Ok(Self { loss_good, loss_bad, ..self })
    }

    /// Which share of the packets is lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.share_bad();
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }

    /// How many packets in a row see the bad state, on average: infinitely many if it never ends.
    pub fn mean_burst(&self) -> f64 {
        1.0 / self.r
    }

    /// Which share of the packets sees the bad state. A wire that never changes is good.
    fn share_bad(&self) -> f64 {
        if self.p == 0.0 { 0.0 } else { self.p / (self.p + self.r) }
    }

    /// The state that the first packet sees: whether it is bad.
    pub(crate) fn begin(&self, stream: &mut Stream) -> bool {
        stream.chance(self.share_bad())
    }

    /// Whether a packet is lost that sees the state `bad`, which then changes or not. Always two draws, so that what
    /// comes later does not depend on what the probabilities are.
    pub(crate) fn loses(&self, bad: &mut bool, stream: &mut Stream) -> bool {
        let (loss, change) = if *bad { (self.loss_bad, self.r) } else { (self.loss_good, self.p) };
        let lost = stream.chance(loss);
        *bad ^= stream.chance(change);
        lost
    }
}

fn probability(what: &'static str, value: f64) -> Result<f64, GilbertElliottError> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(GilbertElliottError::Probability { what, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Seed;
    use proptest::prelude::*;

    /// Losses among so many packets, and in how many bursts they came.
    fn run(wire: GilbertElliott, seed: u64, packets: u32) -> (f64, f64) {
        let mut stream = Seed::new(seed).stream("loss/test");
        let mut bad = wire.begin(&mut stream);
        let (mut lost, mut bursts, mut before) = (0u32, 0u32, false);
        for _ in 0..packets {
            let now = wire.loses(&mut bad, &mut stream);
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        (f64::from(lost), f64::from(bursts))
    }

    #[test]
    fn the_loss_and_the_bursts_are_what_was_asked_for() {
        let n = 4_000_000;
        for (seed, mean_loss, mean_burst) in [(1, 0.01, 5.0), (2, 0.05, 2.0), (3, 0.3, 20.0), (4, 0.002, 1.0)]
        {
            let wire = GilbertElliott::bursts(mean_loss, mean_burst).unwrap();
            let (lost, bursts) = run(wire, seed, n);
            let n = f64::from(n);
            // The mean of a two-state chain has the variance of independent draws times (1 + c) / (1 - c), where
            // c = 1 - p - r is its correlation. Five standard deviations.
            let c = 1.0 - wire.p - wire.r;
            let sd = (mean_loss * (1.0 - mean_loss) / n * (1.0 + c) / (1.0 - c)).sqrt();
            assert!((lost / n - mean_loss).abs() <= 5.0 * sd, "{} of {mean_loss} +- {sd}", lost / n);
            // A burst is geometric with standard deviation sqrt(1 - r) / r. Five, and one packet for the last burst,
            // which the end may have cut.
            let sd = (1.0 - wire.r).sqrt() / wire.r / bursts.sqrt();
            let burst = lost / bursts;
            assert!(
                (burst - mean_burst).abs() <= 5.0 * sd + mean_burst / bursts,
                "{burst} of {mean_burst} +- {sd}"
            );
        }
    }

    #[test]
    fn both_states_lose_what_they_are_told() {
        let wire = GilbertElliott::new(0.02, 0.1).and_then(|wire| wire.losses(0.01, 0.4)).unwrap();
        // A sixth of the packets sees the bad state.
        assert!((wire.mean_loss() - (0.4 / 6.0 + 0.05 / 6.0)).abs() < 1e-12, "{}", wire.mean_loss());
        let n = 4_000_000;
        let (lost, _) = run(wire, 5, n);
        // Losses are less correlated than the states: the bound for those of the states' losses is on the safe side.
        let sd = (0.25 / f64::from(n) * (2.0 - 0.12) / 0.12).sqrt();
        assert!((lost / f64::from(n) - wire.mean_loss()).abs() <= 5.0 * sd, "{lost}");
    }

    #[test]
    fn a_wire_that_never_changes_is_good() {
        let wire = GilbertElliott::new(0.0, 0.0).unwrap();
        assert_eq!(run(wire, 6, 1000).0, 0.0);
        assert_eq!(wire.mean_loss(), 0.0);
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        let message = |result: Result<GilbertElliott, GilbertElliottError>| result.unwrap_err().to_string();
        assert_eq!(message(GilbertElliott::new(1.5, 0.1)), "p is 1.5: give a probability from 0 to 1");
        assert!(message(GilbertElliott::new(0.1, f64::NAN)).starts_with("r is NaN"));
        assert!(message(GilbertElliott::bursts(0.1, 0.5)).contains("give 1 packet or more"));
        assert!(message(GilbertElliott::bursts(0.1, f64::NAN)).contains("give 1 packet or more"));
        assert!(message(GilbertElliott::bursts(0.9, 1.0)).contains("lose at most 0.5"));
        assert!(message(GilbertElliott::bursts(1.0, 3.0)).contains("lose at most 0.75"));
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_has_the_mean_asked_for(mean_loss in 0.0f64..=1.0, mean_burst in 1.0f64..1e6) {
            if let Ok(wire) = GilbertElliott::bursts(mean_loss, mean_burst) {
                prop_assert!((wire.mean_loss() - mean_loss).abs() < 1e-9);
                prop_assert!((wire.mean_burst() / mean_burst - 1.0).abs() < 1e-9);
            } else {
                prop_assert!(mean_loss * (1.0 + mean_burst) > mean_burst * (1.0 - 1e-9));
            }
        }
    }
}
