//! Datagram flows in the network: the seam between hosts and links.

use std::any::Any;
use std::net::SocketAddr;

use marcato_units::{Bytes, Time};
use marcato_wire::{Ecn, QuicHeader};

use super::Network;
use crate::address::{Family, Rebinding};
use crate::datagram::{DatagramFlow, Datagrams};
use crate::event::Event;
use crate::flow::{Flow, FlowError, Kind};
use crate::host::{Host, HostContext, HostStats, Incoming};
use crate::packet::{Body, Datagram, FlowId, Packet, Side};
use crate::route::{
    AddRouteError, MAX_ROUTES, Path, RebindError, Route, RouteEnd, RouteEnds, RouteId, RouteStats,
};
use crate::sojourn::Stamp;
use crate::topology::NodeId;

impl Network {
    /// Adds a flow of datagrams between two hosts.
    ///
    /// Its random streams are named after the nodes of its first route, and a count of the datagram
    /// flows between these. So it does not change the draws of other flows.
    ///
    /// # Errors
    ///
    /// [`FlowError`] if the flow has no route, or one that cannot be added.
    pub fn datagrams(&mut self, flow: DatagramFlow) -> Result<FlowId, FlowError> {
        let DatagramFlow { client, server, routes, start, family } = flow;
        let first = *routes.first().ok_or(FlowError::NoRoute)?;
        if routes.len() > MAX_ROUTES {
            return Err(AddRouteError::TooMany.into());
        }
        let ways = routes.iter().map(|route| self.way(*route, family)).collect::<Result<Vec<_>, _>>()?;
        let name = self.name("datagrams/", first.client, first.server);
        let mut datagrams = Datagrams::new(client, server, family, name);
        let mut paths = Vec::with_capacity(ways.len());
        for (path, ends) in ways {
            paths.push(path);
            datagrams.routes.push(ends);
        }
        let nodes = [first.client, first.server];
        Ok(self.add_flow(Kind::Datagrams(Box::new(datagrams)), paths, nodes, start))
    }

    /// Adds a route to a datagram flow. If the flow has begun, calls [`Host::route_added`] on both
    /// hosts, the client first.
    ///
    /// # Errors
    ///
    /// [`AddRouteError`] if no links join the nodes, no address is left, the flow already has the
    /// most routes, or it is no datagram flow.
    pub fn add_route(&mut self, flow: FlowId, route: Route) -> Result<RouteId, AddRouteError> {
        let Kind::Datagrams(datagrams) = &self.flows[flow.0 as usize].kind else {
            return Err(AddRouteError::NotDatagrams);
        };
        let count = datagrams.routes.len();
        let added = u8::try_from(count).ok().filter(|_| count < MAX_ROUTES).ok_or(AddRouteError::TooMany)?;
        let (path, ends) = self.way(route, datagrams.family)?;
        let record = &mut self.flows[flow.0 as usize];
        record.paths.push(path);
        if let Kind::Datagrams(datagrams) = &mut record.kind {
            datagrams.routes.push(ends);
            if datagrams.started {
                for side in [Side::Client, Side::Server] {
                    self.call_host(flow, side, |host, now, context| {
                        host.route_added(now, RouteId(added), context);
                    });
                }
            }
        }
        Ok(RouteId(added))
    }

    /// Gives an end of a route another address, like a NAT that has lost its binding, and returns
    /// that address.
    ///
    /// The other end sees the new address on every datagram sent from now on. Datagrams sent to the
    /// old address, or already in flight to it, are dropped on arrival. The host at `side` is not
    /// notified and keeps its local address.
    ///
    /// # Errors
    ///
    /// [`RebindError`] if there is no such route, or no address left.
    pub fn rebind(
        &mut self,
        flow: FlowId,
        side: Side,
        route: RouteId,
        rebinding: Rebinding,
    ) -> Result<SocketAddr, RebindError> {
        let Kind::Datagrams(datagrams) = &mut self.flows[flow.0 as usize].kind else {
            return Err(RebindError::NoSuchRoute);
        };
        let ends = datagrams.routes.get_mut(route.index()).ok_or(RebindError::NoSuchRoute)?;
        let end = &mut ends[side.index()];
        match self.addresses.rebind(end.node, end.public(), rebinding) {
            Some(address) => {
                end.rebind(address);
                Ok(address)
            }
            None => Err(RebindError::NoAddress { node: self.topology.name(end.node).to_owned() }),
        }
    }

