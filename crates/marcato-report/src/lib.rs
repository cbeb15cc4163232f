//! Results of runs: rows, statistics, charts and tables, written as text, CSV, JSON and one HTML
//! file.
//!
//! A [`Report`] is a [`Document`] of [`Row`]s with sections of text, tables and figures around
//! them. Each row has an id, a unit and the measured value. Some rows also have the published
//! value, and a band that the measured value must lie in. All output formats are written from the
//! same rows.
//!
//! Equal rows and sections give equal bytes. Results contain no wall-clock times, host names
//! or paths.
//!
//! ```
//! use marcato_report::{Document, Provenance, Row, Unit};
//!
//! let row = Row::new("cats.table1.cats.p0", "P0 complete, CATS", Unit::Ms)
//!     .paper(130.0)
//!     .measured(130.4)
//!     .within_percent(1.0);
//! assert_eq!(row.ok(), Some(true));
//!
//! let document = Document::new("cats", Provenance::of_seeds([1])).row(row);
//! assert!(document.holds());
//! ```
#![forbid(unsafe_code)]

pub mod chart;
mod config;
mod csv;
mod document;
mod file;
mod html;
mod markup;
pub mod page;
mod provenance;
mod report;
mod row;
mod scorecard;
mod statistics;
mod text;
mod unit;
mod world;

pub use config::Config;
pub use document::{Count, Document};
pub use file::AtomicFile;
pub use provenance::Provenance;
pub use report::{Figure, Report, Section, WriteError};
pub use row::Row;
pub use statistics::{Mean, Percentile, Samples, student_t};
pub use unit::Unit;
pub use world::World;

/// Version of Marcato that this crate belongs to.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit that this crate was built from, or `unknown` if git did not report one. `MARCATO_COMMIT`,
/// set during the build, overrides it. Uncommitted changes do not show in it.
pub const COMMIT: &str = env!("MARCATO_COMMIT");

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
