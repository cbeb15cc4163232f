//! Measurements of one direction of a connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use marcato_report::Samples;
use marcato_units::Priority;

use super::clock::Offset;
use super::direction::Direction;
use super::interval::Intervals;
use super::lane::{LaneSample, Lanes};
use super::load::Load;
use super::outcome::{Flow, SourceOutcome};
use super::protocol::Total;
use super::released::Released;

/// Measured interval, in ns of the local clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Start of the run.
    pub(crate) begin: i128,
    /// End of the warm-up.
    pub(crate) from: i128,
    /// End of the run.
    pub(crate) to: i128,
}

pub(crate) fn ns(span: Duration) -> i128 {
    i128::try_from(span.as_nanos()).unwrap_or(i128::MAX)
}

/// Message that has arrived.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    /// Release in ns of the sender's clock.
    released: u64,
    /// Completion in ns of the receiver's clock.
    at: u64,
}

/// Measurements of one direction of a connection.
pub(crate) struct Measured {
    pub(crate) direction: Direction,
    pub(crate) load: Load,
    /// Messages that this end has released; none in reverse.
    pub(crate) released: Arc<Released>,
    counted: Counted,
    /// Messages of each source, by sequence number.
    arrived: Vec<Vec<Option<Arrived>>>,
    arrivals: usize,
    /// Messages that the server has released of each source, and the end of its sending; only in
    /// reverse.
    reported: Vec<u64>,
    ended: bool,
    /// Bytes that have arrived of the last source, which is the bulk data if there is any.
    last_source: u64,
    /// Latest totals up to the start of the measured interval, and the latest within it.
    first: Option<(i128, Vec<Total>)>,
    last: Option<(i128, Vec<Total>)>,
    /// Times and byte counts of the last totals, for the progress line.
    recent: VecDeque<(i128, u64)>,
    pub(crate) intervals: Intervals,
    lanes: Lanes,
}

impl Measured {
    pub(crate) fn new(direction: Direction, load: Load, counted: Counted, intervals: Intervals) -> Self {
        let sources = load.len();
        // A limited amount may have arrived before the first totals.
        let limited = load.bulk.is_some_and(|bulk| bulk.bytes.is_some()) && counted.from == counted.begin;
        Self {
            direction,
            released: Arc::new(Released::new(sources, direction == Direction::Forward)),
            counted,
            arrived: vec![Vec::new(); load.sources.len()],
            arrivals: 0,
            reported: Vec::new(),
            ended: false,
            last_source: 0,
            first: limited.then(|| (counted.begin, vec![Total::default(); sources])),
            last: None,
            recent: VecDeque::new(),
            intervals,
            lanes: Lanes::default(),
            load,
        }
    }

    /// Takes a sample of the sender's lanes, which counts after the warm-up.
    pub(crate) fn look(&mut self, now: u64, lanes: &[LaneSample]) {
        if i128::from(now) >= self.counted.from {
            self.lanes.look(lanes);
        }
    }

    /// Takes the totals that had arrived at a local time.
    pub(crate) fn totals(&mut self, at: i128, totals: &[Total]) {
        let bytes = totals.iter().map(|total| total.bytes).fold(0, u64::saturating_add);
        self.last_source = totals.last().map_or(0, |total| total.bytes);
        self.recent.push_back((at, bytes));
        if self.recent.len() > 10 {
            self.recent.pop_front();
        }
        if at <= self.counted.from || self.first.is_none() {
            self.first = Some((at, totals.to_vec()));
        } else if at <= self.counted.to || self.last.is_none() {
            self.last = Some((at, totals.to_vec()));
        }
    }

    /// Takes the completion of a message that this end has released.
    ///
    /// The completion of a message that was never sent is ignored: the server's reports are not
    /// trusted.
    pub(crate) fn forward_arrival(&mut self, source: u8, sequence: u64, at: u64, offset: &Offset) {
        let (Ok(index), source) = (usize::try_from(sequence), usize::from(source)) else { return };
        if let Some(released) = self.released.time(source, index) {
            self.arrival(source, index, Arrived { released, at }, offset);
        }
    }

    /// Takes the completion of a message that the server says it has released.
    ///
    /// A sequence number that the load does not reach is ignored, which bounds the memory that a
    /// server can claim.
    pub(crate) fn reverse_arrival(
        &mut self,
        source: u8,
        sequence: u64,
        released: u64,
        at: u64,
        offset: &Offset,
    ) {
        let (Ok(index), source) = (usize::try_from(sequence), usize::from(source)) else { return };
        let Some(spec) = self.load.sources.get(source) else { return };
        if u128::from(sequence) < self.load.most_messages(spec) {
            self.arrival(source, index, Arrived { released, at }, offset);
        }
    }

    /// Counts a message once. Its completion time is of the best offset so far. The result uses the
    /// best of the run.
    fn arrival(&mut self, source: usize, sequence: usize, message: Arrived, offset: &Offset) {
        let Some(arrived) = self.arrived.get_mut(source) else { return };
        if arrived.len() <= sequence {
            arrived.resize(sequence + 1, None);
        }
        if arrived[sequence].is_none() {
            arrived[sequence] = Some(message);
            self.arrivals += 1;
            self.intervals.arrived(self.took(message, offset) as f64 / 1e6);
        }
    }

