//! Route of a datagram flow: links through the network, with an address at each end.

use std::net::{IpAddr, SocketAddr};

use marcato_units::{Bytes, Duration, Layer};

use crate::packet::Side;
use crate::topology::{NodeId, RouteError};

/// Greatest number of routes of a datagram flow.
pub const MAX_ROUTES: usize = 16;

/// Identifier of a route of a datagram flow. Routes are numbered from 0, below [`MAX_ROUTES`], in
/// the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub(crate) u8);

impl RouteId {
    /// Identifier with this number. Datagrams for a number that the flow lacks are unroutable.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// Returns the route's number, for use as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Configuration of a route: the interfaces that it joins, and the layer that serves it.
///
/// An interface is a node, so a host with two interfaces is two nodes. In each direction the
/// packets take the way with the fewest links; of equal ways, the first. Two routes may join the
/// same nodes. They then share the links and the IP addresses and differ in their ports, as two
/// lanes on one path do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Client's interface.
    pub client: NodeId,
    /// Server's interface.
    pub server: NodeId,
    /// Class in which the network serves the route's packets, in both directions.
    pub layer: Layer,
}

impl Route {
    /// Route in the high layer.
    pub const fn new(client: NodeId, server: NodeId) -> Self {
        Self { client, server, layer: Layer::High }
    }

    /// Sets the layer.
    #[must_use]
    pub const fn layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }
}

/// Error returned for a route that cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddRouteError {
    /// No links join the two nodes.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The flow already has [`MAX_ROUTES`] routes.
    #[error("a datagram flow has at most {MAX_ROUTES} routes: use fewer")]
    TooMany,
    /// The flow is a TCP flow or a one-way UDP flow.
    #[error("only a datagram flow has routes: add the flow with Network::datagrams")]
    NotDatagrams,
    /// A node has no ports left, or there are more nodes than IPv4 addresses for them.
    #[error("all addresses of {node} are in use: use more nodes, or IPv6")]
    NoAddress {
        /// Name of the node.
        node: String,
    },
}

/// Error returned if an end of a route cannot be given another address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebindError {
    /// The flow has no such route, or is no datagram flow.
    #[error("the flow has no such route: name one that it was given")]
    NoSuchRoute,
    /// All ports or addresses are used.
    #[error("all addresses of {node} are in use: rebind less often")]
    NoAddress {
        /// Name of the node.
        node: String,
    },
}

/// Counters of the datagrams that one end of a datagram flow sent over a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams delivered to the other end's host.
    pub arrived: u64,
    /// Datagrams that arrived with a CE mark. RFC 3168.
    pub marked: u64,
    /// Datagrams dropped on arrival, as the other end no longer had the address.
    pub misdirected: u64,
    /// Payload bytes that arrived.
    pub bytes: Bytes,
    /// Sum of the one-way delays of arrived datagrams.
    pub delay_sum: Duration,
    /// Greatest one-way delay of an arrived datagram.
    pub delay_max: Duration,
}

/// Links of a flow's packets.
#[derive(Clone)]
pub(crate) struct Path {
    pub(crate) layer: Layer,
    /// Links in each direction, by the side that sends.
    pub(crate) links: [Vec<u32>; 2],
}

/// End of a route, with its addresses.
pub(crate) struct RouteEnd {
    pub(crate) node: NodeId,
    /// Local address of the host, followed by all NAT addresses; the last is in use.
    addresses: Vec<SocketAddr>,
    /// Counters of what this end has sent.
    pub(crate) stats: RouteStats,
}

impl RouteEnd {
    pub(crate) fn new(node: NodeId, local: SocketAddr) -> Self {
        Self { node, addresses: vec![local], stats: RouteStats::default() }
    }

    /// Returns the address that the host knows.
    pub(crate) fn local(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Returns the index of the address that the other end sees.
    pub(crate) fn current(&self) -> u32 {
        crate::topology::id(self.addresses.len() - 1)
    }

    /// Returns the address that the other end sees.
    pub(crate) fn public(&self) -> SocketAddr {
        self.address(self.current())
    }

    /// Returns the address with this index.
    pub(crate) fn address(&self, number: u32) -> SocketAddr {
        self.addresses[number as usize]
    }

    /// Returns the index of an address that this end has or has had.
    pub(crate) fn number(&self, address: SocketAddr) -> Option<u32> {
        self.addresses.iter().rposition(|&a| a == address).map(crate::topology::id)
    }

    pub(crate) fn rebind(&mut self, address: SocketAddr) {
        self.addresses.push(address);
    }
}

/// Ends of a route: at the client and at the server.
pub(crate) type RouteEnds = [RouteEnd; 2];

/// Returns the route by which the host at `side` reaches `remote`, and the index of that address.
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
