//! Endpoint: its sockets by identifier, and the sessions that share them.
//!
//! A peer is admitted in steps, so that strangers cannot exclude others:
//!
//! 1. A handshake begins only if there is room among the connections that the application has not accepted.
//! 2. Under load, clients prove their address first. Proved addresses are bounded by network (`strangers`).
//!    Beyond these two bounds, a bounded number of clients waits for its turn, and further ones are refused.
//! 3. The data that all connections hold has a common budget, of which each has a fair share. The owner of
//!    the sockets keeps it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU8, NonZeroUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bytes::BytesMut;
use marcato_identity::{Identity, IdentityError, Trust};
use marcato_stream::Network;
use marcato_units::{Duration, Layer, Seed, Stream, Time};
use marcato_wire::{Ecn, ErrorCode};
use noq_proto::crypto::{CryptoError, HandshakeTokenKey};
use noq_proto::{
    ClientConfig, ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent, EcnCodepoint,
    EndpointConfig as EngineConfig, FourTuple, NoneTokenStore, ServerConfig,
};
use ring::{aead, hkdf, hmac};

use crate::admission::{Admission, Held, Pending, Verdict};
use crate::clock::Clock;
use crate::config::{ETHERNET, SessionConfig, SessionConfigError};
use crate::controller::Congestion;
use crate::crypto;
use crate::event::Event;
use crate::session::{Session, Transmit};
use crate::sockets::Sockets;
use crate::steering::{ID_LEN, Steering};

/// Index of a socket among those of its endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u8);

/// Socket by which packets leave and arrive. The owner binds it; the endpoint knows only its
/// address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalSocket {
    /// Address that it is bound to.
    pub addr: SocketAddr,
    /// Class in which the network should serve packets that leave by it.
    pub layer: Layer,
    /// Controller of lanes that a peer opens to it; the session's if `None`.
    pub congestion: Option<Congestion>,
}

impl LocalSocket {
    /// Creates a socket of the high layer.
    pub const fn new(addr: SocketAddr) -> Self {
        Self { addr, layer: Layer::High, congestion: None }
    }
}

/// Datagrams that a socket has received together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Socket that received them.
    pub socket: SocketId,
    /// Address of their sender.
    pub from: SocketAddr,
    /// Address that they were sent to, if the owner knows it. A server whose socket is bound to no
    /// particular address answers from it.
    pub to: Option<IpAddr>,
    /// ECN codepoint of all of them.
    pub ecn: Ecn,
    /// Length in bytes of each except the last, which may be shorter.
    pub segment: usize,
}

/// Identifier of a session within its endpoint, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

/// Secret key of stateless resets.
#[derive(Clone, PartialEq, Eq)]
pub struct ResetKey(pub [u8; 64]);

impl std::fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResetKey(..)")
    }
}

/// Configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Sockets, 1 to 256.
    pub sockets: Vec<LocalSocket>,
    /// Source of all random values: a seed in virtual time, so that a run can be repeated. On a
    /// network use `None` for the operating system's source: knowing the seed suffices to forge
    /// connection IDs and tokens.
    pub seed: Option<Seed>,
    /// Key of stateless resets (RFC 9000 §10.3); a new one if `None`. A server that keeps it across
    /// restarts ends the sessions of its predecessor at once, instead of by their idle timeout.
    pub reset_key: Option<ResetKey>,
    /// Limit of concurrent sessions; further peers are refused.
    pub max_sessions: usize,
    /// Requires every client to prove first that it receives packets at its address.
    pub validate_addresses: bool,
    /// Limit of peers' handshakes in progress. Beyond it, clients have to prove first that they
    /// receive packets at their address (RFC 9000 §8.1), so that forged handshakes exclude no
    /// client.
    pub max_handshakes: usize,
    /// Limit of handshakes in progress from one IPv4 address, or from one IPv6 network of 64 bits,
    /// of clients that have proved it, so that no host takes all. Further ones wait for their turn: half as
    /// many as [`max_handshakes`](Self::max_handshakes) from one address, and as many from all. Those beyond
    /// are refused. So it is with peers beyond the [room](Endpoint::set_room).
    pub max_handshakes_per_address: usize,
    /// Time after which a peer's handshake is abandoned; a peer waits for its turn for half of it. `None`
    /// closes it after the idle timeout of sessions without a packet.
    pub handshake_timeout: Option<Duration>,
}

impl EndpointConfig {
    /// Creates a configuration with these sockets, 4096 sessions, 256 of them in their handshake,
    /// and the operating system's randomness.
    pub const fn new(sockets: Vec<LocalSocket>) -> Self {
        Self {
            sockets,
            seed: None,
            reset_key: None,
            max_sessions: 4096,
            validate_addresses: false,
            max_handshakes: 256,
            max_handshakes_per_address: 32,
            handshake_timeout: None,
        }
    }
}

