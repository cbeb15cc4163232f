//! Real sockets: prioritised messages over the kernel's TCP or over multipath QUIC, with one API.
//!
//! A [`Connection`] carries messages, each of a [`Priority`](marcato_units::Priority) from P0 (what the user waits for)
//! to P4 (background). What is handed over leaves in the order that matters at the moment at which it leaves, not in the
//! order in which it came; what the receiver gets are whole messages, the most urgent first.
//!
//! # Getting started
//!
//! ```
//! use marcato_net::{ClientSecurity, Config, Endpoint, Engine, Message, Remote, ServerSecurity};
//! use marcato_quic::{Identity, Trust};
//! use marcato_units::Priority;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The same program runs over kernel TCP with `Engine::Tcp`.
//! let config = Config::new(Engine::Quic);
//!
//! // A server. Its certificate is self-signed, so that its clients have to be told of it: a certificate that an
//! // authority vouches for is verified without anything further, by `ClientSecurity::verified("chat.example")`.
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
//! line.delivered().await?;
//! connection.close().await?;
//!
//! // The line has overtaken the file.
//! assert_eq!(server.await??, [Priority::P0, Priority::P4]);
//! # Ok(())
//! # }
//! ```
//!
//! The crate's examples go on from here: `chat_beside_file`, `request_response`, and `telemetry`, with critical periodic data
//! over two interfaces. What else there is:
//!
//! - what is long or not yet there is sent piece by piece: [`Connection::send_long`]; received so:
//!   [`Connection::accept_long`];
//! - what is of no use when late has a [lifetime](Message::with_lifetime), and what need not arrive is
//!   [unreliable](Message::unreliable);
//! - a message can be [taken back](MessageHandle::cancel) and [moved](MessageHandle::reprioritise) until it has left;
//! - lanes are [added](Connection::add_lane) and [removed](Connection::remove_lane) while a connection runs;
//! - [`Connection::stats`] and [`Endpoint::stats`] tell how all is, [`Metrics`] tells Prometheus; spans and events of `tracing`
//!   tell what happens, and with the feature `qlog` QUIC connections write it down.
//!
//! # Engines
//!
//! [`Engine::Tcp`] is the kernel's TCP with TLS 1.3. A task feeds it one chunk whenever it has sent what it had
//! (`TCP_NOTSENT_LOWAT`), so that the order stays open until the last moment; a chunk is what leaves in a millisecond, one
//! segment at least and 64 kB at most ([`ChunkRule`]). [`Engine::Quic`] runs on UDP, with up to sixteen lanes
//! ([`LaneConfig`]), room reserved for periodic sources ([`Connection::reserve`]) and lanes of the lower-effort class. Both
//! speak `marcato/1`, which `docs/wire.md` describes.
//!
//! # Two layers
//!
//! [`Config::layered`], at both ends, has a lane of the lower-effort class (DSCP LE, RFC 8622) beside each lane. It carries
//! what the high lane's window has no room for, with a controller that takes what it can get: on a network that serves that
//! class last it uses what losses or a cautious window would leave idle, and takes nothing from others. The server listens
//! for it at the port after each of its own. Where the network drops the class, the connection does without and tries
//! again later; where it serves both alike, low lanes do harm, which is noticed by what it does to the high ones, and they
//! are stopped.
//!
//! # When things do not flow
//!
//! - *Sending.* Each level has room of its own ([`Limits::queued`], [`Limits::unfinished`]), so that a full background queue
//!   keeps no urgent message out. Where its level is full, [`Connection::send`] waits and [`Connection::try_send`] says so.
//! - *Receiving.* An application that takes nothing stops reading at [`Limits::unread`] and so slows its peer down, by TCP's
//!   window or QUIC's flow control. That stops *all* levels: whatever the order in which messages leave, an urgent one
//!   then waits until the application takes something. Of what waits for it, the application gets the most urgent first.
//! - *Peers.* All that a peer can make us keep is bounded by [`Limits`]; a peer that exceeds one of them, or sends what is no
//!   frame, loses its connection.
//!
//! # Not supported
//!
//! Room reserved over TCP, 0-RTT. Marks, segmentation offload and TCP's measurements are Linux's; elsewhere lanes are unmarked, datagrams leave
//! one by one and chunks are single segments.
#![deny(unsafe_code)]

mod config;
mod connection;
mod endpoint;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod inbound;
mod long;
mod metrics;
mod pool;
mod quic;
mod shared;
mod stats;
#[expect(unsafe_code, reason = "system calls that no safe interface offers")]
mod sys;
mod tcp;

pub use config::{
    ChunkRule, ClientSecurity, Config, Engine, LaneConfig, Limits, LocalAddress, LongMessages, QuicConfig,
    Remote, ServerSecurity, TcpConfig, TcpCongestion, system_trust,
};
pub use connection::{Connection, LongMessage, Message, MessageHandle};
pub use endpoint::{Endpoint, EndpointStats};
pub use error::{
    AcceptError, AddLaneError, ChangeError, ChangeLaneError, Closed, ConfigError, ConnectError, ListenError,
    LongSendError, NotDelivered, ReserveError, SendError, TrustError,
};
pub use inbound::{InboundCounters, Missed, MissedReason, Received};
pub use long::LongSender;
pub use metrics::Metrics;
pub use stats::{ConnectionStats, LaneStats, LevelStats};

/// The quick start of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
