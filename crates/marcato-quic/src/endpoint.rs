//! An endpoint: its sockets by name, and the sessions that share them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::BytesMut;
use marcato_units::{Duration, Layer, Seed, Stream, Time};
use marcato_wire::{Ecn, ErrorCode};
use noq_proto::crypto::{CryptoError, HandshakeTokenKey};
use noq_proto::{
    ClientConfig, ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent, EcnCodepoint,
    EndpointConfig as EngineConfig, FourTuple, NoneTokenStore, ServerConfig,
};
use ring::{aead, hkdf, hmac};

use crate::clock::Clock;
use crate::config::{SessionConfig, SessionConfigError};
use crate::controller::Congestion;
use crate::event::Event;
use crate::identity::{Identity, IdentityError, Trust};
use crate::lane::LaneRequest;
use crate::session::{Session, Transmit};

/// A socket of an endpoint, by its place among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u8);

/// A socket that packets leave and come in by. Its owner binds it; here it is a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalSocket {
    /// Its address.
    pub addr: SocketAddr,
    /// In which class the network is to serve what leaves by it.
    pub layer: Layer,
    /// The controller of lanes that a peer opens to it; the session's if `None`.
    pub congestion: Option<Congestion>,
}

impl LocalSocket {
    /// A socket of the high layer.
    pub const fn new(addr: SocketAddr) -> Self {
        Self { addr, layer: Layer::High, congestion: None }
    }
}

/// The sockets of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Sockets(pub(crate) Arc<[LocalSocket]>);

impl Sockets {
    /// The lane that a peer has opened to one of them.
    pub(crate) fn request(&self, socket: SocketId, remote: SocketAddr) -> LaneRequest {
        let known = self.0.get(usize::from(socket.0));
        LaneRequest {
            layer: known.map_or(Layer::High, |socket| socket.layer),
            congestion: known.and_then(|socket| socket.congestion),
            ..LaneRequest::new(socket, remote)
        }
    }

    /// The address by which packets leave, if the socket is bound to one.
    pub(crate) fn ip(&self, socket: SocketId) -> Option<IpAddr> {
        let ip = self.0.get(usize::from(socket.0))?.addr.ip();
        Some(ip).filter(|ip| !ip.is_unspecified())
    }
}

/// A session within its endpoint. No name is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

/// How an endpoint is set up.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Its sockets, 1 to 256.
    pub sockets: Vec<LocalSocket>,
    /// Where everything random comes from. In virtual time a seed, so that a run can be repeated; on a network `None`
    /// for the operating system, because whoever knows the seed can forge connection IDs and tokens.
    pub seed: Option<Seed>,
    /// The most sessions at once. Beyond them, those who knock are refused.
    pub max_sessions: usize,
    /// Whether clients have to show first that they receive what is sent to their address.
    pub validate_addresses: bool,
    /// Handshakes of peers that are under way; beyond them, clients have to show first that they receive what is sent to
    /// their address (RFC 9000 §8.1), so that forged ones keep nobody out.
    pub max_handshakes: usize,
    /// After how long a peer's handshake is given up; `None` for when nothing has come for as long as an idle session
    /// lasts.
    pub handshake_timeout: Option<Duration>,
}

impl EndpointConfig {
    /// An endpoint with these sockets, 4096 sessions, 256 of them in their handshake, and the operating system's
    /// randomness.
    pub const fn new(sockets: Vec<LocalSocket>) -> Self {
        Self {
            sockets,
            seed: None,
            max_sessions: 4096,
            validate_addresses: false,
            max_handshakes: 256,
            handshake_timeout: None,
        }
    }
}