    /// Resolves a route to its path, with an address at each end.
    fn way(&mut self, route: Route, family: Family) -> Result<(Path, RouteEnds), AddRouteError> {
        let links = [
            self.topology.route(route.client, route.server)?,
            self.topology.route(route.server, route.client)?,
        ];
        let client = self.route_end(route.client, family)?;
        let server = self.route_end(route.server, family)?;
        Ok((Path { layer: route.layer, links }, [client, server]))
    }

    fn route_end(&mut self, node: NodeId, family: Family) -> Result<RouteEnd, AddRouteError> {
        match self.addresses.give(node, family) {
            Some(local) => Ok(RouteEnd::new(node, local)),
            None => Err(AddRouteError::NoAddress { node: self.topology.name(node).to_owned() }),
        }
    }

    pub(super) fn start_hosts(&mut self, flow: FlowId) {
        if let Kind::Datagrams(datagrams) = &mut self.flows[flow.0 as usize].kind {
            datagrams.started = true;
        }
        for side in [Side::Client, Side::Server] {
            self.call_host(flow, side, |host, now, context| host.start(now, context));
        }
    }

    /// Delivers a datagram to the host at its end of the route.
    pub(super) fn datagram_arrives(&mut self, packet: Packet) {
        let (now, flow, side, route) = (self.now, packet.flow, packet.from.peer(), packet.route);
        let Flow { kind: Kind::Datagrams(datagrams), watch, .. } = &mut self.flows[flow.0 as usize] else {
            return;
        };
        let Body::Datagram(Datagram { source, destination, .. }) = packet.body else { return };
        let ends = &mut datagrams.routes[usize::from(route)];
        let is_current = destination == ends[side.index()].current();
        let local = ends[side.index()].local();
        let from = &mut ends[side.peer().index()];
        if !is_current {
            from.stats.misdirected += 1;
            self.tallies.dropped(packet);
            return;
        }
        if let Some(watch) = watch {
            watch.note_arrival(now, packet.from, now - packet.sent_at, packet.ecn == Ecn::Ce);
        }
        self.tallies.arrived(&packet);
        let Packet { ecn, sent_at, body: Body::Datagram(Datagram { payload, .. }), .. } = packet else {
            return;
        };
        let payload = self.tallies.payloads.take(payload);
        let delay = now - sent_at;
        from.stats.arrived += 1;
        from.stats.marked += u64::from(ecn == Ecn::Ce);
        from.stats.bytes += Bytes::new(payload.len() as u64);
        from.stats.delay_sum += delay;
        from.stats.delay_max = from.stats.delay_max.max(delay);
        let remote = from.address(source);
        let incoming = Incoming { route: RouteId(route), remote, local, ecn, payload };
        self.call_host(flow, side, |host, now, context| host.datagram(now, incoming, context));
    }

    pub(super) fn host_timer(&mut self, flow: FlowId, side: Side) {
        let now = self.now;
        let Kind::Datagrams(datagrams) = &mut self.flows[flow.0 as usize].kind else { return };
        let end = &mut datagrams.hosts[side.index()];
        // The timer was moved to an earlier event, which has handled it.
        if end.scheduled != Some(now) {
            return;
        }
        end.scheduled = None;
        if end.deadline(now).is_some_and(|at| at <= now) {
            end.fired_at = Some(now);
            self.call_host(flow, side, |host, now, context| host.timer(now, context));
        } else {
            // The host has moved its timer to a later time.
            self.schedule_host(flow, side);
        }
    }

