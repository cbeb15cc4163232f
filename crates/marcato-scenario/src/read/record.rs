//! Reader of records.

use std::collections::{HashMap, HashSet};

use marcato_document::nearest::hint;
use marcato_document::{Faults, Item, Keys, Place, Table, described};
use marcato_units::Bytes;

use crate::experiment::Experiment;
use crate::flow::{Flow, FlowKind};
use crate::limit::{MAX_LIST, MAX_SAMPLES};
use crate::names::check_known;
use crate::record::{CaptureFormat, FlowMetric, LinkMetric, Pcap, Record, Series};

described! {
    pub(crate) RECORD: "a record";
    /// sampling interval of series
    "every": "`\"100 ms\"`";
    /// `"all"`, or a list of series
    "series": "none";
    /// links whose packets are captured
    "pcap": "none";
    /// `"pcap"`: a file for each direction of a link; `"pcapng"`: one file for all, with an
    /// interface for each direction
    "pcap-format": "`\"pcap\"`";
    /// bytes of each packet that are kept, 120 B or more; or `"whole"`, as decryption of QUIC
    /// needs it; payload of TCP and UDP is zeros
    "snaplen": "`\"128 B\"`";
}

pub(super) fn record(table: &Table, experiment: &Experiment, faults: &Faults) -> Record {
    let keys = Keys::open(table, &RECORD, faults);
    let default = Record::default();
    let every = keys.some_span("every").unwrap_or(default.every);
    let links = || experiment.links.iter().map(|link| link.name.as_str());
    let mut series = Vec::new();
    let mut seen = HashSet::new();
    match keys.item("series") {
        Some(item) if item.as_str() == Some("all") => series = all(experiment),
        Some(item) if item.as_str().is_some() => {
            keys.fault("series", "`series` is \"all\" or a list, for example [\"link.bottleneck.queue\"]");
        }
        _ => {
            for (text, place) in keys.strings("series", MAX_LIST) {
                if let Some(one) = one(text, place, experiment, faults) {
                    if !seen.insert(one.clone()) {
                        faults.add(place, format!("`{text}` is recorded twice: leave one out"));
                    } else {
                        series.push(one);
                    }
                }
            }
        }
    }
    let mut captured: Vec<String> = Vec::new();
    for (name, place) in keys.strings("pcap", MAX_LIST) {
        if check_known("link", name, place, links().collect::<Vec<_>>(), faults) {
            if captured.iter().any(|other| other == name) {
                faults.add(place, format!("`{name}` is captured twice: leave one out"));
            } else {
                captured.push(name.to_owned());
            }
        }
    }
    let pcap = Pcap { links: captured, snaplen: snaplen(&keys), format: format(&keys) };
    let counts: HashMap<&str, u64> =
        experiment.flows.iter().map(|flow| (flow.name.as_str(), u64::from(flow.count))).collect();
    let instances = |series: &Series| match series {
        Series::Flow { flow, .. } => counts.get(flow.as_str()).copied().unwrap_or(1),
        Series::Link { .. } => 1,
    };
    let columns: u64 = series.iter().map(instances).sum();
    let samples = experiment.duration.as_nanos() / every.as_nanos().max(1) * u128::from(columns);
    let known = experiment.duration != marcato_units::Duration::MAX;
    if known && samples > u128::from(MAX_SAMPLES) {
        keys.fault(
            "every",
            format!(
                "this makes {samples} samples, but at most {MAX_SAMPLES} are possible: sample less often"
            ),
        );
    }
    Record { every, series, pcap }
}

/// Smallest length of a captured packet: the largest headers of IP and TCP. RFC 791 §3.1, RFC 9293
/// §3.1.
const LEAST_SNAPLEN: Bytes = Bytes::new(120);
/// Longest IP packet.
const MOST_SNAPLEN: Bytes = Bytes::new(65_535);

fn snaplen(keys: &Keys<'_>) -> Option<Bytes> {
    let item = keys.item("snaplen");
    if item.and_then(Item::as_str) == Some("whole") {
        return None;
    }
    let snaplen = keys.size("snaplen").or(Pcap::default().snaplen)?;
    if !(LEAST_SNAPLEN..=MOST_SNAPLEN).contains(&snaplen) {
        let snaplen = marcato_document::quantity::size(snaplen);
        keys.fault("snaplen", format!("`snaplen` is \"whole\", or 120 B to 65535 B, not {snaplen}"));
    }
    Some(snaplen)
}

