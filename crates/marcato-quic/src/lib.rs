//! Multipath QUIC that sends the most important packets first.
//!
//! A session drives an unmodified `noq-proto` connection packet by packet. The Conductor chooses
//! the message whose bytes leave next, a lane scheduler chooses the lanes, and gated congestion
//! controllers enforce the choice in the engine. Nothing here opens a socket or reads a clock:
//! datagrams and the time are arguments.
#![forbid(unsafe_code)]

mod admission;
mod clock;
mod coalesced;
mod config;
mod controller;
mod coupled;
mod crypto;
mod endpoint;
#[cfg(test)]
mod engine;
mod event;
mod gate;
mod handshake;
pub mod inbox;
mod lane;
mod long;
mod low;
mod low_controller;
mod outbox;
mod pacer;
mod right_sizing;
mod scheduler;
mod session;
mod sockets;
mod steering;
mod strangers;
mod watch;

pub use admission::Pending;
pub use config::{
    BaseScheduler, Batch, Growth, Pacing, PathScheduler, SessionConfig, SessionConfigError, Stall, StreamUse,
};
pub use controller::Congestion;
pub use coupled::LaneCoupling;
pub use endpoint::{
    Arrival, ConnectError, Endpoint, EndpointConfig, EndpointError, EndpointStats, LocalSocket, ResetKey,
    SessionId, SocketId,
};
pub use event::{Event, LaneLoss, LowLaneChange, WindowChange};
pub use inbox::Piece;
pub use lane::{LaneRequest, LaneState, LaneStats};
pub use long::LongId;
pub use low::{LowLanes, Retry};
pub use marcato_identity::{Fingerprint, FingerprintError, Identity, IdentityError, Secrets, Trust};
pub use marcato_sched::conductor::MessageId;
pub use marcato_sched::coupled::Coupling;
pub use marcato_wire::MessageNumber;
pub use scheduler::SchedulerFactory;
pub use session::{
    Datagram, LaneError, MAX_NOTES, Message, SendError, Session, SessionLoad, SessionStats, Transmit,
};
pub use steering::Steering;
pub use watch::PriorityTest;
