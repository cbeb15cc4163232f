//! Network of nodes, links and flows, and the event loop that advances time.

use std::any::Any;
use std::collections::HashMap;

use marcato_link::Load;
use marcato_queue::FlowReport;
use marcato_sched::lowprio::EpochReport;
use marcato_units::{Bytes, Rate, Seed, Time};

use crate::address::AddressBook;
use crate::agenda::Agenda;
use crate::app::{App, FlowStreams, Socket};
use crate::change::LinkChange;
use crate::event::Event;
use crate::flow::{End, Flow, FlowError, Kind, Reception, TcpFlow, UdpFlow, UdpSource, UdpStats};
use crate::link::{Link, LinkConfig, LinkCounters, LinkQueue};
use crate::packet::{Body, FlowId, IPV4_HEADER, Packet, Side, UDP_HEADER};
use crate::plt::{LowPacket, PltStats};
use crate::process::Process;
use crate::route::Path;
use crate::sojourn::Stamp;
use crate::tally::{FlowTallies, FlowTally};
use crate::tcp::{Connection, Delivered, Segment, TcpStats};
use crate::topology::{LinkId, NodeId, RouteError, Topology, id};
use marcato_wire::Ecn;

mod hosts;
mod record;
mod spawn;
mod standstill;

pub use standstill::Standstill;

/// Error returned if packets have vanished or come from nowhere: a defect of the simulator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConservationError {
    /// A link does not account for every packet.
    #[error("link {link}: {offered} packets offered but {accounted} accounted for")]
    Link {
        /// Name of the link.
        link: String,
        /// Packets handed to it, and copies that it made.
        offered: u64,
        /// Sum of packets dropped, too big, lost, delivered, queued and in flight.
        accounted: u64,
    },
    /// The flows' outstanding packets are not those in the network.
    #[error("flows have {outstanding} packets outstanding but the network holds {held}")]
    Flows {
        /// Packets sent or duplicated that have neither arrived nor been dropped.
        outstanding: u64,
        /// Packets queued or in flight.
        held: u64,
    },
    /// The datagrams outstanding are not those with stored payloads.
    #[error("{outstanding} datagrams outstanding but {kept} payloads kept")]
    Payloads {
        /// Datagrams sent that have neither arrived nor been dropped.
        outstanding: u64,
        /// Payloads that the network stores.
        kept: u64,
    },
}

/// Hosts, links and flows in virtual time.
///
/// ```
/// use marcato_sim::{Bulk, LinkConfig, Network, Side, Tcp, TcpFlow};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
/// net.link(client, server, link(), link());
/// let flow = net.tcp(TcpFlow::new(client, server, Tcp::default(), Bulk::new(Bytes::kb(500))))?;
/// net.run_until(Time::from_secs(5));
/// assert_eq!(net.reception(flow, Side::Server).bytes, Bytes::kb(500));
/// # Ok::<(), marcato_sim::FlowError>(())
/// ```
pub struct Network {
    seed: Seed,
    now: Time,
    agenda: Agenda<Event>,
    topology: Topology,
    links: Vec<Link>,
    /// Pending changes of links, by number; `None` once made.
    changes: Vec<Option<LinkChange>>,
    flows: Vec<Flow>,
    /// Processes, and the links of their flows.
    processes: Vec<(Process, Path)>,
    /// Number of links or flows with each name.
    named: HashMap<String, u32>,
    addresses: AddressBook,
    tallies: FlowTallies,
    /// Buffer in which a host writes the datagram that leaves next.
    payload: Vec<u8>,
    events: u64,
    instant: standstill::Instant,
    standstill: Option<Standstill>,
}

impl Network {
    /// Creates an empty network; `seed` determines all randomness in it.
    pub fn new(seed: Seed) -> Self {
        Self {
            seed,
            now: Time::ZERO,
            agenda: Agenda::new(),
            topology: Topology::default(),
            links: Vec::new(),
            changes: Vec::new(),
            flows: Vec::new(),
            processes: Vec::new(),
            named: HashMap::new(),
            addresses: AddressBook::default(),
            tallies: FlowTallies::default(),
            payload: Vec::new(),
            events: 0,
            instant: standstill::Instant::new(),
            standstill: None,
        }
    }

