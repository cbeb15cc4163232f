//! QUIC in virtual time: sessions of [`marcato_quic`] as hosts of a datagram flow.

mod app;
mod collector;
mod host;
mod traffic;

pub use app::{QuicApp, QuicContext};
pub use collector::{Completion, MessageCollector, SOURCE_BULK};
pub use host::{QuicHost, QuicRole};
pub use traffic::{Background, Periodic, Release, Traffic};
