//! Multipath QUIC: sessions of `marcato-quic` over UDP sockets, one for each lane.
//!
//! One task drives all sessions that share sockets. The [`Hub`] holds them, and the state for the
//! application's handles.

mod backlog;
mod driver;
mod port;
mod slab;
mod socket;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use marcato_quic::{
    LaneRequest, LaneState, LocalSocket, LongId, MessageId, Session, SessionConfig, SessionId, SocketId,
};
use marcato_sched::lane::LaneId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_stream::{Pool, Ticket as _};
use marcato_units::{Bytes, Layer, Priority, Time};
use marcato_wire::{ErrorCode, Fate};
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::Instrument as _;

use crate::config::{Config, Engine, LaneConfig, Limits, LocalAddress, Remote};
use crate::connection::{Connection, Message};
use crate::endpoint::EndpointStats;
use crate::error::{
    AddLaneError, ChangeError, ChangeLaneError, Closed, ConfigError, ConnectError, ExportError, ListenError,
    NotDelivered, ReserveError, SendError,
};
use crate::shared::{Shared, Ticket, Transport, lock};
use crate::stats::{ConnectionStats, LaneStats};
use crate::tls::{self, Handshake};
use socket::Socket;

/// Reason sent to a peer when all messages have been delivered.
const FINISHED: &str = "finished";
/// Reason sent to a peer when the application aborts a connection.
const ABORTED: &str = "aborted";

/// Sessions that share sockets.
pub(crate) struct Hub {
    state: Mutex<State>,
    /// Wakes the task that drives them.
    wake: Notify,
    epoch: Instant,
    limits: Limits,
    /// Memory in which their messages are assembled.
    pool: Pool,
    /// Buffer size requested for each socket.
    buffer: Bytes,
    /// Set if this is the client's end of its connections.
    client: bool,
}

struct State {
    endpoint: marcato_quic::Endpoint,
    /// Sockets by identifier; `changes` counts their changes.
    sockets: Vec<Arc<Socket>>,
    changes: u64,
    connections: HashMap<SessionId, Entry>,
    /// Connections with work that is no event of their session.
    attention: Vec<SessionId>,
    /// Batches of datagrams discarded because their socket stayed full.
    discarded: u64,
    /// Set while further connections may share the sockets of a client.
    shared: bool,
    /// Channel for new connections, as long as the endpoint accepts peers.
    accepted: Option<mpsc::Sender<Connection>>,
    /// Key of the next connection, by which handles recognise theirs.
    next_key: u64,
}

/// Connection within its hub.
struct Entry {
    key: u64,
    quic: Arc<Quic>,
    tickets: HashMap<MessageId, (Ticket, Priority)>,
    /// Tickets of messages with a receipt, until the peer reports about them.
    receipts: HashMap<MessageId, Ticket>,
    unfinished: [usize; Priority::COUNT],
    finishing: bool,
    /// Set when reading has stopped because the application takes nothing.
    paused: bool,
    /// Set when the application has taken something since.
    noticed: bool,
    /// Span of its log events.
    span: tracing::Span,
    /// Channel to the task that waits for the handshake.
    connecting: Option<oneshot::Sender<Result<(), String>>>,
}

/// Connection over QUIC, as its handles see it.
pub(crate) struct Quic {
    shared: Shared,
    hub: Arc<Hub>,
    id: SessionId,
    key: u64,
    /// Statistics at its end.
    last: Mutex<Option<ConnectionStats>>,
}

