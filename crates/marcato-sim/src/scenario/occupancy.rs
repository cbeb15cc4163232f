//! Backlog before a transmitter over time.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_queue::{Backlog, Class, Counters, Crq, Discipline, Verdict};
use marcato_units::{Bytes, Time};

use super::outcome::Waiting;
use crate::Load;
use crate::packet::Packet;

/// Integral of the backlog over time.
#[derive(Debug, Default)]
pub(super) struct Occupancy {
    /// Beginning of the integral.
    from: Time,
    /// Time up to which it is computed.
    upto: Time,
    /// Backlog since then, of each queue.
    now: [Backlog; 2],
    /// Packets times nanoseconds. `bytes` is in bytes times nanoseconds.
    packets: u128,
    bytes: u128,
    most: Backlog,
    /// Bytes offered since the beginning to queues that judge flows: of responsive flows, and of
    /// all. `None` if no queue judges.
    judged: Option<[Bytes; 2]>,
}

impl Occupancy {
    /// Advances the integral to `now`, before the backlog changes.
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

    /// Restarts the integral at `now`.
    pub(super) fn restart(&mut self, now: Time) {
        *self = Self {
            from: now,
            upto: now,
            now: self.now,
            most: self.now[0] + self.now[1],
            judged: self.judged,
            ..Self::default()
        };
    }

    /// Returns the bytes offered since the beginning to queues that judge flows: of responsive
    /// flows, and of all.
    pub(super) const fn judged(&self) -> Option<[Bytes; 2]> {
        self.judged
    }

    /// Returns the summary of the backlog until `now`.
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

/// Queue that may judge flows.
pub(super) trait Judge {
    /// Returns the bytes offered to the queue so far: of responsive flows, and of all. `None` if it
    /// judges no flows.
    fn judged(&self) -> Option<[Bytes; 2]> {
        None
    }
}

impl Judge for Box<dyn Discipline<Packet> + Send> {}

impl Judge for Crq<Packet> {
    fn judged(&self) -> Option<[Bytes; 2]> {
        let responsive = self.class(Class::Responsive);
        let answered = responsive.map_or(Bytes::ZERO, |class| class.counters.enqueued.bytes);
        Some([answered, self.counters().enqueued.bytes])
    }
}

/// Queue whose backlog is recorded.
pub(super) struct Observed<Q> {
    queue: Q,
    /// Result of [`Judge::judged`] at the last record.
    judged: [Bytes; 2],
    /// Index among the queues of its transmitter.
    place: usize,
    occupancy: Rc<RefCell<Occupancy>>,
}

impl<Q: Discipline<Packet> + Judge> Observed<Q> {
    /// Wraps one of the two queues of a transmitter; both record into `occupancy`.
    pub(super) fn new(queue: Q, place: usize, occupancy: &Rc<RefCell<Occupancy>>) -> Self {
        Self { queue, judged: Default::default(), place, occupancy: Rc::clone(occupancy) }
    }

    fn note(&self, now: Time) {
        let mut occupancy = self.occupancy.borrow_mut();
        occupancy.advance(now);
        occupancy.set(self.place, self.queue.backlog());
    }
}

impl<Q: Discipline<Packet> + Judge> Discipline<Packet> for Observed<Q> {
    fn enqueue_with(
        &mut self,
        now: Time,
        packet: Packet,
        on_drop: &mut dyn FnMut(Packet),
    ) -> Verdict<Packet> {
        let verdict = self.queue.enqueue_with(now, packet, on_drop);
        self.note(now);
        if let Some(judged) = self.queue.judged() {
            let mut occupancy = self.occupancy.borrow_mut();
            let total = occupancy.judged.get_or_insert_default();
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
}

/// Greatest relative rounding error of a full link's utilisation.
const ROUNDING: f64 = 1e-9;

/// Returns the share of a link's capacity that was used between two times; `None` if the capacity
/// was unbounded or zero.
pub(super) fn utilisation(before: Load, now: Load) -> Option<f64> {
    let (carried, capacity) = (now.carried - before.carried, now.capacity - before.capacity);
    if !capacity.is_finite() || capacity <= 0.0 {
        return None;
    }
    let share = carried / capacity;
    // Both are sums of many floats, so only their rounding errors are removed.
    Some(if share > 1.0 && share < 1.0 + ROUNDING {
        1.0
    } else if share < 0.0 && share > -ROUNDING {
        0.0
    } else {
        share
    })
}

#[cfg(test)]
mod tests {
    use marcato_units::Bytes;

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
    fn zero_or_infinite_capacity_has_no_utilisation() {
        let load = |carried, capacity| Load { carried, capacity };
        assert_eq!(utilisation(load(5.0, 10.0), load(10.0, 20.0)), Some(0.5));
        assert_eq!(utilisation(load(5.0, 10.0), load(5.0, 10.0)), None);
        assert_eq!(utilisation(load(5.0, f64::INFINITY), load(8.0, f64::INFINITY)), None);
    }
}
