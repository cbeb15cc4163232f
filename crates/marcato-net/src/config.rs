//! Configuration of an endpoint.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use marcato_identity::{ClientAuth, Identity, Trust};
#[cfg(feature = "quic")]
use marcato_quic::{ResetKey, Retry, SessionConfig};
use marcato_sched::conductor::Config as ConductorConfig;
use marcato_sched::coupled::Coupling;
pub use marcato_stream::{ChunkRule, Limits, LongMessages};
#[cfg(feature = "quic")]
use marcato_units::Bytes;
use marcato_units::Layer;
use marcato_wire::CodePoints;

use crate::engine::Engine;
use crate::error::ConfigError;
use crate::sessions::Sessions;

/// Initial receive window of sessions: the data of 100 ms at 100 Mbit/s. Until a round trip's need
/// has been measured, more would only fill queues, in which urgent data would wait.
#[cfg(feature = "quic")]
const FIRST_WINDOW: Bytes = Bytes::kb(1250);

/// Largest number of drivers of an endpoint.
#[cfg(feature = "quic")]
pub(crate) const MAX_DRIVERS: usize = 64;

/// Configuration of connections. The [default](Self::default) is for general use; only the selected
/// engine's section applies.
#[derive(Clone, Debug)]
pub struct Config {
    /// Transport protocol.
    pub engine: Engine,
    /// Names of the application's protocols, for application-layer protocol negotiation (RFC 7301):
    /// `marcato/2` by default. Of the server's names, the first that the client has as well is
    /// [used](crate::Connection::alpn); without a common one, the connection is refused. In
    /// plaintext nothing is negotiated.
    pub alpn: Vec<Vec<u8>>,
    /// Rules of the Conductor, which chooses the next bytes. Its queue limits come from
    /// [`limits`](Self::limits), not from here.
    pub conductor: ConductorConfig,
    /// Bounds of queued data, and of data that the peer can make us hold.
    pub limits: Limits,
    /// Bounds of peers that connect, and of their handshakes.
    pub peers: PeerLimits,
    /// Bound on the background data in flight, so that urgent messages find the network's queues
    /// empty: over QUIC on each lane of the high layer, and over kernel TCP on Linux. Elsewhere
    /// TCP ignores it.
    ///
    /// [`Auto`](Coupling::Auto) by default, over both: it acts on connections that have urgent and
    /// background messages. Alone on a line of constant rate it costs at most 1.5 % of the
    /// background's throughput, in the simulator. Noise, other flows and changing rates cost more:
    /// docs/coupled.md has what was measured for each. Switch it off where a share against others
    /// matters more than the delay of urgent messages.
    pub coupled: Coupling,
    /// Code points (DSCP) by which packets are marked for the network, and with them the queues of this host; `None`,
    /// the default, leaves packets unmarked. On Linux; ignored elsewhere.
    ///
    /// A connection over TCP, and each lane of the high layer over QUIC, has one mark: that of the most urgent level that
    /// waits. It changes only while nothing is in flight, because packets that overtake each other look lost. Data of
    /// several levels that flows without a pause therefore keeps the mark with which it began. Lanes of the low layer stay
    /// LE. Over TCP, `SO_PRIORITY` follows the level as well ([`queue_priority`]). Handshakes are not marked.
    ///
    /// ```
    /// use marcato_net::{CodePoints, Config, Priority};
    ///
    /// let mut points = CodePoints::default();
    /// points.set(Priority::P0, "ef".parse()?);
    /// let config = Config { marks: Some(points), ..Config::default() };
    /// # Ok::<(), marcato_net::UnknownDscp>(())
    /// ```
    ///
    /// [`queue_priority`]: marcato_wire::queue_priority
    pub marks: Option<CodePoints>,
    /// Settings for kernel TCP.
    #[cfg(feature = "tcp")]
    pub tcp: TcpConfig,
    /// Settings for QUIC.
    #[cfg(feature = "quic")]
    pub quic: QuicConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: Engine::default(),
            alpn: vec![marcato_wire::ALPN.to_vec()],
            conductor: ConductorConfig::default(),
            limits: Limits::default(),
            peers: PeerLimits::default(),
            coupled: Coupling::default(),
            marks: None,
            #[cfg(feature = "tcp")]
            tcp: TcpConfig::default(),
            #[cfg(feature = "quic")]
            quic: QuicConfig::default(),
        }
    }
}

