//! Lane schedulers, which choose the lane or lanes of the next packet.
//!
//! A session calls [`choose`](LaneScheduler::choose) before each packet, with a fresh [`LaneView`]
//! of every lane and the [`Purpose`] of the packet, and reports the packet's fate. A scheduler
//! keeps no reference to an engine, allocates nothing, and inspects only lanes and sources.
//!
//! | scheduler | new data | urgent data |
//! |---|---|---|
//! | [`LowRtt`] | the fastest lane with room | the same |
//! | [`RoundRobin`] | the next lane with room | the same |
//! | [`Cwr`] | the fastest lane with room outside its reservations | the fastest lane with room for the whole message |
//! | [`CwrRed`] | as `Cwr` | every lane, if the whole message fits them all |
//! | [`Selective`] | the fastest lane with room | every lane, with room or without |
//!
//! [`Layered`] lets any of them choose among the lanes of the high layer, and puts the excess on
//! the low one.
//!
//! To add one here, write its file, and its variant in `PathScheduler`
//! (`marcato-quic/src/config.rs`).
//!
//! A scheduler of another crate implements [`LaneScheduler`] as these do. [`eligible`], [`quick`],
//! [`fastest`] and [`one_or_wait`] give it their rules on lanes that may be chosen. A session takes
//! it by a `SchedulerFactory` of `marcato-quic`.
//!
//! A scheduler gets snapshots of the lanes and the packet's purpose, and names a lane, several, or the reason
//! to wait. Add one to the property tests in `tests/scheduler/lanes.rs` and to `benches/lanes.rs`.

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
use crate::reserve::{DeclareError, Source, SourceKey};

pub use budget::{Budget, BudgetError};
pub use cwr::{Cwr, CwrConfig, CwrConfigError, Unused};
pub use cwr_red::CwrRed;
pub use layered::{Layered, LayeredConfig, LowRepairs, Preference};
pub use low_rtt::LowRtt;
pub use purpose::{Fresh, Purpose};
pub use round_robin::RoundRobin;
pub use selective::Selective;

/// Reason for which a packet has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// No lane is usable. Retry when one becomes so.
    NoLane,
    /// No usable lane has room. Retry after an acknowledgement or a loss.
    NoRoom,
    /// There is room, but it is reserved. Retry after an acknowledgement, a loss or the message's
    /// end, and at [`LaneScheduler::wakeup`].
    Reserved,
    /// There is room, but the redundancy budget is spent. The packet is a copy; do without it.
    Budget,
}

/// Lanes chosen for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// No lane for now. A packet of another purpose may still get one.
    Wait(Wait),
    /// This lane.
    One(LaneId),
    /// One copy on each of these lanes; at least two.
    Each(LaneSet),
}

impl Choice {
    /// Returns the lanes; none if the packet has to wait.
    pub const fn lanes(self) -> LaneSet {
        match self {
            Self::Wait(_) => LaneSet::EMPTY,
            Self::One(lane) => LaneSet::one(lane),
            Self::Each(lanes) => lanes,
        }
    }
}

/// Message that the application has just offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Its id: [`MessageId::get`](crate::MessageId::get), or any other number that is not used for
    /// two messages at once.
    pub message: u64,
    /// Periodic source of the message; `None` if the application names none.
    pub source: Option<SourceKey>,
    /// Urgency of the message.
    pub priority: Priority,
    /// Length of the message.
    pub len: Bytes,
    /// Number of lanes requested.
    pub redundancy: Redundancy,
}

/// Chooses lanes. Time never runs backwards from one call to the next.
pub trait LaneScheduler {
    /// Chooses the lanes of a packet of this purpose that counts `len` bytes against a congestion
    /// window.
    ///
    /// The lanes returned have room for it. [`Selective`] is the exception: it exists to show the
    /// cost of ignoring this. Nothing counts as sent until [`sent`](Self::sent) is called; a
    /// repeated call changes nothing.
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice;

