//! Sessions that share sockets, and the state of their connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use marcato_quic::{LaneState, LocalSocket, MessageId, Pending, Session, SessionId, SocketId};
use marcato_stream::{Admission, Admitted, CloseReason, Message, Pool, Receipt};
use marcato_units::{Bytes, Layer, Time};
use marcato_wire::{CodePoints, Fate};
use tokio::sync::{Notify, mpsc, oneshot};

use super::driver;
use super::drivers::Seat;
use super::socket::Socket;
use crate::config::{Config, LaneConfig, Limits};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::{Closed, NotDelivered, SendError};
use crate::plain::Plain;
use crate::shared::{Shared, Ticket};
use crate::signal::lock;
use crate::stats::{ConnectionStats, CoupledStats, EarlyStats, LaneStats};

/// Sessions that share sockets.
pub(super) struct Hub {
    pub(super) state: Mutex<State>,
    /// Wakes the task that drives them.
    pub(super) wake: Notify,
    pub(super) epoch: Instant,
    pub(super) limits: Limits,
    /// Memory in which their messages are assembled.
    pub(super) pool: Pool,
    /// Buffer size requested for each socket.
    pub(super) buffer: Bytes,
    /// Code points by which packets are marked.
    pub(super) marks: Option<CodePoints>,
    /// Set if this is the client's end of its connections.
    pub(super) client: bool,
    /// Place of its driver, if the endpoint has several.
    pub(super) seat: Option<Seat>,
}

pub(super) struct State {
    pub(super) endpoint: marcato_quic::Endpoint,
    /// Sockets by identifier; `changes` counts their changes.
    pub(super) sockets: Vec<Arc<Socket>>,
    pub(super) changes: u64,
    pub(super) connections: HashMap<SessionId, Entry>,
    /// Connections with work that is no event of their session.
    pub(super) attention: Vec<SessionId>,
    /// Batches of datagrams discarded because their socket stayed full.
    pub(super) discarded: u64,
    /// Set while further connections may share the sockets of a client.
    pub(super) shared: bool,
    /// Channel for new connections, as long as the endpoint accepts peers.
    pub(super) accepted: Option<mpsc::Sender<Connection>>,
    /// Key of the next connection, by which handles recognise theirs.
    pub(super) next_key: u64,
}

/// Connection within its hub.
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) quic: Arc<Quic>,
    pub(super) admission: Admission,
    pub(super) messages: HashMap<MessageId, Admitted<Ticket>>,
    pub(super) receipts: HashMap<MessageId, Receipt<Ticket>>,
    /// Reason for the end of the connection, once it shall end when everything is delivered.
    pub(super) finishing: Option<CloseReason>,
    /// Set when the peer sends no more messages. Those that have arrived may not have been read.
    pub(super) peer_finished: bool,
    /// Set when reading has stopped because the application takes nothing.
    pub(super) paused: bool,
    /// Set when the application has taken something since.
    pub(super) noticed: bool,
    /// Span of its log events.
    pub(super) span: tracing::Span,
    /// Channel to the task that waits for the handshake.
    pub(super) connecting: Option<oneshot::Sender<Result<(), Closed>>>,
}

/// Connection over QUIC, as its handles see it.
pub(super) struct Quic {
    pub(super) shared: Shared,
    pub(super) hub: Arc<Hub>,
    pub(super) id: SessionId,
    pub(super) key: u64,
    /// Statistics at its end.
    pub(super) last: Mutex<Option<ConnectionStats>>,
    /// Place among the peers that wait for the application, until it accepts this one.
    pub(super) pending: Mutex<Option<Pending>>,
    /// Tasks that wait for plain streams.
    pub(super) plain: Plain,
}

/// Returns the configuration of an endpoint with these sockets.
pub(super) fn endpoint_config(config: &Config, sockets: &[Arc<Socket>]) -> marcato_quic::EndpointConfig {
    let local = |socket: &Arc<Socket>| LocalSocket { layer: socket.layer, ..LocalSocket::new(socket.addr) };
    let mut endpoint = marcato_quic::EndpointConfig::new(sockets.iter().map(local).collect());
    endpoint.max_sessions = config.peers.connections;
    endpoint.validate_addresses = config.quic.validate_addresses;
    endpoint.reset_key.clone_from(&config.quic.reset_key);
    endpoint.max_handshakes = config.peers.handshakes;
    endpoint.max_handshakes_per_address = config.peers.per_address(Engine::Quic);
    endpoint.handshake_timeout = Some(config.peers.handshake_timeout);
    endpoint
}

