//! Plan of a lab: hosts, addresses, devices and routes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use marcato_scenario::Experiment;
use marcato_scenario::path::Map;

/// Most nodes of a lab. Each has a route to each other one.
pub const MAX_NODES: usize = 128;

/// Error returned for an experiment of which no lab can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The experiment has more than [`MAX_NODES`] nodes.
    #[error("{nodes} nodes are too many for a lab: use at most {MAX_NODES}")]
    TooManyNodes {
        /// Number of nodes.
        nodes: usize,
    },
    /// A link joins two interfaces of one host.
    #[error("link `{link}` joins two interfaces of the host `{host}`: packets would not take it; remove it")]
    WithinHost {
        /// Name of the link.
        link: String,
        /// Name of the host.
        host: String,
    },
}

/// Host: one network namespace.
///
/// A scenario's node is an interface. Nodes at which paths of one flow begin, or end, are interfaces
/// of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPlan {
    /// Name of its first node.
    pub(crate) name: String,
    pub(crate) nodes: Vec<NodePlan>,
}

/// Node, with its addresses and routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePlan {
    pub(crate) name: String,
    pub(crate) addresses: (Ipv4Addr, Ipv6Addr),
    /// Routes to the other nodes, in their order.
    pub(crate) routes: Vec<RoutePlan>,
}

/// Route to a node by a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoutePlan {
    pub(crate) to: (Ipv4Addr, Ipv6Addr),
    pub(crate) device: String,
    /// Number of links on the way.
    pub(crate) hops: usize,
}

impl HostPlan {
    /// Returns whether packets without a source address take this route of a node: no other node of
    /// the host has a shorter one, and no earlier node one as short.
    pub(crate) fn is_best(&self, node: &NodePlan, route: &RoutePlan) -> bool {
        let routes = self.nodes.iter().flat_map(|node| node.routes.iter().map(move |route| (node, route)));
        let same = routes.filter(|(_, other)| other.to == route.to);
        let best = same.min_by_key(|(_, other)| other.hops);
        let own = self.nodes.iter().any(|own| own.addresses == route.to);
        !own && best.is_some_and(|(best, _)| best.name == node.name)
    }
}

/// Plan of a whole lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) hosts: Vec<HostPlan>,
    /// For each link of the experiment, the hosts at its ends and the device that is there.
    pub(crate) wires: Vec<[(usize, String); 2]>,
}

/// Addresses of the node with this index: the simulator's.
pub(crate) fn addresses(node: usize) -> (Ipv4Addr, Ipv6Addr) {
    let number = u32::try_from(node + 1).unwrap_or(u32::MAX);
    (Ipv4Addr::from(0x0a00_0000 | number), Ipv6Addr::from(0xfd00 << 112 | u128::from(number)))
}

impl Plan {
    /// Plans the lab of an experiment.
    pub(crate) fn new(experiment: &Experiment) -> Result<Self, PlanError> {
        let count = experiment.nodes.len();
        if count > MAX_NODES {
            return Err(PlanError::TooManyNodes { nodes: count });
        }
        let host_of = hosts(experiment);
        let index = |name: &str| experiment.node(name).unwrap_or_default();
        let mut wires = Vec::new();
        for (number, link) in experiment.links.iter().enumerate() {
            let ends = [&link.between[0], &link.between[1]].map(|node| host_of[index(node)]);
            if ends[0] == ends[1] {
                let host = experiment.nodes[ends[0]].clone();
                return Err(PlanError::WithinHost { link: link.name.clone(), host });
            }
            wires.push([(ends[0], device(number, false)), (ends[1], device(number, true))]);
        }
        let map = Map::new(experiment);
        let mut hosts: BTreeMap<usize, HostPlan> = BTreeMap::new();
        for (number, name) in experiment.nodes.iter().enumerate() {
            let node = NodePlan {
                name: name.clone(),
                addresses: addresses(number),
                routes: routes(experiment, &map, name),
            };
            let fresh = || HostPlan { name: name.clone(), nodes: Vec::new() };
            hosts.entry(host_of[number]).or_insert_with(fresh).nodes.push(node);
        }
        // Hosts are numbered by their first node so far.
        let places: Vec<usize> = hosts.keys().copied().collect();
        let place = |host: usize| places.binary_search(&host).unwrap_or_default();
        let wires = wires.into_iter().map(|ends| ends.map(|(host, device)| (place(host), device)));
        Ok(Self { wires: wires.collect(), hosts: hosts.into_values().collect() })
    }
}

