//! Counters of a lane.

use marcato_units::Bytes;

/// Counters of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Ack-eliciting packets sent.
    pub packets: u64,
    /// Bytes of those packets, including retransmissions.
    pub bytes: Bytes,
    /// Bytes of acknowledged packets.
    pub acked: Bytes,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets with data that the engine retransmitted.
    pub repairs: u64,
    /// Reductions of the congestion window.
    pub reductions: u64,
    /// Times that the lane was declared stalled.
    pub stalls: u64,
}