impl Hub {
    fn new(
        sockets: Vec<Arc<Socket>>,
        config: &Config,
        accepted: Option<mpsc::Sender<Connection>>,
    ) -> Result<Arc<Self>, marcato_quic::EndpointError> {
        let epoch = Instant::now();
        let local =
            |socket: &Arc<Socket>| LocalSocket { layer: socket.layer, ..LocalSocket::new(socket.addr) };
        let mut endpoint = marcato_quic::EndpointConfig::new(sockets.iter().map(local).collect());
        endpoint.max_sessions = config.quic.max_connections;
        endpoint.validate_addresses = config.quic.validate_addresses;
        endpoint.reset_key.clone_from(&config.quic.reset_key);
        endpoint.max_handshakes = config.quic.max_handshakes;
        endpoint.max_handshakes_per_address = config.quic.max_handshakes_per_address;
        endpoint.handshake_timeout = Some(config.quic.handshake_timeout);
        let client = accepted.is_none();
        Ok(Arc::new(Self {
            state: Mutex::new(State {
                endpoint: marcato_quic::Endpoint::new(endpoint, epoch)?,
                sockets,
                changes: 0,
                connections: HashMap::new(),
                attention: Vec::new(),
                discarded: 0,
                shared: false,
                accepted,
                next_key: 0,
            }),
            wake: Notify::new(),
            epoch,
            limits: config.limits,
            pool: Pool::new(config.limits.memory),
            buffer: config.quic.socket_buffer,
            client,
        }))
    }

    fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    fn stats(&self) -> EndpointStats {
        let state = lock(&self.state);
        let stats = state.endpoint.stats();
        EndpointStats {
            connections: state.connections.len(),
            handshakes: stats.handshakes,
            held: self.pool.held(),
            // The session's endpoint counts a peer as accepted when its handshake begins.
            accepted: stats.accepted.saturating_sub(stats.failed).saturating_sub(stats.handshakes as u64),
            refused: stats.refused,
            retried: stats.retried,
            failed: stats.failed,
            stray: stats.stray,
            discarded: state.discarded,
            crowded: stats.crowded,
        }
    }

    /// Creates the connection of a session.
    fn adopt(
        self: &Arc<Self>,
        state: &mut State,
        id: SessionId,
        connecting: Option<oneshot::Sender<Result<(), String>>>,
    ) -> Arc<Quic> {
        let key = state.next_key;
        state.next_key += 1;
        let quic = Arc::new(Quic {
            shared: Shared::new(self.limits, self.pool.clone()),
            hub: Arc::clone(self),
            id,
            key,
            last: Mutex::new(None),
        });
        let entry = Entry {
            key,
            quic: Arc::clone(&quic),
            tickets: HashMap::new(),
            receipts: HashMap::new(),
            unfinished: [0; Priority::COUNT],
            finishing: false,
            paused: false,
            noticed: false,
            span: tracing::debug_span!("connection", key),
            connecting,
        };
        state.connections.insert(id, entry);
        quic
    }
}

impl State {
    /// Returns a socket for a lane; `None` if none has its address family, its layer and its local
    /// address. At the server, only the address of a client's socket tells the lanes of a session
    /// apart, so those of its other lanes are `taken`.
    fn place(&self, lane: &LaneConfig, taken: &[SocketId]) -> Option<SocketId> {
        let fits = |socket: &Socket| {
            let local = lane.local.is_none_or(|local| {
                local.ip() == socket.addr.ip() && (local.port() == 0 || local.port() == socket.addr.port())
            });
            local && socket.layer == lane.layer && socket.addr.is_ipv4() == lane.remote.is_ipv4()
        };
        let all = (0..=u8::MAX).map(SocketId).zip(&self.sockets);
        let mut fitting = all.filter(|(_, socket)| fits(socket)).map(|(place, _)| place);
        fitting.find(|place| !taken.contains(place))
    }

    /// Returns a connection and its session, unless it has ended.
    fn connection(&mut self, quic: &Quic) -> Option<(&mut Entry, &mut Session)> {
        let entry = self.connections.get_mut(&quic.id).filter(|entry| entry.key == quic.key)?;
        Some((entry, self.endpoint.session(quic.id)?))
    }

