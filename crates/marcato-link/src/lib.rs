//! Models of what a link does to packets, besides queueing them: it loses some ([`Loss`]), delays
//! each differently ([`Jitter`]), duplicates some ([`Impairments`] has all three), or sends at recorded times instead of at a rate ([`Trace`]).
//!
//! The models have no clock. Their random numbers come from named streams, so each draw is that of
//! a seed. The simulator and the emulated links of the lab use the same types.
#![forbid(unsafe_code)]

mod gilbert_elliott;
mod impairments;
mod jitter;
mod loss;
mod opportunities;
mod trace;

pub use gilbert_elliott::{GilbertElliott, GilbertElliottError};
pub use impairments::{Arrival, Impairments};
pub use jitter::{Jitter, JitterError};
pub use loss::Loss;
pub use opportunities::Opportunities;
pub use trace::{Trace, TraceError};