fn format(keys: &Keys<'_>) -> CaptureFormat {
    let formats = [CaptureFormat::Pcap, CaptureFormat::PcapNg].map(|format| (format.name(), format));
    keys.word("pcap-format", &formats).unwrap_or_default()
}

/// Returns whether a flow of this kind has this metric.
fn has(flow: &Flow, metric: FlowMetric) -> bool {
    match flow.kind {
        FlowKind::Udp(_) => matches!(metric, FlowMetric::Throughput | FlowMetric::Losses | FlowMetric::Delay),
        // Connections of a process come and go, so only their sums are sampled.
        FlowKind::TcpProcess(_) => matches!(metric, FlowMetric::Throughput | FlowMetric::Losses),
        FlowKind::Quic(_) => !matches!(metric, FlowMetric::Ssthresh | FlowMetric::LowWindow),
        FlowKind::Tcp(_) | FlowKind::RequestResponse(_) | FlowKind::Messages(_) => {
            metric != FlowMetric::Delay
        }
    }
}

/// Returns whether a series of this metric would show anything. [`has`] also accepts the low window
/// of a flow without a low layer, as other runs of a grid may have one.
fn shows(flow: &Flow, metric: FlowMetric) -> bool {
    let is_layered = flow.kind.tcp().is_some_and(|ends| ends.from.low_layer.is_some());
    has(flow, metric) && (metric != FlowMetric::LowWindow || is_layered)
}

/// Returns every series that shows something.
pub(crate) fn all(experiment: &Experiment) -> Vec<Series> {
    let mut series = Vec::new();
    for flow in &experiment.flows {
        let metrics = FlowMetric::ALL.iter().filter(|metric| shows(flow, **metric));
        series.extend(metrics.map(|&metric| Series::Flow { flow: flow.name.clone(), metric }));
    }
    for link in &experiment.links {
        for back in [false, true] {
            series.extend(LinkMetric::ALL.iter().map(|&metric| Series::Link {
                link: link.name.clone(),
                back,
                metric,
            }));
        }
    }
    series
}

fn one(text: &str, place: Place, experiment: &Experiment, faults: &Faults) -> Option<Series> {
    let fault = |problem: String| {
        faults.add(place, problem);
        None
    };
    let parts: Vec<&str> = text.split('.').collect();
    match parts.as_slice() {
        ["flow", name, metric] => {
            let names = || experiment.flows.iter().map(|flow| flow.name.as_str()).collect::<Vec<_>>();
            if !check_known("flow", name, place, names(), faults) {
                return None;
            }
            let flow = experiment.flow(name)?;
            let of = |metric: &&FlowMetric| has(flow, **metric);
            match FlowMetric::ALL.iter().filter(of).find(|one| one.name() == *metric) {
                Some(&metric) => Some(Series::Flow { flow: (*name).to_owned(), metric }),
                None => {
                    let names: Vec<&str> = FlowMetric::ALL.iter().filter(of).map(|one| one.name()).collect();
                    let kind = flow.kind.name();
                    fault(format!("`{metric}` is not recorded of a {kind} flow: {}", hint(metric, names)))
                }
            }
        }
        ["link", name, metric] | ["link", name, "back", metric] => {
            let names = || experiment.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>();
            if !check_known("link", name, place, names(), faults) {
                return None;
            }
            let back = parts.len() == 4;
            match LinkMetric::ALL.iter().find(|one| one.name() == *metric) {
                Some(&metric) => Some(Series::Link { link: (*name).to_owned(), back, metric }),
                None => {
                    let names: Vec<&str> = LinkMetric::ALL.iter().map(|one| one.name()).collect();
                    fault(format!("`{metric}` is not recorded of a link: {}", hint(metric, names)))
                }
            }
        }
        _ => fault(format!(
            "`{text}` is not a series: write flow.NAME.METRIC, link.NAME.METRIC or link.NAME.back.METRIC"
        )),
    }
}
