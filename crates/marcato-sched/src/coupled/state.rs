//! State of the governor: its modes, with what each of them has to know.

use marcato_units::{Bytes, Rate, Time};

use super::competing::Competing;
use super::config::CoupledConfig;
use super::lift::Lift;
use super::lift_clock::LiftClock;
use super::mode::Mode;
use super::path::Path;
use super::round::{CapChange, Round};
use super::startup::Startup;
use super::steady::Steady;
use super::test_clock::TestClock;

/// Part of the rate, in thousandths, that a squeezed sender keeps if the queue is its own.
const SQUEEZED_RATE: u128 = 925;

/// Mode, and what it knows.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Startup(Startup),
    Steady(Steady),
    Compete(Competing),
    /// Our part of the queue is taken away, to see whether any is left.
    Test(Before),
    /// The window is a quarter smaller, to see whether our rate falls with it.
    Squeeze {
        /// Rate before.
        rate: Rate,
    },
    Lift(Lift),
}

/// Mode before a test, and the rate then: the test makes the rate smaller.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    Steady(Rate),
    Compete(Rate),
}

/// Surroundings of a mode that judges: the time, and what outlives the mode.
pub(super) struct Context<'a> {
    pub(super) now: Time,
    pub(super) config: &'a CoupledConfig,
    pub(super) path: &'a mut Path,
    pub(super) tests: &'a mut TestClock,
    pub(super) lifts: &'a mut LiftClock,
}

impl State {
    pub(super) const fn mode(&self) -> Mode {
        match self {
            Self::Startup(_) => Mode::Startup,
            Self::Steady(_) => Mode::Steady,
            Self::Compete(_) => Mode::Compete,
            Self::Test(_) => Mode::Test,
            Self::Squeeze { .. } => Mode::Squeeze,
            Self::Lift(_) => Mode::Lift,
        }
    }

    /// Judges a round trip under this cap: the only place at which a mode ends, but for a loss in startup.
    pub(super) fn next(self, cap: Bytes, round: &Round, context: &mut Context<'_>) -> (Self, CapChange) {
        match self {
            Self::Startup(startup) => startup.round(round, context.path, context.config),
            Self::Steady(steady) => steady.round(cap, round, context),
            Self::Compete(competing) => competing.round(round, context),
            Self::Lift(lift) => lift.round(cap, round, context),
            Self::Squeeze { rate } => {
                // Less in flight, and nearly the same rate: the queue was ours.
                if u128::from(round.rate.as_bps()) * 1000 >= u128::from(rate.as_bps()) * SQUEEZED_RATE {
                    (Self::Test(Before::Compete(round.rate)), CapChange::Cut(round.bdp()))
                } else {
                    context.tests.others_remain();
                    (Competing::begin(rate, context), CapChange::Keep)
                }
            }
            Self::Test(before) => {
                let Context { now, config, path, tests, .. } = context;
                let others = round.queueing > path.left_over(*now, round.rate, round.base, config);
                let state = match before {
                    Before::Compete(rate) if others && path.is_old(*now) => {
                        return (Lift::from_test(rate), CapChange::Keep);
                    }
                    Before::Compete(rate) if others => {
                        tests.others_remain();
                        Competing::begin(rate, context)
                    }
                    Before::Steady(rate) if others => {
                        tests.steady_was_wrong(*now);
                        Competing::begin(rate, context)
                    }
                    Before::Compete(_) => {
                        tests.competing_ended(*now);
                        Steady::begin()
                    }
                    Before::Steady(_) => {
                        path.meter.forget(round.rate);
                        Steady::begin()
                    }
                };
                (state, CapChange::Keep)
            }
        }
    }
}