/// Why an endpoint is none.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// None, or more than there are names for.
    #[error("an endpoint has 1 to 256 sockets, not {given}")]
    Sockets {
        /// How many were given.
        given: usize,
    },
    /// Its sessions cannot be set up so.
    #[error(transparent)]
    Session(#[from] SessionConfigError),
    /// Its identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Why no session was begun.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no such socket.
    #[error("there is no socket {0:?}: the endpoint has fewer")]
    Socket(SocketId),
    /// Acknowledgements would be of the low layer.
    #[error(
        "socket {0:?} is of the low layer: begin by one of the high layer, and add the low lane afterwards"
    )]
    LowFirst(SocketId),
    /// As many as may be.
    #[error("{limit} sessions are open, as many as may be: close one first")]
    TooMany {
        /// The most that may be.
        limit: usize,
    },
    /// It cannot be set up so.
    #[error(transparent)]
    Session(#[from] SessionConfigError),
    /// The trust cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The engine refused.
    #[error("the engine refuses: {0}")]
    Engine(#[from] noq_proto::ConnectError),
}

/// What an endpoint has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Datagrams that came in.
    pub datagrams: u64,
    /// Of those, such as belong to no session and begin none.
    pub stray: u64,
    /// Sessions that peers began.
    pub accepted: u64,
    /// Peers that were refused because there were too many sessions.
    pub refused: u64,
    /// Peers that were asked to show that they receive what is sent to their address.
    pub retried: u64,
    /// Handshakes of peers that are under way.
    pub handshakes: usize,
    /// Handshakes of peers that came to nothing.
    pub failed: u64,
    /// Sessions that there are.
    pub sessions: usize,
}

struct Listener {
    crypto: Arc<ServerConfig>,
    session: Arc<SessionConfig>,
}

/// Several sessions over the same sockets, without sockets.
///
/// Whoever drives it hands in datagrams and the time, and after each such call takes datagrams out until there are none:
///
/// 1. [`handle_datagrams`](Self::handle_datagrams), [`handle_timeout`](Self::handle_timeout), or anything done to a
///    [`session`](Self::session);
/// 2. [`poll_transmit`](Self::poll_transmit) until `None`;
/// 3. [`poll_event`](Self::poll_event) until `None`;
/// 4. wait for a datagram, or until [`next_timeout`](Self::next_timeout).
pub struct Endpoint {
    engine: noq_proto::Endpoint,
    clock: Clock,
    sockets: Sockets,
    config: EndpointConfig,
    random: Arc<Random>,
    listener: Option<Listener>,
    sessions: BTreeMap<SessionId, Place>,
    /// The engine's names for sessions, which it gives again.
    handles: HashMap<ConnectionHandle, SessionId>,
    /// Peers' sessions in their handshake, and when each is given up.
    handshakes: BTreeSet<SessionId>,
    deadlines: VecDeque<(Time, SessionId)>,
    next: u64,
    /// Sessions that may have something to send, in turn.
    ready: VecDeque<SessionId>,
    /// When each session waits for something.
    timeouts: BTreeSet<(Time, SessionId)>,
    /// Sessions of which nothing is left but what their owner may want to read, until it has heard that they are over.
    over: VecDeque<SessionId>,
    /// What the endpoint itself has to say: refusals, retries, resets.
    answers: VecDeque<(Transmit, Vec<u8>)>,
    events: VecDeque<(SessionId, Event)>,
    scratch: Vec<u8>,
    stats: EndpointStats,
}

struct Place {
    session: Session,
    handle: ConnectionHandle,
    ready: bool,
    timeout: Option<Time>,
}

/// Datagrams of which a session looks only once at what came of them. Looking costs a tenth of a receiver's processor
/// time if done for each; more than these would leave the engine with more small frames of one stream than it puts up
/// with (see [`TIGHT`](crate::config::TIGHT)).
const TOGETHER: usize = 8;

/// Answers that wait to be sent; beyond them, whoever knocks is not answered.
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

