//! Responses whose stage a grant has emptied, and which may have more in a moment.

use std::time::Duration;

use marcato_sched::order::StreamId;
use tokio::time::Instant;

/// Longest wait that costs nothing. A chunk is the data of about this time, so that the kernel still has some to send.
const PATIENCE: Duration = Duration::from_millis(1);
/// Turns of the runtime in which a slow source may have more nevertheless. The connection to an origin takes several:
/// to be told of the wish, to find that something has arrived, to read it, and to pass it on.
const TURNS: u8 = 8;
/// Longest wait beyond [`PATIENCE`] for a handler that goes on, or a source that has been prompt: its thread may have
/// to wait for a processor, or its file for a disk.
const RESERVE: Duration = Duration::from_millis(10);
/// Part of the time that such waits may take: one in so many.
const SHARE: u32 = 16;

/// Responses whose stage is empty, and for which less urgent ones give way.
///
/// A stage is small, and its handler often fills it within microseconds. If the rest of a budget went to a
/// less urgent response meanwhile, the two would share the connection.
#[derive(Debug)]
pub(super) struct Refills {
    refills: Vec<Refill>,
    /// Reason for which the latest grant was put off.
    pause: Option<Pause>,
    /// Time for which responses may be waited for beyond [`PATIENCE`].
    reserve: Duration,
    /// Time up to which the reserve is counted.
    counted: Option<Instant>,
    /// True if the latest grant was put off at the cost of the reserve.
    spends: bool,
}

impl Default for Refills {
    fn default() -> Self {
        Self { refills: Vec::new(), pause: None, reserve: RESERVE, counted: None, spends: false }
    }
}

#[derive(Clone, Copy, Debug)]
struct Refill {
    stream: StreamId,
    since: Instant,
    pace: Pace,
    /// Turns of the runtime since its handler was last seen to go on.
    turns: u8,
}

/// Pace at which a source has filled an empty stage before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pace {
    /// It took no longer than is waited for anyway, or has not had to.
    #[default]
    Prompt,
    /// It took longer.
    Slow,
}

impl Pace {
    /// Returns the pace of a source that has filled a stage after this time.
    pub(super) const fn of(time: Duration) -> Self {
        if time.as_nanos() <= PATIENCE.as_nanos() { Self::Prompt } else { Self::Slow }
    }
}

/// Supply of a response whose stage is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    /// Nothing is to be waited for: it has bytes, or is over.
    Settled,
    /// Its handler goes on.
    Filling,
    /// Its handler waits for its own source.
    Resting,
}

/// Reason for which no chunk is granted although one could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// A handler rings when it has filled its stage. This is the end of the wait.
    Until(Instant),
    /// Other tasks have their turn first.
    Turn,
}

impl Refills {
    /// Notes that the stage of a response is empty, and its end unknown.
    pub(super) fn note(&mut self, stream: StreamId, now: Instant, pace: Pace) {
        self.refills.retain(|refill| refill.stream != stream);
        self.refills.push(Refill { stream, since: now, pace, turns: 0 });
    }