    /// Returns a connection's statistics, except those of received data.
    fn stats(&self, id: SessionId, entry: &Entry) -> ConnectionStats {
        let mut stats = ConnectionStats { unfinished: entry.unfinished, ..ConnectionStats::default() };
        let Some(session) = self.endpoint.peek(id) else { return stats };
        stats.conducted = *session.conducted();
        stats.parts = session.parts();
        let client = entry.quic.hub.client;
        let lanes = session.lanes().map(|(view, state, lane)| {
            let route = session.route(view.id);
            let socket = route.and_then(|(socket, _)| self.sockets.get(usize::from(socket.0)));
            let remote = route.map(|(_, remote)| remote);
            LaneStats {
                id: view.id,
                local: socket.map(|socket| if client { source(socket.addr, remote) } else { socket.addr }),
                remote,
                layer: view.layer,
                // A low lane that is parked is up, but carries nothing.
                usable: state == LaneState::Up && (view.usable || view.layer == Layer::High),
                srtt: view.srtt,
                cwnd: view.cwnd,
                in_flight: view.in_flight,
                backlog: socket.map_or(Bytes::ZERO, |socket| socket.unsent()),
                sent: lane.packets,
                sent_bytes: lane.bytes,
                lost: lane.lost,
            }
        });
        stats.lanes = lanes.collect();
        stats
    }

    /// Ends a connection for the application.
    fn end(&mut self, id: SessionId, closed: Closed) {
        let Some(entry) = self.connections.remove(&id) else { return };
        entry.span.in_scope(|| tracing::debug!(%closed, "over"));
        let mut last = self.stats(id, &entry);
        last.lanes.iter_mut().for_each(|lane| lane.usable = false);
        *lock(&entry.quic.last) = Some(last);
        for (_, (ticket, _)) in entry.tickets {
            ticket.settle(Err(closed.clone().into()));
        }
        for (_, receipt) in entry.receipts {
            receipt.settle(Err(NotDelivered::NotTaken(closed.clone())));
        }
        if let Some(connecting) = entry.connecting {
            let _ = connecting.send(Err(closed.to_string()));
        }
        entry.quic.shared.close(closed);
    }
}

impl Entry {
    /// Settles the ticket for a report, if the message has one.
    fn reported(&mut self, message: Option<MessageId>, fate: Fate) {
        let Some(receipt) = message.and_then(|id| self.receipts.remove(&id)) else {
            return lock(&self.quic.shared.inbound).count_stray_report();
        };
        receipt.settle(match fate {
            Fate::Taken => Ok(()),
            Fate::Discarded => Err(NotDelivered::Unwanted),
        });
        self.quic.shared.room.notify_waiters();
    }

    fn settle(&mut self, id: MessageId, outcome: Result<(), NotDelivered>) {
        let Some((ticket, level)) = self.tickets.remove(&id) else { return };
        if let Err(error) = &outcome
            && let Some(receipt) = self.receipts.remove(&id)
        {
            receipt.settle(Err(error.clone()));
        }
        self.unfinished[level.index()] -= 1;
        self.span.in_scope(|| tracing::trace!(id = id.get(), ?outcome, "settled"));
        ticket.settle(outcome);
        self.quic.shared.room.notify_waiters();
    }
}

/// Returns the end of a connection for the application, from the reason and the peer's code.
fn closed(reason: &str, code: Option<u64>) -> Closed {
    match code {
        Some(code) if code == ErrorCode::NoError.get() => Closed::ByPeer,
        _ => Closed::Lost { reason: reason.to_owned() },
    }
}

impl Quic {
    /// Adds a lane by one of a client's shared sockets. Returns `false` if none fits.
    fn add_shared_lane(&self, lane: &LaneConfig) -> Result<bool, AddLaneError> {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if !state.shared {
            return Ok(false);
        }
        let (_, session) = state.connection(self).ok_or(AddLaneError::Closed)?;
        // The sockets of lanes that wait to be opened again are not known.
        if session.load().requests > 0 {
            return Ok(false);
        }
        let taken: Vec<SocketId> = sockets_of(session).collect();
        let Some(place) = state.place(lane, &taken) else { return Ok(false) };
        let (_, session) = state.connection(self).ok_or(AddLaneError::Closed)?;
        session.add_lane(now, request(place, lane))?;
        drop(state);
        self.hub.wake.notify_one();
        Ok(true)
    }

