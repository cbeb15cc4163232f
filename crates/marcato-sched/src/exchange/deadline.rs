//! Deadlines of responses.

use marcato_units::{Bytes, Duration, Priority, Rate, Time};

use super::Exchange;
use super::grant::Late;
use super::group::Grouping;
use super::ready::{Rank, Slot};

/// Time by which a response has to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadline {
    /// Time by which its last byte has to arrive.
    pub at: Time,
    /// True if the response is closed once it cannot arrive in time. Otherwise that is only reported.
    pub drops: bool,
}

/// Place of a response in the order, for all of them to be sorted.
///
/// In order of: level; urgency and group, the one that stands above first; order; sequential before
/// incremental; turn.
type OrderKey = (Priority, u64, u64, u64, bool, Rank);

/// Response in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct InOrder {
    key: OrderKey,
    slot: Slot,
}

/// Bytes that precede a response for certain, summed while the order is walked through.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    /// Granted and not sent.
    outstanding: Bytes,
    /// Bytes of more urgent levels.
    levels: Bytes,
    /// Bytes of the present level.
    level: Bytes,
    /// Bytes of more urgent urgencies, of the whole level or of the same group if groups stand above.
    urgencies: Bytes,
    /// Bytes of the present urgency.
    urgency: Bytes,
    /// Bytes of greater orders of the same group.
    orders: Bytes,
    /// Bytes of the same order, of which the sequential ones come first.
    order: Bytes,
}

impl Ahead {
    /// Goes on to the response at `next`.
    fn advance(
        &mut self,
        before: OrderKey,
        next: OrderKey,
        grouping: Grouping,
        certain: impl FnOnce(Bytes) -> Bytes,
    ) {
        let zero = Bytes::ZERO;
        if before.0 != next.0 {
            self.levels += certain(self.level);
            (self.level, self.urgencies, self.urgency) = (zero, zero, zero);
        } else if grouping == Grouping::AboveUrgency && before.1 != next.1 {
            // Another group, which shares with the one before.
            (self.urgencies, self.urgency) = (zero, zero);
        } else if match grouping {
            Grouping::WithinUrgency => before.1 != next.1,
            Grouping::AboveUrgency => before.2 != next.2,
        } {
            self.urgencies += self.urgency;
            self.urgency = zero;
        }
        if (before.0, before.1, before.2) != (next.0, next.1, next.2) {
            (self.orders, self.order) = (zero, zero);
        } else if before.3 != next.3 {
            self.orders += self.order;
            self.order = zero;
        }
    }

    /// Bytes ahead of a response.
    fn of(&self, incremental: bool) -> Bytes {
        let turns = if incremental { Bytes::ZERO } else { self.order };
        self.outstanding + self.levels + self.urgencies + self.orders + turns
    }

    /// Adds the bytes of a response.
    fn add(&mut self, bytes: Bytes) {
        self.level += bytes;
        self.urgency += bytes;
        self.order += bytes;
    }
}

/// Deadlines.
impl Exchange {
    /// Reports each response that cannot arrive by its [deadline](super::ResponseMut::set_deadline), and closes it
    /// if the deadline says so. Each is reported once, before bytes of it are granted that would be in vain.
    ///
    /// Granted bytes leave at `rate`, and arrive after `delay`, the one-way delay. At [`Rate::ZERO`] the rate
    /// is unknown, and bytes take no time.
    ///
    /// Returns the earliest time at which another response may be late if nothing is granted until then;
    /// `None` if no response has a deadline left. Call it then, before grants, and when the rate has fallen.
    ///
    /// # Bytes ahead
    /// A response is late if its staged bytes and those ahead of it do not arrive in time. Ahead are those
    /// that leave before it for certain:
    /// - all that is outstanding;
    /// - what is staged on more urgent levels, of each as much as it may send before it is in debt;
    /// - what is staged at more urgent urgencies of its level, or of its group if groups stand above;
    /// - what is staged in its group at greater orders;
    /// - if it is sequential, also the sequential ones of its order that come first.
    ///
    /// Held responses do not count, nor do other groups of its urgency and those that take turns with it. So
    /// nothing is reported that could still arrive, unless a response ahead is held, closed or moved. One that
    /// is held, or waits for bytes, has no bytes ahead.
    ///
    /// # Cost
    /// Constant while no open response has a deadline to be reported. Otherwise O(n log n) for n open
    /// responses, in memory that is kept, of at most 64 bytes for each.
    pub fn expire(
        &mut self,
        now: Time,
        rate: Rate,
        delay: Duration,
        mut report: impl FnMut(Late),
    ) -> Option<Time> {
        if self.deadlines == 0 {
            return None;
        }
        let mut order = core::mem::take(&mut self.in_order);
        order.clear();
        order.extend(self.table.open().map(|slot| InOrder { key: self.order_key(slot), slot }));
        order.sort_unstable_by_key(|entry| entry.key);

        let (mut next, mut before) = (None, None);
        let mut ahead = Ahead { outstanding: self.outstanding, ..Ahead::default() };
        for &InOrder { key, slot } in &order {
            if let Some(before) = before.replace(key) {
                ahead.advance(before, key, self.config.grouping, |staged| self.certain(before.0, staged));
            }
            let record = &self.table[slot];
            let (staged, incremental, waits) =
                (record.staged, record.parameters.incremental, record.place.is_some());
            if let Some(deadline) = record.deadline.filter(|_| !record.reported && !record.ended) {
                let bytes = staged + if waits { ahead.of(incremental) } else { Bytes::ZERO };
                let time = if rate == Rate::ZERO { Duration::ZERO } else { rate.transmission_time(bytes) };
                let left = time.saturating_add(delay);
                if now + left > deadline.at {
                    let (stream, begun) = (record.stream, !record.granted.is_zero());
                    self.table[slot].reported = true;
                    self.deadlines -= 1;
                    self.counters.late += 1;
                    let closed = if deadline.drops { self.close(stream) } else { None };
                    if let Some(closed) = closed {
                        self.counters.expired += 1;
                        ahead.outstanding -= closed.returned;
                    }
                    report(Late { stream, arrival: now + left, begun, closed });
                    if closed.is_some() {
                        continue;
                    }
                } else {
                    // A nanosecond later it is late.
                    let at = Time::from_nanos(
                        deadline.at.as_nanos().saturating_sub(nanos(left)).saturating_add(1),
                    );
                    next = Some(next.map_or(at, |next: Time| next.min(at)));
                }
            }
            if waits {
                ahead.add(staged);
            }
        }
        self.in_order = order;
        next
    }

    /// Number of open responses with a deadline that were not reported.
    pub const fn deadlines(&self) -> usize {
        self.deadlines
    }

    /// Bytes that a level sends before a less urgent one for certain: until it is in debt.
    fn certain(&self, level: Priority, staged: Bytes) -> Bytes {
        match self.rules.watermarks[level.index()] {
            Some(_) if self.is_in_debt(level) => Bytes::ZERO,
            Some(watermarks) => staged.min(watermarks.high - self.debt(level)),
            None => staged,
        }
    }

    fn order_key(&self, slot: Slot) -> OrderKey {
        let record = &self.table[slot];
        let (urgency, group) = (u64::from(record.parameters.urgency.get()), record.parameters.group.0);
        let (first, second) = match self.config.grouping {
            Grouping::WithinUrgency => (urgency, group),
            Grouping::AboveUrgency => (group, urgency),
        };
        let level = record.parameters.level_in(&self.config.levels);
        (level, first, second, record.rank().order(), record.parameters.incremental, record.rank())
    }
}

/// Nanoseconds of a span, at most those of [`Time::MAX`].
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
