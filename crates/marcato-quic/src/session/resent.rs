//! Fate of lost runs of plain streams, which the engine retransmits by itself.
//!
//! The engine does not tell which bytes a retransmission carries. A lost run has arrived once the engine has held
//! nothing after the loss, and all that it had sent by itself until then is acknowledged. If one of those packets
//! is lost, the engine holds its content again, and the wait begins anew.

use std::collections::BTreeMap;

use noq_proto::StreamId;

use crate::outbox::Run;

/// Lost run whose retransmission is not known to have arrived.
#[derive(Clone, Copy, Debug)]
struct Lost {
    stream: StreamId,
    run: Run,
    /// Last generation of packets that may carry the run; `None` while the engine may hold it.
    within: Option<u32>,
}

/// Packets that the engine has filled by itself, in generations, and the lost runs that they may carry.
#[derive(Debug, Default)]
pub(super) struct Resent {
    generation: u32,
    /// Packets in flight, by generation.
    in_flight: BTreeMap<u32, usize>,
    lost: Vec<Lost>,
}

impl Resent {
    /// Records a packet that leaves, and returns its generation.
    pub(super) fn sent(&mut self) -> u32 {
        *self.in_flight.entry(self.generation).or_default() += 1;
        self.generation
    }

    /// Records that a packet was acknowledged.
    pub(super) fn acked(&mut self, generation: u32) {
        if let Some(count) = self.in_flight.get_mut(&generation) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&generation);
            }
        }
    }

    /// Records that a packet was lost, so the engine holds its content again.
    pub(super) fn lost(&mut self, generation: u32) {
        self.acked(generation);
        for lost in &mut self.lost {
            lost.within.take_if(|within| *within >= generation);
        }
    }

    /// Records that a run was lost.
    pub(super) fn run_lost(&mut self, stream: StreamId, run: Run) {
        self.lost.push(Lost { stream, run, within: None });
    }

    /// Forgets the runs of a stream.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.lost.retain(|lost| lost.stream != stream);
    }

    /// Returns whether the fate of any run is unknown.
    pub(super) fn is_waiting(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Records that the engine holds nothing.
    pub(super) fn engine_is_empty(&mut self) {
        let mut any = false;
        for lost in self.lost.iter_mut().filter(|lost| lost.within.is_none()) {
            lost.within = Some(self.generation);
            any = true;
        }
        self.generation += u32::from(any);
    }

    /// Records that nothing is in flight and the engine is empty: all lost runs have arrived.
    pub(super) fn all_arrived(&mut self, mut arrived: impl FnMut(StreamId, Run)) {
        self.in_flight.clear();
        self.lost.drain(..).for_each(|lost| arrived(lost.stream, lost.run));
    }

    /// Passes on the runs that have arrived by now.
    pub(super) fn take_arrived(&mut self, mut arrived: impl FnMut(StreamId, Run)) {
        let oldest = self.in_flight.first_key_value().map(|(generation, _)| *generation);
        self.lost.retain(|lost| {
            let has = lost.within.is_some_and(|within| oldest.is_none_or(|oldest| within < oldest));
            if has {
                arrived(lost.stream, lost.run);
            }
            !has
        });
    }
}

#[cfg(test)]
mod tests {
    use noq_proto::VarInt;

    use super::*;

    fn arrived(resent: &mut Resent) -> Vec<u64> {
        let mut starts = Vec::new();
        resent.take_arrived(|_, run| starts.push(run.start));
        starts
    }

    fn lose(resent: &mut Resent, start: u64) {
        resent.run_lost(StreamId::from(VarInt::from_u32(0)), Run { start, end: start + 1 });
    }

    #[test]
    fn a_lost_run_arrives_with_all_that_may_carry_it() {
        let mut resent = Resent::default();
        lose(&mut resent, 1);
        let first = resent.sent();
        assert!(arrived(&mut resent).is_empty());
        resent.engine_is_empty();
        let later = resent.sent();
        lose(&mut resent, 2);
        assert!(first < later && arrived(&mut resent).is_empty());
        resent.acked(first);
        assert_eq!(arrived(&mut resent), [1]);
        resent.engine_is_empty();
        resent.acked(later);
        assert_eq!(arrived(&mut resent), [2]);
        assert!(!resent.is_waiting());
    }

    #[test]
    fn a_lost_retransmission_begins_the_wait_anew() {
        let mut resent = Resent::default();
        lose(&mut resent, 1);
        let first = resent.sent();
        resent.engine_is_empty();
        resent.lost(first);
        assert!(arrived(&mut resent).is_empty());
        let second = resent.sent();
        resent.engine_is_empty();
        assert!(arrived(&mut resent).is_empty());
        resent.acked(second);
        assert_eq!(arrived(&mut resent), [1]);
    }
}