    /// Records the results of the TLS handshake.
    fn established(&self, session: &Session) {
        let _ = self.shared.handshake.set(Handshake { peer: session.peer_identity(), alpn: session.alpn() });
    }

    /// Returns the error of sending on a connection that has ended or is closing here.
    fn over(&self) -> SendError {
        SendError::Closed(self.shared.closed().unwrap_or(Closed::Local))
    }

    /// Accepts a message, or a part of one; the flag marks the last part.
    fn take(
        &self,
        message: &Message,
        mut ticket: Ticket,
        part: Option<(LongId, bool)>,
    ) -> Result<MessageId, SendError> {
        let now = self.hub.now();
        let limits = &self.hub.limits;
        let level = message.priority;
        let len = Bytes::new(message.body.len() as u64);
        let mut state = lock(&self.hub.state);
        let (entry, session) = state.connection(self).ok_or_else(|| self.over())?;
        if entry.finishing {
            return Err(SendError::Closed(Closed::Local));
        }
        // The session has ended, and the event of its end was not dispatched yet.
        if let Some((reason, code)) = session.ended() {
            return Err(SendError::Closed(closed(reason, code)));
        }
        let queued = session.conducted().level(level).queued.bytes;
        limits.admit(level, len, entry.unfinished[level.index()], queued)?;
        if message.receipt && entry.receipts.len() >= limits.receipts {
            return Err(SendError::Busy { priority: level });
        }
        if let Some((long, _)) = part
            && session.waiting(long) >= limits.streamed
        {
            return Err(SendError::Busy { priority: level });
        }
        let sent = match part {
            Some((long, last)) => session.send_part(now, long, message.clone(), last),
            None => session.send(now, message.clone()),
        };
        let id = sent.map_err(|error| match error {
            marcato_quic::SendError::Closed => self.over(),
            marcato_quic::SendError::Offer(error) => SendError::from_offer(error, level),
            marcato_quic::SendError::TooManyUnfinished { .. } => SendError::Busy { priority: level },
            marcato_quic::SendError::TooLongForDatagram { limit } => {
                SendError::TooLongForDatagram { limit: Bytes::new(limit as u64) }
            }
            marcato_quic::SendError::NoDatagrams => SendError::NoDatagrams,
            marcato_quic::SendError::Ended => SendError::Ended,
        })?;
        entry.span.in_scope(|| tracing::trace!(id = id.get(), priority = %level, %len, "offered"));
        if let Some(receipt) = ticket.receipt() {
            entry.receipts.insert(id, receipt);
        }
        entry.tickets.insert(id, (ticket, level));
        entry.unfinished[level.index()] += 1;
        drop(state);
        self.hub.wake.notify_one();
        Ok(id)
    }
}

impl Transport for Quic {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn now(&self) -> Time {
        self.hub.now()
    }

    fn offer(&self, message: &Message, ticket: Ticket) -> Result<MessageId, SendError> {
        self.take(message, ticket, None)
    }

    fn begin_long(&self) -> Result<LongId, SendError> {
        let mut state = lock(&self.hub.state);
        let (entry, session) = state.connection(self).ok_or_else(|| self.over())?;
        if entry.finishing { Err(self.over()) } else { Ok(session.begin_long()) }
    }

    fn offer_part(
        &self,
        long: LongId,
        part: &Message,
        last: bool,
        ticket: Ticket,
    ) -> Result<MessageId, SendError> {
        self.take(part, ticket, Some((long, last)))
    }

    fn cancel_long(&self, long: LongId) {
        let now = self.hub.now();
        if let Some((_, session)) = lock(&self.hub.state).connection(self) {
            session.cancel_long(now, long);
        }
        self.hub.wake.notify_one();
    }

