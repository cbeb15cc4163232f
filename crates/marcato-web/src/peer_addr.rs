//! Address of the client, as a request's extension.

use std::net::SocketAddr;

/// Address of the client, which every request has as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);