    /// Takes the numbers of messages that the server has released.
    pub(crate) fn reported(&mut self, released: Vec<u64>, ended: bool) {
        self.reported = released;
        self.ended |= ended;
    }

    /// Returns whether the sender sends no more data.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether everything released has arrived, with this much bulk data.
    pub(crate) fn is_complete(&self, bulk: u64) -> bool {
        let sources = self.load.sources.len();
        let released: u64 = match self.direction {
            Direction::Forward => {
                self.released.totals().iter().take(sources).map(|total| total.messages).sum()
            }
            Direction::Reverse => {
                self.reported.iter().take(sources).fold(0, |sum, one| sum.saturating_add(*one))
            }
        };
        let ended = self.direction == Direction::Forward || self.ended;
        ended && self.arrivals as u64 >= released && self.last_source >= bulk
    }

    pub(crate) const fn arrivals(&self) -> usize {
        self.arrivals
    }

    /// Returns the time and the bytes of the last totals.
    pub(crate) fn latest(&self) -> Option<(i128, u64)> {
        self.recent.back().copied()
    }

    /// Returns the rate over about the last second, in Mbit/s.
    pub(crate) fn rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else { return 0.0 };
        mbps(last.1.saturating_sub(first.1), last.0 - first.0)
    }

    /// Returns the local time of a release.
    fn released_at(&self, released: u64, offset: &Offset) -> i128 {
        match self.direction {
            Direction::Forward => released.into(),
            Direction::Reverse => offset.ours(released),
        }
    }

    /// Returns the completion time of a message in ns.
    fn took(&self, message: Arrived, offset: &Offset) -> i128 {
        let at = match self.direction {
            Direction::Forward => offset.ours(message.at),
            Direction::Reverse => message.at.into(),
        };
        at - self.released_at(message.released, offset)
    }

    /// Returns release and completion time of each message of a source, in ns.
    ///
    /// The release of a message that never came from the server is not known. It counts as released
    /// with the one before it.
    fn messages(&self, source: usize, offset: &Offset) -> Vec<(i128, Option<i128>)> {
        let arrived = &self.arrived[source];
        let of = |sequence: usize| arrived.get(sequence).copied().flatten();
        if self.direction == Direction::Forward {
            let released = self.released.times(source);
            let message = |(sequence, at): (usize, u64)| {
                (at.into(), of(sequence).map(|message| self.took(message, offset)))
            };
            return released.into_iter().enumerate().map(message).collect();
        }
        let most = self.load.most_messages(&self.load.sources[source]);
        let reported = self.reported.get(source).copied().unwrap_or(0);
        // The server's count is trusted no further than the load goes.
        let reported = usize::try_from(most.min(reported.into())).unwrap_or(0);
        let mut before = self.counted.begin;
        let message = |sequence: usize| {
            let message = of(sequence);
            before = message.map_or(before, |message| self.released_at(message.released, offset));
            (before, message.map(|message| self.took(message, offset)))
        };
        (0..reported.max(arrived.len())).map(message).collect()
    }

    /// Returns the result of the connection with this number. In a run that was cut short, a missing
    /// message might still have arrived, so it is not counted as infinite.
    pub(crate) fn outcome(&self, connection: usize, offset: &Offset, cut: bool, raw: bool) -> Flow {
        let sources = self.load.sources.iter().enumerate().map(|(index, spec)| {
            let mut messages = self.messages(index, offset);
            messages.retain(|(released, _)| *released >= self.counted.from);
            let took = |took: Option<i128>| took.map(|took| took as f64 / 1e6);
            let all = |(_, time): &(i128, Option<i128>)| took(*time).or((!cut).then_some(f64::INFINITY));
            let row = |(released, time): &(i128, Option<i128>)| {
                ((released - self.counted.begin) as f64 / 1e9, took(*time))
            };
            SourceOutcome {
                spec: *spec,
                sent: messages.len(),
                mct_ms: messages.iter().filter_map(all).collect::<Samples>(),
                raw: raw.then(|| messages.iter().map(row).collect()),
            }
        });
        let mut flow = Flow {
            direction: self.direction,
            sources: sources.collect(),
            seconds: 0.0,
            mbit_per_s: [0.0; Priority::COUNT],
            lanes: self.lanes.outcome(connection),
            intervals: self.intervals.finished().to_vec(),
        };
        if let (Some((from, before)), Some((to, after))) = (&self.first, &self.last) {
            flow.seconds = (to - from) as f64 / 1e9;
            let priorities = self.load.sources.iter().map(|source| source.priority);
            let priorities = priorities.chain(self.load.bulk.map(|bulk| bulk.spec.priority));
            for (priority, (after, before)) in priorities.zip(after.iter().zip(before)) {
                let gained = after.bytes.saturating_sub(before.bytes);
                flow.mbit_per_s[priority.index()] += mbps(gained, to - from);
            }
        }
        flow
    }
}

