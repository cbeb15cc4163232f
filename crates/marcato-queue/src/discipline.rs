//! Interface of every queue discipline.

use alloc::boxed::Box;

use marcato_units::{Bytes, Time};

use crate::{Backlog, Counters, FlowKey, FlowReport, Packet};

/// Outcome of [`Discipline::enqueue_with`] for the packet that arrived.
///
/// Waiting packets that were dropped to make room are not in it: the call's `on_drop` received
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a dropped packet is handed back so that its loss can be accounted for"]
pub enum Verdict<P> {
    /// The packet waits in the queue.
    Queued,
    /// The packet was refused and is handed back.
    Dropped(P),
}

impl<P> Verdict<P> {
    /// Returns the arriving packet if it was refused.
    pub fn lost(self) -> Option<P> {
        match self {
            Self::Queued => None,
            Self::Dropped(packet) => Some(packet),
        }
    }
}

/// Queue discipline: decides which packets wait, leave next, are dropped or are marked.
///
/// It has no clock: `now` is an argument. Calls to one queue must be made in the order of their
/// `now`s, which may repeat. If time runs backwards, spans are zero and nothing panics.
pub trait Discipline<P: Packet> {
    /// Takes `packet`, which arrives at `now`.
    ///
    /// Waiting packets that are dropped to make room go to `on_drop` before this returns. `packet`
    /// itself is handed back in the [`Verdict`] if it is refused.
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P>;

    /// Short form of [`enqueue_with`](Self::enqueue_with) for callers that ignore the packets
    /// dropped to make room. The counters include them all the same.
    fn enqueue(&mut self, now: Time, packet: P) -> Verdict<P> {
        self.enqueue_with(now, packet, &mut |_| ())
    }

    /// Takes note of `packet`, which passes the other way at `now` and is not queued here.
    ///
    /// Disciplines that judge flows need it: the traps of [`Crq`](crate::Crq) measure TCP's round
    /// trips by acknowledgements. Most ignore it. Call it when the packet arrives at the device of
    /// this queue, before it waits in the queue of its own direction.
    fn observe(&mut self, _now: Time, _packet: &P) {}

    /// Removes the next packet to leave at `now`.
    ///
    /// Packets that the AQM drops on the way out go to `on_drop`, in the order in which they
    /// waited, before this returns.
    ///
    /// Returns `None` if nothing may leave at `now`: [`next_ready`](Self::next_ready) is the time
    /// to try again.
    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P>;

    /// Short form of [`dequeue_with`](Self::dequeue_with) for callers that ignore the packets
    /// dropped by the AQM. The counters include them all the same.
    fn dequeue(&mut self, now: Time) -> Option<P> {
        self.dequeue_with(now, &mut |_| ())
    }

    /// Lets `packet` bypass the queue at `now`, without storing it.
    ///
    /// The packet is counted as enqueued and dequeued, as if it had been [enqueued](Self::enqueue)
    /// and [dequeued](Self::dequeue) at once. If this returns false, nothing has happened and the
    /// packet is to be enqueued. False is always right, and most disciplines return it. The method
    /// is for links that send every packet at once.
    fn pass(&mut self, _now: Time, _packet: &P) -> bool {
        false
    }

    /// Earliest time, `now` or later, at which [`dequeue`](Self::dequeue) returns a packet if none
    /// arrives until then; `None` if nothing waits. A work-conserving discipline returns `now`
    /// whenever packets wait.
    fn next_ready(&self, now: Time) -> Option<Time>;

    /// Packets that wait.
    fn backlog(&self) -> Backlog;

    /// Counters since the creation of the queue.
    fn counters(&self) -> &Counters;

    /// Bytes offered since the creation of the queue: of flows that it called responsive, and of all.
    /// `None` if it judges no flows.
    fn judged(&self) -> Option<[Bytes; 2]> {
        None
    }

    /// Report on a flow; `None` if the queue judges no flows, or does not know this one.
    fn report(&self, _flow: FlowKey) -> Option<FlowReport> {
        None
    }
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

    fn judged(&self) -> Option<[Bytes; 2]> {
        (**self).judged()
    }

    fn report(&self, flow: FlowKey) -> Option<FlowReport> {
        (**self).report(flow)
    }
}
