//! Strict priority with one buffer: if it is full, best effort pushes lower effort out.
//!
//! References: PLT §3 (two classes at the bottleneck; the paper does not specify buffers), RFC 8622
//! (lower effort).

use alloc::collections::VecDeque;

use marcato_units::{Layer, Stream, Time};

use crate::{Backlog, Configuration, Counters, Discipline, Limit, LimitError, Packet, Verdict};

/// Configuration of a [`PushOut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PushOutConfig {
    /// Room for both classes together.
    pub limit: Limit,
}

impl Default for PushOutConfig {
    /// 1000 packets, as [`DropTailConfig`](crate::DropTailConfig).
    fn default() -> Self {
        Self { limit: Limit::Packets(1000) }
    }
}

/// Strict priority between two classes in one buffer.
///
/// A low packet leaves only if no high packet waits. A high packet that finds the buffer full
/// replaces the low packets that came last: as many as it needs, and no more. If all of them
/// together do not make enough room, it is dropped and they stay.
///
/// The last low packet is dropped, rather than the first: it is the one that tail drop would just
/// have refused, and the oldest data still arrives.
///
/// With a limit in packets, one low packet makes room for one high packet. With a limit in bytes, a
/// high packet may cost many. Each was counted in before, so the mean is at most one per packet
/// that arrives.
#[derive(Clone, Debug)]
pub struct PushOut<P> {
    limit: Limit,
    high: VecDeque<P>,
    low: VecDeque<P>,
    /// Part of `backlog` in the high class.
    high_backlog: Backlog,
    backlog: Backlog,
    counters: Counters,
}

impl<P: Packet> PushOut<P> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// [`LimitError`] if the limit admits nothing.
    pub fn new(config: PushOutConfig) -> Result<Self, LimitError> {
        Ok(Self {
            limit: config.limit.checked()?,
            high: VecDeque::new(),
            low: VecDeque::new(),
            high_backlog: Backlog::default(),
            backlog: Backlog::default(),
            counters: Counters::default(),
        })
    }
}

impl Configuration for PushOutConfig {
    type Error = LimitError;
    type Queue<P: Packet + Send + 'static> = PushOut<P>;

    fn build<P: Packet + Send + 'static>(&self, _: Stream) -> Result<PushOut<P>, LimitError> {
        PushOut::new(*self)
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

impl<P: Packet> Discipline<P> for PushOut<P> {
    fn enqueue_with(&mut self, _now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let len = packet.len();
        let layer = packet.layer();
        self.counters.enqueued.count(len);
        // Backlog that no low packet makes room in: if the packet does not fit beside that, none is
        // dropped in vain.
        let fixed = if layer == Layer::High { self.high_backlog } else { self.backlog };
        if !self.limit.admits(fixed, len) {
            self.counters.overflow(&packet);
            return Verdict::Dropped(packet);
        }
        while !self.limit.admits(self.backlog, len)
            && let Some(displaced) = self.low.pop_back()
        {
            self.backlog.pop(displaced.len());
            self.counters.overflow(&displaced);
            on_drop(displaced);
        }
        self.backlog.push(len);
        match layer {
            Layer::High => {
                self.high_backlog.push(len);
                self.high.push_back(packet);
            }
            Layer::Low => self.low.push_back(packet),
        }
        Verdict::Queued
    }

    fn dequeue_with(&mut self, _now: Time, _on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let packet = match self.high.pop_front() {
            Some(packet) => {
                self.high_backlog.pop(packet.len());
                packet
            }
            None => self.low.pop_front()?,
        };
        self.backlog.pop(packet.len());
        self.counters.dequeued.count(packet.len());
        Some(packet)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        if self.backlog.is_empty() { None } else { Some(now) }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
