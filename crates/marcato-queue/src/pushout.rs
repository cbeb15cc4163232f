//! Strict priority with one buffer: when it is full, best effort pushes lower effort out.
//!
//! References: PLT §3 (two classes at the bottleneck; it says nothing of buffers), RFC 8622 (lower effort).

use alloc::collections::VecDeque;

use marcato_units::{Layer, Time};

use crate::{Backlog, Counters, Discipline, LimitError, Packet, Verdict};

/// How a [`PushOut`] is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PushOutConfig {
    /// How many packets of both classes together may wait.
    ///
    /// Packets, not bytes: then one packet makes room for one, and [`Verdict::Replaced`] tells all that was lost.
    pub packets: u64,
}

impl Default for PushOutConfig {
    /// 1000 packets, as [`DropTailConfig`](crate::DropTailConfig).
    fn default() -> Self {
        Self { packets: 1000 }
    }
}

/// Two classes in one buffer. A low packet leaves only when no high packet waits; a high packet that finds the
/// buffer full takes the place of the low packet that came last, and is dropped only if there is none.
///
/// The last low packet goes, rather than the first, so that what is lost is what tail drop would have refused a
/// moment ago, and the oldest data still arrives.
#[derive(Clone, Debug)]
pub struct PushOut<P> {
    packets: u64,
    high: VecDeque<P>,
    low: VecDeque<P>,
    backlog: Backlog,
    counters: Counters,
}

impl<P: Packet> PushOut<P> {
    /// An empty queue.
    ///
    /// # Errors
    /// [`LimitError::NoPackets`] if nothing may wait.
    pub fn new(config: PushOutConfig) -> Result<Self, LimitError> {
        if config.packets == 0 {
            return Err(LimitError::NoPackets);
        }
        Ok(Self {
            packets: config.packets,
            high: VecDeque::new(),
            low: VecDeque::new(),
            backlog: Backlog::default(),
            counters: Counters::default(),
        })
    }
}

impl<P: Packet> Discipline<P> for PushOut<P> {
    fn enqueue(&mut self, _now: Time, packet: P) -> Verdict<P> {
        let len = packet.len();
        let layer = packet.layer();
        self.counters.enqueued.count(len);
        let mut replaced = None;
        if self.backlog.packets >= self.packets {
            replaced = if layer == Layer::High { self.low.pop_back() } else { None };
            let Some(replaced) = &replaced else {
                self.counters.overflow(&packet);
                return Verdict::Dropped(packet);
            };
            self.backlog.pop(replaced.len());
            self.counters.overflow(replaced);
        }
        self.backlog.push(len);
        match layer {
            Layer::High => self.high.push_back(packet),
            Layer::Low => self.low.push_back(packet),
        }
        replaced.map_or(Verdict::Queued, Verdict::Replaced)
    }

    fn dequeue_with(&mut self, _now: Time, _on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let packet = self.high.pop_front().or_else(|| self.low.pop_front())?;
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
