//! Models of what a link does to packets, besides queueing them: it loses some ([`Loss`]), delays
//! each differently ([`Jitter`]), duplicates some ([`Impairments`] has all three), or sends at
//! recorded times instead of at a rate ([`Trace`]). A link is a queue, a [`Transmitter`] and a [`Wire`].
//!
//! Records of what it did: its [`Load`], the [`Occupancy`] of its queue, delays as a [`Histogram`]
//! with its [`DelaySummary`], and captures ([`Capture`], [`pcapng`]).
//!
//! Nothing here has a clock. Random numbers come from named streams, so each draw is that of a seed.
//! The simulator and the emulated links of the lab use the same types.
#![forbid(unsafe_code)]

mod capture;
mod delay;
mod gilbert_elliott;
mod histogram;
mod impairments;
mod jitter;
mod line;
mod load;
mod loss;
mod occupancy;
mod opportunities;
pub mod pcapng;
mod trace;
mod transmitter;
mod wire;

pub use capture::Capture;
pub use delay::DelaySummary;
pub use gilbert_elliott::{GilbertElliott, GilbertElliottError};
pub use histogram::Histogram;
pub use impairments::{Arrival, Impairments};
pub use jitter::{Jitter, JitterError};
pub use line::Moment;
pub use load::{Course, Load};
pub use loss::Loss;
pub use occupancy::{Occupancy, Waiting};
pub use opportunities::Opportunities;
pub use trace::{Trace, TraceError};
pub use transmitter::Transmitter;
pub use wire::Wire;
