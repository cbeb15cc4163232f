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
//! use marcato_sched::coupled::{CoupledConfig, Governor, Mode, Sample};
//! use marcato_units::{Bytes, Duration, Time};
//!
//! let mut governor = Governor::new(CoupledConfig::new(Bytes::new(1448)));
//! // At an acknowledgement:
//! let sample = Sample {
//!     delivered: Bytes::kb(3),
//!     in_flight: Bytes::kb(12),
//!     rtt: Some(Duration::from_millis(40)),
//!     lost: false,
//!     urgent: false,
//! };
//! let transition = governor.sample(Time::from_millis(40), &sample);
//! assert_eq!((transition, governor.mode()), (None, Mode::Startup));
//! // Before background data is sent; `held` if it has to wait.
//! assert!(sample.in_flight + Bytes::new(1448) <= governor.allowance().background);
//! ```

mod governor;
mod meter;
mod mode;
mod probe;
mod rule;
mod switch;
mod train;

pub use governor::{Allowance, CoupledConfig, Governor, Sample};
pub use mode::{Counters, Mode, Transition};
pub use rule::{AnyRule, Copa, Fast, Round, Rule, Step};
pub use switch::Coupling;
