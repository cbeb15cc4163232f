//! Responses whose stage a grant has emptied, and which may have more in a moment.

use std::time::Duration;

use marcato_sched::order::StreamId;
use tokio::time::Instant;

/// Longest wait for a handler that goes on. A chunk is the data of about this time, so that the kernel
/// still has some to send.
const PATIENCE: Duration = Duration::from_millis(1);
/// Turns of the runtime in which a handler that waits for its own source may have more. The connection to an
/// origin takes several: to be told of the wish, to find that something has arrived, to read it, and to pass it on.
const TURNS: u8 = 8;

/// Responses whose stage is empty, and for which less urgent ones give way.
///
/// A stage is small, and its handler often fills it within microseconds. If the rest of a budget went to a
/// less urgent response meanwhile, the two would share the connection.
#[derive(Debug, Default)]
pub(super) struct Refills {
    refills: Vec<Refill>,
    /// Reason for which the latest grant was put off.
    pause: Option<Pause>,
}

#[derive(Clone, Copy, Debug)]
struct Refill {
    stream: StreamId,
    since: Instant,
    /// Turns of the runtime since its handler was last seen to go on.
    turns: u8,
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
    pub(super) fn note(&mut self, stream: StreamId, now: Instant) {
        self.forget(stream);
        self.refills.push(Refill { stream, since: now, turns: 0 });
    }

    /// Forgets a response.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.refills.retain(|refill| refill.stream != stream);
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
        let pause = &mut self.pause;
        *pause = None;
        self.refills.retain_mut(|refill| {
            let reason = match supply(refill.stream) {
                Supply::Settled => return false,
                Supply::Filling => {
                    refill.turns = 0;
                    let until = refill.since + PATIENCE;
                    if now >= until {
                        return false;
                    }
                    Pause::Until(until)
                }
                Supply::Resting if refill.turns >= TURNS => return false,
                Supply::Resting => Pause::Turn,
            };
            if precedes(refill.stream) {
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

    fn refills(now: Instant) -> Refills {
        let mut refills = Refills::default();
        refills.note(ONE, now);
        refills
    }

    #[test]
    fn less_urgent_responses_give_way_to_a_handler_that_goes_on() {
        let now = Instant::now();
        let mut refills = refills(now);
        let pause = |refills: &mut Refills, after, supply, precedes| {
            refills.pause(now + after, |_| supply, |_| precedes)
        };
        assert!(!pause(&mut refills, Duration::ZERO, Supply::Filling, false));
        assert!(pause(&mut refills, Duration::ZERO, Supply::Filling, true));
        assert_eq!(refills.reason(), Some(Pause::Until(now + PATIENCE)));
        assert!(!pause(&mut refills, PATIENCE, Supply::Filling, true), "it takes too long");
        assert!(refills.is_empty() && refills.reason().is_none());
    }

    #[test]
    fn a_handler_that_waits_for_its_source_has_some_turns() {
        let now = Instant::now();
        let mut refills = refills(now);
        refills.turn();
        assert!(refills.pause(now, |_| Supply::Filling, |_| true));
        for _ in 0..TURNS {
            assert!(refills.pause(now, |_| Supply::Resting, |_| true));
            assert_eq!(refills.reason(), Some(Pause::Turn));
            refills.turn();
        }
        assert!(!refills.pause(now, |_| Supply::Resting, |_| true));
        assert!(refills.is_empty());
    }

    #[test]
    fn responses_with_bytes_are_waited_for_no_more() {
        let now = Instant::now();
        let mut refills = refills(now);
        refills.note(ONE, now);
        refills.note(StreamId(3), now);
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
