//! Two hosts on a link.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sim::{LinkConfig, LinkId, Loss, Network, NodeId};
use marcato_units::{Duration, Rate, Seed};

pub(crate) struct World {
    pub(crate) net: Network,
    pub(crate) client: NodeId,
    pub(crate) server: NodeId,
    pub(crate) there: LinkId,
    pub(crate) back: LinkId,
}

impl World {
    /// Two hosts on a link of so many Mbit/s and ms one way, with room for so many packets, and these losses
    /// there and back.
    pub(crate) fn new(seed: u64, mbps: u64, delay: u64, packets: u64, losses: [Loss; 2]) -> Self {
        let mut net = Network::new(Seed::new(seed));
        let (client, server) = (net.node("client"), net.node("server"));
        let [there, back] = losses.map(|loss| {
            let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(packets) }).unwrap();
            LinkConfig::new(Rate::from_mbps(mbps), Duration::from_millis(delay)).queue(queue).loss(loss)
        });
        let (there, back) = net.link(client, server, there, back);
        Self { net, client, server, there, back }
    }
}
