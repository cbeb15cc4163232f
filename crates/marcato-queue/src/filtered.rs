//! Rule before a queue, which it leaves as it is.

use marcato_units::{Bytes, Time};

use crate::{Backlog, Counters, Discipline, FlowKey, FlowReport, Packet, Verdict};

/// Decision of a [`Filter`] about a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The queue decides.
    Pass,
    /// The packet is dropped, and the queue never sees it.
    Drop,
}

/// Rule before a queue: it drops or marks packets that arrive, and observes those that leave or are lost.
///
/// A closure with the arguments of [`arrives`](Self::arrives) is one.
pub trait Filter<P: Packet, Q: Discipline<P>> {
    /// Decides about `packet`, which arrives at `now`.
    fn arrives(&mut self, _now: Time, _packet: &mut P) -> Fate {
        Fate::Pass
    }

    /// Takes note of a packet that passes the other way.
    fn observes(&mut self, _now: Time, _packet: &P) {}

    /// Takes note of a packet that is lost: refused by filter or queue, pushed out, or dropped on the way out.
    fn lost(&mut self, _now: Time, _packet: &P) {}

    /// Takes note of the queue after an arrival.
    fn arrived(&mut self, _now: Time, _queue: &Q) {}

    /// Takes note of the queue after a departure; `packet` is `None` if nothing could leave.
    fn left(&mut self, _now: Time, _packet: Option<&P>, _queue: &Q) {}
}

impl<P: Packet, Q: Discipline<P>, F: FnMut(Time, &mut P) -> Fate> Filter<P, Q> for F {
    fn arrives(&mut self, now: Time, packet: &mut P) -> Fate {
        self(now, packet)
    }
}

/// Queue behind a [`Filter`].
#[derive(Clone, Debug)]
pub struct Filtered<Q, F> {
    queue: Q,
    filter: F,
    /// Counters of the packets that the filter dropped.
    refused: Counters,
    /// Sum of these and the queue's, once the filter has dropped a packet.
    counters: Counters,
}

impl<Q, F> Filtered<Q, F> {
    /// Puts `filter` before `queue`, which must be empty and unused.
    pub fn of(queue: Q, filter: F) -> Self {
        Self { queue, filter, refused: Counters::default(), counters: Counters::default() }
    }

    /// Queue behind the filter, with its own backlog and counters.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }
}

impl<Q, F> Filtered<Q, F> {
    fn add_up<P: Packet>(&mut self)
    where
        Q: Discipline<P>,
    {
        if self.refused.enqueued.packets > 0 {
            self.counters = *self.queue.counters() + self.refused;
        }
    }
}

impl<P: Packet, Q: Discipline<P>, F: Filter<P, Q>> Discipline<P> for Filtered<Q, F> {
    fn enqueue_with(&mut self, now: Time, mut packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let Self { queue, filter, refused, .. } = self;
        if filter.arrives(now, &mut packet) == Fate::Drop {
            refused.enqueued.count(packet.len());
            refused.dropped.count(packet.len());
            filter.lost(now, &packet);
            filter.arrived(now, queue);
            self.add_up();
            return Verdict::Dropped(packet);
        }
        let verdict = queue.enqueue_with(now, packet, &mut |packet| {
            filter.lost(now, &packet);
            on_drop(packet);
        });
        if let Verdict::Dropped(packet) = &verdict {
            filter.lost(now, packet);
        }
        filter.arrived(now, queue);
        self.add_up();
        verdict
    }

    fn observe(&mut self, now: Time, packet: &P) {
        self.filter.observes(now, packet);
        self.queue.observe(now, packet);
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let Self { queue, filter, .. } = self;
        let packet = queue.dequeue_with(now, &mut |packet| {
            filter.lost(now, &packet);
            on_drop(packet);
        });
        filter.left(now, packet.as_ref(), queue);
        self.add_up();
        packet
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.queue.next_ready(now)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn counters(&self) -> &Counters {
        if self.refused.enqueued.packets == 0 { self.queue.counters() } else { &self.counters }
    }

    fn judged(&self) -> Option<[Bytes; 2]> {
        self.queue.judged()
    }

    fn report(&self, flow: FlowKey) -> Option<FlowReport> {
        self.queue.report(flow)
    }
}
