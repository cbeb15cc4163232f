//! Client and server on the bare engine, the lanes between them, and time that moves from event to
//! event.
//!
//! A lane has two sockets, one on each side. As on a real network, a host derives the socket for a
//! datagram from its destination alone. Lanes that share a port on the far side are therefore
//! indistinguishable.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use marcato_units::{Bytes, Rate, Seed, Stream, Time};
use noq_proto::congestion::ControllerFactory;
use noq_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, FourTuple, PathEvent, PathId,
    PathStatus, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};

use super::keys;
use crate::controller::Congestion;
use crate::gate::{Gate, GateEvent, GateFactory, Gated};

/// Size of every full packet, unless a test discovers it.
pub(super) const MTU: u16 = 1452;

/// Size of a chunk that surely fits one packet together with its frame's header and typical
/// acknowledgements.
pub(super) const CHUNK: usize = MTU as usize - 80;

/// Side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Who {
    Client,
    Server,
}

impl Who {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// One direction of a lane.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) delay: Duration,
    pub(super) rate: Option<Rate>,
    /// Limit of the link's queue, in bytes.
    pub(super) queue: u64,
    pub(super) loss: f64,
    /// Largest datagram in bytes; larger ones are lost.
    pub(super) limit: usize,
    /// Set if no datagram arrives any more.
    pub(super) dead: bool,
}

impl Link {
    pub(super) fn delay_ms(millis: u64) -> Self {
        Self {
            delay: Duration::from_millis(millis),
            rate: None,
            queue: u64::MAX,
            loss: 0.0,
            limit: usize::MAX,
            dead: false,
        }
    }

    pub(super) fn rate(mut self, rate: Rate, queue: u64) -> Self {
        self.rate = Some(rate);
        self.queue = queue;
        self
    }

    pub(super) fn loss(mut self, loss: f64) -> Self {
        self.loss = loss;
        self
    }
}

/// Two sockets and the links between them.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// Direction from the client to the server.
    pub(super) out: Link,
    /// Direction from the server to the client.
    pub(super) back: Link,
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
}

impl Lane {
    /// Creates the lane of this number, with its own address on each side.
    pub(super) fn new(number: u8, link: Link) -> Self {
        Self {
            out: link.clone(),
            back: link,
            client: SocketAddr::from(([10, 0, number, 1], 1000)),
            server: SocketAddr::from(([10, 0, number, 2], 443)),
        }
    }

    pub(super) fn delay_ms(number: u8, millis: u64) -> Self {
        Self::new(number, Link::delay_ms(millis))
    }

    pub(super) fn at(mut self, client: SocketAddr, server: SocketAddr) -> Self {
        self.client = client;
        self.server = server;
        self
    }
}

/// Reading behaviour of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The host reads nothing.
    Never,
    /// The host reads at once, in any order.
    Unordered,
}

type Tune = Box<dyn Fn(Who, &mut TransportConfig)>;

/// Parameters of a pair.
pub(super) struct Setup {
    pub(super) seed: Seed,
    pub(super) lanes: Vec<Lane>,
    pub(super) congestion: Congestion,
    pub(super) initial_window: Option<Bytes>,
    pub(super) engine_paces: bool,
    pub(super) discover_mtu: bool,
    /// Largest datagram that the server announces, in bytes.
    pub(super) largest_payload: Option<u16>,
    pub(super) local_ip_known: bool,
    /// Set if a host with several suitable sockets takes any of them; otherwise it takes the one on
    /// which it last received.
    pub(super) any_socket: bool,
    /// Factory that replaces that of gated controllers.
    pub(super) factory: Option<Arc<dyn ControllerFactory + Send + Sync>>,
    pub(super) tune: Tune,
}

