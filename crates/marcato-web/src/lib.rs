//! Signals of HTTP: the urgency of each response, and the source of that urgency.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod priority;

pub use priority::{FieldError, PriorityField};