    /// Adds a host or router.
    pub fn node(&mut self, name: &str) -> NodeId {
        self.topology.add(name)
    }

    /// Connects `a` and `b`. Returns the link from `a` to `b` and the reverse link.
    pub fn link(&mut self, a: NodeId, b: NodeId, there: LinkConfig, back: LinkConfig) -> (LinkId, LinkId) {
        let observes = [there.observes, back.observes];
        let ids = (self.one_way(a, b, there), self.one_way(b, a, back));
        for (observes, queue, other) in [(observes[0], ids.0, ids.1), (observes[1], ids.1, ids.0)] {
            self.links[other.0 as usize].observer = observes.then_some(queue.0);
        }
        ids
    }

    /// Connects `from` to `to` by a link of one direction. Its queue
    /// [observes](LinkConfig::observes) nothing, since no reverse link belongs to it; packets back
    /// take another way, if one exists.
    pub fn one_way(&mut self, from: NodeId, to: NodeId, config: LinkConfig) -> LinkId {
        let link = id(self.links.len());
        let name = self.name("", from, to);
        self.links.push(Link::new(link, name, config, self.seed));
        self.topology.connect(from, to, link);
        LinkId(link)
    }

    /// Changes the rate of a link at `at`, for every packet that has not begun to leave by then.
    /// [`Rate::ZERO`] is an outage: packets wait until the rate changes again.
    pub fn set_rate_at(&mut self, link: LinkId, at: Time, rate: Rate) {
        self.agenda.at(at.max(self.now), Event::Rate { link: link.0, rate });
    }

    /// Changes the delay, the loss or the queue of a link at `at`.
    pub fn change_link_at(&mut self, link: LinkId, at: Time, change: LinkChange) {
        let number = id(self.changes.len());
        self.changes.push(Some(change));
        self.agenda.at(at.max(self.now), Event::Change { link: link.0, change: number });
    }

    /// Takes a link up or down at `at`. A link that is down loses each packet that is offered to
    /// it, begins to leave, or would arrive. The sender is not notified.
    pub fn set_link_up_at(&mut self, link: LinkId, at: Time, up: bool) {
        self.agenda.at(at.max(self.now), Event::Up { link: link.0, up });
    }

    /// Adds a TCP flow. Its packets take the route with the fewest links; of equal routes, the
    /// first.
    pub fn tcp(&mut self, flow: TcpFlow) -> Result<FlowId, FlowError> {
        let links =
            [self.topology.route(flow.client, flow.server)?, self.topology.route(flow.server, flow.client)?];
        let name = self.name("flow/", flow.client, flow.server);
        let mut client = Connection::new(flow.client_config, self.seed, &format!("{name}/client"))?;
        let mut server = Connection::new(flow.server_config, self.seed, &format!("{name}/server"))?;
        client.agree_on_layers(&mut server);
        let mut ends = [End::new(client, flow.client_app), End::new(server, flow.server_app)];
        for (end, side) in ends.iter_mut().zip([Side::Client, Side::Server]) {
            end.app.named(&FlowStreams::new(self.seed, &name, side));
        }
        let paths = vec![Path { layer: flow.layer, links }];
        Ok(self.add_flow(Kind::Tcp(Box::new(ends)), paths, [flow.client, flow.server], flow.start))
    }

    /// Adds a UDP flow.
    pub fn udp(&mut self, flow: UdpFlow) -> Result<FlowId, FlowError> {
        let links = [self.topology.route(flow.from, flow.to)?, Vec::new()];
        let (layer, start, nodes) = (flow.layer, flow.start, [flow.from, flow.to]);
        let name = self.name("flow/", flow.from, flow.to);
        let source = UdpSource::new(flow, &name, self.seed)?;
        Ok(self.add_flow(Kind::Udp(Box::new(source)), vec![Path { layer, links }], nodes, start))
    }

    /// Returns the name of a link or flow, which also names its random streams: its ends, and a
    /// count if these ends already have others. What is added between other ends does not change
    /// its draws.
    fn name(&mut self, what: &str, from: NodeId, to: NodeId) -> String {
        let stem = format!("{what}{}>{}", self.topology.name(from), self.topology.name(to));
        let count = self.named.entry(stem.clone()).or_default();
        *count += 1;
        if *count == 1 { stem } else { format!("{stem}#{count}") }
    }

