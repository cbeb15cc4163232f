//! Congestion window reservation for periodic sources (CWR §III-D1).
//!
//! A [`Source`] sends a message of a known size every period. Room for that message is reserved on
//! a lane (or on all) as soon as a background packet sent now could still be in flight at the next
//! release. Background data may not use this room. Each such hold belongs to one release of one
//! source. The reservation of a lane is the sum of its holds.

mod books;
mod deadlines;
mod framing;
mod hold;
#[cfg(test)]
mod operation;
mod slot;
mod source;

use marcato_units::{Bytes, Time};

#[cfg(test)]
use crate::lane::MAX_LANES;
use crate::lane::{LaneId, LaneSet, LaneView};
use books::Books;
use deadlines::Deadlines;
use slot::Slot;

pub use books::{Placement, ReserveCounters};
pub use framing::{Framing, FramingError};
pub use slot::MAX_AHEAD;
pub use source::{DeclareError, Source, SourceKey};

/// Most sources of one connection.
pub const MAX_SOURCES: usize = 16;

/// Reservations for the sources of one connection.
#[derive(Clone, Debug)]
pub struct Reserve {
    slots: [Option<Slot>; MAX_SOURCES],
    books: Books,
    deadlines: Deadlines,
}

impl Reserve {
    /// Creates a reservation table without sources.
    pub const fn new(placement: Placement, framing: Framing) -> Self {
        Self {
            slots: [None; MAX_SOURCES],
            books: Books::new(placement, framing),
            deadlines: Deadlines::new(),
        }
    }

    /// Conversion of messages to bytes of a window.
    pub const fn framing(&self) -> Framing {
        self.books.framing
    }

    /// Counters since the start.
    pub const fn counters(&self) -> &ReserveCounters {
        &self.books.counters
    }

    /// Returns a source, its next release updated by the messages that it has sent.
    pub fn source(&self, key: SourceKey) -> Option<Source> {
        self.slots.iter().flatten().find(|slot| slot.key == key).map(|slot| slot.source)
    }

    /// True if the application itself has declared this source.
    pub fn is_declared(&self, key: SourceKey) -> bool {
        self.slots.iter().flatten().any(|slot| slot.key == key && !slot.learned)
    }

