//! What every queue discipline does.

use alloc::boxed::Box;

use marcato_units::Time;

use crate::{Backlog, Counters, Packet};

/// Outcome of [`Discipline::enqueue_with`] for the packet that arrived.
///
/// Packets that waited before and were dropped to make room are not in it: they went to the call's `on_drop`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a dropped packet is handed back so that its loss can be accounted for"]
pub enum Verdict<P> {
    /// The packet waits in the queue.
    Queued,
    /// The packet was refused and is handed back.
    Dropped(P),
}

impl<P> Verdict<P> {
    /// The arriving packet, if it was refused.
    pub fn lost(self) -> Option<P> {
        match self {
            Self::Queued => None,
            Self::Dropped(packet) => Some(packet),
        }
    }
}

/// A queue discipline: decides what waits, what leaves next, and what is dropped or marked.
///
/// It has no clock: `now` is an argument. One queue's calls must be made in the order of their `now`s, which may
/// repeat; were time to run backwards, spans come out as zero and nothing panics.
pub trait Discipline<P: Packet> {
    /// Takes `packet`, which arrives at `now`. Packets that waited and are dropped to make room for it go to `on_drop`
    /// before this returns; `packet` itself is handed back in the [`Verdict`] if it is refused.
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P>;

    /// Short form of [`enqueue_with`](Self::enqueue_with), for callers that do not look at the packets that are dropped to
    /// make room; the counters include them all the same.
    fn enqueue(&mut self, now: Time, packet: P) -> Verdict<P> {
        self.enqueue_with(now, packet, &mut |_| ())
    }

    /// Takes note of `packet`, which passes the other way at `now` and is not queued here. Disciplines that judge flows
    /// need it: the traps of [`Crq`](crate::Crq) measure TCP's loops by acknowledgements. Most ignore it.
    ///
    /// It is to be called when the packet comes to the box in which this queue stands, before it waits in the queue of
    /// its own direction.
    fn observe(&mut self, _now: Time, _packet: &P) {}

    /// The next packet to leave at `now`. Packets that the AQM drops on the way out go to `on_drop`, in the order
    /// in which they waited, before this returns.
    ///
    /// `None` if nothing may leave at `now`: ask [`next_ready`](Self::next_ready) when to come back.
    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P>;

    /// As [`dequeue_with`](Self::dequeue_with), for callers that do not look at what the AQM drops; it is counted
    /// all the same.
    fn dequeue(&mut self, now: Time) -> Option<P> {
        self.dequeue_with(now, &mut |_| ())
    }

    /// Lets `packet`, which arrives at `now`, by without storing it: it is counted in and out, as if it had been
    /// [enqueued](Self::enqueue) and were what [`dequeue`](Self::dequeue) returns at once, with nothing left to wait.
    ///
    /// If this returns false nothing has happened, and the packet is to be enqueued. That is always right, and what most
    /// disciplines say. It is for links that send at once whatever comes.
    fn pass(&mut self, _now: Time, _packet: &P) -> bool {
        false
    }

    /// The earliest time, `now` or later, at which [`dequeue`](Self::dequeue) returns a packet if none arrives
    /// until then; `None` if nothing waits. A work-conserving discipline says `now` whenever something waits.
    fn next_ready(&self, now: Time) -> Option<Time>;

    /// What waits.
    fn backlog(&self) -> Backlog;

    /// What has been done so far.
    fn counters(&self) -> &Counters;
}

impl<P: Packet, D: Discipline<P> + ?Sized> Discipline<P> for Box<D> {
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        (**self).enqueue_with(now, packet, on_drop)
    }

    fn enqueue(&mut self, now: Time, packet: P) -> Verdict<P> {
        (**self).enqueue(now, packet)
    }

    fn observe(&mut self, now: Time, packet: &P) {
        (**self).observe(now, packet);
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        (**self).dequeue_with(now, on_drop)
    }

    fn dequeue(&mut self, now: Time) -> Option<P> {
        (**self).dequeue(now)
    }

    fn pass(&mut self, now: Time, packet: &P) -> bool {
        (**self).pass(now, packet)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (**self).next_ready(now)
    }

    fn backlog(&self) -> Backlog {
        (**self).backlog()
    }

    fn counters(&self) -> &Counters {
        (**self).counters()
    }
}
