//! Agenda of future events, in total order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use marcato_units::Time;

/// Place of an event in the total order: first by time, then by order of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) at: Time,
    entered: u64,
}

impl marcato_link::Moment for Moment {
    fn at(self) -> Time {
        self.at
    }
}

struct Entry<E> {
    moment: Moment,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.moment == other.moment
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        // `BinaryHeap` pops its greatest entry; the agenda needs the earliest.
        other.moment.cmp(&self.moment)
    }
}

/// Events in total order of (time, insertion).
///
/// The heap stays small whatever the traffic. A link holds its packets in flight in a line of its
/// own and enters only the first of them here. So a step costs O(log (links + timers)), not O(log
/// packets).
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Entry<E>>,
    entered: u64,
    /// True if the first entry has been popped, but not yet removed from the heap. Most events
    /// enter another, as an arrival enters that of the next packet on its line. The new entry
    /// replaces the old one in place, and the heap is reordered once instead of twice.
    vacant: bool,
}

impl<E: Copy> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), entered: 0, vacant: false }
    }

    /// Reserves the next place in the order at `at`, for an event that [`enter`](Self::enter) may
    /// enter later.
    pub(crate) fn reserve(&mut self, at: Time) -> Moment {
        self.entered += 1;
        Moment { at, entered: self.entered }
    }

    /// Enters an event at a reserved place.
    pub(crate) fn enter(&mut self, moment: Moment, event: E) {
        let entry = Entry { moment, event };
        if std::mem::take(&mut self.vacant)
            && let Some(mut first) = self.heap.peek_mut()
        {
            *first = entry;
        } else {
            self.heap.push(entry);
        }
    }

    /// Enters an event at `at`, after all events already entered for that time.
    pub(crate) fn at(&mut self, at: Time, event: E) {
        let moment = self.reserve(at);
        self.enter(moment, event);
    }

    /// Returns the time of the next event.
    #[cfg(test)]
    pub(crate) fn next_at(&mut self) -> Option<Time> {
        self.close();
        self.heap.peek().map(|entry| entry.moment.at)
    }

    /// Pops the next event, unless it comes after `limit`.
    pub(crate) fn pop_until(&mut self, limit: Time) -> Option<(Time, E)> {
        self.close();
        let &Entry { moment: Moment { at, .. }, event } = self.heap.peek()?;
        if at > limit {
            return None;
        }
        self.vacant = true;
        Some((at, event))
    }

    /// Removes the popped entry from the heap, unless another event has replaced it.
    fn close(&mut self) {
        if std::mem::take(&mut self.vacant) {
            self.heap.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use marcato_units::Duration;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_insertion() {
        let mut agenda = Agenda::new();
        agenda.at(Time::from_millis(2), 'c');
        let early = agenda.reserve(Time::from_millis(1));
        agenda.at(Time::from_millis(1), 'b');
        agenda.enter(early, 'a');
        assert_eq!(agenda.next_at(), Some(Time::from_millis(1)));
        let mut order = Vec::new();
        while let Some((_, event)) = agenda.pop_until(Time::MAX) {
            order.push(event);
        }
        assert_eq!(order, ['a', 'b', 'c']);
    }

    #[test]
    fn nothing_beyond_the_limit_is_taken() {
        let mut agenda = Agenda::new();
        agenda.at(Time::from_millis(2), ());
        assert_eq!(agenda.pop_until(Time::from_millis(1)), None);
        assert_eq!(agenda.pop_until(Time::from_millis(2)), Some((Time::from_millis(2), ())));
    }

    proptest! {
        /// An event may enter none, one or several, at its own time or later.
        #[test]
        fn events_pop_by_time_then_entry_order_while_events_add_others(
            entered in prop::collection::vec(prop::collection::vec(0u64..4, 0..3), 1..200),
        ) {
            let mut agenda = Agenda::new();
            // Ordered by time, and then by number, which follows the order of entry.
            let mut expected = BTreeSet::new();
            let mut number = 0u64;
            let mut enter = |agenda: &mut Agenda<u64>, expected: &mut BTreeSet<_>, at| {
                number += 1;
                agenda.at(at, number);
                expected.insert((at, number));
            };
            for delay in 0..4 {
                enter(&mut agenda, &mut expected, Time::from_nanos(delay));
            }
            let mut entered = entered.into_iter();
            while let Some(event) = agenda.pop_until(Time::MAX) {
                prop_assert_eq!(Some(event), expected.pop_first());
                for delay in entered.next().unwrap_or_default() {
                    enter(&mut agenda, &mut expected, event.0 + Duration::from_nanos(delay));
                }
            }
            prop_assert!(expected.is_empty());
        }
    }
}
