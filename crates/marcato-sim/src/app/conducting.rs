//! Way of messages through a Conductor to a socket. CATS §II-C.

use std::collections::HashMap;

use marcato_sched::conductor::{
    Conductor, Grant, Message, MessageId, OfferError, Removal, Removals, Removed, Slab,
};
use marcato_sched::feeder::{Engine, Feeder, Mode};
use marcato_units::Bytes;

use super::{Coupled, Socket, Tag};

/// Conductor of an application, and the feeder that moves what it grants into the socket.
pub(crate) struct Conducting {
    pub(crate) conductor: Conductor<Slab, Removals>,
    feeder: Feeder,
    pub(crate) coupled: Option<Coupled>,
    /// Labels of messages with ungranted data, by the Conductor's identifiers. The order of the map
    /// never matters: it is looked up, not iterated.
    tags: HashMap<MessageId, Tag>,
    /// Every chunk that reached the socket, if they are kept.
    pub(crate) granted: Option<Vec<Grant>>,
}

impl Conducting {
    pub(crate) fn new(conductor: Conductor, feeder: Feeder) -> Self {
        let conductor = conductor.observed_by(Removals::default());
        Self { conductor, feeder, coupled: None, tags: HashMap::new(), granted: None }
    }

    /// Offers a message to the Conductor.
    pub(crate) fn accept(
        &mut self,
        tag: Tag,
        message: Message,
        socket: &mut Socket<'_>,
    ) -> Result<(), OfferError> {
        let now = socket.now();
        let offered = self.conductor.offer(now, message);
        if let Ok(id) = offered {
            self.tags.insert(id, tag);
        }
        if let Mode::Greedy { .. } = self.feeder.mode() {
            // The authors' socket decides once within each Send, before the next one.
            let mut engine = SocketEngine { socket, tags: &mut self.tags, granted: &mut self.granted };
            self.feeder.run_once(now, &mut self.conductor, &mut engine);
        }
        offered.map(|_| ())
    }

    /// Moves granted data into the socket, as far as it fits. `removed` gets each message that the
    /// Conductor removed before it was sent in full.
    pub(crate) fn write(&mut self, socket: &mut Socket<'_>, mut removed: impl FnMut(Tag, Removal)) {
        let now = socket.now();
        let mut engine = SocketEngine { socket, tags: &mut self.tags, granted: &mut self.granted };
        match &mut self.coupled {
            None => {
                self.feeder.run(now, &mut self.conductor, &mut engine);
            }
            Some(coupled) => coupled.run(&self.feeder, now, &mut self.conductor, &mut engine),
        }
        for Removed { id, reason, .. } in self.conductor.observer_mut().take() {
            if let Some(tag) = self.tags.remove(&id) {
                removed(tag, reason);
            }
        }
    }

    /// Tells coupled mode of an acknowledgement. Returns false without coupled mode.
    pub(crate) fn acknowledged(&mut self, socket: &Socket<'_>) -> bool {
        let Some(coupled) = &mut self.coupled else { return false };
        coupled.acknowledged(socket, &self.conductor);
        true
    }
}

/// Simulated TCP connection as the feeder's engine.
struct SocketEngine<'a, 'b> {
    socket: &'a mut Socket<'b>,
    tags: &'a mut HashMap<MessageId, Tag>,
    granted: &'a mut Option<Vec<Grant>>,
}

impl Engine for SocketEngine<'_, '_> {
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
        if let Some(granted) = self.granted {
            granted.push(Grant { len: taken, ..*grant });
        }
        if grant.fin && taken == grant.len {
            self.tags.remove(&grant.message);
        }
        taken
    }
}