/// Error returned when an endpoint cannot be created or listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// There are no sockets, or more than there are identifiers.
    #[error("an endpoint has 1 to 256 sockets, not {given}")]
    Sockets {
        /// Number given.
        given: usize,
    },
    /// The configuration of its sessions is invalid.
    #[error(transparent)]
    Session(#[from] SessionConfigError),
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Error returned when a session cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no such socket.
    #[error("unknown socket {0:?}: use one that the endpoint was created with")]
    Socket(SocketId),
    /// The first lane, which carries acknowledgements, would be of the low layer.
    #[error(
        "socket {0:?} belongs to the low layer: connect with one of the high layer, and add the low lane afterwards"
    )]
    LowFirst(SocketId),
    /// The limit of sessions is reached.
    #[error("{limit} sessions are open, which is the maximum: close one first")]
    TooMany {
        /// [`EndpointConfig::max_sessions`].
        limit: usize,
    },
    /// The configuration of the session is invalid.
    #[error(transparent)]
    Session(#[from] SessionConfigError),
    /// The trust cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The engine refused the operation.
    #[error("the engine reports an error: {0}")]
    Engine(#[from] noq_proto::ConnectError),
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Datagrams received.
    pub datagrams: u64,
    /// Received datagrams that belong to no session and begin none.
    pub stray: u64,
    /// Sessions that peers began.
    pub accepted: u64,
    /// Peers refused because of the limit of sessions, or for lack of room.
    pub refused: u64,
    /// Peers refused because too many handshakes of their address were in progress, and no place to wait
    /// was left, or they have waited for too long.
    pub crowded: u64,
    /// Peers that wait for their turn.
    pub waiting: usize,
    /// Peers asked to prove that they receive packets at their address.
    pub retried: u64,
    /// Peers' handshakes in progress.
    pub handshakes: usize,
    /// Peers' handshakes that failed.
    pub failed: u64,
    /// Current sessions.
    pub sessions: usize,
}

struct Listener {
    crypto: Arc<ServerConfig>,
    session: Arc<SessionConfig>,
}

/// Secrets and bounds that all endpoints of a group have in common.
#[derive(Clone)]
struct Common {
    random: Arc<Random>,
    reset_key: [u8; 64],
    /// Key of address tokens, once one of them listens.
    token_key: Arc<OnceLock<[u8; 64]>>,
    admission: Admission,
    steering: Steering,
}

/// Several sessions over common sockets, without I/O.
///
/// The owner passes in datagrams and the time, and takes datagrams out until there are none:
///
/// 1. [`handle_datagrams`](Self::handle_datagrams), [`handle_timeout`](Self::handle_timeout), or
///    any change to a [`session`](Self::session);
/// 2. [`poll_transmit`](Self::poll_transmit) until `None`;
/// 3. [`poll_event`](Self::poll_event) until `None`;
/// 4. wait for a datagram, or until [`next_timeout`](Self::next_timeout).
pub struct Endpoint {
    engine: noq_proto::Endpoint,
    clock: Clock,
    sockets: Sockets,
    config: EndpointConfig,
    common: Common,
    listener: Option<Listener>,
    sessions: BTreeMap<SessionId, Place>,
    /// Sessions by the engine's handles, which the engine reuses.
    handles: HashMap<ConnectionHandle, SessionId>,
    /// Peers' sessions in their handshake. `deadlines` has the time at which each is abandoned.
    handshakes: BTreeMap<SessionId, Held>,
    deadlines: VecDeque<(Time, SessionId)>,
    /// Peers that wait for their turn, the oldest first.
    waiting: VecDeque<Waiting>,
    /// Set when a handshake has ended, so that one of them may have its turn, and the time of the last look.
    turn: bool,
    looked_at: Time,
    next: u64,
    /// Sessions that may have packets to send, in rotation.
    ready: VecDeque<SessionId>,
    /// Sessions by the time of their next timeout.
    timeouts: BTreeSet<(Time, SessionId)>,
    /// Ended sessions of which only unread data remains, until the owner has taken their last
    /// event.
    over: VecDeque<SessionId>,
    /// Packets of the endpoint itself: refusals, retries, resets.
    answers: VecDeque<(Transmit, Vec<u8>)>,
    /// Sessions with data for lanes whose socket is full.
    held: BTreeSet<(SocketId, SessionId)>,
    events: VecDeque<(SessionId, Event)>,
    scratch: Vec<u8>,
    stats: EndpointStats,
}

/// Peer that waits for its turn.
struct Waiting {
    incoming: noq_proto::Incoming,
    socket: SocketId,
    from: SocketAddr,
    since: Time,
    _held: Held,
}

struct Place {
    session: Session,
    handle: ConnectionHandle,
    ready: bool,
    timeout: Option<Time>,
    /// Place of a peer that the application has not accepted.
    pending: Option<Pending>,
    _held: Held,
}

/// Limit of datagrams after which a session processes the engine's results once for all of them.
/// Processing after each would cost a tenth of a receiver's processor time. With more, the engine
/// would hold more small frames of one stream than it handles correctly (see
/// [`TIGHT`](crate::config::TIGHT)).
const TOGETHER: usize = 8;
/// Limit of datagrams processed together that are longer than [`ETHERNET`], for the reason given
/// with [`LARGEST_PACKET`](crate::config::LARGEST_PACKET).
const LARGE_TOGETHER: usize = 2;

/// Interval between stateless resets.
const RESET_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

/// Limit of the datagrams that the engine keeps for one waiting peer, and for all of them: their hello, what
/// they send again, and early data, which they send again later.
const WAITING_BYTES: u64 = 16 << 10;
const ALL_WAITING_BYTES: u64 = 1 << 20;

/// Interval at which waiting peers are looked at where other endpoints share the bounds: a handshake of
/// theirs may have ended.
const LOOK: Duration = Duration::from_millis(10);

/// Limit of answers waiting to be sent; beyond it, new peers get no answer.
const MAX_ANSWERS: usize = 256;

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("sockets", &self.sockets)
            .field("sessions", &self.sessions.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // The engine warns of a peer that it is told nothing about.
        self.waiting.drain(..).for_each(|waiting| self.engine.ignore(waiting.incoming));
    }
}

