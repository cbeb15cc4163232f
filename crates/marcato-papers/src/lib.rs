//! The papers that Marcato implements, as experiments that anybody can run again.
//!
//! An [`Experiment`] runs and returns a [`Report`](marcato_report::Report): rows, each with the
//! published value, the measured value and the band that it has to lie in, and sections of text and
//! figures around them.
//!
//! The same experiment, seed and version give the same bytes, with two exceptions: QUIC's BBRv3, which draws from the
//! operating system, and platforms whose cube root QUIC's CUBIC rounds differently.
#![forbid(unsafe_code)]

// Tests in here share what those outside use.
#[cfg(test)]
extern crate self as marcato_papers;

mod answer;
mod cats;
pub mod crq;
pub mod cwr;
mod error;
mod experiment;
mod plan;
mod plt;
mod pool;
mod registry;
mod repeat;
mod validate;

pub use cats::{Cats, page as cats_page};
pub use crq::Crq;
pub use cwr::Cwr;
pub use experiment::{Experiment, Progress, RunError, RunOptions, SeedError, Silent};
pub use plan::Shelf;
pub use plt::Plt;
pub use registry::{Registry, SelectError, registry};
pub use repeat::over_seeds;
pub use validate::Validate;
