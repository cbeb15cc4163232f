//! Datagram that a session or an endpoint wants to send.

use std::net::{IpAddr, SocketAddr};

use marcato_sched::lane::LaneId;
use marcato_units::Priority;

use crate::endpoint::SocketId;

/// Datagram to be sent; its bytes are at the end of the buffer given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Socket to send it from.
    pub socket: SocketId,
    /// Destination.
    pub to: SocketAddr,
    /// Source address; `None` for the socket's own, or the system's choice.
    pub from: Option<IpAddr>,
    /// ECN codepoint to send it with.
    pub ecn: marcato_wire::Ecn,
    /// Length in bytes, of all segments together.
    pub len: usize,
    /// Length of every segment except the last; `None` for a single datagram.
    pub segment: Option<usize>,
    /// Lane that it leaves on; `None` if its destination is that of no lane.
    pub lane: Option<LaneId>,
    /// Level for which the lane's packets are marked, by a mark of the network such as a DSCP; `None` before the lane
    /// has carried data.
    ///
    /// All packets of a lane have one level, which changes only while none is in flight: a packet that overtakes those
    /// before it looks like their loss (RFC 9002 §6.1.1, RFC 7657 §5.1).
    pub level: Option<Priority>,
}
