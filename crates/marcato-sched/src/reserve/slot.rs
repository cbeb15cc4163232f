//! A source and the room held for its next releases.

use marcato_units::{Bytes, Time};

use super::books::Books;
use super::hold::Hold;
use super::source::{Source, SourceKey};
use crate::lane::{LaneId, LaneSet, LaneView};

/// Most releases of one source for which room is held at once. It matters to sources whose period
/// is shorter than a round-trip time; later releases get their room later.
pub const MAX_AHEAD: usize = 8;
/// Limit of one hold, above any congestion window. The sum of all holds at this limit does not
/// overflow.
const MAX_HOLD: Bytes = Bytes::new(1 << 48);
/// Releases missed in a row after which a source counts as silent, until it sends again.
const MISSES: u64 = 3;

/// A source and its holds. Holds whose message has been offered come first, and then by release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) key: SourceKey,
    pub(super) source: Source,
    pub(super) learned: bool,
    /// Releases missed in a row.
    missed: u64,
    holds: [Hold; MAX_AHEAD],
    ahead: usize,
}

impl Slot {
    pub(super) const fn new(key: SourceKey, source: Source, learned: bool) -> Self {
        Self { key, source, learned, missed: 0, holds: [Hold::NONE; MAX_AHEAD], ahead: 0 }
    }

    pub(super) fn holds(&self) -> &[Hold] {
        &self.holds[..self.ahead]
    }

    fn holds_mut(&mut self) -> &mut [Hold] {
        &mut self.holds[..self.ahead]
    }

    /// Returns the number of holds without a message.
    fn unreleased(&self) -> usize {
        self.holds().iter().filter(|hold| hold.awaits_message()).count()
    }

    /// Returns the first release for which no room is held, unless the source may get no further
    /// hold now.
    pub(super) fn next_unheld(&self) -> Option<Time> {
        if self.ahead == MAX_AHEAD || self.is_silent() {
            return None;
        }
        let releases = u32::try_from(self.unreleased()).unwrap_or(u32::MAX);
        Some(self.source.next_release + self.source.period.saturating_mul(releases))
    }

    const fn is_silent(&self) -> bool {
        self.missed >= MISSES
    }

    /// Replaces the source by a new declaration or a new estimate of it.
    pub(super) fn redeclare(&mut self, source: Source, learned: bool, books: &mut Books) {
        if !learned {
            // The application states the next release, so earlier expectations are void.
            self.void(books);
        }
        // Remaining holds stay, at their new times. A changed size counts from the next hold on.
        *self = Self { source, learned, missed: 0, ..*self };
        self.retime();
    }

    /// Makes the holds whose horizon has opened.
    pub(super) fn reach(
        &mut self,
        now: Time,
        horizon: Time,
        lanes: &[LaneView],
        among: LaneSet,
        books: &mut Books,
    ) {
        let jitter = self.source.jitter;
        while let Some(release) = self.next_unheld() {
            // A packet sent now will be acknowledged before the release, so its room need not be
            // kept yet.
            if release == Time::MAX || release - jitter > horizon {
                break;
            }
            let left = books.framing.wire(self.source.size).min(MAX_HOLD);
            self.holds[self.ahead] = Hold::new(release, left);
            self.ahead += 1;
            books.counters.held += 1;
        }
        // A message already offered keeps the lanes that it has.
        for hold in self.holds_mut().iter_mut().filter(|hold| hold.awaits_message()) {
            books.place(hold, jitter, now, lanes, among);
        }
    }

    /// Drops the holds that have lapsed before `now`, and counts the missed releases.
    pub(super) fn lapse(&mut self, now: Time, books: &mut Books) {
        let mut at = 0;
        while at < self.ahead {
            if now <= self.holds[at].lapse(&self.source) {
                at += 1;
                continue;
            }
            let hold = self.remove(at);
            books.give_back(&hold);
            if hold.awaits_message() {
                self.miss(1, books);
            }
        }
        // Counts the releases that passed without a hold while no call was made.
        if self.unreleased() == 0 && !self.is_silent() {
            self.miss(self.source.lapsed_before(now), books);
        }
        if self.is_silent() {
            self.void(books);
        }
    }

    /// Records that a message of this source has been offered. A hold for its release becomes its
    /// own.
    pub(super) fn release(&mut self, now: Time, message: u64, len: Bytes, books: &mut Books) {
        if self.is_silent() {
            // A silent source has resumed; its next release counts from now.
            self.missed = 0;
            self.source.next_release = now + self.source.period;
        } else if self.source.is_early(now) {
            // Nearer to the previous release, which has had its message.
            books.counters.unexpected += 1;
        } else {
            self.missed = 0;
            if let Some(hold) = self.holds_mut().iter_mut().find(|hold| hold.awaits_message()) {
                books.shrink(hold, books.framing.wire(len));
                hold.give_to(message, now);
            }
            self.source.follow(now);
            self.retime();
        }
    }

    /// Shrinks the hold of a message to `left` bytes, and returns true if that ended it. Returns
    /// `None` if the message has no hold of this source.
    pub(super) fn consume(&mut self, message: u64, left: Bytes, books: &mut Books) -> Option<bool> {
        let at = self.holds().iter().position(|hold| hold.is_of(message))?;
        books.shrink(&mut self.holds[at], left);
        let ended = self.holds[at].left.is_zero();
        if ended {
            self.remove(at);
        }
        Some(ended)
    }

