//! Steady mode: the queue is our own.

use marcato_units::{Bytes, Duration};

use super::competing::Competing;
use super::config::CoupledConfig;
use super::fast::Fast;
use super::lift::Lift;
use super::path::{Look, Path};
use super::round::{CapChange, Round};
use super::state::{Before, Context, State};

/// Round trips with a queue of others before a test.
const QUEUED_ROUNDS: u32 = 4;
/// Cuts that left the queue, of the latest eight rounds, before a lift.
const CUT_ROUNDS: u32 = 3;
/// Rounds at a low rate before a lift, and that rate in percent of the largest.
const LOW_ROUNDS: u32 = 5;
const LOW_RATE: u128 = 85;

/// State of steady mode: the cap keeps the queue at a few packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    rule: Fast,
    /// Round trips with a queue of others, one after the other.
    pub(super) queued_rounds: u32,
    /// Cap before a dip, which shows the least round trip again.
    dip: Option<Bytes>,
    /// Latest eight rounds, a bit each: set if the cut before it left the queue.
    cuts: u8,
    /// Queueing delay of the round before.
    queueing: Duration,
    /// Rounds at a low rate under the cap without a queue, one after the other.
    low_rounds: u32,
    /// Round before the latest cut, until the next one.
    cut: Option<Round>,
}

impl Steady {
    pub(super) const fn new() -> Self {
        Self {
            rule: Fast::new(),
            queued_rounds: 0,
            dip: None,
            cuts: 0,
            queueing: Duration::ZERO,
            low_rounds: 0,
            cut: None,
        }
    }

    pub(super) const fn begin() -> State {
        State::Steady(Self::new())
    }

    /// Cap before a dip; `None` if there is none.
    pub(super) const fn cap_before_dip(&self) -> Option<Bytes> {
        self.dip
    }

    /// Judges a round trip under this cap.
    pub(super) fn round(
        mut self,
        cap: Bytes,
        round: &Round,
        context: &mut Context<'_>,
    ) -> (State, CapChange) {
        let Context { now, config, path, tests, lifts } = context;
        let alpha = path.alpha(round.rate, round.base, config);
        if let Some(cap) = self.dip.take() {
            // A little longer, the path may have become; much longer, only a lift tells from others in the queue.
            let packets = |bytes| round.rate.transmission_time(bytes);
            let is_little = round.queueing > packets(config.mss * 3 / 2)
                && round.queueing <= packets(alpha + config.mss * 3 / 2);
            let longer = if is_little { round.queueing } else { Duration::ZERO };
            path.renew(*now, round.base + longer);
            return (State::Steady(self), CapChange::Raise(cap));
        }
        let seen = self.cut.take();
        let is_left = |before: &Round| round.queueing.saturating_mul(10) >= before.queueing.saturating_mul(7);
        self.cuts = self.cuts << 1 | u8::from(seen.as_ref().is_some_and(is_left));
        if let Some(before) = seen.filter(|before| Self::left_the_queue(before, round, path, config)) {
            // The cut took the rate, and left the queue: that was none of ours.
            if path.raise(*now, round.least, round.rate) {
                tests.steady_was_wrong(*now);
                return (Competing::begin(before.rate, context), CapChange::Keep);
            }
            return (Self::begin(), CapChange::Raise(before.most.max(cap)));
        }
        let (threshold, was_queued) = (path.threshold(round.base, config), self.queued_rounds > 0);
        let is_queued = round.queueing > threshold;
        // A queue that goes is no reason: those who keep it step back as well.
        let goes = round.queueing.saturating_mul(20) < self.queueing.saturating_mul(17);
        self.queueing = round.queueing;
        self.queued_rounds = if is_queued && !goes { self.queued_rounds.saturating_add(1) } else { 0 };
        let is_squeezed = path.is_squeezed(round.rate);
        if path.lost && was_queued && is_squeezed && round.queueing > threshold / 2 {
            tests.steady_was_wrong(*now);
            return (Competing::begin(round.rate, context), CapChange::Keep);
        }
        // On a quiet path, a pipe that is not full shows no queue, and the cap grows anyway.
        let is_noisy = !path.noise.level(round.base, round.rate, config).is_zero();
        let is_low =
            u128::from(round.rate.as_bps()) * 100 < u128::from(path.meter.longest().as_bps()) * LOW_RATE;
        self.low_rounds =
            if is_low && is_noisy && round.bound && !is_queued { self.low_rounds + 1 } else { 0 };
        if self.queued_rounds >= QUEUED_ROUNDS && is_squeezed && !is_noisy {
            return (State::Test(Before::Steady(round.rate)), CapChange::Cut(round.bdp()));
        }
        let is_suspect = self.queued_rounds >= QUEUED_ROUNDS
            || self.cuts.count_ones() >= CUT_ROUNDS
            || self.low_rounds >= LOW_ROUNDS;
        if lifts.is_due(*now, is_noisy) && is_suspect {
            return (Lift::begin(), CapChange::Keep);
        }
        if let Some(look) = path.look(*now) {
            self.dip = Some(cap);
            let ours = alpha + config.least(round.rate) + config.mss;
            let dip = cap - ours - if look == Look::Deep { cap / 8 } else { Bytes::ZERO };
            return (State::Steady(self), CapChange::Cut(dip));
        }
        let change = self.rule.step(cap, round, config.mss, alpha, path.meter.longest());
        if matches!(change, CapChange::Cut(_)) {
            self.cut = Some(*round);
        }
        (State::Steady(self), change)
    }

    /// Returns whether a cut has taken as much of the rate as of the flight, and nothing of the queue.
    fn left_the_queue(before: &Round, after: &Round, path: &Path, config: &CoupledConfig) -> bool {
        let fell = |before: u64, after: u64| 100 - i128::from(after) * 100 / i128::from(before.max(1));
        let flight = fell(before.flight.get(), after.flight.get());
        let rate = fell(before.round_rate().as_bps(), after.round_rate().as_bps());
        let is_exact = path.noise.rounds(after.base) == 1
            && after.bytes >= config.mss * 4
            && !after.urgent
            && !before.urgent;
        is_exact
            && flight >= 12
            && rate * 4 >= flight * 3
            && rate * 3 <= flight * 4
            && after.queueing.saturating_mul(4) >= before.queueing.saturating_mul(3)
    }
}
