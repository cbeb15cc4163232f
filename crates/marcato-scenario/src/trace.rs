//! Traces that links follow.

pub use marcato_link::{Trace, TraceError};
