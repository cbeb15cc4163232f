//! A route of a datagram flow: a way through the network, and an address at each end of it.

use std::net::{IpAddr, SocketAddr};

use marcato_units::{Bytes, Duration, Layer};

use crate::packet::Side;
use crate::topology::{NodeId, RouteError};

/// Most routes that a datagram flow may have.
pub const MAX_ROUTES: usize = 16;

/// Names a route of a datagram flow. Routes are numbered from 0, below [`MAX_ROUTES`], in the order in which they were
/// added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub(crate) u8);

impl RouteId {
    /// The route with this number. If a flow has none such, what is to go by it is unroutable.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// The route's number, for arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A route, as it shall be: which interfaces it joins and how the network serves it.
///
/// An interface is a node, so a host with two of them is two nodes. In each direction the packets take the way with the
/// fewest links, the first of equals. Two routes may join the same nodes: they then share the way and the IP addresses
/// and differ in their ports, as two lanes on one path do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The client's interface.
    pub client: NodeId,
    /// The server's interface.
    pub server: NodeId,
    /// The class in which the network serves the route's packets, in both directions.
    pub layer: Layer,
}

impl Route {
    /// A route of the high layer.
    pub const fn new(client: NodeId, server: NodeId) -> Self {
        Self { client, server, layer: Layer::High }
    }

    /// In this layer.
    #[must_use]
    pub const fn layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }
}

/// Why a route cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddRouteError {
    /// No links join the two nodes.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The flow has as many routes as can be.
    #[error("a datagram flow has at most {MAX_ROUTES} routes: use fewer")]
    TooMany,
    /// The flow is of TCP, or sends UDP in one direction only.
    #[error("only a datagram flow has routes: add the flow by Network::datagrams")]
    NotDatagrams,
    /// A node has given out all its ports, or there are more nodes than IPv4 addresses for them.
    #[error("no address is left at {node}: use more nodes, or IPv6")]
    NoAddress {
        /// The node's name.
        node: String,
    },
}

/// Why an end of a route cannot be given another address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebindError {
    /// There is no such route: the flow has fewer, or is no datagram flow.
    #[error("the flow has no such route: name one that it was given")]
    NoSuchRoute,
    /// All ports or addresses have been given out.
    #[error("no address is left at {node}: rebind less often")]
    NoAddress {
        /// The node's name.
        node: String,
    },
}

/// What one end of a datagram flow has sent over a route, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that the other end was given.
    pub arrived: u64,
    /// Those of them that arrived with a mark. RFC 3168.
    pub marked: u64,
    /// Datagrams that came to an address which the other end had no longer, and were dropped there.
    pub misdirected: u64,
    /// Payload that arrived.
    pub bytes: Bytes,
    /// Sum of the one-way delays of what arrived.
    pub delay_sum: Duration,
    /// Greatest one-way delay of what arrived.
    pub delay_max: Duration,
}

/// The way of a flow's packets.
#[derive(Clone)]
pub(crate) struct Path {
    pub(crate) layer: Layer,
    /// Links from each end to the other.
    pub(crate) links: [Vec<u32>; 2],
}

/// Where a route ends, and what it is called there.
pub(crate) struct RouteEnd {
    pub(crate) node: NodeId,
    /// The address that the host has, and then all that a NAT has put in its place: the last is the one in use.
    addresses: Vec<SocketAddr>,
    /// What this end has sent.
    pub(crate) stats: RouteStats,
}

impl RouteEnd {
    pub(crate) fn new(node: NodeId, local: SocketAddr) -> Self {
        Self { node, addresses: vec![local], stats: RouteStats::default() }
    }

    /// The address that the host itself knows.
    pub(crate) fn local(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Which address the other end sees.
    pub(crate) fn current(&self) -> u32 {
        crate::topology::id(self.addresses.len() - 1)
    }

    /// The address that the other end sees.
    pub(crate) fn public(&self) -> SocketAddr {
        self.address(self.current())
    }

    /// The address with this number.
    pub(crate) fn address(&self, number: u32) -> SocketAddr {
        self.addresses[number as usize]
    }

    /// The number of an address that this end has or has had in public.
    pub(crate) fn number(&self, address: SocketAddr) -> Option<u32> {
        self.addresses.iter().rposition(|&a| a == address).map(crate::topology::id)
    }

    pub(crate) fn rebind(&mut self, address: SocketAddr) {
        self.addresses.push(address);
    }
}

/// A route under way: its end at the client and its end at the server.
pub(crate) type RouteEnds = [RouteEnd; 2];

/// The route by which the host at `side` reaches `remote`, and the number of that address.
pub(crate) fn find(
    routes: &[RouteEnds],
    side: Side,
    remote: SocketAddr,
    local: Option<IpAddr>,
) -> Option<(RouteId, u32)> {
    (0u8..).zip(routes).find_map(|(route, ends)| {
        let number = ends[side.peer().index()].number(remote)?;
        let here = ends[side.index()].local().ip();
        local.is_none_or(|local| local == here).then_some((RouteId(route), number))
    })
}
