//! A round trip of a capped sender, and what the governor makes of it.

use marcato_units::{Bytes, Duration, Rate};

/// Measurements of a round trip, in which nothing was sent before the last change of the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// Set if the cap held background data back.
    pub(super) bound: bool,
    /// Most bytes in flight.
    pub(super) most: Bytes,
    /// Rate of delivery.
    pub(super) rate: Rate,
    /// Least round trip of all.
    pub(super) base: Duration,
    /// Least round trip of this round, less `base`.
    pub(super) queueing: Duration,
}

impl Round {
    /// Bytes that stood in the queue.
    pub(super) fn queued(&self) -> Bytes {
        self.rate.bytes_in(self.queueing)
    }

    /// Bytes that the path holds without a queue, at the rate of this round.
    pub(super) fn bdp(&self) -> Bytes {
        self.rate.bytes_in(self.base)
    }
}

/// Change of the cap after a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapChange {
    /// No change.
    Keep,
    /// To this cap, at once.
    Set(Bytes),
    /// Back to this cap. What was sent meanwhile is not judged.
    Restore(Bytes),
    /// To a smaller cap. Nothing is judged until its effect can be seen.
    Cut(Bytes),
    /// No cap.
    Lift,
}