impl Hub {
    /// Creates the hub of a client.
    pub(super) fn new(
        sockets: Vec<Arc<Socket>>,
        config: &Config,
    ) -> Result<Arc<Self>, marcato_quic::EndpointError> {
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
            marks: config.marks,
            client: true,
            seat: None,
        }))
    }

    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    /// Creates the connection of a session.
    pub(super) fn adopt(
        self: &Arc<Self>,
        state: &mut State,
        id: SessionId,
        connecting: Option<oneshot::Sender<Result<(), Closed>>>,
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
            plain: Plain::default(),
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
    pub(super) fn new(endpoint: marcato_quic::Endpoint, sockets: Vec<Arc<Socket>>) -> Self {
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
    pub(super) fn place(&self, lane: &LaneConfig, taken: &[SocketId]) -> Option<SocketId> {
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
    pub(super) fn connection(&mut self, quic: &Quic) -> Option<(&mut Entry, &mut Session)> {
        let entry = self.connections.get_mut(&quic.id).filter(|entry| entry.key == quic.key)?;
        Some((entry, self.endpoint.session(quic.id)?))
    }

    /// Returns a connection's statistics, except those of received data.
    pub(super) fn stats(&self, id: SessionId, entry: &Entry) -> ConnectionStats {
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
            let measured = session.round_trips(view.id);
            LaneStats {
                id: view.id,
                local: socket.map(|socket| if client { source(socket.addr, remote) } else { socket.addr }),
                remote,
                layer: view.layer,
                // A low lane that is parked is up, but carries nothing.
                usable: state == LaneState::Up && (view.usable || view.layer == Layer::High),
                srtt: view.srtt,
                latest_rtt: measured.map(|(latest, _)| latest),
                least_rtt: measured.map(|(_, least)| least),
                mtu: session.packet_size(view.id).unwrap_or_default(),
                reductions: lane.reductions,
                timeouts: 0,
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
    pub(super) fn end(&mut self, now: Time, id: SessionId, closed: Closed) {
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
            let _ = connecting.send(Err(closed.clone()));
        }
        if let Some(end) = self.endpoint.peek(id).and_then(Session::end) {
            entry.quic.plain.end(end.clone());
        }
        entry.quic.shared.close(closed);
    }
}

impl Entry {
    /// Returns whether the connection shall end and everything is delivered.
    pub(super) fn ends(&self) -> bool {
        self.finishing.is_some() && self.messages.is_empty()
    }

    /// Settles the ticket for a report, if the message has one.
    pub(super) fn reported(&mut self, message: Option<MessageId>, fate: Fate) {
        let Some(receipt) = message.and_then(|id| self.receipts.remove(&id)) else {
            return lock(&self.quic.shared.inbound).count_stray_report();
        };
        self.admission.report(receipt, fate);
        self.freed();
    }

    pub(super) fn settle(&mut self, id: MessageId, outcome: Result<(), NotDelivered>) {
        let Some(admitted) = self.messages.remove(&id) else { return };
        if let Err(error) = &outcome
            && let Some(receipt) = self.receipts.remove(&id)
        {
            self.admission.withdraw(receipt, error.clone());
        }
        self.span.in_scope(|| tracing::trace!(id = id.get(), ?outcome, "settled"));
        self.admission.settle(admitted, outcome);
        self.freed();
    }

    /// Wakes a sender for which there may be room now.
    fn freed(&self) {
        // Most of the bytes that were queued have left long before the end of their message is known.
        let admits = |message: &Message| self.admission.admit(message, Bytes::ZERO, None);
        self.quic.shared.room.freed(|message| !matches!(admits(message), Err(SendError::Busy { .. })));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_sched::coupled::Coupling;
    use marcato_units::Priority;

    /// The endpoint and its sessions get what the application has configured, each from its own setting.
    #[test]
    fn an_endpoint_and_its_sessions_have_the_configured_limits() {
        let mut config = Config::new(Engine::Quic);
        config.peers.connections = 11;
        config.peers.handshakes = 12;
        config.peers.handshakes_per_address = Some(13);
        config.peers.handshake_timeout = std::time::Duration::from_millis(14);
        config.limits.unfinished = 15;
        config.limits.unreliable = Bytes::new(16);
        for validate in [true, false] {
            config.quic.validate_addresses = validate;
            let endpoint = endpoint_config(&config, &[]);
            assert_eq!(
                (endpoint.max_sessions, endpoint.max_handshakes, endpoint.max_handshakes_per_address),
                (11, 12, 13)
            );
            assert_eq!(endpoint.handshake_timeout.map(|time| time.as_nanos() / 1_000_000), Some(14));
            assert_eq!((endpoint.validate_addresses, endpoint.reset_key.is_some()), (validate, false));
        }
        config.quic.reset_key = Some(marcato_quic::ResetKey([7; 64]));
        assert!(endpoint_config(&config, &[]).reset_key.is_some());
        for coupled in [Coupling::Off, Coupling::Auto, Coupling::On] {
            config.coupled = coupled;
            let session = crate::quic::session_config(&config);
            // The limit of a connection holds for each of its levels.
            assert_eq!((session.coupled, session.max_unfinished), (coupled, 15 * Priority::COUNT));
            assert_eq!((session.datagrams, session.low_lanes.is_some()), (Some(Bytes::new(16)), false));
        }
        config.limits.unreliable = Bytes::ZERO;
        let session = crate::quic::session_config(&config.layered(true));
        assert_eq!((session.datagrams, session.low_lanes.is_some()), (None, true));
    }
}
