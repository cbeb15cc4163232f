//! How an endpoint is set up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use marcato_quic::{Identity, SessionConfig, Trust};
use marcato_sched::conductor::Config as ConductorConfig;
use marcato_units::{Bytes, Layer, Priority};
use rustls::RootCertStore;

use crate::error::TrustError;

/// With which receive window sessions begin: what 100 Mbit/s carry in 100 ms. More would only fill queues until it has
/// been seen how much a round trip takes, and what is urgent would wait in them.
const FIRST_WINDOW: Bytes = Bytes::kb(1250);

/// The transport underneath.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// The kernel's TCP, with TLS 1.3 unless that is [switched off](ServerSecurity::Plaintext): one lane.
    Tcp,
    /// Multipath QUIC over UDP: up to sixteen lanes.
    #[default]
    Quic,
}

/// How connections behave. The [default](Self::default) is for use; only those of the two engines that is chosen
/// matters.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The transport underneath.
    pub engine: Engine,
    /// Whose bytes leave next. How much may wait is said by [`limits`](Self::limits), not here.
    pub conductor: ConductorConfig,
    /// Bounds on what waits and on what the peer can make us keep.
    pub limits: Limits,
    /// What is particular to kernel TCP.
    pub tcp: TcpConfig,
    /// What is particular to QUIC.
    pub quic: QuicConfig,
}

impl Config {
    /// The default, over this engine.
    pub fn new(engine: Engine) -> Self {
        Self { engine, ..Self::default() }
    }

    /// The same with [two layers](QuicConfig::layered), or without.
    #[must_use]
    pub fn layered(mut self, layered: bool) -> Self {
        self.quic.layered = layered;
        self
    }

    /// The Conductor with the bounds of the limits: each level has its share, so that no level fills another's.
    pub(crate) fn conductor(&self) -> ConductorConfig {
        ConductorConfig {
            max_messages: self.limits.unfinished.saturating_mul(Priority::COUNT),
            max_queued: self.limits.queued * Priority::COUNT as u64,
            ..self.conductor
        }
    }
}

/// Bounds of one connection. What goes out is bounded level by level, so that a full background queue never keeps an
/// urgent message out; what comes in is bounded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of each level that wait to be sent (64 MiB). Beyond them, [`send`](crate::Connection::send) waits.
    pub queued: Bytes,
    /// Messages of each level that have not been delivered (13 107). Beyond them, [`send`](crate::Connection::send)
    /// waits.
    pub unfinished: usize,
    /// Bytes of a message that is [sent piece by piece](crate::Connection::send_long) that wait to be sent (1 MiB).
    /// Beyond them, [`write`](crate::LongSender::write) waits.
    pub streamed: Bytes,
    /// The longest message that is received as a whole (16 MiB). What becomes of a longer one,
    /// [`long_messages`](Self::long_messages) says.
    pub max_message: Bytes,
    /// What becomes of messages longer than [`max_message`](Self::max_message).
    pub long_messages: LongMessages,
    /// Messages of which something is missing (4096). A peer that begins more loses its connection.
    pub open_messages: usize,
    /// Bytes of messages of which something is missing (80 MiB, which is one of the longest of each level). A peer
    /// that sends more loses its connection.
    pub open: Bytes,
    /// Bytes that were received and that the application has not taken (4 MiB). Beyond them nothing more is read, and
    /// the peer is slowed down.
    pub unread: Bytes,
    /// Complete messages that the application has not taken (16 384). Beyond them nothing more is read.
    pub unread_messages: usize,
    /// Bytes of unreliable messages that have come and that the application has not taken, each counted with 64 bytes
    /// more (256 KiB). Beyond them the least urgent are dropped, the oldest first. With zero, none are taken: peers are
    /// told so.
    pub unreliable: Bytes,
    /// Messages given up by the peer of which the application has not [heard](crate::Connection::missed) (1024).
    /// Beyond them the oldest are forgotten.
    pub missed: usize,
    /// Receipts that wait to be sent (65 536). Beyond them nothing more is read. Only over TCP.
    pub receipts: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            queued: Bytes::new(64 * MIB),
            unfinished: 13_107,
            streamed: Bytes::new(MIB),
            max_message: Bytes::new(16 * MIB),
            long_messages: LongMessages::Refuse,
            open_messages: 4096,
            open: Bytes::new(80 * MIB),
            unread: Bytes::new(4 * MIB),
            unread_messages: 16_384,
            unreliable: Bytes::new(MIB / 4),
            missed: 1024,
            receipts: 65_536,
        }
    }
}

