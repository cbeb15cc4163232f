//! A link: a queue, a transmitter, and a line on which packets are under way.

use std::collections::VecDeque;

use marcato_queue::{Discipline, DropTail, Packet as _};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

use crate::agenda::{Agenda, Moment};
use crate::event::Event;
use crate::loss::{Loss, LossProcess};
use crate::packet::Packet;
use crate::record::TapPoint;
use crate::tally::FlowTallies;

/// One direction of a link, as it shall be.
pub struct LinkConfig {
    /// How fast packets leave; `None` is at once.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Duration,
    /// Bytes that the link adds to each IP packet: 2 for PPP, 18 for Ethernet with its check sequence.
    pub framing: Bytes,
    /// What the wire loses, after the queue let it out.
    pub loss: Loss,
    /// The queue before the transmitter. Its limits count IP bytes, without framing.
    pub queue: Box<dyn Discipline<Packet>>,
}

impl LinkConfig {
    /// A link of this rate and delay with a drop-tail queue of 1000 packets, no framing and no loss.
    pub fn new(rate: Rate, delay: Duration) -> Self {
        Self {
            rate: Some(rate),
            delay,
            framing: Bytes::ZERO,
            loss: Loss::None,
            queue: Box::new(DropTail::default()),
        }
    }

    /// A link that only delays.
    pub fn delay_only(delay: Duration) -> Self {
        Self { rate: None, ..Self::new(Rate::MAX, delay) }
    }

    /// With this queue.
    #[must_use]
    pub fn queue(self, queue: impl Discipline<Packet> + 'static) -> Self {
        Self { queue: Box::new(queue), ..self }
    }

    /// With this loss on the wire.
    #[must_use]
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// With `framing` bytes added to each packet.
    #[must_use]
    pub fn framing(self, framing: Bytes) -> Self {
        Self { framing, ..self }
    }
}

/// What a link has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets handed to the link.
    pub offered: u64,
    /// Packets that its queue dropped, at either end of the queue.
    pub dropped: u64,
    /// Packets that the wire lost, or that met the link while it was down.
    pub lost: u64,
    /// Packets that came out at the far end.
    pub delivered: u64,
    /// IP bytes that came out at the far end.
    pub delivered_bytes: Bytes,
    /// What was put on the wire, framing and later losses included: what occupies the link.
    pub carried_bytes: Bytes,
}

pub(crate) struct Link {
    pub(crate) name: String,
    id: u32,
    rate: Option<Rate>,
    delay: Duration,
    framing: Bytes,
    loss: LossProcess,
    up: bool,
    pub(crate) queue: Box<dyn Discipline<Packet>>,
    /// When the packet on the transmitter is out.
    free_at: Time,
    /// Whether an event will call [`ready`](Self::ready) at `free_at`.
    waking: bool,
    /// Packets under way, first to arrive first. Only the first stands in the agenda.
    line: VecDeque<(Moment, Packet)>,
    pub(crate) counters: LinkCounters,
}

impl Link {
    pub(crate) fn new(id: u32, name: String, config: LinkConfig, seed: Seed) -> Self {
        let stream = seed.stream(&format!("loss/{name}"));
        Self {
            name,
            id,
            rate: config.rate,
            delay: config.delay,
            framing: config.framing,
            loss: LossProcess::new(config.loss, stream),
            up: true,
            queue: config.queue,
            free_at: Time::ZERO,
            waking: false,
            line: VecDeque::new(),
            counters: LinkCounters::default(),
        }
    }

    /// Changes the rate for every packet that has not begun to leave.
    pub(crate) fn set_rate(
        &mut self,
        now: Time,
        rate: Rate,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) {
        self.rate = Some(rate);
        // After an outage nothing else would wake the transmitter.
        if !self.waking && self.free_at <= now {
            self.transmit(now, agenda, tallies);
        }
    }

