//! Buffer of the disciplines that decide on a packet when it arrives.

use alloc::collections::VecDeque;

use marcato_units::Time;

use crate::{Backlog, Counters, Packet, Verdict};

/// Packets in order of arrival, each with its time of arrival, and the counters of the queue that
/// holds them.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<P> {
    queue: VecDeque<(Time, P)>,
    pub(crate) backlog: Backlog,
    pub(crate) counters: Counters,
}

impl<P> Default for Fifo<P> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), backlog: Backlog::default(), counters: Counters::default() }
    }
}

impl<P: Packet> Fifo<P> {
    /// Appends a packet that has been counted as enqueued.
    pub(crate) fn push(&mut self, now: Time, packet: P) -> Verdict<P> {
        self.backlog.push(packet.len());
        self.queue.push_back((now, packet));
        Verdict::Queued
    }

    /// Refuses a packet because the queue is full.
    pub(crate) fn overflow(&mut self, packet: P) -> Verdict<P> {
        self.counters.overflow(&packet);
        Verdict::Dropped(packet)
    }

    /// Drops an arriving packet as a signal of congestion.
    pub(crate) fn drop_early(&mut self, packet: P) -> Verdict<P> {
        self.counters.dropped.count(packet.len());
        Verdict::Dropped(packet)
    }

    /// Marks `packet` as a signal of congestion, if it is capable of ECN, and returns whether it
    /// is.
    pub(crate) fn mark(&mut self, packet: &mut P) -> bool {
        let capable = packet.ecn().is_capable();
        if capable {
            packet.mark_ce();
            self.counters.marked.count(packet.len());
        }
        capable
    }

    /// Removes the head, and returns it with its time of arrival.
    pub(crate) fn pop(&mut self) -> Option<(Time, P)> {
        let (since, packet) = self.queue.pop_front()?;
        self.backlog.pop(packet.len());
        self.counters.dequeued.count(packet.len());
        Some((since, packet))
    }

    /// Time of arrival of the head.
    pub(crate) fn head_since(&self) -> Option<Time> {
        self.queue.front().map(|(since, _)| *since)
    }
}

/// Methods of [`Discipline`](crate::Discipline) that every work-conserving discipline with a field
/// `fifo` has alike.
macro_rules! fifo_methods {
    () => {
        fn next_ready(&self, now: Time) -> Option<Time> {
            (!self.fifo.backlog.is_empty()).then_some(now)
        }

        fn backlog(&self) -> Backlog {
            self.fifo.backlog
        }

        fn counters(&self) -> &Counters {
            &self.fifo.counters
        }
    };
}
pub(crate) use fifo_methods;
