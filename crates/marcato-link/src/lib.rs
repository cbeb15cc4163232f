//! Models of what a link does to packets, besides queueing them: it loses some ([`Loss`]), delays
//! each differently ([`Jitter`]), or sends at recorded times instead of at a rate ([`Trace`]).
//!
//! The models have no clock. Their random numbers come from named streams, so each draw is that of
//! a seed. The simulator and the emulated links of the lab use the same types.
#![forbid(unsafe_code)]

mod gilbert_elliott;
mod jitter;
mod loss;
mod opportunities;
mod trace;

pub use gilbert_elliott::{GilbertElliott, GilbertElliottError};
pub use jitter::{Jitter, JitterError, JitterProcess};
pub use loss::{Loss, LossProcess};
pub use opportunities::Opportunities;
pub use trace::{Trace, TraceError};
