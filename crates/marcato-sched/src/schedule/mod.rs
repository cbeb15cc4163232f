//! Lane schedulers: which lane, or lanes, the next packet takes.
//!
//! A session asks [`choose`](LaneScheduler::choose) before each packet, with a fresh [`LaneView`] of every lane and the
//! [`Purpose`] of the packet, and reports what became of it. A scheduler keeps no reference to an engine, allocates
//! nothing, and does no more than a look at each lane and each source.
//!
//! | scheduler | new data | urgent data |
//! |---|---|---|
//! | [`LowRtt`] | the fastest lane with room | the same |
//! | [`RoundRobin`] | the next lane with room | the same |
//! | [`Cwr`] | the fastest lane with room beside its reservations | the fastest lane with room for the whole message |
//! | [`CwrRed`] | as `Cwr` | every lane, if the whole message fits them all |
//! | [`Selective`] | the fastest lane with room | every lane, with room or without |
//!
//! [`Layered`] lets any of them choose among the lanes of the high layer, and puts on the low one what does not fit.

mod budget;
mod cwr;
mod cwr_red;
mod layered;
mod low_rtt;
mod purpose;
mod round_robin;
mod selective;

use core::time::Duration;

use marcato_units::{Bytes, Layer, Priority, Time};

use crate::conductor::Redundancy;
use crate::lane::{LaneId, LaneSet, LaneView};
use crate::reserve::SourceKey;

pub use budget::{Budget, BudgetError};
pub use cwr::{Cwr, CwrConfig, CwrConfigError, Unused};
pub use cwr_red::CwrRed;
pub use layered::{Layered, LayeredConfig, LowRepairs, Preference};
pub use low_rtt::LowRtt;
pub use purpose::{Fresh, Purpose};
pub use round_robin::RoundRobin;
pub use selective::Selective;

/// Why a packet has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// No lane is usable. Ask again when one becomes so.
    NoLane,
    /// No usable lane has room. Ask again when something is acknowledged or lost.
    NoRoom,
    /// There is room, but it is reserved. Ask again after an acknowledgement, a loss or the message's end, and at
    /// [`LaneScheduler::wakeup`].
    Reserved,
    /// There is room, but the redundancy budget is spent. The packet is a copy; do without it.
    Budget,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Nowhere, for now. Another purpose may still find a lane.
    Wait(Wait),
    /// On this lane.
    One(LaneId),
    /// On each of these lanes, one copy; they are two or more.
    Each(LaneSet),
}

impl Choice {
    /// The lanes; none while it has to wait.
    pub const fn lanes(self) -> LaneSet {
        match self {
            Self::Wait(_) => LaneSet::EMPTY,
            Self::One(lane) => LaneSet::one(lane),
            Self::Each(lanes) => lanes,
        }
    }
}

/// A message that the application has just handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Its name: [`MessageId::get`](crate::MessageId::get), or any other number that is not used for two messages at
    /// once.
    pub message: u64,
    /// The periodic source that made it, if the application says so.
    pub source: Option<SourceKey>,
    /// How much it matters.
    pub priority: Priority,
    /// Its length.
    pub len: Bytes,
    /// On how many lanes it should travel.
    pub redundancy: Redundancy,
}

/// Chooses lanes. Time never runs backwards from one call to the next.
pub trait LaneScheduler {
    /// Where a packet of this purpose goes that counts `len` bytes against a congestion window.
    ///
    /// The lanes named have room for it. [`Selective`] is the exception: it is here to show what that costs.
    /// Until [`sent`](Self::sent) says so, nothing counts as sent; asking twice changes nothing.
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice;

    /// The packet has left on this lane. Call it once for each lane of [`Choice::Each`], with the same purpose, before
    /// the next `choose` and before the message is [complete](Self::message_complete). What leaves later than that is
    /// reported as a [`Purpose::Duplicate`], or it would count as sent for the first time.
    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        let _ = (now, lane, purpose, len);
    }

    /// `len` bytes on this lane are acknowledged.
    fn acked(&mut self, now: Time, lane: LaneId, len: Bytes) {
        let _ = (now, lane, len);
    }

    /// Something on this lane is lost; its window is about to shrink.
    fn lost(&mut self, now: Time, lane: LaneId) {
        let _ = (now, lane);
    }

    /// So much of what was lost waits to be sent again. Tell before a `choose` for a retransmission.
    fn owes(&mut self, waiting: Bytes) {
        let _ = waiting;
    }

    /// The application has handed over a message. Tell before the first `choose` for it.
    fn message_offered(&mut self, now: Time, offer: &Offer) {
        let _ = (now, offer);
    }

    /// Nothing of this message is left to send for the first time: its last byte has left, or it was cancelled.
    fn message_complete(&mut self, now: Time, message: u64) {
        let _ = (now, message);
    }

    /// How much of this lane's window is closed to background data now. What an engine retransmits by itself has
    /// to be held to `cwnd` less this.
    fn reserved(&self, now: Time, lane: &LaneView) -> Bytes {
        let _ = (now, lane);
        Bytes::ZERO
    }

    /// When [`Wait::Reserved`] may end although nothing happens on any lane.
    fn wakeup(&self) -> Option<Time> {
        None
    }
}

