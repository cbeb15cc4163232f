//! Line of a link: the packets in flight.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use marcato_units::Time;

use crate::agenda::Moment;
use crate::packet::Packet;

/// Packets in flight, each with its place in the order of events. Only the first to arrive needs an
/// event in the agenda. Where packets overtake one another, those that were first for a time have
/// one too.
pub(crate) enum Line {
    /// Packets arrive in the order in which they left: O(1) per operation.
    InOrder(VecDeque<(Moment, Packet)>),
    /// Packets may overtake one another: O(log n) for n packets in flight.
    Reordered(BinaryHeap<InFlight>),
}

/// Packet that may be overtaken.
pub(crate) struct InFlight {
    moment: Moment,
    /// True if its arrival is in the agenda.
    entered: bool,
    packet: Packet,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.moment == other.moment
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        // `BinaryHeap` pops its greatest entry; the line needs the earliest.
        other.moment.cmp(&self.moment)
    }
}

impl Line {
    pub(crate) fn new(reorder: bool) -> Self {
        if reorder { Self::Reordered(BinaryHeap::new()) } else { Self::InOrder(VecDeque::new()) }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::InOrder(line) => line.len(),
            Self::Reordered(line) => line.len(),
        }
    }

    /// Returns the arrival time of the last packet if packets arrive in order; `None` if there is
    /// none.
    pub(crate) fn last_in_order(&self) -> Option<Time> {
        match self {
            Self::InOrder(line) => line.back().map(|(moment, _)| moment.at),
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
    pub(crate) fn push(&mut self, moment: Moment, packet: Packet) -> Option<Moment> {
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
    pub(crate) fn pop(&mut self) -> Option<(Packet, Option<Moment>)> {
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
    use super::*;
    use crate::agenda::Agenda;
    use crate::packet::{Body, FlowId, Side};
    use crate::sojourn::Stamp;
    use marcato_units::Layer;
    use marcato_wire::Ecn;
    use proptest::prelude::*;

    fn packet(number: u32) -> Packet {
        Packet {
            flow: FlowId(number),
            from: Side::Client,
            route: 0,
            hop: 0,
            ecn: Ecn::NotEct,
            layer: Layer::High,
            stamp: Stamp::default(),
            len: 100,
            sent_at: Time::ZERO,
            body: Body::Udp,
        }
    }

    proptest! {
        /// Each event of the agenda finds its packet, under any order of overtaking.
        #[test]
        fn packets_come_off_the_line_by_their_moments(
            steps in prop::collection::vec((0u64..100, 0u64..20), 1..60), in_order in any::<bool>(),
        ) {
            let mut agenda = Agenda::new();
            let mut line = Line::new(!in_order);
            let (mut now, mut last) = (0, 0);
            let mut expected = Vec::new();
            let mut arrived = Vec::new();
            let mut run = |line: &mut Line, agenda: &mut Agenda<()>, until| {
                while let Some((at, ())) = agenda.pop_until(until) {
                    let (packet, next) = line.pop().expect("an event has its packet");
                    arrived.push((at, packet.flow.0));
                    if let Some(moment) = next {
                        agenda.enter(moment, ());
                    }
                }
            };
            for (number, (delay, gap)) in (0u32..).zip(steps) {
                run(&mut line, &mut agenda, Time::from_nanos(now));
                let at = if in_order { last.max(now + delay) } else { now + delay };
                last = at;
                expected.push((Time::from_nanos(at), number));
                let moment = agenda.reserve(Time::from_nanos(at));
                if let Some(moment) = line.push(moment, packet(number)) {
                    agenda.enter(moment, ());
                }
                now += gap;
            }
            run(&mut line, &mut agenda, Time::MAX);
            prop_assert_eq!(line.len(), 0);
            expected.sort();
            prop_assert_eq!(arrived, expected);
        }
    }
}
