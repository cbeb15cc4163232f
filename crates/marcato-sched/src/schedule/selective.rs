//! Selective redundancy that ignores the congestion window: the approach that CWR argues against
//! (CWR §II, its references 11 and 12).

use core::time::Duration;

use marcato_units::{Bytes, Priority, Time};

use super::{Choice, LaneScheduler, Purpose, Wait, beside, eligible};
use crate::lane::{LaneView, MAX_LANES};

/// State of one lane that was sent more than its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    /// Bytes sent beyond the window in this interval.
    overdrawn: Bytes,
    /// Bytes cut from the window in this interval, for the one before.
    cut: Bytes,
    /// End of this interval.
    ends: Time,
}

impl Account {
    /// Returns the account at `now`, intervals of `srtt` rolled over.
    fn at(self, now: Time, srtt: Duration) -> Self {
        if now < self.ends {
            return self;
        }
        let next = Self { overdrawn: Bytes::ZERO, cut: self.overdrawn, ends: self.ends + srtt };
        // After two intervals nothing is owed.
        if now < next.ends { next } else { Self { ends: now, ..Self::default() } }
    }
}

/// Sends urgent data on every lane at once, regardless of their windows, and shrinks the windows
/// afterwards; sends other data as [`LowRtt`](super::LowRtt).
///
/// For one interval after an excess, the window of a lane is smaller by the excess; then it is
/// restored (CWR §II). The paper does not define the interval. Here it is a smoothed round-trip
/// time, and the first begins when the window is first exceeded.
///
/// CWR's objection holds: with messages of 20 kB this is no longer congestion control. It is not
/// meant for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selective {
    threshold: Priority,
    accounts: [Account; MAX_LANES],
    exceeded: Bytes,
}

impl Selective {
    /// Creates a scheduler for which data of `threshold` and above is urgent.
    pub fn new(threshold: Priority) -> Self {
        Self { threshold, accounts: [Account::default(); MAX_LANES], exceeded: Bytes::ZERO }
    }

    /// Bytes sent beyond the windows so far.
    pub const fn exceeded(&self) -> Bytes {
        self.exceeded
    }

    const fn is_urgent(&self, purpose: Purpose) -> bool {
        !self.threshold.is_more_urgent_than(purpose.priority())
    }
}

