//! Observed queue: arrivals, departures, drops, and the integral of the backlog.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_queue::{Discipline, Fate, Filter, Filtered, Packet as _};
use marcato_sim::Packet;
use marcato_units::{Layer, Time};

/// Observations of a queue.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Arrivals of packets with their lengths, if recorded.
    pub(super) came: Vec<(Time, u64)>,
    /// Departures of high packets with their lengths, if recorded.
    pub(super) left: Vec<(Time, u64)>,
    /// Times of drops.
    pub(super) dropped: Vec<Time>,
    /// Integral of the backlog, in packets times nanoseconds.
    pub(super) packet_nanos: u128,
    /// Smallest and largest backlog in packets after an arrival, since [`Seen::forget`].
    pub(super) least: u64,
    pub(super) most: u64,
    since: Time,
}

impl Seen {
    /// Resets the smallest and the largest backlog.
    pub(super) fn forget(&mut self) {
        (self.least, self.most) = (u64::MAX, 0);
    }
}

/// A queue whose state is recorded.
pub(super) type Watched<D> = Filtered<D, Watch>;

/// Recorder of a queue.
pub(super) struct Watch {
    log: bool,
    /// Backlog since the last event, in packets.
    waiting: u64,
    seen: Rc<RefCell<Seen>>,
}

/// Observes `queue`; `log` records each packet.
pub(super) fn watched<D>(queue: D, log: bool) -> (Watched<D>, Rc<RefCell<Seen>>) {
    let seen = Rc::new(RefCell::new(Seen::default()));
    (Filtered::of(queue, Watch { log, waiting: 0, seen: Rc::clone(&seen) }), seen)
}

impl Watch {
    /// Adds the backlog since the last event to the integral.
    fn integrate(&mut self, now: Time, waiting: u64) {
        let mut seen = self.seen.borrow_mut();
        let span = now.as_nanos().saturating_sub(seen.since.as_nanos());
        seen.packet_nanos += u128::from(std::mem::replace(&mut self.waiting, waiting)) * u128::from(span);
        seen.since = now;
    }
}

impl<D: Discipline<Packet>> Filter<Packet, D> for Watch {
    fn arrives(&mut self, now: Time, packet: &mut Packet) -> Fate {
        if self.log {
            self.seen.borrow_mut().came.push((now, packet.len().get()));
        }
        Fate::Pass
    }

    fn lost(&mut self, now: Time, _: &Packet) {
        self.seen.borrow_mut().dropped.push(now);
    }

    fn arrived(&mut self, now: Time, queue: &D) {
        let waiting = queue.backlog().packets;
        self.integrate(now, waiting);
        let mut seen = self.seen.borrow_mut();
        seen.least = seen.least.min(waiting);
        seen.most = seen.most.max(waiting);
    }

    fn left(&mut self, now: Time, packet: Option<&Packet>, queue: &D) {
        self.integrate(now, queue.backlog().packets);
        if self.log
            && let Some(packet) = packet
            && packet.layer() == Layer::High
        {
            self.seen.borrow_mut().left.push((now, packet.len().get()));
        }
    }
}
