//! Round-trip time of a lane.

use marcato_units::Duration;

/// Round-trip time of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// The engine's smoothed value (RFC 9002 §5.3).
    pub(crate) smoothed: Duration,
    /// Least smoothed value since the address last changed; `None` before the first acknowledgement.
    pub(crate) least: Option<Duration>,
}

impl RoundTrip {
    /// Takes a new smoothed value.
    pub(crate) fn update(&mut self, smoothed: Duration) {
        self.smoothed = smoothed;
        self.least = Some(self.least.map_or(smoothed, |least| least.min(smoothed)));
    }
}
