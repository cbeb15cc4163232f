//! Error of changing lanes.

use std::net::SocketAddr;

/// Error returned when a lane cannot be opened, removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// This end is a server; only clients open paths.
    #[error("a server cannot open a lane: let the client do it")]
    NotAClient,
    /// The limit of lanes, open or waiting to be opened, is reached.
    #[error("the session has its maximum of {limit} lanes: remove one first")]
    TooMany {
        /// [`SessionConfig::max_lanes`](crate::SessionConfig::max_lanes).
        limit: u8,
    },
    /// Another lane has the same remote address, so the two would be indistinguishable.
    #[error("another lane already uses {remote}: give each lane its own port at both ends")]
    SameRemote {
        /// Remote address of both lanes.
        remote: SocketAddr,
    },
    /// There is no lane with this identifier.
    #[error("there is no such lane")]
    Unknown,
    /// No other lane is up.
    #[error("no other lane is up: wait for one, or close the session")]
    Last,
    /// The engine refused the operation.
    #[error("the engine reports an error: {0}")]
    Engine(String),
}