impl Common {
    fn new(config: &EndpointConfig, members: NonZeroU8) -> Result<Self, EndpointError> {
        if config.sockets.is_empty() || config.sockets.len() > 256 {
            return Err(EndpointError::Sockets { given: config.sockets.len() });
        }
        let random = Arc::new(Random::new(config.seed));
        let reset_key = config.reset_key.as_ref().map_or_else(|| random.bytes(), |key| key.0);
        // Alone, an endpoint owns every ID, whatever the key is.
        let key = if members == NonZeroU8::MIN { [0; ID_LEN] } else { random.bytes() };
        let [a, b, c, d, e, f, g, h] = key;
        Ok(Self {
            reset_key,
            token_key: Arc::default(),
            admission: Admission::new(config),
            steering: Steering::new([[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes), members),
            random,
        })
    }
}

impl Endpoint {
    /// Creates an endpoint whose time counts from `epoch`.
    ///
    /// # Errors
    ///
    /// Without sockets, or with more than 256.
    pub fn new(config: EndpointConfig, epoch: Instant) -> Result<Self, EndpointError> {
        let common = Common::new(&config, NonZeroU8::MIN)?;
        Ok(Self::member(config, epoch, common, 0))
    }

    /// Creates a group of endpoints that listen at the same addresses, for an owner that drives each
    /// on a separate core. Each has its own sessions. Their limits and counts of sessions and
    /// handshakes are common, and so are their secrets. The [`Steering`] names the endpoint that a
    /// datagram has to be handed to.
    ///
    /// # Errors
    ///
    /// Without sockets, or with more than 256.
    pub fn group(
        config: &EndpointConfig,
        epoch: Instant,
        members: NonZeroU8,
    ) -> Result<(Vec<Self>, Steering), EndpointError> {
        let common = Common::new(config, members)?;
        let member = |index| Self::member(config.clone(), epoch, common.clone(), index);
        Ok(((0..members.get()).map(member).collect(), common.steering))
    }