impl Config {
    /// Creates the default configuration for this engine.
    pub fn new(engine: Engine) -> Self {
        Self { engine, ..Self::default() }
    }

    /// Returns this configuration with [two layers](QuicConfig::layered), or with one.
    #[cfg(feature = "quic")]
    #[must_use]
    pub fn layered(mut self, layered: bool) -> Self {
        self.quic.layered = layered;
        self
    }

    /// Checks that connections are of messages.
    pub(crate) fn takes_messages(&self) -> Result<(), ConfigError> {
        #[cfg(feature = "quic")]
        if self.quic.session.protocol != marcato_quic::Protocol::Messages {
            return Err(ConfigError::PlainStreams);
        }
        Ok(())
    }

    /// Checks what no type excludes.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        for (limit, zero) in [
            ("queued", limits.queued.is_zero()),
            ("unfinished", limits.unfinished == 0),
            ("max_message", limits.max_message.is_zero()),
            ("open_messages", limits.open_messages == 0),
            ("streamed", limits.streamed.is_zero()),
            ("open", limits.open.is_zero()),
            ("unread", limits.unread.is_zero()),
            ("unread_messages", limits.unread_messages == 0),
            ("surplus", limits.surplus.is_zero()),
            ("memory", limits.memory.is_zero()),
            ("receipts", limits.receipts == 0),
            ("requests", limits.requests == 0),
        ] {
            if zero {
                return Err(ConfigError::Zero { limit });
            }
        }
        if self.alpn.is_empty() {
            return Err(ConfigError::NoProtocol);
        }
        // RFC 7301 §3.1: names have 1 to 255 bytes.
        if let Some(name) = self.alpn.iter().find(|name| !(1..=255).contains(&name.len())) {
            return Err(ConfigError::ProtocolName { len: name.len() });
        }
        #[cfg(feature = "quic")]
        if !(1..=MAX_DRIVERS).contains(&self.quic.drivers) {
            return Err(ConfigError::Drivers { most: MAX_DRIVERS, given: self.quic.drivers });
        }
        #[cfg(feature = "quic")]
        if self.quic.layered && self.engine == Engine::Tcp {
            return Err(ConfigError::LayeredTcp);
        }
        Ok(())
    }

    /// Conductor configuration with the limits' bounds.
    #[cfg(feature = "quic")]
    pub(crate) fn conductor(&self) -> ConductorConfig {
        self.limits.bound(self.conductor)
    }
}

/// Limits of the peers that connect to an endpoint, over either engine. The time of a handshake holds for an
/// endpoint that connects as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Limit of an endpoint's connections (4096). Further peers are refused.
    pub connections: usize,
    /// Limit of concurrent handshakes (256). Over TCP, further peers wait in the kernel. Over QUIC they
    /// have to prove first that they receive packets at their address, which costs a round trip.
    pub handshakes: usize,
    /// Limit of concurrent handshakes from one IPv4 address, or from one IPv6 network of 64 bits; by default
    /// ([`None`]) 64 over TCP and 32 over QUIC, where only clients that have proved their address count.
    ///
    /// Further peers from there wait for their turn, and those beyond are refused, and counted as
    /// [crowded](crate::EndpointStats::crowded). Over TCP, as many wait as [`handshakes`](Self::handshakes). Over
    /// QUIC, half as many do, and as many from all addresses; after half of
    /// [`handshake_timeout`](Self::handshake_timeout) they are refused. Peers from elsewhere do not wait for them.
    pub handshakes_per_address: Option<usize>,
    /// Limit of connections that wait for [`accept`](crate::Endpoint::accept) (128).
    ///
    /// Peers beyond it wait before their handshake, and are refused after the time of one (over QUIC, half of
    /// it), and counted. Over QUIC, handshakes in progress count too: from half of it on, clients have to prove
    /// their address first, and not more wait than for those of their address.
    pub backlog: usize,
    /// Time after which an incomplete handshake is abandoned (10 s): that of TLS or QUIC, or in plaintext the
    /// hello of the peer.
    pub handshake_timeout: Duration,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshakes: 256,
            handshakes_per_address: None,
            backlog: 128,
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

