//! Handshakes in progress, by the network of the peer.

use crate::signal::lock;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use marcato_stream::Network;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Peers of one network.
#[derive(Debug, Default)]
struct Peers {
    /// Number of handshakes in progress.
    active: usize,
    /// Peers that wait for one of these to end, the oldest first.
    waiting: VecDeque<oneshot::Sender<OwnedSemaphorePermit>>,
}

/// Peers that have not completed their handshake. Each network has a bound, so that none takes all
/// of an endpoint's handshakes.
#[derive(Debug)]
pub(super) struct Strangers {
    /// Limits of the handshakes in progress and of the peers that wait for one, per network.
    most: usize,
    most_waiting: usize,
    /// Networks with handshakes in progress: at most as many as the endpoint has handshakes.
    networks: Mutex<HashMap<Network, Peers>>,
}

/// Place of one peer, until it is dropped.
#[derive(Debug)]
pub(super) struct Stranger {
    network: Network,
    all: Arc<Strangers>,
    /// Permit for a handshake of the endpoint; `None` while the peer waits for its turn.
    permit: Option<OwnedSemaphorePermit>,
    turn: Option<oneshot::Receiver<OwnedSemaphorePermit>>,
}

impl Strangers {
    pub(super) fn new(most: usize, most_waiting: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), most_waiting, networks: Mutex::default() })
    }

    /// Returns a place for the peer at this address, unless too many of its network wait. If it has
    /// to wait itself, the permit is free again: it gets that of a peer of its network.
    pub(super) fn admit(self: &Arc<Self>, addr: IpAddr, permit: OwnedSemaphorePermit) -> Option<Stranger> {
        let network = Network::from(addr);
        let mut stranger = Stranger { network, all: Arc::clone(self), permit: None, turn: None };
        let mut networks = lock(&self.networks);
        // An entry that is new has room, because the bound is at least one.
        let peers = networks.entry(network).or_default();
        if peers.active < self.most {
            peers.active += 1;
            stranger.permit = Some(permit);
            return Some(stranger);
        }
        if peers.waiting.len() >= self.most_waiting {
            // Those that have given up leave their places.
            peers.waiting.retain(|waiting| !waiting.is_closed());
        }
        if peers.waiting.len() >= self.most_waiting {
            return None;
        }
        let (waiting, turn) = oneshot::channel();
        peers.waiting.push_back(waiting);
        stranger.turn = Some(turn);
        Some(stranger)
    }
}

impl Strangers {
    /// Returns the number of peers that wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        let networks = lock(&self.networks);
        networks.values().flat_map(|peers| &peers.waiting).filter(|waiting| !waiting.is_closed()).count()
    }
}

impl Stranger {
    /// Waits until the peer may begin its handshake. Returns `false` if it never may.
    pub(super) async fn turn(&mut self) -> bool {
        if let Some(turn) = &mut self.turn {
            self.permit = turn.await.ok();
            self.turn = None;
        }
        self.permit.is_some()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        if let Some(mut turn) = self.turn.take() {
            turn.close();
            // The permit may have come at this moment.
            self.permit = turn.try_recv().ok();
        }
        let Some(mut permit) = self.permit.take() else { return };
        let mut networks = lock(&self.all.networks);
        let Some(peers) = networks.get_mut(&self.network) else { return };
        while let Some(next) = peers.waiting.pop_front() {
            match next.send(permit) {
                Ok(()) => return,
                Err(unused) => permit = unused,
            }
        }
        peers.active -= 1;
        if peers.active == 0 {
            networks.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    struct Endpoint {
        strangers: Arc<Strangers>,
        permits: Arc<Semaphore>,
    }

    impl Endpoint {
        fn new(most: usize, most_waiting: usize) -> Self {
            Self { strangers: Strangers::new(most, most_waiting), permits: Arc::new(Semaphore::new(10)) }
        }

        fn admit(&self, addr: &str) -> Option<Stranger> {
            let permit = Arc::clone(&self.permits).try_acquire_owned().unwrap();
            self.strangers.admit(addr.parse().unwrap(), permit)
        }

        fn assert_empty(&self) {
            assert!(lock(&self.strangers.networks).is_empty());
            assert_eq!(self.permits.available_permits(), 10);
        }
    }

    #[test]
    fn each_network_has_its_own_bound_and_leaves_nothing_behind() {
        let endpoint = Endpoint::new(2, 0);
        let first = [endpoint.admit("192.0.2.1"), endpoint.admit("::ffff:192.0.2.1")];
        assert!(first.iter().all(Option::is_some));
        assert!(endpoint.admit("192.0.2.1").is_none());
        let other = endpoint.admit("192.0.2.2");
        assert!(other.is_some());
        assert_eq!(endpoint.permits.available_permits(), 7);
        drop(first);
        assert!(endpoint.admit("192.0.2.1").is_some());
        drop(other);
        endpoint.assert_empty();
    }

    #[test]
    fn addresses_of_one_64_bit_network_share_a_bound() {
        let endpoint = Endpoint::new(1, 0);
        let _first = endpoint.admit("2001:db8:0:1::1").unwrap();
        assert!(endpoint.admit("2001:db8:0:1:ffff::2").is_none());
        assert!(endpoint.admit("2001:db8:0:2::1").is_some());
    }

    #[tokio::test]
    async fn peers_beyond_the_bound_take_turns_in_order() {
        let endpoint = Endpoint::new(1, 2);
        let mut places: Vec<_> = (0..3).filter_map(|_| endpoint.admit("192.0.2.1")).collect();
        assert_eq!(places.len(), 3);
        assert!(endpoint.admit("192.0.2.1").is_none());
        // Those that wait hold no permit of the endpoint.
        assert_eq!(endpoint.permits.available_permits(), 9);
        assert!(places[0].turn().await);
        drop(places.remove(0));
        assert!(places[0].turn().await);
        assert_eq!(endpoint.permits.available_permits(), 9);
        // The next one leaves without having noticed its turn.
        drop(places);
        endpoint.assert_empty();
    }

    #[tokio::test]
    async fn a_peer_that_stops_waiting_blocks_no_other() {
        let endpoint = Endpoint::new(1, 1);
        let first = endpoint.admit("192.0.2.1").unwrap();
        drop(endpoint.admit("192.0.2.1").unwrap());
        let mut next = endpoint.admit("192.0.2.1").unwrap();
        drop(first);
        assert!(next.turn().await);
        drop(next);
        endpoint.assert_empty();
    }
}
