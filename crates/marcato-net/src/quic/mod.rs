//! Multipath QUIC: sessions of `marcato-quic` over UDP sockets, one for each lane.
//!
//! One task, a driver, drives all sessions that share sockets. The [`Hub`] holds them, and the state
//! for the application's handles. A listening endpoint may have several drivers.

mod backlog;
mod driver;
mod drivers;
mod listener;
mod port;
mod program;
mod slab;
mod socket;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use marcato_quic::{
    LaneRequest, LaneState, LocalSocket, LongId, MessageId, Pending, Session, SessionConfig, SessionId,
    SocketId,
};
use marcato_sched::lane::LaneId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_stream::{Admission, Admitted, CloseReason, Message, NextPart, Pool, Receipt};
use marcato_units::{Bytes, Layer, Priority, Time};
use marcato_wire::{ErrorCode, Fate, Manner};
use rustls::AlertDescription;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::Instrument as _;

use crate::config::{Config, LaneConfig, Limits, LocalAddress, Remote};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::{
    AddLaneError, ChangeError, ChangeLaneError, Closed, ConfigError, ConnectError, ExportError, ListenError,
    NotDelivered, ReserveError, SendError,
};
use crate::shared::{Shared, Ticket, Transport};
use crate::signal::lock;
use crate::stats::{ConnectionStats, CoupledStats, EarlyStats, LaneStats};
use crate::tls::{self, Alerted, ClientTls, Handshake};
use drivers::Seat;
pub(crate) use listener::Listener;
use socket::Socket;

/// Reason sent to a peer when all messages have been delivered.
const FINISHED: &str = "finished";
/// Reason sent to a peer when the application aborts a connection.
const ABORTED: &str = "aborted";

/// Reason for the end of a connection with early data whose handshake does not end.
const LATE: &str = "the handshake took too long";

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
    /// Place of its driver, if the endpoint has several.
    seat: Option<Seat>,
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
    admission: Admission,
    messages: HashMap<MessageId, Admitted<Ticket>>,
    receipts: HashMap<MessageId, Receipt<Ticket>>,
    /// Reason for the end of the connection, once it shall end when everything is delivered.
    finishing: Option<CloseReason>,
    /// Set when the peer sends no more messages. Those that have arrived may not have been read.
    peer_finished: bool,
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
    /// Place among the peers that wait for the application, until it accepts this one.
    pending: Mutex<Option<Pending>>,
}

/// Returns the configuration of an endpoint with these sockets.
fn endpoint_config(config: &Config, sockets: &[Arc<Socket>]) -> marcato_quic::EndpointConfig {
    let local = |socket: &Arc<Socket>| LocalSocket { layer: socket.layer, ..LocalSocket::new(socket.addr) };
    let mut endpoint = marcato_quic::EndpointConfig::new(sockets.iter().map(local).collect());
    endpoint.max_sessions = config.quic.max_connections;
    endpoint.validate_addresses = config.quic.validate_addresses;
    endpoint.reset_key.clone_from(&config.quic.reset_key);
    endpoint.max_handshakes = config.quic.max_handshakes;
    endpoint.max_handshakes_per_address = config.quic.max_handshakes_per_address;
    endpoint.handshake_timeout = Some(config.quic.handshake_timeout);
    endpoint
}

impl Hub {
    /// Creates the hub of a client.
    fn new(sockets: Vec<Arc<Socket>>, config: &Config) -> Result<Arc<Self>, marcato_quic::EndpointError> {
        let epoch = Instant::now();
        let endpoint = marcato_quic::Endpoint::new(endpoint_config(config, &sockets), epoch)?;
        let pool = Pool::new(config.limits.memory);
        Ok(Arc::new(Self {
            state: Mutex::new(State::new(endpoint, sockets)),
            wake: Notify::new(),
            epoch,
            limits: config.limits,
            pool,
            buffer: config.quic.socket_buffer,
            client: true,
            seat: None,
        }))
    }

    fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
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
            pending: Mutex::new(None),
        });
        let entry = Entry {
            key,
            quic: Arc::clone(&quic),
            admission: Admission::new(self.limits),
            messages: HashMap::new(),
            receipts: HashMap::new(),
            finishing: None,
            peer_finished: false,
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
    fn new(endpoint: marcato_quic::Endpoint, sockets: Vec<Arc<Socket>>) -> Self {
        Self {
            endpoint,
            sockets,
            changes: 0,
            connections: HashMap::new(),
            attention: Vec::new(),
            discarded: 0,
            shared: false,
            accepted: None,
            next_key: 0,
        }
    }

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
        let unfinished = entry.admission.undelivered();
        let mut stats = ConnectionStats { unfinished, ..ConnectionStats::default() };
        let Some(session) = self.endpoint.peek(id) else { return stats };
        stats.conducted = *session.conducted();
        stats.parts = session.parts();
        let sent = session.stats();
        stats.early =
            EarlyStats { sent: sent.early, accepted: sent.early_accepted, rejected: sent.early_rejected };
        let client = entry.quic.hub.client;
        let coupling: Vec<_> = session.coupling().filter(|(_, state)| state.acts).collect();
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
                coupled: coupling.iter().find(|(id, _)| *id == view.id).map(|(_, state)| CoupledStats {
                    mode: state.mode,
                    cap: state.cap,
                    counters: state.counters,
                    // Acknowledgements are events of the session: it looks for none.
                    looks: 0,
                }),
            }
        });
        stats.lanes = lanes.collect();
        stats.coupled = stats.lanes.iter().find_map(|lane| lane.coupled);
        stats
    }

    /// Ends a connection for the application.
    fn end(&mut self, now: Time, id: SessionId, closed: Closed) {
        let Some(mut entry) = self.connections.remove(&id) else { return };
        entry.span.in_scope(|| tracing::debug!(%closed, "over"));
        // Data that the peer had finished sending has arrived, and may have been acknowledged, even
        // if it was not read.
        let mut inbound = lock(&entry.quic.shared.inbound);
        while let Some(piece) = self.endpoint.session(id).and_then(|session| session.read(now)) {
            if inbound.piece(driver::head(&piece), &piece.bytes, piece.last).is_err() {
                break;
            }
        }
        drop(inbound);
        let mut last = self.stats(id, &entry);
        last.lanes.iter_mut().for_each(|lane| lane.usable = false);
        *lock(&entry.quic.last) = Some(last);
        for (_, admitted) in entry.messages {
            entry.admission.settle(admitted, Err(closed.clone().into()));
        }
        for (_, receipt) in entry.receipts {
            entry.admission.withdraw(receipt, NotDelivered::NotTaken(closed.clone()));
        }
        if let Some(alert) = self.endpoint.peek(id).and_then(Session::alert) {
            let _ = entry.quic.shared.alert.set(alert.into());
        }
        if let Some(connecting) = entry.connecting {
            let reason = match &closed {
                Closed::Lost { reason } => reason.clone(),
                other => other.to_string(),
            };
            let _ = connecting.send(Err(reason));
        }
        entry.quic.shared.close(closed);
    }
}

impl Entry {
    /// Returns whether the connection shall end and everything is delivered.
    fn ends(&self) -> bool {
        self.finishing.is_some() && self.messages.is_empty()
    }

    /// Settles the ticket for a report, if the message has one.
    fn reported(&mut self, message: Option<MessageId>, fate: Fate) {
        let Some(receipt) = message.and_then(|id| self.receipts.remove(&id)) else {
            return lock(&self.quic.shared.inbound).count_stray_report();
        };
        self.admission.report(receipt, fate);
        self.quic.shared.room.notify_waiters();
    }

    fn settle(&mut self, id: MessageId, outcome: Result<(), NotDelivered>) {
        let Some(admitted) = self.messages.remove(&id) else { return };
        if let Err(error) = &outcome
            && let Some(receipt) = self.receipts.remove(&id)
        {
            self.admission.withdraw(receipt, error.clone());
        }
        self.span.in_scope(|| tracing::trace!(id = id.get(), ?outcome, "settled"));
        self.admission.settle(admitted, outcome);
        self.quic.shared.room.notify_waiters();
    }
}