impl PeerLimits {
    /// Returns the limit of handshakes from one address; those of QUIC cost a client less, so that fewer are
    /// allowed.
    pub(crate) fn per_address(&self, engine: Engine) -> usize {
        self.handshakes_per_address.unwrap_or(match engine {
            Engine::Tcp => 64,
            Engine::Quic => 32,
        })
    }
}

/// Settings for kernel TCP.
#[cfg(feature = "tcp")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// The kernel's congestion controller; `None` for the system's default.
    pub congestion: Option<TcpCongestion>,
    /// Size of the chunks that the feeder hands over.
    pub chunk: ChunkRule,
    /// Time without any segment from the peer's host after which the connection is closed (30 s, at
    /// least 4 s). Probes make the host of a live peer answer, also while its application reads
    /// nothing: a slow reader is not closed. Linux before 6.15 sends the probes to a slow reader up
    /// to 120 s apart, and detects the failure of its host later.
    pub idle_timeout: Duration,
    /// Time without progress after which a closing connection stops waiting for a peer that takes
    /// nothing (60 s).
    pub close_timeout: Duration,
    /// Time for which a closing connection waits for its peer's end once all is delivered (5 s). If
    /// the own application takes nothing for that time, messages that still arrive are declined.
    pub linger: Duration,
}

#[cfg(feature = "tcp")]
impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            congestion: None,
            chunk: ChunkRule::default(),
            idle_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(60),
            linger: Duration::from_secs(5),
        }
    }
}

/// Settings for QUIC.
#[cfg(feature = "quic")]
#[derive(Clone, Debug)]
pub struct QuicConfig {
    /// Configuration of the sessions. The [`Config`] overrides their Conductor, their limit of
    /// unfinished messages, and their [coupled mode](Config::coupled).
    pub session: SessionConfig,
    /// Adds to each lane of the high layer one of the low layer (PLT), marked DSCP LE (RFC 8622).
    /// The low lane carries data that the high one has no room for. Off by default.
    ///
    /// Both ends have to set it. Unless low addresses or lanes are given, a server listens for low
    /// lanes at the port after each of its ports. A client opens one to the port after that of each
    /// lane, from a separate local port: a lane needs its own port at either end.
    ///
    /// It is for networks that serve DSCP LE after all other traffic. If a network does not, low
    /// lanes are stopped once that is detected ([`SessionConfig::low_lanes`]). If a network drops
    /// it, they rest and are retried.
    pub layered: bool,
    /// Tasks that drive the connections of a listening endpoint, each its own: 1 to 64 (1). On a
    /// runtime of several threads they run on several cores. With one for each thread, a server
    /// can use all of them:
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() {
    /// let mut config = marcato_net::Config::new(marcato_net::Engine::Quic);
    /// config.quic.drivers = tokio::runtime::Handle::current().metrics().num_workers().min(64);
    /// # }
    /// ```
    ///
    /// Each driver has its own sockets at the same addresses (`SO_REUSEPORT`), with buffers of
    /// [`socket_buffer`](Self::socket_buffer) each, and up to 5 MB of receive buffers. All limits
    /// hold for the endpoint as a whole.
    pub drivers: usize,
    /// Key of stateless resets. A server that keeps it across restarts ends the connections of its predecessor at once
    /// (RFC 9000 §10.3). If `None`, it is derived from the private key of the server's certificate and its addresses; with
    /// [`ServerSecurity::Custom`] it is a new one for each endpoint. Servers that share certificate and address, as
    /// behind a balancer that may send a packet to the wrong one, need a key each.
    pub reset_key: Option<ResetKey>,
    /// Requires every client to prove first that it receives packets at its address, which costs a
    /// round trip (off).
    pub validate_addresses: bool,
    /// Lets a listening endpoint accept early data (0-RTT) of clients that resume a session, from
    /// [`Endpoint::connect_early`](crate::Endpoint::connect_early) (off). The endpoint then returns
    /// a connection with its early messages before the handshake is complete, and what it sends
    /// leaves at once, to a client that has proved nothing yet.
    ///
    /// **An attacker who records early messages can send them again**, and the application may get
    /// them again ([`Received::early`](crate::Received::early); RFC 8446 §8, RFC 9001 §9.2). This
    /// endpoint accepts each ticket once, and only soon after the client made use of it; another
    /// endpoint does not know it. An application that processes only after
    /// [`Connection::established`](crate::Connection::established) acts on no replay. With
    /// [custom](crate::ServerSecurity::Custom) configurations no early data is accepted.
    pub early_data: bool,
    /// Buffer size requested for each socket, in each direction (4 MB). The system may grant less.
    pub socket_buffer: Bytes,
}

#[cfg(feature = "quic")]
impl Default for QuicConfig {
    fn default() -> Self {
        Self {
            session: SessionConfig {
                receive_window_from: Some(FIRST_WINDOW),
                reopen: Some(Retry::default()),
                ..SessionConfig::default()
            },
            layered: false,
            drivers: 1,
            reset_key: None,
            validate_addresses: false,
            early_data: false,
            socket_buffer: Bytes::kb(4000),
        }
    }
}

/// Congestion controller of the kernel.
#[cfg(feature = "tcp")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpCongestion {
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 1 in mainline kernels.
    Bbr,
    /// Reno (RFC 5681).
    Reno,
    /// Another controller, by the kernel's name for it.
    Named(String),
}

