//! The queue that DCTCP was made for: marks what finds more than K packets waiting.

use marcato_queue::{Backlog, Counters, Discipline, Packet as _, Tally, Verdict};
use marcato_sim::Packet;
use marcato_units::Time;

/// Marks, by the queue's length at the moment. Alizadeh et al. (2010), §3.1.
pub(super) struct StepMark<D> {
    queue: D,
    /// K, in packets.
    threshold: u64,
    marked: Tally,
    counters: Counters,
}

impl<D: Discipline<Packet>> StepMark<D> {
    pub(super) fn new(queue: D, threshold: u64) -> Self {
        Self { queue, threshold, marked: Tally::default(), counters: Counters::default() }
    }

    fn count(&mut self) {
        self.counters = Counters { marked: self.marked, ..*self.queue.counters() };
    }
}

impl<D: Discipline<Packet>> Discipline<Packet> for StepMark<D> {
    fn enqueue_with(
        &mut self,
        now: Time,
        mut packet: Packet,
        on_drop: &mut dyn FnMut(Packet),
    ) -> Verdict<Packet> {
        if self.queue.backlog().packets >= self.threshold && packet.ecn().is_capable() {
            packet.mark_ce();
            self.marked += Tally { packets: 1, bytes: packet.len() };
        }
        let verdict = self.queue.enqueue_with(now, packet, on_drop);
        self.count();
        verdict
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(Packet)) -> Option<Packet> {
        let packet = self.queue.dequeue_with(now, on_drop);
        self.count();
        packet
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.queue.next_ready(now)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
