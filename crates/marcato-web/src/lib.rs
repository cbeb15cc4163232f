//! Signals of HTTP: the urgency of each response, and the source of that urgency.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod error_code;
mod frames;
mod priority;
mod tree;
mod update;

pub use error_code::ErrorCode;
pub use frames::{Event, FrameCounters, FrameReadError, FrameReader};
pub use priority::{FieldError, PriorityField};
pub use tree::{Dependency, Tree, TreeChange, TreeCounters, Weight};
pub use update::{Http2UpdateError, Http3UpdateError, Update, Updates};
