//! QUIC flow: two hosts of the simulator whose datagrams travel by sockets of the kernel.
//!
//! The hosts of a datagram flow have no sockets of their own. Their datagrams travel by UDP, with their ECN
//! fields and the DSCP of their layer (`route_socket`).

use std::io;
use std::net::SocketAddr;

use bytes::BytesMut;
use marcato_sim::{HostPair, RouteId, Side};
use marcato_units::Time;

use crate::route_socket::{Arrived, RouteSocket};

/// Sockets of a route: the client's and the server's.
pub(crate) struct RouteSockets {
    pub(crate) sockets: [RouteSocket; 2],
    pub(crate) addresses: [SocketAddr; 2],
}

/// Flow of datagrams between two hosts.
pub(crate) struct QuicRun {
    pub(crate) pair: HostPair,
    pub(crate) routes: Vec<RouteSockets>,
    /// Times of the events for the hosts' timers in the agenda.
    pub(crate) scheduled: [Option<Time>; 2],
    pub(crate) sent: [u64; 2],
    /// Datagrams that the sender's own kernel refused.
    pub(crate) refused: [u64; 2],
    started: bool,
    payload: Vec<u8>,
}

impl QuicRun {
    pub(crate) fn new(pair: HostPair, routes: Vec<RouteSockets>) -> Self {
        let (sent, refused, scheduled) = ([0; 2], [0; 2], [None; 2]);
        Self { pair, routes, scheduled, sent, refused, started: false, payload: Vec::new() }
    }

    /// Begins the flow.
    pub(crate) fn begin(&mut self, now: Time) {
        self.started = true;
        self.pair.start(now);
        self.transmit(now);
    }

    /// Reads the datagrams that have arrived at a socket.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        route: usize,
        side: Side,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let Some(sockets) = self.routes.get(route) else { return Ok(()) };
        let number = RouteId::new(u8::try_from(route).unwrap_or(u8::MAX));
        let peer = sockets.addresses[side.peer() as usize];
        loop {
            match sockets.sockets[side as usize].receive(buffer) {
                // Nobody else sends here, except in error.
                Ok(Arrived { from, .. }) if from != Some(peer) => {}
                Ok(Arrived { len, ecn, .. }) => {
                    self.pair.datagram(now, side, number, ecn, BytesMut::from(&buffer[..len]));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An earlier datagram met a port that nobody listens at.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        self.transmit(now);
        Ok(())
    }

    /// Calls the timer of a host.
    pub(crate) fn timer(&mut self, now: Time, side: Side) {
        self.pair.timer(now, side);
        self.transmit(now);
    }

    /// Returns the time at which to call a host's timer, if no earlier event of the agenda will.
    pub(crate) fn next_call(&mut self, now: Time, side: Side) -> Option<Time> {
        let at = self.pair.deadline(now, side).filter(|_| self.started)?;
        let scheduled = &mut self.scheduled[side as usize];
        if scheduled.is_some_and(|earlier| earlier <= at) {
            return None;
        }
        *scheduled = Some(at);
        Some(at)
    }

    /// Sends all datagrams that the hosts have.
    fn transmit(&mut self, now: Time) {
        let mut payload = std::mem::take(&mut self.payload);
        for side in [Side::Client, Side::Server] {
            while let Some((route, ecn)) = self.pair.transmit(now, side, &mut payload) {
                let Some(sockets) = self.routes.get(route.index()) else { continue };
                let to = sockets.addresses[side.peer() as usize];
                let sent = sockets.sockets[side as usize].send(&payload, to, ecn);
                self.sent[side as usize] += 1;
                self.refused[side as usize] += u64::from(sent.is_err());
            }
        }
        self.payload = payload;
    }
}
