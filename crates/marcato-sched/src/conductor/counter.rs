//! Counters of messages and bytes through the Conductor.

use core::ops::{Add, AddAssign, SubAssign};

use marcato_units::{Bytes, Priority};

/// Number of messages and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    /// Number of messages.
    pub messages: u64,
    /// Number of bytes.
    pub bytes: Bytes,
}

impl Tally {
    pub(super) const NONE: Self = Self { messages: 0, bytes: Bytes::ZERO };

    pub(super) const fn one(bytes: Bytes) -> Self {
        Self { messages: 1, bytes }
    }
}

impl Add for Tally {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { messages: self.messages.saturating_add(other.messages), bytes: self.bytes + other.bytes }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Tally {
    fn sub_assign(&mut self, other: Self) {
        self.messages = self.messages.saturating_sub(other.messages);
        self.bytes -= other.bytes;
    }
}

/// Counters of one level since the Conductor was made.
///
/// In bytes and in messages alike, `offered + moved_in` always equals the sum of all others except
/// `refused`. A message counts as granted when its last byte is. If only the rest of a message was
/// removed or moved, only the bytes of that rest count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounters {
    /// Accepted by `offer`.
    pub offered: Tally,
    /// Refused by `offer`; not part of `offered`.
    pub refused: Tally,
    /// Granted and not refused by the engine.
    pub granted: Tally,
    /// Queued now.
    pub queued: Tally,
    /// Removed by `discard_less_urgent_than`.
    pub discarded: Tally,
    /// Removed because their lifetime was over.
    pub expired: Tally,
    /// Removed by shedding.
    pub shed: Tally,
    /// Removed because a more urgent message needed the room.
    pub evicted: Tally,
    /// Removed by `cancel`.
    pub cancelled: Tally,
    /// Moved here from another level.
    pub moved_in: Tally,
    /// Moved to another level.
    pub moved_out: Tally,
}

/// Counters of a Conductor since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counters of each level, the most urgent first.
    pub levels: [LevelCounters; Priority::COUNT],
    /// Redistributions of debt, one each time all non-empty levels were in debt.
    pub redistributions: u64,
    /// Grants of which the engine took only a part.
    pub refusals: u64,
    /// Automatic sheddings that removed at least one message.
    pub sheddings: u64,
}

impl Counters {
    pub(super) const NONE: Self = Self {
        levels: [LevelCounters {
            offered: Tally::NONE,
            refused: Tally::NONE,
            granted: Tally::NONE,
            queued: Tally::NONE,
            discarded: Tally::NONE,
            expired: Tally::NONE,
            shed: Tally::NONE,
            evicted: Tally::NONE,
            cancelled: Tally::NONE,
            moved_in: Tally::NONE,
            moved_out: Tally::NONE,
        }; Priority::COUNT],
        redistributions: 0,
        refusals: 0,
        sheddings: 0,
    };

    /// Returns the counters of `level`.
    pub fn level(&self, level: Priority) -> &LevelCounters {
        &self.levels[level.index()]
    }

    /// Returns the sum over all levels. Its `moved_in` and `moved_out` are equal.
    pub fn total(&self) -> LevelCounters {
        let mut total = LevelCounters::default();
        for level in &self.levels {
            total.offered += level.offered;
            total.refused += level.refused;
            total.granted += level.granted;
            total.queued += level.queued;
            total.discarded += level.discarded;
            total.expired += level.expired;
            total.shed += level.shed;
            total.evicted += level.evicted;
            total.cancelled += level.cancelled;
            total.moved_in += level.moved_in;
            total.moved_out += level.moved_out;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_sum_of_all_levels() {
        let mut counters = Counters::NONE;
        for (n, level) in (1..).zip(&mut counters.levels) {
            let mut kinds =
                (0..).map(|kind: u64| Tally { messages: n + kind, bytes: Bytes::new(n * 10 + kind) });
            let mut next = || kinds.next().unwrap();
            *level = LevelCounters {
                offered: next(),
                refused: next(),
                granted: next(),
                queued: next(),
                discarded: next(),
                expired: next(),
                shed: next(),
                evicted: next(),
                cancelled: next(),
                moved_in: next(),
                moved_out: next(),
            };
        }
        let total = counters.total();
        let kinds = [
            total.offered,
            total.refused,
            total.granted,
            total.queued,
            total.discarded,
            total.expired,
            total.shed,
            total.evicted,
            total.cancelled,
            total.moved_in,
            total.moved_out,
        ];
        for (kind, tally) in (0..).zip(kinds) {
            assert_eq!(tally, Tally { messages: 15 + 5 * kind, bytes: Bytes::new(150 + 5 * kind) });
        }
    }
}
