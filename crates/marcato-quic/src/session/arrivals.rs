//! Sockets on which packets from addresses without a lane have arrived.

use std::collections::VecDeque;
use std::net::SocketAddr;

use marcato_units::{Duration, Time};

use crate::endpoint::SocketId;

/// Limit of remembered addresses; beyond it the oldest is forgotten.
const MAX_ARRIVALS: usize = 16;
/// Period after a change of address in which the engine may return to the old one. It is generous:
/// three PTOs at most are needed.
const MOVE: Duration = Duration::from_secs(10);

/// Remote addresses that belong to no lane, each with the socket to answer by, latest last.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    known: VecDeque<(SocketAddr, SocketId)>,
    /// End of the period in which a path's address, and so its controller, may still change.
    moving_until: Option<Time>,
}

impl Arrivals {
    /// Records a packet from an address that is not that of a lane, or on another socket.
    pub(super) fn arrived(&mut self, now: Time, remote: SocketAddr, socket: SocketId) {
        self.remember(remote, socket);
        self.moving_until = Some(now + MOVE);
    }

    /// Remembers the socket of an address, although nothing has arrived from it now.
    pub(super) fn remember(&mut self, remote: SocketAddr, socket: SocketId) {
        self.known.retain(|(known, _)| *known != remote);
        self.known.push_back((remote, socket));
        if self.known.len() > MAX_ARRIVALS {
            self.known.pop_front();
        }
    }

    /// Returns the socket on which packets from this address last arrived.
    pub(super) fn socket_to(&self, remote: SocketAddr) -> Option<SocketId> {
        self.known.iter().rev().find(|(known, _)| *known == remote).map(|(_, socket)| *socket)
    }

    /// Returns whether the address of a path may have changed, or change back.
    pub(super) fn may_move(&self, now: Time) -> bool {
        self.moving_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn the_latest_socket_of_an_address_counts() {
        let mut arrivals = Arrivals::default();
        arrivals.arrived(Time::ZERO, addr(1), SocketId(0));
        arrivals.arrived(Time::ZERO, addr(1), SocketId(1));
        assert_eq!(arrivals.socket_to(addr(1)), Some(SocketId(1)));
        assert_eq!(arrivals.socket_to(addr(2)), None);
    }

    #[test]
    fn forged_addresses_fill_no_memory() {
        let mut arrivals = Arrivals::default();
        for port in 0..1000 {
            arrivals.arrived(Time::ZERO, addr(port), SocketId(0));
        }
        let known: Vec<_> = (0..1000).filter(|port| arrivals.socket_to(addr(*port)).is_some()).collect();
        assert_eq!(known, (984..1000).collect::<Vec<_>>());
        assert_eq!(known.len(), MAX_ARRIVALS);
    }

    #[test]
    fn packets_of_one_address_push_out_no_other() {
        let mut arrivals = Arrivals::default();
        arrivals.arrived(Time::ZERO, addr(1), SocketId(1));
        (0..100).for_each(|_| arrivals.arrived(Time::ZERO, addr(2), SocketId(0)));
        assert_eq!(arrivals.socket_to(addr(1)), Some(SocketId(1)));
    }

    #[test]
    fn only_an_arrival_makes_addresses_change() {
        let mut arrivals = Arrivals::default();
        arrivals.remember(addr(1), SocketId(0));
        assert!(!arrivals.may_move(Time::ZERO));
        arrivals.arrived(Time::ZERO, addr(2), SocketId(0));
        assert!(arrivals.may_move(Time::from_secs(9)));
        assert!(!arrivals.may_move(Time::from_secs(10)));
    }
}
