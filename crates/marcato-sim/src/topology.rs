//! Nodes, and the links between them.

use std::collections::VecDeque;

/// Identifier of a host or router in a [`Network`](crate::Network).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// Creates the identifier with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number, for use as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identifier of one direction of a link in a [`Network`](crate::Network).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// Creates the identifier with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number, for use as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Error returned if there is no usable route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No links lead from one end to the other.
    #[error("no route from {from} to {to}: connect them with links")]
    NoRoute {
        /// Name of the node from which the flow starts.
        from: String,
        /// Name of the node that cannot be reached.
        to: String,
    },
    /// The route has more links than a packet's hop count holds, 255.
    #[error("the route from {from} to {to} has more than 255 links: shorten it")]
    TooLong {
        /// Name of the node from which the flow starts.
        from: String,
        /// Name of the node at its end.
        to: String,
    },
}

struct Node {
    name: String,
    /// Links that leave this node, each with the node to which it leads.
    links: Vec<(u32, NodeId)>,
}

/// Nodes and the links between them.
#[derive(Default)]
pub(crate) struct Topology {
    nodes: Vec<Node>,
}

impl Topology {
    pub(crate) fn add(&mut self, name: &str) -> NodeId {
        self.nodes.push(Node { name: name.to_owned(), links: Vec::new() });
        NodeId(id(self.nodes.len() - 1))
    }

    pub(crate) fn connect(&mut self, from: NodeId, to: NodeId, link: u32) {
        self.nodes[from.0 as usize].links.push((link, to));
    }

    pub(crate) fn name(&self, node: NodeId) -> &str {
        &self.nodes[node.0 as usize].name
    }

    /// Returns the links from `from` to `to`. The search is breadth-first, so it finds the fewest
    /// links; neighbours are visited in the order in which they were connected.
    pub(crate) fn route(&self, from: NodeId, to: NodeId) -> Result<Vec<u32>, RouteError> {
        let mut reached_by: Vec<Option<(u32, NodeId)>> = vec![None; self.nodes.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                break;
            }
            for &(link, next) in &self.nodes[node.0 as usize].links {
                if next != from && reached_by[next.0 as usize].is_none() {
                    reached_by[next.0 as usize] = Some((link, node));
                    queue.push_back(next);
                }
            }
        }
        let names = || (self.name(from).to_owned(), self.name(to).to_owned());
        let no_route = || {
            let (from, to) = names();
            RouteError::NoRoute { from, to }
        };
        let mut route = Vec::new();
        let mut at = to;
        while at != from {
            let (link, before) = reached_by[at.0 as usize].ok_or_else(no_route)?;
            route.push(link);
            at = before;
        }
        route.reverse();
        if route.is_empty() {
            return Err(no_route());
        }
        if route.len() > usize::from(u8::MAX) {
            let (from, to) = names();
            return Err(RouteError::TooLong { from, to });
        }
        Ok(route)
    }
}

/// Converts an index to an identifier. A program builds these by hand, so there are far fewer than
/// 2^32.
pub(crate) fn id(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 nodes, links and flows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_with_the_fewest_links_is_taken() {
        let mut topology = Topology::default();
        let [a, b, c, alone] = ["a", "b", "c", "alone"].map(|name| topology.add(name));
        topology.connect(a, b, 0);
        topology.connect(b, c, 1);
        topology.connect(a, c, 2);
        assert_eq!(topology.route(a, c), Ok(vec![2]));
        assert_eq!(topology.route(a, b), Ok(vec![0]));
        let (from, to) = ("a".to_owned(), "alone".to_owned());
        assert_eq!(topology.route(a, alone), Err(RouteError::NoRoute { from, to }));
        let (from, to) = ("a".to_owned(), "a".to_owned());
        assert_eq!(topology.route(a, a), Err(RouteError::NoRoute { from, to }));
    }

    #[test]
    fn a_route_that_no_packet_can_count_is_refused() {
        let mut topology = Topology::default();
        let nodes: Vec<_> = (0..=256).map(|n| topology.add(&n.to_string())).collect();
        for (link, pair) in (0u32..).zip(nodes.windows(2)) {
            topology.connect(pair[0], pair[1], link);
        }
        assert!(topology.route(nodes[0], nodes[255]).is_ok());
        let (from, to) = ("0".to_owned(), "256".to_owned());
        assert_eq!(topology.route(nodes[0], nodes[256]), Err(RouteError::TooLong { from, to }));
    }
}
