//! The sender's brain. The [`conductor`] holds messages in five queues and says, one chunk at a time, whose bytes
//! leave next; the [`feeder`] moves each chunk into whatever transport lies underneath, its [`feeder::Engine`].
//!
//! Nothing here does input or output, reads a clock or stores a byte of payload: the application keeps its bytes
//! by [`MessageId`], the Conductor counts them.
//!
//! ```
//! use marcato_sched::{Conductor, Config, Message};
//! use marcato_units::{Bytes, Priority, Time};
//!
//! let mut conductor = Conductor::new(Config::default())?;
//! let now = Time::ZERO;
//!
//! let photo = conductor.offer(now, Message::new(Bytes::kb(60), Priority::P3))?;
//! let style = conductor.offer(now, Message::new(Bytes::new(1200), Priority::P0))?;
//!
//! // The engine has room for 1000 bytes: they go to the more urgent message, although it came later.
//! let grant = conductor.grant(now, Bytes::new(1000)).expect("two messages wait");
//! assert_eq!((grant.message, grant.offset, grant.len, grant.fin), (style, Bytes::ZERO, Bytes::new(1000), false));
//!
//! // The engine took only 400 of them. The Conductor goes on as if it had granted 400.
//! conductor.refuse(grant, Bytes::new(400))?;
//! let grant = conductor.grant(now, Bytes::new(1000)).expect("two messages wait");
//! assert_eq!((grant.message, grant.offset, grant.len, grant.fin), (style, Bytes::new(400), Bytes::new(800), true));
//!
//! let grant = conductor.grant(now, Bytes::new(1000)).expect("the photo waits");
//! assert_eq!(grant.message, photo);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod conductor;
pub mod feeder;
pub mod lane;
pub mod learn;
#[cfg(feature = "alloc")]
pub mod order;
pub mod reserve;

pub use conductor::{Conductor, Config, Debt, Grant, Message, MessageId};
pub use feeder::{Engine, Feeder};