    fn max_unreliable(&self) -> Option<Bytes> {
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self)?;
        session.max_datagram().map(|most| Bytes::new(most as u64))
    }

    fn cancel(&self, id: MessageId) -> Result<(), ChangeError> {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or(ChangeError::TooLate)?;
        let cancelled = session.cancel(now, id).map_err(|_| ChangeError::TooLate);
        drop(state);
        self.hub.wake.notify_one();
        cancelled
    }

    fn reprioritise(&self, id: MessageId, priority: Priority) -> Result<(), ChangeError> {
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or(ChangeError::TooLate)?;
        let moved = session.reprioritise(id, priority);
        drop(state);
        self.hub.wake.notify_one();
        Ok(moved?)
    }

    fn discard_less_urgent_than(&self, threshold: Priority) {
        let now = self.hub.now();
        if let Some((_, session)) = lock(&self.hub.state).connection(self) {
            session.discard_less_urgent_than(now, threshold);
        }
        self.hub.wake.notify_one();
    }

    fn reserve(&self, key: SourceKey, source: Source) -> Result<(), ReserveError> {
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or(ReserveError::Closed)?;
        let declared = session.reserve(key, source);
        drop(state);
        self.hub.wake.notify_one();
        Ok(declared?)
    }

    fn release(&self, key: SourceKey) -> bool {
        let mut state = lock(&self.hub.state);
        let released = state.connection(self).is_some_and(|(_, session)| session.release(key));
        drop(state);
        self.hub.wake.notify_one();
        released
    }

    fn add_lane(&self, lane: LaneConfig) -> Result<(), AddLaneError> {
        if !self.hub.client {
            return Err(marcato_quic::LaneError::NotAClient.into());
        }
        if self.add_shared_lane(&lane)? {
            return Ok(());
        }
        let addr = lane.local.unwrap_or_else(|| any_address(lane.remote));
        let socket = Socket::bind(addr, lane.layer, self.hub.buffer);
        let socket = Arc::new(socket.map_err(|source| AddLaneError::Bind { addr, source })?);
        let now = self.hub.now();
        let mut guard = lock(&self.hub.state);
        let state = &mut *guard;
        let shared = state.shared;
        let (_, session) = state.connection(self).ok_or(AddLaneError::Closed)?;
        // A socket that no lane uses any more is replaced.
        let used: Vec<SocketId> = sockets_of(session).collect();
        let settled = session.load().requests == 0;
        let mut places = (0..=u8::MAX).map(SocketId).take(state.sockets.len());
        let vacant = places.find(|place| settled && !shared && !used.contains(place));
        let local = LocalSocket { layer: lane.layer, ..LocalSocket::new(socket.addr) };
        let place = match vacant {
            Some(place) => {
                state.endpoint.replace_socket(place, local);
                state.sockets[usize::from(place.0)] = socket;
                place
            }
            None => {
                let place = state.endpoint.add_socket(local).ok_or(AddLaneError::TooManySockets)?;
                state.sockets.push(socket);
                place
            }
        };
        state.changes += 1;
        let (_, session) = state.connection(self).ok_or(AddLaneError::Closed)?;
        session.add_lane(now, request(place, &lane))?;
        drop(guard);
        self.hub.wake.notify_one();
        Ok(())
    }

    fn remove_lane(&self, lane: LaneId) -> Result<(), ChangeLaneError> {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or(ChangeLaneError::Closed)?;
        let removed = session.remove_lane(now, lane);
        drop(state);
        self.hub.wake.notify_one();
        Ok(removed?)
    }

    fn set_backup(&self, lane: LaneId, backup: bool) -> Result<(), ChangeLaneError> {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or(ChangeLaneError::Closed)?;
        let set = session.set_backup(now, lane, backup);
        drop(state);
        self.hub.wake.notify_one();
        Ok(set?)
    }

    fn export(&self, out: &mut [u8], label: &[u8], context: &[u8]) -> Result<(), ExportError> {
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or(ExportError::Closed)?;
        let len = out.len();
        session.export_keying_material(out, label, context).then_some(()).ok_or(ExportError::Length { len })
    }

    fn resume(&self) {
        let answers = lock(&self.shared.inbound).answers() > 0;
        let mut state = lock(&self.hub.state);
        let entry = state.connections.get_mut(&self.id).filter(|entry| entry.key == self.key);
        let Some(entry) = entry.filter(|entry| entry.paused || answers) else { return };
        if !std::mem::replace(&mut entry.noticed, true) {
            state.attention.push(self.id);
            drop(state);
            self.hub.wake.notify_one();
        }
    }

    fn finish(&self) {
        let mut state = lock(&self.hub.state);
        if let Some((entry, _)) = state.connection(self) {
            entry.finishing = true;
            state.attention.push(self.id);
        }
        drop(state);
        self.shared.room.notify_waiters();
        self.hub.wake.notify_one();
    }

    fn abort(&self) {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if let Some((_, session)) = state.connection(self) {
            session.close(now, ErrorCode::Aborted, ABORTED);
            state.end(self.id, Closed::Local);
        }
        drop(state);
        self.hub.wake.notify_one();
    }

    fn stats(&self) -> ConnectionStats {
        let received = *lock(&self.shared.inbound).counters();
        let state = lock(&self.hub.state);
        let entry = state.connections.get(&self.id).filter(|entry| entry.key == self.key);
        let stats = match entry {
            Some(entry) => state.stats(self.id, entry),
            None => lock(&self.last).clone().unwrap_or_default(),
        };
        ConnectionStats { received, ..stats }
    }
}

