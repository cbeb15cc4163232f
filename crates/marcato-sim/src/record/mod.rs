//! Recorders of a run: histograms, series, summaries and captures.

mod headers;
mod series;
mod summary;
mod tap;

pub(crate) use headers::{Headers, Transport};
pub use series::{Series, SeriesError};
pub use summary::FlowSummary;
pub(crate) use summary::Watch;
pub(crate) use tap::Taps;
pub use tap::{Tap, TapError, TapPoint, TapStats};