/// Name of the device at an end of the link with this number.
fn device(link: usize, back: bool) -> String {
    format!("link{link}{}", if back { "b" } else { "a" })
}

/// For each node, the first node of its host.
fn hosts(experiment: &Experiment) -> Vec<usize> {
    let mut host_of: Vec<usize> = (0..experiment.nodes.len()).collect();
    let mut merge = |names: Vec<&str>| {
        let nodes: Vec<usize> = names.into_iter().filter_map(|name| experiment.node(name)).collect();
        let Some(first) = nodes.iter().map(|node| host_of[*node]).min() else { return };
        for old in nodes.into_iter().map(|node| host_of[node]).collect::<Vec<_>>() {
            host_of.iter_mut().filter(|host| **host == old).for_each(|host| *host = first);
        }
    };
    for flow in &experiment.flows {
        for (instance, _) in (0..).zip(flow.instances()) {
            let paths = flow.paths_of(instance);
            merge(paths.iter().map(|path| path.from.as_str()).collect());
            merge(paths.iter().map(|path| path.to.as_str()).collect());
        }
    }
    host_of
}

/// Routes from a node to all others that it reaches.
fn routes(experiment: &Experiment, map: &Map<'_>, from: &str) -> Vec<RoutePlan> {
    let route = |(number, to): (usize, &String)| {
        let route = map.route(from, to)?;
        let first = route.hops.first()?;
        let link = experiment.links.iter().position(|link| link.name == first.link.name)?;
        let device = device(link, first.back);
        Some(RoutePlan { to: addresses(number), device, hops: route.hops.len() })
    };
    experiment.nodes.iter().enumerate().filter_map(route).collect()
}

#[cfg(test)]
mod tests {
    use marcato_scenario::Scenario;

    use super::*;

    fn plan(text: &str) -> Result<Plan, PlanError> {
        let scenario = Scenario::parse("test.toml", text).unwrap();
        let run = scenario.run(0).unwrap();
        Plan::new(&run.experiment)
    }

    const CHAIN: &str = r#"
        name = "chain"
        duration = "1 s"
        nodes = ["client", "router", "server"]
        [[link]]
        between = ["client", "router"]
        delay = "1 ms"
        [[link]]
        between = ["server", "router"]
        delay = "1 ms"
        [[flow]]
        name = "bulk"
        kind = "tcp"
        from = "client"
        to = "server"
    "#;

    #[test]
    fn each_node_is_a_host_with_a_route_to_each_other() {
        let plan = plan(CHAIN).unwrap();
        let names: Vec<_> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["client", "router", "server"]);
        let wires =
            [[(0, "link0a".into()), (1, "link0b".into())], [(2, "link1a".into()), (1, "link1b".into())]];
        assert_eq!(plan.wires, wires);
        let of = |host: usize| {
            let routes = plan.hosts[host].nodes[0].routes.iter();
            routes
                .map(|route| (route.to.0.octets()[3], route.device.as_str(), route.hops))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0), [(2, "link0a", 1), (3, "link0a", 2)]);
        assert_eq!(of(1), [(1, "link0b", 1), (3, "link1b", 1)]);
        assert_eq!(of(2), [(1, "link1a", 2), (2, "link1a", 1)]);
    }

    #[test]
    fn interfaces_of_one_flow_are_one_host() {
        let plan = plan(
            r#"
            name = "two-paths"
            duration = "1 s"
            [topology]
            kind = "multipath"
            paths = 2
            rate = "10 Mbit/s"
            delay = "5 ms"
            [[flow]]
            name = "both"
            kind = "quic"
            paths = [["client-1", "server-1"], ["client-2", "server-2"]]
            bulk = "p4"
            "#,
        );
        let plan = plan.unwrap();
        let hosts: Vec<Vec<_>> = plan
            .hosts
            .iter()
            .map(|host| host.nodes.iter().map(|node| node.name.as_str()).collect())
            .collect();
        assert_eq!(hosts.len(), 2, "{hosts:?}");
        assert!(hosts.iter().all(|nodes| nodes.len() == 2), "{hosts:?}");
        assert_eq!(
            plan.wires.iter().map(|ends| (ends[0].0, ends[1].0)).collect::<Vec<_>>(),
            [(0, 1), (0, 1)]
        );
    }
}
