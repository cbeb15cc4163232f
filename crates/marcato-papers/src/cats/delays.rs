//! Delays of many messages.

use std::ops::Range;

use marcato_report::{Percentile, Samples};
use marcato_sim::Planned;
use marcato_units::{Duration, Priority};

use super::path::Transfer;
use crate::error::SimulationError;

/// Delays from the offer of each message to its last byte at the receiver, in ms, sorted. A message
/// that did not arrive has an infinite delay.
#[derive(Clone, Debug)]
pub(super) struct Delays(Samples);

impl Delays {
    /// Delays of the messages at `priority` that were offered within `during`.
    pub(super) fn of(
        transfer: &Transfer,
        priority: Priority,
        during: Range<Duration>,
    ) -> Result<Self, SimulationError> {
        let wanted =
            |planned: &Planned| planned.message.priority == priority && during.contains(&planned.after);
        let places = transfer.plan().iter().enumerate().filter(|(_, planned)| wanted(planned));
        places.map(|(place, _)| transfer.delay(place)).collect::<Result<_, _>>().map(Self)
    }

    /// Delays of the messages that arrived.
    pub(super) fn arrived(&self) -> Self {
        Self(self.sorted().iter().copied().filter(|delay| delay.is_finite()).collect())
    }

    /// Share of the messages that arrived, in %.
    pub(super) fn arrived_percent(&self) -> f64 {
        100.0 * self.arrived().0.len() as f64 / self.0.len() as f64
    }

    /// Percentile by nearest rank; not a number without messages.
    pub(super) fn percentile(&self, percentile: Percentile) -> f64 {
        self.0.percentile(percentile).unwrap_or(f64::NAN)
    }

    /// Greatest delay.
    pub(super) fn max(&self) -> f64 {
        self.percentile(Percentile::MAX)
    }

    /// All delays, ascending.
    pub(super) fn sorted(&self) -> &[f64] {
        self.0.sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_did_not_arrive_took_for_ever() {
        let delays = Delays(Samples::new([1.0, 2.0, 3.0, f64::INFINITY]));
        assert_eq!((delays.arrived_percent(), delays.max()), (75.0, f64::INFINITY));
        assert_eq!(delays.arrived().max(), 3.0);
        assert!(Delays(Samples::default()).max().is_nan());
    }
}
