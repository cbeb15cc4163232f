//! Peers and sessions that the endpoints of a group have admitted, and their bounds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use marcato_stream::Network;

use crate::endpoint::EndpointConfig;
use crate::strangers::Strangers;

/// Bounds that hold for all endpoints of a group together. A lock guards the counts, and is taken
/// when a session begins, completes its handshake or ends.
#[derive(Clone, Debug)]
pub(crate) struct Admission(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    max_sessions: usize,
    max_handshakes: usize,
    validate_addresses: bool,
    /// Limit of `pending`.
    room: usize,
    sessions: usize,
    handshakes: usize,
    /// Peers in their handshake, and those that the owner has not accepted since.
    pending: usize,
    /// Clients in their handshake that have proved their address.
    strangers: Strangers,
    /// Clients that have proved their address and wait for their turn, and their number.
    waiting: Strangers,
    waiters: usize,
}

/// Result for a peer that wants to begin a session.
#[derive(Debug)]
pub(crate) enum Verdict {
    Admitted {
        session: Held,
        handshake: Held,
        pending: Pending,
    },
    /// It has to prove its address first.
    Validate,
    /// A limit is reached, and waiting does not help.
    Refused,
    /// It may wait for its turn.
    Wait(Held),
    /// Too many peers are in their handshake or not accepted since, and too many wait.
    Full,
    /// Too many handshakes of its network are in progress, and too many peers wait.
    Crowded,
}

/// Kind of a place.
#[derive(Debug)]
enum Kind {
    Session,
    Handshake(Option<Network>),
    Pending,
    Waiting(Network),
}

/// Place of a session, which is free again on drop.
#[derive(Debug)]
pub(crate) struct Held {
    admission: Admission,
    kind: Kind,
}

/// Place of a peer among those that the application has not accepted. It is free again on drop.
#[derive(Debug)]
pub struct Pending {
    _held: Held,
}

impl Admission {
    pub(crate) fn new(config: &EndpointConfig) -> Self {
        Self(Arc::new(Mutex::new(Counts {
            max_sessions: config.max_sessions,
            max_handshakes: config.max_handshakes,
            validate_addresses: config.validate_addresses,
            room: usize::MAX,
            sessions: 0,
            handshakes: 0,
            pending: 0,
            strangers: Strangers::new(config.max_handshakes_per_address),
            // No network takes all places.
            waiting: Strangers::new(config.max_handshakes.div_ceil(2)),
            waiters: 0,
        })))
    }

    /// Locks the counts, even after a panic of another thread: each change leaves them whole.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits the peers in their handshake or not accepted since.
    pub(crate) fn set_room(&self, peers: usize) {
        self.counts().room = peers;
    }

    /// Returns a place for a session that begins here; `None` if there is none.
    pub(crate) fn session(&self) -> Option<Held> {
        let mut counts = self.counts();
        if counts.sessions >= counts.max_sessions {
            return None;
        }
        counts.sessions += 1;
        Some(self.held(Kind::Session))
    }

    /// Admits a peer, if the limits allow. `network` is that of a proved address. A peer that
    /// `may_retry` can be asked for the proof.
    pub(crate) fn admit(&self, network: Option<Network>, may_retry: bool) -> Verdict {
        let verdict = self.admit_now(network, may_retry);
        let (Verdict::Crowded | Verdict::Full, Some(network)) = (&verdict, network) else { return verdict };
        let mut counts = self.counts();
        if counts.waiters >= counts.max_handshakes || !counts.waiting.has_place(network) {
            return verdict;
        }
        counts.waiting.enter(network);
        counts.waiters += 1;
        Verdict::Wait(self.held(Kind::Waiting(network)))
    }

    /// Admits a peer as [`admit`](Self::admit) does, but lets none wait.
    pub(crate) fn admit_now(&self, network: Option<Network>, may_retry: bool) -> Verdict {
        let mut counts = self.counts();
        if counts.sessions >= counts.max_sessions || counts.room == 0 {
            return Verdict::Refused;
        }
        // RFC 9000 §8.1.2: a Retry packet makes the client prove its address before the handshake.
        // Forged handshakes take at most half of the room.
        let validate = counts.validate_addresses
            || counts.handshakes >= counts.max_handshakes
            || counts.pending >= counts.room.div_ceil(2);
        if validate && network.is_none() && may_retry {
            return Verdict::Validate;
        }
        if counts.pending >= counts.room {
            return Verdict::Full;
        }
        // Anyone can forge an address that was not proved, so only proved ones are counted.
        if let Some(network) = network {
            if !counts.strangers.has_place(network) {
                return Verdict::Crowded;
            }
            counts.strangers.enter(network);
        }
        counts.sessions += 1;
        counts.handshakes += 1;
        counts.pending += 1;
        Verdict::Admitted {
            session: self.held(Kind::Session),
            handshake: self.held(Kind::Handshake(network)),
            pending: Pending { _held: self.held(Kind::Pending) },
        }
    }

