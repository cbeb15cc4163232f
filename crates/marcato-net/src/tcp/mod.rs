//! The kernel's TCP, fed one chunk at a time (CATS §II-C).
//!
//! One task drives a connection. [`Tcp`] holds the state that it shares with the application's
//! handles.

mod coupled;
mod driver;
mod hello;
mod lean;
mod listener;
mod liveness;
mod mark;
mod pacer;
mod pipe;
mod strangers;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use marcato_sched::conductor::MessageId;
use marcato_sched::lane::LaneId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_stream::{CloseReason, LongId, Message, Pool, Sender};
use marcato_units::{Bytes, Layer, Priority, Time};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, Error as TlsError};
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tracing::Instrument as _;

use crate::config::{Config, LaneConfig, Remote, TcpConfig};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::{
    AddLaneError, Cause, ChangeError, ChangeLaneError, Closed, ConfigError, ConnectError, ExportError,
    ReserveError, SendError,
};
use crate::shared::{Shared, Ticket, Transport};
use crate::signal::lock;
use crate::stats::{ConnectionStats, CoupledStats, LaneStats};
use crate::sys;
use crate::tls;
use hello::HelloError;
pub use lean::{Chunk, LeanSocket, NoTurn, Probe, Supply, Turn};
pub(crate) use listener::Listener;
use liveness::Liveness;
use pipe::Pipe;

/// Connection over the kernel's TCP.
pub(crate) struct Tcp {
    shared: Shared,
    state: Mutex<State>,
    /// Wakes the task that drives the connection.
    wake: Notify,
    epoch: Instant,
    /// Addresses; `None` if the connection had ended before it was asked for them.
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    /// TLS connection, which the task that drives the connection uses too; `None` in plaintext.
    tls: Option<Arc<Mutex<rustls::Connection>>>,
    /// Length of the longest message that can be queued.
    max_message: Bytes,
}

struct State {
    sender: Sender<Ticket>,
    phase: Phase,
    /// Reason for the end that is given to the peer.
    reason: CloseReason,
    /// Stream, until the connection has ended.
    stream: Option<Arc<TcpStream>>,
    /// Last statistics of the lane.
    last: Option<LaneStats>,
    /// Statistics of coupled mode.
    coupled: Option<CoupledStats>,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// No messages are accepted; those queued are delivered.
    Finishing,
    /// The application aborts the connection, and gives the peer no reason.
    Aborted,
    /// The application aborts the connection: the reason is all that is still sent.
    Aborting,
    Over,
}

impl Tcp {
    /// Begins to drive a connection whose handshake is complete.
    fn begin(
        config: &Config,
        stream: TcpStream,
        pipe: Pipe,
        permit: Option<OwnedSemaphorePermit>,
        pool: Pool,
    ) -> Result<Connection, ConfigError> {
        let stream = Arc::new(stream);
        let tcp = Self::new(config, &stream, &pipe, pool)?;
        let span = tracing::debug_span!("tcp", local = ?tcp.local, remote = ?tcp.remote);
        let driver = driver::drive(Arc::clone(&tcp), stream, pipe, config.clone());
        tokio::spawn(
            async move {
                driver.await;
                drop(permit);
            }
            .instrument(span),
        );
        Ok(Connection::new(tcp))
    }

    fn new(
        config: &Config,
        stream: &Arc<TcpStream>,
        pipe: &Pipe,
        pool: Pool,
    ) -> Result<Arc<Self>, ConfigError> {
        let tcp = Arc::new(Self {
            shared: Shared::new(config.limits, pool),
            state: Mutex::new(State {
                sender: Sender::new(config.conductor, config.limits)?,
                phase: Phase::Open,
                reason: CloseReason::default(),
                stream: Some(Arc::clone(stream)),
                last: None,
                coupled: None,
            }),
            wake: Notify::new(),
            epoch: Instant::now(),
            local: stream.local_addr().ok(),
            remote: stream.peer_addr().ok(),
            tls: pipe.session(),
            max_message: config.limits.queued,
        });
        if let Some(handshake) = pipe.handshake() {
            let _ = tcp.shared.handshake.set(handshake);
        }
        Ok(tcp)
    }

    fn end(&self, closed: Closed) {
        let mut state = lock(&self.state);
        state.phase = Phase::Over;
        if let Some(stream) = state.stream.take() {
            state.last = Some(LaneStats { usable: false, ..self.lane(&stream) });
        }
        state.sender.close(&closed);
        drop(state);
        self.shared.close(closed);
    }

