//! Runs that are stuck on one lane and have to be sent again on another.

use std::collections::VecDeque;

use marcato_sched::lane::LaneId;
use marcato_units::Priority;
use noq_proto::StreamId;

use crate::outbox::{Key, Run};

/// Run to be sent again on another lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repair {
    pub(super) key: Key,
    /// Bytes that are still to be sent again.
    pub(super) run: Run,
    pub(super) priority: Priority,
    pub(super) lost_on: LaneId,
    /// Stream that carries the run, once it has been opened.
    pub(super) stream: Option<StreamId>,
}

impl Repair {
    /// Creates a repair of a run of which nothing has been sent again.
    pub(super) const fn new(key: Key, run: Run, priority: Priority, lost_on: LaneId) -> Self {
        Self { key, run, priority, lost_on, stream: None }
    }
}

/// Repairs of a session, by priority, each level in order of entry.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    levels: [VecDeque<Repair>; Priority::COUNT],
}

impl Repairs {
    /// Enters a run. It extends the latest repair of its level if the two touch and no stream
    /// carries that one yet: packets of one batch name the same run, and adjacent runs may go
    /// together.
    pub(super) fn enter(&mut self, repair: Repair) {
        let level = &mut self.levels[repair.priority.index()];
        let run = repair.run;
        match level.back_mut() {
            Some(last)
                if last.key == repair.key
                    && last.stream.is_none()
                    && last.run.start <= run.start
                    && run.start <= last.run.end =>
            {
                last.run.end = last.run.end.max(run.end);
            }
            _ => level.push_back(repair),
        }
    }

    /// Returns the repair that is next at this level.
    pub(super) fn front(&self, level: Priority) -> Option<Repair> {
        self.levels[level.index()].front().copied()
    }

    /// Records that `written` bytes of the next repair left on `stream`. A repair of which nothing
    /// remains stays until [`skip`](Self::skip).
    pub(super) fn advance(&mut self, level: Priority, stream: StreamId, written: u64) {
        if let Some(front) = self.levels[level.index()].front_mut() {
            front.run.start += written;
            front.stream = Some(stream);
        }
    }

    /// Removes the repair that is next at this level.
    pub(super) fn skip(&mut self, level: Priority) {
        self.levels[level.index()].pop_front();
    }

    /// Records that a stream was reset: the rest of its repair needs another.
    pub(super) fn forget_stream(&mut self, stream: StreamId) {
        for repair in self.levels.iter_mut().flatten().filter(|repair| repair.stream == Some(stream)) {
            repair.stream = None;
        }
    }

    /// Returns whether a repair of this level waits.
    pub(super) fn waits(&self, level: Priority) -> bool {
        !self.levels[level.index()].is_empty()
    }

    /// Returns whether no repair waits.
    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(VecDeque::is_empty)
    }

    /// Number of repairs.
    pub(super) fn len(&self) -> usize {
        self.levels.iter().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use noq_proto::{Dir, Side};

    use super::*;

    const P1: Priority = Priority::P1;

    fn repair(slot: u32, start: u64, end: u64) -> Repair {
        Repair::new(Key::of_slot(slot), Run { start, end }, P1, LaneId::FIRST)
    }

    fn stream(index: u64) -> StreamId {
        StreamId::new(Side::Client, Dir::Uni, index)
    }

    fn runs(repairs: &mut Repairs) -> Vec<(u64, u64)> {
        let next = || {
            let Repair { run, .. } = repairs.front(P1)?;
            repairs.skip(P1);
            Some((run.start, run.end))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_run_named_by_every_packet_of_a_batch_is_entered_once() {
        let mut repairs = Repairs::default();
        for _ in 0..3 {
            repairs.enter(repair(0, 0, 3000));
        }
        assert_eq!(runs(&mut repairs), [(0, 3000)]);
    }

    #[test]
    fn adjacent_runs_of_a_message_go_together() {
        let mut repairs = Repairs::default();
        for (start, end) in [(0, 1000), (1000, 2000), (1500, 1800), (2001, 3000)] {
            repairs.enter(repair(0, start, end));
        }
        assert_eq!(runs(&mut repairs), [(0, 2000), (2001, 3000)]);
    }

    #[test]
    fn runs_of_different_messages_stay_apart() {
        let mut repairs = Repairs::default();
        repairs.enter(repair(0, 0, 1000));
        repairs.enter(repair(1, 1000, 2000));
        assert_eq!(runs(&mut repairs), [(0, 1000), (1000, 2000)]);
    }

    #[test]
    fn a_run_does_not_grow_once_a_stream_carries_it() {
        let mut repairs = Repairs::default();
        repairs.enter(repair(0, 0, 1000));
        repairs.advance(P1, stream(7), 400);
        repairs.enter(repair(0, 1000, 2000));
        assert_eq!(repairs.front(P1).map(|front| front.stream), Some(Some(stream(7))));
        assert_eq!(runs(&mut repairs), [(400, 1000), (1000, 2000)]);
    }

    #[test]
    fn the_rest_of_a_repair_outlives_its_stream() {
        let mut repairs = Repairs::default();
        repairs.enter(repair(0, 0, 1000));
        repairs.advance(P1, stream(7), 400);
        repairs.forget_stream(stream(8));
        assert_eq!(repairs.front(P1).map(|front| front.stream), Some(Some(stream(7))));
        repairs.forget_stream(stream(7));
        assert_eq!(repairs.front(P1), Some(repair(0, 400, 1000)));
    }

    #[test]
    fn levels_have_queues_of_their_own() {
        let mut repairs = Repairs::default();
        assert!(repairs.is_empty());
        repairs.enter(repair(0, 0, 1000));
        repairs.enter(Repair { priority: Priority::P3, ..repair(0, 1000, 2000) });
        assert_eq!((repairs.len(), repairs.is_empty()), (2, false));
        let waiting = Priority::ALL.into_iter().filter(|level| repairs.waits(*level));
        assert!(waiting.eq([P1, Priority::P3]));
    }
}
