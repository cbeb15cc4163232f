//! Wire of a link: jitter, loss and duplication of packets that have left the transmitter.

use marcato_link::{Arrival, Impairments, Jitter, Loss};
use marcato_units::{Seed, Time};

use crate::agenda::Agenda;
use crate::event::Event;
use crate::line::Line;
use crate::link::Account;
use crate::packet::Packet;

/// Wire: adds jitter to each packet's delay, loses or duplicates some, and delivers the rest.
pub(crate) struct Wire {
    impairments: Impairments,
    line: Line,
    /// Earliest arrival time: after the delay became shorter, packets already in flight arrive
    /// first.
    not_before: Time,
    /// Event entered in the agenda for each arrival.
    arrival: Event,
}

impl Wire {
    /// Wire whose random streams are named after `name`.
    pub(crate) fn new(
        loss: Loss,
        jitter: Option<Jitter>,
        duplication: f64,
        name: &str,
        seed: Seed,
        arrival: Event,
    ) -> Self {
        Self {
            impairments: Impairments::new(loss, jitter, duplication, name, seed),
            line: Line::new(jitter.is_some_and(|jitter| jitter.reorders())),
            not_before: Time::ZERO,
            arrival,
        }
    }

    /// Prepares for a shorter delay. `reorder` lets packets sent from now on overtake those in
    /// flight.
    pub(crate) fn shorten(&mut self, reorder: bool) {
        if reorder {
            self.line.allow_reordering();
        } else if let Some(last) = self.line.last_in_order() {
            self.not_before = last;
        }
    }

    /// Changes the loss model.
    pub(crate) fn set_loss(&mut self, loss: Loss) {
        self.impairments.set_loss(loss);
    }

    /// Returns the number of packets in flight.
    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    /// Accepts a packet that arrives at `due` without jitter. While the link is not `up`, all
    /// packets are lost. A copy arrives directly behind its original.
    #[inline]
    pub(crate) fn put(
        &mut self,
        due: Time,
        up: bool,
        packet: Packet,
        agenda: &mut Agenda<Event>,
        account: &mut Account<'_>,
    ) {
        // The queue of a link that is down drains at the usual rate, and its packets are lost. Each
        // has its draws all the same, so that those after an outage do not depend on its traffic.
        let Some(Arrival { at, twice }) = self.impairments.arrival(due).filter(|_| up) else {
            account.lost(packet);
            return;
        };
        let arrives_at = at.max(self.not_before);
        if twice {
            self.push_twice(arrives_at, packet, agenda, account);
        } else {
            self.push(arrives_at, packet, agenda);
        }
    }

    #[cold]
    fn push_twice(
        &mut self,
        at: Time,
        packet: Packet,
        agenda: &mut Agenda<Event>,
        account: &mut Account<'_>,
    ) {
        account.counters.duplicated += 1;
        let copy = account.tallies.copy(&packet);
        self.push(at, packet, agenda);
        self.push(at, copy, agenda);
    }

    #[inline]
    fn push(&mut self, at: Time, packet: Packet, agenda: &mut Agenda<Event>) {
        let moment = agenda.reserve(at);
        if let Some(moment) = self.line.push(moment, packet) {
            agenda.enter(moment, self.arrival);
        }
    }

    /// Removes the packet that arrives now.
    pub(crate) fn take(&mut self, agenda: &mut Agenda<Event>) -> Option<Packet> {
        let (packet, next) = self.line.pop()?;
        if let Some(moment) = next {
            agenda.enter(moment, self.arrival);
        }
        Some(packet)
    }
}