#[cfg(feature = "tcp")]
impl TcpCongestion {
    /// Name, as the kernel knows it.
    pub fn name(&self) -> &str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
            Self::Named(name) => name,
        }
    }
}

/// Local address that peers may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Address. With port 0 the system chooses one.
    pub addr: SocketAddr,
    /// Class in which the network should serve packets that leave by it. Only QUIC has lanes of the
    /// low layer.
    pub layer: Layer,
}

impl LocalAddress {
    /// Returns all addresses of this host at a port: of IPv6, if the host has it, and of IPv4. With
    /// port 0, the system chooses a port for each.
    pub fn any(port: u16) -> Vec<Self> {
        let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        // A kernel without IPv6, or with IPv6 switched off, refuses this.
        let has_v6 = std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        let all = has_v6.then_some(v6).into_iter().chain([v4]);
        all.map(Self::from).collect()
    }
}

impl From<SocketAddr> for LocalAddress {
    fn from(addr: SocketAddr) -> Self {
        Self { addr, layer: Layer::High }
    }
}

/// Credentials that a server presents to its clients.
#[derive(Clone, Debug)]
pub enum ServerSecurity {
    /// TLS 1.3 with this certificate.
    Tls(Identity),
    /// TLS 1.3 with this certificate, and clients that present one of theirs.
    ///
    /// A client that resumes a session keeps the identity that it proved in the first handshake.
    /// Its certificate is checked again when the connection is accepted. If it is no longer
    /// accepted, for example because it has expired, the client is disconnected and counted as
    /// [failed](crate::EndpointStats::failed). All sessions are forgotten then, so that it learns
    /// the reason when it connects again.
    Mutual {
        /// Certificate of the server.
        identity: Identity,
        /// Certificates accepted from clients.
        clients: ClientAuth,
    },
    /// TLS with this configuration, for example with several certificates or with revocation lists.
    ///
    /// Protocols: [`Config::alpn`] if it names none, else each has to be among those. QUIC needs TLS
    /// 1.3 and the cipher suite AES-128-GCM with SHA-256. 0-RTT is switched off.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use marcato_net::rustls::{ServerConfig, crypto::ring, version::TLS13};
    /// use marcato_net::{ClientSecurity, Config, Endpoint, Identity, Remote, ServerSecurity, Trust};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let identity = Identity::self_signed("chat.example")?;
    /// let trust = Trust::Certificate(identity.certificate().ok_or("none")?.clone());
    /// let (chain, key) = identity.parts();
    /// let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
    ///     .with_protocol_versions(&[&TLS13])?
    ///     .with_no_client_auth()
    ///     .with_single_cert(chain, key)?;
    ///
    /// let config = Config::default();
    /// let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// let server = Endpoint::listen(&config, &at, &ServerSecurity::Custom(Arc::new(tls))).await?;
    ///
    /// // The client's own configuration, made by hand or from a `Trust`.
    /// let tls = trust.client_tls()?;
    /// let security = ClientSecurity::Custom { name: "chat.example".to_owned(), config: Arc::new(tls) };
    /// let remote = Remote::new(server.local_addrs()[0], security);
    /// let client = Endpoint::connect(&config, &remote).await?;
    /// assert_eq!(client.alpn(), Some(&b"marcato/2"[..]));
    /// # Ok(())
    /// # }
    /// ```
    Custom(Arc<rustls::ServerConfig>),
    /// No encryption and no authentication. Only over TCP, for links that are protected otherwise
    /// and for measurements.
    Plaintext,
}

