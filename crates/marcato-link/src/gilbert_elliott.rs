//! Bursts of losses: a wire with a good and a bad state.
//!
//! References: E. N. Gilbert, "Capacity of a burst-noise channel", Bell System Technical Journal
//! 39(5), 1960; E. O. Elliott, "Estimates of error rates for codes on burst-noise channels", ibid.
//! 42(5), 1963. The names p and r are those of G. Haßlinger and O. Hohlfeld, "The Gilbert-Elliott
//! model for packet loss in real time services on the Internet", MMB 2008 (their h and k are one
//! minus the losses here).

use marcato_units::Stream;

/// Wire with a good and a bad state, each with its own probability of loss.
///
/// Time is counted in packets: each meets the current state, which may then change. The first
/// packet's state is drawn from the stationary distribution.
///
/// ```
/// use marcato_link::{GilbertElliott, Loss};
///
/// // One packet in a hundred is lost, on average five in a row.
/// let bursts = GilbertElliott::bursts(0.01, 5.0)?;
/// assert!((bursts.mean_loss() - 0.01).abs() < 1e-12);
/// let loss = Loss::GilbertElliott(bursts);
/// # Ok::<(), marcato_link::GilbertElliottError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability of a change from good to bad, per packet.
    p: f64,
    /// Probability of a change from bad to good, per packet.
    r: f64,
    loss_good: f64,
    loss_bad: f64,
}

/// Error returned for an invalid model of bursts.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GilbertElliottError {
    /// A probability is not from 0 to 1.
    #[error("{what} is {value}: give a probability from 0 to 1")]
    Probability {
        /// Name of the probability.
        what: &'static str,
        /// Value given.
        value: f64,
    },
    /// The mean burst is shorter than a packet.
    #[error("a mean burst length of {0} packets is too short: give 1 packet or more")]
    Burst(f64),
    /// The mean gap between such bursts would be less than one packet.
    #[error(
        "a mean loss of {mean_loss} in bursts of {mean_burst} packets leaves less than a packet between bursts: lose \
         at most {most}, or in longer bursts"
    )]
    Frequent {
        /// Mean loss requested.
        mean_loss: f64,
        /// Mean burst requested, in packets.
        mean_burst: f64,
        /// Greatest mean loss with such bursts.
        most: f64,
    },
}

impl GilbertElliott {
    /// Wire that turns bad with probability `p` and good again with probability `r` after each
    /// packet. It loses nothing while good and everything while bad.
    ///
    /// # Errors
    /// [`GilbertElliottError::Probability`] if one of them is below 0, above 1 or NaN.
    pub fn new(p: f64, r: f64) -> Result<Self, GilbertElliottError> {
        Ok(Self { p: probability("p", p)?, r: probability("r", r)?, loss_good: 0.0, loss_bad: 1.0 })
    }

    /// Wire that loses a share `mean_loss` of all packets (0 to 1), on average `mean_burst` in a
    /// row.
    ///
    /// # Errors
    /// [`GilbertElliottError`] if the loss is no probability, the burst is shorter than a packet,
    /// or the mean gap between bursts is less than one packet.
    pub fn bursts(mean_loss: f64, mean_burst: f64) -> Result<Self, GilbertElliottError> {
        let mean_loss = probability("the mean loss", mean_loss)?;
        if !(mean_burst >= 1.0 && mean_burst.is_finite()) {
            return Err(GilbertElliottError::Burst(mean_burst));
        }
        // The stay in the bad state is geometric with mean 1 / r, and its share is p / (p + r).
        let r = 1.0 / mean_burst;
        let p = r * mean_loss / (1.0 - mean_loss);
        if p > 1.0 {
            let most = mean_burst / (1.0 + mean_burst);
            return Err(GilbertElliottError::Frequent { mean_loss, mean_burst, most });
        }
        Self::new(p, r)
    }

