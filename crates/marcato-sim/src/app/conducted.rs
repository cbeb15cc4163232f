//! Application whose messages pass a Conductor before they reach TCP. CATS §II-C.

use marcato_sched::conductor::{Conductor, Grant, Message, OfferError, Removal, Removals, Slab};
use marcato_sched::feeder::Feeder;

use super::conducting::Conducting;
use super::plan::{Plan, Planned, PlannedApp};
use super::{Coupled, Socket, Tag};

/// Application that offers each message of a plan to a Conductor at its time. A feeder moves what
/// the Conductor grants into the socket, as with a real one. The label of a message is its index in
/// the plan.
pub struct Conducted {
    conducting: Conducting,
    plan: Plan,
    refused: Vec<(Tag, OfferError)>,
    removed: Vec<(Tag, Removal)>,
}

impl Conducted {
    /// Application with this plan; messages of the same time keep their order.
    pub fn new(conductor: Conductor, feeder: Feeder, plan: Vec<Planned>) -> Self {
        let mut conducting = Conducting::new(conductor, feeder);
        conducting.granted = Some(Vec::new());
        Self { conducting, plan: Plan::new(plan), refused: Vec::new(), removed: Vec::new() }
    }

    /// Couples the connection: background data stays out of the bottleneck's queue.
    #[must_use]
    pub fn coupled_by(mut self, coupled: Coupled) -> Self {
        self.conducting.coupled = Some(coupled);
        self
    }

    /// Returns the governor of coupled mode, if there is one.
    pub fn coupled(&self) -> Option<&Coupled> {
        self.conducting.coupled.as_ref()
    }

    /// Returns the Conductor, for its counters and debts.
    pub fn conductor(&self) -> &Conductor<Slab, Removals> {
        &self.conducting.conductor
    }

    /// Returns the messages of the plan that the Conductor refused, with the reasons.
    pub fn refused(&self) -> &[(Tag, OfferError)] {
        &self.refused
    }

    /// Returns the messages of the plan that the Conductor removed before they were sent in full,
    /// in order, with the reasons.
    pub fn removed(&self) -> &[(Tag, Removal)] {
        &self.removed
    }

    /// Returns every chunk that reached the socket, in order.
    pub fn granted(&self) -> &[Grant] {
        self.conducting.granted.as_deref().unwrap_or_default()
    }
}

impl PlannedApp for Conducted {
    fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    fn accept(&mut self, tag: Tag, message: Message, socket: &mut Socket<'_>) {
        let offered = self.conducting.accept(tag, message, socket);
        self.refused.extend(offered.err().map(|error| (tag, error)));
    }

    fn acked(&mut self, socket: &mut Socket<'_>) -> bool {
        self.conducting.acknowledged(socket)
    }

    fn write(&mut self, socket: &mut Socket<'_>) {
        self.conducting.write(socket, |tag, reason| self.removed.push((tag, reason)));
    }
}