/// The lanes among which a scheduler chooses: the usable ones that are no backup; if there is none, the usable ones.
pub(crate) fn eligible(lanes: &[LaneView]) -> LaneSet {
    let (mut regular, mut backup) = (LaneSet::EMPTY, LaneSet::EMPTY);
    for lane in lanes.iter().filter(|lane| lane.usable) {
        if lane.backup { backup.insert(lane.id) } else { regular.insert(lane.id) }
    }
    if regular.is_empty() { backup } else { regular }
}

/// Those of `lanes` that urgent data may take: of the high layer, because the network may starve the low one; if
/// there is none, all of them.
pub(crate) fn quick(views: &[LaneView], lanes: LaneSet) -> LaneSet {
    let high: LaneSet = views.iter().filter(|view| view.layer == Layer::High).map(|view| view.id).collect();
    let high = high.and(lanes);
    if high.is_empty() { lanes } else { high }
}

/// The lane of `among` that has the lowest smoothed round-trip time of those with room for `len` after `less` has been
/// taken from it; the first of several.
pub(crate) fn fastest(
    views: &[LaneView],
    among: LaneSet,
    len: Bytes,
    less: impl Fn(&LaneView) -> Bytes,
) -> Option<LaneId> {
    let mut best: Option<(Duration, LaneId)> = None;
    for view in views {
        let fits = among.contains(view.id) && view.free() - less(view) >= len;
        if fits && best.is_none_or(|(srtt, _)| view.srtt < srtt) {
            best = Some((view.srtt, view.id));
        }
    }
    best.map(|(_, lane)| lane)
}

/// `lane`, or the reason why there is none among `lanes`.
pub(crate) fn one_or_wait(lane: Option<LaneId>, among: LaneSet) -> Choice {
    match lane {
        Some(lane) => Choice::One(lane),
        None if among.is_empty() => Choice::Wait(Wait::NoLane),
        None => Choice::Wait(Wait::NoRoom),
    }
}

/// The fastest lane with room for background data beside what is `closed` to it, or the reason why there is none.
pub(crate) fn beside(
    views: &[LaneView],
    among: LaneSet,
    len: Bytes,
    closed: impl Fn(&LaneView) -> Bytes,
) -> Choice {
    match one_or_wait(fastest(views, among, len, closed), among) {
        Choice::Wait(Wait::NoRoom) if fastest(views, among, len, |_| Bytes::ZERO).is_some() => {
            Choice::Wait(Wait::Reserved)
        }
        choice => choice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(srtts: [u64; 3]) -> [LaneView; 3] {
        let mut id = 0;
        srtts.map(|srtt| {
            id += 1;
            LaneView::new(LaneId::new(id).unwrap(), Bytes::kb(10), Duration::from_millis(srtt))
        })
    }

    #[test]
    fn of_equally_fast_lanes_the_first_is_taken() {
        let lanes = lanes([20, 10, 10]);
        let fastest = |among| fastest(&lanes, among, Bytes::kb(1), |_| Bytes::ZERO);
        assert_eq!(fastest(LaneSet::ALL), Some(lanes[1].id));
        assert_eq!(fastest(LaneSet::ALL.without(LaneSet::one(lanes[1].id))), Some(lanes[2].id));
    }

    #[test]
    fn urgent_data_takes_low_lanes_only_where_there_is_no_high_one() {
        let mut lanes = lanes([10, 20, 30]);
        lanes[0].layer = Layer::Low;
        lanes[1].layer = Layer::Low;
        let set = |taken: &[usize]| taken.iter().map(|&at| lanes[at].id).collect::<LaneSet>();
        assert_eq!(quick(&lanes, set(&[0, 1, 2])), set(&[2]));
        assert_eq!(quick(&lanes, set(&[0, 1])), set(&[0, 1]));
    }

    #[test]
    fn a_scheduler_that_holds_nothing_back_closes_no_window_and_never_wakes() {
        let lanes = lanes([10, 20, 30]);
        for scheduler in [&LowRtt::new() as &dyn LaneScheduler, &RoundRobin::new()] {
            assert_eq!(scheduler.wakeup(), None);
            assert_eq!(scheduler.reserved(Time::ZERO, &lanes[0]), Bytes::ZERO);
        }
    }
}
