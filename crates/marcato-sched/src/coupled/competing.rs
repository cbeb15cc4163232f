//! Competing: others keep the queue full.

use marcato_units::{Duration, Rate, Time};

use super::round::{CapChange, Round};
use super::state::{Before, Context, State};
use super::steady::Steady;

/// Round trips without a queue, and their time, before competing ends.
const QUIET_ROUNDS: u32 = 20;
const QUIET_TIME: Duration = Duration::from_secs(5);
/// Queueing delay, in least round trips, up to which a test cuts the window at once. Behind a longer queue, a
/// quarter less shows whether the rate falls with the window.
const SHORT_QUEUE: u32 = 4;

/// State of competing: there is no cap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Competing {
    /// Time and rate at the beginning.
    since: Time,
    pub(super) rate: Rate,
    test_at: Time,
    quiet: Option<Quiet>,
}

/// Round trips without a queue, one after the other.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    rounds: u32,
    since: Time,
}

impl Competing {
    /// Begins to compete, at this rate.
    pub(super) fn begin(rate: Rate, context: &Context<'_>) -> State {
        let Context { now, path, tests, .. } = context;
        State::Compete(Self { since: *now, rate, test_at: tests.due(*now, path.rtt), quiet: None })
    }

    /// Judges a round trip.
    pub(super) fn round(mut self, round: &Round, context: &mut Context<'_>) -> (State, CapChange) {
        let Context { now, config, path, tests, .. } = context;
        let now = *now;
        let change = if round.bound { CapChange::Keep } else { CapChange::Lift };
        let threshold = path.threshold(round.base, config);
        if round.queueing <= threshold {
            let quiet = self.quiet.get_or_insert(Quiet { rounds: 0, since: now });
            quiet.rounds += 1;
            if quiet.rounds >= QUIET_ROUNDS && now.since(quiet.since) >= tests.quiet(QUIET_TIME) {
                tests.competing_ended(now);
                let cap = round.bdp().max(round.most) + path.alpha(round.rate, round.base, config);
                return (Steady::begin(), CapChange::Set(cap));
            }
            return (State::Compete(self), change);
        }
        self.quiet = None;
        let is_faster = round.rate.as_bps() > self.rate.as_bps().saturating_add(self.rate.as_bps() / 2);
        let is_due = now >= self.test_at || (is_faster && now.since(self.since) >= tests.early(path.rtt));
        if !is_due || round.queueing < threshold.saturating_mul(2) {
            return (State::Compete(self), change);
        }
        if round.queueing <= round.base.saturating_mul(SHORT_QUEUE) && !path.is_old(now) {
            (State::Test(Before::Compete(round.rate)), CapChange::Cut(round.bdp()))
        } else {
            (State::Squeeze { rate: round.rate }, CapChange::Cut(round.most * 3 / 4))
        }
    }
}
