//! Health of a lane: its life from opening to closing, and the doubt about one that does not answer.

use marcato_units::{Duration, Time};

/// State of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneState {
    /// The lane carries data.
    Up,
    /// No acknowledgement arrives for packets sent on the lane. It is used only if there is no
    /// other.
    Stalled,
    /// The path is being validated.
    Opening,
    /// Either end has given up the lane.
    Closing,
}

/// Period after a recovery in which another stall counts as a flap: longer than the longest hold, so that a
/// lane that keeps flapping does not start over.
const FLAP_PERIOD: Duration = Duration::from_secs(10);
/// Half of the first hold after a flap. The hold doubles with each flap.
const HALF_HOLD: Duration = Duration::from_millis(125);
/// Flaps after which the hold of a high lane grows no more: it is 8 s then, and so shorter than [`FLAP_PERIOD`].
const MAX_FLAPS: u32 = 6;
/// Flaps after which the hold of a low lane grows no more: 0.5 s. Such a lane is starved again and again without
/// being dead. Its evidence of life is an acknowledgement of packets that it carried itself.
const MAX_LOW_FLAPS: u32 = 2;
/// Limit of the doublings of a lane's trial period: each trial lasts twice as long as the one
/// before.
const MAX_TRIALS: u32 = 4;

/// Doubt about a lane that did not answer in time.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Time of the stall.
    since: Time,
    /// Number of consecutive trials without an answer, at most [`MAX_TRIALS`].
    trials: u32,
    /// Set when an acknowledgement has arrived since the stall.
    answers: bool,
}

/// Life of a lane, with the data of each phase.
#[derive(Clone, Copy, Debug)]
enum Life {
    Opening,
    Up,
    Stalled(Doubt),
    /// Used although nothing has arrived since the stall, because no lane answers.
    Trial(Doubt),
    Closing {
        /// This end closes the lane because it was silent for too long.
        silent: bool,
    },
}

/// Silence of a lane that stays in service, because there is no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    None,
    Lasts,
    /// Something has arrived since.
    Over,
}

/// Health of a lane.
#[derive(Debug)]
pub(crate) struct Health {
    life: Life,
    silence: Silence,
    /// A chunk was fed and nothing left, because the path is being validated again. The lane rests
    /// until the next event.
    pub(crate) paused: bool,
    /// Time of the last datagram that arrived on the lane.
    pub(crate) heard_at: Time,
    /// Time of the last recovery, until the next stall.
    recovered_at: Option<Time>,
    /// Number of stalls that each followed soon after a recovery.
    flaps: u32,
}

impl Health {
    /// Health of a lane whose path is `validated` or has still to be.
    pub(crate) const fn new(now: Time, validated: bool) -> Self {
        let life = if validated { Life::Up } else { Life::Opening };
        Self { life, silence: Silence::None, paused: false, heard_at: now, recovered_at: None, flaps: 0 }
    }

    pub(super) const fn state(&self) -> LaneState {
        match self.life {
            Life::Opening => LaneState::Opening,
            Life::Up | Life::Trial(_) => LaneState::Up,
            Life::Stalled(_) => LaneState::Stalled,
            Life::Closing { .. } => LaneState::Closing,
        }
    }

    const fn doubt(&self) -> Option<&Doubt> {
        match &self.life {
            Life::Stalled(doubt) | Life::Trial(doubt) => Some(doubt),
            Life::Opening | Life::Up | Life::Closing { .. } => None,
        }
    }

    /// Returns whether the lane is stalled, or used only because the others are.
    pub(crate) const fn is_in_doubt(&self) -> bool {
        self.doubt().is_some()
    }

    /// Returns whether the lane has been silent and in service for lack of another, and the owner has not heard of
    /// the end of that.
    pub(crate) const fn is_silent(&self) -> bool {
        !matches!(self.silence, Silence::None)
    }

    /// Records the silence of the only lane. Returns whether that is news.
    pub(crate) fn fall_silent(&mut self) -> bool {
        std::mem::replace(&mut self.silence, Silence::Lasts) == Silence::None
    }

    /// Returns whether a silence has ended since the last call.
    pub(crate) fn take_end_of_silence(&mut self) -> bool {
        let over = self.silence == Silence::Over;
        if over {
            self.silence = Silence::None;
        }
        over
    }

    /// Returns whether the lane is in service without doubt.
    pub(crate) const fn works(&self) -> bool {
        matches!(self.life, Life::Up)
    }

    /// Returns whether the lane works, and something has arrived on it after `since`.
    ///
    /// Acknowledgements of its own packets are no proof: they may return by another lane.
    pub(crate) fn works_since(&self, since: Time) -> bool {
        self.works() && self.heard_at > since
    }

    /// Returns whether this end closes the lane because it was silent.
    pub(crate) const fn is_closed_as_silent(&self) -> bool {
        matches!(self.life, Life::Closing { silent: true })
    }

