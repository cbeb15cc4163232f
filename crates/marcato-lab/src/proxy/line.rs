//! Line: one direction of the link that the connections of a proxy share.

use std::collections::VecDeque;

use marcato_link::{Trace, Transmitter};
use marcato_scenario::link::{Added, Capacity, Change, Direction};
use marcato_units::{Bytes, Duration, Rate, Stream, Time};

/// Payload of a segment, and the bytes that TCP and IP add to it.
const SEGMENT: u64 = 1448;
const HEADERS: u64 = 52;

/// One direction of a link for streams of bytes: it delays them and limits their rate, and loses nothing.
///
/// Bytes count with the headers of the segments that TCP would put them in.
#[derive(Debug)]
pub struct Line {
    transmitter: Transmitter,
    rate: Option<Rate>,
    delay: Duration,
    /// Most that is added to the delay.
    jitter: Duration,
    stream: Stream,
    changes: VecDeque<Change>,
}

impl Line {
    /// Creates a line from a direction of a link and its changes. `trace` is the one that it names.
    pub fn new(
        direction: &Direction,
        changes: impl Iterator<Item = Change>,
        trace: Option<Trace>,
        stream: Stream,
    ) -> Self {
        let mean = trace.as_ref().map(Trace::mean_rate);
        let rate = match direction.rate {
            Capacity::Rate(rate) => Some(rate),
            Capacity::Unlimited | Capacity::Trace(_) => None,
        };
        let jitter = match direction.jitter.map(|jitter| jitter.added) {
            Some(Added::Uniform { most, .. }) => most,
            Some(Added::Normal { mean, .. } | Added::Exponential { mean }) => mean,
            None => Duration::ZERO,
        };
        Self {
            transmitter: Transmitter::new(rate, trace),
            rate: rate.or(mean),
            delay: direction.delay,
            jitter,
            stream,
            changes: changes.collect(),
        }
    }

    /// Returns the rate, or the mean rate of its trace; `None` if it sends at once.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Makes the changes that are due. Data that would cross an outage wait for its end, as TCP would send them again.
    fn advance(&mut self, now: Time) {
        while self.changes.front().is_some_and(|change| change.at <= now) {
            let Some(change) = self.changes.pop_front() else { break };
            self.delay = change.delay.unwrap_or(self.delay);
            if let Some(rate) = change.rate {
                self.transmitter.set_rate(change.at, rate);
                self.rate = Some(rate);
            }
            if change.up == Some(false)
                && let Some(again) = self.changes.iter().find(|later| later.up == Some(true))
            {
                self.transmitter.idle_until(again.at);
            }
        }
    }

    /// Sends bytes. Returns the time at which the last one has left, and that of its arrival.
    pub fn send(&mut self, now: Time, bytes: Bytes) -> (Time, Time) {
        self.advance(now);
        let headers = bytes.get().div_ceil(SEGMENT) * HEADERS;
        let left = transmit(&mut self.transmitter, now, bytes + Bytes::new(headers));
        let added = self.jitter.mul_f64(self.stream.unit());
        (left, left + self.delay + added)
    }

    /// Returns the time at which the end of a stream arrives.
    pub fn end(&mut self, now: Time) -> Time {
        self.advance(now);
        now + self.delay
    }
}

/// Sends bytes as soon as a transmitter is free. Returns the time at which they have left.
pub(super) fn transmit(transmitter: &mut Transmitter, now: Time, bytes: Bytes) -> Time {
    transmitter.idle_until(now);
    // With a trace, a refusal moves the time to the next opportunity.
    while !transmitter.may_begin(transmitter.free_at()) {}
    transmitter.begin(transmitter.free_at(), bytes)
}
