//! Queues whose backlog is recorded.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_link::Occupancy;
use marcato_queue::{Discipline, Filter};
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

/// Recorder of a queue's backlog.
pub(super) struct Recorder {
    /// Result of [`Discipline::judged`] at the last record.
    judged: [Bytes; 2],
    /// Index among the queues of its transmitter.
    place: usize,
    record: Rc<RefCell<Observation>>,
}

impl Recorder {
    /// Recorder of one of the two queues of a transmitter; both write into `record`.
    pub(super) fn new(place: usize, record: &Rc<RefCell<Observation>>) -> Self {
        Self { judged: Default::default(), place, record: Rc::clone(record) }
    }
}

impl<Q: Discipline<Packet>> Filter<Packet, Q> for Recorder {
    fn arrived(&mut self, now: Time, queue: &Q) {
        let mut record = self.record.borrow_mut();
        record.occupancy.set(now, self.place, queue.backlog());
        if let Some(judged) = queue.judged() {
            let total = record.judged.get_or_insert_default();
            for (total, (now, before)) in total.iter_mut().zip(judged.into_iter().zip(self.judged)) {
                *total += now - before;
            }
            self.judged = judged;
        }
    }

    fn left(&mut self, now: Time, _: Option<&Packet>, queue: &Q) {
        self.record.borrow_mut().occupancy.set(now, self.place, queue.backlog());
    }
}
