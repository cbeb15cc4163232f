//! Fabric over real sockets: hosts and links of a lab that carry the flows of a world.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use marcato_lab::{Lab, LabClock, LabOptions, Prompt, Traces};
use marcato_link::{DelaySummary, Waiting};
use marcato_queue::FlowReport;
use marcato_scenario::Experiment;
use marcato_sim::scenario::{Advance, Fabric};
use marcato_sim::{
    App, Bulk, DatagramFlow, FlowArrival, FlowError, FlowId, FlowOutcome, FlowProcess, FlowRecord,
    FlowSummary, FlowTally, Host, HostPair, LinkCounters, LinkId, Load, NodeId, PltStats, Process, ProcessId,
    ProcessStats, QueueDelays, Reception, RouteId, RouteStats, Side, Sink, SpawnError, Tap, Tcp, TcpFlow,
    TcpStats, UdpFlow, UdpSource, UdpStats,
};
use marcato_units::{Bytes, Duration, Layer, Seed, Time};
use marcato_wire::FlowTuple;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, Protocol, Socket, Type};

use crate::agenda::{Agenda, Event, side};
use crate::error::TrialError;
use crate::quic::{QuicRun, RouteSockets};
use crate::route_socket::{RouteSocket, tos};
use crate::settings;
use crate::tcp::{Spawned, TcpPair};
use crate::udp::UdpRun;
use crate::watch::SharedRecords;

/// Connections that wait to be accepted by one listener.
const BACKLOG: i32 = 4096;
/// Longest IP packet, and so the longest payload.
const LONGEST: usize = 65_536;
/// First port of the routes of QUIC flows at each node, as in the simulator.
const FIRST_PORT: u16 = 1024;

/// Timeout that returns what is ready.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Flow in real time.
enum Flow {
    Tcp(Box<TcpPair>),
    Udp(Box<UdpRun>),
    Quic(Box<QuicRun>),
    /// Spawned flow that has ended.
    Gone,
}

struct Entry {
    flow: Flow,
    start: Time,
    /// Tuples of the packets that each end sends, one for each route.
    tuples: [Vec<FlowTuple>; 2],
}

/// Listener of a flow or of a process.
struct Listener {
    socket: Socket,
    config: Tcp,
    layer: Layer,
}

/// Process whose connections come and go.
struct Running {
    process: Process,
    listener: usize,
}

/// Socket that has become ready.
#[derive(Clone, Copy, Debug)]
enum Ready {
    /// End of a flow: its number, and the number of its socket.
    Flow(usize, usize),
    Listener(usize),
}

impl Ready {
    const LISTENER: u64 = 1 << 63;

    const fn token(self) -> u64 {
        match self {
            Self::Flow(flow, socket) => (flow as u64) << 8 | socket as u64,
            Self::Listener(number) => Self::LISTENER | number as u64,
        }
    }

    fn of(token: u64) -> Self {
        let number = |token: u64| usize::try_from(token).unwrap_or(usize::MAX);
        match token & Self::LISTENER {
            0 => Self::Flow(number(token >> 8), number(token & 0xff)),
            _ => Self::Listener(number(token & !Self::LISTENER)),
        }
    }
}

/// Real hosts and links, and the sockets of the flows between them. One thread drives all flows; the
/// lab's own moves the packets.
pub struct SocketFabric {
    prompt: Prompt,
    lab: Lab,
    clock: LabClock,
    seed: Seed,
    nodes: Vec<String>,
    now: Time,
    epoll: OwnedFd,
    agenda: Agenda,
    flows: Vec<Entry>,
    processes: Vec<Running>,
    listeners: Vec<Listener>,
    /// Flows whose server has not accepted them yet, by the address of their client.
    expected: HashMap<SocketAddr, usize>,
    /// Number of flows with each name.
    named: HashMap<String, u32>,
    /// Ports used by routes at each node.
    ports: HashMap<usize, u16>,
    records: SharedRecords,
    buffer: Vec<u8>,
    events: u64,
}

fn system(what: &'static str) -> impl Fn(io::Error) -> TrialError {
    move |source| TrialError::System { what, source }
}

