//! Experiments as data: hosts, links, queues, traffic, seeds, outputs and grids, read from strict
//! TOML.
//!
//! A [`Scenario`] is a file. An [`Experiment`] is one complete run of it, from which a simulator or
//! an emulator is built. This crate depends on neither: its types are plain, and each user converts
//! them.
//!
//! Reading is strict. An unknown key, a quantity without a unit and a name without a referent are
//! errors. All errors of a file are reported together, each with line, column and remedy.
//!
//! # Adding a key
//!
//! Each key is declared once, beside the type that it sets (`keyed!` of `marcato-document`): its name,
//! meaning, form and default. The reader, the writer, the schema and the reference follow from the declaration.
//! A file becomes a tree of `marcato-document`. Settings and grids, and topology shorthands, are applied to the
//! tree. It is then read and checked as a whole (`check`).
//!
//! 1. Add the field and its line to the declaration of its table.
//! 2. State in `chance.rs` whether it draws random numbers. Queues and congestion controls state it where
//!    they are declared.
//! 3. Show it in `explain.rs`, if the summary has it.
//! 4. Add the row of `docs/scenarios.md` that the failing test
//!    `every_key_has_the_meaning_and_default_of_its_declaration` prints.
//! 5. A new table also goes into `PLAIN` in `schema.rs`, unless it is a kind of an enum listed there.
#![forbid(unsafe_code)]

mod amount;
pub mod brief;
mod chance;
mod check;
mod chosen;
pub mod claim;
mod cut;
mod experiment;
mod explain;
mod fault;
pub mod figure;
pub mod flow;
mod grid;
mod kinded;
pub mod limit;
pub mod link;
mod names;
mod number;
pub mod path;
pub mod plugin;
pub mod preset;
pub mod queue;
pub mod quic;
mod quick;
mod read;
mod reader;
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
pub use fault::ScenarioError;
pub use marcato_document::{Fault, Place, nearest};
pub use number::Number;
pub use reader::Reader;
pub use scenario::{Overrides, Run, Runs, Scenario, Setting};