fn mbps(bytes: u64, ns: i128) -> f64 {
    if ns <= 0 { 0.0 } else { bytes as f64 * 8e3 / ns as f64 }
}

#[cfg(test)]
mod tests {
    use marcato_units::Bytes;

    use super::super::clock::Exchange;
    use super::super::scheduler::StreamName;
    use super::*;

    /// Clock of a server that is ahead by this much, over a round trip of 20 ns.
    fn ahead(by: u64) -> Offset {
        let mut offset = Offset::new(false);
        let exchange = Exchange { sent: 0, received: by + 10, answered: by + 10, returned: 20 };
        offset.learn(exchange);
        offset
    }

    fn measured(direction: Direction) -> Measured {
        let load = Load {
            stream: StreamName::Cats,
            duration: Duration::from_secs(1),
            seed: 1,
            sources: vec!["100ms:1kB".parse().unwrap()],
            bulk: Some(super::super::load::BulkLoad {
                spec: "p4".parse().unwrap(),
                bitrate: None,
                bytes: None,
                unreliable: false,
            }),
        };
        let counted = Counted { begin: 1000, from: 2000, to: 1_000_001_000 };
        let intervals = Intervals::new(None, Duration::ZERO);
        Measured::new(direction, load, counted, intervals)
    }

    fn totals(bytes: u64) -> [Total; 2] {
        [Total { messages: 1, bytes: 1000 }, Total { messages: 1, bytes }]
    }

    #[test]
    fn each_direction_converts_the_clock_of_the_other_end() {
        let offset = ahead(5_000_000_000);
        let mut forward = measured(Direction::Forward);
        forward.released.push(0, 3000, Bytes::kb(1));
        forward.forward_arrival(0, 0, 5_001_003_000, &offset);
        let mut reverse = measured(Direction::Reverse);
        reverse.reverse_arrival(0, 0, 5_000_003_000, 1_003_000, &offset);
        reverse.reported(vec![1, 9], true);
        for one in [forward, reverse] {
            assert!(one.is_complete(0), "{}", one.direction);
            let flow = one.outcome(1, &offset, false, true);
            // Released 2 µs after the beginning, and complete 1 ms later.
            assert_eq!(flow.sources[0].raw, Some(vec![(2e-6, Some(1.0))]), "{}", one.direction);
        }
    }

    #[test]
    fn messages_that_never_came_from_a_server_count_as_sent() {
        let offset = ahead(0);
        let mut reverse = measured(Direction::Reverse);
        reverse.reverse_arrival(0, 0, 1500, 1600, &offset);
        reverse.reverse_arrival(0, 2, 3000, 4000, &offset);
        reverse.reported(vec![5], false);
        assert!(!reverse.is_complete(0));
        let source = reverse.outcome(1, &offset, false, true).sources.remove(0);
        // Messages 0 and 1 are of the warm-up; 3 and 4 are missing.
        assert_eq!(source.sent, 3);
        assert_eq!(source.mct_ms.sorted(), [0.001, f64::INFINITY, f64::INFINITY]);
        assert_eq!(source.raw.unwrap().iter().filter(|(_, took)| took.is_none()).count(), 2);
        assert_eq!(reverse.outcome(1, &offset, true, false).sources[0].mct_ms.sorted(), [0.001]);
    }

    #[test]
    fn a_server_cannot_claim_more_messages_than_were_asked_for() {
        let offset = ahead(0);
        let mut reverse = measured(Direction::Reverse);
        for (source, sequence) in [(0, 11), (0, u64::MAX), (1, 0), (9, 0)] {
            reverse.reverse_arrival(source, sequence, 0, 0, &offset);
        }
        reverse.reverse_arrival(0, 10, 5000, 5000, &offset);
        reverse.reverse_arrival(0, 10, 5000, 9000, &offset);
        assert_eq!(reverse.arrivals(), 1);
        reverse.reported(vec![u64::MAX; 64], true);
        assert!(reverse.outcome(1, &offset, false, false).sources[0].sent <= 11);
        let mut forward = measured(Direction::Forward);
        forward.forward_arrival(0, 0, 0, &offset);
        assert_eq!(forward.arrivals(), 0, "it was never sent");
    }

    #[test]
    fn throughput_is_of_the_time_between_warm_up_and_end() {
        let mut forward = measured(Direction::Forward);
        for (at, bytes) in [(1500, 70), (2000, 1000), (500_000_000, 9000), (1_000_002_000, 2000)] {
            forward.totals(at, &totals(bytes));
            if at == 500_000_000 {
                let flow = forward.outcome(1, &ahead(0), false, false);
                assert!((flow.seconds - 0.499_998).abs() < 1e-9);
                let expected = 8000.0 * 8e3 / 499_998_000.0;
                assert!((flow.mbit_per_s[Priority::P4.index()] - expected).abs() < 1e-9);
            }
        }
        assert!(forward.last.as_ref().is_some_and(|(at, _)| *at == 500_000_000), "later totals do not count");
    }
}
