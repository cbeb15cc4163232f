//! Room reserved on each lane, and the choice of lanes for a hold.

use core::time::Duration;

use marcato_units::{Bytes, Time};

use super::framing::Framing;
use super::hold::Hold;
use crate::lane::{LaneId, LaneSet, LaneView, MAX_LANES};

/// Lanes on which room is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The lane with the lowest smoothed round-trip time when its horizon opens; among equals, the
    /// one least recently chosen in this way.
    Fastest,
    /// Every lane, on each from the opening of its own horizon.
    EveryLane,
}

/// Counters of releases and their reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveCounters {
    /// Releases for which room was held on at least one lane.
    pub held: u64,
    /// Holds on one lane that a loss there ended.
    pub dropped: u64,
    /// Releases whose message did not arrive in time.
    pub missed: u64,
    /// Messages offered more than half a period before the next release of their source.
    pub unexpected: u64,
    /// Learned sources replaced by declared ones.
    pub displaced: u64,
}

/// State shared by all sources. The reservation of a lane is always the sum of the holds on it.
#[derive(Clone, Debug)]
pub(super) struct Books {
    pub(super) placement: Placement,
    pub(super) framing: Framing,
    pub(super) counters: ReserveCounters,
    /// Sum of the holds on each lane.
    reserved: [Bytes; MAX_LANES],
    /// Turn in which [`Placement::Fastest`] last chose each lane.
    given: [u64; MAX_LANES],
    turns: u64,
}

impl Books {
    pub(super) const fn new(placement: Placement, framing: Framing) -> Self {
        let counters = ReserveCounters { held: 0, dropped: 0, missed: 0, unexpected: 0, displaced: 0 };
        let (reserved, given) = ([Bytes::ZERO; MAX_LANES], [0; MAX_LANES]);
        Self { placement, framing, counters, reserved, given, turns: 0 }
    }

    /// Returns the sum of the holds on a lane.
    pub(super) const fn reserved(&self, lane: LaneId) -> Bytes {
        self.reserved[lane.index()]
    }

    /// Chooses the lanes of a hold whose message has yet to be offered, as far as their horizons
    /// have opened.
    pub(super) fn place(
        &mut self,
        hold: &mut Hold,
        jitter: Duration,
        now: Time,
        lanes: &[LaneView],
        among: LaneSet,
    ) {
        match self.placement {
            // After a loss on its lane a release gets no other hold (CWR §III-D1). A lane that is
            // gone is replaced.
            Placement::Fastest if hold.on.and(among).is_empty() && hold.dropped.is_empty() => {
                let candidates = lanes.iter().filter(|lane| among.contains(lane.id));
                let best = candidates.min_by_key(|lane| (lane.srtt, self.given[lane.id.index()]));
                let Some(lane) = best else { return };
                self.give_back(hold);
                self.turns += 1;
                self.given[lane.id.index()] = self.turns;
                hold.on = LaneSet::EMPTY;
                self.hold_on(hold, lane.id);
            }
            Placement::Fastest => {}
            Placement::EveryLane => {
                for lane in lanes.iter().filter(|lane| among.contains(lane.id)) {
                    let open = lane.acknowledged_by(now) >= hold.release - jitter;
                    if open && !hold.on.or(hold.dropped).contains(lane.id) {
                        self.hold_on(hold, lane.id);
                    }
                }
            }
        }
    }

    fn hold_on(&mut self, hold: &mut Hold, lane: LaneId) {
        hold.on.insert(lane);
        self.reserved[lane.index()] += hold.left;
    }

    /// Shrinks a hold to at most `left` bytes.
    pub(super) fn shrink(&mut self, hold: &mut Hold, left: Bytes) {
        let spare = hold.left - left;
        hold.left -= spare;
        for lane in hold.on.iter() {
            self.reserved[lane.index()] -= spare;
        }
    }

