//! What an experiment is: hosts, links, queues, traffic, seeds, outputs and grids, read from strict TOML.
//!
//! A [`Scenario`] is a file; an [`Experiment`] is one run of it, completely said, for a simulator or an emulator to
//! build. This crate knows neither: its types are plain, and whoever runs them converts.
//!
//! Reading is strict: a key that nothing reads, a quantity without its unit or a name that leads nowhere is an error.
//! All that is wrong with a file is told at once, each thing with its line, its column and what to do about it.
#![forbid(unsafe_code)]

mod chance;
mod check;
mod cut;
mod document;
mod experiment;
mod explain;
mod fault;
pub mod flow;
mod grid;
mod keys;
pub mod limit;
pub mod link;
mod nearest;
mod number;
pub mod path;
mod quantity;
pub mod queue;
pub mod quic;
mod read;
pub mod record;
mod scenario;
pub mod schema;
mod setting;
pub mod sizes;
pub mod tcp;
mod topology;
pub mod trace;
pub mod traffic;
mod warning;
mod write;

pub use experiment::Experiment;
pub use explain::explain;
pub use fault::{Fault, ScenarioError};
pub use number::Number;
pub use scenario::{Overrides, Run, Runs, Scenario, Setting};
