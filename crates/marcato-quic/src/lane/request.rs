//! Request for a lane.

use std::net::SocketAddr;

use marcato_units::Layer;

use crate::controller::Congestion;
use crate::endpoint::SocketId;

/// Request of a client for a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneRequest {
    /// Socket that its packets leave by.
    pub socket: SocketId,
    /// Remote address. No other lane of the session may have the same one: only this address tells
    /// lanes apart when a packet leaves. Two lanes between the same hosts need two ports at both
    /// ends.
    pub remote: SocketAddr,
    /// Class in which the network should serve it.
    pub layer: Layer,
    /// Congestion controller; the session's if `None`.
    pub congestion: Option<Congestion>,
    /// Restricts the lane to times when no other is available.
    pub backup: bool,
}

impl LaneRequest {
    /// Creates a request for an ordinary lane of the high layer.
    pub const fn new(socket: SocketId, remote: SocketAddr) -> Self {
        Self { socket, remote, layer: Layer::High, congestion: None, backup: false }
    }
}
