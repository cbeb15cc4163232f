//! Counts of each flow's packets by outcome, and the slots of flows.

use std::ops::AddAssign;

use marcato_units::Time;

use crate::packet::{Body, FlowId, Packet, Side};
use crate::payload::Payloads;
use crate::record::{TapPoint, Taps};

/// Counts of the packets that one end of a flow sent, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTally {
    /// Packets sent.
    pub sent: u64,
    /// Copies of them that links made.
    pub duplicated: u64,
    /// Packets that reached the other end, copies included.
    pub arrived: u64,
    /// Packets that a queue dropped, a wire lost or a link found too big.
    pub dropped: u64,
}

impl FlowTally {
    fn outstanding(&self) -> u64 {
        self.sent + self.duplicated - self.arrived - self.dropped
    }
}

impl AddAssign for FlowTally {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.duplicated += other.duplicated;
        self.arrived += other.arrived;
        self.dropped += other.dropped;
    }
}

/// State of a flow in the network that outlives the flow.
#[derive(Clone, Copy, Default)]
struct Slot {
    sides: [FlowTally; 2],
    /// Number of events in the agenda that name the flow.
    events: u32,
    /// Group that receives the counts once the flow is over and nothing names its slot; `None`
    /// while the flow lives.
    retired_to: Option<u32>,
    /// Number of flows that had the slot before, modulo 256.
    reused: u8,
}

impl Slot {
    fn outstanding(&self) -> u64 {
        self.sides.iter().map(FlowTally::outstanding).sum()
    }
}

/// Tallies of all flows, and the payloads of their datagrams in flight.
#[derive(Default)]
pub(crate) struct FlowTallies {
    flows: Vec<Slot>,
    /// Free slots that nothing names any more; the last one freed is reused first.
    free: Vec<u32>,
    /// Packets of ended flows, by group.
    groups: Vec<[FlowTally; 2]>,
    pub(crate) payloads: Payloads,
    /// Taps on links, if any. They are stored here because links have the tallies at hand wherever
    /// they move a packet.
    pub(crate) taps: Option<Box<Taps>>,
}

impl FlowTallies {
    pub(crate) fn add_flow(&mut self) {
        self.flows.push(Slot::default());
    }

    /// Adds a group of flows that come and go; returns its number.
    pub(crate) fn add_group(&mut self) -> u32 {
        self.groups.push(Default::default());
        crate::topology::id(self.groups.len() - 1)
    }

    /// Returns the counts of a group's ended flows.
    pub(crate) fn of_group(&self, group: u32) -> [FlowTally; 2] {
        self.groups[group as usize]
    }

    /// Takes a free slot, if there is one.
    pub(crate) fn take_free(&mut self) -> Option<FlowId> {
        self.free.pop().map(FlowId)
    }

    /// Returns the number of flows that had this flow's slot before, modulo 256.
    pub(crate) fn reused(&self, flow: FlowId) -> u8 {
        self.flows[flow.0 as usize].reused
    }

    /// Counts an event in the agenda that names the flow.
    pub(crate) fn event_entered(&mut self, flow: FlowId) {
        self.flows[flow.0 as usize].events += 1;
    }

    /// Uncounts an event that names the flow, when it is processed.
    pub(crate) fn event_processed(&mut self, flow: FlowId) {
        self.flows[flow.0 as usize].events -= 1;
        self.release(flow);
    }

    /// Ends a flow. Its slot becomes free once no packet of it is in the network and no event names
    /// it.
    pub(crate) fn retire(&mut self, flow: FlowId, group: u32) {
        self.flows[flow.0 as usize].retired_to = Some(group);
        self.release(flow);
    }

    #[inline]
    fn release(&mut self, flow: FlowId) {
        if let Some(group) = self.flows[flow.0 as usize].retired_to {
            self.release_to(flow, group);
        }
    }

    #[cold]
    fn release_to(&mut self, flow: FlowId, group: u32) {
        let slot = &mut self.flows[flow.0 as usize];
        if slot.events == 0 && slot.outstanding() == 0 {
            for (total, tally) in self.groups[group as usize].iter_mut().zip(slot.sides) {
                *total += tally;
            }
            *slot = Slot { reused: slot.reused.wrapping_add(1), ..Slot::default() };
            self.free.push(flow.0);
        }
    }

    pub(crate) fn of(&self, flow: FlowId, from: Side) -> FlowTally {
        self.flows[flow.0 as usize].sides[from.index()]
    }

    pub(crate) fn sent(&mut self, packet: &Packet) {
        self.of_sender(packet).sent += 1;
    }

    pub(crate) fn arrived(&mut self, packet: &Packet) {
        self.of_sender(packet).arrived += 1;
        self.release(packet.flow);
    }

    /// Copies a packet, with a payload of its own.
    pub(crate) fn copy(&mut self, packet: &Packet) -> Packet {
        self.of_sender(packet).duplicated += 1;
        let mut copy = packet.clone();
        if let Body::Datagram(datagram) = &mut copy.body {
            datagram.payload = self.payloads.copy(&datagram.payload);
        }
        copy
    }

    /// Records a dropped packet, and frees its payload.
    pub(crate) fn dropped(&mut self, packet: Packet) {
        self.of_sender(&packet).dropped += 1;
        self.release(packet.flow);
        if let Body::Datagram(datagram) = packet.body {
            self.payloads.take(datagram.payload);
        }
    }

    /// Offers a packet to the tap at this point of a link, if there is one.
    #[inline]
    pub(crate) fn pass(&mut self, now: Time, link: u32, point: TapPoint, packet: &Packet) {
        if let Some(taps) = &mut self.taps {
            taps.note(now, link, point, packet, &self.payloads);
        }
    }

    /// Returns the number of packets and copies that have neither arrived nor been dropped; they
    /// must be in the network.
    pub(crate) fn outstanding(&self) -> u64 {
        self.flows.iter().map(Slot::outstanding).sum()
    }

    /// Returns the number of outstanding packets of one flow.
    pub(crate) fn outstanding_of(&self, flow: FlowId) -> u64 {
        self.flows[flow.0 as usize].outstanding()
    }

    fn of_sender(&mut self, packet: &Packet) -> &mut FlowTally {
        &mut self.flows[packet.flow.0 as usize].sides[packet.from.index()]
    }
}