impl SocketFabric {
    /// Opens the lab of an experiment, without its flows.
    ///
    /// # Errors
    ///
    /// If the lab cannot be opened, or its hosts cannot be set up for the flows of the experiment.
    pub fn open(experiment: &Experiment, traces: &Traces, options: LabOptions) -> Result<Self, TrialError> {
        Self::new(experiment, Lab::open(experiment, traces, options)?)
    }

    /// Sets up the hosts of a lab for the flows of its experiment.
    pub(crate) fn new(experiment: &Experiment, lab: Lab) -> Result<Self, TrialError> {
        settings::prepare_hosts(&lab, experiment)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(|error| system("waiting for sockets")(error.into()))?;
        let records = SharedRecords::default();
        for link in 0..experiment.links.len() {
            for back in [false, true] {
                let direction = 2 * link + usize::from(back);
                lab.watch(link, back, records.watcher(direction));
            }
        }
        Ok(Self {
            prompt: Prompt::thread(),
            clock: lab.clock(),
            lab,
            seed: experiment.seed,
            nodes: experiment.nodes.clone(),
            now: Time::ZERO,
            epoll,
            agenda: Agenda::default(),
            flows: Vec::new(),
            processes: Vec::new(),
            listeners: Vec::new(),
            expected: HashMap::new(),
            named: HashMap::new(),
            ports: HashMap::new(),
            records,
            buffer: vec![0; LONGEST],
            events: 0,
        })
    }

    /// Lab on which the flows run.
    pub const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Returns the name of a flow, which also names its random streams, as in the simulator.
    fn name(&mut self, what: &str, from: NodeId, to: NodeId) -> String {
        let stem = format!("{what}{}>{}", self.nodes[from.index()], self.nodes[to.index()]);
        let count = self.named.entry(stem.clone()).or_default();
        *count += 1;
        if *count == 1 { stem } else { format!("{stem}#{count}") }
    }

    fn ip(&self, node: NodeId) -> io::Result<IpAddr> {
        let addresses = self.nodes.get(node.index()).and_then(|name| self.lab.addresses(name));
        addresses.map(|(v4, _)| IpAddr::V4(v4)).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Runs a function in the namespace of a node.
    fn at<T: Send + 'static>(
        &self,
        node: NodeId,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let name = self.nodes.get(node.index()).map_or("", String::as_str);
        self.lab.run(name, job).map_err(io::Error::other)?
    }

