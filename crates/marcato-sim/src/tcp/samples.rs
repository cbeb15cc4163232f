//! Measurements of a sender.

use marcato_units::Duration;

use super::rate::RateEstimator;

/// Round trips and delivery, as acknowledgements show them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    pub(crate) rate: RateEstimator,
    /// Bytes delivered in total.
    pub(crate) delivered: u64,
    pub(crate) min_rtt: Option<Duration>,
    /// Round trip of the last acknowledgement that had one, until taken.
    pub(crate) rtt: Option<Duration>,
    /// Round trip that the latest acknowledgement gave.
    pub(crate) latest_rtt: Option<Duration>,
}

impl Samples {
    /// Handles the round trip that an acknowledgement gave, if any.
    pub(crate) fn on_rtt(&mut self, rtt: Option<Duration>) {
        if let Some(rtt) = rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
            self.rtt = Some(rtt);
        }
        self.latest_rtt = rtt;
    }
}