/// Closes a session with the reason of this end's application.
fn close(session: &mut Session, now: Time, manner: Manner, reason: &CloseReason) {
    session.close(now, ErrorCode::Application(manner, reason.code), &reason.text);
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
        let (peer, alpn, resumed) = (session.peer_identity(), session.alpn(), session.resumed());
        let _ = self.shared.handshake.set(Handshake { peer, alpn, resumed });
    }

    /// Ends the connection because its handshake takes too long.
    fn time_out(&self) {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if let Some((_, session)) = state.connection(self) {
            session.close(now, ErrorCode::NoError, LATE);
            state.end(now, self.id, Closed::Lost { reason: LATE.to_owned() });
        }
        drop(state);
        self.hub.wake.notify_one();
    }

    /// Changes the connection and its session, and wakes their driver; `None` if the connection has
    /// ended.
    fn change<T>(&self, change: impl FnOnce(Time, &mut Entry, &mut Session) -> T) -> Option<T> {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        let (entry, session) = state.connection(self)?;
        let changed = change(now, entry, session);
        drop(state);
        self.hub.wake.notify_one();
        Some(changed)
    }

    /// Returns the error of sending on a connection that has ended or is closing here.
    fn over(&self) -> SendError {
        SendError::Closed(self.shared.closed().unwrap_or(Closed::Local))
    }

    /// Returns the connection, if it takes messages.
    fn sending<'a>(&self, state: &'a mut State) -> Result<(&'a mut Entry, &'a mut Session), SendError> {
        let (entry, session) = state.connection(self).ok_or_else(|| self.over())?;
        if entry.finishing.is_some() {
            return Err(SendError::Closed(Closed::Local));
        }
        // The session has ended, and the event of its end was not dispatched yet.
        if let Some(closed) = session.closed() {
            return Err(closed.clone().into());
        }
        Ok((entry, session))
    }

    /// Accepts a message, or a part of one; the flag marks the last part.
    fn take(
        &self,
        message: &Message,
        ticket: Ticket,
        part: Option<(LongId, bool)>,
    ) -> Result<MessageId, SendError> {
        let now = self.hub.now();
        let level = message.priority;
        let mut state = lock(&self.hub.state);
        let (entry, session) = self.sending(&mut state)?;
        session.accepts(part.map(|(long, _)| long))?;
        let next = part.map(|(long, last)| NextPart { waiting: session.waiting(long), last });
        entry.admission.admit(message, session.conducted().level(level).queued.bytes, next)?;
        let id = match part {
            Some((long, last)) => session.send_part(now, long, message.clone(), last)?,
            None => session.send(now, message.clone())?,
        };
        let len = message.body.len();
        entry.span.in_scope(|| tracing::trace!(id = id.get(), priority = %level, len, "offered"));
        let (admitted, receipt) = entry.admission.count(message, ticket);
        entry.messages.insert(id, admitted);
        entry.receipts.extend(receipt.map(|receipt| (id, receipt)));
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
        let (_, session) = self.sending(&mut state)?;
        Ok(session.begin_long())
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
        self.change(|now, _, session| session.cancel_long(now, long));
    }

    fn max_unreliable(&self) -> Option<Bytes> {
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self)?;
        session.max_datagram().map(|most| Bytes::new(most as u64))
    }

    fn cancel(&self, id: MessageId) -> Result<(), ChangeError> {
        let cancelled = self.change(|now, _, session| session.cancel(now, id));
        cancelled.and_then(Result::ok).ok_or(ChangeError::TooLate)
    }

    fn reprioritise(&self, id: MessageId, priority: Priority) -> Result<(), ChangeError> {
        let moved = self.change(|_, _, session| session.reprioritise(id, priority));
        Ok(moved.ok_or(ChangeError::TooLate)??)
    }

    fn discard_less_urgent_than(&self, threshold: Priority) {
        self.change(|now, _, session| session.discard_less_urgent_than(now, threshold));
    }

    fn reserve(&self, key: SourceKey, source: Source) -> Result<(), ReserveError> {
        let declared = self.change(|_, _, session| session.reserve(key, source));
        Ok(declared.ok_or(ReserveError::Closed)??)
    }

    fn release(&self, key: SourceKey) -> bool {
        self.change(|_, _, session| session.release(key)).unwrap_or(false)
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
        let removed = self.change(|now, _, session| session.remove_lane(now, lane));
        Ok(removed.ok_or(ChangeLaneError::Closed)??)
    }

    fn set_backup(&self, lane: LaneId, backup: bool) -> Result<(), ChangeLaneError> {
        let set = self.change(|now, _, session| session.set_backup(now, lane, backup));
        Ok(set.ok_or(ChangeLaneError::Closed)??)
    }

    fn export(&self, out: &mut [u8], label: &[u8], context: &[u8]) -> Result<(), ExportError> {
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or(ExportError::Closed)?;
        let len = out.len();
        session.export_keying_material(out, label, context).then_some(()).ok_or(ExportError::Length { len })
    }

    fn accepted(&self) {
        *lock(&self.pending) = None;
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
        self.change(|_, _, session| session.finish());
        self.shared.room.notify_waiters();
    }

    fn is_early(&self) -> bool {
        let mut state = lock(&self.hub.state);
        state.connection(self).is_some_and(|(_, session)| session.is_early())
    }

    fn is_delivered(&self) -> bool {
        let mut state = lock(&self.hub.state);
        state.connection(self).is_none_or(|(entry, _)| entry.messages.is_empty())
    }

    fn close(&self, reason: CloseReason) {
        let mut state = lock(&self.hub.state);
        if let Some((entry, _)) = state.connection(self) {
            entry.finishing.get_or_insert(reason);
            state.attention.push(self.id);
        }
        drop(state);
        self.shared.room.notify_waiters();
        self.hub.wake.notify_one();
    }

    fn abort(&self, reason: Option<CloseReason>) {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if let Some((_, session)) = state.connection(self) {
            match reason {
                None => session.close(now, ErrorCode::Aborted, ABORTED),
                Some(reason) => close(session, now, Manner::Aborted, &reason),
            }
            state.end(now, self.id, Closed::Local);
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
        coupled: config.coupled,
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

/// Server with everything that connecting to it needs.
struct Wanted<'a> {
    tls: ClientTls<'a>,
    /// Lanes, at least one, with the implied ones of the low layer.
    lanes: Vec<LaneConfig>,
    first: SocketAddr,
}

impl<'a> Wanted<'a> {
    async fn new(config: &Config, to: &'a Remote, data: Data) -> Result<Self, ConnectError> {
        let mut tls = tls::client(config, &to.security).await?.ok_or(ConfigError::PlaintextQuic)?;
        if data == Data::Early {
            tls.allow_early_data();
        }
        let lanes = with_low_lanes(config, &to.lanes)?;
        let Some(first) = lanes.first().map(|lane| lane.remote) else {
            return Err(ConfigError::NoAddress.into());
        };
        let most = usize::from(config.quic.session.max_lanes);
        if lanes.len() > most {
            let given = lanes.len();
            return Err(ConfigError::TooManyLanes { engine: Engine::Quic, most, given }.into());
        }
        Ok(Self { tls, lanes, first })
    }
}

/// Time from which data may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// From the end of the handshake on.
    Ordinary,
    /// At once, if there is a ticket for it.
    Early,
}