impl LaneScheduler for Selective {
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        for lane in lanes {
            // Rolls intervals over, so that `wakeup` returns a future time.
            let account = &mut self.accounts[lane.id.index()];
            *account = account.at(now, lane.srtt);
        }
        let among = eligible(lanes).without(purpose.barred());
        if !self.is_urgent(purpose) {
            return beside(lanes, among, len, |lane| self.reserved(now, lane));
        }
        match (purpose, among.first()) {
            (_, None) => Choice::Wait(Wait::NoLane),
            (Purpose::New(_), Some(only)) if among.len() == 1 => Choice::One(only),
            (Purpose::New(_), Some(_)) => Choice::Each(among),
            // Every lane carries a copy already, so one more is enough.
            (Purpose::Retransmission { .. } | Purpose::Duplicate { .. }, Some(first)) => {
                let quickest =
                    lanes.iter().filter(|lane| among.contains(lane.id)).min_by_key(|lane| lane.srtt);
                Choice::One(quickest.map_or(first, |lane| lane.id))
            }
        }
    }

    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        let beyond = len - lane.free();
        if !self.is_urgent(purpose) || beyond.is_zero() {
            return;
        }
        let account = &mut self.accounts[lane.id.index()];
        *account = account.at(now, lane.srtt);
        if account.ends <= now {
            account.ends = now + lane.srtt;
        }
        account.overdrawn += beyond;
        self.exceeded += beyond;
    }

    fn reserved(&self, now: Time, lane: &LaneView) -> Bytes {
        self.accounts[lane.id.index()].at(now, lane.srtt).cut
    }

    fn wakeup(&self) -> Option<Time> {
        // A cut ends with its interval. An interval with an excess ends in a cut, which frees
        // nothing.
        self.accounts.iter().filter(|account| !account.cut.is_zero()).map(|account| account.ends).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fresh;
    use super::*;
    use crate::lane::LaneId;

    const PACKET: Bytes = Bytes::kb(1);
    const RTT: Duration = Duration::from_millis(50);

    fn lane(index: u8, in_flight: u64) -> LaneView {
        let view = LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(10), RTT);
        LaneView { in_flight: Bytes::kb(in_flight), ..view }
    }

    #[test]
    fn urgent_data_goes_on_full_lanes_too_and_is_paid_back_once() {
        let mut scheduler = Selective::new(Priority::P0);
        let (full, open) = (lane(0, 10), lane(1, 0));
        let urgent = Purpose::New(Fresh::new(1, Priority::P0, PACKET));
        let background = Purpose::New(Fresh::new(2, Priority::P4, Bytes::kb(100)));

        let start = Time::from_millis(100);
        let Choice::Each(set) = scheduler.choose(start, &[full, open], urgent, PACKET) else {
            panic!("two lanes")
        };
        assert_eq!(set.len(), 2);
        scheduler.sent(start, &full, urgent, PACKET);
        scheduler.sent(start, &open, urgent, PACKET);
        assert_eq!(scheduler.exceeded(), PACKET);

        // In the interval of the burst nothing is cut: the engine's own count of bytes in flight
        // limits sending.
        let later = |millis| start + Duration::from_millis(millis);
        assert_eq!(scheduler.reserved(later(49), &full), Bytes::ZERO);
        // In the next, the window is smaller by the excess ...
        assert_eq!(scheduler.reserved(later(50), &full), PACKET);
        assert_eq!(scheduler.reserved(later(99), &full), PACKET);
        assert_eq!(scheduler.reserved(later(50), &open), Bytes::ZERO);
        let nearly = lane(0, 9);
        assert_eq!(scheduler.choose(later(60), &[nearly], background, PACKET), Choice::Wait(Wait::Reserved));
        // ... and then restored.
        assert_eq!(scheduler.reserved(later(100), &full), Bytes::ZERO);
        assert_eq!(scheduler.choose(later(100), &[nearly], background, PACKET), Choice::One(nearly.id));
    }

    #[test]
    fn each_round_trip_interval_repays_the_excess_of_the_previous() {
        let mut scheduler = Selective::new(Priority::P0);
        let full = lane(0, 10);
        let urgent = Purpose::New(Fresh::new(1, Priority::P0, PACKET));
        let at = Time::from_millis;
        let exceed = |scheduler: &mut Selective, millis| scheduler.sent(at(millis), &full, urgent, PACKET);
        // Twice in one interval: the second excess does not begin another interval.
        exceed(&mut scheduler, 100);
        exceed(&mut scheduler, 140);
        assert_eq!(scheduler.reserved(at(149), &full), Bytes::ZERO);
        assert_eq!(scheduler.reserved(at(150), &full), PACKET * 2);
        // Once in the next interval, while the first excess is cut.
        exceed(&mut scheduler, 160);
        assert_eq!((scheduler.reserved(at(199), &full), scheduler.wakeup()), (PACKET * 2, Some(at(200))));
        assert_eq!(
            (scheduler.reserved(at(200), &full), scheduler.reserved(at(249), &full)),
            (PACKET, PACKET)
        );
        assert_eq!(scheduler.reserved(at(250), &full), Bytes::ZERO);
        // Long after, an interval begins with the excess again.
        exceed(&mut scheduler, 1010);
        assert_eq!(scheduler.reserved(at(1059), &full), Bytes::ZERO);
        assert_eq!(
            (scheduler.reserved(at(1060), &full), scheduler.reserved(at(1109), &full)),
            (PACKET, PACKET)
        );
        assert_eq!(scheduler.reserved(at(1110), &full), Bytes::ZERO);
    }

    #[test]
    fn only_urgent_data_beyond_a_window_is_owed_for() {
        let mut scheduler = Selective::new(Priority::P0);
        let urgent = Purpose::New(Fresh::new(1, Priority::P0, PACKET));
        let background = Purpose::New(Fresh::new(2, Priority::P1, PACKET));
        let start = Time::from_millis(100);
        scheduler.sent(start, &lane(0, 10), background, PACKET);
        scheduler.sent(start, &lane(0, 9), urgent, PACKET);
        assert_eq!(scheduler.exceeded(), Bytes::ZERO);
        // No interval has begun either: the first begins with the bytes beyond the window.
        scheduler.sent(start + RTT / 2, &lane(0, 10), urgent, PACKET);
        assert_eq!(scheduler.reserved(start + RTT, &lane(0, 10)), Bytes::ZERO);
        assert_eq!(scheduler.reserved(start + RTT * 3 / 2, &lane(0, 10)), PACKET);
        assert_eq!(scheduler.choose(start, &[lane(0, 10)], urgent, PACKET), Choice::One(lane(0, 10).id));
    }

    #[test]
    fn less_urgent_data_respects_the_window() {
        let mut scheduler = Selective::new(Priority::P0);
        let background = Purpose::New(Fresh::new(2, Priority::P1, PACKET));
        assert_eq!(
            scheduler.choose(Time::ZERO, &[lane(0, 10)], background, PACKET),
            Choice::Wait(Wait::NoRoom)
        );
        assert_eq!(scheduler.choose(Time::ZERO, &[], background, PACKET), Choice::Wait(Wait::NoLane));
    }
}
