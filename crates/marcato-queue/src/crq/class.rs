//! One queue of [`Crq`](super::Crq) with its discipline and its buffer.

use marcato_units::{Bytes, Rate, Time};

use super::buffer::FillRate;
use super::{Aqm, Class, ClassConfig, CrqConfig, CrqError};
use crate::flow_table::Place;
use crate::trap::CycleId;
use crate::{
    Backlog, Codel, CodelConfig, Counters, Discipline, DropTail, DropTailConfig, FqCodel, FqCodelConfig,
    Packet, Tagged, Verdict,
};

/// Packet in a queue, with the note that leads its signals to its flow's trap.
pub(super) type Queued<P> = Tagged<P, Note>;

/// Note on a packet in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Note {
    /// Place of its flow in the table; `None` if no flow is known.
    pub(super) place: Option<Place>,
    /// Packet index within its flow, modulo 2^32.
    pub(super) order: u32,
    /// Cycle in which the packet arrived.
    pub(super) cycle_id: CycleId,
}

/// Discipline of a queue: an enum, as a call through `dyn` per packet would cost more than the
/// match.
#[derive(Clone, Debug)]
enum Queue<P> {
    DropTail(DropTail<Queued<P>>),
    Codel(Codel<Queued<P>>),
    FqCodel(FqCodel<Queued<P>>),
}

/// One queue of [`Crq`](super::Crq).
#[derive(Clone, Debug)]
pub(super) struct ClassQueue<P> {
    queue: Queue<P>,
    fill_rate: Option<FillRate>,
    pub(super) counters: Counters,
}

impl<P: Packet> ClassQueue<P> {
    /// Empty queue of `class`, which has `rate` of the link.
    pub(super) fn new(
        config: &CrqConfig,
        class: Class,
        of: ClassConfig,
        rate: Rate,
    ) -> Result<Self, CrqError> {
        let (limit, fill_rate) = of.buffer.sized(class, rate, config.mtu)?;
        let queue = match of.aqm {
            Aqm::DropTail => Queue::DropTail(
                DropTail::new(DropTailConfig { limit }).map_err(|error| CrqError::Buffer { class, error })?,
            ),
            Aqm::Codel { target, interval, ecn } => {
                let codel = CodelConfig { target, interval, limit, maxpacket: config.mtu, ecn };
                Queue::Codel(Codel::new(codel).map_err(|error| CrqError::Codel { class, error })?)
            }
            Aqm::FqCodel { target, interval, ecn, flows } => {
                let fq_codel = FqCodelConfig {
                    codel: CodelConfig { target, interval, limit, maxpacket: config.mtu, ecn },
                    flows,
                    quantum: config.mtu,
                    perturbation: config.flows.secret,
                };
                Queue::FqCodel(FqCodel::new(fq_codel).map_err(|error| CrqError::FqCodel { class, error })?)
            }
        };
        Ok(Self { queue, fill_rate, counters: Counters::default() })
    }

    /// Takes a packet that arrives at `now`. Waiting packets that are dropped to make room go to
    /// `on_drop`.
    pub(super) fn enqueue_with(
        &mut self,
        now: Time,
        packet: Queued<P>,
        on_drop: &mut dyn FnMut(Queued<P>),
    ) -> Verdict<Queued<P>> {
        let len = packet.len();
        self.counters.enqueued.count(len);
        let verdict = if self.is_beyond_fill_rate(now, len) {
            Verdict::Dropped(packet)
        } else {
            let Self { queue, counters, .. } = self;
            match queue {
                Queue::DropTail(queue) => queue.enqueue(now, packet),
                Queue::Codel(queue) => queue.enqueue(now, packet),
                Queue::FqCodel(queue) => queue.enqueue_with(now, packet, &mut |packet| {
                    counters.overflow(&packet);
                    on_drop(packet);
                }),
            }
        };
        if let Verdict::Dropped(packet) = &verdict {
            self.counters.overflow(packet);
        }
        verdict
    }

    pub(super) fn dequeue_with(
        &mut self,
        now: Time,
        on_drop: &mut dyn FnMut(Queued<P>),
    ) -> Option<Queued<P>> {
        let Self { queue, counters, .. } = self;
        let mut on_drop = |packet: Queued<P>| {
            counters.dropped.count(packet.len());
            on_drop(packet);
        };
        let packet = match queue {
            Queue::DropTail(queue) => queue.dequeue_with(now, &mut on_drop),
            Queue::Codel(queue) => queue.dequeue_with(now, &mut on_drop),
            Queue::FqCodel(queue) => queue.dequeue_with(now, &mut on_drop),
        }?;
        let len = packet.len();
        counters.dequeued.count(len);
        if packet.marked {
            counters.marked.count(len);
        }
        Some(packet)
    }

    pub(super) fn backlog(&self) -> Backlog {
        match &self.queue {
            Queue::DropTail(queue) => queue.backlog(),
            Queue::Codel(queue) => queue.backlog(),
            Queue::FqCodel(queue) => queue.backlog(),
        }
    }

    /// Returns whether a packet of `len` bytes exceeds the buffer that the fill rate allows now.
    fn is_beyond_fill_rate(&mut self, now: Time, len: Bytes) -> bool {
        let Some(fill_rate) = &mut self.fill_rate else { return false };
        let limit = fill_rate.arrive(now, len);
        self.backlog().bytes.get().saturating_add(len.get()) > limit
    }
}