/// Connects over all lanes of `to`; returns when data may leave.
pub(crate) async fn connect(config: &Config, to: &Remote, data: Data) -> Result<Connection, ConnectError> {
    let wanted = Wanted::new(config, to, data).await?;
    let mut sockets = Vec::new();
    for lane in &wanted.lanes {
        let addr = lane.local.unwrap_or_else(|| any_address(lane.remote));
        let socket = Socket::bind(addr, lane.layer, config.quic.socket_buffer);
        sockets.push(Arc::new(socket.map_err(|source| ConnectError::Bind { addr, source })?));
    }
    let places: Vec<SocketId> = (0..=u8::MAX).map(SocketId).take(sockets.len()).collect();
    let hub = Hub::new(sockets, config)?;
    let connecting = begin(&hub, config, &wanted, &places)?;
    let span = tracing::debug_span!("quic", remote = %wanted.first);
    tokio::spawn(driver::drive(Arc::clone(&hub)).instrument(span));
    ready(config, &wanted, connecting).await
}

/// Connection during its handshake.
struct Connecting {
    connection: Connection,
    quic: Weak<Quic>,
    /// Channel that reports the end of the handshake.
    connected: oneshot::Receiver<Result<(), String>>,
}

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
    let tls = Arc::clone(&wanted.tls.config);
    let id = state.endpoint.connect_with(now, first, wanted.first, wanted.tls.name, tls, session)?;
    let quic = hub.adopt(&mut state, id, Some(connecting));
    // If the caller stops waiting, the connection ends with this handle.
    let handle = Arc::downgrade(&quic);
    let connection = Connection::new(quic);
    let mut lanes = Ok(());
    if let Some(session) = state.endpoint.session(id) {
        let mut further = places.iter().zip(&wanted.lanes).skip(1);
        lanes = further.try_for_each(|(socket, lane)| session.add_lane(now, request(*socket, lane)));
    }
    drop(state);
    hub.wake.notify_one();
    lanes?;
    Ok(Connecting { connection, quic: handle, connected })
}

