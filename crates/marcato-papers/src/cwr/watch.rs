//! How long a level waits that always has something to send.

use marcato_sched::conductor::Counters;
use marcato_units::{Bytes, Duration, Priority, Time};

/// How often is looked.
const EVERY: Duration = Duration::from_millis(1);

/// The longest that a level waited between two of its grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Longest {
    /// Bytes of others that were granted in one wait.
    pub(super) others: Bytes,
    /// The time that one took.
    pub(super) time: Duration,
}

/// Looks at a Conductor's counters now and again. What it finds is too long by up to two looks, never too short.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    level: Priority,
    next: Time,
    /// The latest look before something was granted to the level, or at which it had nothing waiting: when, how much
    /// had been granted of its own, and of all levels.
    granted: Option<(Time, Bytes, Bytes)>,
    /// The look before the latest.
    latest: (Time, Bytes),
    longest: Longest,
}

impl Watch {
    /// Of this level, from a time on.
    pub(super) const fn new(level: Priority, from: Time) -> Self {
        let longest = Longest { others: Bytes::ZERO, time: Duration::ZERO };
        Self { level, next: from, granted: None, latest: (from, Bytes::ZERO), longest }
    }

    /// When to look again.
    pub(super) const fn next(&self) -> Time {
        self.next
    }

    /// What was the longest.
    pub(super) const fn longest(&self) -> Longest {
        self.longest
    }

    /// Looks.
    pub(super) fn look(&mut self, now: Time, counters: &Counters) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        let own = counters.level(self.level).granted.bytes;
        let all = counters.total().granted.bytes;
        if counters.level(self.level).queued.bytes.is_zero() {
            // Nothing waits.
            self.granted = None;
        }
        let (since, mine, total) = *self.granted.get_or_insert((now, own, all));
        self.longest.time = self.longest.time.max(now.since(since));
        self.longest.others = self.longest.others.max((all - total) - (own - mine));
        if own != mine {
            // It may have been granted just after the look before this.
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
        // 4 kB before its grant at the latest, and 6 to 7 kB after: which of them is not known.
        let Longest { others, time } = watch.longest();
        assert_eq!((others, time), (Bytes::new(7000), Duration::from_millis(7)));
        // What passes while nothing waits makes nobody wait.
        counters.levels[4].queued.bytes = Bytes::ZERO;
        for millis in 11..=30 {
            grant(&mut counters, Priority::P0, 1000);
            watch.look(Time::from_millis(millis), &counters);
        }
        assert_eq!(watch.longest(), Longest { others, time });
    }
}
