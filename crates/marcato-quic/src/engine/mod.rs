//! Behaviour of the engine behind its gates, measured in virtual time.
//!
//! These tests record one version of `noq-proto` as it is. The session relies on some of these
//! facts and works around others; a test that fails with a new version names the one that changed.
//! `cargo test -p marcato-quic engine -- --nocapture` prints the measurements.

mod determinism;
mod keyed;
mod keys;
mod lanes;
mod pair;
mod shut;
mod steering;
mod streams;
mod window;
