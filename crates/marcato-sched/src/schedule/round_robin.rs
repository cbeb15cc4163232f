//! Round-robin lane scheduling.

use marcato_units::{Bytes, Time};

use super::{Choice, LaneScheduler, Purpose, eligible, one_or_wait};
use crate::lane::{LaneId, LaneSet, LaneView};

/// Takes the lanes in turn, by number, and skips those without room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundRobin {
    last: Option<LaneId>,
}

impl RoundRobin {
    /// Creates a scheduler that begins with the first lane.
    pub const fn new() -> Self {
        Self { last: None }
    }
}

impl LaneScheduler for RoundRobin {
    fn choose(&mut self, _: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        let among = eligible(lanes).without(purpose.barred());
        let open: LaneSet = lanes.iter().filter(|lane| lane.free() >= len).map(|lane| lane.id).collect();
        let open = open.and(among);
        let next = open.iter().find(|&lane| self.last.is_none_or(|last| lane > last));
        one_or_wait(next.or(open.first()), among)
    }

    fn sent(&mut self, _: Time, lane: &LaneView, _: Purpose, _: Bytes) {
        self.last = Some(lane.id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fresh, Wait};
    use super::*;
    use core::time::Duration;
    use marcato_units::Priority;

    const PACKET: Bytes = Bytes::kb(1);

    #[test]
    fn lanes_take_turns_and_full_ones_are_passed_over() {
        let mut lanes = [0, 1, 2]
            .map(|index| LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(2), Duration::from_millis(10)));
        lanes[1].cwnd = Bytes::kb(1);
        let purpose = Purpose::New(Fresh::new(1, Priority::P4, Bytes::kb(100)));
        let mut scheduler = RoundRobin::new();
        let mut order = std::vec::Vec::new();
        while let Choice::One(lane) = scheduler.choose(Time::ZERO, &lanes, purpose, PACKET) {
            assert_eq!(scheduler.choose(Time::ZERO, &lanes, purpose, PACKET), Choice::One(lane));
            scheduler.sent(Time::ZERO, &lanes[lane.index()], purpose, PACKET);
            lanes[lane.index()].in_flight += PACKET;
            order.push(lane.index());
        }
        assert_eq!(order, [0, 1, 2, 0, 2]);
        assert_eq!(scheduler.choose(Time::ZERO, &lanes, purpose, PACKET), Choice::Wait(Wait::NoRoom));
        assert_eq!(scheduler.choose(Time::ZERO, &[], purpose, PACKET), Choice::Wait(Wait::NoLane));
    }
}
