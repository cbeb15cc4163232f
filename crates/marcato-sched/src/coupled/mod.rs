//! Coupled mode: a bound on what is in flight while only background data waits, so that urgent data finds
//! the bottleneck's queue empty.
//!
//! A congestion control fills the bottleneck's queue by itself, and urgent data that comes later stands
//! behind it. CATS §VI names this as future work. The [`Governor`] looks at the round trips and the rate of
//! what is acknowledged, and says how much may be in flight: of background data, and of urgent data. It
//! is no congestion control: the engine below keeps its own, and the smaller of both bounds counts.
//!
//! What other senders put into the queue is not ours to remove. The governor notices them and steps
//! aside ([`Mode::Compete`]), or its own share would go to them.
//!
//! A controller like BBR gives up its window every ten seconds, to measure the least round trip, and urgent
//! data waits meanwhile. The governor notices that once, and then empties the pipe at such times itself, so that
//! the controller need not.
//!
//! ```
//! use marcato_sched::coupled::{Allowed, CoupledConfig, Demand, Governor, Mode, Sample};
//! use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};
//!
//! let mut governor = Governor::new(CoupledConfig::new(Bytes::new(1448)));
//! // At an acknowledgement:
//! let sample = Sample {
//!     delivered: Bytes::kb(3),
//!     in_flight: Bytes::kb(12),
//!     rtt: Some(Duration::from_millis(40)),
//!     back: Duration::ZERO,
//!     lost: false,
//!     urgent: false,
//! };
//! let transition = governor.sample(Time::from_millis(40), &sample);
//! assert_eq!((transition, governor.mode()), (None, Mode::Startup));
//! // Before background data is sent:
//! let demand = Demand { waiting: PrioritySet::one(Priority::P4), outstanding: sample.in_flight };
//! let chunk = Bytes::new(1448);
//! assert_eq!(governor.room(demand, chunk), Allowed::Upto(chunk));
//! ```
//!
//! # Files and users
//!
//! `governor` is the state machine, `fast` moves the cap while all of the queue is our own, `lift` raises it to see
//! whether it was a bound, `meter` and `train` estimate rates, `noise` what no queue explains, `way_back` and `clock` the
//! queue of acknowledgements, `probe` empties the path before BBR would, and `switch` tells when an engine
//! applies the cap. The governor knows bytes, times and whether anything urgent waits, and no engine. Three
//! adapters ask it:
//!
//! | engine | place | samples | what holds data back |
//! |---|---|---|---|
//! | simulated TCP | `marcato-sim/src/app/coupled.rs`, `Feeder::run_within` | each acknowledgement | the feeder |
//! | QUIC | `marcato-quic/src/coupled.rs`, one for each high lane | each acknowledged packet of at least half the full size | a lane at its cap looks full |
//! | kernel TCP | `marcato-net/src/tcp/coupled.rs`; in slow start `pacer.rs` | `TCP_INFO`, each millisecond while data is held | the driver, before it asks for a chunk |
//!
//! - *Urgent is what the Conductor has, not what it grants.* While an urgent level pays its debt, background
//!   is granted. It then counts as urgent, or both would wait for each other.
//! - *The engine's last chunk counts.* "Only background waits" includes what the engine has taken and not
//!   sent.
//! - *One chunk always leaves* if nothing is outstanding, as no acknowledgement would come otherwise.
//! - *Urgent data does not pass a congestion window* over TCP, where engines stay unmodified. A QUIC session
//!   may use the largest window since the last congestion, up to the cap. RFC 9002 §7 forbids more, and a
//!   bound from the measured rate is stale after a loss.
//! - *In web pages P0 alone is urgent* (`LeanSocket::with_urgent` of `marcato-net`). Their large images are
//!   P1, and would fill the queue before a stylesheet that is asked for later. Elsewhere P0 and P1 are
//!   urgent.

mod clock;
mod competing;
mod config;
mod demand;
mod fast;
mod governor;
mod lift;
mod lift_clock;
mod meter;
mod mode;
mod noise;
mod path;
mod probe;
mod round;
mod sample;
mod startup;
mod state;
mod steady;
mod switch;
mod test_clock;
mod train;
mod way_back;

pub use clock::{OwnClock, PeerClock};
pub use config::CoupledConfig;
pub use demand::{Allowance, Allowed, Demand};
pub use governor::Governor;
pub use mode::{Counters, Mode, Transition};
pub use sample::Sample;
pub use switch::Coupling;
pub use way_back::WayBack;
