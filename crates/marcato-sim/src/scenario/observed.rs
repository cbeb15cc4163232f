//! Queues whose backlog is recorded.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_link::Occupancy;
use marcato_queue::{Backlog, Counters, Discipline, FlowKey, FlowReport, Verdict};
use marcato_units::{Bytes, Time};

use crate::packet::Packet;

/// Record of the queues before a transmitter.
#[derive(Debug, Default)]
pub(super) struct Observation {
    pub(super) occupancy: Occupancy,
    /// Bytes offered since the beginning to queues that judge flows: of responsive flows, and of
    /// all. `None` if no queue judges.
    pub(super) judged: Option<[Bytes; 2]>,
}

/// Queue whose backlog is recorded.
pub(super) struct Observed<Q> {
    queue: Q,
    /// Result of [`Discipline::judged`] at the last record.
    judged: [Bytes; 2],
    /// Index among the queues of its transmitter.
    place: usize,
    record: Rc<RefCell<Observation>>,
}

impl<Q: Discipline<Packet>> Observed<Q> {
    /// Wraps one of the two queues of a transmitter; both write into `record`.
    pub(super) fn new(queue: Q, place: usize, record: &Rc<RefCell<Observation>>) -> Self {
        Self { queue, judged: Default::default(), place, record: Rc::clone(record) }
    }

    fn note(&self, now: Time) {
        self.record.borrow_mut().occupancy.set(now, self.place, self.queue.backlog());
    }
}

impl<Q: Discipline<Packet>> Discipline<Packet> for Observed<Q> {
    fn enqueue_with(
        &mut self,
        now: Time,
        packet: Packet,
        on_drop: &mut dyn FnMut(Packet),
    ) -> Verdict<Packet> {
        let verdict = self.queue.enqueue_with(now, packet, on_drop);
        self.note(now);
        if let Some(judged) = self.queue.judged() {
            let mut record = self.record.borrow_mut();
            let total = record.judged.get_or_insert_default();
            for (total, (now, before)) in total.iter_mut().zip(judged.into_iter().zip(self.judged)) {
                *total += now - before;
            }
            self.judged = judged;
        }
        verdict
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(Packet)) -> Option<Packet> {
        let packet = self.queue.dequeue_with(now, on_drop);
        self.note(now);
        packet
    }

    fn observe(&mut self, now: Time, packet: &Packet) {
        self.queue.observe(now, packet);
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

    fn judged(&self) -> Option<[Bytes; 2]> {
        self.queue.judged()
    }

    fn report(&self, flow: FlowKey) -> Option<FlowReport> {
        self.queue.report(flow)
    }
}
