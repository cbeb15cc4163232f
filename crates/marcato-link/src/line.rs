//! Line of a link: the packets in flight.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use marcato_units::Time;

/// Place of an arrival in the order of a link's events: first by time.
pub trait Moment: Copy + Ord {
    /// Time of the arrival.
    fn at(self) -> Time;
}

/// Arrivals at one time are in the order of their numbers.
impl Moment for (Time, u64) {
    fn at(self) -> Time {
        self.0
    }
}

/// Packets in flight by their moments. An agenda of events needs the first of them alone. Where packets
/// overtake one another, those that were first for a time are in it as well.
pub(crate) enum Line<M, P> {
    /// Packets arrive in the order in which they left: O(1) per operation.
    InOrder(VecDeque<(M, P)>),
    /// Packets may overtake one another: O(log n) for n packets in flight.
    Reordered(BinaryHeap<InFlight<M, P>>),
}

/// Packet that may be overtaken.
pub(crate) struct InFlight<M, P> {
    moment: M,
    /// True if its arrival is in the agenda.
    entered: bool,
    packet: P,
}

impl<M: Ord, P> PartialEq for InFlight<M, P> {
    fn eq(&self, other: &Self) -> bool {
        self.moment == other.moment
    }
}

impl<M: Ord, P> Eq for InFlight<M, P> {}

impl<M: Ord, P> PartialOrd for InFlight<M, P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M: Ord, P> Ord for InFlight<M, P> {
    fn cmp(&self, other: &Self) -> Ordering {
        // `BinaryHeap` pops its greatest entry; the line needs the earliest.
        other.moment.cmp(&self.moment)
    }
}

impl<M: Moment, P> Line<M, P> {
    pub(crate) fn new(reorder: bool) -> Self {
        if reorder { Self::Reordered(BinaryHeap::new()) } else { Self::InOrder(VecDeque::new()) }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::InOrder(line) => line.len(),
            Self::Reordered(line) => line.len(),
        }
    }

    /// Returns the moment of the next arrival.
    pub(crate) fn first(&self) -> Option<M> {
        match self {
            Self::InOrder(line) => line.front().map(|(moment, _)| *moment),
            Self::Reordered(line) => line.peek().map(|first| first.moment),
        }
    }

    /// Returns the arrival of the last packet if packets arrive in order; `None` if there is none.
    pub(crate) fn last_in_order(&self) -> Option<Time> {
        match self {
            Self::InOrder(line) => line.back().map(|(moment, _)| moment.at()),
            Self::Reordered(_) => None,
        }
    }

    /// Allows packets to overtake one another from now on.
    pub(crate) fn allow_reordering(&mut self) {
        if let Self::InOrder(line) = self {
            // Only the arrival of the first is in the agenda.
            let in_flight = line.drain(..).enumerate();
            let heap =
                in_flight.map(|(place, (moment, packet))| InFlight { moment, entered: place == 0, packet });
            *self = Self::Reordered(heap.collect());
        }
    }

    /// Adds a packet. Returns its moment if it must be entered in the agenda.
    #[inline]
    pub(crate) fn push(&mut self, moment: M, packet: P) -> Option<M> {
        match self {
            Self::InOrder(line) => {
                let first = line.is_empty();
                line.push_back((moment, packet));
                first.then_some(moment)
            }
            Self::Reordered(line) => {
                let entered = line.peek().is_none_or(|first| moment < first.moment);
                line.push(InFlight { moment, entered, packet });
                entered.then_some(moment)
            }
        }
    }

    /// Removes the first packet, which arrives now. Returns it with the moment of the next, if that
    /// must be entered in the agenda.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(P, Option<M>)> {
        match self {
            Self::InOrder(line) => {
                let (_, packet) = line.pop_front()?;
                Some((packet, line.front().map(|&(moment, _)| moment)))
            }
            Self::Reordered(line) => {
                let InFlight { packet, .. } = line.pop()?;
                let next = match line.peek_mut() {
                    // The heap's order ignores this flag, so it may change in place.
                    Some(mut next) if !next.entered => {
                        next.entered = true;
                        Some(next.moment)
                    }
                    _ => None,
                };
                Some((packet, next))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each event of an agenda finds its packet, under any order of overtaking.
        #[test]
        fn packets_come_off_the_line_by_their_moments(
            steps in prop::collection::vec((0u64..100, 0u64..20), 1..60), in_order in any::<bool>(),
        ) {
            let mut agenda = BTreeSet::new();
            let mut line = Line::new(!in_order);
            let (mut now, mut last) = (0, 0);
            let mut expected = Vec::new();
            let mut arrived = Vec::new();
            let mut run = |line: &mut Line<(Time, u64), u64>, agenda: &mut BTreeSet<(Time, u64)>, until| {
                while let Some(moment) = agenda.first().copied().filter(|moment| moment.0 <= until) {
                    agenda.remove(&moment);
                    assert_eq!(line.first(), Some(moment));
                    let (packet, next) = line.pop().expect("an event has its packet");
                    arrived.push((moment.0, packet));
                    agenda.extend(next);
                }
            };
            for (number, (delay, gap)) in (0u64..).zip(steps) {
                run(&mut line, &mut agenda, Time::from_nanos(now));
                let at = if in_order { last.max(now + delay) } else { now + delay };
                last = at;
                expected.push((Time::from_nanos(at), number));
                agenda.extend(line.push((Time::from_nanos(at), number), number));
                now += gap;
            }
            run(&mut line, &mut agenda, Time::MAX);
            prop_assert_eq!(line.len(), 0);
            expected.sort();
            prop_assert_eq!(arrived, expected);
        }
    }
}
