//! TCP in virtual time, without sockets or clocks: a state machine from segments and times to
//! segments and times.
//!
//! Sources: RFC 9293 (TCP), RFC 5681 and 6675 (congestion control, SACK recovery), RFC 6298
//! (timer), RFC 6937 (proportional rate reduction), RFC 8985 (RACK-TLP), RFC 2883 (DSACK), RFC 7323
//! (timestamps, window scale), RFC 3168 (ECN), RFC 3522, 4015 and 5682 (spurious losses), RFC 9406
//! (HyStart++).
//!
//! `connection` joins the two halves of an end, `sender` and `receiver`. The sender joins its parts, each
//! with its rules: `send_buffer`, `segmentation`, `peer_window`, `window` with [`congestion`] control,
//! `pacing`, `timers`, `samples`, and `recovery` with the `scoreboard`. Internal sequence numbers have 64 bits and start at 0 with the SYN;
//! only [`Segment`]s carry the 32 bits of the wire.
//!
//! Not implemented: urgent data, simultaneous open, and the end of TIME-WAIT.

mod config;
pub mod congestion;
mod connection;
pub(crate) mod options;
mod pacing;
mod peer_window;
mod prr;
mod rack;
mod rate;
mod receiver;
mod recovery;
mod right_sizing;
pub(crate) mod rto;
mod samples;
mod scoreboard;
mod segment;
mod segmentation;
mod send_buffer;
mod sender;
#[cfg(test)]
mod tests;
mod timers;
mod tlp;
mod undo;
mod usage;
mod window;

pub use config::{TcpConfigError, TcpEnd};
pub use congestion::CongestionFactory;
pub use connection::TcpStats;
pub(crate) use connection::{Connection, Delivered, SynOptions};
pub use marcato_scenario::tcp::{
    Congestion, Cubic, DelayedAck, Fast, Growth, LossDetection, Nagle, PriorityOption, SlowStart, Tcp,
    TcpError,
};
pub use rate::RateSample;
pub use segment::{Flags, SackBlocks, Segment};
pub(crate) use segment::{TCP_HEADER, TIMESTAMPS};
