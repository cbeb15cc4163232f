//! The web plane: HTTP/1.1, HTTP/2 and HTTP/3 served by priority.
//!
//! [`Server`] serves any tower service, such as a `Router` of axum. Responses of a connection of HTTP/2 or
//! HTTP/3 leave by their urgency, one chunk at a time (CATS §II-C). With coupled mode, less urgent ones stay out
//! of the bottleneck's queue. Neither clients nor kernels change.
//!
//! ```no_run
//! use axum::Router;
//! use axum::routing::get;
//! use marcato_web::{Identity, Server, ServerIdentity};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let router = Router::new().route("/", get(async || "hello"));
//! let identity = ServerIdentity::new(&Identity::self_signed("localhost")?)?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8443").await?;
//! Server::new().identity(&identity)?.serve(listener, router).await;
//! # Ok(())
//! # }
//! ```
//!
//! [`files`] is a service for the files of a directory.
//!
//! | feature | contents |
//! |---|---|
//! | `server` (default) | the server and the file service |
//! | `http3` (default) | HTTP/3 on the UDP port of the same number |
//! | `axum` | `ConnectInfo<SocketAddr>` for handlers of axum, `WebSocketUpgrade` over HTTP/2 |
//! | `compression` | compression of what any service answers |
//! | `proxy` | a service that passes requests to origins |
//! | `metrics` | metrics of the server for Prometheus |
//! | `watch` | the page that draws the last connections |
//! | `self-signed` | `Identity::self_signed`, as above |
//! | `full` | all of these but `axum` |
//!
//! Order holds within one connection. Several connections to one bottleneck do not know of each other.
//!
//! # Signals
//! The signals of clients can be used without the server, by any implementation of HTTP/2 or HTTP/3
//! (feature `server` off). They open no socket, read no clock and store no content. The order itself is
//! that of [`marcato_sched::exchange`].
//!
//! | signal | reader |
//! |---|---|
//! | `priority` field of a request or response (RFC 9218 §5) | [`PriorityField`] |
//! | PRIORITY_UPDATE of HTTP/2 and HTTP/3 (RFC 9218 §7) | [`Update`], and [`ControlReader`] for a control stream of HTTP/3 |
//! | PRIORITY, priorities in HEADERS, SETTINGS_NO_RFC7540_PRIORITIES (RFC 9218 §2.1) | [`FrameReader`] |
//! | weights and dependencies (RFC 7540 §5.3) | [`Tree`] |
//! | `Sec-Fetch-Dest`, `Sec-Purpose`, `Save-Data`, content type, extension, length | [`GuessTable`] |
//!
//! [`Evidence::decide`] composes them and states their precedence. [`Signals`] does so for all
//! requests of a connection, within bounds, and tells of decisions that change.
//!
//! ```
//! use marcato_sched::exchange::{Config, Exchange};
//! use marcato_sched::order::StreamId;
//! use marcato_units::Bytes;
//! use marcato_web::{FrameReader, GuessTable, Protocol, RequestHints, Signals, Source};
//!
//! let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
//! let mut signals = Signals::new(Protocol::Http2, 100);
//! let mut exchange = Exchange::new(Config::default())?;
//! let table = GuessTable::default();
//!
//! // A client of HTTP/2 begins. Its bytes go to a library too, which reports the requests.
//! let bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
//! reader.feed(bytes, |event| signals.event(event).expect("fewer than 100 updates"))?;
//!
//! // An image without any signal: its destination decides.
//! let (image, style) = (StreamId(1), StreamId(3));
//! let hints = RequestHints { path: "/hero", destination: Some(b"image"), ..Default::default() };
//! let decision = signals.request(image, None, table.request(&hints))?;
//! assert_eq!((decision.parameters.to_string().as_str(), decision.source), ("u=2, i", Source::Destination));
//! exchange.open(image, decision.parameters)?;
//!
//! // A stylesheet with a field. An absent field now means the default, also for the image.
//! let decision = signals.request(style, [b"u=0".as_slice()], None)?;
//! exchange.open(style, decision.parameters)?;
//! while let Some((stream, decision)) = signals.next_change() {
//!     assert_eq!((stream, decision.source), (image, Source::Default));
//!     exchange.response_mut(stream).expect("it is open").reprioritise(decision.parameters);
//! }
//!
//! exchange.response_mut(image).expect("it is open").supply(Bytes::kb(60))?;
//! exchange.response_mut(style).expect("it is open").supply(Bytes::kb(25))?;
//! assert_eq!(exchange.grant(Bytes::new(1400)).map(|grant| grant.stream), Some(style));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//! - Weights are read as Chromium and Firefox use them. Clients with a flat tree of weights around the
//!   default, as Safari had before RFC 9218, keep their order, but streams of the default weight have
//!   the urgency of a guess among them.
//! - Server push is not supported: each update of a push is an error of the connection.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "server")]
mod body;
#[cfg(feature = "server")]
mod client_certificate;
#[cfg(feature = "server")]
mod clock;
#[cfg(feature = "server")]
mod clocks;
#[cfg(feature = "compression")]
pub mod compression;
#[cfg(feature = "server")]
mod config;
mod control;
#[cfg(feature = "server")]
mod counter;
#[cfg(feature = "server")]
mod counters;
mod decision;
#[cfg(feature = "server")]
mod early_end;
#[cfg(feature = "server")]
mod early_hints;
#[cfg(feature = "server")]
mod encoding;
#[cfg(feature = "server")]
mod ending;
mod error_code;
#[cfg(feature = "server")]
pub mod files;
mod frames;
#[cfg(feature = "server")]
mod framing;
mod guess;
#[cfg(feature = "server")]
mod h1;
#[cfg(feature = "server")]
mod h2;
#[cfg(feature = "http3")]
mod h3;
#[cfg(feature = "server")]
mod handler;
#[cfg(feature = "server")]
mod head_timer;
#[cfg(feature = "server")]
mod hints;
#[cfg(feature = "server")]
mod inbox;
#[cfg(feature = "server")]
mod listener;
#[cfg(feature = "server")]
mod log_format;
#[cfg(feature = "metrics")]
mod metrics;
mod names;
#[cfg(all(test, feature = "full"))]
mod no_input_panics;
#[cfg(feature = "server")]
mod patience;
#[cfg(feature = "server")]
mod peer_addr;
#[cfg(feature = "server")]
mod place;
mod priority;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "server")]
mod proxy_header;
#[cfg(feature = "server")]
mod quic_listener;
#[cfg(feature = "server")]
mod rates;
#[cfg(feature = "server")]
mod record;
#[cfg(feature = "server")]
mod resets;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod server_name;
mod signals;
#[cfg(feature = "server")]
mod socket;
#[cfg(feature = "server")]
mod stage;
#[cfg(feature = "server")]
mod trace;
mod tree;
mod update;
#[cfg(feature = "watch")]
mod watch;
#[cfg(feature = "server")]
mod workers;