    /// Declares a source, or declares it anew. It replaces a learned source of the same key. If the
    /// table is full, it replaces another learned source.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the table is full of declared sources.
    pub fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.insert(key, source, false)
    }

    /// Declares a learned source. A declared source of this key stays unchanged.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the table is full.
    pub fn learn(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.insert(key, source, true)
    }

    fn insert(&mut self, key: SourceKey, source: Source, learned: bool) -> Result<(), DeclareError> {
        source.check()?;
        if let Some(slot) = self.slots.iter_mut().flatten().find(|slot| slot.key == key) {
            if learned && !slot.learned {
                return Ok(());
            }
            slot.redeclare(source, learned, &mut self.books);
            self.deadlines.void();
            return Ok(());
        }
        let free = self.slots.iter().position(Option::is_none);
        let place = free.or_else(|| {
            let displaced = |slot: &Option<Slot>| slot.is_some_and(|slot| slot.learned);
            if learned { None } else { self.slots.iter().position(displaced) }
        });
        let Some(place) = place else { return Err(DeclareError::TooManySources { limit: MAX_SOURCES }) };
        if let Some(slot) = &self.slots[place] {
            self.books.counters.displaced += 1;
            slot.give_back(&mut self.books);
        }
        self.slots[place] = Some(Slot::new(key, source, learned));
        self.deadlines.void();
        Ok(())
    }

    /// Removes a source and its holds; returns false if there is none of this key.
    pub fn withdraw(&mut self, key: SourceKey) -> bool {
        self.forget(|slot| slot.key == key)
    }

    /// Removes a learned source and its holds; returns false if there is none of this key.
    pub fn unlearn(&mut self, key: SourceKey) -> bool {
        self.forget(|slot| slot.key == key && slot.learned)
    }

    fn forget(&mut self, which: impl Fn(&Slot) -> bool) -> bool {
        let Some(place) = self.slots.iter().position(|slot| slot.as_ref().is_some_and(&which)) else {
            return false;
        };
        if let Some(slot) = self.slots[place].take() {
            slot.give_back(&mut self.books);
        }
        self.deadlines.void();
        true
    }

    /// Returns the bytes held on this lane for all sources together.
    pub fn reserved(&self, lane: LaneId) -> Bytes {
        self.books.reserved(lane)
    }

    /// Returns the lanes on which room is held for a released message, and the bytes on each.
    pub fn held_for(&self, message: u64) -> (LaneSet, Bytes) {
        let mut holds = self.slots.iter().flatten().flat_map(Slot::holds);
        let hold = holds.find(|hold| hold.is_of(message));
        hold.map_or((LaneSet::EMPTY, Bytes::ZERO), |hold| (hold.on, hold.left))
    }

    /// Returns the time just after which the first hold lapses, unless it is used before.
    pub fn lapses(&self) -> Option<Time> {
        let held = |slot: &Slot| {
            let held = slot.holds().iter().filter(|hold| !hold.on.is_empty());
            held.map(|hold| hold.lapse(&slot.source)).min()
        };
        self.slots.iter().flatten().filter_map(held).min()
    }

    /// Brings the reservations up to `now`: makes holds within a horizon, and drops lapsed ones.
    /// `among` are the lanes on which room may be held.
    pub fn advance(&mut self, now: Time, lanes: &[LaneView], among: LaneSet) {
        self.lapse(now);
        let moved = self.deadlines.set_lanes(among);
        let times = self.deadlines.times(&self.slots, self.books.placement);
        // Horizon of the fastest lane (or the farthest of all), and true if it (or any) has opened.
        let usable = lanes.iter().filter(|lane| among.contains(lane.id));
        let (horizon, open) = match self.books.placement {
            Placement::Fastest => {
                let Some(lane) = usable.min_by_key(|lane| lane.srtt) else { return };
                let horizon = lane.acknowledged_by(now);
                (horizon, times.opened(lane.id, horizon))
            }
            Placement::EveryLane => usable.fold((now, false), |(farthest, open), lane| {
                let horizon = lane.acknowledged_by(now);
                (farthest.max(horizon), open || times.opened(lane.id, horizon))
            }),
        };
        if !moved && !open || among.is_empty() {
            return;
        }
        self.reach(now, horizon, lanes, among);
    }

    /// Makes the holds up to a horizon.
    #[cold]
    fn reach(&mut self, now: Time, horizon: Time, lanes: &[LaneView], among: LaneSet) {
        for slot in self.slots.iter_mut().flatten() {
            slot.reach(now, horizon, lanes, among, &mut self.books);
        }
        self.deadlines.void();
    }

    /// Drops the holds that have lapsed before `now`.
    #[inline]
    fn lapse(&mut self, now: Time) {
        if self.deadlines.times(&self.slots, self.books.placement).lapsed(now) {
            self.drop_lapsed(now);
        }
    }

    #[cold]
    fn drop_lapsed(&mut self, now: Time) {
        for slot in self.slots.iter_mut().flatten() {
            slot.lapse(now, &mut self.books);
        }
        self.deadlines.void();
    }

    /// Records that a message of this source has been offered. A hold for its release becomes its
    /// own.
    pub fn released(&mut self, now: Time, key: SourceKey, message: u64, len: Bytes) {
        self.lapse(now);
        let Some(slot) = self.slots.iter_mut().flatten().find(|slot| slot.key == key) else { return };
        slot.release(now, message, len, &mut self.books);
        self.deadlines.void();
    }

    /// Records that `left` window bytes of this message have yet to be sent.
    pub fn used(&mut self, message: u64, left: Bytes) {
        let mut slots = self.slots.iter_mut().flatten();
        // A hold that only shrinks keeps its times, and this is called for each packet.
        if slots.find_map(|slot| slot.consume(message, left, &mut self.books)) == Some(true) {
            self.deadlines.void();
        }
    }

    /// Drops the holds on this lane after a loss there, because its window shrinks (CWR §III-D1).
    /// Later releases get room again when their own horizons open.
    pub fn lost(&mut self, lane: LaneId) {
        // No time moves: a dropped hold still lapses, and opens no more than one that is held.
        for slot in self.slots.iter_mut().flatten() {
            slot.lose(lane, &mut self.books);
        }
    }

    /// Recomputes the sum of the holds on each lane.
    #[cfg(test)]
    fn sums(&self) -> [Bytes; MAX_LANES] {
        let mut sums = [Bytes::ZERO; MAX_LANES];
        for hold in self.slots.iter().flatten().flat_map(Slot::holds) {
            for lane in hold.on.iter() {
                sums[lane.index()] += hold.left;
            }
        }
        sums
    }

    /// Returns the sum of each lane as it is kept.
    #[cfg(test)]
    fn kept_sums(&self) -> [Bytes; MAX_LANES] {
        core::array::from_fn(|index| {
            LaneId::new(u8::try_from(index).unwrap()).map_or(Bytes::ZERO, |lane| self.reserved(lane))
        })
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const KEY: SourceKey = SourceKey(7);

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn lane(index: u8, millis: u64) -> LaneView {
        LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(100), Duration::from_millis(millis))
    }

    fn all(lanes: &[LaneView]) -> LaneSet {
        lanes.iter().map(|lane| lane.id).collect()
    }

    /// Returns the kB reserved on the first two lanes at `now`.
    fn reserved(reserve: &mut Reserve, now: Time, lanes: &[LaneView]) -> (u64, u64) {
        reserve.advance(now, lanes, all(lanes));
        assert_eq!(reserve.sums(), reserve.kept_sums());
        let on = |index| reserve.reserved(LaneId::new(index).unwrap()).get() / 1000;
        (on(0), on(1))
    }

    fn every(millis: u64, kb: u64, next: u64) -> Source {
        Source::new(Duration::from_millis(millis), Bytes::kb(kb), ms(next))
    }

    #[test]
    fn room_is_held_from_a_round_trip_before_the_release() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(250) - Duration::from_nanos(1), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(250), &lanes), (10, 0));
        // Once open, a hold stays open, although a sample shortens the round trip.
        assert_eq!(reserved(&mut reserve, ms(251), &[lane(0, 40)]), (10, 0));
    }

    #[test]
    fn on_equal_round_trips_the_lanes_take_turns() {
        let lanes = [lane(0, 50), lane(1, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 100)).unwrap();
        let mut order = std::vec::Vec::new();
        for (message, release) in (100..700).step_by(100).enumerate() {
            order.push(reserved(&mut reserve, ms(release - 10), &lanes));
            reserve.released(ms(release), KEY, message as u64, Bytes::kb(10));
            reserve.used(message as u64, Bytes::ZERO);
            assert_eq!(reserve.sums(), [Bytes::ZERO; MAX_LANES]);
        }
        assert_eq!(order, [(10, 0), (0, 10), (10, 0), (0, 10), (10, 0), (0, 10)]);
    }

    #[test]
    fn every_lane_opens_at_its_own_horizon() {
        let lanes = [lane(0, 20), lane(1, 100)];
        let mut reserve = Reserve::new(Placement::EveryLane, Framing::NONE);
        reserve.declare(KEY, every(500, 10, 500)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(399), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(400), &lanes), (0, 10));
        assert_eq!(reserved(&mut reserve, ms(479), &lanes), (0, 10));
        assert_eq!(reserved(&mut reserve, ms(480), &lanes), (10, 10));
        assert_eq!(reserve.counters().held, 1);
    }

    #[test]
    fn several_sources_add_up_as_do_several_releases_of_one() {
        // CWR, table II, and a source with a period shorter than a round trip.
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(SourceKey(1), every(100, 10, 1000)).unwrap();
        reserve.declare(SourceKey(2), every(70, 7, 1010)).unwrap();
        reserve.declare(SourceKey(3), every(135, 5, 1060)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(955), &lanes), (10, 0));
        assert_eq!(reserved(&mut reserve, ms(960), &lanes), (17, 0));
        assert_eq!(reserved(&mut reserve, ms(1000), &lanes), (17, 0));
        assert_eq!(reserved(&mut reserve, ms(1010), &lanes), (22, 0));
        reserve.declare(SourceKey(4), every(10, 1, 1020)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(1010), &lanes), (27, 0));
    }

    #[test]
    fn a_loss_drops_what_is_held_until_the_next_message() {
        let lanes = [lane(0, 50), lane(1, 60)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
        reserve.lost(lanes[0].id);
        assert_eq!(reserved(&mut reserve, ms(290), &lanes), (0, 0));
        reserve.released(ms(300), KEY, 1, Bytes::kb(10));
        assert!(reserve.held_for(1).0.is_empty());
        assert_eq!(reserved(&mut reserve, ms(460), &lanes), (10, 0));
        assert_eq!(reserve.counters().dropped, 1);
    }

    #[test]
    fn redeclaring_a_source_replaces_all_of_its_old_declaration() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
        reserve.declare(KEY, every(100, 5, 1000)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(285), &lanes), (0, 0));
        assert_eq!(reserve.source(KEY), Some(every(100, 5, 1000)));
        // After a silence it is expected again.
        reserve.advance(ms(5000), &lanes, all(&lanes));
        assert_eq!(reserved(&mut reserve, ms(5050), &lanes), (0, 0));
        reserve.declare(KEY, every(100, 5, 5100)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(5060), &lanes), (5, 0));
    }

    #[test]
    fn a_source_learned_anew_keeps_its_room_at_its_new_time() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.learn(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
        reserve.learn(KEY, every(210, 10, 310)).unwrap();
        assert_eq!(reserve.source(KEY), Some(every(210, 10, 310)));
        assert_eq!(reserved(&mut reserve, ms(281), &lanes), (10, 0));
        assert_eq!(reserve.counters().held, 1);
        // An eighth of the period after the new time.
        assert_eq!(reserve.lapses(), Some(Time::from_micros(336_250)));
    }

    #[test]
    fn unlearn_removes_only_learned_sources_which_are_not_declared() {
        let (learned, declared, unknown) = (SourceKey(1), SourceKey(2), SourceKey(3));
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.learn(learned, every(200, 10, 300)).unwrap();
        reserve.declare(declared, every(200, 10, 300)).unwrap();
        assert_eq!([learned, declared, unknown].map(|key| reserve.is_declared(key)), [false, true, false]);
        assert_eq!([unknown, declared, learned].map(|key| reserve.unlearn(key)), [false, false, true]);
        assert!(reserve.source(learned).is_none() && reserve.source(declared).is_some());
    }

    #[test]
    fn releases_that_nobody_asked_about_are_missed_one_by_one() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 1000)).unwrap();
        reserve.advance(ms(1150), &lanes, all(&lanes));
        assert_eq!((reserve.counters().missed, reserve.source(KEY).unwrap().next_release), (2, ms(1200)));
    }

    #[test]
    fn a_message_after_its_release_has_lapsed_has_no_reserved_room() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 1000)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(990), &lanes), (10, 0));
        reserve.released(ms(1150), KEY, 1, Bytes::kb(10));
        assert_eq!((reserve.held_for(1).0, reserve.counters().missed), (LaneSet::EMPTY, 2));
    }

    #[test]
    fn a_source_back_from_silence_is_expected_one_period_later() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 1000)).unwrap();
        reserve.advance(ms(5000), &lanes, all(&lanes));
        reserve.released(ms(5030), KEY, 1, Bytes::kb(10));
        assert_eq!(reserve.source(KEY).unwrap().next_release, ms(5130));
    }

    #[test]
    fn without_a_lane_nothing_is_held() {
        for placement in [Placement::Fastest, Placement::EveryLane] {
            let lanes = [lane(0, 50)];
            let mut reserve = Reserve::new(placement, Framing::NONE);
            reserve.declare(KEY, every(200, 10, 300)).unwrap();
            reserve.advance(ms(200), &lanes, all(&lanes));
            reserve.advance(ms(300), &lanes, LaneSet::EMPTY);
            assert_eq!(reserve.counters().held, 0, "{placement:?}");
        }
    }

    /// CWR §III-D1: a hold dropped by a loss stays dropped until the next message, even if another
    /// source causes a new check of the holds.
    #[test]
    fn a_hold_dropped_by_a_loss_stays_dropped_if_another_one_opens() {
        for placement in [Placement::Fastest, Placement::EveryLane] {
            let lanes = [lane(0, 50)];
            let mut reserve = Reserve::new(placement, Framing::NONE);
            reserve.declare(SourceKey(1), every(200, 10, 300)).unwrap();
            reserve.declare(SourceKey(2), every(200, 7, 340)).unwrap();
            assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
            reserve.lost(lanes[0].id);
            assert_eq!(reserved(&mut reserve, ms(290), &lanes), (7, 0), "{placement:?}");
            reserve.released(ms(300), SourceKey(1), 1, Bytes::kb(10));
            assert_eq!(reserve.held_for(1).0, LaneSet::EMPTY);
            reserve.released(ms(340), SourceKey(2), 2, Bytes::kb(7));
            assert_eq!(reserve.held_for(2), (LaneSet::one(lanes[0].id), Bytes::kb(7)));
            reserve.used(2, Bytes::ZERO);
            assert_eq!(
                reserved(&mut reserve, ms(460), &lanes),
                (10, 0),
                "for the next message there is room again"
            );
            assert_eq!(reserve.counters().dropped, 1);
        }
    }

    #[test]
    fn room_is_held_for_the_earliest_release_that_jitter_allows() {
        let jitter = Duration::from_millis(30);
        let just_before = |at| ms(at) - Duration::from_nanos(1);
        let lanes = [lane(0, 20), lane(1, 100)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(500, 10, 500).with_jitter(jitter)).unwrap();
        assert_eq!(reserved(&mut reserve, just_before(450), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(450), &lanes), (10, 0));
        let mut reserve = Reserve::new(Placement::EveryLane, Framing::NONE);
        reserve.declare(KEY, every(500, 10, 500).with_jitter(jitter)).unwrap();
        assert_eq!(reserved(&mut reserve, just_before(370), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(370), &lanes), (0, 10));
        assert_eq!(reserved(&mut reserve, just_before(450), &lanes), (0, 10));
        assert_eq!(reserved(&mut reserve, ms(450), &lanes), (10, 10));
        // Until the latest release, and an eighth of the period beyond.
        assert_eq!(reserved(&mut reserve, Time::from_micros(592_500), &lanes), (10, 10));
        assert_eq!(reserved(&mut reserve, ms(593), &lanes), (0, 0));
    }

    #[test]
    fn a_message_up_to_half_a_period_early_gets_its_reserved_room() {
        let lanes = [lane(0, 90)];
        let held = |at: Time| {
            let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
            reserve.declare(KEY, every(100, 10, 300)).unwrap();
            assert_eq!(reserved(&mut reserve, ms(240), &lanes), (10, 0));
            reserve.released(at, KEY, 1, Bytes::kb(10));
            (
                reserve.held_for(1).1.get(),
                reserve.source(KEY).unwrap().next_release,
                reserve.counters().unexpected,
            )
        };
        assert_eq!(held(ms(250)), (10_000, ms(350), 0));
        // Nearer to the previous release: it is unexpected, and the room stays for the next one.
        assert_eq!(held(ms(250) - Duration::from_nanos(1)), (0, ms(300), 1));
    }

    #[test]
    fn only_a_release_beyond_its_jitter_shifts_the_release_grid() {
        let next = |at| {
            let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
            reserve.declare(KEY, every(100, 10, 200).with_jitter(Duration::from_millis(5))).unwrap();
            reserve.released(ms(at), KEY, 1, Bytes::kb(10));
            reserve.source(KEY).unwrap().next_release
        };
        for (at, expected) in [(194, 294), (195, 300), (200, 300), (205, 300), (206, 306)] {
            assert_eq!(next(at), ms(expected), "released at {at} ms");
        }
    }

    #[test]
    fn a_lane_that_goes_away_is_replaced() {
        let lanes = [lane(0, 50), lane(1, 60)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
        assert_eq!(reserved(&mut reserve, ms(281), &lanes[1..]), (0, 10));
        reserve.advance(ms(282), &[], LaneSet::EMPTY);
        assert_eq!(reserved(&mut reserve, ms(283), &lanes), (0, 10));
    }

    #[test]
    fn a_source_that_stops_is_waited_for_three_times() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(80, 10, 100)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(110), &lanes), (10, 0));
        assert_eq!(reserve.lapses(), Some(ms(110)));
        // Late by more than an eighth of its period: no longer expected.
        assert_eq!(reserved(&mut reserve, ms(111), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(130), &lanes), (10, 0));
        assert_eq!(reserved(&mut reserve, ms(270), &lanes), (10, 0));
        assert_eq!(reserved(&mut reserve, ms(271), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(10_000), &lanes), (0, 0));
        assert_eq!(reserve.counters().missed, 3);
        // The source has resumed.
        reserve.released(ms(20_000), KEY, 1, Bytes::kb(10));
        assert_eq!(reserved(&mut reserve, ms(20_030), &lanes), (10, 0));
        assert_eq!(reserve.source(KEY).unwrap().next_release, ms(20_080));
    }

    #[test]
    fn a_source_whose_grid_has_moved_is_followed() {
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 100).with_jitter(Duration::from_millis(5))).unwrap();
        let next = |reserve: &Reserve| reserve.source(KEY).unwrap().next_release;
        reserve.released(ms(104), KEY, 1, Bytes::kb(10));
        assert_eq!(next(&reserve), ms(200));
        reserve.released(ms(190), KEY, 2, Bytes::kb(10));
        assert_eq!(next(&reserve), ms(290));
        reserve.released(ms(195), KEY, 3, Bytes::kb(10));
        assert_eq!((next(&reserve), reserve.counters().unexpected), (ms(290), 1));
    }

    #[test]
    fn impossible_sources_are_refused_and_learned_ones_give_way() {
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        let good = every(100, 1, 0);
        assert_eq!(
            reserve.declare(KEY, Source { period: Duration::ZERO, ..good }),
            Err(DeclareError::ZeroPeriod)
        );
        assert_eq!(reserve.declare(KEY, Source { size: Bytes::ZERO, ..good }), Err(DeclareError::ZeroSize));
        let jittery = good.with_jitter(Duration::from_millis(50));
        assert!(matches!(reserve.declare(KEY, jittery), Err(DeclareError::JitterTooLarge { .. })));
        for key in 0..MAX_SOURCES as u64 {
            reserve.learn(SourceKey(key), good).unwrap();
        }
        let full = Err(DeclareError::TooManySources { limit: MAX_SOURCES });
        assert_eq!(reserve.learn(SourceKey(99), good), full);
        reserve.declare(SourceKey(99), good).unwrap();
        assert_eq!((reserve.counters().displaced, reserve.source(SourceKey(0))), (1, None));
        for key in 1..MAX_SOURCES as u64 {
            reserve.declare(SourceKey(key), good).unwrap();
        }
        assert_eq!(reserve.declare(SourceKey(100), good), full);
        // A learned source never replaces a declared one of the same key.
        reserve.learn(SourceKey(99), every(1, 1, 0)).unwrap();
        assert_eq!(reserve.source(SourceKey(99)), Some(good));
        assert!(
            !reserve.unlearn(SourceKey(99))
                && reserve.withdraw(SourceKey(99))
                && !reserve.withdraw(SourceKey(99))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_sums_are_those_of_the_holds(
            steps in operation::steps(),
            placement in prop::sample::select(&[Placement::Fastest, Placement::EveryLane][..]),
        ) {
            let mut reserve = Reserve::new(placement, Framing::NONE);
            for step in steps {
                step.apply(&mut reserve);
                prop_assert_eq!(reserve.sums(), reserve.kept_sums());
            }
        }
    }
}
