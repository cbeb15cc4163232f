//! Clock of a lab.

use std::time::Instant;

use marcato_units::Time;

/// Clock of a lab.
#[derive(Clone, Copy, Debug)]
pub struct LabClock {
    epoch: Instant,
}

impl LabClock {
    /// Starts a clock.
    pub(crate) fn start() -> Self {
        Self { epoch: Instant::now() }
    }

    /// Time since the links of the lab began to work.
    pub fn now(self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }
}