    /// Opens a TCP socket at a node, bound to its address.
    fn tcp_socket(&self, node: NodeId, tcp: &Tcp, layer: Layer) -> io::Result<Socket> {
        let at = SocketAddr::new(self.ip(node)?, 0);
        // The option of a congestion control is set outside, as the configuration stays there.
        let socket = self.at(node, move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP))?;
            socket.bind(&at.into())?;
            Ok(socket)
        })?;
        settings::prepare_socket(&socket, tcp, layer)?;
        Ok(socket)
    }

    fn udp_socket(&self, node: NodeId, port: u16, layer: Layer) -> io::Result<(UdpSocket, SocketAddr)> {
        let at = SocketAddr::new(self.ip(node)?, port);
        let socket = self.at(node, move || UdpSocket::bind(at))?;
        socket.set_nonblocking(true)?;
        let options = socket2::SockRef::from(&socket);
        options.set_tos_v4(tos(layer))?;
        // A burst must not be lost before it reaches a link.
        let _ = options.set_recv_buffer_size(4 << 20);
        let _ = options.set_send_buffer_size(4 << 20);
        let at = socket.local_addr()?;
        Ok((socket, at))
    }

    fn wait_for(&self, socket: &impl AsFd, events: EventFlags, ready: Ready) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(ready.token()), events)?)
    }

    /// Opens a listener at a node.
    fn listen(&mut self, node: NodeId, config: &Tcp, layer: Layer) -> io::Result<usize> {
        let socket = self.tcp_socket(node, config, layer)?;
        socket.listen(BACKLOG)?;
        let number = self.listeners.len();
        self.wait_for(&socket, EventFlags::IN, Ready::Listener(number))?;
        self.listeners.push(Listener { socket, config: config.clone(), layer });
        Ok(number)
    }

    /// Opens the client's socket of a flow that will connect to a listener.
    fn open_client(
        &mut self,
        flow: usize,
        listener: usize,
        client: NodeId,
        config: &Tcp,
        layer: Layer,
    ) -> io::Result<()> {
        let socket = self.tcp_socket(client, config, layer)?;
        let address = |socket: &Socket| -> io::Result<SocketAddr> {
            socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
        };
        let (from, to) = (address(&socket)?, address(&self.listeners[listener].socket)?);
        let tuple = tuple(FlowTuple::TCP, from, to);
        self.expected.insert(from, flow);
        let entry = &mut self.flows[flow];
        entry.tuples = [vec![tuple], vec![tuple.reversed()]];
        if let Flow::Tcp(pair) = &mut entry.flow {
            pair.ends[0].tcp.attach(socket);
        }
        Ok(())
    }

    fn push(&mut self, flow: Flow, start: Time) -> usize {
        self.flows.push(Entry { flow, start, tuples: Default::default() });
        self.flows.len() - 1
    }

    fn add_tcp(&mut self, flow: TcpFlow) -> io::Result<usize> {
        let name = self.name("flow/", flow.client, flow.server);
        let listener = self.listen(flow.server, &flow.server_config.tcp, flow.layer)?;
        let lowats = [flow.client_config.tcp.notsent_lowat, flow.server_config.tcp.notsent_lowat];
        let apps = [flow.client_app, flow.server_app];
        let pair = TcpPair::new(apps, lowats, (&name, self.seed), flow.start, None);
        let number = self.push(Flow::Tcp(Box::new(pair)), flow.start);
        self.open_client(number, listener, flow.client, &flow.client_config.tcp, flow.layer)?;
        self.agenda.enter(flow.start, Event::Start(number));
        Ok(number)
    }

    fn add_udp(&mut self, flow: UdpFlow) -> Result<usize, FlowError> {
        let refused = |error: io::Error| FlowError::Refused(error.to_string());
        let (start, layer) = (flow.start, flow.layer);
        let (from, to) = (flow.from, flow.to);
        let name = self.name("flow/", from, to);
        let source = UdpSource::new(flow, &name, self.seed)?;
        let (sender, here) = self.udp_socket(from, 0, layer).map_err(refused)?;
        let (receiver, there) = self.udp_socket(to, 0, Layer::High).map_err(refused)?;
        let number = self.flows.len();
        self.wait_for(&receiver, EventFlags::IN, Ready::Flow(number, 1)).map_err(refused)?;
        let run = UdpRun::new(source, sender, receiver, there);
        self.push(Flow::Udp(Box::new(run)), start);
        self.flows[number].tuples[0].push(tuple(FlowTuple::UDP, here, there));
        self.agenda.enter(start, Event::Packet(number));
        Ok(number)
    }

    fn add_quic(&mut self, flow: DatagramFlow) -> io::Result<usize> {
        let Some(first) = flow.routes.first().copied() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let name = self.name("datagrams/", first.client, first.server);
        let (number, start) = (self.flows.len(), flow.start);
        let (mut routes, mut tuples) = (Vec::new(), [Vec::new(), Vec::new()]);
        for (place, route) in flow.routes.iter().enumerate() {
            let mut open = |node: NodeId| {
                let used = self.ports.entry(node.index()).or_default();
                let port = FIRST_PORT + *used;
                *used += 1;
                let (socket, at) = self.udp_socket(node, port, route.layer)?;
                io::Result::Ok((RouteSocket::new(socket, route.layer)?, at))
            };
            let ((client, here), (server, there)) = (open(route.client)?, open(route.server)?);
            for (end, socket) in [&client, &server].into_iter().enumerate() {
                self.wait_for(socket, EventFlags::IN, Ready::Flow(number, 2 * place + end))?;
            }
            tuples[0].push(tuple(FlowTuple::UDP, here, there));
            tuples[1].push(tuple(FlowTuple::UDP, there, here));
            routes.push(RouteSockets { sockets: [client, server], addresses: [here, there] });
        }
        let addresses: Vec<_> = routes.iter().map(|route| route.addresses).collect();
        let pair = HostPair::new(flow, &addresses, name, self.seed);
        self.push(Flow::Quic(Box::new(QuicRun::new(pair, routes))), start);
        self.flows[number].tuples = tuples;
        self.agenda.enter(start, Event::Start(number));
        Ok(number)
    }

    fn add_process(&mut self, config: FlowProcess) -> Result<usize, SpawnError> {
        let refused = |error: &dyn std::fmt::Display| SpawnError::Refused(error.to_string());
        for end in [&config.client_config, &config.server_config] {
            settings::check(end).map_err(|error| refused(&error))?;
        }
        let name = self.name("process/", config.client, config.server);
        let (server, layer) = (config.server, config.layer);
        let listener =
            self.listen(server, &config.server_config.tcp, layer).map_err(|error| refused(&error))?;
        let mut process = Process::new(config, name, self.seed)?;
        let number = self.processes.len();
        self.agenda.enter(process.first(Time::ZERO), Event::Spawn(number));
        self.processes.push(Running { process, listener });
        Ok(number)
    }

    /// Begins the next flow of a process.
    fn spawn_next(&mut self, at: Time, number: usize) -> io::Result<()> {
        let Running { process, listener } = &mut self.processes[number];
        let listener = *listener;
        let Some(FlowArrival { next, begun }) = process.arrive(at) else { return Ok(()) };
        self.agenda.enter(next, Event::Spawn(number));
        let Some((index, size)) = begun else { return Ok(()) };
        let config = process.config();
        let (bulk, sink): (Box<dyn App>, Box<dyn App>) =
            (Box::new(Bulk::new(size).priority(config.priority)), Box::new(Sink));
        let apps = match config.sender {
            Side::Client => [bulk, sink],
            Side::Server => [sink, bulk],
        };
        let lowats = [config.client_config.tcp.notsent_lowat, config.server_config.tcp.notsent_lowat];
        let (client, tcp, layer) = (config.client, config.client_config.tcp.clone(), config.layer);
        let name = format!("process/{number}/{index}");
        let spawned = Spawned { process: number, number: index, size };
        let pair = TcpPair::new(apps, lowats, (&name, self.seed), at, Some(spawned));
        let flow = self.push(Flow::Tcp(Box::new(pair)), at);
        self.open_client(flow, listener, client, &tcp, layer)?;
        self.start(flow)
    }

    /// Begins a flow.
    fn start(&mut self, number: usize) -> io::Result<()> {
        let now = self.clock.now();
        let Some(entry) = self.flows.get_mut(number) else { return Ok(()) };
        match &mut entry.flow {
            Flow::Tcp(pair) => {
                let to = entry.tuples[0].first().map(|tuple| (tuple.destination, tuple.destination_port));
                if let (Some(socket), Some(to)) = (pair.ends[0].tcp.socket(), to) {
                    match socket.connect(&SocketAddr::from(to).into()) {
                        Ok(()) => {}
                        Err(error) if error.raw_os_error() == Some(IN_PROGRESS) => {}
                        Err(error) => pair.failed(now, &error),
                    }
                }
                pair.begin(now);
            }
            Flow::Quic(run) => run.begin(now),
            Flow::Udp(_) | Flow::Gone => {}
        }
        self.settle(number)
    }

    /// Accepts the connections that wait at a listener.
    fn accept(&mut self, number: usize) -> io::Result<()> {
        loop {
            let listener = &self.listeners[number];
            let (socket, from) = match listener.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The client has reset it already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            settings::prepare_socket(&socket, &listener.config, listener.layer)?;
            let Some(flow) = from.as_socket().and_then(|from| self.expected.remove(&from)) else { continue };
            let now = self.clock.now();
            if let Some(Entry { flow: Flow::Tcp(pair), .. }) = self.flows.get_mut(flow) {
                pair.ends[1].tcp.attach(socket);
                pair.connected(now, 1);
            }
            self.settle(flow)?;
        }
    }

    /// Handles an event.
    fn handle(&mut self, at: Time, event: Event) -> io::Result<()> {
        self.events += 1;
        match event {
            Event::Start(flow) => self.start(flow),
            Event::Packet(flow) => {
                if let Flow::Udp(run) = &mut self.flows[flow].flow
                    && let Some(next) = run.send(at, self.clock, &mut self.buffer)
                {
                    self.agenda.enter(next, Event::Packet(flow));
                }
                Ok(())
            }
            Event::App(flow, is_server, token) => {
                let now = self.clock.now();
                if let Flow::Tcp(pair) = &mut self.flows[flow].flow {
                    pair.timer(now, usize::from(is_server), token);
                }
                self.settle(flow)
            }
            Event::Host(flow, is_server) => {
                let now = self.clock.now();
                if let Flow::Quic(run) = &mut self.flows[flow].flow {
                    // The timer may have been moved to an earlier event.
                    if run.scheduled[usize::from(is_server)] == Some(at) {
                        run.scheduled[usize::from(is_server)] = None;
                        run.timer(now, side(is_server));
                    }
                }
                self.settle(flow)
            }
            Event::Spawn(process) => self.spawn_next(at, process),
        }
    }

    /// Handles a socket that is ready.
    fn ready(&mut self, ready: Ready, events: EventFlags) -> io::Result<()> {
        self.events += 1;
        let (flow, socket) = match ready {
            Ready::Listener(number) => return self.accept(number),
            Ready::Flow(flow, socket) => (flow, socket),
        };
        let now = self.clock.now();
        match self.flows.get_mut(flow).map(|entry| &mut entry.flow) {
            Some(Flow::Tcp(pair)) if !pair.ends[socket].tcp.is_connected() => {
                match pair.ends[socket].tcp.failure() {
                    None if events.contains(EventFlags::OUT) => pair.connected(now, socket),
                    None => {}
                    Some(error) => pair.failed(now, &error),
                }
            }
            Some(Flow::Tcp(pair)) => {
                if events.contains(EventFlags::OUT) {
                    pair.writable(now, socket);
                }
                if events.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    pair.readable(now, socket, &mut self.buffer);
                }
            }
            Some(Flow::Udp(run)) => run.receive(self.clock, &mut self.buffer)?,
            Some(Flow::Quic(run)) => run.receive(now, socket / 2, side(socket % 2 == 1), &mut self.buffer)?,
            Some(Flow::Gone) | None => {}
        }
        self.settle(flow)
    }

    /// Enters the timers of a flow, and what its sockets wait for. Frees a spawned flow that has ended.
    fn settle(&mut self, number: usize) -> io::Result<()> {
        let now = self.clock.now();
        let Some(entry) = self.flows.get_mut(number) else { return Ok(()) };
        match &mut entry.flow {
            Flow::Tcp(pair) => {
                for (place, end) in pair.ends.iter_mut().enumerate() {
                    for (at, token) in end.timers.drain(..) {
                        self.agenda.enter(at, Event::App(number, place == 1, token));
                    }
                    let interest = end.tcp.interest();
                    let Some(socket) = end.tcp.socket() else { continue };
                    let data = EventData::new_u64(Ready::Flow(number, place).token());
                    match end.interest {
                        Some(known) if known == interest => {}
                        // A socket that waits for nothing would still report that its peer is gone.
                        Some(_) if interest.is_empty() => epoll::delete(&self.epoll, socket)?,
                        None if interest.is_empty() => {}
                        Some(known) if !known.is_empty() => {
                            epoll::modify(&self.epoll, socket, data, interest)?;
                        }
                        _ => epoll::add(&self.epoll, socket, data, interest)?,
                    }
                    end.interest = Some(interest);
                }
                if let Some(spawned) = pair.spawned
                    && (pair.is_over() || pair.is_broken())
                {
                    pair.ends.iter_mut().for_each(|end| end.tcp.release());
                    let outcome = match pair.ends[0].reception.failed_at {
                        _ if !pair.is_broken() => FlowOutcome::Completed,
                        Some(_) => FlowOutcome::Failed,
                        None => FlowOutcome::Reset,
                    };
                    let running = &mut self.processes[spawned.process].process;
                    running.note(record(pair, spawned, running.config().sender, outcome));
                    entry.flow = Flow::Gone;
                }
            }
            Flow::Quic(run) => {
                for is_server in [false, true] {
                    if let Some(at) = run.next_call(now, side(is_server)) {
                        self.agenda.enter(at, Event::Host(number, is_server));
                    }
                }
            }
            Flow::Udp(_) | Flow::Gone => {}
        }
        Ok(())
    }

    /// Runs all flows until a time.
    fn work(&mut self, until: Time) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            while let Some((at, event)) = self.agenda.take(self.clock.now()) {
                self.handle(at, event)?;
            }
            let now = self.clock.now();
            if now >= until {
                break;
            }
            let next = self.agenda.next().map_or(until, |next| next.min(until));
            self.prompt.wait(&self.epoll, next.since(now))?;
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&NOW))?;
            for event in &events {
                self.ready(Ready::of(event.data.u64()), event.flags)?;
            }
        }
        for entry in &mut self.flows {
            if let Flow::Tcp(pair) = &mut entry.flow {
                pair.look();
            }
        }
        self.now = self.clock.now();
        Ok(())
    }

    fn tcp_pair(&self, flow: FlowId) -> Option<&TcpPair> {
        match &self.flows.get(flow.index())?.flow {
            Flow::Tcp(pair) => Some(pair),
            Flow::Udp(_) | Flow::Quic(_) | Flow::Gone => None,
        }
    }

    fn quic_run(&self, flow: FlowId) -> Option<&QuicRun> {
        match &self.flows.get(flow.index())?.flow {
            Flow::Quic(run) => Some(run),
            Flow::Tcp(_) | Flow::Udp(_) | Flow::Gone => None,
        }
    }

    /// Packets that links have lost of those that an end of a flow sent.
    fn dropped(&self, flow: usize, from: Side) -> u64 {
        let records = self.records.lock();
        self.flows[flow].tuples[from as usize].iter().map(|tuple| records.dropped(tuple)).sum()
    }

    fn measured<T>(&self, link: LinkId, of: impl FnOnce(marcato_lab::LinkMeasurement) -> T) -> Option<T> {
        let (link, back) = way(link);
        self.lab.measurement(link, back).map(of)
    }
}

