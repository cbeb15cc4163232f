//! Observed queue: arrivals, departures, drops, and the integral of the backlog.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_queue::{Backlog, Counters, Discipline, Packet as _, Verdict};
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
pub(super) struct Watched<D> {
    queue: D,
    log: bool,
    seen: Rc<RefCell<Seen>>,
}

impl<D: Discipline<Packet>> Watched<D> {
    /// Observes `queue`; `log` records each packet.
    pub(super) fn new(queue: D, log: bool) -> (Self, Rc<RefCell<Seen>>) {
        let seen = Rc::new(RefCell::new(Seen::default()));
        (Self { queue, log, seen: Rc::clone(&seen) }, seen)
    }

    /// Adds the backlog since the last event to the integral.
    fn integrate(&self, now: Time) {
        let mut seen = self.seen.borrow_mut();
        let span = now.as_nanos().saturating_sub(seen.since.as_nanos());
        seen.packet_nanos += u128::from(self.queue.backlog().packets) * u128::from(span);
        seen.since = now;
    }
}

impl<D: Discipline<Packet>> Discipline<Packet> for Watched<D> {
    fn enqueue_with(
        &mut self,
        now: Time,
        packet: Packet,
        on_drop: &mut dyn FnMut(Packet),
    ) -> Verdict<Packet> {
        self.integrate(now);
        let len = packet.len().get();
        let seen = &self.seen;
        let verdict = self.queue.enqueue_with(now, packet, &mut |packet| {
            seen.borrow_mut().dropped.push(now);
            on_drop(packet);
        });
        let mut seen = self.seen.borrow_mut();
        if self.log {
            seen.came.push((now, len));
        }
        if !matches!(verdict, Verdict::Queued) {
            seen.dropped.push(now);
        }
        let waiting = self.queue.backlog().packets;
        seen.least = seen.least.min(waiting);
        seen.most = seen.most.max(waiting);
        verdict
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(Packet)) -> Option<Packet> {
        self.integrate(now);
        let seen = &self.seen;
        let packet = self.queue.dequeue_with(now, &mut |packet| {
            seen.borrow_mut().dropped.push(now);
            on_drop(packet);
        });
        if self.log
            && let Some(packet) = &packet
            && packet.layer() == Layer::High
        {
            self.seen.borrow_mut().left.push((now, packet.len().get()));
        }
        packet
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.queue.next_ready(now)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn counters(&self) -> &Counters {
        self.queue.counters()
    }
}
