//! Application whose messages pass a Conductor before they reach TCP. CATS §II-C.

use std::collections::HashMap;

use marcato_sched::conductor::{
    Conductor, Grant, Message, MessageId, OfferError, Removal, Removals, Removed, Slab,
};
use marcato_sched::feeder::{Engine, Feeder, Mode};
use marcato_units::Bytes;

use super::plan::{Plan, Planned, PlannedApp};
use super::{Coupled, Socket, Tag};

/// Application that offers each message of a plan to a Conductor at its time. A feeder moves what
/// the Conductor grants into the socket, as with a real one. The label of a message is its index in
/// the plan.
pub struct Conducted {
    conductor: Conductor<Slab, Removals>,
    feeder: Feeder,
    coupled: Option<Coupled>,
    plan: Plan,
    /// Labels of messages with ungranted data, by the Conductor's identifiers. The order of the map
    /// never matters: it is looked up, not iterated.
    tags: HashMap<MessageId, Tag>,
    refused: Vec<(Tag, OfferError)>,
    removed: Vec<(Tag, Removal)>,
    granted: Vec<Grant>,
}

impl Conducted {
    /// Application with this plan; messages of the same time keep their order.
    pub fn new(conductor: Conductor, feeder: Feeder, plan: Vec<Planned>) -> Self {
        Self {
            conductor: conductor.observed_by(Removals::default()),
            feeder,
            coupled: None,
            plan: Plan::new(plan),
            tags: HashMap::new(),
            refused: Vec::new(),
            removed: Vec::new(),
            granted: Vec::new(),
        }
    }

    /// Couples the connection: background data stays out of the bottleneck's queue.
    #[must_use]
    pub fn coupled_by(mut self, coupled: Coupled) -> Self {
        self.coupled = Some(coupled);
        self
    }

    /// Returns the governor of coupled mode, if there is one.
    pub fn coupled(&self) -> Option<&Coupled> {
        self.coupled.as_ref()
    }

    /// Returns the Conductor, for its counters and debts.
    pub fn conductor(&self) -> &Conductor<Slab, Removals> {
        &self.conductor
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
        &self.granted
    }
}

impl PlannedApp for Conducted {
    fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    fn accept(&mut self, tag: Tag, message: Message, socket: &mut Socket<'_>) {
        match self.conductor.offer(socket.now(), message) {
            Ok(id) => {
                self.tags.insert(id, tag);
            }
            Err(error) => self.refused.push((tag, error)),
        }
        if let Mode::Greedy { .. } = self.feeder.mode() {
            // The authors' socket decides once within each Send, before the next one.
            let mut lane = Lane { socket, tags: &mut self.tags, granted: &mut self.granted };
            self.feeder.run_once(lane.socket.now(), &mut self.conductor, &mut lane);
        }
    }

    fn acked(&mut self, socket: &mut Socket<'_>) -> bool {
        let Some(coupled) = &mut self.coupled else { return false };
        coupled.acknowledged(socket, &self.conductor);
        true
    }

    fn write(&mut self, socket: &mut Socket<'_>) {
        let now = socket.now();
        let mut lane = Lane { socket, tags: &mut self.tags, granted: &mut self.granted };
        match &mut self.coupled {
            None => {
                self.feeder.run(now, &mut self.conductor, &mut lane);
            }
            Some(coupled) => coupled.run(&self.feeder, now, &mut self.conductor, &mut lane),
        }
        for Removed { id, reason, .. } in self.conductor.observer_mut().take() {
            self.removed.extend(self.tags.remove(&id).map(|tag| (tag, reason)));
        }
    }
}

/// Simulated TCP connection as the feeder's engine.
struct Lane<'a, 'b> {
    socket: &'a mut Socket<'b>,
    tags: &'a mut HashMap<MessageId, Tag>,
    granted: &'a mut Vec<Grant>,
}

impl Engine for Lane<'_, '_> {
    fn room(&self) -> Bytes {
        self.socket.room()
    }

    fn unsent(&self) -> Bytes {
        self.socket.unsent()
    }

    fn in_flight(&self) -> Bytes {
        self.socket.in_flight()
    }

    fn feed(&mut self, grant: &Grant) -> Bytes {
        let tag = self.tags.get(&grant.message).copied().unwrap_or_default();
        let taken = self.socket.write(grant.len, grant.priority, tag);
        self.granted.push(Grant { len: taken, ..*grant });
        if grant.fin && taken == grant.len {
            self.tags.remove(&grant.message);
        }
        taken
    }
}