#[cfg(feature = "server")]
pub use body::{Body, BodyError};
#[cfg(feature = "server")]
pub use client_certificate::ClientCertificate;
#[cfg(feature = "server")]
pub use config::{Config, Limits, Log};
pub use control::ControlReader;
#[cfg(feature = "server")]
pub use counters::ServerCounters;
pub use decision::{Decision, Evidence, Source};
#[cfg(feature = "server")]
pub use early_hints::EarlyHints;
pub use error_code::ErrorCode;
pub use frames::{Event, FrameCounters, FrameReadError, FrameReader};
pub use guess::{Guess, GuessEntry, GuessTable, RequestHints, ResponseHints, TableError};
#[cfg(feature = "server")]
pub use handler::{BoxError, Content, WebService};
#[cfg(feature = "server")]
pub use listener::Listener;
#[cfg(feature = "server")]
pub use log_format::LogFormat;
#[cfg(feature = "server")]
pub use marcato_identity::{Identity, IdentityError, ServerIdentity};
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
#[cfg(feature = "server")]
pub use peer_addr::PeerAddr;
pub use priority::{FieldError, PriorityField};
#[cfg(feature = "server")]
pub use proxy_header::{ProxyHeader, ProxyHeaderError, ProxyVersion};
#[cfg(feature = "server")]
pub use rates::RateLimit;
#[cfg(feature = "server")]
pub use record::Record;
#[cfg(feature = "server")]
pub use server::Server;
#[cfg(feature = "server")]
pub use server_name::ServerName;
pub use signals::{Protocol, RequestError, SignalCounters, Signals, UnknownRequest, UpdateError};
#[cfg(feature = "server")]
pub use trace::Traces;
pub use tree::{Dependency, Tree, TreeChange, TreeCounters, Weight};
pub use update::{Http2UpdateError, Http3UpdateError, Update, Updates};
#[cfg(feature = "watch")]
pub use watch::{Watched, WatchedFuture};
#[cfg(feature = "server")]
pub use workers::Workers;

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