impl ServerSecurity {
    /// Identity of the server; `None` if it is a part of a custom configuration, or there is none.
    #[cfg(feature = "quic")]
    pub(crate) const fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Tls(identity) | Self::Mutual { identity, .. } => Some(identity),
            _ => None,
        }
    }
}

/// Authentication between a client and its server, as the client sets it.
#[derive(Clone, Debug)]
pub enum ClientSecurity {
    /// TLS 1.3; the server's certificate has to be for this name.
    Tls {
        /// Name in the certificate.
        name: String,
        /// Certificates to accept; `None` for those that the system trusts.
        trust: Option<Trust>,
        /// Certificate presented to a server that asks for one.
        identity: Option<Identity>,
        /// Sessions that are resumed.
        sessions: Sessions,
    },
    /// TLS with this configuration, under the conditions of [`ServerSecurity::Custom`].
    Custom {
        /// Name in the certificate.
        name: String,
        /// Configuration.
        config: Arc<rustls::ClientConfig>,
    },
    /// No encryption and no authentication. Only over TCP, for links that are protected otherwise
    /// and for measurements.
    Plaintext,
}

impl ClientSecurity {
    /// TLS for this name, with a certificate that the system trusts.
    pub fn verified(name: impl Into<String>) -> Self {
        Self::Tls { name: name.into(), trust: None, identity: None, sessions: Sessions::default() }
    }

    /// TLS for this name, with a certificate that `trust` accepts. A self-signed certificate has to
    /// be given here.
    pub fn trusting(name: impl Into<String>, trust: Trust) -> Self {
        let sessions = Sessions::default();
        Self::Tls { name: name.into(), trust: Some(trust), identity: None, sessions }
    }

    /// Returns this security, resuming these sessions: those that another one shares, or
    /// [none](Sessions::none). A custom configuration has its own.
    #[must_use]
    pub fn with_sessions(mut self, shared: &Sessions) -> Self {
        if let Self::Tls { sessions, .. } = &mut self {
            sessions.clone_from(shared);
        }
        self
    }

    /// Returns this security, with a certificate for a server that asks for one
    /// ([`ServerSecurity::Mutual`]). Plaintext presents none, and a custom configuration its own.
    ///
    /// ```
    /// use marcato_net::{
    ///     ClientAuth, ClientSecurity, Config, Endpoint, Identity, Remote, ServerSecurity, Trust,
    /// };
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let [hub, meter] = [Identity::self_signed("hub.example")?, Identity::self_signed("meter.example")?];
    /// let pin = |identity: &Identity| identity.fingerprint().map(Trust::Fingerprint).ok_or("none");
    /// let trust = pin(&hub)?;
    ///
    /// let config = Config::default();
    /// let clients = ClientAuth::required([pin(&meter)?]);
    /// let security = ServerSecurity::Mutual { identity: hub, clients };
    /// let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// let server = Endpoint::listen(&config, &at, &security).await?;
    ///
    /// let security = ClientSecurity::trusting("hub.example", trust).presenting(meter.clone());
    /// let remote = Remote::new(server.local_addrs()[0], security);
    /// let (client, accepted) = tokio::join!(Endpoint::connect(&config, &remote), server.accept());
    /// let (_client, accepted) = (client?, accepted?);
    /// let peer = accepted.peer_identity().ok_or("none")?;
    /// assert_eq!(Some(peer.fingerprint()), meter.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn presenting(mut self, own: Identity) -> Self {
        if let Self::Tls { identity, .. } = &mut self {
            *identity = Some(own);
        }
        self
    }
}