    /// Statistics of the lane, except those of coupled mode.
    fn lane(&self, stream: &TcpStream) -> LaneStats {
        let info = sys::tcp_info(&SockRef::from(stream)).unwrap_or_default();
        LaneStats {
            id: LaneId::FIRST,
            local: self.local,
            remote: self.remote,
            layer: Layer::High,
            usable: true,
            srtt: info.srtt,
            latest_rtt: None,
            // Before the first measurement it is the most that the field holds.
            least_rtt: Some(info.min_rtt).filter(|_| !info.srtt.is_zero()),
            mtu: info.mss,
            reductions: 0,
            timeouts: u64::from(info.timeouts),
            cwnd: info.mss * u64::from(info.cwnd_segments),
            in_flight: info.mss * u64::from(info.in_flight_segments),
            backlog: info.unsent,
            sent: u64::from(info.data_segments_out),
            sent_bytes: info.bytes_out,
            lost: u64::from(info.retransmitted_segments),
            coupled: None,
        }
    }

    fn time(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    /// Returns the state of a connection that takes messages.
    fn sending(&self) -> Result<MutexGuard<'_, State>, SendError> {
        let state = lock(&self.state);
        match state.phase {
            Phase::Open => Ok(state),
            _ => Err(self.shared.closed().unwrap_or(Closed::Local).into()),
        }
    }

    /// Wakes senders and the driver after a change for all messages.
    fn changed(&self) {
        self.shared.room.notify_waiters();
        self.wake.notify_one();
    }

    /// Wakes a sender for which there is room now.
    fn freed(&self) {
        let state = lock(&self.state);
        self.shared.room.freed(|message| state.sender.admits(message));
    }
}

impl Transport for Tcp {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn now(&self) -> Time {
        self.time()
    }

    fn offer(&self, message: &Message, ticket: Ticket) -> Result<MessageId, SendError> {
        let id = self.sending()?.sender.offer(self.time(), message, ticket)?;
        self.wake.notify_one();
        Ok(id)
    }

    fn admits(&self, message: &Message) -> bool {
        self.sending().map_or(true, |state| state.sender.admits(message))
    }

    fn begin_long(&self) -> Result<LongId, SendError> {
        Ok(self.sending()?.sender.begin_long())
    }

    fn offer_part(
        &self,
        long: LongId,
        part: &Message,
        last: bool,
        ticket: Ticket,
    ) -> Result<MessageId, SendError> {
        let id = self.sending()?.sender.offer_part(self.time(), long, part, last, ticket)?;
        self.wake.notify_one();
        Ok(id)
    }

    fn cancel_long(&self, long: LongId) {
        lock(&self.state).sender.cancel_long(long);
        self.changed();
    }

    fn max_unreliable(&self) -> Option<Bytes> {
        self.shared.closed().is_none().then_some(self.max_message)
    }

    fn cancel(&self, id: MessageId) -> Result<(), ChangeError> {
        lock(&self.state).sender.cancel(id)?;
        self.freed();
        self.wake.notify_one();
        Ok(())
    }

    fn reprioritise(&self, id: MessageId, priority: Priority) -> Result<(), ChangeError> {
        lock(&self.state).sender.reprioritise(id, priority)?;
        // A message may have become the first urgent one: coupled mode then begins at once, and not
        // with the next write.
        self.wake.notify_one();
        Ok(())
    }

    fn discard_less_urgent_than(&self, threshold: Priority) {
        lock(&self.state).sender.discard_less_urgent_than(threshold);
        self.changed();
    }

    fn reserve(&self, _: SourceKey, _: Source) -> Result<(), ReserveError> {
        Err(ReserveError::NotOverTcp)
    }

    fn release(&self, _: SourceKey) -> bool {
        false
    }

    fn add_lane(&self, _: LaneConfig) -> Result<(), AddLaneError> {
        Err(AddLaneError::NotOverTcp)
    }

    fn remove_lane(&self, _: LaneId) -> Result<(), ChangeLaneError> {
        Err(ChangeLaneError::NotOverTcp)
    }

    fn set_backup(&self, _: LaneId, _: bool) -> Result<(), ChangeLaneError> {
        Err(ChangeLaneError::NotOverTcp)
    }

    fn export(&self, out: &mut [u8], label: &[u8], context: &[u8]) -> Result<(), ExportError> {
        let tls = self.tls.as_ref().ok_or(ExportError::Plaintext)?;
        let len = out.len();
        let exported = lock(tls).export_keying_material(out, label, Some(context));
        exported.map(drop).map_err(|_| ExportError::Length { len })
    }

    fn resume(&self) {
        self.wake.notify_one();
    }

    fn finish(&self) {
        lock(&self.state).sender.finish();
        self.changed();
    }

    fn is_delivered(&self) -> bool {
        lock(&self.state).sender.unfinished() == [0; Priority::COUNT]
    }

