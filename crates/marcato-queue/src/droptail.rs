//! Drop-tail: first in, first out, and arriving packets are dropped while the queue is full.
//!
//! References: RFC 2309 §2 and RFC 7567 §2 (effects of tail drop on latency and on bursts).

use alloc::collections::VecDeque;

use marcato_units::{Stream, Time};

use crate::{Backlog, Configuration, Counters, Discipline, Limit, LimitError, Packet, Verdict};

/// Configuration of a [`DropTail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DropTailConfig {
    /// Room of the buffer.
    pub limit: Limit,
}

impl Default for DropTailConfig {
    /// 1000 packets, the usual transmit queue of an Ethernet device on Linux.
    fn default() -> Self {
        Self { limit: Limit::Packets(1000) }
    }
}

/// First in, first out; a packet that finds the queue full is dropped.
///
/// ```
/// # use marcato_queue::{FlowKey, Packet};
/// # use marcato_units::{Bytes, Layer};
/// # use marcato_wire::Ecn;
/// # #[derive(Debug, PartialEq)] struct Datagram(u64);
/// # impl Packet for Datagram {
/// #     fn len(&self) -> Bytes { Bytes::new(self.0) }
/// #     fn flow(&self) -> FlowKey { FlowKey::new(0) }
/// #     fn ecn(&self) -> Ecn { Ecn::NotEct }
/// #     fn mark_ce(&mut self) {}
/// #     fn layer(&self) -> Layer { Layer::High }
/// # }
/// use marcato_queue::{Discipline, DropTail, DropTailConfig, Limit, Verdict};
/// use marcato_units::Time;
///
/// let mut queue = DropTail::new(DropTailConfig { limit: Limit::Bytes(Bytes::kb(2)) })?;
/// assert_eq!(queue.enqueue(Time::ZERO, Datagram(1500)), Verdict::Queued);
/// assert_eq!(queue.enqueue(Time::ZERO, Datagram(501)), Verdict::Dropped(Datagram(501)));
/// assert_eq!(queue.dequeue(Time::ZERO), Some(Datagram(1500)));
/// # Ok::<(), marcato_queue::LimitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DropTail<P> {
    limit: Limit,
    queue: VecDeque<P>,
    backlog: Backlog,
    counters: Counters,
}

impl<P: Packet> DropTail<P> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// [`LimitError`] if the limit admits no packet.
    pub fn new(config: DropTailConfig) -> Result<Self, LimitError> {
        let limit = config.limit.checked()?;
        Ok(Self { limit, queue: VecDeque::new(), backlog: Backlog::default(), counters: Counters::default() })
    }
}

impl<P> Default for DropTail<P> {
    /// Empty queue with the default limit.
    fn default() -> Self {
        Self {
            limit: DropTailConfig::default().limit,
            queue: VecDeque::new(),
            backlog: Backlog::default(),
            counters: Counters::default(),
        }
    }
}

impl Configuration for DropTailConfig {
    type Error = LimitError;
    type Queue<P: Packet + Send + 'static> = DropTail<P>;

    fn build<P: Packet + Send + 'static>(&self, _: Stream) -> Result<DropTail<P>, LimitError> {
        DropTail::new(*self)
    }

    fn is_random(&self) -> bool {
        false
    }

    fn marks(&self) -> bool {
        false
    }

    fn limit(&self) -> Limit {
        self.limit
    }
}

impl<P: Packet> Discipline<P> for DropTail<P> {
    fn enqueue_with(&mut self, _now: Time, packet: P, _on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        match self.limit.take(packet, &mut self.backlog, &mut self.counters) {
            Ok(packet) => {
                self.queue.push_back(packet);
                Verdict::Queued
            }
            Err(packet) => Verdict::Dropped(packet),
        }
    }

    fn dequeue_with(&mut self, _now: Time, _on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let packet = self.queue.pop_front()?;
        self.backlog.pop(packet.len());
        self.counters.dequeued.count(packet.len());
        Some(packet)
    }

    fn pass(&mut self, _now: Time, packet: &P) -> bool {
        let len = packet.len();
        let passes = self.queue.is_empty() && self.limit.admits(self.backlog, len);
        if passes {
            self.counters.enqueued.count(len);
            self.counters.dequeued.count(len);
        }
        passes
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        if self.queue.is_empty() { None } else { Some(now) }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