    /// Creates an endpoint of a group.
    fn member(config: EndpointConfig, epoch: Instant, common: Common, index: u8) -> Self {
        let mut engine = EngineConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &common.reset_key)));
        if config.seed.is_some() {
            engine.rng_seed(Some(common.random.bytes()));
        }
        let ids = Ids { random: Arc::clone(&common.random), steering: common.steering, index };
        engine.cid_generator(Arc::new(move || Box::new(ids.clone()) as Box<dyn ConnectionIdGenerator>));
        // The members of a group together send no more resets than one endpoint.
        engine.min_reset_interval(RESET_INTERVAL * u32::from(common.steering.members().get()));
        // The sockets' owner limits the size of datagrams; 65 527 is UDP's maximum.
        let _ = engine.max_udp_payload_size(65_527);
        Self {
            engine: noq_proto::Endpoint::new(Arc::new(engine), None, true),
            clock: Clock(epoch),
            sockets: Sockets::new(&config.sockets),
            config,
            common,
            listener: None,
            sessions: BTreeMap::new(),
            handles: HashMap::new(),
            handshakes: BTreeMap::new(),
            deadlines: VecDeque::new(),
            waiting: VecDeque::new(),
            turn: false,
            looked_at: Time::ZERO,
            next: 0,
            over: VecDeque::new(),
            ready: VecDeque::new(),
            timeouts: BTreeSet::new(),
            answers: VecDeque::new(),
            held: BTreeSet::new(),
            events: VecDeque::new(),
            scratch: Vec::new(),
            stats: EndpointStats::default(),
        }
    }

    /// Adds a socket; `None` if there are already 256.
    pub fn add_socket(&mut self, socket: LocalSocket) -> Option<SocketId> {
        let id = SocketId(u8::try_from(self.config.sockets.len()).ok()?);
        self.config.sockets.push(socket);
        self.sockets = self.sockets.replaced(&self.config.sockets);
        for place in self.sessions.values_mut() {
            place.session.know_sockets(self.sockets.clone());
        }
        Some(id)
    }

    /// Replaces a socket that no session uses any more; returns `false` if there is no such socket.
    pub fn replace_socket(&mut self, id: SocketId, socket: LocalSocket) -> bool {
        let Some(place) = self.config.sockets.get_mut(usize::from(id.0)) else { return false };
        *place = socket;
        self.sockets = self.sockets.replaced(&self.config.sockets);
        for place in self.sessions.values_mut() {
            place.session.know_sockets(self.sockets.clone());
        }
        true
    }

    /// Records whether a socket's local queue is full. Until it has room, sessions feed none of the
    /// lanes that leave by it, and their windows do not grow. The endpoint has to be polled
    /// afterwards.
    pub fn set_socket_full(&mut self, socket: SocketId, full: bool) {
        if self.sockets.set_full(socket, full) && !full {
            while let Some(&(of, id)) = self.held.range((socket, SessionId(0))..).next() {
                if of != socket {
                    break;
                }
                self.held.remove(&(of, id));
                self.touch(id);
            }
        }
    }

    /// Limits the peers whose handshake may begin, at all endpoints of the group together: those in
    /// their handshake, and those whose place is still held, are at most this number. From half of
    /// it on, clients have to prove their address first. Beyond it they wait, for half the time of a
    /// handshake. Without any room, they are refused at once.
    ///
    /// A peer's place is held until its session has ended, or the place that
    /// [`take_pending`](Self::take_pending) has returned is dropped.
    pub fn set_room(&mut self, peers: usize) {
        self.common.admission.set_room(peers);
        self.turn = true;
    }

    /// Notes that a place that [`take_pending`](Self::take_pending) has returned is free. Returns whether a
    /// peer waits for one, and the endpoint has to be polled.
    pub fn free_place(&mut self) -> bool {
        self.turn = true;
        !self.waiting.is_empty()
    }

    /// Takes the place of a peer that has connected, to be dropped when the application has accepted
    /// it; `None` if it was taken before, or the session is not a peer's.
    pub fn take_pending(&mut self, id: SessionId) -> Option<Pending> {
        self.sessions.get_mut(&id)?.pending.take()
    }

    /// Returns a socket's description.
    pub fn socket(&self, id: SocketId) -> Option<&LocalSocket> {
        self.config.sockets.get(usize::from(id.0))
    }

    /// Lets peers begin sessions.
    ///
    /// # Errors
    ///
    /// If the identity or the configuration cannot be used.
    pub fn listen(&mut self, identity: &Identity, session: SessionConfig) -> Result<(), EndpointError> {
        self.listen_with(crypto::server(identity, session.protocol.alpn())?, session)
    }

    /// Lets peers begin sessions with this TLS configuration, which has to support TLS 1.3 and to
    /// name its protocols.
    ///
    /// # Errors
    ///
    /// If the configuration of the sessions or of TLS cannot be used.
    pub fn listen_with(
        &mut self,
        tls: Arc<rustls::ServerConfig>,
        session: SessionConfig,
    ) -> Result<(), EndpointError> {
        session.validate()?;
        let secret = self.common.token_key.get_or_init(|| self.common.random.bytes());
        let token_key = Arc::new(TokenKey::new(secret));
        let mut crypto = ServerConfig::new(crypto::quic_server(tls)?, token_key);
        // Beside those that wait, there is one at a time.
        crypto.max_incoming(self.config.max_handshakes.saturating_add(1));
        crypto.incoming_buffer_size(WAITING_BYTES).incoming_buffer_size_total(ALL_WAITING_BYTES);
        let crypto = Arc::new(crypto);
        self.engine.set_server_config(Some(Arc::clone(&crypto)));
        self.listener = Some(Listener { crypto, session: Arc::new(session) });
        Ok(())
    }

    /// Begins a session with the server at `to`, by one of the sockets. The server's certificate
    /// has to be for `name`.
    ///
    /// # Errors
    ///
    /// If there are too many sessions, or the socket, trust or configuration is invalid.
    pub fn connect(
        &mut self,
        now: Time,
        socket: SocketId,
        to: SocketAddr,
        name: &str,
        trust: &Trust,
        session: SessionConfig,
    ) -> Result<SessionId, ConnectError> {
        self.connect_with(now, socket, to, name, crypto::client(trust, session.protocol.alpn())?, session)
    }

    /// Begins a session with this TLS configuration, which has to support TLS 1.3 and to name its
    /// protocols.
    ///
    /// # Errors
    ///
    /// If there are too many sessions, or the socket or a configuration is invalid.
    pub fn connect_with(
        &mut self,
        now: Time,
        socket: SocketId,
        to: SocketAddr,
        name: &str,
        tls: Arc<rustls::ClientConfig>,
        session: SessionConfig,
    ) -> Result<SessionId, ConnectError> {
        self.forget_ended();
        if usize::from(socket.0) >= self.config.sockets.len() {
            return Err(ConnectError::Socket(socket));
        }
        let layer = self.config.sockets[usize::from(socket.0)].layer;
        if session.low_lanes.is_some() && layer == Layer::Low {
            return Err(ConnectError::LowFirst(socket));
        }
        let held = self.common.admission.session();
        let held = held.ok_or(ConnectError::TooMany { limit: self.config.max_sessions })?;
        session.validate()?;
        let mut client = ClientConfig::new(crypto::quic_client(tls)?);
        // No token of one session affects another.
        client.transport_config(session.transport(to.ip())).token_store(Arc::new(NoneTokenStore));
        if self.config.seed.is_some() {
            let random = Arc::clone(&self.common.random);
            client.initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&random.bytes::<20>())));
        }
        let (handle, conn) = self.engine.connect(self.clock.instant(now), client, to, name)?;
        let first = self.sockets.request(socket, to);
        let session = Session::new(conn, self.clock, Arc::new(session), self.sockets.clone(), first, now)?;
        Ok(self.add(handle, session, None, held))
    }

    fn add(
        &mut self,
        handle: ConnectionHandle,
        session: Session,
        pending: Option<Pending>,
        held: Held,
    ) -> SessionId {
        let id = SessionId(self.next);
        self.next += 1;
        self.handles.insert(handle, id);
        let place = Place { session, handle, ready: false, timeout: None, pending, _held: held };
        self.sessions.insert(id, place);
        self.touch(id);
        id
    }

    /// Marks a session as changed, so that its datagrams and its timeout are polled.
    fn touch(&mut self, id: SessionId) {
        let Some(place) = self.sessions.get_mut(&id) else { return };
        if !place.ready {
            place.ready = true;
            self.ready.push_back(id);
        }
    }

    /// Returns a session for changes. The endpoint has to be polled afterwards.
    pub fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.touch(id);
        self.sessions.get_mut(&id).map(|place| &mut place.session)
    }

    /// Returns a session for inspection.
    pub fn peek(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id).map(|place| &place.session)
    }

    /// Returns the counters.
    pub fn stats(&self) -> EndpointStats {
        let (handshakes, waiting) = (self.handshakes.len(), self.waiting.len());
        EndpointStats { handshakes, waiting, sessions: self.sessions.len(), ..self.stats }
    }

    /// Processes a received datagram.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        socket: SocketId,
        from: SocketAddr,
        ecn: Ecn,
        payload: BytesMut,
    ) {
        let segment = payload.len();
        self.handle_datagrams(now, Arrival { socket, from, to: None, ecn, segment }, payload);
    }

    /// Processes datagrams received together. A session processes the results of several at once.
    pub fn handle_datagrams(&mut self, now: Time, arrival: Arrival, mut payload: BytesMut) {
        self.forget_ended();
        // Session with datagrams whose results it has not processed, and their number.
        let mut unseen: Option<(SessionId, usize)> = None;
        loop {
            let datagram = payload.split_to(arrival.segment.max(1).min(payload.len()));
            let most = if datagram.len() > usize::from(ETHERNET) { LARGE_TOGETHER } else { TOGETHER };
            let to = self.take_in(now, arrival, datagram);
            unseen = match (unseen, to) {
                (Some((id, count)), Some(to)) if id == to => Some((id, count + 1)),
                (before, to) => {
                    if let Some((id, _)) = before {
                        self.look_at(now, id);
                    }
                    to.map(|id| (id, 1))
                }
            };
            if let Some((id, count)) = unseen
                && count >= most
            {
                self.look_at(now, id);
                unseen = None;
            }
            if payload.is_empty() {
                break;
            }
        }
        if let Some((id, _)) = unseen {
            self.look_at(now, id);
        }
    }

    /// Passes a datagram to its session, which has to process the results afterwards; `None` if it
    /// belongs to none.
    fn take_in(&mut self, now: Time, arrival: Arrival, payload: BytesMut) -> Option<SessionId> {
        let Arrival { socket, from, to: at, ecn, .. } = arrival;
        self.stats.datagrams += 1;
        let len = payload.len();
        // A client chooses its own source address, and may change it.
        let at = at.filter(|_| self.listener.is_some());
        let tuple = FourTuple::new(from, at.or_else(|| self.sockets.ip(socket)));
        let ecn = EcnCodepoint::from_bits(ecn.to_bits());
        self.scratch.clear();
        let mut answer = std::mem::take(&mut self.scratch);
        let mut to = None;
        match self.engine.handle(self.clock.instant(now), tuple, ecn, payload, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let id = self.handles.get(&handle).copied();
                if let Some((id, place)) = id.and_then(|id| Some((id, self.sessions.get_mut(&id)?))) {
                    place.session.take_in(now, socket, from, len, event);
                    to = Some(id);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.accept(now, socket, from, incoming, &mut answer);
            }
            Some(DatagramEvent::Response(transmit)) => {
                self.stats.stray += 1;
                self.answer(socket, &transmit, &answer);
            }
            None => self.stats.stray += 1,
        }
        self.scratch = answer;
        to
    }

    /// Makes a session process the results of its datagrams.
    fn look_at(&mut self, now: Time, id: SessionId) {
        if let Some(place) = self.sessions.get_mut(&id) {
            place.session.after_engine(now);
        }
        self.touch(id);
    }

    fn accept(
        &mut self,
        now: Time,
        socket: SocketId,
        from: SocketAddr,
        incoming: noq_proto::Incoming,
        buf: &mut Vec<u8>,
    ) {
        if self.listener.is_none() {
            return self.engine.ignore(incoming);
        }
        let network = incoming.remote_address_validated().then(|| Network::from(from.ip()));
        match self.common.admission.admit(network, incoming.may_retry()) {
            Verdict::Wait(held) => {
                self.waiting.push_back(Waiting { incoming, socket, from, since: now, _held: held });
            }
            verdict => self.follow(now, verdict, socket, from, incoming, buf),
        }
    }

    /// Time for which a peer waits for its turn. It ends before clients give up by themselves, so that they learn
    /// the reason.
    fn patience(&self) -> Option<Duration> {
        self.config.handshake_timeout.map(|timeout| timeout / 2)
    }

    /// Lets each waiting peer begin for which there is a place now. Peers that have waited for too long are
    /// refused.
    fn take_turns(&mut self, now: Time) {
        (self.turn, self.looked_at) = (false, now);
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else { break };
            let network = Some(Network::from(waiting.from.ip()));
            let verdict = self.common.admission.admit_now(network, false);
            let late = self.patience().is_some_and(|patience| now.since(waiting.since) >= patience);
            if matches!(verdict, Verdict::Crowded | Verdict::Full) && !late {
                self.waiting.push_back(waiting);
                continue;
            }
            let Waiting { incoming, socket, from, .. } = waiting;
            let mut answer = Vec::new();
            self.follow(now, verdict, socket, from, incoming, &mut answer);
        }
    }

    /// Does with a peer as decided.
    fn follow(
        &mut self,
        now: Time,
        verdict: Verdict,
        socket: SocketId,
        from: SocketAddr,
        incoming: noq_proto::Incoming,
        buf: &mut Vec<u8>,
    ) {
        let Some(listener) = &self.listener else { return self.engine.ignore(incoming) };
        let (held, handshake, pending) = match verdict {
            Verdict::Admitted { session, handshake, pending } => (session, handshake, pending),
            Verdict::Validate => {
                self.stats.retried += 1;
                match self.engine.retry(incoming, buf) {
                    Ok(transmit) => self.answer(socket, &transmit, buf),
                    Err(error) => self.engine.ignore(error.into_incoming()),
                }
                return;
            }
            Verdict::Refused | Verdict::Full | Verdict::Crowded | Verdict::Wait(_) => {
                match verdict {
                    Verdict::Crowded => self.stats.crowded += 1,
                    _ => self.stats.refused += 1,
                }
                let transmit = self.engine.refuse(incoming, buf);
                return self.answer(socket, &transmit, buf);
            }
        };
        // Each session needs its own gates, and so its own configuration.
        let mut server = (*listener.crypto).clone();
        server.transport_config(listener.session.transport(from.ip()));
        let session = Arc::clone(&listener.session);
        match self.engine.accept(incoming, self.clock.instant(now), buf, Some(Arc::new(server))) {
            Ok((handle, conn)) => {
                let first = self.sockets.request(socket, from);
                let sockets = self.sockets.clone();
                match Session::new(conn, self.clock, session, sockets, first, now) {
                    Ok(mut session) => {
                        self.stats.accepted += 1;
                        session.begun(now, socket, from);
                        let id = self.add(handle, session, Some(pending), held);
                        self.handshakes.insert(id, handshake);
                        if let Some(timeout) = self.config.handshake_timeout {
                            self.deadlines.push_back((now + timeout, id));
                            // Most handshakes end long before their deadlines.
                            if self.deadlines.len() > 2 * self.handshakes.len() + 64 {
                                self.deadlines.retain(|(_, id)| self.handshakes.contains_key(id));
                            }
                        }
                    }
                    // The configuration was validated when listening began.
                    Err(_) => self.stats.refused += 1,
                }
            }
            Err(error) => {
                if let Some(transmit) = &error.response {
                    self.answer(socket, transmit, buf);
                }
            }
        }
    }

    fn answer(&mut self, socket: SocketId, transmit: &noq_proto::Transmit, buf: &[u8]) {
        if self.answers.len() >= MAX_ANSWERS {
            return;
        }
        let answer = Transmit {
            socket,
            to: transmit.destination,
            from: transmit.src_ip,
            ecn: Ecn::NotEct,
            len: transmit.size,
            segment: transmit.segment_size,
            lane: None,
            level: None,
        };
        self.answers.push_back((answer, buf[..transmit.size.min(buf.len())].to_vec()));
    }

    /// Handles every timer that has expired.
    pub fn handle_timeout(&mut self, now: Time) {
        self.forget_ended();
        while let Some(&(at, id)) = self.deadlines.front() {
            let lasts = self.handshakes.contains_key(&id);
            if lasts && at > now {
                break;
            }
            self.deadlines.pop_front();
            if lasts && let Some(session) = self.session(id) {
                session.close(now, ErrorCode::NoError, "the handshake took too long");
            }
        }
        self.turn = true;
        while let Some(&(at, id)) = self.timeouts.first() {
            if at > now {
                break;
            }
            self.timeouts.pop_first();
            if let Some(place) = self.sessions.get_mut(&id) {
                place.timeout = None;
                place.session.handle_timeout(now);
                self.touch(id);
            }
        }
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout), if nothing else comes
    /// first. It is valid once [`poll_transmit`](Self::poll_transmit) has returned `None`.
    pub fn next_timeout(&self) -> Option<Time> {
        let handshake = self.deadlines.front().map(|(at, _)| *at);
        // A handshake of another endpoint of the group may end, of which this one does not learn.
        let looks = self.common.steering.members() > NonZeroU8::MIN;
        let waiting = self.waiting.front().and_then(|oldest| {
            let end = self.patience().map(|patience| oldest.since + patience);
            if looks { Some(self.looked_at + LOOK) } else { end }
        });
        self.timeouts.first().map(|(at, _)| *at).into_iter().chain(handshake).chain(waiting).min()
    }

    /// Builds the next datagram to be sent, or up to `max` of equal length except the last; appends
    /// its bytes to `buf`. Up to three datagrams may end a session, whatever `max` is.
    pub fn poll_transmit(&mut self, now: Time, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.forget_ended();
        if let Some((answer, bytes)) = self.answers.pop_front() {
            buf.extend_from_slice(&bytes);
            return Some(answer);
        }
        while let Some(&id) = self.ready.front() {
            let Some(place) = self.sessions.get_mut(&id) else {
                self.ready.pop_front();
                continue;
            };
            if let Some(transmit) = place.session.poll_transmit(now, max, buf) {
                // Sessions take turns, so that none starves.
                if self.ready.len() > 1 {
                    self.ready.rotate_left(1);
                }
                return Some(transmit);
            }
            self.ready.pop_front();
            place.ready = false;
            self.settle(now, id);
        }
        if self.turn {
            self.take_turns(now);
            return if self.answers.is_empty() && self.ready.is_empty() {
                None
            } else {
                self.poll_transmit(now, max, buf)
            };
        }
        None
    }

    /// Collects events and the timeout of a session that has nothing to send.
    fn settle(&mut self, now: Time, id: SessionId) {
        let Some(place) = self.sessions.get_mut(&id) else { return };
        while let Some(event) = place.session.poll_endpoint_event() {
            if let Some(event) = self.engine.handle_event(place.handle, event) {
                place.session.handle_internal(now, event);
                if !place.ready {
                    place.ready = true;
                    self.ready.push_back(id);
                }
            }
        }
        for socket in place.session.take_held() {
            self.held.insert((socket, id));
        }
        while let Some(event) = place.session.poll_event() {
            match event {
                Event::Connected => self.turn |= self.handshakes.remove(&id).is_some(),
                Event::Closed { .. } if self.handshakes.remove(&id).is_some() => {
                    self.stats.failed += 1;
                    self.turn = true;
                    // No application will accept it.
                    place.pending = None;
                }
                _ => {}
            }
            self.events.push_back((id, event));
        }
        let timeout = place.session.next_timeout();
        if timeout != place.timeout {
            if let Some(old) = place.timeout {
                self.timeouts.remove(&(old, id));
            }
            if let Some(new) = timeout {
                self.timeouts.insert((new, id));
            }
            place.timeout = timeout;
        }
        if place.session.is_drained() {
            if let Some(old) = place.timeout.take() {
                self.timeouts.remove(&(old, id));
            }
            if self.handles.get(&place.handle) == Some(&id) {
                self.handles.remove(&place.handle);
                self.held.retain(|(_, held)| *held != id);
                self.over.push_back(id);
                // If the owner has already taken the last event, the session is forgotten now.
                self.forget_ended();
            }
        }
    }

    /// Forgets ended sessions once the owner has taken every event.
    fn forget_ended(&mut self) {
        if self.events.is_empty() {
            for id in self.over.drain(..) {
                self.sessions.remove(&id);
            }
        }
    }

    /// Takes the next event and its session. Events are complete once
    /// [`poll_transmit`](Self::poll_transmit) has returned `None`.
    ///
    /// An ended session can be read after its last event was taken, until any other method except
    /// this, [`session`](Self::session) and [`peek`](Self::peek) is called.
    pub fn poll_event(&mut self) -> Option<(SessionId, Event)> {
        self.events.pop_front()
    }

    /// Returns the identifiers of all sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions.keys().copied()
    }
}

