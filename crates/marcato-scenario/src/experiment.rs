//! Complete description of one run.

use std::collections::{BTreeMap, BTreeSet};

use marcato_units::{Duration, Seed};

use crate::flow::{Flow, FlowKind, Payload, UdpFlow};
use crate::link::Link;
use crate::plugin::PluginKind;
use crate::queue::Queue;
use crate::quic::Scheduler;
use crate::record::Record;
use crate::sizes::SizeList;
use crate::tcp::Congestion;

/// Complete description of one run.
///
/// Keys missing from the file have their defaults, shorthand is expanded, and every name refers to
/// something that exists. Two runs of an equal experiment give equal results.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Name of the experiment.
    pub name: String,
    /// One-line description; may be empty.
    pub about: String,
    /// Duration of the run, in virtual time.
    pub duration: Duration,
    /// Initial part of the run that statistics exclude.
    pub warm_up: Duration,
    /// Seed of all random numbers.
    pub seed: Seed,
    /// Unique names of the nodes.
    pub nodes: Vec<String>,
    /// Links, with unique names.
    pub links: Vec<Link>,
    /// Flows, with unique names.
    pub flows: Vec<Flow>,
    /// Data to record.
    pub record: Record,
}

impl Experiment {
    /// Returns the index of a node in [`nodes`](Self::nodes).
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node == name)
    }

    /// Returns the link of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Returns the flow of this name.
    pub fn flow(&self, name: &str) -> Option<&Flow> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// Returns the kind and the name of each plug-in that the experiment needs.
    pub fn plugins(&self) -> BTreeSet<(PluginKind, &str)> {
        let directions = self.links.iter().flat_map(|link| [&link.there.queue, &link.back.queue]);
        let later = self.links.iter().flat_map(|link| &link.changes).filter_map(|of| of.queue.as_ref());
        let queues = directions.chain(later).flat_map(Queue::plugins);
        let mut all: BTreeSet<_> = queues.map(|plugin| (PluginKind::Queue, plugin.name.as_str())).collect();
        for flow in &self.flows {
            let ends = flow.kind.tcp().into_iter().flat_map(|ends| [&ends.from, &ends.to]);
            all.extend(ends.filter_map(|tcp| match &tcp.congestion {
                Congestion::Plugin(plugin) => Some((PluginKind::Congestion, plugin.name.as_str())),
                _ => None,
            }));
            let messaging = match &flow.kind {
                FlowKind::Messages(messages) => Some(&messages.messaging),
                FlowKind::Quic(quic) => Some(&quic.messaging),
                _ => None,
            };
            let workload = messaging.and_then(|messaging| messaging.workload.as_ref());
            all.extend(workload.map(|plugin| (PluginKind::Workload, plugin.name.as_str())));
            if let FlowKind::Quic(quic) = &flow.kind
                && let Scheduler::Plugin(plugin) = &quic.scheduler
            {
                all.insert((PluginKind::Scheduler, plugin.name.as_str()));
            }
        }
        all
    }

    /// Gives each flow that takes its sizes from a file the contents of that file.
    pub(crate) fn take_sizes(&mut self, files: &BTreeMap<String, SizeList>) {
        for flow in &mut self.flows {
            if let FlowKind::Udp(UdpFlow { payload: Payload::Listed(listed), .. }) = &mut flow.kind {
                listed.list = files.get(&listed.file).cloned();
            }
        }
    }

    /// Returns the path and the sizes of each file that flows read; files not yet read are omitted.
    pub fn sizes(&self) -> impl Iterator<Item = (&str, &SizeList)> {
        self.flows.iter().filter_map(|flow| match &flow.kind {
            FlowKind::Udp(UdpFlow { payload: Payload::Listed(listed), .. }) => {
                Some((listed.file.as_str(), listed.list.as_ref()?))
            }
            _ => None,
        })
    }

    /// Returns the paths of the traces that links follow, as written in the file and without
    /// duplicates.
    pub fn traces(&self) -> Vec<&str> {
        let mut traces = Vec::new();
        for link in &self.links {
            for direction in [&link.there, &link.back] {
                if let crate::link::Capacity::Trace(path) = &direction.rate
                    && !traces.contains(&path.as_str())
                {
                    traces.push(path);
                }
            }
        }
        traces
    }
}