/// Returns the sockets of a session's lanes.
fn sockets_of(session: &Session) -> impl Iterator<Item = SocketId> + '_ {
    session.lanes().filter_map(|(view, ..)| session.route(view.id)).map(|(socket, _)| socket)
}

/// Returns the unspecified address of the family of `remote`.
fn any_address(remote: SocketAddr) -> SocketAddr {
    if remote.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() }
}

/// Returns the address from which the system sends to `remote` by a socket at `bound`. That socket
/// is not connected, so it does not know; another one is asked, which sends nothing.
fn source(bound: SocketAddr, remote: Option<SocketAddr>) -> SocketAddr {
    let asked = || {
        let socket = std::net::UdpSocket::bind((bound.ip(), 0)).ok()?;
        socket.connect(remote?).ok()?;
        Some(SocketAddr::new(socket.local_addr().ok()?.ip(), bound.port()))
    };
    if bound.ip().is_unspecified() { asked().unwrap_or(bound) } else { bound }
}

/// Returns the request for a lane by this socket.
fn request(socket: SocketId, lane: &LaneConfig) -> LaneRequest {
    LaneRequest { layer: lane.layer, backup: lane.backup, ..LaneRequest::new(socket, lane.remote) }
}

/// Returns the session's part of a configuration.
fn session_config(config: &Config) -> SessionConfig {
    let session = config.quic.session.clone();
    SessionConfig {
        conductor: config.conductor(),
        max_unfinished: config.limits.unfinished.saturating_mul(Priority::COUNT),
        datagrams: Some(config.limits.unreliable).filter(|most| !most.is_zero()),
        ..if config.quic.layered { session.layered() } else { session }
    }
}

/// Returns the address of the low lane that belongs to a high one: the next port.
fn low_address(addr: SocketAddr) -> Result<SocketAddr, ConfigError> {
    let port = addr.port().checked_add(1).ok_or(ConfigError::NoLowPort { addr })?;
    Ok(SocketAddr::new(addr.ip(), port))
}

/// Returns the lanes of a client, with the implied ones of the low layer.
fn with_low_lanes(config: &Config, lanes: &[LaneConfig]) -> Result<Vec<LaneConfig>, ConfigError> {
    let mut all = lanes.to_vec();
    if config.quic.layered && lanes.iter().all(|lane| lane.layer == Layer::High) {
        for lane in lanes {
            let local = lane.local.map(|local| SocketAddr::new(local.ip(), 0));
            let remote = low_address(lane.remote)?;
            all.push(LaneConfig { local, remote, layer: Layer::Low, ..*lane });
        }
    }
    Ok(all)
}

/// Limit of the attempts to get two consecutive ports from the system.
const PORT_PAIRS: u32 = 32;