/// Lane to a server: a path and a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneConfig {
    /// Local address, usually of one interface; `None` for the system's choice. With port 0 the
    /// system chooses one.
    pub local: Option<SocketAddr>,
    /// Server's address. Each lane needs its own: a server with a single address needs several
    /// ports.
    pub remote: SocketAddr,
    /// Class in which the network should serve it.
    pub layer: Layer,
    /// Restricts the lane to times when no other is available.
    pub backup: bool,
}

impl LaneConfig {
    /// Creates a lane of the high layer to this address.
    pub const fn new(remote: SocketAddr) -> Self {
        Self { local: None, remote, layer: Layer::High, backup: false }
    }

    /// Returns this lane, leaving by this address.
    #[must_use]
    pub const fn from(self, local: SocketAddr) -> Self {
        Self { local: Some(local), ..self }
    }

    /// Returns this lane in this layer.
    #[must_use]
    pub const fn in_layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }

    /// Returns this lane as a backup, used only while no other is available.
    #[must_use]
    pub const fn as_backup(self) -> Self {
        Self { backup: true, ..self }
    }
}

/// Server, and the lanes to it.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Lanes; at least one, and over TCP just one.
    pub lanes: Vec<LaneConfig>,
    /// Authentication of both ends.
    pub security: ClientSecurity,
}

impl Remote {
    /// Creates a remote for a server at one address.
    pub fn new(addr: SocketAddr, security: ClientSecurity) -> Self {
        Self { lanes: vec![LaneConfig::new(addr)], security }
    }