impl Setup {
    pub(super) fn new(seed: u64, lanes: Vec<Lane>) -> Self {
        Self {
            seed: Seed::new(seed),
            lanes,
            congestion: Congestion::RENO,
            initial_window: None,
            engine_paces: false,
            discover_mtu: false,
            largest_payload: None,
            local_ip_known: true,
            any_socket: false,
            factory: None,
            tune: Box::new(|_, _| {}),
        }
    }

    pub(super) fn congestion(mut self, congestion: Congestion) -> Self {
        self.congestion = congestion;
        self
    }

    pub(super) fn window(mut self, window: Bytes) -> Self {
        self.initial_window = Some(window);
        self
    }

    pub(super) fn tune(mut self, tune: impl Fn(Who, &mut TransportConfig) + 'static) -> Self {
        self.tune = Box::new(tune);
        self
    }

    fn transport(&self, who: Who) -> TransportConfig {
        let mut config = TransportConfig::default();
        config
            .max_concurrent_multipath_paths(8)
            .max_concurrent_uni_streams(VarInt::from_u32(10_000))
            .stream_receive_window(VarInt::from_u32(64 << 20))
            .receive_window(VarInt::from_u32(256 << 20))
            .send_window(256 << 20)
            .congestion_controller_factory(self.factory.clone().unwrap_or_else(|| {
                Arc::new(GateFactory {
                    congestion: self.congestion,
                    initial_window: self.initial_window,
                    engine_paces: self.engine_paces,
                    trace_windows: true,
                })
            }));
        if !self.discover_mtu {
            config.initial_mtu(MTU).mtu_discovery_config(None);
        }
        (self.tune)(who, &mut config);
        config
    }

    /// Builds both hosts; the client's first datagram is ready to leave.
    pub(super) fn start(self) -> Pair {
        let base = Instant::now();
        let mut server_config = keys::server();
        server_config.transport_config(Arc::new(self.transport(Who::Server)));
        let server_config = Arc::new(server_config);
        let mut client_config = keys::client(self.seed);
        client_config.transport_config(Arc::new(self.transport(Who::Client)));

        let endpoint = |who, server| {
            let mut config = keys::endpoint(self.seed, who);
            if let Some(largest) = self.largest_payload.filter(|_| who == Who::Server) {
                config.max_udp_payload_size(largest).unwrap();
            }
            Endpoint::new(Arc::new(config), server, self.discover_mtu)
        };
        let mut client = Host::new(endpoint(Who::Client, None));
        let mut server = Host::new(endpoint(Who::Server, Some(Arc::clone(&server_config))));
        server.accepts = Some(server_config);
        let (handle, connection) =
            client.endpoint.connect(base, client_config, self.lanes[0].server, keys::NAME).unwrap();
        client.connection = Some((handle, connection));

        let lanes =
            self.lanes.into_iter().enumerate().map(|(number, lane)| Running::new(self.seed, number, lane));
        let mut pair = Pair {
            seed: self.seed,
            base,
            now: Time::ZERO,
            hosts: [client, server],
            lanes: lanes.collect(),
            wire: BinaryHeap::new(),
            wake: None,
            arrivals: 0,
            sockets: self.any_socket.then(|| self.seed.stream("sockets")),
            counter: 0,
            passed: Vec::new(),
            local_ip_known: self.local_ip_known,
        };
        pair.resolve(Who::Client);
        pair
    }

    /// Builds both hosts and opens every lane.
    pub(super) fn establish(self) -> Pair {
        let lanes = self.lanes.len();
        let mut pair = self.start();
        pair.run(Time::from_secs(5), |pair| pair.both(|host| host.confirmed));
        for lane in 1..lanes {
            pair.open(lane);
        }
        // Runs until all of the handshake has been acknowledged.
        pair.pass(Duration::from_millis(500));
        pair.forget();
        pair
    }
}

/// One direction of a lane in operation.
struct Direction {
    link: Link,
    draws: Stream,
    free_at: Time,
}