    /// Time of the stall of a lane that is stalled.
    pub(crate) const fn stalled_at(&self) -> Option<Time> {
        match self.life {
            Life::Stalled(doubt) => Some(doubt.since),
            _ => None,
        }
    }

    /// Number of consecutive trials without an answer; 0 if the lane is not on trial.
    pub(super) const fn trials(&self) -> u32 {
        match self.life {
            Life::Trial(doubt) => doubt.trials,
            _ => 0,
        }
    }

    /// Records that the path was validated.
    pub(crate) const fn establish(&mut self) {
        if matches!(self.life, Life::Opening) {
            self.life = Life::Up;
        }
    }

    /// Records that the lane is given up; `silent` if that is because this end heard nothing.
    pub(crate) const fn close(&mut self, silent: bool) {
        self.life = Life::Closing { silent };
    }

    /// Records a stall, of a low lane or of another.
    pub(super) fn stall(&mut self, now: Time, low: bool) {
        let trials = self.doubt().map_or(0, |doubt| doubt.trials);
        self.life = Life::Stalled(Doubt { since: now, trials, answers: false });
        self.silence = Silence::None;
        match self.recovered_at.take() {
            Some(at) if now.since(at) < FLAP_PERIOD => {
                self.flaps = (self.flaps + 1).min(if low { MAX_LOW_FLAPS } else { MAX_FLAPS });
            }
            Some(_) => self.flaps = 0,
            None => {}
        }
    }

    /// Counts the time of a stall from now on.
    pub(crate) const fn stall_anew(&mut self, now: Time) {
        if let Life::Stalled(doubt) | Life::Trial(doubt) = &mut self.life {
            doubt.since = now;
        }
    }

    /// Records an acknowledgement.
    pub(super) const fn answered(&mut self) {
        if let Life::Stalled(doubt) | Life::Trial(doubt) = &mut self.life {
            doubt.answers = true;
        }
        if matches!(self.silence, Silence::Lasts) {
            self.silence = Silence::Over;
        }
    }

    /// Time from which the lane is used again, if it answers.
    ///
    /// Normally that is at once. It is later if the lane stalled again soon after a recovery: an
    /// acknowledgement that travels by another lane may repeatedly revive a lane whose return
    /// direction is dead.
    pub(crate) fn recovers_at(&self) -> Option<Time> {
        let hold = if self.flaps == 0 { Duration::ZERO } else { HALF_HOLD.saturating_mul(1 << self.flaps) };
        self.doubt().filter(|doubt| doubt.answers).map(|doubt| doubt.since + hold)
    }

    /// Returns the lane to service because it answers.
    pub(crate) const fn recover(&mut self, now: Time) {
        self.life = Life::Up;
        self.recovered_at = Some(now);
    }

    /// Returns a stalled lane to service on trial.
    pub(crate) fn try_again(&mut self) {
        if let Life::Stalled(doubt) = self.life {
            self.life = Life::Trial(Doubt { trials: (doubt.trials + 1).min(MAX_TRIALS), ..doubt });
        }
    }

    /// Ends a trial, because a better lane is available.
    pub(crate) const fn end_trial(&mut self) {
        if let Life::Trial(doubt) = self.life {
            self.life = Life::Stalled(doubt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeatedly_stalled_lane_recovers_after_growing_delays() {
        let mut now = Time::from_millis(1000);
        let mut health = Health::new(now, true);
        let mut holds = Vec::new();
        for _ in 0..9 {
            health.stall(now, false);
            assert_eq!(health.recovers_at(), None);
            health.answered();
            let at = health.recovers_at().unwrap();
            holds.push((at - now).as_millis());
            now = at;
            health.recover(now);
            assert!(health.works() && !health.is_in_doubt());
            now += Duration::from_millis(100);
        }
        assert_eq!(holds, [0, 250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        // After a longer time in service, the lane recovers at once again.
        now += FLAP_PERIOD;
        health.stall(now, false);
        health.answered();
        assert_eq!(health.recovers_at(), Some(now));
    }

    #[test]
    fn a_low_lane_is_held_for_half_a_second_at_most() {
        let mut now = Time::from_millis(1000);
        let mut health = Health::new(now, true);
        for hold in [0, 250, 500, 500] {
            health.stall(now, true);
            health.answered();
            assert_eq!(health.recovers_at(), Some(now + Duration::from_millis(hold)));
            now += Duration::from_millis(hold);
            health.recover(now);
        }
    }

    #[test]
    fn a_trial_that_ends_leaves_the_doubt_as_it_was() {
        let now = Time::from_millis(1000);
        let mut health = Health::new(now, true);
        health.stall(now, false);
        for trials in [1, 2, 3, 4, 4] {
            health.try_again();
            assert_eq!((health.state(), health.trials()), (LaneState::Up, trials));
            assert!(health.is_in_doubt() && !health.works());
            health.end_trial();
            assert_eq!((health.state(), health.stalled_at()), (LaneState::Stalled, Some(now)));
        }
    }
}