    /// Returns this remote with one more lane.
    #[must_use]
    pub fn and_lane(mut self, lane: LaneConfig) -> Self {
        self.lanes.push(lane);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs of the types: each names its default.
    #[test]
    fn the_defaults_are_those_that_the_documentation_names() {
        let config = Config::default();
        let peers = config.peers;
        assert_eq!((peers.connections, peers.handshakes, peers.backlog), (4096, 256, 128));
        assert_eq!(peers.handshake_timeout, Duration::from_secs(10));
        assert_eq!([Engine::Tcp, Engine::Quic].map(|engine| peers.per_address(engine)), [64, 32]);
        let own = PeerLimits { handshakes_per_address: Some(5), ..peers };
        assert_eq!([Engine::Tcp, Engine::Quic].map(|engine| own.per_address(engine)), [5, 5]);
        assert_eq!((config.coupled, config.alpn), (Coupling::Auto, vec![b"marcato/2".to_vec()]));
        assert_eq!(config.marks, None);
        #[cfg(feature = "tcp")]
        {
            let TcpConfig { congestion, idle_timeout, close_timeout, linger, .. } = config.tcp;
            let seconds = [idle_timeout, close_timeout, linger].map(|span| span.as_secs_f64());
            assert_eq!((congestion, seconds), (None, [30.0, 60.0, 5.0]));
        }
        #[cfg(feature = "quic")]
        {
            let quic = config.quic;
            assert_eq!((quic.drivers, quic.socket_buffer), (1, Bytes::kb(4000)));
            assert_eq!((quic.layered, quic.validate_addresses, quic.early_data), (false, false, false));
            assert!(quic.reset_key.is_none());
            assert_eq!(
                (quic.session.receive_window_from, quic.session.reopen),
                (Some(Bytes::kb(1250)), Some(Retry::default()))
            );
        }
    }

    /// The table of the crate's documentation, row by row.
    #[cfg(all(feature = "quic", feature = "tcp"))]
    #[test]
    fn the_table_of_limits_has_the_defaults() {
        let Config { limits, peers, tcp, quic, .. } = Config::default();
        let mib = |bytes: Bytes| format!("{} MiB", bytes.get() >> 20);
        let count = |number: usize| number.to_string();
        let seconds = |span: Duration| format!("{} s", span.as_secs());
        let [of_tcp, of_quic] = [Engine::Tcp, Engine::Quic].map(|engine| peers.per_address(engine));
        let whole = |span: marcato_units::Duration| format!("{} s", span.as_nanos() / 1_000_000_000);
        let session = quic.session;
        let expected = [
            ("Limits::queued", mib(limits.queued)),
            ("Limits::unfinished", count(limits.unfinished)),
            ("Limits::streamed", mib(limits.streamed)),
            ("Limits::receipts", count(limits.receipts)),
            ("Limits::requests", count(limits.requests)),
            ("Limits::max_message", mib(limits.max_message)),
            ("Limits::open_messages", count(limits.open_messages)),
            ("Limits::open", mib(limits.open)),
            ("Limits::unread", mib(limits.unread)),
            ("Limits::unread_messages", count(limits.unread_messages)),
            ("Limits::surplus", mib(limits.surplus)),
            ("Limits::unreliable", format!("{} KiB", limits.unreliable.get() >> 10)),
            ("Limits::missed", count(limits.missed)),
            ("Limits::memory", mib(limits.memory)),
            ("PeerLimits::connections", count(peers.connections)),
            ("PeerLimits::handshakes", count(peers.handshakes)),
            ("PeerLimits::handshakes_per_address", format!("{of_tcp} over TCP, {of_quic} over QUIC")),
            ("PeerLimits::backlog", count(peers.backlog)),
            ("PeerLimits::handshake_timeout", seconds(peers.handshake_timeout)),
            ("TcpConfig::idle_timeout", seconds(tcp.idle_timeout)),
            ("TcpConfig::close_timeout", seconds(tcp.close_timeout)),
            ("TcpConfig::linger", seconds(tcp.linger)),
            ("SessionConfig::idle_timeout", whole(session.idle_timeout)),
            ("SessionConfig::lane_idle_timeout", session.lane_idle_timeout.map(whole).unwrap_or_default()),
            ("SessionConfig::keep_alive", session.keep_alive.map(whole).unwrap_or_default()),
        ];
        let rows = include_str!("lib.rs").lines().filter(|line| line.starts_with("//! | ")).skip(1);
        assert!(rows.clone().count() >= expected.len());
        for (row, (name, default)) in rows.zip(expected) {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let (setting, value) = (cells.next().unwrap(), cells.next().unwrap());
            assert!(setting.contains(&format!("`{name}`")), "{setting}: {name}");
            assert!(
                value == default || value.starts_with(&format!("{default} ")),
                "{name}: {value}, {default}"
            );
        }
    }

    /// Each limit that has to be at least one is named when it is zero.
    #[test]
    fn a_limit_of_zero_is_refused_by_its_name() {
        type Change = fn(&mut Config);
        let zero: [(&str, Change); 12] = [
            ("queued", |config| config.limits.queued = marcato_units::Bytes::ZERO),
            ("unfinished", |config| config.limits.unfinished = 0),
            ("max_message", |config| config.limits.max_message = marcato_units::Bytes::ZERO),
            ("open_messages", |config| config.limits.open_messages = 0),
            ("streamed", |config| config.limits.streamed = marcato_units::Bytes::ZERO),
            ("open", |config| config.limits.open = marcato_units::Bytes::ZERO),
            ("unread", |config| config.limits.unread = marcato_units::Bytes::ZERO),
            ("unread_messages", |config| config.limits.unread_messages = 0),
            ("surplus", |config| config.limits.surplus = marcato_units::Bytes::ZERO),
            ("memory", |config| config.limits.memory = marcato_units::Bytes::ZERO),
            ("receipts", |config| config.limits.receipts = 0),
            ("requests", |config| config.limits.requests = 0),
        ];
        assert!(Config::default().validate().is_ok());
        for (name, change) in zero {
            let mut config = Config::default();
            change(&mut config);
            let refused = config.validate();
            assert!(
                matches!(refused, Err(ConfigError::Zero { limit }) if limit == name),
                "{name}: {refused:?}"
            );
        }
    }

    #[cfg(feature = "quic")]
    #[test]
    fn bounds_of_drivers_and_of_protocol_names_are_inclusive() {
        let drivers = |drivers| {
            let mut config = Config::new(Engine::Quic);
            config.quic.drivers = drivers;
            config.validate().is_ok()
        };
        assert_eq!([0, 1, 64, 65].map(drivers), [false, true, true, false]);
        let name = |len| Config { alpn: vec![vec![b'a'; len]], ..Config::default() }.validate().is_ok();
        assert_eq!([0, 1, 255, 256].map(name), [false, true, true, false]);
        assert!(Config { alpn: Vec::new(), ..Config::default() }.validate().is_err());
        let layered = |engine| Config::new(engine).layered(true).validate().is_ok();
        assert_eq!([Engine::Tcp, Engine::Quic].map(layered), [false, true]);
    }
}
