//! What the engine does behind its gates, measured in virtual time.
//!
//! These are facts about one version of `noq-proto`, not wishes. The session relies on some of them and works around
//! others; when one changes with a version, the test that fails says which. `cargo test -p marcato-quic engine --
//! --nocapture` prints what was measured.

mod determinism;
mod keyed;
mod keys;
mod lanes;
mod pair;
mod shut;
mod steering;
mod streams;
mod window;
