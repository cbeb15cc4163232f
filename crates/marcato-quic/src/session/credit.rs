//! Flow control by the peer: credit for data and for streams, and levels that it holds.

use marcato_units::{Priority, PrioritySet};

/// Credit of the peer, as far as refusals and grants have shown it.
#[derive(Debug)]
pub(super) struct Credit {
    /// Priorities of which the engine may accept data.
    levels: PrioritySet,
    /// Priorities that the peer does not hold.
    free: PrioritySet,
    /// Set when the peer allows no more streams. Messages that already have one continue.
    no_streams: bool,
    stops: u64,
}

impl Default for Credit {
    fn default() -> Self {
        Self { levels: PrioritySet::ALL, free: PrioritySet::ALL, no_streams: false, stops: 0 }
    }
}

impl Credit {
    /// Records that the engine has refused data of a message of this priority.
    pub(super) fn stop(&mut self, level: Priority) {
        self.levels = self.levels.without(level);
        self.stops += 1;
    }

    /// Records that the engine may accept data of every priority again.
    ///
    /// The engine reports new credit on a stream. A level consists of many, so all are tried again.
    pub(super) fn resume(&mut self) {
        self.levels = PrioritySet::ALL;
    }

    /// Records that the peer holds a level, or releases it. docs/wire.md, "Frames".
    pub(super) fn hold(&mut self, level: Priority, held: bool) {
        self.free = self.free.with_if(!held, level);
    }

    /// Returns the priorities of which the engine may accept data, and the peer holds none.
    pub(super) const fn levels(&self) -> PrioritySet {
        self.levels.and(self.free)
    }

    /// Records that the peer allows no more streams.
    pub(super) fn stop_streams(&mut self) {
        self.no_streams = true;
        self.stops += 1;
    }

    /// Records that another stream may be opened, or an idle one used again.
    pub(super) fn resume_streams(&mut self) {
        self.no_streams = false;
    }

    /// Records that the engine has refused data of a plain stream, which waits alone.
    pub(super) fn refused(&mut self) {
        self.stops += 1;
    }

    /// Returns whether a message may begin on another stream.
    pub(super) const fn allows_streams(&self) -> bool {
        !self.no_streams
    }

    /// Number of times that data or a stream was refused.
    pub(super) const fn stops(&self) -> u64 {
        self.stops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_stops_one_level_and_not_the_others() {
        let mut credit = Credit::default();
        assert_eq!(credit.levels(), PrioritySet::ALL);
        credit.stop(Priority::P2);
        assert_eq!(credit.levels(), PrioritySet::ALL.without(Priority::P2));
        assert!(credit.allows_streams());
    }

    #[test]
    fn new_credit_resumes_every_level() {
        let mut credit = Credit::default();
        credit.stop(Priority::P0);
        credit.stop(Priority::P4);
        credit.resume();
        assert_eq!(credit.levels(), PrioritySet::ALL);
    }

    #[test]
    fn a_held_level_stays_held_when_credit_comes() {
        let mut credit = Credit::default();
        credit.hold(Priority::P4, true);
        credit.stop(Priority::P4);
        credit.resume();
        assert_eq!(credit.levels(), PrioritySet::ALL.without(Priority::P4));
        credit.hold(Priority::P4, false);
        assert_eq!(credit.levels(), PrioritySet::ALL);
    }

    #[test]
    fn streams_and_data_have_separate_credit() {
        let mut credit = Credit::default();
        credit.stop_streams();
        credit.stop(Priority::P1);
        credit.resume();
        assert!(!credit.allows_streams());
        credit.stop(Priority::P1);
        credit.resume_streams();
        assert!(credit.allows_streams() && !credit.levels().contains(Priority::P1));
    }

    #[test]
    fn every_refusal_counts() {
        let mut credit = Credit::default();
        credit.stop(Priority::P1);
        credit.stop(Priority::P1);
        credit.stop_streams();
        credit.resume();
        credit.resume_streams();
        assert_eq!(credit.stops(), 3);
    }
}