/// Returns the sockets of a server, with the implied ones for low lanes.
fn listening(config: &Config, at: &[LocalAddress]) -> Result<Vec<Arc<Socket>>, ListenError> {
    let bind = |addr, layer| {
        let socket = Socket::bind(addr, layer, config.quic.socket_buffer);
        socket.map(Arc::new).map_err(|source| ListenError::Bind { addr, source })
    };
    let beside = config.quic.layered && at.iter().all(|local| local.layer == Layer::High);
    let (mut sockets, mut low) = (Vec::new(), Vec::new());
    for local in at {
        let mut tries = if local.addr.port() == 0 { PORT_PAIRS } else { 1 };
        loop {
            let socket = bind(local.addr, local.layer)?;
            if !beside {
                sockets.push(socket);
                break;
            }
            tries -= 1;
            // The port after one that the system has chosen may be in use.
            match low_address(socket.addr).map_err(ListenError::from).and_then(|addr| bind(addr, Layer::Low))
            {
                Ok(second) => {
                    sockets.push(socket);
                    low.push(second);
                    break;
                }
                Err(error) if tries == 0 => return Err(error),
                Err(_) => {}
            }
        }
    }
    sockets.extend(low);
    Ok(sockets)
}

/// Listener, until it is dropped.
pub(crate) struct Listener {
    hub: Arc<Hub>,
    pub(crate) addrs: Vec<SocketAddr>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock(&self.hub.state).accepted = None;
        self.hub.wake.notify_one();
    }
}

impl Listener {
    pub(crate) fn observe(&self) -> Arc<dyn Fn() -> EndpointStats + Send + Sync> {
        let hub = Arc::clone(&self.hub);
        Arc::new(move || hub.stats())
    }

    pub(crate) fn new(
        config: &Config,
        at: &[LocalAddress],
        tls: Option<Arc<ServerConfig>>,
        accepted: mpsc::Sender<Connection>,
    ) -> Result<Self, ListenError> {
        let tls = tls.ok_or(ConfigError::PlaintextQuic)?;
        let sockets = listening(config, at)?;
        let addrs = sockets.iter().map(|socket| socket.addr).collect();
        let hub = Hub::new(sockets, config, Some(accepted))?;
        lock(&hub.state).endpoint.listen_with(tls, session_config(config))?;
        let span = tracing::debug_span!("quic", listening = ?addrs);
        tokio::spawn(driver::drive(Arc::clone(&hub)).instrument(span));
        Ok(Self { hub, addrs })
    }
}

/// Server with everything that connecting to it needs.
struct Wanted<'a> {
    name: &'a str,
    tls: Arc<ClientConfig>,
    /// Lanes, at least one, with the implied ones of the low layer.
    lanes: Vec<LaneConfig>,
    first: SocketAddr,
}

impl<'a> Wanted<'a> {
    async fn new(config: &Config, to: &'a Remote) -> Result<Self, ConnectError> {
        let (name, tls) = tls::client(config, &to.security).await?.ok_or(ConfigError::PlaintextQuic)?;
        let lanes = with_low_lanes(config, &to.lanes)?;
        let Some(first) = lanes.first().map(|lane| lane.remote) else {
            return Err(ConfigError::NoAddress.into());
        };
        let most = usize::from(config.quic.session.max_lanes);
        if lanes.len() > most {
            let given = lanes.len();
            return Err(ConfigError::TooManyLanes { engine: Engine::Quic, most, given }.into());
        }
        Ok(Self { name, tls, lanes, first })
    }
}

