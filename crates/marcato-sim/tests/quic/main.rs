//! Sessions of `marcato-quic` in virtual time.
//!
//! Each test states what it bounds. Where a bound is not exact, what makes up the difference stands beside it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod debts;
mod lanes;
mod layered;
mod messages;
mod periodic;
mod sessions;
mod steering;
mod timing;
