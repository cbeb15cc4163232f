//! The sender's scheduler. The [`conductor`] holds messages in five queues and chooses, one chunk at
//! a time, the message that sends next. The [`feeder`] moves each chunk into the transport
//! underneath, its [`feeder::Engine`].
//!
//! On a connection with several lanes, a [`schedule`] chooses among them, from snapshots
//! ([`lane`]). It can keep congestion window free for periodic sources ([`reserve`]), which the
//! application declares or the scheduler [`learn`]s. A lane of the low layer has its own congestion
//! controller ([`lowprio`]). Engines that work stream by stream take their [`order`] from here, too.
//!
//! Responses of HTTP have no known length. An [`exchange`] orders them, by the same debts.
//!
//! Nothing here does input or output, reads a clock or stores a byte of payload. The application
//! keeps its bytes by [`MessageId`]; the Conductor stores lengths only.
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
//! // The engine has room for 1000 bytes: the more urgent message gets them, although offered later.
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
//!
//! # Lanes
//!
//! A lane is one path in one layer, with its own congestion window. Before each packet the session
//! passes the state of its lanes and the purpose of the packet, and gets the lane that takes it:
//!
//! ```
//! use marcato_sched::reserve::{Source, SourceKey};
//! use marcato_sched::schedule::{Choice, Cwr, CwrConfig, Fresh, LaneScheduler, Wait};
//! use marcato_sched::{LaneId, LaneView, Purpose};
//! use marcato_units::{Bytes, Duration, Priority, Time};
//!
//! let mut scheduler = Cwr::new(CwrConfig::paper())?;
//! // A sensor sends 3 kB every 100 ms, next at 40 ms.
//! let sensor = Source::new(Duration::from_millis(100), Bytes::kb(3), Time::from_millis(40));
//! scheduler.declare(SourceKey(1), sensor)?;
//!
//! // One lane with a window of 4 kB and a round trip of 50 ms. A background packet still fits ...
//! let id = LaneId::new(0).expect("there are sixteen");
//! let mut lane = LaneView::new(id, Bytes::kb(4), Duration::from_millis(50));
//! let background = Purpose::New(Fresh::new(1, Priority::P4, Bytes::kb(100)));
//! let now = Time::ZERO;
//! assert_eq!(scheduler.choose(now, &[lane], background, Bytes::kb(1)), Choice::One(id));
//! scheduler.sent(now, &lane, background, Bytes::kb(1));
//! lane.in_flight += Bytes::kb(1);
//!
//! // ... a second would still be in flight when the sensor sends.
//! assert_eq!(scheduler.choose(now, &[lane], background, Bytes::kb(1)), Choice::Wait(Wait::Reserved));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod conductor;
pub mod coupled;
#[cfg(feature = "alloc")]
pub mod exchange;
pub mod feeder;
pub mod lane;
pub mod learn;
mod ledger;
pub mod lowprio;
#[cfg(feature = "alloc")]
pub mod order;
pub mod reserve;
pub mod schedule;
#[cfg(feature = "alloc")]
pub mod streams;

pub use conductor::{Conductor, Config, Debt, Grant, Message, MessageId};
pub use feeder::{Engine, Feeder};
pub use lane::{LaneId, LaneSet, LaneView};
pub use lowprio::{Lcm, LcmConfig};
pub use schedule::{Choice, LaneScheduler, Purpose};

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
