//! Experiments that reproduce the papers that Marcato implements.
//!
//! An [`Experiment`] runs and returns a [`Report`](marcato_report::Report). Its rows have the
//! published value, the measured value and the band that the measured value must lie in. Sections
//! of text and figures explain them.
//!
//! Bytes of a report are a function of experiment, seed and version, with two exceptions: QUIC's
//! BBRv3 draws random numbers from the operating system, and QUIC's CUBIC depends on how the
//! platform rounds a cube root.
#![forbid(unsafe_code)]

// Lets modules that tests outside of the crate share refer to it by name.
#[cfg(test)]
extern crate self as marcato_papers;

mod answer;
mod carrier;
mod cats;
#[cfg(target_os = "linux")]
mod coupled;
pub mod crq;
pub mod cwr;
mod error;
mod experiment;
mod files;
#[cfg(target_os = "linux")]
mod lab;
mod paper;
mod plan;
mod plt;
mod pool;
mod prose;
mod registry;
mod repeat;
mod validate;
#[cfg(target_os = "linux")]
mod web;

pub use cats::{Cats, page as cats_page};
pub use experiment::{Experiment, Progress, RunError, RunOptions, SeedError, Silent};
pub use files::{File, Files, FilesError};
pub use plan::Shelf;
pub use registry::{Registry, SelectError, registry};
pub use repeat::over_seeds;
pub use validate::Validate;
#[cfg(target_os = "linux")]
pub use web::{Emulation, OpenPages, PageLoad, Web, WebDemo, WebDemoError, WebLoads};