    fn close(&self, reason: CloseReason) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Open {
            state.phase = Phase::Finishing;
            state.reason = reason;
        }
        drop(state);
        self.changed();
    }

    fn abort(&self, reason: Option<CloseReason>) {
        let mut state = lock(&self.state);
        match (state.phase, reason) {
            // The reason still leaves once the last handle is gone. `linger` bounds the wait for that.
            (Phase::Over | Phase::Aborting, _) => {}
            (_, Some(reason)) => {
                state.phase = Phase::Aborting;
                state.reason = reason;
            }
            (_, None) => state.phase = Phase::Aborted,
        }
        drop(state);
        self.wake.notify_one();
    }

    fn stats(&self) -> ConnectionStats {
        let received = *lock(&self.shared.inbound).counters();
        let state = lock(&self.state);
        let (stream, last) = (state.stream.clone(), state.last);
        let (conducted, unfinished) = (*state.sender.counters(), state.sender.unfinished());
        let parts = state.sender.parts();
        let coupled = state.coupled;
        drop(state);
        let lane = stream.map(|stream| self.lane(&stream)).or(last);
        ConnectionStats {
            lanes: lane.into_iter().map(|lane| LaneStats { coupled, ..lane }).collect(),
            conducted,
            parts,
            unfinished,
            received,
            coupled,
            ..ConnectionStats::default()
        }
    }
}

/// Prepares a connected socket: disables Nagle's algorithm, and enables the detection of a dead
/// peer.
fn prepare(stream: &TcpStream, config: &TcpConfig) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    Liveness::new(config.idle_timeout, Time::ZERO).prepare(&socket)?;
    #[cfg(target_os = "linux")]
    if let Some(congestion) = &config.congestion {
        socket.set_tcp_congestion(congestion.name().as_bytes())?;
    }
    Ok(())
}

/// Connects and performs the TLS handshake.
pub(crate) async fn connect(config: &Config, remote: &Remote) -> Result<Connection, ConnectError> {
    let [lane] = remote.lanes[..] else {
        let given = remote.lanes.len();
        let error = if given == 0 {
            ConfigError::NoAddress
        } else {
            ConfigError::TooManyLanes { engine: Engine::Tcp, most: 1, given }
        };
        return Err(error.into());
    };
    let addr = lane.remote;
    let tls = match tls::client(config, &remote.security).await? {
        None => None,
        Some(tls) => {
            let name = tls.name.to_owned();
            let server = ServerName::try_from(name.clone()).map_err(|_| ConfigError::Name { name })?;
            Some((tls, server))
        }
    };
    let unreachable = |source| ConnectError::Unreachable { addr, source };
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(unreachable)?;
    if let Some(local) = lane.local {
        socket.bind(local).map_err(|source| ConnectError::Bind { addr: local, source })?;
    }
    let handshake = async {
        let stream = socket.connect(addr).await.map_err(unreachable)?;
        prepare(&stream, &config.tcp).map_err(unreachable)?;
        let Some((tls, server)) = tls else {
            hello::exchange(&stream).await.map_err(|error| match error {
                HelloError::Io(source) => ConnectError::Unreachable { addr, source },
                HelloError::Other => ConnectError::NotPlaintext { addr },
                HelloError::Ended => {
                    ConnectError::Ended { addr, cause: Cause::Cut, reason: error.to_string() }
                }
            })?;
            return Ok((stream, Pipe::plain()));
        };
        let stream = TlsConnector::from(Arc::clone(&tls.config)).connect(server, stream).await;
        let stream = stream.map_err(|source| match of_tls(&source) {
            Some(TlsError::InvalidMessage(_)) => ConnectError::NotTls { addr },
            Some(TlsError::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
                ConnectError::Protocol { addr }
            }
            _ => ConnectError::Tls { addr, source },
        })?;
        let (stream, connection) = stream.into_inner();
        // TLS itself refuses a protocol that was not offered (RFC 7301 §3.1).
        if connection.alpn_protocol().is_none() {
            return Err(ConnectError::Protocol { addr });
        }
        let pipe = Pipe::tls(connection.into());
        tls.check(addr, pipe.handshake().as_ref())?;
        Ok((stream, pipe))
    };
    let done = tokio::time::timeout(config.peers.handshake_timeout, handshake).await;
    let (stream, pipe) = done.map_err(|_| ConnectError::TimedOut { addr })??;
    Ok(Tcp::begin(config, stream, pipe, None, Pool::new(config.limits.memory))?)
}

/// Returns the error of TLS for which a handshake failed; `None` if the network failed.
fn of_tls(error: &io::Error) -> Option<&TlsError> {
    error.get_ref().and_then(|error| error.downcast_ref())
}

/// Access for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing {
    pub(crate) use super::pipe::Pipe;
}
