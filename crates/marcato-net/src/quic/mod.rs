//! Multipath QUIC: sessions of `marcato-quic` over UDP sockets, one for each lane.
//!
//! One task, a driver, drives all sessions that share sockets. The [`Hub`](hub::Hub) holds them, and
//! the state for the application's handles. A listening endpoint may have several drivers.

mod backlog;
mod connect;
mod driver;
mod drivers;
mod hub;
mod listener;
mod plain;
mod port;
mod program;
mod slab;
mod socket;
mod transport;

use std::net::SocketAddr;

use marcato_quic::{LaneRequest, Session, SessionConfig, SocketId};
use marcato_stream::CloseReason;
use marcato_units::{Priority, Time};
use marcato_wire::{ErrorCode, Manner};

use crate::config::{Config, LaneConfig};
use crate::error::ConfigError;
pub(crate) use connect::{ClientSockets, Data, connect};
pub(crate) use listener::Listener;

/// Closes a session with the reason of this end's application.
fn close(session: &mut Session, now: Time, manner: Manner, reason: &CloseReason) {
    session.close(now, ErrorCode::Application(manner, reason.code), &reason.text);
}

/// Returns the unspecified address of the family of `remote`.
fn any_address(remote: SocketAddr) -> SocketAddr {
    if remote.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() }
}

/// Returns the request for a lane by this socket.
fn request(socket: SocketId, lane: &LaneConfig) -> LaneRequest {
    LaneRequest { layer: lane.layer, backup: lane.backup, ..LaneRequest::new(socket, lane.remote) }
}

/// Returns the session's part of a configuration.
fn session_config(config: &Config) -> SessionConfig {
    let session = config.quic.session.clone();
    SessionConfig {
        conductor: config.conductor(),
        max_unfinished: config.limits.unfinished.saturating_mul(Priority::COUNT),
        datagrams: Some(config.limits.unreliable).filter(|most| !most.is_zero()),
        coupled: config.coupled,
        ..if config.quic.layered { session.layered() } else { session }
    }
}

/// Returns the address of the low lane that belongs to a high one: the next port.
fn low_address(addr: SocketAddr) -> Result<SocketAddr, ConfigError> {
    let port = addr.port().checked_add(1).ok_or(ConfigError::NoLowPort { addr })?;
    Ok(SocketAddr::new(addr.ip(), port))
}
