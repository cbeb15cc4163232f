//! Conversion of a tree to an experiment.
//!
//! Each part is read regardless of errors in the others. A value that cannot be read is a fault and
//! is replaced by its default, so that all faults are found at once. An experiment with faults is
//! never returned to users.

mod flow;
mod link;
pub(crate) mod record;
pub(crate) mod traffic;

use marcato_document::quantity::Of;
use marcato_document::{Faults, Format, Item, Keys, Table, Value, described};
use marcato_units::{Duration, Seed};

use crate::check::check;
use crate::cut::cut;
use crate::experiment::Experiment;
use crate::limit::{MAX_FLOWS, MAX_LINKS, MAX_NODES, MAX_SECONDS};
use crate::names::check_name;

described! {
    pub(crate) ROOT: "a scenario";
    /// name of the scenario
    "name": "required";
    /// one-line description
    "about": "none";
    /// length of a run in virtual time; at most 30 days
    "duration": "required";
    /// initial time that statistics exclude
    "warm-up": "`\"0 s\"`";
    /// seed of all random numbers: 0 to 9223372036854775807
    "seed": "`1`";
    /// names of all senders, receivers and forwarders
    "nodes": "required, or `topology`";
    /// a [shorthand](#topologies) for nodes and links; others may be added to it
    "topology": "none";
    /// [links](#links), each under `[[link]]`
    "link": "required, or `topology`";
    /// [flows](#flows), each under `[[flow]]`
    "flow": "required";
    /// [recorded data](#records)
    "record": "nothing";
    /// [varied parameters](#grids)
    "grid": "nothing: one run";
    /// [claims](#claims) about measured values, each under `[[claim]]`
    "claim": "none";
    /// [figures](#a-figure) of claims, each under `[[figure]]`
    "figure": "none";
    /// settings of a run with `--quick`: keys as after `--set`, and `seeds` as in `[grid]`
    "quick": "none";
}

/// Texts of faults in scenarios.
pub(crate) static FORMAT: Format = Format { root: &ROOT, whole: "the scenario", unit };

/// Returns the unit that the key most likely needs, for the advice in a message.
fn unit(key: &str, of: Of) -> &'static str {
    match key {
        "duration" | "warm-up" | "start" | "start-jitter" | "stop" | "at" | "stagger" | "on" | "off" => "s",
        "size" | "send-buffer" | "receive-buffer" => "kB",
        _ => of.usual(),
    }
}

/// Reports the lack of flows and of a duration, which only a network without traffic of its own may have.
pub(crate) fn need_traffic(root: &Table, faults: &Faults) {
    let keys = Keys::trusting(root, &ROOT, faults);
    keys.need("duration", "state how long it runs, for example duration = \"30 s\"");
    keys.need("flow", "state what is sent, for example [[flow]]");
}

/// Reads an experiment from a tree whose topology is expanded. It may lack flows and a duration.
///
/// If `--set` or a grid chooses the duration, the second value has notes on the events left out
/// after the run's end.
pub(crate) fn experiment(root: &Table, faults: &Faults) -> (Experiment, Vec<String>) {
    let keys = Keys::open(root, &ROOT, faults);
    let name = match keys.need("name", "state what it is called, for example name = \"two-flows\"") {
        true => keys.string("name").filter(|name| check_name("scenario", name, keys.place("name"), faults)),
        false => None,
    };
    let most = Duration::from_secs(MAX_SECONDS);
    let duration = keys.some_span("duration").filter(|&duration| {
        if duration > most {
            keys.fault("duration", format!("a run of {} days is the longest possible", MAX_SECONDS / 86_400));
        }
        duration <= most
    });
    let warm_up = keys.span("warm-up").unwrap_or_default();
    if let Some(duration) = duration
        && warm_up >= duration
    {
        keys.fault(
            "warm-up",
            "the warm-up ends no earlier than the run, and nothing would be measured: shorten it",
        );
    }
    // Without a known end, no event is too late.
    let duration = duration.unwrap_or(Duration::MAX);

    if root.get("nodes").is_none() && root.get("topology").is_none() {
        keys.need(
            "nodes",
            "state what they are called, for example nodes = [\"client\", \"server\"]; or use a [topology]",
        );
    }
    if keys.list("nodes", MAX_NODES).is_some_and(<[Item]>::is_empty) {
        keys.fault("nodes", "there are no nodes: state what they are called");
    }
    let mut nodes: Vec<String> = Vec::new();
    if keys.list("nodes", MAX_NODES).is_none() && root.get("topology").is_none() {
        faults.forget_names("node");
    }
    for (node, place) in keys.strings("nodes", MAX_NODES) {
        // A reference to a node with an invalid name is no second fault.
        check_name("node", node, place, faults);
        if nodes.iter().any(|other| other == node) {
            faults.add(place, format!("there are two nodes `{node}`: rename one"));
        } else {
            nodes.push(node.to_owned());
        }
    }
    if root.get("link").is_none() {
        keys.need("link", "state what joins the nodes, for example [[link]]");
    }
    // Events left out of a shortened run are no faults of the file.
    let is_cut = keys.is_chosen("duration");
    let end = if is_cut { Duration::MAX } else { duration };
    let links = keys.tables("link", MAX_LINKS).map(|table| link::link(table, end, faults)).collect();
    if keys.list("flow", MAX_FLOWS).is_some_and(<[Item]>::is_empty) {
        keys.fault("flow", "there are no flows, and nothing would happen: state what is sent");
    }
    let flows = keys.tables("flow", MAX_FLOWS).map(|table| flow::flow(table, &nodes, faults)).collect();
    let mut experiment = Experiment {
        name: name.unwrap_or_default().to_owned(),
        about: about(&keys),
        duration,
        warm_up,
        seed: Seed::new(keys.integer("seed", 0..=Seed::MAX).unwrap_or(1)),
        nodes,
        links,
        flows,
        record: crate::record::Record::default(),
    };
    if let Some(table) = keys.table("record") {
        // Records refer to links and flows, so they are read last.
        experiment.record = record::record(table, &experiment, faults);
    }
    check(&experiment, root, end, faults);
    let notes = if is_cut { cut(&mut experiment, root, faults) } else { Vec::new() };
    (experiment, notes)
}

fn about(keys: &Keys<'_>) -> String {
    let about = keys.string("about").unwrap_or_default();
    if about.contains(['\n', '\r']) {
        keys.fault("about", "`about` is one line: put the rest into comments");
    }
    about.to_owned()
}

/// Returns `above` with the keys of `below` that `above` does not have. `instead` names keys that
/// replace each other.
pub(crate) fn overlay(
    below: &Table,
    above: &Table,
    keep: impl Fn(&str) -> bool,
    instead: [&str; 2],
) -> Table {
    let replaced = instead.iter().any(|key| above.get(key).is_some());
    let mut merged = Table::empty(above.place);
    let kept = below
        .entries
        .iter()
        .filter(|(key, _)| keep(&key.name) && !(replaced && instead.contains(&key.name.as_str())));
    merged.entries.extend(kept.cloned());
    for (key, item) in &above.entries {
        merged.set(key.clone(), item.clone());
    }
    merged
}

/// Returns the name of a link: its own, or that of its nodes joined by a hyphen.
pub(crate) fn link_name(table: &Table) -> Option<String> {
    match table.get("name") {
        Some(name) => name.as_str().map(ToOwned::to_owned),
        None => match table.get("between") {
            Some(Item { value: Value::Array(ends), .. }) => match ends.as_slice() {
                [a, b] => Some(format!("{}-{}", a.as_str()?, b.as_str()?)),
                _ => None,
            },
            _ => None,
        },
    }
}
