//! Handshakes in progress, by the network of the peer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use marcato_stream::Network;

/// Peers that have not completed their handshake. Each network has a bound, so that none takes all
/// of an endpoint's handshakes.
#[derive(Debug)]
pub(crate) struct Strangers {
    most: usize,
    /// Number of peers, by network. It has at most as many entries as the endpoint has handshakes.
    networks: Mutex<HashMap<Network, usize>>,
}

/// Place of one peer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    network: Network,
    all: Arc<Strangers>,
}

impl Strangers {
    /// Creates an empty set, with at most `most` peers of each network, and at least one.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), networks: Mutex::default() })
    }

    fn networks(&self) -> MutexGuard<'_, HashMap<Network, usize>> {
        // A panic while the lock was held leaves a map that is still valid.
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place for the peer at this address, unless its network has none left.
    pub(crate) fn admit(self: &Arc<Self>, addr: IpAddr) -> Option<Stranger> {
        let network = Network::from(addr);
        let mut networks = self.networks();
        let count = networks.entry(network).or_insert(0);
        // The bound is at least one, so no entry of zero stays behind.
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Stranger { network, all: Arc::clone(self) })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut networks = self.all.networks();
        if let Some(count) = networks.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                networks.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(strangers: &Arc<Strangers>, addr: &str) -> Option<Stranger> {
        strangers.admit(addr.parse().unwrap())
    }

    #[test]
    fn each_network_has_its_own_bound_and_leaves_nothing_behind() {
        let strangers = Strangers::new(2);
        let first = [admit(&strangers, "192.0.2.1"), admit(&strangers, "::ffff:192.0.2.1")];
        assert!(first.iter().all(Option::is_some));
        assert!(admit(&strangers, "192.0.2.1").is_none());
        let other = admit(&strangers, "192.0.2.2");
        assert!(other.is_some());
        drop(first);
        assert!(admit(&strangers, "192.0.2.1").is_some());
        drop(other);
        assert!(strangers.networks().is_empty());
    }

    #[test]
    fn addresses_of_one_64_bit_network_share_a_bound() {
        let strangers = Strangers::new(1);
        let _first = admit(&strangers, "2001:db8:0:1::1").unwrap();
        assert!(admit(&strangers, "2001:db8:0:1:ffff::2").is_none());
        assert!(admit(&strangers, "2001:db8:0:2::1").is_some());
    }
}