struct Running {
    number: usize,
    /// Sequence number of the last arrival at each side.
    last_arrival: [u64; 2],
    out: Direction,
    back: Direction,
    client: SocketAddr,
    server: SocketAddr,
}

impl Running {
    fn new(seed: Seed, number: usize, lane: Lane) -> Self {
        let direction = |name: &str, link| Direction {
            link,
            draws: seed.stream(&format!("lane/{number}/{name}")),
            free_at: Time::ZERO,
        };
        Self {
            number,
            last_arrival: [0; 2],
            out: direction("out", lane.out),
            back: direction("back", lane.back),
            client: lane.client,
            server: lane.server,
        }
    }
}

/// Datagram that a host has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) at: Time,
    pub(super) from: Who,
    /// Lane of the socket by which it left, as far as the host could tell.
    pub(super) lane: usize,
    pub(super) len: usize,
    pub(super) dropped: bool,
    /// Spin bit, in packets that have one.
    pub(super) spin: Option<bool>,
}

struct InFlight {
    at: Time,
    order: u64,
    to: Who,
    lane: usize,
    from: SocketAddr,
    data: BytesMut,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Piece of a stream that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: Time,
    /// Lane of the datagram that made it readable.
    pub(super) lane: usize,
    pub(super) stream: StreamId,
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// Entry of a gate's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) at: Time,
    pub(super) lane: usize,
    pub(super) what: GateEvent,
}

/// Host of one side.
pub(super) struct Host {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    accepts: Option<Arc<ServerConfig>>,
    /// Set if packets leave only when a test feeds them; otherwise all gates are shut.
    pub(super) fed: bool,
    pub(super) reading: Reading,
    pub(super) confirmed: bool,
    pub(super) established: BTreeSet<PathId>,
    /// Events of the engine, except those that only report readable data.
    pub(super) events: Vec<Event>,
    pub(super) read: Vec<Piece>,
    pub(super) noted: Vec<Noted>,
    /// Lost packets, by lane, that the engine has not retransmitted.
    pub(super) owed: Vec<u64>,
    /// Number of times that a lane was opened for its retransmissions while another had some too,
    /// so that the engine chose.
    pub(super) in_doubt: usize,
    gates: BTreeMap<PathId, (FourTuple, Arc<Gate>)>,
    drained: Vec<GateEvent>,
    buffer: Vec<u8>,
}

