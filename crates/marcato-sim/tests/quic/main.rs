//! Tests of `marcato-quic` sessions in virtual time.
//!
//! Each test states its bounds. Where a bound is not exact, a comment explains the difference.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod coupled;
mod debts;
mod lanes;
mod layered;
mod messages;
mod periodic;
mod sessions;
mod steering;
mod timing;
