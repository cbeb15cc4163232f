//! Construction of a world from an experiment.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use marcato_queue::{Discipline, Filtered};
use marcato_quic::Secrets;
use marcato_scenario::Experiment;
use marcato_scenario::link;
use marcato_scenario::queue::{Queue, Strict};
use marcato_units::{Duration, Seed, Stream, Time};

use super::convert::Transmitter;
use super::error::BuildError;
use super::fabric::Advance;
use super::flows::{Instance, Tracked};
use super::observed::{Observation, Recorder};
use super::plugins::Plugins;
use super::sampler::Sampler;
use super::world::{Counted, Way, World};
use super::{Traces, convert};
use crate::packet::Packet;
use crate::{LinkChange, LinkConfig, LinkId, LinkQueue, Network, NodeId};

/// Nodes of a network by name.
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
/// [`BuildError`] if a name refers to nothing, or a part has an invalid configuration.
pub fn build(experiment: &Experiment, traces: &Traces) -> Result<World, BuildError> {
    build_with(experiment, traces, &Plugins::default())
}

/// Builds the network of an experiment that may name `plugins`. `traces` are those that its links
/// follow.
///
/// # Errors
/// As [`build`]; or if the constructor of a plug-in fails.
pub fn build_with(experiment: &Experiment, traces: &Traces, plugins: &Plugins) -> Result<World, BuildError> {
    let mut net = Network::new(experiment.seed);
    let nodes: Nodes = experiment.nodes.iter().map(|name| (name.clone(), net.node(name))).collect();
    let mut ways = Vec::new();
    for link in &experiment.links {
        ways.extend(add_link(&mut net, &nodes, link, traces, plugins, experiment.seed)?);
    }
    furnish(experiment, net, &nodes, ways, plugins)
}

/// Builds a world on a fabric that has the nodes and links of the experiment already. Plug-ins are
/// those of the flows.
///
/// # Errors
/// As [`build_with`].
pub fn build_on<F: Advance>(
    experiment: &Experiment,
    fabric: F,
    plugins: &Plugins,
) -> Result<World<F>, BuildError> {
    let nodes = (0..).zip(&experiment.nodes).map(|(number, name)| (name.clone(), NodeId::new(number)));
    let links = (0..).step_by(2).zip(&experiment.links);
    let ways = links.flat_map(|(number, link)| {
        let way = |back| {
            let id = LinkId::new(number + u32::from(back));
            let before = Counted::beginning(fabric.link_load(id));
            Way { name: link.name.clone(), back, id, record: Rc::default(), before }
        };
        [way(false), way(true)]
    });
    let (nodes, ways) = (nodes.collect(), ways.collect());
    furnish(experiment, fabric, &nodes, ways, plugins)
}

/// Adds the flows and recorders of an experiment to a fabric.
fn furnish<F: Advance>(
    experiment: &Experiment,
    mut net: F,
    nodes: &Nodes,
    ways: Vec<Way>,
    plugins: &Plugins,
) -> Result<World<F>, BuildError> {
    let mut flows: Vec<Tracked> = Vec::new();
    let secrets = Secrets::default();
    let captured = (!experiment.record.pcap.links.is_empty()).then_some(&secrets);
    for flow in &experiment.flows {
        for (number, name) in (0..).zip(flow.instances()) {
            let end = |name: &str| node(nodes, &format!("flow `{}`", flow.name), name);
            let spec = flow.paths_of(number);
            let paths = spec
                .iter()
                .map(|path| Ok([end(&path.from)?, end(&path.to)?]))
                .collect::<Result<_, BuildError>>()?;
            let [from, to] = flow.ends_of(number);
            let ends = [end(from)?, end(to)?];
            let start = flow.start_of(number) + later(experiment.seed, &name, flow.start_jitter);
            let end = Time::ZERO + experiment.duration;
            let instance = Instance { flow, name, start, end, ends, spec, paths, secrets: captured, plugins };
            flows.push(instance.add(&mut net, experiment.seed)?);
        }
    }
    let sampler = Sampler::new(experiment, &flows, &ways)?;
    let (warm_up, duration) = (experiment.warm_up, experiment.duration);
    let mut taps = Vec::new();
    for link in &experiment.record.pcap.links {
        let before = taps.len();
        taps.extend(ways.iter().enumerate().filter(|(_, way)| way.name == *link).map(|(place, _)| place));
        if taps.len() == before {
            return Err(BuildError::NothingToRecord(link.clone()));
        }
    }
    let pcap = experiment.record.pcap.clone();
    let warnings = experiment.warnings();
    Ok(World { net, warm_up, duration, flows, ways, sampler, taps, pcap, secrets, warnings })
}