    fn add_flow(&mut self, kind: Kind, paths: Vec<Path>, nodes: [NodeId; 2], start: Time) -> FlowId {
        let start = start.max(self.now);
        let flow = self.push_flow(Flow::new(kind, paths, nodes, start));
        self.tallies.event_entered(flow);
        self.agenda.at(start, Event::Start { flow });
        flow
    }

    fn push_flow(&mut self, flow: Flow) -> FlowId {
        let id = FlowId(id(self.flows.len()));
        self.flows.push(flow);
        self.tallies.add_flow();
        id
    }

    /// Processes all events up to and including `until`, and sets the time to it.
    ///
    /// If events follow each other without end at one instant, the network comes to a
    /// [`standstill`](Self::standstill): it processes no more events, now and in later calls,
    /// though time advances. Where links come from a user, call
    /// [`try_run_until`](Self::try_run_until) instead.
    pub fn run_until(&mut self, until: Time) {
        while self.standstill.is_none()
            && let Some((now, event)) = self.agenda.pop_until(until)
        {
            let advanced = now > self.now;
            self.now = now;
            self.events += 1;
            self.step(now, event);
            if self.tallies.taps.is_some() {
                self.write_captured();
            }
            let (tallies, flows) = (&self.tallies, &self.flows);
            let held = || tallies.outstanding() + flows.len() as u64;
            self.standstill = self.instant.count(now, advanced, held);
        }
        self.now = self.now.max(until);
        #[cfg(debug_assertions)]
        if let Err(error) = self.check_conservation() {
            panic!("{error}");
        }
    }

    /// Runs as [`run_until`](Self::run_until) does, and reports a standstill.
    ///
    /// # Errors
    /// [`Standstill`] if the network has come to one, now or before.
    pub fn try_run_until(&mut self, until: Time) -> Result<(), Standstill> {
        self.run_until(until);
        self.standstill.map_or(Ok(()), Err)
    }

    /// Returns the standstill that stopped the network, if any: see [`run_until`](Self::run_until).
    pub const fn standstill(&self) -> Option<Standstill> {
        self.standstill
    }

    fn step(&mut self, now: Time, event: Event) {
        match event {
            Event::Arrival { link } => {
                if let Some(packet) =
                    self.links[link as usize].arrive(now, &mut self.agenda, &mut self.tallies)
                {
                    self.observe(now, link, &packet);
                    self.forward(now, packet);
                }
            }
            Event::Ready { link } => {
                self.links[link as usize].ready(now, &mut self.agenda, &mut self.tallies);
            }
            Event::LowReady { link } => {
                self.links[link as usize].low_ready(now, &mut self.agenda, &mut self.tallies);
            }
            Event::LowArrival { link } => {
                if let Some(packet) =
                    self.links[link as usize].low_arrive(now, &mut self.agenda, &mut self.tallies)
                {
                    self.observe(now, link, &packet);
                    self.forward(now, packet);
                }
            }
            Event::Up { link, up } => self.links[link as usize].set_up(up),
            Event::Rate { link, rate } => {
                self.links[link as usize].set_rate(now, rate, &mut self.agenda, &mut self.tallies);
            }
            Event::Change { link, change } => {
                if let Some(change) = self.changes[change as usize].take() {
                    self.links[link as usize].change(now, change, &mut self.agenda, &mut self.tallies);
                }
            }
            Event::Spawn { process } => self.spawn_next(now, process),
            Event::Start { flow } => {
                self.tallies.event_processed(flow);
                self.start(now, flow);
            }
            Event::Timer { flow, side, slot } => {
                self.tallies.event_processed(flow);
                self.tcp_timer(now, flow, side, slot);
            }
            Event::Host { flow, side } => self.host_timer(flow, side),
            Event::App { flow, side, token } => {
                self.tallies.event_processed(flow);
                self.with_app(now, flow, side, |app, socket| app.timer(token, socket));
                self.pump(now, flow, side);
            }
        }
    }

