//! A third, lowest class for the first window of a low layer (PLT §5).

use std::collections::HashMap;

use marcato_queue::{Backlog, Counters, Discipline, DropTail, FlowKey, LimitError, Packet as _, Verdict};
use marcato_sim::Packet;
use marcato_units::{Layer, Time};
use marcato_wire::{TcpFlags, Transport};

use super::world::queue;

/// Router of three drop-tail classes in strict priority: high, low, and the first low packets of
/// each connection.
///
/// In the paper's proposal senders mark the first packets. Here the router counts them. The result
/// is equal, because a low layer sends its first window in one flight and everything else later.
#[derive(Debug)]
pub(super) struct ThreeClasses {
    /// Classes in the order of service.
    classes: [DropTail<Packet>; 3],
    /// Number of low packets of a connection that count as first ones.
    window: u64,
    /// Low packets of each flow so far. Flow keys are reused after a flow has ended, so a SYN
    /// resets the count.
    seen: HashMap<FlowKey, u64>,
    counters: Counters,
}

impl ThreeClasses {
    /// Creates a router with room for `packets` in each class.
    pub(super) fn new(packets: u64, window: u64) -> Result<Self, LimitError> {
        let classes = [queue(packets)?, queue(packets)?, queue(packets)?];
        Ok(Self { classes, window, seen: HashMap::new(), counters: Counters::default() })
    }

    fn class(&mut self, packet: &Packet) -> usize {
        match packet.layer() {
            Layer::High => {
                if matches!(packet.transport(), Transport::Tcp(segment) if segment.flags.has(TcpFlags::SYN)) {
                    self.seen.remove(&packet.flow());
                }
                0
            }
            Layer::Low => {
                let seen = self.seen.entry(packet.flow()).or_default();
                *seen += 1;
                if *seen > self.window { 1 } else { 2 }
            }
        }
    }

    fn count(&mut self) {
        let [high, low, first] = &self.classes;
        self.counters = *high.counters() + *low.counters() + *first.counters();
    }
}

impl Discipline<Packet> for ThreeClasses {
    fn enqueue_with(
        &mut self,
        now: Time,
        packet: Packet,
        on_drop: &mut dyn FnMut(Packet),
    ) -> Verdict<Packet> {
        let class = self.class(&packet);
        let verdict = self.classes[class].enqueue_with(now, packet, on_drop);
        self.count();
        verdict
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(Packet)) -> Option<Packet> {
        let packet = self.classes.iter_mut().find_map(|class| class.dequeue_with(now, on_drop));
        self.count();
        packet
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.classes.iter().filter_map(|class| class.next_ready(now)).min()
    }

    fn backlog(&self) -> Backlog {
        self.classes.iter().fold(Backlog::default(), |sum, class| sum + class.backlog())
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
