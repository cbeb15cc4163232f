//! A lift: the cap is raised by a quarter, to see what the rate of delivery does.

use marcato_units::{Bytes, Duration, Rate};

use super::competing::Competing;
use super::round::{CapChange, Round};
use super::state::{Before, Context, State};
use super::steady::Steady;

/// Packets over which a rate is measured at least.
const MIN_PACKETS: u64 = 48;
/// Gain, in percent, from which on the pipe was not full: if rounds are alike, and if they differ by noise. Beside
/// others, the gain is the part of the flight that is theirs.
const NOT_FULL: i64 = 85;
const NOT_FULL_NOISY: i64 = 60;
/// Part of the rate without a cap, in percent, that shows the queue to be our own.
const KEPT_RATE: u128 = 92;
/// Growth of the flight, in percent, below which a lift says nothing.
const MIN_GROWTH: i64 = 8;

/// Rounds added up: bytes delivered, their time, and what was in flight.
#[derive(Clone, Copy, Debug)]
struct Sum {
    rounds: u32,
    bytes: Bytes,
    took: Duration,
    /// Bytes in flight, times nanoseconds.
    flight: u128,
    least: Option<Duration>,
    /// Set if the controller or the application was the bound, and not the cap.
    free: bool,
}

impl Sum {
    fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.bytes += round.bytes;
        self.took = self.took.saturating_add(round.took);
        self.flight += u128::from(round.flight.get()) * round.took.as_nanos();
        let least = round.least;
        self.least = Some(self.least.map_or(least, |it| it.min(least)));
        self.free |= !round.bound && !round.urgent;
    }

    fn flow(&self) -> Flow {
        let flight = self.flight / self.took.as_nanos().max(1);
        Flow {
            rate: Rate::from_bytes_over(self.bytes, self.took),
            flight: Bytes::new(u64::try_from(flight).unwrap_or(u64::MAX)),
            least: self.least.unwrap_or(Duration::ZERO),
        }
    }
}

/// Rate of delivery at what was in flight.
#[derive(Clone, Copy, Debug)]
struct Flow {
    rate: Rate,
    flight: Bytes,
    /// Least round trip.
    least: Duration,
}

/// Growth from one number to another, in percent.
fn growth(before: u64, after: u64) -> i64 {
    let (before, after) = (i128::from(before.max(1)), i128::from(after));
    i64::try_from(100 * (after - before) / before).unwrap_or(i64::MAX)
}

/// State of a lift.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lift {
    /// Flow under the lower cap, once it was measured.
    before: Option<Flow>,
    seen: Sum,
    /// Rate without a cap, if the lift follows a test in which something was left.
    competed: Option<Rate>,
}

impl Lift {
    const fn new(before: Option<Flow>, competed: Option<Rate>) -> Self {
        let seen =
            Sum { rounds: 0, bytes: Bytes::ZERO, took: Duration::ZERO, flight: 0, least: None, free: false };
        Self { before, seen, competed }
    }

    /// Lift from steady mode.
    pub(super) const fn begin() -> State {
        State::Lift(Self::new(None, None))
    }

    /// Lift from the little that a test left, of a sender that had this rate without a cap.
    pub(super) const fn from_test(rate: Rate) -> State {
        State::Lift(Self::new(None, Some(rate)))
    }

    /// Judges a round trip under this cap.
    pub(super) fn round(
        mut self,
        cap: Bytes,
        round: &Round,
        context: &mut Context<'_>,
    ) -> (State, CapChange) {
        self.seen.add(round);
        let Context { now, config, path, lifts, .. } = context;
        let now = *now;
        let after = self.seen.flow();
        if self.seen.free {
            lifts.void(now);
            return self.ended(after, CapChange::Keep, context);
        }
        let rounds = path.noise.rounds(round.base);
        if self.seen.rounds < rounds || self.seen.bytes < config.mss * MIN_PACKETS {
            return (State::Lift(self), CapChange::Keep);
        }
        let raised = CapChange::Raise(cap + (cap / 4).max(config.mss * 2));
        let Some(before) = self.before else {
            return (State::Lift(Self::new(Some(after), self.competed)), raised);
        };
        let more = growth(before.flight.get(), after.flight.get());
        if more < MIN_GROWTH {
            lifts.void(now);
            return self.ended(after, CapChange::Keep, context);
        }
        let gain = 100 * growth(before.rate.as_bps(), after.rate.as_bps()) / more;
        if gain < if rounds == 1 { NOT_FULL } else { NOT_FULL_NOISY } {
            lifts.own(now);
            let product = path.product(after.rate, round.base);
            if self.competed.is_none() && !path.is_squeezed(after.rate) {
                let alpha = path.alpha(after.rate, round.base, config);
                return (Steady::begin(), CapChange::Cut(product + alpha));
            }
            return self.ended(after, CapChange::Cut(product), context);
        }
        lifts.gained(now);
        let margin =
            after.rate.transmission_time(config.mss).max(path.noise.level(round.base, after.rate, config));
        // What was seen while the pipe was not full is no queue of ours.
        if before.least > round.base + margin
            && path.raise(now, before.least, round.rate)
            && self.competed.is_none()
        {
            context.tests.steady_was_wrong(now);
            return (Competing::begin(after.rate, context), CapChange::Keep);
        }
        (State::Lift(Self::new(Some(after), self.competed)), raised)
    }

    /// Ends the lift: the rate grows no more.
    fn ended(self, after: Flow, change: CapChange, context: &mut Context<'_>) -> (State, CapChange) {
        match self.competed {
            Some(rate) if u128::from(after.rate.as_bps()) * 100 < u128::from(rate.as_bps()) * KEPT_RATE => {
                context.tests.others_remain();
                (Competing::begin(rate, context), CapChange::Keep)
            }
            Some(_) => {
                context.tests.competing_ended(context.now);
                (Steady::begin(), CapChange::Keep)
            }
            None if matches!(change, CapChange::Keep) => (Steady::begin(), CapChange::Keep),
            None => (State::Test(Before::Steady(after.rate)), change),
        }
    }
}