/// Returns the random delay of an instance's start, from a stream of its own: it does not change
/// the draws of other instances.
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
    plugins: &Plugins,
    seed: Seed,
) -> Result<[Way; 2], BuildError> {
    let what = format!("link `{}`", link.name);
    let [a, b] = [&link.between[0], &link.between[1]];
    let (a, b) = (node(nodes, &what, a)?, node(nodes, &what, b)?);
    let observed = |direction: &link::Direction, is_back| -> Result<_, BuildError> {
        let config = convert::direction(&link.name, link.mtu, direction, traces)?;
        let record = Rc::default();
        let transmitter = Transmitter { link: &link.name, rate: &direction.rate, mtu: link.mtu, plugins };
        let queues = queues(transmitter, &direction.queue, &record, &|of| {
            seed.stream(&format!("queue/{}/{}/{of}", link.name, direction_name(is_back)))
        })?;
        // A queue that judges flows observes the reverse direction, whether configured from the
        // start or by a change. A plug-in may.
        let judges = |queue: &Queue| matches!(queue, Queue::Crq(_) | Queue::Plugin(_));
        let mut later = link.changes_of(is_back).flat_map(|change| &change.queue);
        let observes = judges(&direction.queue) || later.any(judges);
        let config = LinkConfig { queue: queues.0, low: queues.1, observes, ..config };
        Ok((config, record))
    };
    let (there, there_waits) = observed(&link.there, false)?;
    let (back, back_waits) = observed(&link.back, true)?;
    let ids = net.link(a, b, there, back);
    net.watch_queue(ids.0);
    net.watch_queue(ids.1);
    let way = |back, id, net: &Network, record| {
        let before = Counted::beginning(net.link_load(id));
        Way { name: link.name.clone(), back, id, record, before }
    };
    let ways = [way(false, ids.0, net, there_waits), way(true, ids.1, net, back_waits)];
    for change in &link.changes {
        for (way, direction) in ways.iter().zip([&link.there, &link.back]) {
            if change.way.concerns(way.back) {
                apply(net, link, direction, way, change, plugins, seed)?;
            }
        }
    }
    Ok(ways)
}

/// Queue of a link, and that of its low class.
type Queues = (Box<dyn LinkQueue>, Option<Box<dyn Discipline<Packet>>>);

/// Creates the queue of a link, and that of its low class if it pre-empts, both observed. `stream`
/// returns the random stream of each.
fn queues(
    of: Transmitter<'_>,
    queue: &Queue,
    record: &Rc<RefCell<Observation>>,
    stream: &dyn Fn(&str) -> Stream,
) -> Result<Queues, BuildError> {
    let one = |queue, place| -> Result<_, BuildError> {
        let own = ["high", "low"][place];
        let queue = convert::queue(of, queue, &|class| stream(&format!("{own}/{class}")))?;
        Ok(Box::new(Filtered::of(queue, Recorder::new(place, record))))
    };
    Ok(match queue {
        Queue::Strict(Strict { high, low, preempt: true }) => (one(high, 0)?, Some(one(low, 1)?)),
        other => (one(other, 0)?, None),
    })
}

/// Returns the name of a direction.
const fn direction_name(back: bool) -> &'static str {
    if back { "back" } else { "there" }
}

/// Schedules a change of a link in one of its directions.
fn apply(
    net: &mut Network,
    link: &link::Link,
    direction: &link::Direction,
    way: &Way,
    change: &link::Change,
    plugins: &Plugins,
    seed: Seed,
) -> Result<(), BuildError> {
    let id = way.id;
    if let Some(rate) = change.rate {
        net.set_rate_at(id, change.at, rate);
    }
    if let Some(up) = change.up {
        net.set_link_up_at(id, change.at, up);
    }
    if let Some(delay) = change.delay {
        let (delay, reorder) = (convert::delay(direction, delay), change.reorder);
        net.change_link_at(id, change.at, LinkChange::Delay { delay, reorder });
    }
    if let Some(loss) = &change.loss {
        net.change_link_at(id, change.at, LinkChange::Loss(convert::loss(&link.name, loss)?));
    }
    if let Some(queue) = &change.queue {
        let rate = link.rate_at(way.back, change.at);
        let stream = |of: &str| {
            let (name, at) = (direction_name(way.back), change.at.as_nanos());
            seed.stream(&format!("queue/{}/{name}/{of}/{at}", link.name))
        };
        let transmitter = Transmitter { link: &link.name, rate: &rate, mtu: link.mtu, plugins };
        let (queue, low) = queues(transmitter, queue, &way.record, &stream)?;
        net.change_link_at(id, change.at, LinkChange::Queue { queue, low });
    }
    Ok(())
}
