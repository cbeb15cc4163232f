//! Tests of the command `marcato`, apart from those that need a lab or time processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cut_short;
mod documented;
mod handover;
mod papers;
mod process;
mod serve;
mod sim;
mod validate;
