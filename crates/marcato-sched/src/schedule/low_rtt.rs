//! Lowest round-trip time first: the default of MP-QUIC, and the baseline of CWR.

use marcato_units::{Bytes, Time};

use super::{Choice, LaneScheduler, Purpose, eligible, fastest, one_or_wait};
use crate::lane::LaneView;

/// Takes the lane with the lowest smoothed round-trip time that has room. It treats all data the
/// same (CWR §IV-B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowRtt;

impl LowRtt {
    /// Creates the scheduler, which has no state.
    pub const fn new() -> Self {
        Self
    }
}

impl LaneScheduler for LowRtt {
    fn choose(&mut self, _: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        let among = eligible(lanes).without(purpose.barred());
        one_or_wait(fastest(lanes, among, len, |_| Bytes::ZERO), among)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fresh, Wait};
    use super::*;
    use crate::lane::{LaneId, LaneSet};
    use core::time::Duration;
    use marcato_units::Priority;

    const NOW: Time = Time::ZERO;
    const PACKET: Bytes = Bytes::new(1350);

    fn lane(index: u8, millis: u64) -> LaneView {
        LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(10), Duration::from_millis(millis))
    }

    fn choose(lanes: &[LaneView]) -> Choice {
        let purpose = Purpose::New(Fresh::new(1, Priority::P2, Bytes::kb(5)));
        LowRtt::new().choose(NOW, lanes, purpose, PACKET)
    }

    #[test]
    fn the_fastest_lane_with_room_is_taken() {
        let (slow, mut quick) = (lane(0, 100), lane(1, 20));
        assert_eq!(choose(&[slow, quick]), Choice::One(quick.id));
        quick.in_flight = quick.cwnd - PACKET;
        assert_eq!(choose(&[slow, quick]), Choice::One(quick.id));
        quick.in_flight += Bytes::new(1);
        assert_eq!(choose(&[slow, quick]), Choice::One(slow.id));
    }

    #[test]
    fn a_backup_lane_waits_until_nothing_else_is_usable() {
        let spare = LaneView { backup: true, ..lane(1, 20) };
        let full = LaneView { in_flight: Bytes::kb(10), ..lane(0, 100) };
        assert_eq!(choose(&[full, spare]), Choice::Wait(Wait::NoRoom));
        assert_eq!(choose(&[LaneView { usable: false, ..full }, spare]), Choice::One(spare.id));
        assert_eq!(choose(&[LaneView { usable: false, ..full }]), Choice::Wait(Wait::NoLane));
        assert_eq!(choose(&[]), Choice::Wait(Wait::NoLane));
    }

    #[test]
    fn a_duplicate_takes_another_lane() {
        let lanes = [lane(0, 100), lane(1, 20)];
        let copy = |carried| {
            let purpose = Purpose::Duplicate { priority: Priority::P0, carried };
            LowRtt::new().choose(NOW, &lanes, purpose, PACKET)
        };
        assert_eq!(copy(LaneSet::one(lanes[1].id)), Choice::One(lanes[0].id));
        assert_eq!(copy(lanes.iter().map(|lane| lane.id).collect()), Choice::Wait(Wait::NoLane));
    }
}