/// Source of an endpoint's random bytes.
struct Random(Option<Mutex<Stream>>);

impl Random {
    fn new(seed: Option<Seed>) -> Self {
        Self(seed.map(|seed| Mutex::new(seed.stream("quic/endpoint"))))
    }

    fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        match &self.0 {
            Some(stream) => {
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                for chunk in bytes.chunks_mut(8) {
                    chunk.copy_from_slice(&stream.next_u64().to_le_bytes()[..chunk.len()]);
                }
            }
            None => {
                // It fails only without any source of randomness, and then TLS fails too.
                let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
            }
        }
        bytes
    }
}

/// Connection IDs that name a member of a group. Otherwise they are random.
///
/// The engine's own generator recognises its IDs by a key that is new in each process. Its endpoints
/// would therefore not reset the connections of their predecessors (RFC 9000 §10.3).
#[derive(Clone)]
struct Ids {
    random: Arc<Random>,
    steering: Steering,
    index: u8,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        // The first one from a random one on, so that a source of randomness that has failed does not
        // make this endless.
        let mut id = u64::from_be_bytes(self.random.bytes());
        while self.steering.member(id.to_be_bytes()) != self.index {
            id = id.wrapping_add(1);
        }
        ConnectionId::new(&id.to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        ID_LEN
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// Seals address tokens, each with a key derived from its nonce.
struct TokenKey(hkdf::Prk);

impl TokenKey {
    fn new(secret: &[u8; 64]) -> Self {
        Self(hkdf::Salt::new(hkdf::HKDF_SHA256, b"marcato token").extract(secret))
    }

    fn key(&self, nonce: u128) -> Result<aead::LessSafeKey, CryptoError> {
        let info = nonce.to_le_bytes();
        let mut key = [0; 32];
        self.0
            .expand(&[&info], &aead::AES_256_GCM)
            .and_then(|okm| okm.fill(&mut key))
            .and_then(|()| aead::UnboundKey::new(&aead::AES_256_GCM, &key))
            .map(aead::LessSafeKey::new)
            .map_err(|_| CryptoError)
    }
}

impl HandshakeTokenKey for TokenKey {
    fn seal(&self, nonce: u128, data: &mut Vec<u8>) -> Result<(), CryptoError> {
        // Each nonce has its own key, so the fixed AEAD nonce is used once with each key.
        let zero = aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN]);
        self.key(nonce)?.seal_in_place_append_tag(zero, aead::Aad::empty(), data).map_err(|_| CryptoError)
    }

    fn open<'a>(&self, nonce: u128, data: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        let zero = aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN]);
        let plain = self.key(nonce)?.open_in_place(zero, aead::Aad::empty(), data);
        plain.map(|plain| &*plain).map_err(|_| CryptoError)
    }
}
