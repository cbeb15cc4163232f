//! What an experiment is: hosts, links, queues, traffic, seeds, outputs and grids, read from strict TOML.
//!
//! A [`Scenario`] is a file; an [`Experiment`] is one run of it, completely said, for a simulator or an emulator to
//! build. This crate knows neither: its types are plain, and whoever runs them converts.
//!
//! Reading is strict: a key that nothing reads, a quantity without its unit or a name that leads nowhere is an error.
//! All that is wrong with a file is told at once, each thing with its line, its column and what to do about it.
#![forbid(unsafe_code)]

mod experiment;
mod fault;
pub mod flow;
pub mod link;
pub mod queue;
pub mod quic;
pub mod record;
mod scenario;
pub mod tcp;
pub mod traffic;

pub use experiment::Experiment;
pub use fault::{Fault, ScenarioError};
pub use scenario::{Overrides, Run, Runs, Scenario, Setting};
