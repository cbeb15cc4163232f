//! The line of a link: the packets that are under way.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use marcato_units::Time;

use crate::agenda::Moment;
use crate::packet::Packet;

/// Packets under way, each with the moment of its arrival. Only the first to arrive need stand in the agenda; where
/// packets overtake one another, those that were the first for a time stand there too.
pub(crate) enum Line {
    /// They arrive in the order in which they left: everything is O(1).
    InOrder(VecDeque<(Moment, Packet)>),
    /// They may overtake one another: O(log n) for n packets under way.
    Reordered(BinaryHeap<UnderWay>),
}

/// A packet that may be overtaken.
pub(crate) struct UnderWay {
    moment: Moment,
    /// Whether its arrival is in the agenda.
    entered: bool,
    packet: Packet,
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        self.moment == other.moment
    }
}

impl Eq for UnderWay {}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnderWay {
    fn cmp(&self, other: &Self) -> Ordering {
        // `BinaryHeap` yields its greatest; ours is the earliest.
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

    /// When the last packet arrives, where they arrive in order; `None` if there is none.
    pub(crate) fn last_in_order(&self) -> Option<Time> {
        match self {
            Self::InOrder(line) => line.back().map(|(moment, _)| moment.at),
            Self::Reordered(_) => None,
        }
    }

    /// Lets packets overtake one another from now on.
    pub(crate) fn allow_reordering(&mut self) {
        if let Self::InOrder(line) = self {
            // Only the first of them stands in the agenda.
            let under_way = line.drain(..).enumerate();
            let heap =
                under_way.map(|(place, (moment, packet))| UnderWay { moment, entered: place == 0, packet });
            *self = Self::Reordered(heap.collect());
        }
    }

    /// Puts a packet on the line. Returns its moment if that has to be entered in the agenda.
    pub(crate) fn push(&mut self, moment: Moment, packet: Packet) -> Option<Moment> {
        match self {
            Self::InOrder(line) => {
                let first = line.is_empty();
                line.push_back((moment, packet));
                first.then_some(moment)
            }
            Self::Reordered(line) => {
                let entered = line.peek().is_none_or(|first| moment < first.moment);
                line.push(UnderWay { moment, entered, packet });
                entered.then_some(moment)
            }
        }
    }

    /// Takes off the packet whose moment has come: the first. Returns with it the moment of the next, if that has to be
    /// entered in the agenda.
    pub(crate) fn pop(&mut self) -> Option<(Packet, Option<Moment>)> {
        match self {
            Self::InOrder(line) => {
                let (_, packet) = line.pop_front()?;
                Some((packet, line.front().map(|&(moment, _)| moment)))
            }
            Self::Reordered(line) => {
                let UnderWay { packet, .. } = line.pop()?;
                let next = match line.peek_mut() {
                    // The flag is no part of the order.
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
        /// Whatever overtakes whatever, each event of the agenda finds the packet for which it was entered.
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
