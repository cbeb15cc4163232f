//! Results of scenarios: tables, documents, Parquet files, charts and reports.
//!
//! The command line and the Python package both write the results of runs. They share this crate,
//! so that their values agree to the last bit. It runs nothing to its end.
//!
//! - [`Tables`]: the tables of a run, each a [`Frame`], which becomes CSV, JSON or
//!   [Parquet](parquet).
//! - [`document::json`]: the document of a run; [`numbers()`] names each number in it.
//! - [`RunFiles`]: files that grow during a run; [`write()`]: files of a completed run.
//! - [`Claims`]: claims about these numbers, checked before a run and judged after it.
//! - [`report`], [`chart`], [`sheet`]: pages, figures and tables for people.
#![forbid(unsafe_code)]

pub mod chart;
pub mod claims;
mod completions;
pub mod document;
mod expression;
pub mod figures;
mod files;
mod fingerprint;
mod frame;
mod numbers;
pub mod parquet;
pub mod report;
mod scaled;
pub mod sheet;
mod tables;
mod traces;

pub use claims::{Claims, Judged, Verdict};
pub use completions::CompletionRows;
pub use expression::Expression;
pub use files::{FileError, RunFiles, write};
pub use fingerprint::fingerprint;
pub use frame::{Cells, Column, Frame, Row};
pub use numbers::{Numbers, numbers};
pub use scaled::scaled;
pub use tables::{Tables, direction};
pub use traces::{TraceFileError, traces};
