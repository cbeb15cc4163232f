//! Startup: the rate of the path is not known yet.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::competing::Competing;
use super::config::CoupledConfig;
use super::path::Path;
use super::round::{CapChange, Round};
use super::state::{Context, State};
use super::steady::Steady;
use super::train::Trains;

/// Round trips without growth before startup ends.
const FLAT_ROUNDS: u32 = 3;
/// Queueing delay that ends startup: this part of the round trip, and no less than this time.
const TOLERATED_PART: u32 = 8;
const TOLERATED_LEAST: Duration = Duration::from_millis(2);
/// Part of a round trip, as its divisor, that trains may stand in a queue on the way back.
const TOLERATED_BACK: u32 = 16;

/// State of startup: the cap follows trains of packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Startup {
    trains: Trains,
    /// Round trips without growth.
    flat_rounds: u32,
    /// Rate at the last growth.
    grown: Rate,
    /// Highest rate of a train when the last round trip was judged.
    peak: Rate,
    /// Set if acknowledgements stood in a queue on the way back, so that trains of ours may have been missed.
    missed: bool,
}

impl Startup {
    /// Rate at which background data may be sent; `None` before the bottleneck's rate is known.
    ///
    /// A window that doubles leaves twice as fast as the bottleneck sends it on. Half of it then stands in the queue,
    /// although all of it fits the path. At the bottleneck's rate it does not, and the bottleneck is as busy. A
    /// sixteenth more finds what the estimate is short of.
    pub(super) fn pace(&self) -> Option<Rate> {
        let peak = self.trains.peak().as_bps();
        (peak > 0).then(|| Rate::from_bps(peak.saturating_add(peak / 16)))
    }

    /// Takes note of the round trip of an acknowledgement, and of its part in a queue on the way back.
    ///
    /// That queue stretches trains as the bottleneck does, at a rate of its own, and is known only now and then. So
    /// trains do not count in it.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        rtt: Duration,
        back: Duration,
        path: &Path,
        config: &CoupledConfig,
    ) {
        if back.saturating_mul(TOLERATED_BACK) > rtt {
            self.trains.interrupted();
            self.missed = true;
        } else {
            self.trains.acknowledged(now, path.delivered, rtt, config.mss, config.poll.is_zero());
        }
    }

    /// Follows the trains, after each sample.
    pub(super) fn follow(self, base: Duration, context: &mut Context<'_>) -> (State, CapChange) {
        let Context { config, path, tests, .. } = context;
        let peak = self.trains.peak();
        let alpha = path.alpha(peak, base, config);
        if !core::mem::take(&mut path.lost) {
            let change = if peak > Rate::ZERO {
                CapChange::Set((path.product(peak, base) + alpha).max(config.floor()))
            } else {
                CapChange::Keep
            };
            return (State::Startup(self), change);
        }
        let rate = path.rate(config.mss).max(peak);
        if peak == Rate::ZERO && !self.missed {
            // Nothing of ours has stood in a queue yet: others have filled it. What they keep there
            // is part of each round trip seen so far, so that steady mode would not notice them.
            tests.restart();
            return (Competing::begin(rate, context), CapChange::Keep);
        }
        (Steady::begin(), CapChange::Cut(path.product(rate, base) + alpha))
    }

    /// Judges a round trip.
    pub(super) fn round(mut self, round: &Round, path: &Path, config: &CoupledConfig) -> (State, CapChange) {
        let alpha = path.alpha(round.rate, round.base, config);
        let tolerated = (round.base / TOLERATED_PART).max(TOLERATED_LEAST);
        let tolerated = tolerated.max(round.rate.transmission_time(alpha));
        let peak = self.trains.peak();
        if round.queueing > tolerated {
            return (Steady::begin(), CapChange::Cut(round.bdp() + alpha));
        }
        if round.bound && !grew(peak, self.peak) {
            return (Steady::begin(), CapChange::Keep);
        }
        self.peak = peak;
        if grew(round.rate, self.grown) {
            (self.flat_rounds, self.grown) = (0, round.rate);
        } else {
            self.flat_rounds += 1;
        }
        if self.flat_rounds >= FLAT_ROUNDS {
            let cap: Bytes = round.bdp().max(round.most * 11 / 10) + alpha;
            return (Steady::begin(), CapChange::Set(cap.max(config.floor())));
        }
        (State::Startup(self), CapChange::Keep)
    }
}

/// Returns whether a rate is larger by a quarter.
fn grew(now: Rate, before: Rate) -> bool {
    u128::from(now.as_bps()) * 4 >= u128::from(before.as_bps()) * 5
}
