//! Where the packets of each flow are.

use crate::packet::{Body, FlowId, Packet, Side};
use crate::payload::Payloads;

/// What became of the packets that one end of a flow sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTally {
    /// Packets sent.
    pub sent: u64,
    /// Packets that reached the other end.
    pub arrived: u64,
    /// Packets that a queue dropped, a wire lost or a link found too big.
    pub dropped: u64,
}

/// The tallies of all flows, and the payloads of what they have under way.
#[derive(Default)]
pub(crate) struct FlowTallies {
    flows: Vec<[FlowTally; 2]>,
    pub(crate) payloads: Payloads,
}

impl FlowTallies {
    pub(crate) fn add_flow(&mut self) {
        self.flows.push([FlowTally::default(); 2]);
    }

    pub(crate) fn of(&self, flow: FlowId, from: Side) -> FlowTally {
        self.flows[flow.0 as usize][from.index()]
    }

    pub(crate) fn sent(&mut self, packet: &Packet) {
        self.slot(packet).sent += 1;
    }

    pub(crate) fn arrived(&mut self, packet: &Packet) {
        self.slot(packet).arrived += 1;
    }

    /// The end of a packet and of its payload.
    pub(crate) fn dropped(&mut self, packet: Packet) {
        self.slot(&packet).dropped += 1;
        if let Body::Datagram(datagram) = packet.body {
            self.payloads.take(datagram.payload);
        }
    }

    /// Packets that were sent and have neither arrived nor been dropped: they must be in the network.
    pub(crate) fn outstanding(&self) -> u64 {
        self.flows.iter().flatten().map(|t| t.sent - t.arrived - t.dropped).sum()
    }

    /// The same of one flow.
    pub(crate) fn outstanding_of(&self, flow: FlowId) -> u64 {
        self.flows[flow.0 as usize].iter().map(|t| t.sent - t.arrived - t.dropped).sum()
    }

    fn slot(&mut self, packet: &Packet) -> &mut FlowTally {
        &mut self.flows[packet.flow.0 as usize][packet.from.index()]
    }
}