    /// Calls a host, then sends its datagrams and schedules its timer.
    fn call_host<R>(
        &mut self,
        flow: FlowId,
        side: Side,
        call: impl FnOnce(&mut dyn Host, Time, &HostContext<'_>) -> R,
    ) -> Option<R> {
        let (now, seed) = (self.now, self.seed);
        let Flow { kind: Kind::Datagrams(datagrams), paths, .. } = &mut self.flows[flow.0 as usize] else {
            return None;
        };
        let result = datagrams.call(seed, paths, side, |host, context| call(host, now, context));
        if datagrams.started {
            self.transmit(flow, side);
            self.schedule_host(flow, side);
        }
        Some(result)
    }

    /// Sends all datagrams that a host has.
    fn transmit(&mut self, flow: FlowId, side: Side) {
        let now = self.now;
        let Flow { kind: Kind::Datagrams(datagrams), paths, .. } = &mut self.flows[flow.0 as usize] else {
            return;
        };
        loop {
            self.payload.clear();
            let host = &mut datagrams.hosts[side.index()].host;
            let Some(outgoing) = host.transmit(now, &mut self.payload) else { return };
            let Some((route, destination)) = datagrams.find(side, outgoing.to) else {
                datagrams.hosts[side.index()].stats.unroutable += 1;
                continue;
            };
            let Some(len) = datagrams.packet_len(self.payload.len()) else {
                datagrams.hosts[side.index()].stats.oversized += 1;
                continue;
            };
            let end = &mut datagrams.routes[route.index()][side.index()];
            end.stats.sent += 1;
            let path = &paths[route.index()];
            let packet = Packet {
                flow,
                from: side,
                route: route.0,
                hop: 0,
                ecn: outgoing.ecn,
                layer: path.layer,
                stamp: Stamp::default(),
                len,
                sent_at: now,
                body: Body::Datagram(Datagram {
                    payload: self.tallies.payloads.put(&self.payload),
                    // The payload fits an IP packet, so its length fits 32 bits.
                    len: u32::try_from(self.payload.len()).unwrap_or(u32::MAX),
                    quic: QuicHeader::parse(&self.payload),
                    source: end.current(),
                    destination,
                }),
            };
            self.tallies.sent(&packet);
            let first = path.links[side.index()][0] as usize;
            self.links[first].send(now, packet, &mut self.agenda, &mut self.tallies);
        }
    }

    /// Schedules a host's timer, unless the agenda has an event for it that is no later.
    fn schedule_host(&mut self, flow: FlowId, side: Side) {
        let Kind::Datagrams(datagrams) = &mut self.flows[flow.0 as usize].kind else { return };
        let end = &mut datagrams.hosts[side.index()];
        if let Some(at) = end.deadline(self.now)
            && end.scheduled.is_none_or(|s| at < s)
        {
            end.scheduled = Some(at);
            self.agenda.at(at, Event::Host { flow, side });
        }
    }

    fn datagram_flow(&self, flow: FlowId) -> Option<&Datagrams> {
        match &self.flows[flow.0 as usize].kind {
            Kind::Datagrams(datagrams) => Some(datagrams),
            Kind::Tcp(_) | Kind::Udp(_) | Kind::Gone => None,
        }
    }

    fn end_of_route(&self, flow: FlowId, side: Side, route: RouteId) -> Option<&RouteEnd> {
        Some(&self.datagram_flow(flow)?.routes.get(route.index())?[side.index()])
    }

    /// Returns the host at an end of a datagram flow, if it is an `H`.
    pub fn host<H: Host>(&self, flow: FlowId, side: Side) -> Option<&H> {
        (self.any_host(flow, side)? as &dyn Any).downcast_ref()
    }

    /// Returns the host at an end of a datagram flow; `None` for other flows.
    pub(crate) fn any_host(&self, flow: FlowId, side: Side) -> Option<&dyn Host> {
        Some(&*self.datagram_flow(flow)?.hosts[side.index()].host)
    }

    /// Calls `call` with the host at an end of a datagram flow, at the current time. If the flow
    /// has begun, the network then sends the host's datagrams and sets its timer. Returns `None`,
    /// without a call, if the host is not an `H`.
    pub fn with_host<H: Host, R>(
        &mut self,
        flow: FlowId,
        side: Side,
        call: impl FnOnce(&mut H, Time, &HostContext<'_>) -> R,
    ) -> Option<R> {
        self.call_host(flow, side, |host, now, context| {
            let host = (host as &mut dyn Any).downcast_mut()?;
            Some(call(host, now, context))
        })?
    }

    /// Returns the address of an end of a route as the other end sees it; `None` if there is no
    /// such route.
    pub fn address(&self, flow: FlowId, side: Side, route: RouteId) -> Option<SocketAddr> {
        self.end_of_route(flow, side, route).map(RouteEnd::public)
    }

    /// Returns the counts of datagrams that an end of a datagram flow sent over a route, by
    /// outcome; `None` if there is no such route.
    pub fn route_stats(&self, flow: FlowId, from: Side, route: RouteId) -> Option<RouteStats> {
        self.end_of_route(flow, from, route).map(|end| end.stats)
    }

    /// Returns the counts of datagrams that a host could not send; `None` if the flow is no
    /// datagram flow.
    pub fn host_stats(&self, flow: FlowId, side: Side) -> Option<HostStats> {
        self.datagram_flow(flow).map(|datagrams| datagrams.hosts[side.index()].stats)
    }
}
