//! The way that packets take from one node to another, and what it is like.

use std::collections::{HashMap, VecDeque};

use marcato_units::{Bytes, Duration, Rate};

use crate::experiment::Experiment;
use crate::link::{Capacity, Direction, Link};

/// The longest way that a packet can count.
pub const MAX_HOPS: usize = 255;

/// One step of a [`Route`].
#[derive(Clone, Copy, Debug)]
pub struct Hop<'a> {
    /// The link.
    pub link: &'a Link,
    /// Whether it is taken from its second node to its first.
    pub back: bool,
}

impl<'a> Hop<'a> {
    /// The direction that is taken.
    pub const fn direction(&self) -> &'a Direction {
        if self.back { &self.link.back } else { &self.link.there }
    }
}

/// The way from one node to another: that of the fewest links; of several, that whose links come first in the file, as
/// the simulator has it.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    /// Its links, in order.
    pub hops: Vec<Hop<'a>>,
}

impl Route<'_> {
    /// The sum of the propagation delays.
    pub fn delay(&self) -> Duration {
        self.hops.iter().fold(Duration::ZERO, |sum, hop| sum.saturating_add(hop.direction().delay))
    }

    /// The largest IP packet that passes.
    pub fn mtu(&self) -> Bytes {
        self.hops.iter().map(|hop| hop.link.mtu).min().unwrap_or(Bytes::MAX)
    }

    /// The slowest link that has a rate, and that rate; the first of several.
    pub fn bottleneck(&self) -> Option<(&Hop<'_>, Rate)> {
        let rated = self.hops.iter().filter_map(|hop| match hop.direction().rate {
            Capacity::Rate(rate) => Some((hop, rate)),
            Capacity::Unlimited | Capacity::Trace(_) => None,
        });
        rated.min_by_key(|&(_, rate)| rate)
    }

    /// The first link that follows a trace.
    pub fn trace(&self) -> Option<&Hop<'_>> {
        self.hops.iter().find(|hop| matches!(hop.direction().rate, Capacity::Trace(_)))
    }
}

/// The links of an experiment by node, for looking up many routes.
pub(crate) struct Map<'a> {
    experiment: &'a Experiment,
    leaving: HashMap<&'a str, Vec<(Hop<'a>, &'a str)>>,
}

impl<'a> Map<'a> {
    pub(crate) fn new(experiment: &'a Experiment) -> Self {
        let mut leaving: HashMap<&str, Vec<_>> = HashMap::new();
        for link in &experiment.links {
            let [a, b] = &link.between;
            leaving.entry(a).or_default().push((Hop { link, back: false }, b.as_str()));
            leaving.entry(b).or_default().push((Hop { link, back: true }, a.as_str()));
        }
        Self { experiment, leaving }
    }

    /// The way from one node to another; `None` if there is none, or it is too long, or they are one.
    pub(crate) fn route(&self, from: &str, to: &str) -> Option<Route<'a>> {
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
    /// The way that packets take from one node to another; `None` if there is none.
    pub fn route(&self, from: &str, to: &str) -> Option<Route<'_>> {
        Map::new(self).route(from, to)
    }
}