    /// Takes the link up or down. While it is down, every packet that is offered, begins to leave, or would come
    /// out at the far end is lost.
    pub(crate) fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// How fast packets leave now; `None` is at once.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// How long what waits would take to leave at the present rate; `None` if it never would.
    pub(crate) fn drain_time(&self) -> Option<Duration> {
        let backlog = self.queue.backlog();
        let on_wire = backlog.bytes + self.framing * backlog.packets;
        match self.rate {
            Some(Rate::ZERO) => backlog.is_empty().then_some(Duration::ZERO),
            Some(rate) => Some(rate.transmission_time(on_wire)),
            None => Some(Duration::ZERO),
        }
    }

    /// Packets on the line.
    pub(crate) fn under_way(&self) -> u64 {
        self.line.len() as u64
    }

    /// Takes a packet in.
    pub(crate) fn send(
        &mut self,
        now: Time,
        packet: Packet,
        agenda: &mut Agenda<Event>,
        tallies: &mut FlowTallies,
    ) {
        self.counters.offered += 1;
        tallies.pass(now, self.id, TapPoint::Entry, &packet);
        if !self.up {
            self.counters.lost += 1;
            tallies.dropped(packet);
            return;
        }
        if let Some(packet) = self.queue.enqueue(now, packet).lost() {
            self.counters.dropped += 1;
            tallies.dropped(packet);
        }
        if self.waking {
            return;
        }
        if self.free_at <= now {
            self.transmit(now, agenda, tallies);
        } else {
            self.wake_when_free(agenda);
        }
    }

    /// The transmitter is free again.
    pub(crate) fn ready(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        self.waking = false;
        self.transmit(now, agenda, tallies);
    }

    /// Takes the packet that arrives now off the line; `None` if the link is down.
    pub(crate) fn arrive(&mut self, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) -> Option<Packet> {
        let (arrival, packet) = self.line.pop_front()?;
        if let Some(&(moment, _)) = self.line.front() {
            agenda.enter(moment, Event::Arrival { link: self.id });
        }
        if !self.up {
            self.counters.lost += 1;
            tallies.dropped(packet);
            return None;
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.len();
        tallies.pass(arrival.at, self.id, TapPoint::Exit, &packet);
        Some(packet)
    }

    fn wake_when_free(&mut self, agenda: &mut Agenda<Event>) {
        if !self.waking && !self.queue.backlog().is_empty() {
            self.waking = true;
            agenda.at(self.free_at, Event::Ready { link: self.id });
        }
    }

    fn transmit(&mut self, now: Time, agenda: &mut Agenda<Event>, tallies: &mut FlowTallies) {
        // A packet that began to leave at rate 0 would occupy the link for ever: it waits in the queue instead.
        if self.rate == Some(Rate::ZERO) {
            return;
        }
        // Without a rate the transmitter is free at once, so the queue empties in one go.
        while self.free_at <= now {
            let mut dropped = 0;
            let packet = self.queue.dequeue_with(now, &mut |packet| {
                dropped += 1;
                tallies.dropped(packet);
            });
            self.counters.dropped += dropped;
            let Some(packet) = packet else { break };
            let on_wire = packet.len() + self.framing;
            self.counters.carried_bytes += on_wire;
            let out_at = match self.rate {
                Some(rate) => {
                    self.free_at = now + rate.transmission_time(on_wire);
                    self.free_at
                }
                None => now,
            };
            // The queue of a link that is down empties itself into nothing, and as fast as ever. The loss is drawn
            // all the same, so that what comes after an outage does not depend on what the wire did in it.
            if self.loss.loses() || !self.up {
                self.counters.lost += 1;
                tallies.dropped(packet);
                continue;
            }
            let moment = agenda.reserve(out_at + self.delay);
            if self.line.is_empty() {
                agenda.enter(moment, Event::Arrival { link: self.id });
            }
            self.line.push_back((moment, packet));
        }
        self.wake_when_free(agenda);
    }
}