/// Waits until data may leave: for the handshake, unless there is early data.
async fn ready(
    config: &Config,
    wanted: &Wanted<'_>,
    connecting: Connecting,
) -> Result<Connection, ConnectError> {
    if !connecting.connection.transport().is_early() {
        return established(config, wanted, connecting).await;
    }
    let Connecting { connection, quic, connected } = connecting;
    let timeout = config.quic.handshake_timeout;
    // A handshake that fails ends the connection.
    tokio::spawn(async move {
        let late = tokio::time::timeout(timeout, connected).await.is_err();
        if let Some(quic) = quic.upgrade().filter(|_| late) {
            quic.time_out();
        }
    });
    Ok(connection)
}

/// Waits for the handshake.
async fn established(
    config: &Config,
    wanted: &Wanted<'_>,
    Connecting { connection, connected, .. }: Connecting,
) -> Result<Connection, ConnectError> {
    let addr = wanted.first;
    match tokio::time::timeout(config.quic.handshake_timeout, connected).await {
        Err(_) => Err(ConnectError::TimedOut { addr }),
        Ok(Ok(Ok(()))) => {
            wanted.tls.check(addr, connection.transport().shared().handshake.get())?;
            Ok(connection)
        }
        Ok(Ok(Err(reason))) => Err(match connection.transport().shared().alert.get() {
            None => ConnectError::Ended { addr, reason },
            Some(AlertDescription::NoApplicationProtocol) => ConnectError::Protocol { addr },
            Some(alert) => ConnectError::Tls { addr, source: Alerted { alert: *alert, reason }.into() },
        }),
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
        let hub = Hub::new(sockets, config)?;
        lock(&hub.state).shared = true;
        let span = tracing::debug_span!("quic", client = ?at);
        tokio::spawn(driver::drive(Arc::clone(&hub)).instrument(span));
        Ok(Self { hub })
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        lock(&self.hub.state).sockets.iter().map(|socket| socket.addr).collect()
    }

    pub(crate) async fn connect(
        &self,
        config: &Config,
        to: &Remote,
        data: Data,
    ) -> Result<Connection, ConnectError> {
        let wanted = Wanted::new(config, to, data).await?;
        let mut places = Vec::new();
        for lane in &wanted.lanes {
            let place = lock(&self.hub.state).place(lane, &places);
            places.push(place.ok_or(ConfigError::NoSocket { remote: lane.remote })?);
        }
        let connecting = begin(&self.hub, config, &wanted, &places)?;
        ready(config, &wanted, connecting).await
    }
}

impl Drop for ClientSockets {
    fn drop(&mut self) {
        lock(&self.hub.state).shared = false;
        self.hub.wake.notify_one();
    }
}
