//! Tests of connections over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod admission;
mod cancel;
mod common;
mod coupled;
mod drivers;
mod early;
mod ends;
mod engines;
mod examples;
mod identity;
mod lanes;
mod lean;
mod limits;
mod liveness;
mod marks;
mod metrics;
mod modules;
mod pieces;
mod qlog;
mod receipts;
mod reconnecting;
mod requests;
mod resumption;
mod soak;
mod streams;
mod trust;
mod unreliable;
