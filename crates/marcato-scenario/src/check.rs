//! Checks across several parts of a scenario.

use std::collections::{HashMap, HashSet};

use marcato_document::{Faults, Place, Table, quantity};
use marcato_units::{Bytes, Duration, Time};

use crate::experiment::Experiment;
use crate::flow::{Flow, FlowKind, Listed, Payload};
use crate::limit::{MAX_CONNECTIONS, MAX_FLOWS, MAX_LINKS, MAX_NODES};
use crate::link::Capacity;
use crate::names::check_known;
use crate::path::{Map, Route};
use crate::tcp::Tcp;

/// Length of IPv4 and UDP headers. RFC 791, RFC 768.
const UDP_HEADERS: Bytes = Bytes::new(28);
/// Smallest UDP payload with which a QUIC connection may begin. RFC 9000 §14.1.
const LEAST_QUIC: Bytes = Bytes::new(1200);

/// Checks names, counts, times and routes across `experiment`, and adds faults.
///
/// `root` locates each part in the file. An event at or after `end` is a fault.
pub(crate) fn check(experiment: &Experiment, root: &Table, end: Duration, faults: &Faults) {
    if experiment.nodes.len() > MAX_NODES {
        let many = experiment.nodes.len();
        faults.add(
            root.place_of("nodes"),
            format!("there are {many} nodes, but at most {MAX_NODES} are possible"),
        );
    }
    if experiment.links.len() > MAX_LINKS {
        let many = experiment.links.len();
        faults.add(
            root.place_of("link"),
            format!("there are {many} links, but at most {MAX_LINKS} are possible"),
        );
    }
    // Without nodes, every reference would be an unknown name. Only the missing nodes are reported.
    if experiment.nodes.is_empty() {
        faults.forget_names("node");
    }
    let joined = links(experiment, root, faults);
    flows(experiment, root, joined, end, faults);
}

/// Checks whether each flow's packets fit its route, once the files of sizes have been read.
pub(crate) fn check_packets(experiment: &Experiment, root: &Table, faults: &Faults) {
    let map = Map::new(experiment);
    for table in root.tables("flow") {
        let name = table.get("name").and_then(|name| name.as_str());
        if let Some(flow) = experiment.flows.iter().find(|flow| Some(flow.name.as_str()) == name) {
            ends(flow, table, Some(&map), experiment, faults);
        }
    }
}

/// Checks the links, and returns whether all of them join two different known nodes.
///
/// If not, flows are not checked for routes: a missing route would only repeat the link's fault.
fn links(experiment: &Experiment, root: &Table, faults: &Faults) -> bool {
    let mut joined = root.get("link").is_some() && faults.has_names("node") && faults.has_names("link");
    let nodes = || experiment.nodes.iter().map(String::as_str);
    let mut names = HashSet::new();
    let mut pairs: HashMap<[&str; 2], &str> = HashMap::new();
    for (link, table) in experiment.links.iter().zip(root.tables("link")) {
        if !link.name.is_empty() && !names.insert(&link.name) {
            let place = table.get("name").map_or(table.place_of("between"), |name| name.place);
            faults.add(place, format!("there are two links `{}`: rename one", link.name));
        }
        let places = list_places(table, "between");
        let [a, b] = &link.between;
        let known = [(a, places[0]), (b, places[1])]
            .map(|(end, place)| check_known("node", end, place, nodes(), faults));
        joined &= known == [true, true] && a != b;
        if a == b && !a.is_empty() {
            faults.add(places[1], format!("a link joins two nodes, and this one joins `{a}` with itself"));
        } else if known == [true, true] {
            let mut pair = [a.as_str(), b.as_str()];
            pair.sort_unstable();
            if let Some(other) = pairs.insert(pair, &link.name) {
                let problem = format!(
                    "`{other}` joins the same two nodes, and nothing would go over this link: leave one out"
                );
                faults.add(table.place_of("between"), problem);
                joined = false;
            }
        }
    }
    joined
}

