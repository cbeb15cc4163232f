//! From an experiment to a world.

use std::collections::HashMap;
use std::rc::Rc;

use marcato_scenario::Experiment;
use marcato_scenario::link;
use marcato_scenario::queue::Queue;
use marcato_units::{Duration, Seed};

use super::error::BuildError;
use super::flows::{Instance, Tracked};
use super::occupancy::Observed;
use super::sampler::Sampler;
use super::world::{Counted, Way, World};
use super::{Traces, convert};
use crate::{LinkConfig, LinkId, Network, NodeId};

/// The nodes of a network by their names.
type Nodes = HashMap<String, NodeId>;

fn node(nodes: &Nodes, what: &str, node: &str) -> Result<NodeId, BuildError> {
    nodes
        .get(node)
        .copied()
        .ok_or_else(|| BuildError::NoSuchNode { what: what.to_owned(), node: node.to_owned() })
}

/// Builds the network of an experiment. `traces` are those that its links follow.
///
/// # Errors
/// If something names what there is not, or a part cannot be configured as it says.
pub fn build(experiment: &Experiment, traces: &Traces) -> Result<World, BuildError> {
    let mut net = Network::new(experiment.seed);
    let nodes: Nodes = experiment.nodes.iter().map(|name| (name.clone(), net.node(name))).collect();
    let mut ways = Vec::new();
    for link in &experiment.links {
        ways.extend(add_link(&mut net, &nodes, link, traces, experiment.seed)?);
    }
    let mut flows: Vec<Tracked> = Vec::new();
    for flow in &experiment.flows {
        for (number, name) in (0..).zip(flow.instances()) {
            let end = |name: &str| node(&nodes, &format!("flow `{}`", flow.name), name);
            let said = flow.paths_of(number);
            let paths = said
                .iter()
                .map(|path| Ok([end(&path.from)?, end(&path.to)?]))
                .collect::<Result<_, BuildError>>()?;
            let [from, to] = flow.ends_of(number);
            let ends = [end(from)?, end(to)?];
            let start = flow.start_of(number) + later(experiment.seed, &name, flow.start_jitter);
            let instance = Instance { flow, name, start, ends, said, paths };
            flows.push(instance.add(&mut net, experiment.seed)?);
        }
    }
    let sampler = Sampler::new(experiment, &flows, &ways)?;
    let (warm_up, duration) = (experiment.warm_up, experiment.duration);
    let mut taps = Vec::new();
    for link in &experiment.record.pcap {
        let before = taps.len();
        taps.extend(ways.iter().enumerate().filter(|(_, way)| way.name == *link).map(|(place, _)| place));
        if taps.len() == before {
            return Err(BuildError::NothingToRecord(link.clone()));
        }
    }
    Ok(World { net, warm_up, duration, flows, ways, sampler, taps })
}

/// By how much an instance begins later than it would, by a stream of its own name: another's draws do not change it.
fn later(seed: Seed, name: &str, jitter: Duration) -> Duration {
    match u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX) {
        0 => Duration::ZERO,
        most => Duration::from_nanos(seed.stream(&format!("start/{name}")).below(most)),
    }
}

fn add_link(
    net: &mut Network,
    nodes: &Nodes,
    link: &link::Link,
    traces: &Traces,
    seed: Seed,
) -> Result<[Way; 2], BuildError> {
    let what = format!("link `{}`", link.name);
    let [a, b] = [&link.between[0], &link.between[1]];
    let (a, b) = (node(nodes, &what, a)?, node(nodes, &what, b)?);
    let observed = |direction: &link::Direction, way: &str| -> Result<_, BuildError> {
        let config = convert::direction(&link.name, link.mtu, direction, traces)?;
        let occupancy = Rc::default();
        let queue = |queue, place| -> Result<_, BuildError> {
            let own = ["high", "low"][place];
            let stream = |class: &str| seed.stream(&format!("queue/{}/{way}/{own}/{class}", link.name));
            let queue = convert::queue(&link.name, &direction.rate, queue, &stream)?;
            Ok(Box::new(Observed::new(queue, place, &occupancy)))
        };
        let config = match &direction.queue {
            Queue::Crq(crq) => {
                // Of its own type, so that it can be asked for its classes.
                let crq = convert::crq(&link.name, &direction.rate, crq)?;
                config.queue(Observed::new(crq, 0, &occupancy)).observing()
            }
            Queue::Strict { high, low, preempt: true } => {
                LinkConfig { queue: queue(high, 0)?, low: Some(queue(low, 1)?), ..config }
            }
            one => LinkConfig { queue: queue(one, 0)?, ..config },
        };
        Ok((config, occupancy))
    };
    let (there, there_waits) = observed(&link.there, "there")?;
    let (back, back_waits) = observed(&link.back, "back")?;
    let ids = net.link(a, b, there, back);
    let way = |back, id, net: &Network, occupancy| {
        let before = Counted::beginning(net.link_load(id));
        Way { name: link.name.clone(), back, id, occupancy, before }
    };
    let ways = [way(false, ids.0, net, there_waits), way(true, ids.1, net, back_waits)];
    for change in &link.changes {
        for way in ways.iter().filter(|way| concerns(change.way, way.back)) {
            apply(net, way.id, change);
        }
    }
    Ok(ways)
}

/// Whether what changes in this way changes the direction there, or back.
const fn concerns(way: link::Way, back: bool) -> bool {
    match way {
        link::Way::Both => true,
        link::Way::There => !back,
        link::Way::Back => back,
    }
}

fn apply(net: &mut Network, id: LinkId, change: &link::Change) {
    if let Some(rate) = change.rate {
        net.set_rate_at(id, change.at, rate);
    }
    if let Some(up) = change.up {
        net.set_link_up_at(id, change.at, up);
    }
}