    /// Records that the packet was sent on this lane. Call it once for each lane of
    /// [`Choice::Each`], with the same purpose, before the next `choose` and before the message is
    /// [complete](Self::message_complete). Report a later copy as a [`Purpose::Duplicate`];
    /// otherwise it would count as sent for the first time.
    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        let _ = (now, lane, purpose, len);
    }

    /// Records that `len` bytes on this lane have been acknowledged.
    fn acked(&mut self, now: Time, lane: LaneId, len: Bytes) {
        let _ = (now, lane, len);
    }

    /// Records a loss on this lane; its window is about to shrink.
    fn lost(&mut self, now: Time, lane: LaneId) {
        let _ = (now, lane);
    }

    /// Sets the number of lost bytes waiting for retransmission. Call it before a `choose` for a
    /// retransmission.
    fn owes(&mut self, waiting: Bytes) {
        let _ = waiting;
    }

    /// Records that the application has offered a message. Call it before the first `choose` for
    /// it.
    fn message_offered(&mut self, now: Time, offer: &Offer) {
        let _ = (now, offer);
    }

    /// Records that no byte of this message is left to send for the first time: its last byte was
    /// sent, or it was cancelled.
    fn message_complete(&mut self, now: Time, message: u64) {
        let _ = (now, message);
    }

    /// Returns the part of this lane's window that is closed to background data now. An engine must
    /// keep its own retransmissions within `cwnd` less this.
    fn reserved(&self, now: Time, lane: &LaneView) -> Bytes {
        let _ = (now, lane);
        Bytes::ZERO
    }

    /// Returns the time at which [`Wait::Reserved`] may end without an event on any lane.
    fn wakeup(&self) -> Option<Time> {
        None
    }

    /// Declares a periodic source. Schedulers that reserve no room ignore it.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the table of sources is full.
    fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        let _ = (key, source);
        Ok(())
    }

    /// Withdraws a source; returns false if there is none of this key.
    fn withdraw(&mut self, key: SourceKey) -> bool {
        let _ = key;
        false
    }

    /// Returns the parameters of a source, declared or learned.
    fn source(&self, key: SourceKey) -> Option<Source> {
        let _ = key;
        None
    }

    /// Returns the capacity withheld from background data because of reservations.
    fn unused(&self) -> Unused {
        Unused::default()
    }
}

#[cfg(feature = "alloc")]
impl<S: LaneScheduler + ?Sized> LaneScheduler for alloc::boxed::Box<S> {
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        (**self).choose(now, lanes, purpose, len)
    }

    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        (**self).sent(now, lane, purpose, len);
    }

    fn acked(&mut self, now: Time, lane: LaneId, len: Bytes) {
        (**self).acked(now, lane, len);
    }

    fn lost(&mut self, now: Time, lane: LaneId) {
        (**self).lost(now, lane);
    }

    fn owes(&mut self, waiting: Bytes) {
        (**self).owes(waiting);
    }

    fn message_offered(&mut self, now: Time, offer: &Offer) {
        (**self).message_offered(now, offer);
    }

    fn message_complete(&mut self, now: Time, message: u64) {
        (**self).message_complete(now, message);
    }

    fn reserved(&self, now: Time, lane: &LaneView) -> Bytes {
        (**self).reserved(now, lane)
    }

    fn wakeup(&self) -> Option<Time> {
        (**self).wakeup()
    }

    fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        (**self).declare(key, source)
    }

    fn withdraw(&mut self, key: SourceKey) -> bool {
        (**self).withdraw(key)
    }

    fn source(&self, key: SourceKey) -> Option<Source> {
        (**self).source(key)
    }

    fn unused(&self) -> Unused {
        (**self).unused()
    }
}

/// Returns the lanes to choose from: the usable ones that are no backup; if there are none, all
/// usable ones.
pub fn eligible(lanes: &[LaneView]) -> LaneSet {
    let (mut regular, mut backup) = (LaneSet::EMPTY, LaneSet::EMPTY);
    for lane in lanes.iter().filter(|lane| lane.usable) {
        if lane.backup { backup.insert(lane.id) } else { regular.insert(lane.id) }
    }
    if regular.is_empty() { backup } else { regular }
}

/// Returns those of `lanes` that urgent data may take: the high layer, because the network may
/// starve the low one. If there are none, returns all of them.
pub fn quick(views: &[LaneView], lanes: LaneSet) -> LaneSet {
    let high: LaneSet = views.iter().filter(|view| view.layer == Layer::High).map(|view| view.id).collect();
    let high = high.and(lanes);
    if high.is_empty() { lanes } else { high }
}

/// Returns the lane of `among` with the lowest smoothed round-trip time that has room for `len` in
/// addition to `less`; the first among equals.
pub fn fastest(
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

/// Returns `lane`, or the reason why none of `among` was found.
pub fn one_or_wait(lane: Option<LaneId>, among: LaneSet) -> Choice {
    match lane {
        Some(lane) => Choice::One(lane),
        None if among.is_empty() => Choice::Wait(Wait::NoLane),
        None => Choice::Wait(Wait::NoRoom),
    }
}

/// Returns the fastest lane with room for background data outside the `closed` part, or the reason
/// why there is none.
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
    fn low_rtt_and_round_robin_reserve_no_room_and_never_wake() {
        let lanes = lanes([10, 20, 30]);
        for scheduler in [&LowRtt::new() as &dyn LaneScheduler, &RoundRobin::new()] {
            assert_eq!(scheduler.wakeup(), None);
            assert_eq!(scheduler.reserved(Time::ZERO, &lanes[0]), Bytes::ZERO);
        }
    }
}