/// Lateness of one packet in a hundred from which on there is a warning. Senders that measure rates
/// notice it first: BBR keeps 1 % below its estimate, which is a maximum, and so grows with jitter.
const LATE: Duration = Duration::from_micros(500);

/// Returns a warning if packets of a link arrived late.
fn late(link: &str, lateness: DelaySummary) -> Option<String> {
    let ms = |span: Duration| span.as_secs_f64() * 1e3;
    (lateness.p99 > LATE).then(|| {
        format!(
            "packets of link {link} arrived up to {:.2} ms late (99 %; median {:.2} ms), which receivers see \
             as jitter: use a machine with less work",
            ms(lateness.p99),
            ms(lateness.p50)
        )
    })
}

/// Number of the link of which `direction` is one, and true if it is the direction back.
const fn way(direction: LinkId) -> (usize, bool) {
    (direction.index() / 2, direction.index() % 2 == 1)
}

/// `EINPROGRESS`, which `std` has no stable kind for.
const IN_PROGRESS: i32 = rustix::io::Errno::INPROGRESS.raw_os_error();

fn tuple(protocol: u8, from: SocketAddr, to: SocketAddr) -> FlowTuple {
    FlowTuple {
        source: from.ip(),
        destination: to.ip(),
        protocol,
        source_port: from.port(),
        destination_port: to.port(),
    }
}

