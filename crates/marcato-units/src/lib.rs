//! Units of all Marcato crates: [`Time`], [`Bytes`], [`Rate`], and random numbers that are [seeded
//! and named](Seed).
//!
//! [`Priority`] and [`Layer`] are here as well: the wire formats, the schedulers and the queues
//! share them, and none of those crates needs another for them.
//!
//! All of them are integers, so that the same inputs give the same outputs on every machine. Spans
//! of time are [`core::time::Duration`]; [`Time`] is an instant on the clock of the run.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod bytes;
mod layer;
mod priority;
mod random;
mod rate;
mod time;
mod words;

pub use bytes::Bytes;
pub use core::time::Duration;
pub use layer::Layer;
pub use priority::{Priority, PrioritySet};
pub use random::{Seed, Stream};
pub use rate::Rate;
pub use time::Time;
pub use words::{Word, Worded};

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
