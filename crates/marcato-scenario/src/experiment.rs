//! An experiment: one run, completely said.

use marcato_units::{Duration, Seed};

use crate::flow::Flow;
use crate::link::Link;
use crate::record::Record;

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
