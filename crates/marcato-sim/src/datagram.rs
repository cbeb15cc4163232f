//! Datagram flow: two hosts, and the routes between them.

use std::net::SocketAddr;

use bytes::BytesMut;
use marcato_units::{Bytes, Duration, Seed, Time};
use marcato_wire::Ecn;

use crate::address::Family;
use crate::host::{Destination, Host, HostContext, HostStats, Incoming};
use crate::packet::{Side, UDP_HEADER};
use crate::route::{self, Path, Route, RouteEnd, RouteEnds, RouteId, RouteStats};

/// Configuration of a flow of datagrams between two hosts.
pub struct DatagramFlow {
    /// Host at the client.
    pub client: Box<dyn Host>,
    /// Host at the server.
    pub server: Box<dyn Host>,
    /// Routes between them: 1 to [`MAX_ROUTES`](crate::MAX_ROUTES).
    pub routes: Vec<Route>,
    /// Time at which both hosts begin.
    pub start: Time,
    /// IP version of their addresses.
    pub family: Family,
}

impl DatagramFlow {
    /// Flow over IPv4 that begins at time zero.
    pub fn new(client: impl Host, server: impl Host, routes: Vec<Route>) -> Self {
        Self {
            client: Box::new(client),
            server: Box::new(server),
            routes,
            start: Time::ZERO,
            family: Family::V4,
        }
    }

    /// Sets the time at which the flow begins.
    #[must_use]
    pub fn start(self, start: Time) -> Self {
        Self { start, ..self }
    }

    /// Sets the IP version.
    #[must_use]
    pub fn family(self, family: Family) -> Self {
        Self { family, ..self }
    }
}

pub(crate) struct HostEnd {
    pub(crate) host: Box<dyn Host>,
    /// Time of the event for the host's timer in the agenda.
    pub(crate) scheduled: Option<Time>,
    /// Time at which the host's timer was last called.
    pub(crate) fired_at: Option<Time>,
    pub(crate) stats: HostStats,
}

impl HostEnd {
    fn new(host: Box<dyn Host>) -> Self {
        Self { host, scheduled: None, fired_at: None, stats: HostStats::default() }
    }

    /// Returns the time at which to call the host's timer: `now` or later.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let at = self.host.next_timer().filter(|&at| at != Time::MAX)?;
        // Called at most once per instant, so that time advances whatever the host returns.
        let earliest = if self.fired_at == Some(now) { now + Duration::from_nanos(1) } else { now };
        Some(at.max(earliest))
    }
}

/// State of a [`DatagramFlow`] in the network.
pub(crate) struct Datagrams {
    pub(crate) hosts: [HostEnd; 2],
    /// One pair of ends for each path of the flow.
    pub(crate) routes: Vec<RouteEnds>,
    pub(crate) family: Family,
    pub(crate) started: bool,
    /// Flow's name, which names its random streams.
    name: String,
}

impl Datagrams {
    pub(crate) fn new(client: Box<dyn Host>, server: Box<dyn Host>, family: Family, name: String) -> Self {
        let hosts = [HostEnd::new(client), HostEnd::new(server)];
        Self { hosts, routes: Vec::new(), family, started: false, name }
    }

    /// Calls a host with its view of the network.
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

    /// Returns the route from `side` to `destination`, and the index of the address there.
    pub(crate) fn find(&self, side: Side, destination: Destination) -> Option<(RouteId, u32)> {
        match destination {
            Destination::Route(route) => {
                let ends = self.routes.get(route.index())?;
                Some((route, ends[side.peer().index()].current()))
            }
            Destination::Address { remote, local } => route::find(&self.routes, side, remote, local),
        }
    }

    /// Returns the length of the IP packet that carries `payload` bytes; `None` if no packet can.
    /// Both length fields have 16 bits, but that of IPv6 excludes its header. RFC 791 §3.1, RFC
    /// 8200 §3.
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

/// Two hosts of a [`DatagramFlow`] and the addresses of its routes, for a fabric that
/// carries their datagrams over real sockets. It has no clock and no sockets.
pub struct HostPair {
    datagrams: Datagrams,
    paths: Vec<Path>,
    seed: Seed,
}

impl HostPair {
    /// Creates the pair of the flow `name`. `addresses` are those of the client and of the server on
    /// each route.
    pub fn new(flow: DatagramFlow, addresses: &[[SocketAddr; 2]], name: String, seed: Seed) -> Self {
        let DatagramFlow { client, server, routes, family, .. } = flow;
        let mut datagrams = Datagrams::new(client, server, family, name);
        let ends = routes.iter().zip(addresses).map(|(route, &[client, server])| {
            [RouteEnd::new(route.client, client), RouteEnd::new(route.server, server)]
        });
        datagrams.routes.extend(ends);
        let path = |route: &Route| Path { layer: route.layer, links: Default::default() };
        Self { datagrams, paths: routes.iter().map(path).collect(), seed }
    }

    /// Begins the flow at both hosts.
    pub fn start(&mut self, now: Time) {
        self.datagrams.started = true;
        for side in [Side::Client, Side::Server] {
            self.datagrams.call(self.seed, &self.paths, side, |host, context| host.start(now, context));
        }
    }

    /// Delivers a datagram that came over a route.
    pub fn datagram(&mut self, now: Time, to: Side, route: RouteId, ecn: Ecn, payload: BytesMut) {
        let Some(ends) = self.datagrams.routes.get_mut(route.index()) else { return };
        let local = ends[to.index()].local();
        let from = &mut ends[to.peer().index()];
        let remote = from.public();
        from.stats.arrived += 1;
        from.stats.marked += u64::from(ecn == Ecn::Ce);
        from.stats.bytes += Bytes::new(payload.len() as u64);
        let incoming = Incoming { route, remote, local, ecn, payload };
        let call = |host: &mut dyn Host, context: &HostContext<'_>| host.datagram(now, incoming, context);
        self.datagrams.call(self.seed, &self.paths, to, call);
    }

    /// Returns the time of a host's timer.
    pub fn deadline(&self, now: Time, side: Side) -> Option<Time> {
        self.datagrams.hosts[side.index()].deadline(now)
    }

    /// Calls the timer of a host if it is due.
    pub fn timer(&mut self, now: Time, side: Side) {
        let end = &mut self.datagrams.hosts[side.index()];
        if end.deadline(now).is_some_and(|at| at <= now) {
            end.fired_at = Some(now);
            self.datagrams.call(self.seed, &self.paths, side, |host, context| host.timer(now, context));
        }
    }

    /// Writes the next datagram of a host into `payload`, which is empty. Returns its route and ECN
    /// code point; `None` if nothing may leave now.
    pub fn transmit(&mut self, now: Time, side: Side, payload: &mut Vec<u8>) -> Option<(RouteId, Ecn)> {
        loop {
            payload.clear();
            let outgoing = self.datagrams.hosts[side.index()].host.transmit(now, payload)?;
            let Some((route, _)) = self.datagrams.find(side, outgoing.to) else {
                self.datagrams.hosts[side.index()].stats.unroutable += 1;
                continue;
            };
            self.datagrams.routes[route.index()][side.index()].stats.sent += 1;
            return Some((route, outgoing.ecn));
        }
    }

    /// Returns the host at a side.
    pub fn host(&self, side: Side) -> &dyn Host {
        &*self.datagrams.hosts[side.index()].host
    }

    /// Returns the counts of datagrams that an end sent over a route; `None` if there is no such route.
    pub fn route_stats(&self, from: Side, route: RouteId) -> Option<RouteStats> {
        Some(self.datagrams.routes.get(route.index())?[from.index()].stats)
    }
}
