//! Multipath QUIC that sends the most important packets first.
//!
//! A session drives an unmodified `noq-proto` connection packet by packet. The Conductor chooses
//! the message whose bytes leave next, a lane scheduler chooses the lanes, and a gate in each
//! congestion controller enforces the choice: a shut gate answers that the window is full. Nothing here opens a socket or reads a clock:
//! datagrams and the time are arguments.
//!
//! # Control of the engine
//!
//! The engine has no hook for scheduling. It walks its paths in order and fills packets from any stream that
//! has data. Two mechanisms control it from outside:
//!
//! - *Gates.* Before the engine builds a packet, it asks the path's congestion controller for its window.
//!   Each controller stands behind a gate, and a shut gate answers zero. One lane is open at a time. The gate
//!   also logs what the engine reports: packets sent, acknowledged, lost. So the session knows the fate of
//!   every packet.
//! - *Just-in-time writing.* The session writes to the engine only what leaves at once: one packet, or a
//!   batch of one message on one lane if nothing more urgent could overtake it within 200 µs.
//!
//! # Behaviour of the engine that users meet
//!
//! This holds for `noq-proto` 1.4.0. Tests in `src/engine/` and in the simulator pin it, unless noted.
//!
//! - Acknowledgements of all paths leave on the lowest path that is not a backup. The round trip of a lane is
//!   therefore its own forward delay and the return delay of the lowest lane. For the quickest
//!   acknowledgements, put the quickest lane first.
//! - Data in flight on a dead path stays there until the path is closed. The session sends it again
//!   elsewhere.
//! - A key update loses packets of a slower path that are still in flight. It happens early in a connection
//!   and rarely later.
//! - More than 2048 unread frames of one stream end the connection. The session reads at once. Only a reader
//!   that stops for long lets frames wait, within the stream's window.
//! - All paths share one spin bit, and a quarter of all connections do not show it.
//! - If an address change could not be validated because the answer was lost, the engine never asks again
//!   (seen in scenario tests; no test of its own).
//! - A path that is closed before the peer has heard of it is never discarded, because the peer does not
//!   answer. The session drops it, and keeps the only usable lane while another one is being opened.
//! - The engine loses bytes that it acknowledges if a stream is read out of order and one packet carries two
//!   dozen or more small frames of it. While retransmissions are pending, the session therefore fills packets
//!   until the engine adds no slivers. A few lost packets of 1200 bytes that are retransmitted in one of 9000
//!   suffice, too (seen over loopback sockets with losses). Packets on the loopback interface therefore have
//!   4096 bytes from the beginning, and no probe exceeds Ethernet's packets.
#![cfg_attr(docsrs, feature(doc_cfg))]
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
mod layer_test;
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
pub mod streams;

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
pub use layer_test::PriorityTest;
pub use long::LongId;
pub use low::{LowLanes, Retry};
pub use marcato_identity::{Fingerprint, FingerprintError, Identity, IdentityError, Secrets, Trust};
pub use marcato_sched::conductor::MessageId;
pub use marcato_sched::coupled::Coupling;
pub use marcato_wire::MessageNumber;
pub use scheduler::SchedulerFactory;
pub use session::{
    Closed, Datagram, LaneError, MAX_NOTES, Message, SendError, Session, SessionLoad, SessionStats, Transmit,
};
pub use steering::Steering;
pub use streams::Protocol;

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
