//! An experiment: one run, completely said.

use std::collections::BTreeMap;

use marcato_units::{Duration, Seed};

use crate::flow::{Flow, FlowKind, Payload, UdpFlow};
use crate::link::Link;
use crate::record::Record;
use crate::sizes::SizeList;

/// One run, completely said: what is not in the file has its default, what was shorthand is spelt out, and every name
/// leads somewhere. Two runs of an equal experiment give equal results.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// What it is called.
    pub name: String,
    /// What it is about, in one line; may be empty.
    pub about: String,
    /// How long it runs.
    pub duration: Duration,
    /// How much of that statistics leave out.
    pub warm_up: Duration,
    /// What all random numbers are drawn from.
    pub seed: Seed,
    /// The names of the nodes; no two are equal.
    pub nodes: Vec<String>,
    /// The links; no two have the same name.
    pub links: Vec<Link>,
    /// The flows; no two have the same name.
    pub flows: Vec<Flow>,
    /// What is written down.
    pub record: Record,
}

impl Experiment {
    /// The place of a node in [`nodes`](Self::nodes).
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node == name)
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The flow of this name.
    pub fn flow(&self, name: &str) -> Option<&Flow> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// Hands each flow that takes its sizes from a file what that has.
    pub(crate) fn take_sizes(&mut self, files: &BTreeMap<String, SizeList>) {
        for flow in &mut self.flows {
            if let FlowKind::Udp(UdpFlow { payload: Payload::Listed(listed), .. }) = &mut flow.kind {
                listed.list = files.get(&listed.file).cloned();
            }
        }
    }

    /// The sizes that flows have from files, with the path of each file, where they have been read.
    pub fn sizes(&self) -> impl Iterator<Item = (&str, &SizeList)> {
        self.flows.iter().filter_map(|flow| match &flow.kind {
            FlowKind::Udp(UdpFlow { payload: Payload::Listed(listed), .. }) => {
                Some((listed.file.as_str(), listed.list.as_ref()?))
            }
            _ => None,
        })
    }

    /// The paths of the traces that its links follow, as the file has them, each once.
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