/// Returns the places of the first two entries of a list, or of the list if it is shorter.
fn list_places(table: &Table, key: &str) -> [Place; 2] {
    let list = table.place_of(key);
    match table.get(key).map(|item| &item.value) {
        Some(marcato_document::Value::Array(items)) => {
            [0, 1].map(|index| items.get(index).map_or(list, |item| item.place))
        }
        _ => [list, list],
    }
}

fn flows(experiment: &Experiment, root: &Table, joined: bool, end: Duration, faults: &Faults) {
    let map = Map::new(experiment);
    let mut instances = HashSet::new();
    let many: u64 = experiment.flows.iter().map(|flow| u64::from(flow.count)).sum();
    if many > MAX_FLOWS as u64 {
        faults.add(
            root.place_of("flow"),
            format!("there are {many} flows, but at most {MAX_FLOWS} are possible"),
        );
    }
    let few = many <= MAX_FLOWS as u64;
    let mut names = HashSet::new();
    for (flow, table) in experiment.flows.iter().zip(root.tables("flow")) {
        if !flow.name.is_empty() {
            let place = table.place_of("name");
            if !names.insert(flow.name.clone()) {
                faults.add(place, format!("there are two flows `{}`: rename one", flow.name));
            } else if few
                && let Some(twice) = flow.instances().into_iter().find(|name| !instances.insert(name.clone()))
            {
                faults.add(place, format!("two flows would be called `{twice}`: rename one"));
            }
        }
        times(flow, table, end, faults);
        process(flow, table, experiment.duration, faults);
        ends(flow, table, joined.then_some(&map), experiment, faults);
    }
}

fn times(flow: &Flow, table: &Table, duration: Duration, faults: &Faults) {
    let end = Time::ZERO + duration;
    let last = flow.start_of(flow.count - 1);
    let shown = quantity::span(duration);
    if flow.start >= end {
        faults.add(
            table.place_of("start"),
            format!("the flow starts at or after the end of the run, {shown}: start it earlier"),
        );
    } else if last >= end {
        let (number, last) = (flow.count, quantity::span(last - Time::ZERO));
        let problem = format!(
            "the last of {number} flows would start at {last}, but the run ends at {shown}: stagger them less"
        );
        faults.add(table.place_of("stagger"), problem);
    } else if last + flow.start_jitter > end {
        // The jitter's bound is exclusive: if the sum equals the end, every start is before it.
        let problem = format!("the flow might start at or after the end of the run, {shown}: lower it");
        faults.add(table.place_of("start-jitter"), problem);
    }
    let after_end = |after: Duration| flow.start + flow.start_jitter + after >= end;
    let (messages, sources) = match &flow.kind {
        FlowKind::Messages(kind) => (&kind.messaging.messages, &kind.messaging.sources),
        FlowKind::Quic(kind) => (&kind.messaging.messages, &kind.messaging.sources),
        _ => return,
    };
    // One message is enough for the fault: its place is the whole list.
    if messages.iter().any(|message| after_end(message.after)) && flow.start < end {
        faults.add(
            table.place_of("messages"),
            format!("a message comes at or after the end of the run, {shown}: send it earlier"),
        );
    }
    if sources.iter().any(|source| after_end(source.first)) && flow.start < end {
        faults.add(
            table.place_of("sources"),
            format!("a source begins at or after the end of the run, {shown}: let it begin earlier"),
        );
    }
}

fn process(flow: &Flow, table: &Table, duration: Duration, faults: &Faults) {
    let FlowKind::TcpProcess(process) = &flow.kind else { return };
    let expected = duration.as_nanos() / process.mean_gap().as_nanos().max(1) * u128::from(flow.count);
    // Without a valid duration, `Duration::MAX` stands for it, and the count means nothing.
    if duration != Duration::MAX && expected > u128::from(MAX_CONNECTIONS) {
        let key = if table.get("load").is_some() { "load" } else { "arrivals" };
        let problem = format!(
            "about {expected} connections would be opened, but at most {MAX_CONNECTIONS} are possible: lower it"
        );
        faults.add(table.place_of(key), problem);
    }
}

/// Pseudo-key of a payload whose sizes come from a file. No TOML key can lower it.
const FILE: &str = "file";

