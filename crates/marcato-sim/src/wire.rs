//! Wire of a link, whose arrivals are events.

use marcato_link::{Arrival, Jitter, Loss};
use marcato_units::{Seed, Time};

use crate::agenda::{Agenda, Moment};
use crate::event::Event;
use crate::link::Account;
use crate::packet::Packet;

/// Wire of a link, whose arrivals are events.
pub(crate) struct Wire {
    pub(crate) flight: marcato_link::Wire<Moment, Packet>,
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
        Self { flight: marcato_link::Wire::new(loss, jitter, duplication, name, seed), arrival }
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
        let Some(Arrival { at, twice }) = self.flight.arrival(due, up) else {
            account.lost(packet);
            return;
        };
        if twice {
            self.push_twice(at, packet, agenda, account);
        } else {
            self.push(at, packet, agenda);
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
        if let Some(moment) = self.flight.push(moment, packet) {
            agenda.enter(moment, self.arrival);
        }
    }

    /// Removes the packet that arrives now.
    pub(crate) fn take(&mut self, agenda: &mut Agenda<Event>) -> Option<Packet> {
        let (packet, next) = self.flight.pop()?;
        if let Some(moment) = next {
            agenda.enter(moment, self.arrival);
        }
        Some(packet)
    }
}