    /// Shows a packet that has passed a link to the queue of the reverse link, if that observes.
    #[inline]
    fn observe(&mut self, now: Time, link: u32, packet: &Packet) {
        if let Some(observer) = self.links[link as usize].observer {
            self.links[observer as usize].queue.observe(now, packet);
        }
    }

    /// Passes a packet that has crossed a link to the next link, or to its end.
    fn forward(&mut self, now: Time, mut packet: Packet) {
        packet.hop += 1;
        let paths = &self.flows[packet.flow.0 as usize].paths;
        // TCP has one path.
        let path = paths.get(usize::from(packet.route)).unwrap_or(&paths[0]);
        if let Some(&link) = path.links[packet.from.index()].get(usize::from(packet.hop)) {
            self.links[link as usize].send(now, packet, &mut self.agenda, &mut self.tallies);
            return;
        }
        if !matches!(packet.body, Body::Datagram(_)) {
            self.watch_arrival(now, &packet);
        }
        match packet.body {
            Body::Tcp(ref segment) => {
                self.tallies.arrived(&packet);
                self.deliver(now, packet.flow, packet.from.peer(), segment, packet.ecn);
            }
            Body::Low(ref low) => {
                self.tallies.arrived(&packet);
                self.deliver_low(now, packet.flow, packet.from.peer(), low);
            }
            Body::Udp => {
                self.tallies.arrived(&packet);
                if let Kind::Udp(udp) = &mut self.flows[packet.flow.0 as usize].kind {
                    let payload = Bytes::from(packet.len - IPV4_HEADER - UDP_HEADER);
                    udp.stats.arrived(now, payload, now - packet.sent_at);
                }
            }
            Body::Datagram(_) => self.datagram_arrives(packet),
        }
    }

    fn start(&mut self, now: Time, flow: FlowId) {
        let record = &mut self.flows[flow.0 as usize];
        match &mut record.kind {
            Kind::Tcp(ends) => {
                ends[0].tcp.connect();
                self.with_app(now, flow, Side::Client, App::start);
                self.with_app(now, flow, Side::Server, App::start);
                self.pump(now, flow, Side::Client);
            }
            Kind::Udp(udp) => {
                if now >= udp.config.stop {
                    return;
                }
                let packet = Packet {
                    flow,
                    from: Side::Client,
                    route: 0,
                    hop: 0,
                    ecn: Ecn::NotEct,
                    layer: record.paths[0].layer,
                    stamp: Stamp::default(),
                    len: udp.next_len(),
                    sent_at: now,
                    body: Body::Udp,
                };
                self.agenda.at(udp.next_at(now), Event::Start { flow });
                self.tallies.event_entered(flow);
                let first = record.paths[0].links[0][0];
                self.instant.unasked += 1;
                self.tallies.sent(&packet);
                self.links[first as usize].send(now, packet, &mut self.agenda, &mut self.tallies);
            }
            Kind::Datagrams(_) => self.start_hosts(flow),
            Kind::Gone => {}
        }
    }

    fn ends(&mut self, flow: FlowId) -> Option<&mut [End; 2]> {
        match &mut self.flows[flow.0 as usize].kind {
            Kind::Tcp(ends) => Some(ends),
            Kind::Udp(_) | Kind::Datagrams(_) | Kind::Gone => None,
        }
    }

