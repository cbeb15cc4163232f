//! The papers that Marcato implements, as experiments that anybody can run again.
//!
//! An [`Experiment`] runs and hands back a [`Report`]: a [`Document`] of [`Row`]s, each with the value that the
//! paper prints, the value measured and the band in which the measured value has to lie; and sections of text
//! and figures around them. JSON, CSV, text and HTML are all written from the same rows.
//!
//! The same experiment, seed and version give the same bytes, but where QUIC's BBRv3 has part, which draws from the
//! operating system, and on platforms whose cube root QUIC's CUBIC rounds differently. There is
//! no wall time, host name or path in any output.
//!
//! ```
//! use marcato_papers::{Document, Row, RunOptions, Unit};
//!
//! let row = Row::new("cats.table1.cats.p0", "P0 complete, CATS", Unit::Ms)
//!     .paper(130.0)
//!     .measured(130.4)
//!     .within_percent(1.0);
//! assert_eq!(row.ok(), Some(true));
//!
//! let document = Document::new("cats", &RunOptions::default()).row(row);
//! assert!(document.holds());
//! ```
#![forbid(unsafe_code)]

// Tests in here share what those outside use.
#[cfg(test)]
extern crate self as marcato_papers;

mod answer;
mod cats;
pub mod chart;
mod config;
pub mod crq;
mod csv;
pub mod cwr;
mod document;
mod experiment;
mod file;
mod html;
mod markup;
pub mod page;
mod plan;
mod plt;
mod pool;
mod registry;
mod repeat;
mod report;
mod row;
mod scorecard;
mod statistics;
mod text;
mod unit;
mod validate;
mod world;

pub use cats::{Cats, page as cats_page};
pub use config::Config;
pub use crq::Crq;
pub use cwr::Cwr;
pub use document::{Count, Document};
pub use experiment::{Experiment, Progress, RunError, RunOptions, SeedError, Silent};
pub use file::AtomicFile;
pub use plan::Shelf;
pub use plt::Plt;
pub use registry::{Registry, SelectError, registry};
pub use repeat::over_seeds;
pub use report::{Figure, Report, Section, WriteError};
pub use row::Row;
pub use statistics::{Mean, Percentile, Samples, student_t};
pub use unit::Unit;
pub use validate::Validate;
pub use world::World;

/// The version of Marcato that this crate belongs to.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this crate was built from, or `unknown` where git could not tell.
/// `MARCATO_COMMIT`, set while building, overrides it. Changes that are not committed do not show in it.
pub const COMMIT: &str = env!("MARCATO_COMMIT");
