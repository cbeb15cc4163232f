//! Where the packets of each flow are.

use crate::packet::{FlowId, Packet, Side};

/// What became of the packets that one end of a flow sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTally {
    /// Packets sent.
    pub sent: u64,
    /// Packets that reached the other end.
    pub arrived: u64,
    /// Packets that a queue dropped or a wire lost.
    pub dropped: u64,
}

/// The tallies of all flows.
#[derive(Default)]
pub(crate) struct FlowTallies(Vec<[FlowTally; 2]>);

impl FlowTallies {
    pub(crate) fn add_flow(&mut self) {
        self.0.push([FlowTally::default(); 2]);
    }

    pub(crate) fn of(&self, flow: FlowId, from: Side) -> FlowTally {
        self.0[flow.0 as usize][from.index()]
    }

    pub(crate) fn sent(&mut self, packet: &Packet) {
        self.slot(packet).sent += 1;
    }

    pub(crate) fn arrived(&mut self, packet: &Packet) {
        self.slot(packet).arrived += 1;
    }

    pub(crate) fn dropped(&mut self, packet: &Packet) {
        self.slot(packet).dropped += 1;
    }

    /// Packets that were sent and have neither arrived nor been dropped: they must be in the network.
    pub(crate) fn outstanding(&self) -> u64 {
        self.0.iter().flatten().map(|t| t.sent - t.arrived - t.dropped).sum()
    }

    fn slot(&mut self, packet: &Packet) -> &mut FlowTally {
        &mut self.0[packet.flow.0 as usize][packet.from.index()]
    }
}
