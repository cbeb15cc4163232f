//! What happens next: the total order of events.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use marcato_units::Time;

/// The place of an event in the total order: first by time, then by when it was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) at: Time,
    entered: u64,
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
        // `BinaryHeap` yields its greatest; ours is the earliest.
        other.moment.cmp(&self.moment)
    }
}

/// Events in total order of (time, insertion).
///
/// The heap stays small whatever the traffic: a link holds its packets in flight in a line of its own and enters
/// only the first of them here, so a step costs O(log (links + timers)), not O(log packets).
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Entry<E>>,
    entered: u64,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), entered: 0 }
    }

    /// Takes the next place in the order at `at`, for an event that may be entered later by [`enter`](Self::enter).
    pub(crate) fn reserve(&mut self, at: Time) -> Moment {
        self.entered += 1;
        Moment { at, entered: self.entered }
    }

    /// Enters an event at a place reserved before.
    pub(crate) fn enter(&mut self, moment: Moment, event: E) {
        self.heap.push(Entry { moment, event });
    }

    /// Enters an event at `at`, after everything already entered for that time.
    pub(crate) fn at(&mut self, at: Time, event: E) {
        let moment = self.reserve(at);
        self.enter(moment, event);
    }

    /// The time of the next event.
    #[cfg(test)]
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.moment.at)
    }

    /// Takes the next event out, unless it comes after `limit`.
    pub(crate) fn pop_until(&mut self, limit: Time) -> Option<(Time, E)> {
        if self.heap.peek()?.moment.at > limit {
            return None;
        }
        self.heap.pop().map(|entry| (entry.moment.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
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
}