    /// Forgets a response.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.refills.retain(|refill| refill.stream != stream);
        self.spends &= !self.refills.is_empty();
    }

    /// True if no response is waited for.
    pub(super) const fn is_empty(&self) -> bool {
        self.refills.is_empty()
    }

    /// Notes that other tasks have had a turn.
    pub(super) fn turn(&mut self) {
        self.pause = None;
        for refill in &mut self.refills {
            refill.turns = refill.turns.saturating_add(1);
        }
    }

    /// Decides whether the response whose turn it is gives way to one of these. `supply` tells about one of
    /// them, and `precedes` whether it goes before the response whose turn it is.
    pub(super) fn pause(
        &mut self,
        now: Instant,
        supply: impl Fn(StreamId) -> Supply,
        precedes: impl Fn(StreamId) -> bool,
    ) -> bool {
        self.count(now);
        let Self { refills, pause, reserve, spends, .. } = self;
        (*pause, *spends) = (None, false);
        refills.retain_mut(|refill| {
            let free_until = refill.since + PATIENCE;
            let reason = match (supply(refill.stream), refill.pace) {
                (Supply::Settled, _) => return false,
                (Supply::Resting, Pace::Slow) if refill.turns >= TURNS => return false,
                (Supply::Resting, Pace::Slow) => Pause::Turn,
                (Supply::Resting, Pace::Prompt) if refill.turns < TURNS => Pause::Turn,
                (supply, _) => {
                    if supply == Supply::Filling {
                        refill.turns = 0;
                    }
                    match (now < free_until, reserve.is_zero()) {
                        (true, _) => Pause::Until(free_until),
                        (false, true) => return false,
                        (false, false) => Pause::Until(now + *reserve),
                    }
                }
            };
            if precedes(refill.stream) {
                *spends |= now >= free_until;
                *pause = Some(match (*pause, reason) {
                    (Some(Pause::Until(one)), Pause::Until(other)) => Pause::Until(one.min(other)),
                    (Some(Pause::Turn), _) => Pause::Turn,
                    (_, reason) => reason,
                });
            }
            true
        });
        pause.is_some()
    }

    /// Counts the reserve up to now.
    fn count(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.counted.replace(now).unwrap_or(now));
        self.reserve = if self.spends {
            self.reserve.saturating_sub(time)
        } else {
            (self.reserve + time / SHARE).min(RESERVE)
        };
    }

    /// Reason for which the latest grant was put off; `None` if it was not.
    pub(super) const fn reason(&self) -> Option<Pause> {
        self.pause
    }

    /// Ends the pause: the next grant is decided anew.
    pub(super) const fn resume(&mut self) {
        self.pause = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StreamId = StreamId(1);

    fn refills(now: Instant, pace: Pace) -> Refills {
        let mut refills = Refills::default();
        refills.note(ONE, now, pace);
        refills
    }

    fn pauses(refills: &mut Refills, now: Instant, supply: Supply) -> bool {
        refills.pause(now, |_| supply, |_| true)
    }

    #[test]
    fn less_urgent_responses_give_way_to_a_handler_that_goes_on() {
        let now = Instant::now();
        let mut refills = refills(now, Pace::Slow);
        assert!(!refills.pause(now, |_| Supply::Filling, |_| false));
        assert!(pauses(&mut refills, now, Supply::Filling));
        assert_eq!(refills.reason(), Some(Pause::Until(now + PATIENCE)));
        assert!(pauses(&mut refills, now + PATIENCE, Supply::Filling));
        assert!(!pauses(&mut refills, now + PATIENCE + RESERVE, Supply::Filling), "it takes too long");
        assert!(refills.is_empty() && refills.reason().is_none());
    }

    #[test]
    fn a_slow_source_has_some_turns() {
        let now = Instant::now();
        let mut refills = refills(now, Pace::Slow);
        refills.turn();
        assert!(pauses(&mut refills, now, Supply::Filling));
        for _ in 0..TURNS {
            assert!(pauses(&mut refills, now, Supply::Resting));
            assert_eq!(refills.reason(), Some(Pause::Turn));
            refills.turn();
        }
        assert!(!pauses(&mut refills, now, Supply::Resting));
        assert!(refills.is_empty());
    }

    #[test]
    fn a_prompt_source_may_take_longer_now_and_then() {
        for supply in [Supply::Filling, Supply::Resting] {
            let mut now = Instant::now();
            let mut refills = refills(now, Pace::Prompt);
            (0..TURNS).for_each(|_| refills.turn());
            assert!(pauses(&mut refills, now, supply));
            assert_eq!(refills.reason(), Some(Pause::Until(now + PATIENCE)));
            now += PATIENCE;
            assert!(pauses(&mut refills, now, supply));
            assert_eq!(refills.reason(), Some(Pause::Until(now + RESERVE)));
            // It has more after half of the longest wait. The other half is left, and a sixteenth of the time since.
            now += RESERVE / 2;
            assert!(!pauses(&mut refills, now, Supply::Settled));
            now += RESERVE;
            refills.note(ONE, now, Pace::Prompt);
            (0..TURNS).for_each(|_| refills.turn());
            assert!(pauses(&mut refills, now, supply));
            now += PATIENCE;
            assert!(pauses(&mut refills, now, supply));
            let left = RESERVE / 2 + (RESERVE + PATIENCE) / SHARE;
            assert_eq!(refills.reason(), Some(Pause::Until(now + left)));
            now += left;
            assert!(!pauses(&mut refills, now, supply), "nothing is left");
            assert!(refills.is_empty());
            // In the long run, a sixteenth of the time.
            now += RESERVE * SHARE * 2;
            refills.note(ONE, now, Pace::Prompt);
            (0..TURNS).for_each(|_| refills.turn());
            now += PATIENCE;
            assert!(pauses(&mut refills, now, supply));
            assert_eq!(refills.reason(), Some(Pause::Until(now + RESERVE)));
        }
    }

    #[test]
    fn a_wait_for_a_forgotten_response_costs_no_more() {
        let now = Instant::now();
        let mut refills = refills(now, Pace::Prompt);
        (0..TURNS).for_each(|_| refills.turn());
        assert!(pauses(&mut refills, now + PATIENCE, Supply::Resting));
        refills.forget(ONE);
        let later = now + PATIENCE + RESERVE;
        refills.note(ONE, later, Pace::Prompt);
        assert!(pauses(&mut refills, later + PATIENCE, Supply::Filling));
        assert_eq!(refills.reason(), Some(Pause::Until(later + PATIENCE + RESERVE)));
    }

    #[test]
    fn the_pace_is_that_of_the_latest_refill() {
        assert_eq!([Duration::ZERO, PATIENCE].map(Pace::of), [Pace::Prompt; 2]);
        assert_eq!(Pace::of(PATIENCE + Duration::from_nanos(1)), Pace::Slow);
    }

    #[test]
    fn responses_with_bytes_are_waited_for_no_more() {
        let now = Instant::now();
        let mut refills = refills(now, Pace::Slow);
        refills.note(ONE, now, Pace::Slow);
        refills.note(StreamId(3), now, Pace::Slow);
        assert!(refills.pause(
            now,
            |stream| match stream {
                ONE => Supply::Settled,
                _ => Supply::Filling,
            },
            |_| true
        ));
        refills.forget(StreamId(3));
        assert!(refills.is_empty());
    }
}