impl Endpoint {
    /// An endpoint whose time counts from `epoch`.
    ///
    /// # Errors
    ///
    /// Without sockets, or with more than 256.
    pub fn new(config: EndpointConfig, epoch: Instant) -> Result<Self, EndpointError> {
        if config.sockets.is_empty() || config.sockets.len() > 256 {
            return Err(EndpointError::Sockets { given: config.sockets.len() });
        }
        let random = Arc::new(Random::new(config.seed));
        let mut engine =
            EngineConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &random.bytes::<64>())));
        if config.seed.is_some() {
            let ids = Arc::clone(&random);
            engine.rng_seed(Some(random.bytes())).cid_generator(Arc::new(move || {
                Box::new(SeededIds(Arc::clone(&ids))) as Box<dyn ConnectionIdGenerator>
            }));
        }
        // The sockets' owner says what fits a datagram; 65 527 is all that UDP can carry.
        let _ = engine.max_udp_payload_size(65_527);
        Ok(Self {
            engine: noq_proto::Endpoint::new(Arc::new(engine), None, true),
            clock: Clock(epoch),
            sockets: Sockets(config.sockets.clone().into()),
            config,
            random,
            listener: None,
            sessions: BTreeMap::new(),
            handles: HashMap::new(),
            handshakes: BTreeSet::new(),
            deadlines: VecDeque::new(),
            next: 0,
            over: VecDeque::new(),
            ready: VecDeque::new(),
            timeouts: BTreeSet::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            scratch: Vec::new(),
            stats: EndpointStats::default(),
        })
    }

    /// Adds a socket; `None` if there are 256 already.
    pub fn add_socket(&mut self, socket: LocalSocket) -> Option<SocketId> {
        let id = SocketId(u8::try_from(self.config.sockets.len()).ok()?);
        self.config.sockets.push(socket);
        self.sockets = Sockets(self.config.sockets.clone().into());
        for place in self.sessions.values_mut() {
            place.session.know_sockets(self.sockets.clone());
        }
        Some(id)
    }

    /// Puts another socket in the place of one that no session uses any more; `false` if there is none.
    pub fn replace_socket(&mut self, id: SocketId, socket: LocalSocket) -> bool {
        let Some(place) = self.config.sockets.get_mut(usize::from(id.0)) else { return false };
        *place = socket;
        self.sockets = Sockets(self.config.sockets.clone().into());
        for place in self.sessions.values_mut() {
            place.session.know_sockets(self.sockets.clone());
        }
        true
    }

    /// A socket, as it was given.
    pub fn socket(&self, id: SocketId) -> Option<&LocalSocket> {
        self.config.sockets.get(usize::from(id.0))
    }

    /// Lets peers begin sessions.
    ///
    /// # Errors
    ///
    /// If the identity or the configuration cannot be used.
    pub fn listen(&mut self, identity: &Identity, session: SessionConfig) -> Result<(), EndpointError> {
        session.validate()?;
        let token_key = Arc::new(TokenKey::new(&self.random.bytes()));
        let mut crypto = ServerConfig::new(identity.server_crypto()?, token_key);
        crypto.max_incoming(256);
        let crypto = Arc::new(crypto);
        self.engine.set_server_config(Some(Arc::clone(&crypto)));
        self.listener = Some(Listener { crypto, session: Arc::new(session) });
        Ok(())
    }

    /// Begins a session with the server at `to`, by one of the sockets. Its certificate has to be for `name`.
    ///
    /// # Errors
    ///
    /// If there are too many sessions, or something about this one cannot be.
    pub fn connect(
        &mut self,
        now: Time,
        socket: SocketId,
        to: SocketAddr,
        name: &str,
        trust: &Trust,
        session: SessionConfig,
    ) -> Result<SessionId, ConnectError> {
        self.bury();
        if usize::from(socket.0) >= self.config.sockets.len() {
            return Err(ConnectError::Socket(socket));
        }
        let layer = self.config.sockets[usize::from(socket.0)].layer;
        if session.low_lanes.is_some() && layer == Layer::Low {
            return Err(ConnectError::LowFirst(socket));
        }
        if self.sessions.len() >= self.config.max_sessions {
            return Err(ConnectError::TooMany { limit: self.config.max_sessions });
        }
        session.validate()?;
        let mut client = ClientConfig::new(trust.client_crypto()?);
        // No ticket of one session changes what another does.
        client.transport_config(session.transport()).token_store(Arc::new(NoneTokenStore));
        if self.config.seed.is_some() {
            let random = Arc::clone(&self.random);
            client.initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&random.bytes::<20>())));
        }
        let (handle, conn) = self.engine.connect(self.clock.instant(now), client, to, name)?;
        let first = self.sockets.request(socket, to);
        let session = Session::new(conn, self.clock, Arc::new(session), self.sockets.clone(), first, now)?;
        Ok(self.add(handle, session))
    }

    fn add(&mut self, handle: ConnectionHandle, session: Session) -> SessionId {
        let id = SessionId(self.next);
        self.next += 1;
        self.handles.insert(handle, id);
        self.sessions.insert(id, Place { session, handle, ready: false, timeout: None });
        self.touch(id);
        id
    }

    /// Something may have changed in a session: it is asked for datagrams, and for its timeout.
    fn touch(&mut self, id: SessionId) {
        let Some(place) = self.sessions.get_mut(&id) else { return };
        if !place.ready {
            place.ready = true;
            self.ready.push_back(id);
        }
    }

    /// A session, to do something with it. The endpoint has to be polled afterwards.
    pub fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.touch(id);
        self.sessions.get_mut(&id).map(|place| &mut place.session)
    }

    /// A session, to look at.
    pub fn peek(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id).map(|place| &place.session)
    }

    /// What the endpoint has seen.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { handshakes: self.handshakes.len(), sessions: self.sessions.len(), ..self.stats }
    }

    /// A datagram has come in.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        socket: SocketId,
        from: SocketAddr,
        ecn: Ecn,
        payload: BytesMut,
    ) {
        let segment = payload.len();
        self.handle_datagrams(now, socket, from, ecn, segment, payload);
    }

    /// Datagrams have come in together, from one address and with one mark: each of `segment` bytes, but the last, which
    /// may be shorter. What has come of them is looked at once for several.
    pub fn handle_datagrams(
        &mut self,
        now: Time,
        socket: SocketId,
        from: SocketAddr,
        ecn: Ecn,
        segment: usize,
        mut payload: BytesMut,
    ) {
        self.bury();
        // What has been handed to a session that has not looked at what came of it.
        let mut unseen: Option<(SessionId, usize)> = None;
        loop {
            let datagram = payload.split_to(segment.max(1).min(payload.len()));
            let to = self.take_in(now, socket, from, ecn, datagram);
            unseen = match (unseen, to) {
                (Some((id, count)), Some(to)) if id == to => Some((id, count + 1)),
                (before, to) => {
                    if let Some((id, _)) = before {
                        self.look_at(now, id);
                    }
                    to.map(|id| (id, 1))
                }
            };
            if let Some((id, TOGETHER)) = unseen {
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

    /// Hands a datagram to the session that it is for, which has to look at what came of it; `None` if it is for none.
    fn take_in(
        &mut self,
        now: Time,
        socket: SocketId,
        from: SocketAddr,
        ecn: Ecn,
        payload: BytesMut,
    ) -> Option<SessionId> {
        self.stats.datagrams += 1;
        let len = payload.len();
        let tuple = FourTuple::new(from, self.sockets.ip(socket));
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
            Some(DatagramEvent::Response(transmit)) => self.answer(socket, &transmit, &answer),
            None => self.stats.stray += 1,
        }
        self.scratch = answer;
        to
    }

    /// Lets a session look at what came of the datagrams that it was handed.
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
        let Some(listener) = &self.listener else {
            self.engine.ignore(incoming);
            return;
        };
        if self.sessions.len() >= self.config.max_sessions {
            self.stats.refused += 1;
            let transmit = self.engine.refuse(incoming, buf);
            return self.answer(socket, &transmit, buf);
        }
        let validate = self.config.validate_addresses || self.handshakes.len() >= self.config.max_handshakes;
        if validate && !incoming.remote_address_validated() && incoming.may_retry() {
            self.stats.retried += 1;
            match self.engine.retry(incoming, buf) {
                Ok(transmit) => self.answer(socket, &transmit, buf),
                Err(error) => self.engine.ignore(error.into_incoming()),
            }
            return;
        }
        // Each session has gates of its own, and so a configuration of its own.
        let mut server = (*listener.crypto).clone();
        server.transport_config(listener.session.transport());
        let session = Arc::clone(&listener.session);
        match self.engine.accept(incoming, self.clock.instant(now), buf, Some(Arc::new(server))) {
            Ok((handle, conn)) => {
                let first = self.sockets.request(socket, from);
                let sockets = self.sockets.clone();
                match Session::new(conn, self.clock, session, sockets, first, now) {
                    Ok(mut session) => {
                        self.stats.accepted += 1;
                        session.begun(now, socket, from);
                        let id = self.add(handle, session);
                        self.handshakes.insert(id);
                        if let Some(timeout) = self.config.handshake_timeout {
                            self.deadlines.push_back((now + timeout, id));
                            // Most are done long before.
                            if self.deadlines.len() > 2 * self.handshakes.len() + 64 {
                                self.deadlines.retain(|(_, id)| self.handshakes.contains(id));
                            }
                        }
                    }
                    // The configuration was checked when listening began.
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
            ecn: Ecn::NotEct,
            len: transmit.size,
            segment: transmit.segment_size,
            lane: None,
        };
        self.answers.push_back((answer, buf[..transmit.size.min(buf.len())].to_vec()));
    }

    /// What was waited for may have come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.bury();
        while let Some(&(at, id)) = self.deadlines.front() {
            let lasts = self.handshakes.contains(&id);
            if lasts && at > now {
                break;
            }
            self.deadlines.pop_front();
            if lasts && let Some(session) = self.session(id) {
                session.close(now, ErrorCode::NoError, "the handshake took too long");
            }
        }
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

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing else comes first. It holds once
    /// [`poll_transmit`](Self::poll_transmit) has answered `None`.
    pub fn next_timeout(&self) -> Option<Time> {
        let handshake = self.deadlines.front().map(|(at, _)| *at);
        self.timeouts.first().map(|(at, _)| *at).into_iter().chain(handshake).min()
    }

    /// The next datagram to be sent, or up to `max` of equal length but the last; its bytes are appended to `buf`.
    pub fn poll_transmit(&mut self, now: Time, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.bury();
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
                // One after the other, so that no session starves.
                if self.ready.len() > 1 {
                    self.ready.rotate_left(1);
                }
                return Some(transmit);
            }
            self.ready.pop_front();
            place.ready = false;
            self.settle(now, id);
        }
        None
    }

    /// A session has nothing to send: what it has for the endpoint, for its owner, and when it wakes.
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
        while let Some(event) = place.session.poll_event() {
            match event {
                Event::Connected => _ = self.handshakes.remove(&id),
                Event::Closed { .. } => self.stats.failed += u64::from(self.handshakes.remove(&id)),
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
                self.over.push_back(id);
                // If its owner has heard of the end already, this is the end.
                self.bury();
            }
        }
    }

    /// Forgets the sessions that are over and of which the owner has taken every event.
    fn bury(&mut self) {
        if self.events.is_empty() {
            for id in self.over.drain(..) {
                self.sessions.remove(&id);
            }
        }
    }

    /// What has happened, and in which session. Events come once [`poll_transmit`](Self::poll_transmit) has answered
    /// `None`.
    ///
    /// A session that is over can be read from until anything but this, [`session`](Self::session) and
    /// [`peek`](Self::peek) is called after its last event was taken.
    pub fn poll_event(&mut self) -> Option<(SessionId, Event)> {
        self.events.pop_front()
    }

    /// The sessions that there are.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions.keys().copied()
    }
}

/// Where an endpoint's random bytes come from.
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
                // It fails only where there is no source of randomness at all, and then TLS fails too.
                let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
            }
        }
        bytes
    }
}

/// Connection IDs from a seed.
struct SeededIds(Arc<Random>);

impl ConnectionIdGenerator for SeededIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.bytes::<8>())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// Seals address tokens, with a key derived for each from its nonce.
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
        // Each nonce has a key of its own, so one fixed AEAD nonce is used once with each.
        let zero = aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN]);
        self.key(nonce)?.seal_in_place_append_tag(zero, aead::Aad::empty(), data).map_err(|_| CryptoError)
    }

    fn open<'a>(&self, nonce: u128, data: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        let zero = aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN]);
        let plain = self.key(nonce)?.open_in_place(zero, aead::Aad::empty(), data);
        plain.map(|plain| &*plain).map_err(|_| CryptoError)
    }
}
