//! Tests of the web plane.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bounds;
mod closing;
mod compression;
mod files;
mod http3;
mod listeners;
mod log;
mod metrics;
mod order;
mod patience;
mod proxy;
#[cfg(feature = "server")]
mod receiver;
mod rules;
mod server;
mod soak;
mod strict;
mod support;
mod watch;
mod websocket;
mod wire;