/// Largest packet that a flow sends.
struct Largest {
    /// Length of the IP packet.
    packet: Bytes,
    /// Description of the packet's parts, for the error message.
    made_up: String,
    /// Key that sets the payload, and the payload's length; `None` if there is no payload to lower.
    payload: Option<(&'static str, Bytes)>,
}

impl Largest {
    fn of(flow: &Flow) -> Self {
        match &flow.kind {
            FlowKind::Udp(udp) => Self::of_udp(&udp.payload),
            FlowKind::Quic(quic) => Self {
                packet: quic.initial_mtu + UDP_HEADERS,
                made_up: "`initial-mtu` and 28 B of headers".to_owned(),
                payload: Some(("initial-mtu", quic.initial_mtu)),
            },
            kind => kind.tcp().map_or_else(
                || Self { packet: Bytes::ZERO, made_up: String::new(), payload: None },
                |tcp| Self::of_tcp([&tcp.from, &tcp.to]),
            ),
        }
    }

    fn of_udp(payload: &Payload) -> Self {
        let (bytes, what, key) = match payload {
            Payload::Constant(bytes) => (*bytes, "its payload".to_owned(), "payload"),
            Payload::Drawn { most, .. } => (*most, "`most-payload`".to_owned(), "most-payload"),
            Payload::Listed(Listed { list: Some(list), .. }) => {
                let (line, largest) = list.largest();
                (largest, format!("line {line} of its file"), FILE)
            }
            // A missing file is reported where the file is read.
            Payload::Listed(Listed { list: None, .. }) => {
                return Self { packet: Bytes::ZERO, made_up: String::new(), payload: None };
            }
        };
        let made_up = format!("{what} and 28 B of headers");
        Self { packet: bytes + UDP_HEADERS, made_up, payload: Some((key, bytes)) }
    }

    fn of_tcp([from, to]: [&Tcp; 2]) -> Self {
        let full = if to.packet() > from.packet() { to } else { from };
        let acknowledgement = from.acknowledgement().max(to.acknowledgement());
        if acknowledgement > full.packet() {
            return Self {
                packet: acknowledgement,
                made_up: "an acknowledgement with all that it may tell".to_owned(),
                payload: None,
            };
        }
        Self {
            packet: full.packet(),
            made_up: format!("`mss` of {} B and the headers", full.mss),
            payload: Some(("mss", Bytes::from(full.mss))),
        }
    }

    /// Returns advice for fitting the packet into `mtu`: a lower payload where that is possible,
    /// otherwise a larger MTU.
    fn remedy(&self, mtu: Bytes) -> String {
        let fitting = self.payload.and_then(|(key, payload)| {
            let headers = self.packet - payload;
            let most = mtu - headers;
            let least = if key == "initial-mtu" { LEAST_QUIC } else { Bytes::new(1) };
            (most >= least && key != FILE)
                .then(|| format!("lower `{key}` to {}, or raise the link's `mtu`", quantity::size(most)))
        });
        fitting.unwrap_or_else(|| format!("raise the link's `mtu` to {}", quantity::size(self.packet)))
    }