impl Host {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connection: None,
            accepts: None,
            fed: false,
            reading: Reading::Unordered,
            confirmed: false,
            established: BTreeSet::new(),
            events: Vec::new(),
            read: Vec::new(),
            noted: Vec::new(),
            owed: vec![0; 8],
            in_doubt: 0,
            gates: BTreeMap::new(),
            drained: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Returns the connection, which has to exist.
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.connection.as_mut().unwrap().1
    }

    /// Returns the reason for which the connection was lost, if it was.
    pub(super) fn lost(&self) -> Option<String> {
        self.events.iter().find_map(|event| match event {
            Event::ConnectionLost { reason } => Some(reason.to_string()),
            _ => None,
        })
    }

    fn readable(&mut self, id: StreamId, at: Time, lane: usize) {
        let Self { connection: Some((_, connection)), read, reading: Reading::Unordered, .. } = self else {
            return;
        };
        let mut stream = connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(false) else { return };
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            read.push(Piece { at, lane, stream: id, offset: chunk.offset, len: chunk.bytes.len() });
        }
        let _ = chunks.finalize();
    }

    /// Processes the engine's output after a datagram has arrived by `lane`.
    fn pump(&mut self, at: Time, lane: usize) {
        loop {
            let Some((handle, connection)) = self.connection.as_mut() else { return };
            let mut moved = false;
            while let Some(event) = connection.poll_endpoint_events() {
                moved = true;
                if let Some(event) = self.endpoint.handle_event(*handle, event) {
                    connection.handle_event(event);
                }
            }
            while let Some(event) = self.connection.as_mut().and_then(|(_, connection)| connection.poll()) {
                moved = true;
                match event {
                    Event::Stream(StreamEvent::Opened { dir }) => {
                        while let Some(id) = self.connection().streams().accept(dir) {
                            self.readable(id, at, lane);
                        }
                    }
                    Event::Stream(StreamEvent::Readable { id }) => self.readable(id, at, lane),
                    event => {
                        match &event {
                            Event::HandshakeConfirmed => self.confirmed = true,
                            Event::Path(PathEvent::Established { id, .. }) => {
                                self.established.insert(*id);
                            }
                            _ => {}
                        }
                        self.events.push(event);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }
}

/// Result of handing the engine a chunk while one gate was open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fed {
    /// Lane and number of each ack-eliciting packet that left at once.
    pub(super) sent: Vec<(usize, u64)>,
    /// Lane of each datagram, by its destination.
    pub(super) left: Vec<usize>,
}

/// Both hosts, the lanes between them and the time.
pub(super) struct Pair {
    seed: Seed,
    base: Instant,
    pub(super) now: Time,
    hosts: [Host; 2],
    lanes: Vec<Running>,
    wire: BinaryHeap<Reverse<InFlight>>,
    wake: Option<Time>,
    arrivals: u64,
    /// Random choices among sockets, for hosts that take any.
    sockets: Option<Stream>,
    counter: u64,
    /// Every datagram so far.
    pub(super) passed: Vec<Passed>,
    local_ip_known: bool,
}

impl Pair {
    pub(super) fn host(&mut self, who: Who) -> &mut Host {
        &mut self.hosts[who as usize]
    }

    /// Returns the engine's connection of one side.
    pub(super) fn engine(&mut self, who: Who) -> &mut Connection {
        self.host(who).connection()
    }

    fn both(&self, test: impl Fn(&Host) -> bool) -> bool {
        self.hosts.iter().all(test)
    }

    pub(super) fn instant(&self) -> Instant {
        self.base + self.now.since(Time::ZERO)
    }

    /// Returns one direction of a lane, seen from the sender.
    pub(super) fn link(&mut self, lane: usize, from: Who) -> &mut Link {
        match from {
            Who::Client => &mut self.lanes[lane].out.link,
            Who::Server => &mut self.lanes[lane].back.link,
        }
    }

    /// Sets whether a lane drops every datagram.
    pub(super) fn set_dead(&mut self, lane: usize, dead: bool) {
        self.link(lane, Who::Client).dead = dead;
        self.link(lane, Who::Server).dead = dead;
    }

    /// Changes the client's address on this lane, as the server sees it. Datagrams to the old one
    /// are lost.
    pub(super) fn rebind(&mut self, lane: usize, client: SocketAddr) {
        self.lanes[lane].client = client;
    }

    /// Returns the addresses of a lane as the engine of `who` sees them.
    pub(super) fn tuple(&self, lane: usize, who: Who) -> FourTuple {
        let Running { client, server, .. } = &self.lanes[lane];
        let (local, remote) = match who {
            Who::Client => (client, server),
            Who::Server => (server, client),
        };
        FourTuple::new(*remote, self.local_ip_known.then(|| local.ip()))
    }

    /// Discards all records so far.
    pub(super) fn forget(&mut self) {
        for who in [Who::Client, Who::Server] {
            self.drain(who);
            let host = self.host(who);
            host.noted.clear();
            host.read.clear();
            host.owed.fill(0);
        }
        self.passed.clear();
    }

    /// Adds a lane that is not opened yet.
    pub(super) fn add(&mut self, lane: Lane) {
        self.lanes.push(Running::new(self.seed, self.lanes.len(), lane));
    }

    // ---- gates ----

    /// Looks up the gate of every path whose addresses are new. A path that moved may have another
    /// controller.
    fn resolve(&mut self, who: Who) {
        let Some((_, connection)) = &self.hosts[who as usize].connection else { return };
        let mut found = BTreeMap::new();
        for id in connection.paths() {
            let Ok(tuple) = connection.network_path(id) else { continue };
            let known = self.hosts[who as usize].gates.get(&id).filter(|(before, _)| *before == tuple);
            let gate = match known {
                Some((_, gate)) => Some(Arc::clone(gate)),
                None => connection.congestion_state(id).and_then(Gated::gate_of),
            };
            if let Some(gate) = gate {
                found.insert(id, (tuple, gate));
            }
        }
        self.hosts[who as usize].gates = found;
    }

    /// Returns the gate of a lane, by its number.
    pub(super) fn gate(&self, who: Who, lane: usize) -> Arc<Gate> {
        let id = PathId::from(u32::try_from(lane).unwrap());
        Arc::clone(&self.hosts[who as usize].gates.get(&id).unwrap().1)
    }

    pub(super) fn lanes_of(&self, who: Who) -> Vec<usize> {
        let gates = self.hosts[who as usize].gates.keys();
        gates.map(|id| id.to_string().parse().unwrap()).collect()
    }

    pub(super) fn shut_all(&mut self, who: Who, shut: bool) {
        for (_, gate) in self.host(who).gates.values() {
            gate.set_shut(shut);
        }
    }

    /// Returns the number of times that any gate of this side refused the engine.
    pub(super) fn blocked(&self, who: Who) -> u64 {
        self.hosts[who as usize].gates.values().map(|(_, gate)| gate.blocked()).sum()
    }

    /// Records the gates' logs.
    pub(super) fn drain(&mut self, who: Who) {
        let at = self.now;
        let Host { gates, drained, noted, owed, .. } = self.host(who);
        for (id, (_, gate)) in gates {
            let lane: usize = id.to_string().parse().unwrap();
            gate.take(drained);
            for what in drained.drain(..) {
                if let GateEvent::Lost { .. } = what {
                    owed[lane] += 1;
                }
                noted.push(Noted { at, lane, what });
            }
        }
    }

    // ---- sending ----

    /// Takes one datagram from the engine, if it has one, and sends it.
    pub(super) fn poll_once(&mut self, who: Who) -> Option<usize> {
        let now = self.instant();
        let host = &mut self.hosts[who as usize];
        let (_, connection) = host.connection.as_mut()?;
        let mut buffer = std::mem::take(&mut host.buffer);
        buffer.clear();
        let transmit = connection.poll_transmit(now, NonZeroUsize::MIN, &mut buffer);
        let lane = transmit.map(|transmit| {
            let data = BytesMut::from(&buffer[..transmit.size]);
            self.send(who, transmit.destination, data)
        });
        self.host(who).buffer = buffer;
        self.drain(who);
        lane
    }

    fn send(&mut self, who: Who, destination: SocketAddr, data: BytesMut) -> usize {
        let at = self.now;
        let len = data.len();
        // Short headers begin with 0, and their third bit spins (RFC 9000 §17.3.1, §17.4). The bit
        // after the first is greased.
        let spin = (data[0] & 0x80 == 0).then(|| data[0] & 0x20 != 0);
        let leads_there = |lane: &&Running| match who {
            Who::Client => lane.server == destination,
            Who::Server => lane.client == destination,
        };
        let fitting = self.lanes.iter().filter(leads_there);
        let found = match &mut self.sockets {
            Some(draws) => fitting.max_by_key(|_| draws.next_u64()),
            None => fitting.max_by_key(|lane| (lane.last_arrival[who as usize], Reverse(lane.number))),
        };
        let found = found.map(|lane| lane.number);
        let Some(number) = found else {
            self.passed.push(Passed { at, from: who, lane: usize::MAX, len, dropped: true, spin });
            return usize::MAX;
        };
        let lane = &mut self.lanes[number];
        let (direction, from) = match who {
            Who::Client => (&mut lane.out, lane.client),
            Who::Server => (&mut lane.back, lane.server),
        };
        let Link { delay, rate, queue, loss, limit, dead } = direction.link;
        let unlucky = direction.draws.chance(loss);
        let waiting = rate.map_or(0, |rate| rate.bytes_in(direction.free_at.since(at)).get());
        let dropped = dead || unlucky || len > limit || waiting.saturating_add(len as u64) > queue;
        self.passed.push(Passed { at, from: who, lane: number, len, dropped, spin });
        if dropped {
            return number;
        }
        let leaves = match rate {
            Some(rate) => direction.free_at.max(at) + rate.transmission_time(Bytes::new(len as u64)),
            None => at,
        };
        direction.free_at = leaves;
        self.counter += 1;
        self.wire.push(Reverse(InFlight {
            at: leaves + delay,
            order: self.counter,
            to: who.other(),
            lane: number,
            from,
            data,
        }));
        number
    }

    /// Sends all datagrams that the gates let pass.
    pub(super) fn flush(&mut self, who: Who) -> Vec<usize> {
        let mut left = Vec::new();
        while let Some(lane) = self.poll_once(who) {
            left.push(lane);
            assert!(left.len() < 1_000_000, "the engine sends without end");
        }
        left
    }

    /// With all gates shut, sends packets that need no window, and returns whether the engine holds
    /// anything else.
    pub(super) fn holds_data(&mut self, who: Who) -> bool {
        self.shut_all(who, true);
        self.flush(who);
        let before = self.blocked(who);
        assert_eq!(self.poll_once(who), None);
        self.blocked(who) != before
    }

    /// Sends packets that need no window, then data that the engine still holds, on the lane that
    /// owes it. Shuts all gates. Returns whether the engine is empty; if not, its data waits for
    /// room in a window.
    pub(super) fn settle(&mut self, who: Who) -> bool {
        while self.holds_data(who) {
            let mut lanes = self.lanes_of(who);
            let host = self.host(who);
            lanes.sort_by_key(|&lane| (host.owed[lane] == 0, lane));
            host.in_doubt += usize::from(host.owed.iter().filter(|&&owed| owed > 0).count() > 1);
            let left = lanes.into_iter().find(|&lane| {
                self.gate(who, lane).set_shut(false);
                let left = self.poll_once(who);
                self.gate(who, lane).set_shut(true);
                left.is_some()
            });
            match left {
                Some(lane) => {
                    let owed = &mut self.host(who).owed[lane];
                    *owed = owed.saturating_sub(1);
                }
                None => return false,
            }
        }
        true
    }

    /// Returns whether a full packet has room in the window of a lane.
    pub(super) fn has_room(&self, who: Who, lane: usize) -> bool {
        let gate = self.gate(who, lane);
        gate.window().get() >= gate.in_flight().get() + gate.mtu().get()
    }

    /// Hands the engine a chunk of a stream while one gate is open.
    pub(super) fn feed(&mut self, who: Who, lane: usize, stream: StreamId, len: usize) -> Fed {
        let data = vec![0; len];
        self.feed_by(who, lane, |connection| {
            assert_eq!(connection.send_stream(stream).write(&data), Ok(len));
        })
    }

    /// Calls `write` on the engine while one gate is open.
    pub(super) fn feed_by(&mut self, who: Who, lane: usize, write: impl FnOnce(&mut Connection)) -> Fed {
        self.drain(who);
        self.shut_all(who, true);
        let noted = self.host(who).noted.len();
        self.gate(who, lane).set_shut(false);
        write(self.engine(who));
        let left = self.flush(who);
        self.gate(who, lane).set_shut(true);
        let sent = self.host(who).noted[noted..].iter().filter_map(|noted| match noted.what {
            GateEvent::Sent { pn, .. } => Some((noted.lane, pn)),
            _ => None,
        });
        Fed { sent: sent.collect(), left }
    }

    // ---- time ----

    /// Advances time to `until`, or until `done` returns true. `done` runs before every sending
    /// opportunity.
    pub(super) fn run(&mut self, until: Time, mut done: impl FnMut(&mut Self) -> bool) {
        loop {
            if done(self) {
                return;
            }
            for who in [Who::Client, Who::Server] {
                if self.host(who).fed {
                    self.settle(who);
                } else {
                    self.flush(who);
                }
            }
            if !self.advance(until) {
                return;
            }
        }
    }

    /// Advances time by `span`.
    pub(super) fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        self.run(until, |_| false);
    }

    /// Schedules an event at `at`.
    pub(super) fn wake_at(&mut self, at: Time) {
        self.wake = Some(at).filter(|&at| at > self.now);
    }

    /// Advances to the next event, which is the arrival of one datagram or a timer. Returns whether
    /// there was one.
    fn advance(&mut self, until: Time) -> bool {
        let base = self.base;
        let arrival = self.wire.peek().map(|Reverse(in_flight)| in_flight.at);
        let timers = self.hosts.iter().filter_map(|host| {
            let instant = host.connection.as_ref()?.1.poll_timeout()?;
            Some(Time::ZERO + instant.saturating_duration_since(base))
        });
        let Some(next) = timers.chain(arrival).chain(self.wake).min().filter(|&next| next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        self.wake = self.wake.filter(|&at| at > self.now);
        let now = self.instant();
        if let Some(Reverse(in_flight)) = self.wire.peek()
            && in_flight.at <= self.now
            && let Some(Reverse(in_flight)) = self.wire.pop()
        {
            self.arrive(in_flight);
            return true;
        }
        for who in [Who::Client, Who::Server] {
            let (at, host) = (self.now, self.host(who));
            if let Some((_, connection)) = &mut host.connection
                && connection.poll_timeout().is_some_and(|due| due <= now)
            {
                connection.handle_timeout(now);
                host.pump(at, usize::MAX);
                self.resolve(who);
                self.drain(who);
            }
        }
        true
    }

    fn arrive(&mut self, in_flight: InFlight) {
        let InFlight { to, lane, from, data, .. } = in_flight;
        self.arrivals += 1;
        self.lanes[lane].last_arrival[to as usize] = self.arrivals;
        let now = self.instant();
        let at = self.now;
        let local = match to {
            Who::Client => self.lanes[lane].client,
            Who::Server => self.lanes[lane].server,
        };
        let local: Option<IpAddr> = self.local_ip_known.then(|| local.ip());
        let host = &mut self.hosts[to as usize];
        let mut response = Vec::new();
        match host.endpoint.handle(now, FourTuple::new(from, local), None, data, &mut response) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => host.connection().handle_event(event),
            Some(DatagramEvent::NewConnection(incoming)) => {
                let config = host.accepts.clone();
                let accepted = host.endpoint.accept(incoming, now, &mut response, config);
                host.connection = Some(accepted.map_err(|error| error.cause).unwrap());
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
        host.pump(at, lane);
        self.resolve(to);
        self.drain(to);
    }

    // ---- paths and streams ----

    /// Opens the next lane from the client, and waits until both sides may use it.
    pub(super) fn open(&mut self, lane: usize) -> PathId {
        let tuple = self.tuple(lane, Who::Client);
        let mut opened = None;
        let limit = self.now + Duration::from_secs(5);
        self.run(limit, |pair| {
            if opened.is_none() {
                let now = pair.instant();
                opened = pair.engine(Who::Client).open_path(tuple, PathStatus::Available, now).ok();
                pair.resolve(Who::Client);
            }
            opened.is_some_and(|id| pair.both(|host| host.established.contains(&id)))
        });
        opened.unwrap()
    }

    /// Opens a unidirectional stream.
    pub(super) fn stream(&mut self, who: Who) -> StreamId {
        self.engine(who).streams().open(Dir::Uni).unwrap()
    }
}
