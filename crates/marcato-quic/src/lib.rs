//! Multipath QUIC whose packets leave in the order that matters.
//!
//! A session drives an unmodified `noq-proto` connection packet by packet: the Conductor says whose bytes leave next, a
//! lane scheduler says on which lanes, and gated congestion controllers make the engine obey. Nothing here opens a
//! socket or reads a clock: datagrams and the time come in as arguments.
#![forbid(unsafe_code)]

mod controller;
#[cfg(test)]
mod engine;
#[cfg_attr(not(test), expect(dead_code, reason = "the session that drives the engine is to come"))]
mod gate;

pub use controller::Congestion;