    /// Sets the probabilities of loss in the good state and in the bad one.
    ///
    /// # Errors
    /// [`GilbertElliottError::Probability`] if one of them is below 0, above 1 or NaN.
    pub fn losses(self, good: f64, bad: f64) -> Result<Self, GilbertElliottError> {
        let loss_good = probability("the loss in the good state", good)?;
        let loss_bad = probability("the loss in the bad state", bad)?;
        Ok(Self { loss_good, loss_bad, ..self })
    }

    /// Returns the long-term share of packets that are lost.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.share_bad();
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }

    /// Returns the mean number of packets in a row that meet the bad state; infinite if it never
    /// ends.
    pub fn mean_burst(&self) -> f64 {
        1.0 / self.r
    }

    /// Returns the share of packets that meet the bad state; 0 for a wire that never changes.
    fn share_bad(&self) -> f64 {
        if self.p == 0.0 { 0.0 } else { self.p / (self.p + self.r) }
    }

    /// Draws the state that the first packet meets; true if it is bad.
    pub(crate) fn begin(&self, stream: &mut Stream) -> bool {
        stream.chance(self.share_bad())
    }

    /// Draws the loss of a packet that meets the state `bad`, and then the change of state. It
    /// takes two draws in any case, so that later draws do not depend on the probabilities.
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

    /// Losses among so many packets, and their number of bursts.
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
    fn the_first_packet_meets_either_state_as_often_as_later_ones() {
        let wire = GilbertElliott::bursts(0.3, 20.0).unwrap();
        let lost = (0..20_000u32).filter(|&seed| run(wire, u64::from(seed), 1).0 > 0.0).count();
        // Four standard deviations of 20 000 draws.
        assert!((lost as f64 / 20_000.0 - 0.3).abs() < 0.013, "{lost}");
    }

    #[test]
    fn the_loss_and_the_bursts_are_what_was_asked_for() {
        let n = 4_000_000;
        for (seed, mean_loss, mean_burst) in [(1, 0.01, 5.0), (2, 0.05, 2.0), (3, 0.3, 20.0), (4, 0.002, 1.0)]
        {
            let wire = GilbertElliott::bursts(mean_loss, mean_burst).unwrap();
            let (lost, bursts) = run(wire, seed, n);
            let n = f64::from(n);
            // The mean of a two-state chain has the variance of independent draws times (1 + c) /
            // (1 - c), where c = 1 - p - r is its correlation. The bound is five standard
            // deviations.
            let c = 1.0 - wire.p - wire.r;
            let sd = (mean_loss * (1.0 - mean_loss) / n * (1.0 + c) / (1.0 - c)).sqrt();
            assert!((lost / n - mean_loss).abs() <= 5.0 * sd, "{} of {mean_loss} +- {sd}", lost / n);
            // A burst is geometric with standard deviation sqrt(1 - r) / r. The bound is five of
            // them, plus one packet, as the end may cut the last burst.
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
        // A sixth of the packets meets the bad state.
        assert!((wire.mean_loss() - (0.4 / 6.0 + 0.05 / 6.0)).abs() < 1e-12, "{}", wire.mean_loss());
        let n = 4_000_000;
        let (lost, _) = run(wire, 5, n);
        // Losses are less correlated than the states, so the bound for the states is conservative.
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
    fn impossible_bursts_are_refused_with_a_way_out() {
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
        fn every_accepted_model_has_the_mean_asked_for(mean_loss in 0.0f64..=1.0, mean_burst in 1.0f64..1e6) {
            if let Ok(wire) = GilbertElliott::bursts(mean_loss, mean_burst) {
                prop_assert!((wire.mean_loss() - mean_loss).abs() < 1e-9);
                prop_assert!((wire.mean_burst() / mean_burst - 1.0).abs() < 1e-9);
            } else {
                prop_assert!(mean_loss * (1.0 + mean_burst) > mean_burst * (1.0 - 1e-9));
            }
        }
    }
}
