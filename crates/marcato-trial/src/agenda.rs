//! Events to come, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use marcato_sim::Side;
use marcato_units::Time;

/// Event of a flow or process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A flow begins.
    Start(usize),
    /// A packet of a UDP flow leaves.
    Packet(usize),
    /// A timer of an application: flow, whether it is the server's, and the token.
    App(usize, bool, u32),
    /// A timer of a host of datagrams: flow, and whether it is the server's.
    Host(usize, bool),
    /// A flow of a process arrives.
    Spawn(usize),
}

/// Returns the side of an event.
pub(crate) const fn side(is_server: bool) -> Side {
    if is_server { Side::Server } else { Side::Client }
}

/// Queue of events. Those of one instant come in the order in which they were entered. O(log n).
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    entered: u64,
}

impl Agenda {
    /// Enters an event.
    pub(crate) fn enter(&mut self, at: Time, event: Event) {
        self.heap.push(Reverse((at, self.entered, event)));
        self.entered += 1;
    }

    /// Time of the next event.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next event if it is due.
    pub(crate) fn take(&mut self, now: Time) -> Option<(Time, Event)> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_when_due_and_in_order() {
        let mut agenda = Agenda::default();
        agenda.enter(Time::from_millis(2), Event::Start(1));
        agenda.enter(Time::from_millis(1), Event::Packet(7));
        agenda.enter(Time::from_millis(2), Event::Start(0));
        assert_eq!(agenda.next(), Some(Time::from_millis(1)));
        assert_eq!(agenda.take(Time::from_micros(999)), None);
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take(Time::from_millis(2))).collect();
        let at = Time::from_millis;
        assert_eq!(taken, [(at(1), Event::Packet(7)), (at(2), Event::Start(1)), (at(2), Event::Start(0))]);
    }
}