    fn with_app(
        &mut self,
        now: Time,
        flow: FlowId,
        side: Side,
        call: impl FnOnce(&mut dyn App, &mut Socket<'_>),
    ) {
        let Some(ends) = self.ends(flow) else { return };
        let end = &mut ends[side.index()];
        end.wants_to_write = true;
        end.call(now, call);
    }

    fn deliver(&mut self, now: Time, flow: FlowId, side: Side, segment: &Segment, ecn: Ecn) {
        let Flow { kind: Kind::Tcp(ends), watch, .. } = &mut self.flows[flow.0 as usize] else { return };
        if segment.payload > 0 && ends[side.index()].tcp.is_layered() {
            let offset = ends[side.peer().index()].tcp.stream_offset(segment.seq);
            ends[side.index()].tcp.announce(offset);
        }
        let end = &mut ends[side.index()];
        let delivered = end.tcp.on_segment(now, segment, ecn);
        end.wants_to_write |= delivered.acked;
        if delivered.progressed {
            let mut writes = false;
            end.call(now, |app, socket| writes = app.acknowledged(socket));
            end.wants_to_write |= writes;
        }
        if let Some(watch) = watch {
            watch.note_rtt(side, end.tcp.take_rtt());
        }
        if delivered.connected {
            end.reception.connected_at = Some(now);
            self.with_app(now, flow, side, App::connected);
        }
        if delivered.reset {
            if let Some(ends) = self.ends(flow) {
                ends[side.index()].reception.reset_at = Some(now);
            }
            self.with_app(now, flow, side, App::reset);
        }
        self.hand_out(now, flow, side, delivered);
        self.pump(now, flow, side);
        self.settle(flow);
    }

    /// Delivers a packet of the low layer to its TCP end.
    fn deliver_low(&mut self, now: Time, flow: FlowId, side: Side, packet: &LowPacket) {
        let Some(ends) = self.ends(flow) else { return };
        let end = &mut ends[side.index()];
        end.tcp.on_low(now, packet);
        end.wants_to_write |= matches!(packet, LowPacket::Ack(_));
        self.pump(now, flow, side);
        self.settle(flow);
    }

    /// Passes delivered bytes and the end of the stream to the application.
    fn hand_out(&mut self, now: Time, flow: FlowId, side: Side, delivered: Delivered) {
        let Delivered { bytes, finished, .. } = delivered;
        if bytes > 0 {
            self.hand_over(now, flow, side, bytes);
        }
        if finished {
            if let Some(ends) = self.ends(flow) {
                ends[side.index()].reception.finished_at = Some(now);
            }
            self.with_app(now, flow, side, App::finished);
        }
    }

    /// Hands `bytes` to the application, split by the labels under which they were written.
    fn hand_over(&mut self, now: Time, flow: FlowId, side: Side, bytes: u64) {
        let Some(ends) = self.ends(flow) else { return };
        let [client, server] = ends;
        let (end, peer) = match side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        let reception = &mut end.reception;
        reception.first_at.get_or_insert(now);
        reception.last_at = Some(now);
        let mut at = reception.bytes.get();
        let upto = at + bytes;
        reception.bytes = Bytes::new(upto);
        end.wants_to_write = true;
        while at < upto {
            let Some((tag, piece)) = peer.ledger.take(at, upto) else { break };
            at += piece.get();
            end.call(now, |app, socket| app.received(tag, piece, socket));
        }
    }

    fn tcp_timer(&mut self, now: Time, flow: FlowId, side: Side, slot: u8) {
        let Some(ends) = self.ends(flow) else { return };
        let end = &mut ends[side.index()];
        let scheduled = &mut end.scheduled[usize::from(slot)];
        // The timer was moved to an earlier event, which has handled it.
        if *scheduled != Some(now) {
            return;
        }
        *scheduled = None;
        if end.tcp.on_timer(now) {
            end.reception.failed_at = Some(now);
            self.with_app(now, flow, side, App::failed);
        }
        self.pump(now, flow, side);
        self.settle(flow);
    }

    /// Lets an end send all that it may, and schedules its timers. Asks its application for data
    /// while there is room.
    fn pump(&mut self, now: Time, flow: FlowId, side: Side) {
        // An application that has resumed reading takes what is buffered for it.
        if let Some(ends) = self.ends(flow) {
            let delivered = ends[side.index()].tcp.read();
            self.hand_out(now, flow, side, delivered);
        }
        let Flow { kind: Kind::Tcp(ends), paths, .. } = &mut self.flows[flow.0 as usize] else { return };
        let end = &mut ends[side.index()];
        let path = &paths[0];
        let first = path.links[side.index()][0] as usize;
        loop {
            if end.wants_to_write && end.tcp.is_writable() {
                let before = end.tcp.write_offset();
                end.call(now, App::writable);
                end.wants_to_write = end.tcp.write_offset() != before;
            }
            let (body, len, ecn, layer) = if let Some((segment, ecn)) = end.tcp.poll(now) {
                if segment.payload > 0 {
                    end.first_sent_at.get_or_insert(now);
                }
                let len = IPV4_HEADER + segment.header_len(end.tcp.priority_option()) + segment.payload;
                (Body::Tcp(segment), len, ecn, path.layer)
            } else if let Some((low, len, layer)) = end.tcp.poll_low(now) {
                if matches!(low, LowPacket::Data(_)) {
                    end.first_sent_at.get_or_insert(now);
                    // Data moved to the low layer makes room in the send buffer.
                    end.wants_to_write = true;
                }
                (Body::Low(low), len, Ecn::NotEct, layer)
            } else {
                break;
            };
            let (stamp, route) = (Stamp::default(), self.tallies.reused(flow));
            let packet =
                Packet { flow, from: side, route, hop: 0, ecn, layer, stamp, len, sent_at: now, body };
            self.tallies.sent(&packet);
            self.links[first].send(now, packet, &mut self.agenda, &mut self.tallies);
        }
        for (slot, at) in (0u8..).zip(end.tcp.timers(now)) {
            let scheduled = &mut end.scheduled[usize::from(slot)];
            if let Some(at) = at
                && scheduled.is_none_or(|s| at < s)
            {
                let at = at.max(now);
                *scheduled = Some(at);
                self.tallies.event_entered(flow);
                self.agenda.at(at, Event::Timer { flow, side, slot });
            }
        }
        for (at, token) in end.app_timers.drain(..) {
            self.tallies.event_entered(flow);
            self.agenda.at(at, Event::App { flow, side, token });
        }
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the number of events processed so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the counters of an end of a TCP flow; `None` for other flows.
    pub fn tcp_stats(&self, flow: FlowId, side: Side) -> Option<TcpStats> {
        match &self.flows[flow.0 as usize].kind {
            Kind::Tcp(ends) => Some(ends[side.index()].tcp.stats()),
            Kind::Udp(_) | Kind::Datagrams(_) | Kind::Gone => None,
        }
    }

    /// Returns the counters of both layers of an end of a TCP flow; `None` for flows without a low
    /// layer.
    pub fn plt_stats(&self, flow: FlowId, side: Side) -> Option<PltStats> {
        match &self.flows[flow.0 as usize].kind {
            Kind::Tcp(ends) => ends[side.index()].tcp.plt_stats(),
            Kind::Udp(_) | Kind::Datagrams(_) | Kind::Gone => None,
        }
    }

    /// Returns the epochs of an end's low control module so far, if
    /// [logged](crate::PltConfig::log_epochs); otherwise none.
    pub fn lcm_epochs(&self, flow: FlowId, side: Side) -> &[EpochReport] {
        match &self.flows[flow.0 as usize].kind {
            Kind::Tcp(ends) => ends[side.index()].tcp.lcm_epochs(),
            Kind::Udp(_) | Kind::Datagrams(_) | Kind::Gone => &[],
        }
    }

    /// Returns what an end of a TCP flow has received. It is empty for other flows, which have
    /// [`udp_stats`](Self::udp_stats) and [`route_stats`](Self::route_stats).
    pub fn reception(&self, flow: FlowId, side: Side) -> Reception {
        match &self.flows[flow.0 as usize].kind {
            Kind::Tcp(ends) => ends[side.index()].reception,
            Kind::Udp(_) | Kind::Datagrams(_) | Kind::Gone => Reception::default(),
        }
    }

    /// Returns true if all that an end wrote, and its close, has been acknowledged.
    pub fn is_finished(&self, flow: FlowId, side: Side) -> bool {
        match &self.flows[flow.0 as usize].kind {
            Kind::Tcp(ends) => ends[side.index()].tcp.all_acked(),
            Kind::Udp(_) | Kind::Datagrams(_) | Kind::Gone => false,
        }
    }

    /// Returns what arrived of a UDP flow; `None` for other flows.
    pub fn udp_stats(&self, flow: FlowId) -> Option<UdpStats> {
        match &self.flows[flow.0 as usize].kind {
            Kind::Udp(udp) => Some(udp.stats),
            Kind::Tcp(_) | Kind::Datagrams(_) | Kind::Gone => None,
        }
    }

    /// Returns the application at an end of a TCP flow, if it is an `A`.
    pub fn app<A: App>(&self, flow: FlowId, side: Side) -> Option<&A> {
        (self.any_app(flow, side)? as &dyn Any).downcast_ref()
    }

    /// Returns the application at an end of a TCP flow; `None` for other flows.
    pub(crate) fn any_app(&self, flow: FlowId, side: Side) -> Option<&dyn App> {
        match &self.flows[flow.0 as usize].kind {
            Kind::Tcp(ends) => Some(&*ends[side.index()].app),
            Kind::Udp(_) | Kind::Datagrams(_) | Kind::Gone => None,
        }
    }

    /// Returns the counts of packets that an end of a flow sent, by outcome.
    pub fn tally(&self, flow: FlowId, from: Side) -> FlowTally {
        self.tallies.of(flow, from)
    }

    /// Returns the packet counters of a link.
    pub fn link_counters(&self, link: LinkId) -> LinkCounters {
        self.links[link.0 as usize].counters
    }

    /// Returns the counters and the backlog of a link's queue; of both queues together if the link
    /// pre-empts.
    pub fn queue_counters(&self, link: LinkId) -> (marcato_queue::Counters, marcato_queue::Backlog) {
        self.links[link.0 as usize].queue_counters()
    }

    /// Returns the bytes that a link has carried so far, parts of a packet included, and those that
    /// it could have carried.
    pub fn link_load(&self, link: LinkId) -> Load {
        self.links[link.0 as usize].load(self.now)
    }

    /// Returns the report of a link's queue on the packets that an end of a flow sends; on its first
    /// route, if it has several. `None` if the queue judges no flows, or does not know this one.
    pub fn flow_report(&self, link: LinkId, flow: FlowId, from: Side) -> Option<FlowReport> {
        self.links[link.0 as usize].queue.report(flow.key(from))
    }

    /// Returns the queue of a link, if it is a `Q`; that of the high class if the link pre-empts.
    pub fn queue<Q: LinkQueue>(&self, link: LinkId) -> Option<&Q> {
        (&*self.links[link.0 as usize].queue as &dyn Any).downcast_ref()
    }

    /// Returns the largest IP packet that fits all links from `from` to `to`, on the way that a
    /// flow takes: the least MTU of its links. `None` if no link has an MTU. RFC 8201 §2.
    ///
    /// # Errors
    /// [`RouteError`] if no links lead there.
    pub fn path_mtu(&self, from: NodeId, to: NodeId) -> Result<Option<Bytes>, RouteError> {
        let links = self.topology.route(from, to)?;
        Ok(links.into_iter().filter_map(|link| self.links[link as usize].mtu).min())
    }

    /// Checks that no packet has vanished. Debug builds check it after each run.
    ///
    /// - On each link, offered + duplicated = dropped + too big + lost + delivered + queued + in
    ///   flight.
    /// - Over all flows, sent + duplicated = arrived + dropped + in the network.
    /// - Exactly the datagrams in the network have a stored payload.
    pub fn check_conservation(&self) -> Result<(), ConservationError> {
        let mut held = 0;
        for link in &self.links {
            let inside = link.queue_counters().1.packets + link.in_flight();
            let LinkCounters { offered, duplicated, dropped, too_big, lost, delivered, .. } = link.counters;
            let offered = offered + duplicated;
            let accounted = dropped + too_big + lost + delivered + inside;
            if offered != accounted {
                return Err(ConservationError::Link { link: link.name.clone(), offered, accounted });
            }
            held += inside;
        }
        let outstanding = self.tallies.outstanding();
        if outstanding != held {
            return Err(ConservationError::Flows { outstanding, held });
        }
        let is_datagrams = |flow: &Flow| matches!(flow.kind, Kind::Datagrams(_));
        let outstanding = (0u32..)
            .zip(&self.flows)
            .filter(|(_, flow)| is_datagrams(flow))
            .map(|(flow, _)| self.tallies.outstanding_of(FlowId(flow)))
            .sum();
        let kept = self.tallies.payloads.len();
        if outstanding == kept { Ok(()) } else { Err(ConservationError::Payloads { outstanding, kept }) }
    }
}