fn record(pair: &TcpPair, spawned: Spawned, sender: Side, outcome: FlowOutcome) -> FlowRecord {
    let (from, to) = (&pair.ends[sender as usize], &pair.ends[sender.peer() as usize]);
    FlowRecord::new((spawned.number, spawned.size), pair.start, &to.reception, &from.tcp.last(), outcome)
}

impl Fabric for SocketFabric {
    fn tcp(&mut self, flow: TcpFlow) -> Result<FlowId, FlowError> {
        settings::check(&flow.client_config)?;
        settings::check(&flow.server_config)?;
        let number = self.add_tcp(flow).map_err(|error| FlowError::Refused(error.to_string()))?;
        Ok(id(number))
    }

    fn udp(&mut self, flow: UdpFlow) -> Result<FlowId, FlowError> {
        self.add_udp(flow).map(id)
    }

    fn spawn(&mut self, process: FlowProcess) -> Result<ProcessId, SpawnError> {
        self.add_process(process).map(|number| ProcessId::new(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    fn datagrams(&mut self, flow: DatagramFlow) -> Result<FlowId, FlowError> {
        self.add_quic(flow).map(id).map_err(|error| FlowError::Refused(error.to_string()))
    }

    fn now(&self) -> Time {
        self.now
    }

    fn events(&self) -> u64 {
        self.events
    }

    fn watch(&mut self, flow: FlowId) {
        match self.flows.get_mut(flow.index()).map(|entry| &mut entry.flow) {
            Some(Flow::Tcp(pair)) => pair.watch(),
            Some(Flow::Udp(run)) => run.watch(),
            Some(Flow::Quic(_) | Flow::Gone) | None => {}
        }
    }

    fn tally(&self, flow: FlowId, from: Side) -> FlowTally {
        let dropped = self.dropped(flow.index(), from);
        match &self.flows[flow.index()].flow {
            Flow::Tcp(pair) => {
                let sent = pair.ends[from as usize].tcp.segments_out();
                FlowTally { sent, dropped, ..FlowTally::default() }
            }
            Flow::Udp(run) if from == Side::Client => run.tally(dropped),
            Flow::Quic(run) => {
                let dropped = dropped + run.refused[from as usize];
                FlowTally { sent: run.sent[from as usize], dropped, ..FlowTally::default() }
            }
            Flow::Udp(_) | Flow::Gone => FlowTally::default(),
        }
    }

    fn summary(&self, flow: FlowId, from: Side) -> FlowSummary {
        let packets = self.tally(flow, from);
        match &self.flows[flow.index()].flow {
            Flow::Tcp(pair) => FlowSummary { packets, ..pair.summary(from) },
            Flow::Udp(run) => run.summary(self.flows[flow.index()].start, packets),
            Flow::Quic(_) | Flow::Gone => FlowSummary { packets, ..FlowSummary::default() },
        }
    }

    fn tcp_stats(&self, flow: FlowId, side: Side) -> Option<TcpStats> {
        Some(self.tcp_pair(flow)?.ends[side as usize].tcp.last())
    }

    fn plt_stats(&self, _: FlowId, _: Side) -> Option<PltStats> {
        None
    }

    fn reception(&self, flow: FlowId, side: Side) -> Reception {
        self.tcp_pair(flow).map(|pair| pair.ends[side as usize].reception).unwrap_or_default()
    }

    fn udp_stats(&self, flow: FlowId) -> Option<UdpStats> {
        match &self.flows.get(flow.index())?.flow {
            Flow::Udp(run) => Some(run.stats),
            Flow::Tcp(_) | Flow::Quic(_) | Flow::Gone => None,
        }
    }

    fn route_stats(&self, flow: FlowId, from: Side, route: RouteId) -> Option<RouteStats> {
        self.quic_run(flow)?.pair.route_stats(from, route)
    }

    fn process_stats(&self, process: ProcessId) -> ProcessStats {
        self.processes[process.index()].process.stats()
    }

    fn flow_records(&self, process: ProcessId) -> &[FlowRecord] {
        self.processes[process.index()].process.records()
    }

    fn open_flows(&self, process: ProcessId) -> Vec<FlowRecord> {
        let sender = self.processes[process.index()].process.config().sender;
        let open = self.flows.iter().filter_map(|entry| match &entry.flow {
            Flow::Tcp(pair) => {
                let spawned = pair.spawned.filter(|spawned| spawned.process == process.index())?;
                Some(record(pair, spawned, sender, FlowOutcome::Open))
            }
            Flow::Udp(_) | Flow::Quic(_) | Flow::Gone => None,
        });
        open.collect()
    }

    fn any_app(&self, flow: FlowId, side: Side) -> Option<&dyn App> {
        Some(&*self.tcp_pair(flow)?.ends[side as usize].app)
    }

    fn any_host(&self, flow: FlowId, side: Side) -> Option<&dyn Host> {
        Some(self.quic_run(flow)?.pair.host(side))
    }

    fn link_counters(&self, link: LinkId) -> LinkCounters {
        let (link, back) = way(link);
        let counters = self.lab.counters(link, back).unwrap_or_default();
        LinkCounters {
            offered: counters.offered,
            dropped: counters.dropped + counters.discarded,
            too_big: counters.too_big,
            lost: counters.lost,
            duplicated: counters.duplicated,
            preempted: 0,
            delivered: counters.delivered,
            delivered_bytes: counters.delivered_bytes,
            carried_bytes: counters.delivered_bytes,
        }
    }

    fn link_load(&self, link: LinkId) -> Load {
        self.measured(link, |it| it.load).unwrap_or(Load { carried: 0.0, capacity: 0.0 })
    }

    fn backlog(&self, link: LinkId) -> marcato_queue::Backlog {
        self.measured(link, |it| it.backlog).unwrap_or_default()
    }

    fn marked(&self, link: LinkId) -> u64 {
        self.measured(link, |it| it.marked).unwrap_or_default()
    }

    fn judged(&self, link: LinkId) -> Option<[Bytes; 2]> {
        let (link, back) = way(link);
        self.lab.judged(link, back)
    }

    fn flow_report(&self, link: LinkId, flow: FlowId, from: Side) -> Option<FlowReport> {
        let (link, back) = way(link);
        let tuple = self.flows.get(flow.index())?.tuples[from as usize].first()?;
        self.lab.flow_report(link, back, tuple)
    }

    fn queue_delays(&self, link: LinkId) -> Option<QueueDelays> {
        let (link, back) = way(link);
        let sojourns = self.lab.sojourns(link, back)?;
        Some(QueueDelays::new(sojourns.packets, sojourns.sum, sojourns.histogram))
    }

    fn restart_queue_delays(&mut self, link: LinkId) {
        let (link, back) = way(link);
        self.lab.restart_measurement(link, back);
    }

    fn waiting(&mut self, link: LinkId) -> Option<Waiting> {
        self.measured(link, |it| it.waiting)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.records.lock().warnings();
        for (link, (name, _)) in self.lab.stats().into_iter().enumerate() {
            let ways = [(false, "there"), (true, "back")];
            warnings.extend(
                ways.into_iter().filter_map(|(back, way)| {
                    late(&format!("{name}, {way}"), self.lab.lateness(link, back)?)
                }),
            );
        }
        warnings
    }

    fn tap(&mut self, link: LinkId, tap: Tap) {
        self.records.lock().tap(link.index(), tap);
    }

    fn tap_together(&mut self, link: LinkId, name: &str, tap: Tap) {
        self.records.lock().tap_together(link.index(), name, tap);
    }

    fn take_taps(&mut self, secrets: &str) -> Vec<u8> {
        self.records.lock().take_common(secrets)
    }

    fn take_tap(&mut self, link: LinkId) -> Vec<u8> {
        self.records.lock().take(link.index())
    }
}

impl Advance for SocketFabric {
    type Error = TrialError;

    fn advance(&mut self, until: Time) -> Result<(), TrialError> {
        self.work(until).map_err(system("moving the flows"))
    }
}

fn id(number: usize) -> FlowId {
    FlowId::new(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use marcato_link::Histogram;

    use super::*;

    #[test]
    fn only_packets_that_arrive_late_cause_a_warning() {
        let summary = |late: Duration| {
            let mut histogram = Histogram::default();
            (0..90).for_each(|_| histogram.record(Duration::from_micros(30)));
            (0..10).for_each(|_| histogram.record(late));
            DelaySummary::of(&histogram)
        };
        assert_eq!(late("net, there", summary(Duration::from_micros(400)).unwrap()), None);
        let warning = late("net, there", summary(Duration::from_millis(2)).unwrap()).unwrap();
        assert!(warning.contains("link net, there arrived up to 2.0"), "{warning}");
    }
}
