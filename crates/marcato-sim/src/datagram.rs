//! A datagram flow: two hosts, and the routes between them.

use marcato_units::{Duration, Seed, Time};

use crate::address::Family;
use crate::host::{Destination, Host, HostContext, HostStats};
use crate::packet::{Side, UDP_HEADER};
use crate::route::{self, Path, Route, RouteEnds, RouteId};

/// A flow of datagrams between two hosts, as it shall be.
pub struct DatagramFlow {
    /// What runs at the client.
    pub client: Box<dyn Host>,
    /// What runs at the server.
    pub server: Box<dyn Host>,
    /// The routes between them: 1 to [`MAX_ROUTES`](crate::MAX_ROUTES).
    pub routes: Vec<Route>,
    /// When both hosts begin.
    pub start: Time,
    /// Which IP they speak.
    pub family: Family,
}

impl DatagramFlow {
    /// A flow over IPv4 that begins at time zero.
    pub fn new(client: impl Host, server: impl Host, routes: Vec<Route>) -> Self {
        Self {
            client: Box::new(client),
            server: Box::new(server),
            routes,
            start: Time::ZERO,
            family: Family::V4,
        }
    }

    /// Beginning at `start`.
    #[must_use]
    pub fn start(self, start: Time) -> Self {
        Self { start, ..self }
    }

    /// Over this IP.
    #[must_use]
    pub fn family(self, family: Family) -> Self {
        Self { family, ..self }
    }
}

pub(crate) struct HostEnd {
    pub(crate) host: Box<dyn Host>,
    /// When an event for the host's timer is in the agenda.
    pub(crate) scheduled: Option<Time>,
    /// When the host's timer was last called.
    pub(crate) fired_at: Option<Time>,
    pub(crate) stats: HostStats,
}

impl HostEnd {
    fn new(host: Box<dyn Host>) -> Self {
        Self { host, scheduled: None, fired_at: None, stats: HostStats::default() }
    }

    /// When the host's timer is to be called, at `now` or later.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let at = self.host.next_timer().filter(|&at| at != Time::MAX)?;
        // Not twice in an instant: time has to go on whatever the host says.
        let earliest = if self.fired_at == Some(now) { now + Duration::from_nanos(1) } else { now };
        Some(at.max(earliest))
    }
}

/// A [`DatagramFlow`] under way.
pub(crate) struct Datagrams {
    pub(crate) hosts: [HostEnd; 2],
    /// As many as the flow has paths.
    pub(crate) routes: Vec<RouteEnds>,
    pub(crate) family: Family,
    pub(crate) started: bool,
    /// The flow's name, by which its random streams are called.
    name: String,
}

impl Datagrams {
    pub(crate) fn new(client: Box<dyn Host>, server: Box<dyn Host>, family: Family, name: String) -> Self {
        let hosts = [HostEnd::new(client), HostEnd::new(server)];
        Self { hosts, routes: Vec::new(), family, started: false, name }
    }

    /// Lets a host see its surroundings.
    pub(crate) fn call<R>(
        &mut self,
        seed: Seed,
        paths: &[Path],
        side: Side,
        call: impl FnOnce(&mut dyn Host, &HostContext<'_>) -> R,
    ) -> R {
        let context = HostContext { side, seed, name: &self.name, routes: &self.routes, paths };
        call(&mut *self.hosts[side.index()].host, &context)
    }

    /// The route that leads from `side` to `destination`, and the number of the address there.
    pub(crate) fn find(&self, side: Side, destination: Destination) -> Option<(RouteId, u32)> {
        match destination {
            Destination::Route(route) => {
                let ends = self.routes.get(route.index())?;
                Some((route, ends[side.peer().index()].current()))
            }
            Destination::Address { remote, local } => route::find(&self.routes, side, remote, local),
        }
    }

    /// Length of the IP packet that carries `payload` bytes; `None` if no packet can. RFC 791 §3.1, RFC 8200 §3: both
    /// lengths are of 16 bits, but IPv6 does not count its header.
    pub(crate) fn packet_len(&self, payload: usize) -> Option<u32> {
        let datagram = u32::try_from(payload).ok()?.checked_add(UDP_HEADER)?;
        let packet = datagram.checked_add(self.family.header())?;
        let counted = match self.family {
            Family::V4 => packet,
            Family::V6 => datagram,
        };
        (counted <= u32::from(u16::MAX)).then_some(packet)
    }
}
