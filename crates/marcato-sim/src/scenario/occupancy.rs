//! What waits before a transmitter, over time.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_queue::{Backlog, Counters, Discipline, Verdict};
use marcato_units::{Bytes, Duration, Rate, Time};

use super::outcome::Waiting;
use crate::Trace;
use crate::packet::Packet;

/// How much waited, summed over time.
#[derive(Debug, Default)]
pub(super) struct Occupancy {
    /// From when on.
    from: Time,
    /// Up to when it is summed.
    upto: Time,
    /// What has waited since, in each of the queues.
    now: [Backlog; 2],
    /// Packets times nanoseconds, and bytes times nanoseconds.
    packets: u128,
    bytes: u128,
    most: Backlog,
}

impl Occupancy {
    /// Something may change at `now`.
    fn advance(&mut self, now: Time) {
        let span = now.since(self.upto).as_nanos();
        let waited = self.now[0] + self.now[1];
        self.packets += u128::from(waited.packets) * span;
        self.bytes += u128::from(waited.bytes.get()) * span;
        self.upto = self.upto.max(now);
    }

    fn set(&mut self, queue: usize, backlog: Backlog) {
        self.now[queue] = backlog;
        let backlog = self.now[0] + self.now[1];
        self.most.packets = self.most.packets.max(backlog.packets);
        self.most.bytes = self.most.bytes.max(backlog.bytes);
    }

    /// Forgets what was before `now`.
    pub(super) fn restart(&mut self, now: Time) {
        *self =
            Self { from: now, upto: now, now: self.now, most: self.now[0] + self.now[1], ..Self::default() };
    }

    /// What has waited until `now`.
    pub(super) fn until(&mut self, now: Time) -> Waiting {
        self.advance(now);
        let span = self.upto.since(self.from).as_nanos() as f64;
        let mean = |sum: u128| if span > 0.0 { sum as f64 / span } else { 0.0 };
        Waiting {
            mean_packets: mean(self.packets),
            mean_bytes: mean(self.bytes),
            most_packets: self.most.packets,
            most_bytes: self.most.bytes,
        }
    }
}

/// A queue that is looked at.
pub(super) struct Observed<Q> {
    pub(super) queue: Q,
    /// Which of the queues of its transmitter it is.
    place: usize,
    occupancy: Rc<RefCell<Occupancy>>,
}

impl<Q: Discipline<Packet>> Observed<Q> {
    /// One of the two queues that a transmitter may have; what is seen of both goes into `occupancy`.
    pub(super) fn new(queue: Q, place: usize, occupancy: &Rc<RefCell<Occupancy>>) -> Self {
        Self { queue, place, occupancy: Rc::clone(occupancy) }
    }

    fn note(&self, now: Time) {
        let mut occupancy = self.occupancy.borrow_mut();
        occupancy.advance(now);
        occupancy.set(self.place, self.queue.backlog());
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
}

/// What a link could carry over time.
#[derive(Clone, Debug)]
pub(super) struct Course {
    /// From when on which rate holds, ascending; `None` is without bound.
    steps: Vec<(Time, Option<Rate>)>,
    /// In the rates' place, but for the times at which they are zero: a trace's opportunities pass then, too, and count.
    trace: Option<Trace>,
}

impl Course {
    /// A course that begins with this rate.
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self { steps: vec![(Time::ZERO, rate)], trace: None }
    }

    /// A course by a trace.
    pub(super) fn of_trace(trace: Option<Trace>) -> Self {
        Self { trace, ..Self::new(None) }
    }

    /// The rate is another from `at` on; calls are made in order of time.
    pub(super) fn change(&mut self, at: Time, rate: Rate) {
        self.steps.push((at, Some(rate)));
    }

    /// Bytes that could be carried in a span; `None` without a bound.
    pub(super) fn capacity(&self, from: Time, until: Time) -> Option<f64> {
        if let Some(trace) = &self.trace {
            let count = opportunities(trace, until).saturating_sub(opportunities(trace, from));
            return Some(count as f64 * Trace::OPPORTUNITY.get() as f64);
        }
        let ends = self.steps.iter().skip(1).map(|&(at, _)| at).chain([Time::MAX]);
        let mut bits = 0.0;
        for (&(at, rate), end) in self.steps.iter().zip(ends) {
            let span: Duration = end.min(until).since(at.max(from));
            if !span.is_zero() {
                bits += rate?.as_bps() as f64 * span.as_secs_f64();
            }
        }
        Some(bits / 8.0)
    }
}

/// How many opportunities a trace has had up to `at`.
fn opportunities(trace: &Trace, at: Time) -> u64 {
    let millis = at.as_nanos() / 1_000_000;
    let period = u64::try_from(trace.period().as_millis()).unwrap_or(u64::MAX).max(1);
    let rest = trace.millis().partition_point(|&at| u64::from(at) <= millis % period);
    (millis / period) * trace.millis().len() as u64 + rest as u64
}

/// What of it was used; `None` if there was no bound, or nothing to use.
pub(super) fn utilisation(carried: Bytes, capacity: Option<f64>) -> Option<f64> {
    capacity.filter(|&capacity| capacity > 0.0).map(|capacity| carried.get() as f64 / capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn what_waits_is_weighed_by_how_long_it_does() {
        let mut seen = Occupancy::default();
        seen.set(0, Backlog { packets: 2, bytes: Bytes::kb(3) });
        seen.advance(ms(10));
        seen.set(0, Backlog { packets: 1, bytes: Bytes::kb(1) });
        let waiting = seen.until(ms(40));
        assert_eq!((waiting.mean_packets, waiting.mean_bytes), (1.25, 1500.0));
        assert_eq!((waiting.most_packets, waiting.most_bytes), (2, Bytes::kb(3)));
        seen.restart(ms(40));
        let waiting = seen.until(ms(50));
        assert_eq!((waiting.mean_packets, waiting.most_packets), (1.0, 1));
        seen.set(1, Backlog { packets: 3, bytes: Bytes::kb(3) });
        let waiting = seen.until(ms(60));
        assert_eq!((waiting.mean_packets, waiting.most_packets, waiting.most_bytes), (2.5, 4, Bytes::kb(4)));
    }

    #[test]
    fn capacity_follows_the_changes_of_a_rate() {
        let mut course = Course::new(Some(Rate::from_kbps(8)));
        course.change(ms(2_000), Rate::ZERO);
        course.change(ms(3_000), Rate::from_kbps(16));
        assert_eq!(course.capacity(ms(1_000), ms(4_000)), Some(3_000.0));
        assert_eq!(course.capacity(ms(2_200), ms(2_800)), Some(0.0));
        assert_eq!(Course::new(None).capacity(ms(0), ms(1)), None);
        let trace = Trace::from_millis([0, 5, 10]).unwrap();
        assert_eq!(opportunities(&trace, ms(4)), 1);
        assert_eq!(Course::of_trace(Some(trace)).capacity(ms(4), ms(14)), Some(3.0 * 1504.0));
        assert_eq!(utilisation(Bytes::new(5), Some(0.0)), None);
    }
}
