//! Recorders of a run: histograms, series, summaries and captures.

mod headers;
mod histogram;
mod pcapng;
mod series;
mod summary;
mod tap;

pub(crate) use headers::{Headers, Transport};
pub use histogram::Histogram;
pub use series::{Series, SeriesError};
pub(crate) use summary::Watch;
pub use summary::{DelaySummary, FlowSummary};
pub(crate) use tap::Taps;
pub use tap::{Tap, TapError, TapPoint, TapStats};
