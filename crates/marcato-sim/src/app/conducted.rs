//! Application whose messages pass a Conductor before they reach TCP. CATS §II-C.

use std::collections::HashMap;

use marcato_sched::conductor::{Conductor, Grant, MessageId, OfferError, Removal, Removals, Slab};
use marcato_sched::feeder::{Engine, Feeder, Mode};
use marcato_units::Bytes;

use super::plan::{Plan, Planned};
use super::{App, Socket, Tag};

/// Application that offers each message of a plan to a Conductor at its time. A feeder moves what
/// the Conductor grants into the socket, as with a real one. The label of a message is its index in
/// the plan.
pub struct Conducted {
    conductor: Conductor<Slab, Removals>,
    feeder: Feeder,
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
            plan: Plan::new(plan),
            tags: HashMap::new(),
            refused: Vec::new(),
            removed: Vec::new(),
            granted: Vec::new(),
        }
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

    fn take_due(&mut self, socket: &mut Socket<'_>) {
        while let Some((tag, message)) = self.plan.take_due(socket) {
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
        self.feed(socket);
    }

    fn feed(&mut self, socket: &mut Socket<'_>) {
        let now = socket.now();
        let mut lane = Lane { socket, tags: &mut self.tags, granted: &mut self.granted };
        self.feeder.run(now, &mut self.conductor, &mut lane);
        for (id, reason) in self.conductor.observer_mut().take() {
            self.removed.extend(self.tags.remove(&id).map(|tag| (tag, reason)));
        }
    }
}

impl App for Conducted {
    fn start(&mut self, socket: &mut Socket<'_>) {
        self.plan.start(socket.now());
        self.take_due(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.feed(socket);
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        self.take_due(socket);
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
