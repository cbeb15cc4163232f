//! Waiting time of a level that always has data.

use marcato_sched::conductor::Counters;
use marcato_units::{Bytes, Duration, Priority, Time};

/// Time between two samples.
const EVERY: Duration = Duration::from_millis(1);

/// Longest wait of a level between two of its grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Longest {
    /// Largest number of bytes granted to others in one wait.
    pub(super) others: Bytes,
    /// Longest duration of a wait.
    pub(super) time: Duration,
}

/// Samples a Conductor's counters periodically. The result is too long by up to two periods, never
/// too short.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    level: Priority,
    next: Time,
    /// Latest sample before a grant to the level, or at which it had nothing waiting. It has the
    /// time, the bytes granted to the level, and those granted to all levels.
    granted: Option<(Time, Bytes, Bytes)>,
    /// The sample before the latest.
    latest: (Time, Bytes),
    longest: Longest,
}

impl Watch {
    /// Watches `level` from `from` on.
    pub(super) const fn new(level: Priority, from: Time) -> Self {
        let longest = Longest { others: Bytes::ZERO, time: Duration::ZERO };
        Self { level, next: from, granted: None, latest: (from, Bytes::ZERO), longest }
    }

    /// Time of the next sample.
    pub(super) const fn next(&self) -> Time {
        self.next
    }

    /// Longest wait so far.
    pub(super) const fn longest(&self) -> Longest {
        self.longest
    }

    /// Takes a sample if one is due.
    pub(super) fn look(&mut self, now: Time, counters: &Counters) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        let own = counters.level(self.level).granted.bytes;
        let all = counters.total().granted.bytes;
        if counters.level(self.level).queued.bytes.is_zero() {
            // The level has no data waiting.
            self.granted = None;
        }
        let (since, mine, total) = *self.granted.get_or_insert((now, own, all));
        self.longest.time = self.longest.time.max(now.since(since));
        self.longest.others = self.longest.others.max((all - total) - (own - mine));
        if own != mine {
            // The grant may have come just after the previous sample: the wait starts there.
            let (since, total) = self.latest;
            self.granted = Some((since, own, total + (own - mine)));
        }
        self.latest = (now, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_never_taken_for_shorter() {
        let mut watch = Watch::new(Priority::P4, Time::ZERO);
        let mut counters = Counters::default();
        let grant = |counters: &mut Counters, level: Priority, bytes: u64| {
            counters.levels[level.index()].granted.bytes += Bytes::new(bytes);
        };
        counters.levels[4].queued.bytes = Bytes::new(1);
        watch.look(Time::ZERO, &counters);
        for millis in 1..=10 {
            grant(&mut counters, Priority::P0, 1000);
            if millis == 4 {
                grant(&mut counters, Priority::P4, 500);
            }
            watch.look(Time::from_millis(millis), &counters);
        }
        // At most 4 kB before its grant, and 6 to 7 kB after: the exact number is unknown.
        let Longest { others, time } = watch.longest();
        assert_eq!((others, time), (Bytes::new(7000), Duration::from_millis(7)));
        // Grants to others while the level has no data are no wait.
        counters.levels[4].queued.bytes = Bytes::ZERO;
        for millis in 11..=30 {
            grant(&mut counters, Priority::P0, 1000);
            watch.look(Time::from_millis(millis), &counters);
        }
        assert_eq!(watch.longest(), Longest { others, time });
    }
}