    fn held(&self, kind: Kind) -> Held {
        Held { admission: self.clone(), kind }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        match self.kind {
            Kind::Session => counts.sessions -= 1,
            Kind::Handshake(network) => {
                counts.handshakes -= 1;
                network.into_iter().for_each(|network| counts.strangers.leave(network));
            }
            Kind::Pending => counts.pending -= 1,
            Kind::Waiting(network) => {
                counts.waiting.leave(network);
                counts.waiters -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn admission(limits: impl FnOnce(&mut EndpointConfig)) -> Admission {
        let mut config = EndpointConfig::new(Vec::new());
        limits(&mut config);
        Admission::new(&config)
    }

    #[test]
    fn a_peer_holds_its_place_until_it_was_accepted() {
        let admission = admission(|_| {});
        admission.set_room(2);
        let Verdict::Admitted { session, handshake, pending } = admission.admit(None, true) else {
            panic!("there is room")
        };
        // From half of the room on, peers prove their address.
        assert!(matches!(admission.admit(None, true), Verdict::Validate));
        let second = admission.admit(None, false);
        assert!(matches!(second, Verdict::Admitted { .. }), "{second:?}");
        drop(handshake);
        assert!(matches!(admission.admit(None, false), Verdict::Full));
        drop(pending);
        assert!(matches!(admission.admit(None, false), Verdict::Admitted { .. }));
        drop((session, second));
        let counts = admission.counts();
        assert_eq!((counts.sessions, counts.handshakes, counts.pending), (0, 0, 0));
    }

    #[test]
    fn a_peer_that_was_turned_away_takes_nothing() {
        let network = |addr: &str| Some(Network::from(addr.parse::<IpAddr>().unwrap()));
        let admission = admission(|config| {
            config.max_handshakes_per_address = 1;
            config.max_sessions = 2;
        });
        let first = admission.admit(network("192.0.2.1"), false);
        assert!(matches!(admission.admit_now(network("192.0.2.1"), false), Verdict::Crowded));
        let second = admission.admit(network("192.0.2.2"), false);
        assert!(matches!(admission.admit(network("192.0.2.3"), false), Verdict::Refused));
        assert!(admission.session().is_none());
        drop((first, second));
        let counts = admission.counts();
        assert_eq!((counts.sessions, counts.handshakes, counts.pending), (0, 0, 0));
        assert!(network("192.0.2.1").is_some_and(|network| counts.strangers.has_place(network)));
    }

    #[test]
    fn beyond_the_handshakes_peers_prove_their_address() {
        let admission = admission(|config| config.max_handshakes = 2);
        let mut held: Vec<_> = (0..2).map(|_| admission.admit(None, true)).collect();
        assert!(matches!(admission.admit(None, true), Verdict::Validate));
        let Some(Verdict::Admitted { handshake, .. }) = held.pop() else { panic!("there is room") };
        drop(handshake);
        assert!(matches!(admission.admit(None, true), Verdict::Admitted { .. }));
    }

    #[test]
    fn peers_wait_for_those_of_their_network_within_two_bounds() {
        let network = |last| Some(Network::from(IpAddr::from([192, 0, 2, last])));
        let admission =
            admission(|config| (config.max_handshakes, config.max_handshakes_per_address) = (4, 1));
        let active: Vec<_> = (1..=3).map(|last| admission.admit(network(last), false)).collect();
        let wait = |last| {
            let verdict = admission.admit(network(last), false);
            matches!(verdict, Verdict::Wait(_) | Verdict::Crowded).then_some(()).expect("it has no turn");
            if let Verdict::Wait(held) = verdict { Some(held) } else { None }
        };
        // Half of the places are for one network, and as many as there are handshakes for all.
        let first: Vec<_> = (0..3).map(|_| wait(1)).collect();
        assert_eq!(first.iter().flatten().count(), 2);
        let second: Vec<_> = (0..3).map(|_| wait(2)).collect();
        assert_eq!(second.iter().flatten().count(), 2);
        assert!(wait(3).is_none());
        drop(first);
        assert!(wait(3).is_some());
        drop((second, active));
        let counts = admission.counts();
        assert_eq!((counts.waiters, counts.handshakes), (0, 0));
        assert!(counts.waiting.is_empty() && counts.strangers.is_empty());
    }
}
