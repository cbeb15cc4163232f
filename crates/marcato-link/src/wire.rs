//! Wire of a link: what happens to packets between the transmitter and the far end.

use marcato_units::{Seed, Time};

use crate::impairments::{Arrival, Impairments};
use crate::jitter::Jitter;
use crate::line::{Line, Moment};
use crate::loss::Loss;

/// Wire of a link: adds jitter to each packet's delay, loses or duplicates some, and keeps the rest until
/// they arrive.
///
/// ```
/// use marcato_link::{Loss, Wire};
/// use marcato_units::{Seed, Time};
///
/// let mut wire = Wire::new(Loss::Every(2), None, 0.0, "radio", Seed::new(1));
/// for (number, due) in [(0, Time::from_millis(20)), (1, Time::from_millis(21))] {
///     if let Some(arrival) = wire.arrival(due, true) {
///         wire.push((arrival.at, number), "a packet");
///     }
/// }
/// assert_eq!((wire.in_flight(), wire.next_arrival()), (1, Some(Time::from_millis(20))));
/// assert_eq!(wire.pop(), Some(("a packet", None)));
/// ```
pub struct Wire<M, P> {
    impairments: Impairments,
    line: Line<M, P>,
    /// Earliest arrival time: after the delay became shorter, packets already in flight arrive
    /// first.
    not_before: Time,
}

impl<M: Moment, P> Wire<M, P> {
    /// Creates an empty wire. Its random streams are those of [`Impairments::new`].
    pub fn new(loss: Loss, jitter: Option<Jitter>, duplication: f64, name: &str, seed: Seed) -> Self {
        Self {
            impairments: Impairments::new(loss, jitter, duplication, name, seed),
            line: Line::new(jitter.is_some_and(|jitter| jitter.reorders())),
            not_before: Time::ZERO,
        }
    }

    /// Prepares for a shorter delay. `reorder` lets packets sent from now on overtake those in
    /// flight.
    pub fn shorten(&mut self, reorder: bool) {
        if reorder {
            self.line.allow_reordering();
        } else if let Some(last) = self.line.last_in_order() {
            self.not_before = last;
        }
    }

    /// Changes the loss model.
    pub fn set_loss(&mut self, loss: Loss) {
        self.impairments.set_loss(loss);
    }

    /// Returns the number of packets in flight.
    pub fn in_flight(&self) -> usize {
        self.line.len()
    }

    /// Returns the arrival of the next packet, which without jitter would arrive at `due`; `None` if it is
    /// lost, as all are while the link is not `up`.
    #[inline]
    pub fn arrival(&mut self, due: Time, up: bool) -> Option<Arrival> {
        // The queue of a link that is down drains at the usual rate, and its packets are lost. Each
        // has its draws all the same, so that those after an outage do not depend on its traffic.
        let Arrival { at, twice } = self.impairments.arrival(due).filter(|_| up)?;
        Some(Arrival { at: at.max(self.not_before), twice })
    }

    /// Adds a packet in flight, which has this arrival. Returns its moment if an agenda of events has to
    /// enter it: as the first to arrive.
    #[inline]
    pub fn push(&mut self, moment: M, packet: P) -> Option<M> {
        self.line.push(moment, packet)
    }

    /// Returns the time of the next arrival.
    pub fn next_arrival(&self) -> Option<Time> {
        self.line.first().map(Moment::at)
    }

    /// Removes the packet that arrives first. Returns it with the moment of the next, if an agenda of events
    /// has to enter that.
    #[inline]
    pub fn pop(&mut self) -> Option<(P, Option<M>)> {
        self.line.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn wire(loss: Loss) -> Wire<(Time, u64), u64> {
        Wire::new(loss, None, 0.0, "test", Seed::new(1))
    }

    #[test]
    fn a_link_that_is_down_loses_all_and_changes_no_later_draw() {
        let (mut up, mut down) = (wire(Loss::Random(0.5)), wire(Loss::Random(0.5)));
        for number in 0..100 {
            let (kept, lost) = (up.arrival(ms(number), true), down.arrival(ms(number), number >= 50));
            assert_eq!(lost, kept.filter(|_| number >= 50), "packet {number}");
        }
    }

    #[test]
    fn packets_overtake_after_a_shorter_delay_only_if_they_may() {
        for (reorder, arrivals) in [(false, [ms(50), ms(50), ms(60)]), (true, [ms(20), ms(50), ms(60)])] {
            let mut wire = wire(Loss::None);
            wire.push((ms(50), 0), 0);
            wire.shorten(reorder);
            for (number, due) in [(1, ms(20)), (2, ms(60))] {
                let arrival = wire.arrival(due, true).unwrap();
                wire.push((arrival.at, number), number);
            }
            let came = arrivals.map(|_| {
                let at = wire.next_arrival().unwrap();
                wire.pop();
                at
            });
            assert_eq!((came, wire.in_flight()), (arrivals, 0), "reordering: {reorder}");
        }
    }
}
