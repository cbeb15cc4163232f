//! Prioritised messages over one ordered byte stream, without input or output.
//!
//! A [`Sender`] holds messages in a Conductor and writes them as frames of `marcato/2`
//! (`docs/wire.md`), one chunk at a time. A [`Reader`] reads the frames of the peer. [`Inbound`]
//! assembles messages and holds them until the application takes them. The time is an argument, and
//! bytes go in and out of plain buffers. The same code therefore runs over the kernel's TCP
//! (`marcato-net`) and over a simulated one (`marcato-sim`).
//!
//! ```
//! use marcato_sched::conductor;
//! use marcato_stream::{Inbound, Limits, Message, NotDelivered, Pool, Reader, Sender, Ticket};
//! use marcato_units::{Priority, Time};
//!
//! /// Owner that does not ask for outcomes.
//! struct Ignore;
//! impl Ticket for Ignore {
//!     fn settle(self, _: Result<(), NotDelivered>) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::default();
//! let mut sender = Sender::new(conductor::Config::default(), limits)?;
//! let file = Message::new(vec![0; 5000]).with_priority(Priority::P4);
//! sender.offer(Time::ZERO, &file, Ignore)?;
//! sender.offer(Time::ZERO, &Message::new("hello").with_priority(Priority::P0), Ignore)?;
//!
//! let mut peer = Sender::<Ignore>::new(conductor::Config::default(), limits)?;
//! let (mut reader, mut inbound) = (Reader::new(), Inbound::new(limits, Pool::default()));
//! let mut chunk = Vec::new();
//! sender.fill(Time::ZERO, 1448, &mut chunk);
//! reader.feed(&chunk, &mut inbound, &mut peer)?;
//! // The line overtook the file, and arrived whole with the first chunk.
//! assert_eq!(inbound.take().map(|message| message.bytes), Some("hello".into()));
//! # Ok(())
//! # }
//! ```
//!
//! This crate is separate from `marcato-sched`, which needs no allocator and holds no bytes. Multipath QUIC
//! (`marcato-quic`, `marcato-net`) uses the inbound side, the limits, the admission and the errors of this
//! crate too.
#![forbid(unsafe_code)]

mod admission;
mod budget;
mod cause;
pub mod chunk;
mod close_reason;
mod error;
mod exchanges;
mod head;
mod inbound;
mod limits;
mod long;
mod message;
mod network;
mod pool;
mod reader;
mod sender;

pub use admission::{Admission, Admitted, NextPart, Receipt, Ticket};
pub use cause::Cause;
pub use chunk::ChunkRule;
pub use close_reason::CloseReason;
pub use error::{ChangeError, Closed, NotDelivered, SendError};
pub use exchanges::NoReply;
pub use head::{Answer, Head, Report};
pub use inbound::{Inbound, InboundCounters, LongNext, Missed, MissedReason, Overrun, Received};
pub use limits::{Held, Limits, LongMessages};
pub use long::LongId;
pub use message::Message;
pub use network::Network;
pub use pool::Pool;
pub use reader::{PeerError, Reader, ReaderNews};
pub use sender::{NotAwaited, Sender};

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