/// Connects over all lanes of `to`; returns when the first is up.
pub(crate) async fn connect(config: &Config, to: &Remote) -> Result<Connection, ConnectError> {
    let wanted = Wanted::new(config, to).await?;
    let mut sockets = Vec::new();
    for lane in &wanted.lanes {
        let addr = lane.local.unwrap_or_else(|| any_address(lane.remote));
        let socket = Socket::bind(addr, lane.layer, config.quic.socket_buffer);
        sockets.push(Arc::new(socket.map_err(|source| ConnectError::Bind { addr, source })?));
    }
    let places: Vec<SocketId> = (0..=u8::MAX).map(SocketId).take(sockets.len()).collect();
    let hub = Hub::new(sockets, config, None)?;
    let connecting = begin(&hub, config, &wanted, &places)?;
    let span = tracing::debug_span!("quic", remote = %wanted.first);
    tokio::spawn(driver::drive(Arc::clone(&hub)).instrument(span));
    established(config, wanted.first, connecting).await
}

/// Connection during its handshake, with the channel that reports the end of that.
type Connecting = (Connection, oneshot::Receiver<Result<(), String>>);

/// Begins a session by these sockets, one for each lane.
fn begin(
    hub: &Arc<Hub>,
    config: &Config,
    wanted: &Wanted<'_>,
    places: &[SocketId],
) -> Result<Connecting, ConnectError> {
    let (connecting, connected) = oneshot::channel();
    let mut state = lock(&hub.state);
    let now = hub.now();
    let session = session_config(config);
    let first = places.first().copied().unwrap_or_default();
    let tls = Arc::clone(&wanted.tls);
    let id = state.endpoint.connect_with(now, first, wanted.first, wanted.name, tls, session)?;
    let quic = hub.adopt(&mut state, id, Some(connecting));
    // If the caller stops waiting, the connection ends with this handle.
    let connection = Connection::new(quic);
    let mut lanes = Ok(());
    if let Some(session) = state.endpoint.session(id) {
        let mut further = places.iter().zip(&wanted.lanes).skip(1);
        lanes = further.try_for_each(|(socket, lane)| session.add_lane(now, request(*socket, lane)));
    }
    drop(state);
    hub.wake.notify_one();
    lanes?;
    Ok((connection, connected))
}

/// Waits for the handshake.
async fn established(
    config: &Config,
    addr: SocketAddr,
    (connection, connected): Connecting,
) -> Result<Connection, ConnectError> {
    match tokio::time::timeout(config.quic.handshake_timeout, connected).await {
        Err(_) => Err(ConnectError::TimedOut { addr }),
        Ok(Ok(Ok(()))) => Ok(connection),
        Ok(Ok(Err(reason))) => Err(ConnectError::Ended { addr, reason }),
        Ok(Err(_)) => Err(ConnectError::Ended { addr, reason: "its task has ended".to_owned() }),
    }
}

/// Sockets that several client connections share, until it is dropped.
pub(crate) struct ClientSockets {
    hub: Arc<Hub>,
}

impl ClientSockets {
    pub(crate) fn bind(config: &Config, at: &[LocalAddress]) -> Result<Self, ListenError> {
        let bind = |local: &LocalAddress| {
            let socket = Socket::bind(local.addr, local.layer, config.quic.socket_buffer);
            socket.map(Arc::new).map_err(|source| ListenError::Bind { addr: local.addr, source })
        };
        let sockets = at.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let hub = Hub::new(sockets, config, None)?;
        lock(&hub.state).shared = true;
        let span = tracing::debug_span!("quic", client = ?at);
        tokio::spawn(driver::drive(Arc::clone(&hub)).instrument(span));
        Ok(Self { hub })
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        lock(&self.hub.state).sockets.iter().map(|socket| socket.addr).collect()
    }

    pub(crate) async fn connect(&self, config: &Config, to: &Remote) -> Result<Connection, ConnectError> {
        let wanted = Wanted::new(config, to).await?;
        let mut places = Vec::new();
        for lane in &wanted.lanes {
            let place = lock(&self.hub.state).place(lane, &places);
            places.push(place.ok_or(ConfigError::NoSocket { remote: lane.remote })?);
        }
        let connecting = begin(&self.hub, config, &wanted, &places)?;
        established(config, wanted.first, connecting).await
    }
}

impl Drop for ClientSockets {
    fn drop(&mut self) {
        lock(&self.hub.state).shared = false;
        self.hub.wake.notify_one();
    }
}