    /// Returns the place of the key that sets the size: among the flow's keys, or in its `tcp`
    /// table.
    fn place(&self, table: &Table) -> Place {
        match self.payload {
            Some((FILE, _)) => table.place_of("payload"),
            Some(("most-payload", _)) if table.get("most-payload").is_none() => table.place_of("payload"),
            Some((key @ ("payload" | "most-payload" | "initial-mtu"), _)) => table.place_of(key),
            Some((key, _)) => match table.get("tcp").and_then(|item| item.as_table()) {
                Some(tcp) => tcp.place_of(key),
                None => table.place_of("tcp"),
            },
            None => table.place_of("tcp"),
        }
    }
}

/// Returns whether packets take no time on this route: no link has a rate, a delay or jitter.
///
/// If the reverse route takes no time either, a flow that waits for answers would send forever at
/// one instant of virtual time.
fn is_instant(route: &Route<'_>) -> bool {
    route.hops.iter().all(|hop| {
        let way = hop.direction();
        way.rate == Capacity::Unlimited && way.delay.is_zero() && way.jitter.is_none()
    })
}

fn ends(flow: &Flow, table: &Table, map: Option<&Map<'_>>, experiment: &Experiment, faults: &Faults) {
    let nodes = || experiment.nodes.iter().map(String::as_str);
    let paths: Vec<(&str, &str, [Place; 2])> = match &flow.kind {
        FlowKind::Quic(quic) if table.get("paths").is_some() => {
            let place = table.place_of("paths");
            let mut places = vec![[place; 2]; quic.paths.len()];
            if let Some(marcato_document::Value::Array(items)) = table.get("paths").map(|item| &item.value) {
                for (places, item) in places.iter_mut().zip(items) {
                    *places = [item.place; 2];
                }
            }
            quic.paths
                .iter()
                .zip(places)
                .map(|(path, places)| (path.from.as_str(), path.to.as_str(), places))
                .collect()
        }
        _ => {
            let places = ["from", "to"].map(|key| end_places(table, key));
            let place = |end: usize, number: usize| {
                let places = &places[end];
                places.get(number).or(places.first()).copied().unwrap_or(table.place)
            };
            let pairs = flow.pairs().enumerate();
            pairs.map(|(number, [from, to])| (from, to, [place(0, number), place(1, number)])).collect()
        }
    };
    let largest = Largest::of(flow);
    let mut seen = HashSet::new();
    for (from, to, places) in paths {
        let known = [(from, places[0]), (to, places[1])]
            .map(|(end, place)| check_known("node", end, place, nodes(), faults));
        if from == to && !from.is_empty() {
            faults.add(
                places[1],
                format!("a flow leads from one node to another, and this one from `{from}` to itself"),
            );
            continue;
        }
        if known != [true, true] {
            continue;
        }
        if !seen.insert((from, to)) {
            let problem = match flow.also.is_empty() {
                true => format!(
                    "there are two paths from `{from}` to `{to}`: two lanes on one path are told apart by their layers"
                ),
                false => format!("the pair from `{from}` to `{to}` is given twice: remove one"),
            };
            // A session may have a lane of each layer on one path (PLT).
            if !matches!(&flow.kind, FlowKind::Quic(quic) if layers_differ(quic, from, to)) {
                faults.add(places[0], problem);
            }
            continue;
        }
        let Some(map) = map else { continue };
        let (Some(there), Some(back)) = (map.route(from, to), map.route(to, from)) else {
            faults.add(places[1], format!("no links lead from `{from}` to `{to}`: join them"));
            continue;
        };
        let smallest = there.hops.iter().chain(&back.hops).min_by_key(|hop| hop.link.mtu);
        if let Some(hop) = smallest
            && largest.packet > hop.link.mtu
        {
            let problem = format!(
                "the largest packet of this flow has {} ({}), but `{}` lets {} through: {}",
                quantity::size(largest.packet),
                largest.made_up,
                hop.link.name,
                quantity::size(hop.link.mtu),
                largest.remedy(hop.link.mtu)
            );
            faults.add(largest.place(table), problem);
        }
        if !matches!(flow.kind, FlowKind::Udp(_)) && is_instant(&there) && is_instant(&back) {
            let links: Vec<String> = there.hops.iter().map(|hop| format!("`{}`", hop.link.name)).collect();
            let problem = format!(
                "packets from `{from}` to `{to}` and back take no time, and this flow would never let time pass: give {} a \
                 `delay` or a `rate`",
                links.join(" or ")
            );
            faults.add(places[1], problem);
        }
    }
}

/// Returns the places of the nodes that `from` or `to` names.
fn end_places(table: &Table, key: &str) -> Vec<Place> {
    match table.get(key).map(|item| &item.value) {
        Some(marcato_document::Value::Array(items)) => items.iter().map(|item| item.place).collect(),
        _ => vec![table.place_of(key)],
    }
}

/// Returns whether a session's paths between these two nodes all have different layers.
fn layers_differ(quic: &crate::quic::Quic, from: &str, to: &str) -> bool {
    let mut seen = HashSet::new();
    quic.paths.iter().filter(|path| path.from == from && path.to == to).all(|path| seen.insert(path.layer))
}
