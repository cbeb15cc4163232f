//! Clocks of a connection, over either version of HTTP.

use tokio::time::Instant;

use crate::config::Limits;

/// Clocks of a connection, over either version of HTTP. They know no socket: its task tells them what it
/// [sees](Seen), and asks what is due.
#[derive(Debug)]
pub(crate) struct Clocks {
    limits: Limits,
    life: Life,
    /// Time since which no content that waits has left.
    progress_at: Instant,
    /// Time since which there is no request.
    idle_since: Instant,
}

/// Life of a connection: from the first to the last, never back.
#[derive(Clone, Copy, Debug)]
enum Life {
    Serving,
    /// The client was told to begin nothing more. Its open requests have this long.
    Draining {
        until: Instant,
    },
}

/// Present state of a connection, as its clocks need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// True if a request is not over.
    pub(crate) has_requests: bool,
    /// True if content waits for the client.
    pub(crate) waits: bool,
    /// Time at which the head of a request began that is not complete.
    pub(crate) head_since: Option<Instant>,
}

/// Action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The client is told to begin nothing more: the connection was idle for too long.
    Drain,
    /// The connection ends.
    End(Overdue),
}

/// Reason for which a connection ends by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Overdue {
    #[error("the client took nothing for the time allowed")]
    Stuck,
    #[error("the head of a request took longer than allowed")]
    SlowHead,
    #[error("the connection did not end in time after it was told to")]
    Late,
}

impl Clocks {
    pub(crate) const fn new(limits: Limits, now: Instant) -> Self {
        Self { limits, life: Life::Serving, progress_at: now, idle_since: now }
    }

    /// Notes that content has left.
    pub(crate) const fn progress(&mut self, now: Instant) {
        self.progress_at = now;
    }

    /// Begins the time that open requests have after the connection was told to end.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.life = Life::Draining { until: now + self.limits.grace };
    }

    /// Returns the time of the next action unless something changes before; `None` if there is none.
    ///
    /// # Errors
    /// If an action is due.
    pub(crate) fn next(&mut self, now: Instant, seen: Seen) -> Result<Option<Instant>, Due> {
        let limits = &self.limits;
        if !seen.waits {
            self.progress_at = now;
        }
        if seen.has_requests {
            self.idle_since = now;
        }
        // Coupled mode holds data back for round trips, and so never for that long if the client takes any.
        let stuck_at = seen.waits.then(|| self.progress_at + limits.stall);
        let head_until = seen.head_since.map(|since| since + limits.handshake);
        let (late_at, idle_until) = match self.life {
            Life::Draining { until } => (Some(until), None),
            Life::Serving => (None, (!seen.has_requests).then(|| self.idle_since + limits.idle)),
        };
        let actions = [
            (stuck_at, Due::End(Overdue::Stuck)),
            (head_until, Due::End(Overdue::SlowHead)),
            (late_at, Due::End(Overdue::Late)),
            (idle_until, Due::Drain),
        ];
        match actions.into_iter().find(|(at, _)| at.is_some_and(|at| now >= at)) {
            Some((_, due)) => Err(due),
            None => Ok(actions.into_iter().filter_map(|(at, _)| at).min()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SERVING: Seen = Seen { has_requests: true, waits: false, head_since: None };
    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Asserts that nothing is due until `limit` after `now`, and this action then.
    fn assert_due(clocks: &mut Clocks, now: Instant, seen: Seen, limit: Duration, due: Due) {
        assert_eq!(clocks.next(now, seen), Ok(Some(now + limit)));
        assert_eq!(clocks.next(now + limit - MILLISECOND, seen), Ok(Some(now + limit)));
        assert_eq!(clocks.next(now + limit, seen), Err(due));
    }

    #[test]
    fn each_action_is_due_after_its_limit() {
        let (limits, now) = (Limits::default(), Instant::now());
        let cases = [
            (Seen { waits: true, ..SERVING }, limits.stall, Due::End(Overdue::Stuck)),
            (Seen { head_since: Some(now), ..SERVING }, limits.handshake, Due::End(Overdue::SlowHead)),
            (Seen { has_requests: false, ..SERVING }, limits.idle, Due::Drain),
        ];
        for (seen, limit, due) in cases {
            assert_due(&mut Clocks::new(limits, now), now, seen, limit, due);
        }
        let mut clocks = Clocks::new(limits, now);
        assert_eq!(clocks.next(now, SERVING), Ok(None));
        clocks.drain(now);
        assert_due(&mut clocks, now, SERVING, limits.grace, Due::End(Overdue::Late));
    }

    #[test]
    fn the_grace_is_prolonged_by_nothing() {
        let (limits, now) = (Limits::default(), Instant::now());
        let mut clocks = Clocks::new(limits, now);
        clocks.drain(now);
        for seen in [SERVING, Seen { has_requests: false, ..SERVING }] {
            clocks.progress(now + limits.grace / 2);
            assert_eq!(clocks.next(now + limits.grace / 2, seen), Ok(Some(now + limits.grace)));
        }
        assert_eq!(clocks.next(now + limits.grace, SERVING), Err(Due::End(Overdue::Late)));
    }

    #[test]
    fn progress_and_requests_begin_the_wait_anew() {
        let (limits, now) = (Limits::default(), Instant::now());
        let mut clocks = Clocks::new(limits, now);
        let later = now + limits.stall / 2;
        let waits = Seen { waits: true, ..SERVING };
        assert_eq!(clocks.next(now, waits), Ok(Some(now + limits.stall)));
        clocks.progress(later);
        assert_due(&mut clocks, later, waits, limits.stall, Due::End(Overdue::Stuck));
        let idle = Seen { has_requests: false, ..SERVING };
        let last = later + limits.stall;
        assert_eq!(clocks.next(last, SERVING), Ok(None));
        assert_due(&mut clocks, last, idle, limits.idle, Due::Drain);
    }
}
