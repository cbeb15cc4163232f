//! Transport over real sockets: prioritised messages over the kernel's TCP or over multipath QUIC,
//! with one API.
//!
//! A [`Connection`] carries messages, each of a [`Priority`] from P0 (what
//! the user waits for) to P4 (background). Data leaves in the order of priority at the moment of
//! sending, not in that of submission. The receiver gets whole messages, the most urgent first.
//!
//! # Getting started
//!
//! ```
//! use marcato_net::{
//!     ClientSecurity, Config, Endpoint, Engine, Identity, Message, Priority, Remote, ServerSecurity, Trust,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The same program runs over kernel TCP with `Engine::Tcp`.
//! let config = Config::new(Engine::Quic);
//!
//! // A server. Its certificate is self-signed, so its clients pin it. A certificate of an authority
//! // needs no pin: `ClientSecurity::verified("chat.example")`.
//! let identity = Identity::self_signed("chat.example")?;
//! let trust = Trust::Certificate(identity.certificate().ok_or("it has one")?.clone());
//! let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
//! let endpoint = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
//! let addr = endpoint.local_addrs()[0];
//! let server = tokio::spawn(async move {
//!     let connection = endpoint.accept().await?;
//!     let mut order = Vec::new();
//!     while let Ok(message) = connection.recv().await {
//!         order.push(message.priority);
//!     }
//!     Ok::<_, marcato_net::AcceptError>(order)
//! });
//!
//! // A client: a file of 4 MB in the background, and a line of chat after it.
//! let remote = Remote::new(addr, ClientSecurity::trusting("chat.example", trust));
//! let connection = Endpoint::connect(&config, &remote).await?;
//! connection.send(Message::new(vec![0; 4_000_000]).with_priority(Priority::P4)).await?;
//! let mut line = connection.send(Message::new("hello").with_priority(Priority::P0)).await?;
//! line.acknowledged().await?;
//! connection.close().await?;
//!
//! // The line has overtaken the file.
//! assert_eq!(server.await??, [Priority::P0, Priority::P4]);
//! # Ok(())
//! # }
//! ```
//!
//! The crate's examples continue from here: `chat_beside_file`, `request_response`, `telemetry`, with
//! critical periodic data over two interfaces, and `server_restart`, whose client connects again.
//! Further features:
//!
//! - [`Connection::open_stream`] opens a stream: its bytes arrive in the order of its writes, each as soon as it
//!   can. Messages and streams have no order among each other: one that has to be sent again holds up no other.
//! - A message that is long or not complete yet is sent piece by piece, with
//!   [`Connection::send_long`], and received so, with [`Connection::accept_long`].
//! - A message that is useless when late has a [lifetime](Message::with_lifetime). A message that
//!   may be lost is [unreliable](Message::unreliable).
//! - [`Connection::request`] sends a request and waits for its reply, which the peer sends with
//!   [`Request::reply`].
//! - [`MessageHandle::acknowledged`] waits until the peer's transport has a message,
//!   [`MessageHandle::received`] until its application has taken it.
//! - A message can be [cancelled](MessageHandle::cancel) and [moved to another
//!   level](MessageHandle::reprioritise) until it has left.
//! - Lanes are [added](Connection::add_lane) and [removed](Connection::remove_lane) while a
//!   connection runs.
//! - A [`LongSender`] implements `AsyncWrite`, and a [`LongMessage`] `AsyncRead` and `Stream`.
//!   [`Connection::incoming`] and [`Connection::outgoing`] are messages as a `Stream` and a `Sink`.
//! - [`Endpoint::connect`] also takes a name with a port, and tries all its addresses ([`Named`]);
//!   [`LocalAddress::any`] listens on both address families. With a [`Client`], QUIC connections
//!   share sockets.
//! - [`Connection::finish`] ends one direction. [`Connection::close_with`] and
//!   [`Connection::abort_with`] give the peer's application a [code and a reason](CloseReason).
//!   [`Endpoint::close`] ends a server with all its connections.
//! - [`Connection::events`] reports lanes that come up, stall, recover, go down and are reopened.
//! - A [`Reconnecting`] client connects again after a loss, and offers again what the peer has not
//!   acknowledged.
//! - A server can ask its clients for certificates ([`ServerSecurity::Mutual`]), and
//!   [`Connection::peer_identity`] returns the peer's. A server's certificate is
//!   [replaced](Endpoint::set_identity) while it listens.
//! - Connecting again resumes the TLS session of an earlier connection ([`Sessions`]), and over
//!   QUIC sends messages marked idempotent at once ([`Endpoint::connect_early`]).
//! - Configurations of `rustls` can be given instead ([`ServerSecurity::Custom`],
//!   [`ClientSecurity::Custom`]).
//! - The application names its protocols ([`Config::alpn`], [`Connection::alpn`]).
//! - Both ends derive keys for their own use from those of the connection
//!   ([`Connection::export_keying_material`]).
//! - [`Connection::stats`] and [`Endpoint::stats`] report the state, [`Metrics`] exports it to
//!   Prometheus, and `tracing` spans and events report changes. With the feature `qlog`, QUIC
//!   connections write logs.
//!
//! # Engines
//!
//! [`Engine::Tcp`] is the kernel's TCP with TLS 1.3. A task feeds it one chunk whenever it has sent
//! the previous data (`TCP_NOTSENT_LOWAT`), so that the order stays open until the last moment. A
//! chunk is the data of one millisecond, at least one segment and at most 64 kB, or 256 kB while no
//! urgent message has come for a second ([`ChunkRule`]).
//!
//! [`Engine::Quic`] runs on UDP, with up to sixteen lanes ([`LaneConfig`]), room reserved for
//! periodic sources ([`Connection::reserve`]) and lanes of the lower-effort class. The kernel holds
//! about four milliseconds of what a socket sends, so that urgent data does not wait there. A full
//! socket stops the lanes that leave by it, and no others.
//!
//! By default one task drives all QUIC connections of a server, and uses one core.
//! [`QuicConfig::drivers`] sets several, each with its own sockets at the same addresses and its own
//! connections. The kernel gives every datagram to the driver of its connection, by the connection
//! ID. Over TCP, each connection has a task of its own.
//!
//! Both speak Marcato's frames, which `docs/wire.md` describes.
//!
//! # Two layers
//!
//! [`Config::layered`], at both ends, adds to each lane one of the lower-effort class (DSCP LE, RFC
//! 8622). It carries data that does not fit the high lane's window, with a controller that takes
//! all capacity it can get. On a network that serves that class last, it uses capacity that losses
//! or a cautious window would leave idle, and takes none from others. The server listens for it at
//! the port after each of its own.
//!
//! - If the network drops the class, the connection works without it and retries later.
//! - If the network serves both classes alike, low lanes do harm. The connection detects that from
//!   the high lanes' performance, and stops them.
//!
//! # Coupled mode
//!
//! A congestion control fills the queue of the slowest link, and urgent data that is sent later waits
//! in it behind the connection's own background data. [Coupled mode](Coupling) holds background data
//! back before that, over both engines: over QUIC on each lane of the high layer, and over kernel TCP
//! on Linux. [`Config::coupled`] sets it. By default it acts from the moment at which a connection
//! has both urgent messages (P0, P1) and background ones (P2 to P4). [`ConnectionStats::coupled`]
//! and [`LaneStats::coupled`] tell its state.
//!
//! # Flow control and limits
//!
//! - *Sending.* Each level has its own room ([`Limits::queued`], [`Limits::unfinished`]), so that a
//!   full background queue never blocks an urgent message. If its level is full,
//!   [`Connection::send`] waits and [`Connection::try_send`] fails.
//! - *Receiving.* The peer sends no more of a level from which the application has left
//!   [`Limits::unread`] untaken, so that unread background data never stops an urgent message. A peer
//!   that goes on nevertheless is slowed down by TCP's window or QUIC's flow control.
//!   However slow the application is, the connection stays open as long as the peer's host answers.
//!   Of the messages that wait for it, it gets the most urgent first.
//! - *Peers.* [`Limits`] bounds all data that a peer can make us hold, and
//!   [`memory`](Limits::memory) that of all connections of an endpoint. A peer that exceeds a limit,
//!   or sends an invalid frame, loses its connection.
//! - *Strangers.* Handshakes are bounded in total and for each host, and a peer begins one only if
//!   there is room among the connections that wait for [`Endpoint::accept`].
//!
//! | setting | default | at the limit |
//! |---|---|---|
//! | [`Limits::queued`] | 64 MiB of each level | sending waits |
//! | [`Limits::unfinished`] | 13107 messages of each level | sending waits |
//! | [`Limits::streamed`] | 1 MiB of each stream | the next piece waits |
//! | [`Limits::receipts`] | 65536 | sending with a receipt waits, reading stops |
//! | [`Limits::requests`] | 1024 in each direction | a request waits; one of the peer is refused |
//! | [`Limits::max_message`] | 16 MiB | the peer loses its connection, or pieces are handed out |
//! | [`Limits::open_messages`] | 4096 | the peer loses its connection |
//! | [`Limits::open`] | 80 MiB | the peer loses its connection |
//! | [`Limits::unread`] | 4 MiB of each level | the peer holds the level |
//! | [`Limits::unread_messages`] | 16384 of each level | the peer holds the level |
//! | [`Limits::surplus`] | 16 MiB | reading stops |
//! | [`Limits::unreliable`] | 256 KiB | the least urgent are dropped |
//! | [`Limits::missed`] | 1024 | the oldest are forgotten |
//! | [`Limits::memory`] | 1024 MiB of an endpoint | each connection has its fair share |
//! | [`PeerLimits::connections`] | 4096 | peers are refused |
//! | [`PeerLimits::handshakes`] | 256 | peers wait, or prove their address |
//! | [`PeerLimits::handshakes_per_address`] | 64 over TCP, 32 over QUIC | peers wait, then they are refused |
//! | [`PeerLimits::backlog`] | 128 | peers wait, then they are refused |
//! | [`PeerLimits::handshake_timeout`] | 10 s | the handshake is abandoned |
//! | `TcpConfig::idle_timeout` | 30 s | the connection is lost |
//! | `TcpConfig::close_timeout` | 60 s | the connection ends |
//! | `TcpConfig::linger` | 5 s | the connection ends |
//! | `SessionConfig::idle_timeout` of QUIC | 30 s | the connection is lost |
//! | `SessionConfig::lane_idle_timeout` of QUIC | 10 s | the lane is down |
//! | `SessionConfig::keep_alive` of QUIC | 3 s | a packet keeps the connection open |
//!
//! A path whose MTU falls without a word drops full segments. QUIC falls back to small datagrams. The kernel's TCP goes
//! on sending full ones, and no data passes (30 s of silence in a measurement), unless the system looks for a smaller
//! size: `net.ipv4.tcp_mtu_probing=1` on Linux (RFC 4821).
//!
//! # Features
//!
//! | feature | default | effect |
//! |---|---|---|
//! | `quic` | on | [`Engine::Quic`] |
//! | `tcp` | on | [`Engine::Tcp`] |
//! | `metrics` | on | `Metrics`: export to Prometheus |
//! | `native-certs` | on | trust in the system's root certificates ([`ClientSecurity::verified`]) |
//! | `qlog` | off | logs of QUIC connections |
//!
//! A configuration with an engine that was not built is an error
//! ([`ConfigError::NotBuilt`]).
//!
//! This crate re-exports what an application needs of the others, so that it depends on one crate.
//!
//! # Not supported
//!
//! Room reserved over TCP. Marks, segmentation offload and TCP's measurements need Linux; elsewhere
//! lanes are unmarked, datagrams leave one by one, chunks are single segments, and coupled mode over
//! TCP never acts.
//! So does the steering of datagrams by the kernel; elsewhere drivers hand them to one another.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![cfg_attr(
    not(any(feature = "quic", feature = "tcp")),
    allow(unused, clippy::match_single_binding, reason = "without an engine only the types remain")
)]

