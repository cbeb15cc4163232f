//! The delays of many messages.

use std::ops::Range;

use marcato_sim::Planned;
use marcato_units::{Duration, Priority};

use super::path::{Error, Transfer};

/// From the offer of each message to its last byte at the receiver, in ms, sorted. What did not arrive took for
/// ever.
#[derive(Clone, Debug)]
pub(super) struct Delays(Vec<f64>);

impl Delays {
    /// Of the messages at `priority` that were offered within `during`.
    pub(super) fn of(
        transfer: &Transfer,
        priority: Priority,
        during: Range<Duration>,
    ) -> Result<Self, Error> {
        let wanted =
            |planned: &Planned| planned.message.priority == priority && during.contains(&planned.after);
        let places = transfer.plan().iter().enumerate().filter(|(_, planned)| wanted(planned));
        let mut delays = places.map(|(place, _)| transfer.delay(place)).collect::<Result<Vec<_>, _>>()?;
        delays.sort_by(f64::total_cmp);
        Ok(Self(delays))
    }

    /// Of those that arrived.
    pub(super) fn arrived(&self) -> Self {
        Self(self.0.iter().copied().filter(|delay| delay.is_finite()).collect())
    }

    /// Share of the messages that arrived, in %.
    pub(super) fn arrived_percent(&self) -> f64 {
        100.0 * self.arrived().0.len() as f64 / self.0.len() as f64
    }

    /// The least delay that at least `percent` % of the messages do not exceed: the nearest rank.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// The greatest.
    pub(super) fn max(&self) -> f64 {
        self.percentile(100)
    }

    /// All of them, ascending.
    pub(super) fn sorted(&self) -> &[f64] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let delays = Delays((1..=200).map(f64::from).collect());
        assert_eq!((delays.percentile(50), delays.percentile(99), delays.max()), (100.0, 198.0, 200.0));
    }

    #[test]
    fn what_did_not_arrive_took_for_ever() {
        let delays = Delays(vec![1.0, 2.0, 3.0, f64::INFINITY]);
        assert_eq!((delays.arrived_percent(), delays.max()), (75.0, f64::INFINITY));
        assert_eq!(delays.arrived().max(), 3.0);
        assert!(Delays(vec![]).max().is_nan());
    }
}