    /// Ends all holds on a lane after a loss there.
    pub(super) fn lose(&mut self, lane: LaneId, books: &mut Books) {
        for hold in self.holds_mut() {
            books.lose(hold, lane);
        }
    }

    /// Gives back all room before the source is removed.
    pub(super) fn give_back(&self, books: &mut Books) {
        for hold in self.holds() {
            books.give_back(hold);
        }
    }

    /// Drops the holds without a message.
    fn void(&mut self, books: &mut Books) {
        while let Some(at) = self.holds().iter().position(Hold::awaits_message) {
            books.give_back(&self.remove(at));
        }
    }

    fn miss(&mut self, releases: u64, books: &mut Books) {
        books.counters.missed = books.counters.missed.saturating_add(releases);
        self.missed = self.missed.saturating_add(releases);
        self.source.skip(releases);
    }

    /// Moves the holds without a message to the source's next releases.
    fn retime(&mut self) {
        let Source { next_release, period, .. } = self.source;
        let mut release = next_release;
        for hold in self.holds_mut().iter_mut().filter(|hold| hold.awaits_message()) {
            hold.release = release;
            release += period;
        }
    }

    fn remove(&mut self, at: usize) -> Hold {
        let hold = self.holds[at];
        self.holds.copy_within(at + 1..self.ahead, at);
        self.ahead -= 1;
        self.holds[self.ahead] = Hold::NONE;
        hold
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::vec::Vec;

    use super::super::{Framing, Placement};
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Returns a source of 10 kB each 80 ms whose next release is at 100 ms, and books.
    fn slot() -> (Slot, Books) {
        let source = Source::new(Duration::from_millis(80), Bytes::kb(10), ms(100));
        (Slot::new(SourceKey(7), source, false), Books::new(Placement::Fastest, Framing::NONE))
    }

    /// Makes the holds up to a horizon, on one lane, and returns their releases in ms.
    fn reach(slot: &mut Slot, books: &mut Books, horizon: u64) -> Vec<u64> {
        let lane = LaneView::new(LaneId::FIRST, Bytes::kb(100), Duration::from_millis(50));
        slot.reach(ms(50), ms(horizon), &[lane], LaneSet::one(lane.id), books);
        releases(slot)
    }

    fn releases(slot: &Slot) -> Vec<u64> {
        slot.holds().iter().map(|hold| hold.release.as_nanos() / 1_000_000).collect()
    }

    fn reserved(books: &Books) -> u64 {
        books.reserved(LaneId::FIRST).get() / 1000
    }

    #[test]
    fn releases_within_the_horizon_are_held_up_to_a_limit() {
        let (mut slot, mut books) = slot();
        assert!(reach(&mut slot, &mut books, 99).is_empty());
        assert_eq!(reach(&mut slot, &mut books, 180), [100, 180]);
        assert_eq!((slot.next_unheld(), reserved(&books)), (Some(ms(260)), 20));
        assert_eq!(reach(&mut slot, &mut books, 10_000).len(), MAX_AHEAD);
        assert_eq!((slot.next_unheld(), books.counters.held), (None, 8));
    }

    #[test]
    fn the_first_hold_becomes_the_messages_own_and_the_rest_move() {
        let (mut slot, mut books) = slot();
        reach(&mut slot, &mut books, 180);
        slot.release(ms(105), 1, Bytes::kb(6), &mut books);
        assert_eq!((releases(&slot), reserved(&books)), ([100, 185].to_vec(), 16));
        assert_eq!(slot.next_unheld(), Some(ms(265)));
        assert_eq!(slot.consume(2, Bytes::ZERO, &mut books), None);
        assert_eq!(slot.consume(1, Bytes::kb(1), &mut books), Some(false));
        assert_eq!(reserved(&books), 11);
        assert_eq!(slot.consume(1, Bytes::ZERO, &mut books), Some(true));
        assert_eq!((releases(&slot), reserved(&books)), ([185].to_vec(), 10));
    }

    #[test]
    fn three_missed_releases_silence_a_source() {
        let (mut slot, mut books) = slot();
        reach(&mut slot, &mut books, 340);
        // The fourth hold has not lapsed. A silent source keeps none.
        slot.lapse(ms(271), &mut books);
        assert_eq!((books.counters.missed, reserved(&books), slot.next_unheld()), (3, 0, None));
        slot.release(ms(1000), 1, Bytes::kb(10), &mut books);
        assert_eq!(slot.next_unheld(), Some(ms(1080)));
    }

    #[test]
    fn a_declaration_voids_expectations_and_an_estimate_moves_them() {
        let (mut slot, mut books) = slot();
        reach(&mut slot, &mut books, 180);
        let later = Source { next_release: ms(110), ..slot.source };
        slot.redeclare(later, true, &mut books);
        assert_eq!((releases(&slot), reserved(&books)), ([110, 190].to_vec(), 20));
        slot.redeclare(later, false, &mut books);
        assert!(releases(&slot).is_empty() && reserved(&books) == 0);
    }
}
