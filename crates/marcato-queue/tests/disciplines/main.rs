//! Tests of the disciplines through their public interface, in virtual time.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::cast_possible_truncation, reason = "flows are few, and noise may be truncated")]

#[macro_use]
mod packet;

mod codel;
mod common;
mod crq;
mod droptail;
mod dualpi2;
mod filtered;
mod flight;
mod flows;
mod path;
mod pie;
mod policer;
mod properties;
mod red;
mod step_mark;
mod strict;
mod trap;
mod vectors;
