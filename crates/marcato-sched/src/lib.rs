//! The sender's brain. The [`conductor`] holds messages in five queues and says, one chunk at a time, whose bytes
//! leave next; the [`feeder`] moves each chunk into whatever transport lies underneath, its [`feeder::Engine`].
//!
//! Where a connection has several lanes, a [`schedule`] chooses among them, from snapshots ([`lane`]); room in a window
//! can be kept for sources that send periodically ([`reserve`]), of which the application tells or which it lets
//! [`learn`]. A lane of the low layer has a window of its own kind ([`lowprio`]). Engines that ask stream by stream get their [`order`] here too.
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
//!
//! # Lanes
//!
//! A lane is one path in one layer, with its own congestion window. Before each packet the session says how its lanes
//! are and what the packet is for, and is told which lane takes it:
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
pub mod lowprio;
#[cfg(feature = "alloc")]
pub mod order;
pub mod reserve;
pub mod schedule;

pub use conductor::{Conductor, Config, Debt, Grant, Message, MessageId};
pub use feeder::{Engine, Feeder};
pub use lane::{LaneId, LaneSet, LaneView};
pub use lowprio::{Lcm, LcmConfig};
pub use schedule::{Choice, LaneScheduler, Purpose};
