//! A round trip of a capped sender, and what the governor makes of it.

use marcato_units::{Bytes, Duration, Rate};

/// Measurements of a round trip, in which nothing was sent before the last change of the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// Set if the cap held background data back.
    pub(super) bound: bool,
    /// Set if urgent data passed the cap in it.
    pub(super) urgent: bool,
    /// Set if everything sent had arrived at some time in it: no queue of ours stands.
    pub(super) dry: bool,
    /// Most bytes in flight.
    pub(super) most: Bytes,
    /// Mean of the bytes in flight.
    pub(super) flight: Bytes,
    /// Bytes delivered in it, and its length.
    pub(super) bytes: Bytes,
    pub(super) took: Duration,
    /// Rate of delivery, over sixteen packets at least.
    pub(super) rate: Rate,
    /// Least round trip of all.
    pub(super) base: Duration,
    /// Least round trip of this round.
    pub(super) least: Duration,
    /// `least` less `base`; zero if it is shorter.
    pub(super) queueing: Duration,
    /// Queueing delay on the way back, which is no part of `base` and `queueing`.
    pub(super) back: Duration,
}

impl Round {
    /// Round of a test: so many bytes over a second, with a window that holds the path and its queue, under the cap.
    #[cfg(test)]
    pub(super) fn at(rate: Rate, base: Duration, queueing: Duration) -> Self {
        let (took, least) = (Duration::from_secs(1), base + queueing);
        let flight = rate.bytes_in(least);
        let bytes = rate.bytes_in(took);
        let (urgent, dry, back) = (false, false, Duration::ZERO);
        Self {
            bound: true,
            urgent,
            dry,
            most: flight,
            flight,
            bytes,
            took,
            rate,
            base,
            least,
            queueing,
            back,
        }
    }

    /// Rate over this round alone.
    pub(super) fn round_rate(&self) -> Rate {
        Rate::from_bytes_over(self.bytes, self.took)
    }

    /// Bytes that stood in the queue.
    pub(super) fn queued(&self) -> Bytes {
        self.rate.bytes_in(self.queueing)
    }

    /// Bytes that the path holds without a queue, at the rate of this round.
    pub(super) fn bdp(&self) -> Bytes {
        self.rate.bytes_in(self.base + self.back)
    }
}

/// Change of the cap after a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapChange {
    /// No change.
    Keep,
    /// To this cap, at once.
    Set(Bytes),
    /// To a smaller cap. Nothing is judged until its effect can be seen.
    Cut(Bytes),
    /// To a larger cap, by half of what is delivered: at once, it would be a burst. What was sent meanwhile is not
    /// judged.
    Raise(Bytes),
    /// No cap.
    Lift,
}