/// What becomes of messages that are longer than [`Limits::max_message`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LongMessages {
    /// The peer loses its connection.
    #[default]
    Refuse,
    /// They are handed out piece by piece, by [`Connection::accept_long`](crate::Connection::accept_long). Who asks for
    /// this has to take them: as long as a long message is not read, [`Limits::unread`] stops everything else as well.
    Stream,
}

/// What is particular to kernel TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// The kernel's congestion controller; `None` for the system's default.
    pub congestion: Option<TcpCongestion>,
    /// How large a chunk the feeder hands over at once.
    pub chunk: ChunkRule,
    /// After how long a TLS handshake that makes no progress is given up (10 s).
    pub handshake_timeout: Duration,
    /// After how long without an acknowledgement the connection is given up (30 s; `TCP_USER_TIMEOUT`, RFC 5482). A
    /// quiet connection is probed as often as to notice within about that time.
    pub idle_timeout: Duration,
    /// How long a connection that is being closed waits for its peer (5 s).
    pub linger: Duration,
    /// Handshakes at once (256). Beyond them, those who knock wait in the kernel.
    pub max_handshakes: usize,
    /// The most connections of an endpoint (4096). Beyond them, those who knock are refused.
    pub max_connections: usize,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            congestion: None,
            chunk: ChunkRule::default(),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
            linger: Duration::from_secs(5),
            max_handshakes: 256,
            max_connections: 4096,
        }
    }
}

/// What is particular to QUIC.
#[derive(Clone, Debug)]
pub struct QuicConfig {
    /// How its sessions behave. Their Conductor is that of the [`Config`], and so is what may be unfinished.
    pub session: SessionConfig,
    /// Two layers (PLT): beside each lane of the high layer one of the low layer, marked DSCP LE (RFC 8622), for what the
    /// high one has no room for (not).
    ///
    /// Both ends have to say so. Unless an address or a lane of the low layer is given, a server listens for low lanes at
    /// the port after each of its own, and a client opens one to the port after that of each lane, by a local port of its
    /// own: a lane needs a port of its own at either end.
    ///
    /// It is for networks that serve DSCP LE after all else. Where one does not, low lanes are stopped once that is noticed
    /// ([`SessionConfig::low_lanes`]); where one drops it, they are left alone and tried again.
    pub layered: bool,
    /// The most connections of an endpoint (4096). Beyond them, those who knock are refused.
    pub max_connections: usize,
    /// Clients' handshakes at once (256). Beyond them, clients have to show first that they receive what is sent to
    /// their address, which costs them a round trip.
    pub max_handshakes: usize,
    /// Whether clients have to show first that they receive what is sent to their address, which costs them a round
    /// trip (not).
    pub validate_addresses: bool,
    /// What is asked of the system for each socket, each way (4 MB). It may give less.
    pub socket_buffer: Bytes,
    /// After how long a handshake that makes no progress is given up (10 s).
    pub handshake_timeout: Duration,
}

impl Default for QuicConfig {
    fn default() -> Self {
        Self {
            session: SessionConfig { receive_window_from: Some(FIRST_WINDOW), ..SessionConfig::default() },
            layered: false,
            max_connections: 4096,
            max_handshakes: 256,
            validate_addresses: false,
            socket_buffer: Bytes::kb(4000),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// A congestion controller of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpCongestion {
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 1 in mainline kernels.
    Bbr,
    /// Reno (RFC 5681).
    Reno,
    /// Another, by the kernel's name for it.
    Named(String),
}

impl TcpCongestion {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
            Self::Named(name) => name,
        }
    }
}

