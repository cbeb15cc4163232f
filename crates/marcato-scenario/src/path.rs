//! Routes between nodes, and their properties.

use std::collections::{HashMap, VecDeque};

use marcato_units::{Bytes, Duration, Rate};

use crate::experiment::Experiment;
use crate::link::{Capacity, Direction, Link};

/// Largest number of links of a route: the hop count of a packet must fit in 8 bits.
pub const MAX_HOPS: usize = 255;

/// One step of a [`Route`].
#[derive(Clone, Copy, Debug)]
pub struct Hop<'a> {
    /// Link that the packet crosses.
    pub link: &'a Link,
    /// Direction: set if the packet crosses from the link's second node to its first.
    pub back: bool,
}

impl<'a> Hop<'a> {
    /// Returns the configuration of the direction that the packet uses.
    pub const fn direction(&self) -> &'a Direction {
        if self.back { &self.link.back } else { &self.link.there }
    }
}

/// Route from one node to another with the fewest links. Ties go to the links that come first in
/// the file, as in the simulator.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    /// Links in order of travel.
    pub hops: Vec<Hop<'a>>,
}

impl Route<'_> {
    /// Returns the sum of the propagation delays.
    pub fn delay(&self) -> Duration {
        self.hops.iter().fold(Duration::ZERO, |sum, hop| sum.saturating_add(hop.direction().delay))
    }

    /// Returns the largest IP packet that passes every link.
    pub fn mtu(&self) -> Bytes {
        self.hops.iter().map(|hop| hop.link.mtu).min().unwrap_or(Bytes::MAX)
    }

    /// Returns the slowest link with a rate, and that rate; the first one of several. `None` if no
    /// link has a rate.
    pub fn bottleneck(&self) -> Option<(&Hop<'_>, Rate)> {
        let rated = self.hops.iter().filter_map(|hop| match hop.direction().rate {
            Capacity::Rate(rate) => Some((hop, rate)),
            Capacity::Unlimited | Capacity::Trace(_) => None,
        });
        rated.min_by_key(|&(_, rate)| rate)
    }

    /// Returns the first link that follows a trace.
    pub fn trace(&self) -> Option<&Hop<'_>> {
        self.hops.iter().find(|hop| matches!(hop.direction().rate, Capacity::Trace(_)))
    }
}

/// Links of an experiment by node, for finding many routes.
pub struct Map<'a> {
    experiment: &'a Experiment,
    leaving: HashMap<&'a str, Vec<(Hop<'a>, &'a str)>>,
}

impl<'a> Map<'a> {
    /// Creates the map of an experiment.
    pub fn new(experiment: &'a Experiment) -> Self {
        let mut leaving: HashMap<&str, Vec<_>> = HashMap::new();
        for link in &experiment.links {
            let [a, b] = &link.between;
            leaving.entry(a).or_default().push((Hop { link, back: false }, b.as_str()));
            leaving.entry(b).or_default().push((Hop { link, back: true }, a.as_str()));
        }
        Self { experiment, leaving }
    }

    /// Returns the route between two nodes; `None` if there is none, if it exceeds [`MAX_HOPS`], or
    /// if both nodes are the same.
    pub fn route(&self, from: &str, to: &str) -> Option<Route<'a>> {
        let node = |name: &str| self.experiment.nodes.iter().find(|node| *node == name).map(String::as_str);
        let (from, to) = (node(from)?, node(to)?);
        let mut reached: HashMap<&str, (Hop<'a>, &str)> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                break;
            }
            for &(hop, next) in self.leaving.get(at).into_iter().flatten() {
                if next != from && !reached.contains_key(next) {
                    reached.insert(next, (hop, at));
                    queue.push_back(next);
                }
            }
        }
        let mut hops = Vec::new();
        let mut at = to;
        while at != from {
            let &(hop, before) = reached.get(at)?;
            hops.push(hop);
            at = before;
        }
        hops.reverse();
        (!hops.is_empty() && hops.len() <= MAX_HOPS).then_some(Route { hops })
    }
}

impl Experiment {
    /// Returns the route between two nodes; `None` if there is none.
    pub fn route(&self, from: &str, to: &str) -> Option<Route<'_>> {
        Map::new(self).route(from, to)
    }
}
