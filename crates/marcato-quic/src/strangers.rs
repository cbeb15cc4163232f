//! Handshakes in progress, by the network of the peer.

use std::collections::HashMap;

use marcato_stream::Network;

/// Peers that have not completed their handshake. Each network has a bound, so that none takes all
/// of an endpoint's handshakes.
#[derive(Debug)]
pub(crate) struct Strangers {
    most: usize,
    /// Number of peers, by network. It has at most as many entries as the endpoint has handshakes.
    networks: HashMap<Network, usize>,
}

impl Strangers {
    /// Creates an empty set, with at most `most` peers of each network, and at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), networks: HashMap::new() }
    }

    /// Returns whether the network has a place for another peer.
    pub(crate) fn has_place(&self, network: Network) -> bool {
        self.networks.get(&network).is_none_or(|count| *count < self.most)
    }

    /// Returns whether there are no peers.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Adds a peer of this network.
    pub(crate) fn enter(&mut self, network: Network) {
        *self.networks.entry(network).or_insert(0) += 1;
    }

    /// Removes a peer of this network.
    pub(crate) fn leave(&mut self, network: Network) {
        if let Some(count) = self.networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network(addr: &str) -> Network {
        Network::from(addr.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn each_network_has_its_own_bound_and_leaves_nothing_behind() {
        let mut strangers = Strangers::new(2);
        let mut admit = |addr| {
            let has_place = strangers.has_place(network(addr));
            if has_place {
                strangers.enter(network(addr));
            }
            has_place
        };
        assert!(admit("192.0.2.1") && admit("::ffff:192.0.2.1"));
        assert!(!admit("192.0.2.1"));
        assert!(admit("192.0.2.2"));
        strangers.leave(network("192.0.2.1"));
        strangers.leave(network("::ffff:192.0.2.1"));
        assert!(strangers.has_place(network("192.0.2.1")));
        strangers.enter(network("192.0.2.1"));
        strangers.leave(network("192.0.2.1"));
        strangers.leave(network("192.0.2.2"));
        assert!(strangers.networks.is_empty());
    }

    #[test]
    fn addresses_of_one_64_bit_network_share_a_bound() {
        let mut strangers = Strangers::new(1);
        strangers.enter(network("2001:db8:0:1::1"));
        assert!(!strangers.has_place(network("2001:db8:0:1:ffff::2")));
        assert!(strangers.has_place(network("2001:db8:0:2::1")));
    }
}