/// How large a chunk the feeder hands to the kernel at once: what the connection sends in a span of time, within
/// bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRule {
    /// The span (1 ms).
    pub span: Duration,
    /// At least so many segments (1).
    pub min_segments: u32,
    /// At most so many bytes (64 kB).
    pub max: Bytes,
}

impl Default for ChunkRule {
    fn default() -> Self {
        Self { span: Duration::from_millis(1), min_segments: 1, max: Bytes::new(64 << 10) }
    }
}

/// A local address that peers may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address. With port 0 the system chooses one.
    pub addr: SocketAddr,
    /// In which class the network is to serve what leaves by it. Only QUIC has lanes of the low layer.
    pub layer: Layer,
}

impl From<SocketAddr> for LocalAddress {
    fn from(addr: SocketAddr) -> Self {
        Self { addr, layer: Layer::High }
    }
}

/// What a server shows to its clients.
#[derive(Clone, Debug)]
pub enum ServerSecurity {
    /// TLS 1.3 with this certificate.
    Tls(Identity),
    /// No encryption and no authentication. Only over TCP, for links that are protected otherwise and for measuring.
    Plaintext,
}

/// What a client asks of its server.
#[derive(Clone, Debug)]
pub enum ClientSecurity {
    /// TLS 1.3; the server's certificate has to be for this name.
    Tls {
        /// The name.
        name: String,
        /// Whom to believe; `None` for whom the system believes.
        trust: Option<Trust>,
    },
    /// No encryption and no authentication. Only over TCP, for links that are protected otherwise and for measuring.
    Plaintext,
}

impl ClientSecurity {
    /// TLS for this name, with a certificate that the system believes.
    pub fn verified(name: impl Into<String>) -> Self {
        Self::Tls { name: name.into(), trust: None }
    }

    /// TLS for this name, with a certificate that `trust` vouches for. Here a self-signed certificate is opted into.
    pub fn trusting(name: impl Into<String>, trust: Trust) -> Self {
        Self::Tls { name: name.into(), trust: Some(trust) }
    }
}

/// One way to a server: a path and a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneConfig {
    /// The local address, as a rule that of an interface; `None` for the system's choice. With port 0 the system
    /// chooses one.
    pub local: Option<SocketAddr>,
    /// The server's address. Each lane needs its own: if the server has one address only, its own port.
    pub remote: SocketAddr,
    /// In which class the network is to serve it.
    pub layer: Layer,
    /// Whether it is to be used only while no other can be.
    pub backup: bool,
}

impl LaneConfig {
    /// A lane of the high layer to this address.
    pub const fn new(remote: SocketAddr) -> Self {
        Self { local: None, remote, layer: Layer::High, backup: false }
    }

    /// The same lane, leaving by this address.
    #[must_use]
    pub const fn from(self, local: SocketAddr) -> Self {
        Self { local: Some(local), ..self }
    }

    /// The same lane in this layer.
    #[must_use]
    pub const fn in_layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }

    /// The same lane, used only while no other can be.
    #[must_use]
    pub const fn as_backup(self) -> Self {
        Self { backup: true, ..self }
    }
}

/// A server, and the ways to it.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The ways; at least one, and over TCP just one.
    pub lanes: Vec<LaneConfig>,
    /// What is asked of it.
    pub security: ClientSecurity,
}

impl Remote {
    /// A server at one address.
    pub fn new(addr: SocketAddr, security: ClientSecurity) -> Self {
        Self { lanes: vec![LaneConfig::new(addr)], security }
    }

    /// The same server, with one more way to it.
    #[must_use]
    pub fn and_lane(mut self, lane: LaneConfig) -> Self {
        self.lanes.push(lane);
        self
    }
}

/// Whom the system believes.
///
/// # Errors
///
/// If the system's certificates cannot be read, or there are none.
pub fn system_trust() -> Result<Trust, TrustError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason = found.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
        return Err(TrustError::NoRoots { reason });
    }
    Ok(Trust::Roots(Arc::new(roots)))
}
