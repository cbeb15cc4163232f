//! Steady mode: the queue is our own.

use marcato_units::{Bytes, Rate};

use super::competing::Competing;
use super::fast::Fast;
use super::round::{CapChange, Round};
use super::state::{Before, Context, State};

/// Round trips with a queue of others before a test.
const QUEUED_ROUNDS: u32 = 4;

/// State of steady mode: the cap keeps the queue at a few packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    rule: Fast,
    /// Round trips with a queue of others, one after the other.
    pub(super) queued_rounds: u32,
    /// Cap before a dip, which shows the least round trip again.
    dip: Option<Bytes>,
}

impl Steady {
    pub(super) const fn new() -> Self {
        Self { rule: Fast::new(), queued_rounds: 0, dip: None }
    }

    pub(super) const fn begin() -> State {
        State::Steady(Self::new())
    }

    pub(super) const fn is_dipping(&self) -> bool {
        self.dip.is_some()
    }

    /// Judges a round trip under this cap.
    pub(super) fn round(
        mut self,
        cap: Bytes,
        round: &Round,
        context: &mut Context<'_>,
    ) -> (State, CapChange) {
        let Context { now, config, path, tests } = context;
        let alpha = config.alpha(round.rate);
        if let Some(cap) = self.dip.take() {
            // The least round trip may have become longer: a route has changed.
            path.renew(*now, round.base + round.queueing);
            return (State::Steady(self), CapChange::Restore(cap));
        }
        let (threshold, was_queued) = (path.threshold(round.base, config), self.queued_rounds > 0);
        let is_queued = round.queueing > threshold;
        self.queued_rounds = if is_queued { self.queued_rounds.saturating_add(1) } else { 0 };
        let is_squeezed = round.rate < Rate::from_bps(path.meter.longest().as_bps() / 2);
        if path.lost && was_queued && is_squeezed && round.queueing > threshold / 2 {
            tests.steady_was_wrong(*now);
            return (Competing::begin(round.rate, context), CapChange::Keep);
        }
        if self.queued_rounds >= QUEUED_ROUNDS && is_squeezed {
            return (State::Test(Before::Steady(round.rate)), CapChange::Cut(round.bdp()));
        }
        if path.is_stale(*now) {
            self.dip = Some(cap);
            // Our own queue, and what its estimate may be wrong by.
            let dip = cap - alpha - config.least(round.rate) - config.mss;
            return (State::Steady(self), CapChange::Cut(dip));
        }
        let change = self.rule.step(cap, round, config.mss, alpha);
        (State::Steady(self), change)
    }
}
