//! Times at which a session has to look again, in addition to those of the engine and of the lanes.

use marcato_units::{Duration, Time};

/// Delay after which a lane that sent nothing when it should have is tried again, if no event comes
/// first.
const RETRY: Duration = Duration::from_millis(20);

/// Alarms of a session, each set to the earliest time that was asked for.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    /// Next time to look again even if nothing happens.
    wake: Option<Time>,
    /// Time to retry lanes that sent nothing when they should have.
    retry: Option<Time>,
}

impl Alarms {
    /// Asks for another look at `at`.
    pub(super) fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Asks for paused lanes to be tried again soon.
    pub(super) fn retry_after(&mut self, now: Time) {
        let at = now + RETRY;
        self.retry = Some(self.retry.map_or(at, |retry| retry.min(at)));
    }

    /// Removes the alarms that have gone off. Returns whether paused lanes are to be tried again.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        self.wake = self.wake.filter(|&at| at > now);
        self.retry.take_if(|at| *at <= now).is_some()
    }

    /// Earliest alarm.
    pub(super) fn next(&self) -> Option<Time> {
        self.wake.into_iter().chain(self.retry).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn the_earliest_of_several_times_counts() {
        let mut alarms = Alarms::default();
        for at in [30, 10, 20] {
            alarms.wake_at(ms(at));
        }
        assert_eq!(alarms.next(), Some(ms(10)));
    }

    #[test]
    fn an_alarm_that_has_gone_off_is_gone() {
        let mut alarms = Alarms::default();
        alarms.wake_at(ms(10));
        assert!(!alarms.expire(ms(9)));
        assert_eq!(alarms.next(), Some(ms(10)));
        assert!(!alarms.expire(ms(10)));
        assert_eq!(alarms.next(), None);
    }

    #[test]
    fn a_retry_is_not_put_off_by_another() {
        let mut alarms = Alarms::default();
        alarms.retry_after(ms(0));
        alarms.retry_after(ms(15));
        assert_eq!(alarms.next(), Some(Time::ZERO + RETRY));
        assert!(!alarms.expire(ms(19)));
        assert!(alarms.expire(ms(20)));
        assert!(!alarms.expire(ms(40)));
    }
}
