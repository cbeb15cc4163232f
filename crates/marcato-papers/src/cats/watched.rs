//! A conducted application under observation.

use marcato_sim::{App, Conducted, Socket};
use marcato_units::{Bytes, Duration, Priority, Time};

use super::path::Transfer;
use crate::error::SimulationError;

/// State of the Conductor of a [`Conducted`] after an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) at: Time,
    /// Debt of P0.
    pub(super) debt: Bytes,
    pub(super) in_debt: bool,
}

/// A [`Conducted`] whose state is recorded after each call of the connection, not during one.
pub(super) struct Watched {
    app: Conducted,
    seen: usize,
    /// Time at which the first byte of each message was granted, in the order of the stream.
    begun: Vec<Time>,
    greatest_backlog: Bytes,
    states: Vec<State>,
}

impl Watched {
    pub(super) fn new(app: Conducted) -> Self {
        Self { app, seen: 0, begun: Vec::new(), greatest_backlog: Bytes::ZERO, states: Vec::new() }
    }

    pub(super) fn app(&self) -> &Conducted {
        &self.app
    }

    /// Place in the plan and waiting time of each message that has begun to arrive. The wait lasts
    /// from the offer to the grant of the first byte.
    pub(super) fn waits(transfer: &Transfer) -> Result<Vec<(usize, Duration)>, SimulationError> {
        // The stream keeps the order of the grants. So the n-th message to appear in it is the n-th
        // whose grants began.
        let mut seen = vec![false; transfer.plan().len()];
        let mut order = Vec::new();
        for &(_, tag, _) in transfer.collector()?.log() {
            let place = usize::try_from(tag.0).unwrap_or(usize::MAX);
            if seen.get_mut(place).is_some_and(|seen| !std::mem::replace(seen, true)) {
                order.push(place);
            }
        }
        let begun = transfer.sender::<Self>()?.begun.iter();
        let wait = |place: usize, begun: Time| begun.since(transfer.offered(place));
        Ok(order.into_iter().zip(begun).map(|(place, &begun)| (place, wait(place, begun))).collect())
    }

    /// Largest number of bytes that waited in the Conductor.
    pub(super) fn greatest_backlog(&self) -> Bytes {
        self.greatest_backlog
    }

    /// States of P0, each different from the one before.
    pub(super) fn states(&self) -> &[State] {
        &self.states
    }

    fn look(&mut self, at: Time) {
        let fresh = &self.app.granted()[self.seen..];
        self.begun.extend(fresh.iter().filter(|grant| grant.offset.is_zero()).map(|_| at));
        self.seen += fresh.len();
        let conductor = self.app.conductor();
        self.greatest_backlog = self.greatest_backlog.max(conductor.queued().bytes);
        let (debt, in_debt) = (conductor.debt(Priority::P0), conductor.is_in_debt(Priority::P0));
        if self.states.last().is_none_or(|last| (last.debt, last.in_debt) != (debt, in_debt)) {
            self.states.push(State { at, debt, in_debt });
        }
    }
}

impl App for Watched {
    fn start(&mut self, socket: &mut Socket<'_>) {
        self.app.start(socket);
        self.look(socket.now());
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.app.writable(socket);
        self.look(socket.now());
    }

    fn timer(&mut self, token: u32, socket: &mut Socket<'_>) {
        self.app.timer(token, socket);
        self.look(socket.now());
    }
}