    /// Subtracts a hold that has ended.
    pub(super) fn give_back(&mut self, hold: &Hold) {
        for lane in hold.on.iter() {
            self.reserved[lane.index()] -= hold.left;
        }
    }

    /// Ends a hold on a lane after a loss there.
    pub(super) fn lose(&mut self, hold: &mut Hold, lane: LaneId) {
        if hold.on.contains(lane) {
            hold.on.remove(lane);
            hold.dropped.insert(lane);
            self.reserved[lane.index()] -= hold.left;
            self.counters.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(index: u8, millis: u64) -> LaneView {
        LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(100), Duration::from_millis(millis))
    }

    /// Places a hold of 10 kB due at 100 ms at a time in ms, and returns it.
    fn place(books: &mut Books, at: u64, lanes: &[LaneView]) -> Hold {
        let mut hold = Hold::new(Time::from_millis(100), Bytes::kb(10));
        let among = lanes.iter().map(|lane| lane.id).collect();
        books.place(&mut hold, Duration::ZERO, Time::from_millis(at), lanes, among);
        hold
    }

    /// Returns the kB reserved on the first two lanes.
    fn reserved(books: &Books) -> [u64; 2] {
        [0, 1].map(|index| books.reserved(LaneId::new(index).unwrap()).get() / 1000)
    }

    #[test]
    fn the_sum_of_a_lane_follows_each_hold_on_it() {
        let lanes = [lane(0, 50), lane(1, 50)];
        let mut books = Books::new(Placement::EveryLane, Framing::NONE);
        let [mut first, mut second] = [0; 2].map(|_| place(&mut books, 50, &lanes));
        assert_eq!(reserved(&books), [20, 20]);
        books.shrink(&mut first, Bytes::kb(4));
        assert_eq!((first.left, reserved(&books)), (Bytes::kb(4), [14, 14]));
        books.shrink(&mut first, Bytes::kb(7));
        assert_eq!(first.left, Bytes::kb(4), "a hold never grows");
        books.lose(&mut second, lanes[0].id);
        books.lose(&mut second, lanes[0].id);
        assert_eq!((books.counters.dropped, reserved(&books)), (1, [4, 14]));
        books.give_back(&first);
        assert_eq!(reserved(&books), [0, 10]);
    }

    #[test]
    fn every_lane_takes_a_hold_when_its_horizon_opens() {
        let mut books = Books::new(Placement::EveryLane, Framing::NONE);
        place(&mut books, 40, &[lane(0, 59), lane(1, 60)]);
        assert_eq!(reserved(&books), [0, 10]);
    }

    #[test]
    fn equally_fast_lanes_take_turns() {
        let lanes = [lane(0, 50), lane(1, 50), lane(2, 60)];
        let mut books = Books::new(Placement::Fastest, Framing::NONE);
        let order = [0; 4].map(|_| place(&mut books, 50, &lanes).on.first().unwrap().index());
        assert_eq!(order, [0, 1, 0, 1]);
    }

    /// CWR §III-D1: after a loss there is no reservation until the next message.
    #[test]
    fn a_hold_moves_from_a_lane_that_is_gone_but_not_after_a_loss() {
        let lanes = [lane(0, 50), lane(1, 60)];
        let mut books = Books::new(Placement::Fastest, Framing::NONE);
        let mut hold = place(&mut books, 50, &lanes);
        let place = |books: &mut Books, hold: &mut Hold, on: usize| {
            let among = LaneSet::one(lanes[on].id);
            books.place(hold, Duration::ZERO, Time::from_millis(60), &lanes, among);
        };
        place(&mut books, &mut hold, 1);
        assert_eq!((hold.on, reserved(&books)), (LaneSet::one(lanes[1].id), [0, 10]));
        books.lose(&mut hold, lanes[1].id);
        place(&mut books, &mut hold, 0);
        assert_eq!((hold.on, reserved(&books)), (LaneSet::EMPTY, [0, 0]));
    }
}
