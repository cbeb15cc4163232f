//! Rules for the cap in a queue that is our own.

use marcato_units::{Bytes, Duration, Rate};

/// Measurements of a round trip, in which nothing was sent before the last change of the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Cap of this round trip.
    pub cap: Bytes,
    /// Set if the cap held data back.
    pub bound: bool,
    /// Most bytes in flight.
    pub most: Bytes,
    /// Rate of delivery.
    pub rate: Rate,
    /// Least round trip of all.
    pub base: Duration,
    /// Least round trip of this round, less `base`.
    pub queueing: Duration,
    /// Bytes that stood in the queue: `rate` times `queueing`.
    pub queued: Bytes,
}

/// Change of the cap after a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No change.
    Keep,
    /// To a larger cap.
    Grow(Bytes),
    /// To a smaller cap. Nothing is judged until its effect can be seen.
    Cut(Bytes),
}

/// Rule that moves the cap while the queue is our own.
pub trait Rule {
    /// Returns the change after a round trip, given the size of a packet and the bytes that the queue may hold.
    fn step(&mut self, round: &Round, mss: Bytes, alpha: Bytes) -> Step;

    /// Forgets its speed: the cap was changed by something else.
    fn restart(&mut self);
}

/// Rule like FAST's: as many bytes in the queue as allowed, at any rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fast {
    /// Packets by which the cap grows next, less one.
    extra: u64,
}

impl Rule for Fast {
    fn step(&mut self, round: &Round, mss: Bytes, alpha: Bytes) -> Step {
        let Round { cap, bound, most, rate, base, queued, .. } = *round;
        if queued > alpha + mss * 3 / 2 {
            self.restart();
            let cap = if bound { cap - (queued - alpha) } else { rate.bytes_in(base) + alpha };
            return Step::Cut(cap);
        }
        if !bound {
            self.restart();
            // Room for the controller below: otherwise cap and window hold each other. Urgent data
            // that passed the cap is no measure of what the path holds; the rate is.
            let room = most.min(rate.bytes_in(base)) * 11 / 10 + alpha;
            return if queued < alpha && room > cap { Step::Grow(room) } else { Step::Keep };
        }
        if queued + mss < alpha {
            let step = mss * (self.extra + 1);
            // Close to the aim, not beyond it.
            let by = if queued < mss / 2 { step } else { step.min(alpha - queued) };
            self.extra = (2 * self.extra + 1).min((cap / 4).get() / mss.get().max(1));
            return Step::Grow(cap + by);
        }
        Step::Keep
    }

    fn restart(&mut self) {
        self.extra = 0;
    }
}

/// Rule like Copa's: a rate of one packet in half of the queueing delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copa {
    /// Round trips in which the cap grew and there was no queue.
    rounds: u32,
}

impl Rule for Copa {
    fn step(&mut self, round: &Round, mss: Bytes, alpha: Bytes) -> Step {
        let Round { cap, bound, most, base, queueing, queued, .. } = *round;
        let rtt = base.saturating_add(queueing).as_nanos();
        let aim = (u128::from((mss * 2).get()) * rtt).checked_div(queueing.as_nanos());
        if aim.is_some_and(|aim| aim <= u128::from(cap.get())) {
            self.restart();
            // Half of what is too much: the rate is an estimate.
            return Step::Cut(cap - mss.max((queued - alpha) / 2));
        }
        if !bound {
            self.restart();
            let room = most * 11 / 10 + alpha;
            return if room > cap { Step::Grow(room) } else { Step::Keep };
        }
        // Faster and faster, but not once there is a queue: its growth is seen a round trip later.
        self.rounds = if queued < mss / 2 { self.rounds.saturating_add(1) } else { 0 };
        let step = mss * (1 << self.rounds.saturating_sub(2).min(16));
        Step::Grow(cap + step.min(cap / 4))
    }

    fn restart(&mut self) {
        self.rounds = 0;
    }
}

/// Rule chosen at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyRule {
    /// Like FAST's.
    Fast(Fast),
    /// Like Copa's.
    Copa(Copa),
}

impl AnyRule {
    /// Rule like FAST's, which is the default.
    pub const FAST: Self = Self::Fast(Fast { extra: 0 });
    /// Rule like Copa's.
    pub const COPA: Self = Self::Copa(Copa { rounds: 0 });
}

impl Rule for AnyRule {
    fn step(&mut self, round: &Round, mss: Bytes, alpha: Bytes) -> Step {
        match self {
            Self::Fast(rule) => rule.step(round, mss, alpha),
            Self::Copa(rule) => rule.step(round, mss, alpha),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Fast(rule) => rule.restart(),
            Self::Copa(rule) => rule.restart(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Bytes = Bytes::new(1000);

    #[test]
    fn room_above_the_cap_follows_the_rate_and_not_a_burst() {
        let (rate, base) = (Rate::from_mbps(8), Duration::from_millis(40));
        let round = Round {
            cap: MSS * 40,
            bound: false,
            most: MSS * 60,
            rate,
            base,
            queueing: Duration::ZERO,
            queued: Bytes::ZERO,
        };
        let step = |most| Fast::default().step(&Round { most, ..round }, MSS, MSS * 2);
        // 40 packets on the path, a tenth of that, and two in the queue.
        assert_eq!(step(MSS * 60), Step::Grow(MSS * 46));
        assert_eq!(step(MSS * 40), Step::Grow(MSS * 46));
        assert_eq!(step(MSS * 20), Step::Keep);
    }
}