#[cfg(feature = "quic")]
mod client;
mod config;
mod connect;
mod connection;
mod endpoint;
mod engine;
mod error;
mod event;
mod flows;
#[cfg(all(feature = "fuzzing", feature = "tcp"))]
#[doc(hidden)]
pub mod fuzzing;
mod long;
mod long_message;
mod message_handle;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "quic")]
mod plain;
#[cfg(feature = "quic")]
mod quic;
mod reconnecting;
mod request;
mod room;
mod sessions;
mod shared;
mod signal;
mod stats;
#[cfg(feature = "quic")]
pub mod streams;
#[expect(unsafe_code, reason = "system calls that no safe interface offers")]
#[cfg_attr(
    not(all(feature = "quic", feature = "tcp")),
    allow(dead_code, unreachable_pub, unused_imports, reason = "each engine uses a part")
)]
mod sys;
mod target;
#[cfg(feature = "tcp")]
mod tcp;
mod tls;
mod trust;

#[cfg(feature = "quic")]
pub use client::Client;
#[cfg(feature = "quic")]
pub use config::QuicConfig;
pub use config::{
    ChunkRule, ClientSecurity, Config, LaneConfig, Limits, LocalAddress, LongMessages, PeerLimits, Remote,
    ServerSecurity,
};
#[cfg(feature = "tcp")]
pub use config::{TcpConfig, TcpCongestion};
pub use connection::Connection;
pub use endpoint::Endpoint;
pub use engine::Engine;
pub use error::{
    AcceptError, AddLaneError, Cause, ChangeError, ChangeLaneError, Closed, ConfigError, ConnectError,
    ExportError, ListenError, LongSendError, NoReply, NotDelivered, RequestError, ReserveError, SendError,
    SetIdentityError, TrustError,
};
pub use event::{ConnectionEvent, Events};
pub use flows::{Incoming, Outgoing};
pub use long::LongSender;
pub use long_message::LongMessage;
pub use marcato_identity::{
    ClientAuth, Fingerprint, FingerprintError, Identity, IdentityError, PeerIdentity, PemError, PemOrigin,
    Secrets, Trust,
};
pub use marcato_sched::conductor::{MessageId, Redundancy};
pub use marcato_sched::coupled::Coupling;
pub use marcato_sched::lane::LaneId;
pub use marcato_sched::reserve::{Source, SourceKey};
pub use marcato_stream::{CloseReason, InboundCounters, Message, Missed, MissedReason, Received};
pub use marcato_units::{Bytes, Duration, Layer, Priority, Time};
pub use marcato_wire::{CodePoints, Dscp, Exchange, MessageNumber, UnknownDscp};
pub use message_handle::MessageHandle;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use reconnecting::{
    Delivery, Ended, ReconnectConfig, Reconnecting, ReconnectingEvent, ReconnectingStats, Undelivered,
};
pub use request::Request;
pub use rustls;
pub use sessions::Sessions;
pub use stats::{ConnectionStats, CoupledStats, EarlyStats, EndpointStats, LaneStats, LevelStats};
#[cfg(feature = "tcp")]
pub use sys::TcpInfo;
pub use target::{Named, Target};
#[cfg(feature = "tcp")]
pub use tcp::{Chunk, LeanSocket, NoTurn, Probe, Supply, Turn};
pub use trust::system_trust;
// Whole crates, for settings beyond the common ones: the rules of the Conductor
// (`Config::conductor`) and of the sessions (`QuicConfig::session`).
#[cfg(feature = "quic")]
pub use marcato_quic;
#[cfg(feature = "quic")]
pub use marcato_quic::{LaneLoss, LowLaneChange, ResetKey};
pub use {marcato_sched, marcato_units};

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
