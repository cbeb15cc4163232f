//! Signals of HTTP: the urgency of each response, and the source of that urgency.
//!
//! **There is no server yet.** This crate holds what servers of HTTP/2 and HTTP/3 need to know about
//! a response before they can order it. It opens no socket, reads no clock and stores no content. The
//! order itself is that of [`marcato_sched::exchange`].
//!
//! | signal | reader |
//! |---|---|
//! | `priority` field of a request or response (RFC 9218 §5) | [`PriorityField`] |
//! | PRIORITY_UPDATE of HTTP/2 and HTTP/3 (RFC 9218 §7) | [`Update`] |
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
//!     exchange.reprioritise(stream, decision.parameters)?;
//! }
//!
//! exchange.supply(image, Bytes::kb(60))?;
//! exchange.supply(style, Bytes::kb(25))?;
//! assert_eq!(exchange.grant(Bytes::new(1400)).map(|grant| grant.stream), Some(style));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//! - Weights are read as Chromium and Firefox use them. Clients with a flat tree of weights around the
//!   default, as Safari had before RFC 9218, keep their order, but streams of the default weight have
//!   the urgency of a guess among them.
//! - Server push is not supported: each update of a push is an error of the connection.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod decision;
mod error_code;
mod frames;
mod guess;
mod priority;
mod signals;
mod tree;
mod update;

pub use decision::{Decision, Evidence, Source};
pub use error_code::ErrorCode;
pub use frames::{Event, FrameCounters, FrameReadError, FrameReader};
pub use guess::{Guess, GuessTable, RequestHints, ResponseHints, TableError};
pub use priority::{FieldError, PriorityField};
pub use signals::{Protocol, RequestError, SignalCounters, Signals, UnknownRequest, UpdateError};
pub use tree::{Dependency, Tree, TreeChange, TreeCounters, Weight};
pub use update::{Http2UpdateError, Http3UpdateError, Update, Updates};
