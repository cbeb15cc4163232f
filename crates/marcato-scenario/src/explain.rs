//! Plain-text summary of what will run, for a reader to check beforehand.

use std::fmt::Write as _;

use marcato_document::Pairs;
use marcato_document::quantity::{rate, size, span};
use marcato_queue::CodelConfig;
use marcato_units::{Bytes, Duration, Layer, Rate, Time};

use crate::amount::{Transmitter, limit_text};
use crate::experiment::Experiment;
use crate::flow::{Feeder, Flow, FlowKind, Listed, PacketArrivals, Payload, TcpEnds};
use crate::kinded::Kinded as _;
use crate::link::{
    Added, Capacity, Direction, Jitter, Link, Loss, PeriodicLoss, RandomLoss, ScriptedLoss, Way,
};
use crate::path::{Map, Route};
use crate::plugin::{Parameter, Plugin};
use crate::queue::{Limit, Queue, Responsive, Sharing, Standard, Strict, threshold_text, thresholds_text};
use crate::quic::Scheduler;
use crate::record::{Pcap, Series};
use crate::scenario::Scenario;
use crate::tcp::Congestion;
use crate::traffic::{Arrivals, Messaging, OnOff, Pause, Size};

/// Writes a line; writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{
        let _ = writeln!($out, $($arg)*);
    }};
}

/// Number of nodes, events, series or runs that a list shows before "and … more".
const LISTED: usize = 24;

/// Number of pairs of nodes listed, of those over which a flow's instances are spread.
const PAIRS: usize = 4;

/// Returns a summary of what a scenario will run.
///
/// It covers nodes, links and queue capacities, flows and their paths, events in order of time,
/// records, and the number of runs. The same scenario gives the same text.
pub fn explain(scenario: &Scenario) -> String {
    let experiment = scenario.experiment();
    let mut out = String::new();
    head(experiment, scenario, &mut out);
    links(experiment, scenario, &mut out);
    flows(experiment, scenario, &mut out);
    events(experiment, &mut out);
    if !scenario.notes().is_empty() {
        line!(out, "\nleft out, since the run ends at {}", span(experiment.duration));
        scenario.notes().iter().for_each(|note| line!(out, "  {note}"));
    }
    recorded(experiment, &mut out);
    runs(scenario, &mut out);
    warnings(experiment, &mut out);
    out
}

/// Writes rows as aligned columns, each line indented.
fn table(rows: &[Vec<String>], out: &mut String) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut text = String::from(" ");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, " {cell:<width$} ");
        }
        line!(out, "{}", text.trim_end());
    }
}

/// Formats a list of names, cut after [`LISTED`].
fn list(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(LISTED).map(String::as_str).collect();
    match names.len().checked_sub(LISTED) {
        Some(more @ 1..) => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}

fn plural(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Formats a time as a span since the start of the run.
fn at(time: Time) -> String {
    span(time - Time::ZERO)
}

/// Formats a span with three digits, for reading rather than for calculation.
fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    format!("{} {unit}", digits(value))
}

/// Formats a number with three digits and without trailing zeros.
fn digits(value: f64) -> String {
    let places = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a size with three digits.
fn about_size(bytes: Bytes) -> String {
    match bytes.get() as f64 {
        b if b >= 1e9 => format!("{} GB", digits(b / 1e9)),
        b if b >= 1e6 => format!("{} MB", digits(b / 1e6)),
        b if b >= 1e3 => format!("{} kB", digits(b / 1e3)),
        b => format!("{b} B"),
    }
}

/// Formats a rate with three digits.
fn about_rate(rate: Rate) -> String {
    match rate.as_bps() as f64 {
        b if b >= 1e9 => format!("{} Gbit/s", digits(b / 1e9)),
        b if b >= 1e6 => format!("{} Mbit/s", digits(b / 1e6)),
        b if b >= 1e3 => format!("{} kbit/s", digits(b / 1e3)),
        b => format!("{b} bit/s"),
    }
}

fn warnings(experiment: &Experiment, out: &mut String) {
    for warning in experiment.warnings() {
        line!(out, "\nwarning: {warning}");
    }
}

fn head(experiment: &Experiment, scenario: &Scenario, out: &mut String) {
    match experiment.about.as_str() {
        "" => line!(out, "{}", experiment.name),
        about => line!(out, "{}: {about}", experiment.name),
    }
    let measured = match experiment.warm_up.is_zero() {
        true => "all of it measured".to_owned(),
        false => format!("measured from {} on", span(experiment.warm_up)),
    };
    line!(out, "  {} of virtual time, {measured}", span(experiment.duration));
    let from =
        scenario.topology().map_or(String::new(), |kind| format!(", with those of the topology {kind}"));
    line!(out, "\n{}{from}", plural(experiment.nodes.len(), "node"));
    line!(out, "  {}", list(&experiment.nodes));
}

fn links(experiment: &Experiment, scenario: &Scenario, out: &mut String) {
    line!(out, "\n{}", plural(experiment.links.len(), "link"));
    let head = ["link", "from", "to", "rate", "delay", "mtu", "queue", "holds", "wire"];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    for link in &experiment.links {
        let [a, b] = &link.between;
        rows.push(direction(link, &link.name, [a, b], &link.there, scenario));
        if link.there == link.back {
            if let Some(row) = rows.last_mut() {
                row[1] = format!("{a} <->");
            }
        } else {
            rows.push(direction(link, "", [b, a], &link.back, scenario));
        }
    }
    table(&rows, out);
}

fn direction(link: &Link, name: &str, ends: [&str; 2], of: &Direction, scenario: &Scenario) -> Vec<String> {
    let capacity = match &of.rate {
        Capacity::Unlimited => "at once".to_owned(),
        Capacity::Rate(fixed) => rate(*fixed),
        Capacity::Trace(path) => match scenario.trace_rate(path) {
            Some(mean) => format!("{path}, {} on average", about_rate(mean)),
            None => path.clone(),
        },
    };
    let rate = match &of.rate {
        Capacity::Unlimited => None,
        Capacity::Rate(rate) => Some(*rate),
        Capacity::Trace(path) => scenario.trace_rate(path),
    };
    // No packet ever waits on a link without a rate.
    let before = Transmitter { rate: of.rate.fixed(), mtu: link.mtu };
    let queue = if of.rate == Capacity::Unlimited { "-".to_owned() } else { queue(&of.queue, before) };
    let holds = rate.map_or_else(|| "-".to_owned(), |rate| holds(&of.queue, rate, link.mtu, of.framing));
    let [from, to] = ends;
    let mut row = vec![name.to_owned(), from.to_owned(), to.to_owned(), capacity, span(of.delay)];
    row.extend([size(link.mtu), queue, holds, wire(of)]);
    row
}

/// Describes the queue before a transmitter. A discipline without a line here has its capacity and
/// the keys that differ from their defaults.
fn queue(queue: &Queue, before: Transmitter) -> String {
    match queue {
        Queue::Codel(codel) => format!("codel {}", self::codel(codel)),
        Queue::FqCodel(of) => format!("fq-codel {} x {}", of.flows, self::codel(&of.codel)),
        Queue::Crq(crq) => {
            let standard = match crq.standard {
                Standard::Codel => "",
                Standard::FqCodel => " beside fq-codel",
                Standard::DropTail => " beside droptail",
            };
            let least = match crq.sharing {
                Sharing::Strict { least } => format!(" but {} %", digits(f64::from(least) / 10.0)),
                Sharing::Weighted | Sharing::Split => String::new(),
            };
            let fair = if crq.responsive == Responsive::FqCodel { "fq-" } else { "" };
            let young = crq.young.map_or_else(String::new, |young| {
                format!(", {} % young", digits(f64::from(young.share) / 10.0))
            });
            let (sharing, codel) = (crq.sharing.name(), self::codel(&crq.codel));
            format!("crq {sharing}{least}{young} {fair}{codel}{standard}")
        }
        Queue::StepMark(of) => {
            format!("step-mark above {} {}", threshold_text(of.threshold), limit_text(of.limit))
        }
        Queue::Red(red) => {
            let [least, most] = thresholds_text(red.thresholds);
            let (gentle, ecn) = (if red.gentle { " gentle" } else { "" }, if red.ecn { " ecn" } else { "" });
            let percent = digits(f64::from(red.max_p.get()) / 1e4);
            format!("red{gentle} {least}/{most} {percent} %{ecn} {}", limit_text(red.limit))
        }
        Queue::Pie(pie) => {
            let ecn = if pie.mark_ecnth.is_some() { " ecn" } else { "" };
            format!("pie {}/{}{ecn} {}", span(pie.qdelay_ref), span(pie.t_update), limit_text(pie.limit))
        }
        Queue::Strict(Strict { high, low, preempt }) => {
            let over = if *preempt { "pre-empting" } else { "over" };
            format!("strict [{} {over} {}]", self::queue(high, before), self::queue(low, before))
        }
        Queue::Policer(policer) => {
            let (rate, burst) = (rate(policer.rate), size(policer.burst));
            format!("policer {rate} {burst} [{}]", self::queue(&policer.queue, before))
        }
        Queue::Plugin(plugin) => plugin_text(plugin),
        other => by_keys(other, before),
    }
}

/// Returns the kind of a queue, its capacity, and its other keys that differ from their defaults.
fn by_keys(queue: &Queue, before: Transmitter) -> String {
    let keys = |queue: &Queue| {
        let mut pairs = Pairs::new();
        queue.write_keys(&mut pairs);
        pairs.remove("limit");
        pairs.into_pairs()
    };
    let usual = Queue::usual(queue.kind(), &before).map_or_else(Vec::new, |usual| keys(&usual));
    let changed: Vec<String> = keys(queue)
        .into_iter()
        .filter(|pair| !usual.contains(pair))
        .map(|(key, value)| format!("{key} {}", value.trim_matches('"')))
        .collect();
    let limits: Vec<String> = queue.limits().into_iter().map(limit_text).collect();
    let changed = if changed.is_empty() { String::new() } else { format!(" ({})", changed.join(", ")) };
    format!("{} {}{changed}", queue.kind(), limits.join(" + "))
}

/// Returns the name of a plug-in, with its parameters.
fn plugin_text(plugin: &Plugin) -> String {
    let value = |value: &Parameter| match value {
        Parameter::Number(number) => number.to_string(),
        Parameter::Text(text) => text.clone(),
        Parameter::Flag(flag) => flag.to_string(),
    };
    let all: Vec<String> =
        plugin.parameters.iter().map(|(key, one)| format!("{key} {}", value(one))).collect();
    if all.is_empty() { plugin.name.clone() } else { format!("{} ({})", plugin.name, all.join(", ")) }
}

fn codel(codel: &CodelConfig) -> String {
    let ecn = if codel.ecn { " ecn" } else { "" };
    let (target, interval) = (span(codel.target), span(codel.interval));
    format!("{target}/{interval}{ecn} {}", limit_text(codel.limit))
}

/// Returns the drain time of a full queue of packets of the MTU, for each of its limits.
fn holds(queue: &Queue, rate: Rate, mtu: Bytes, framing: Bytes) -> String {
    let time = |limit: &Limit| {
        let bytes = match *limit {
            Limit::Packets(packets) => (mtu + framing) * packets,
            Limit::Bytes(bytes) => bytes,
        };
        about(rate.transmission_time(bytes))
    };
    let times: Vec<String> = queue.limits().iter().map(time).collect();
    // The capacity of a plug-in is unknown.
    if times.is_empty() { "-".to_owned() } else { times.join(" + ") }
}

fn loss(loss: &Loss) -> String {
    match loss {
        Loss::None => "loses nothing".to_owned(),
        Loss::Random(RandomLoss { probability }) => format!("loses {} %", digits(probability * 100.0)),
        Loss::Every(PeriodicLoss { packets }) => format!("loses 1 in {packets}"),
        Loss::Script(ScriptedLoss { packets }) => format!("loses {} by script", packets.len()),
        Loss::GilbertElliott(chain) => {
            let mean = digits(chain.mean_loss() * 100.0);
            format!("loses {mean} % in bursts of {}", digits(1.0 / chain.r))
        }
    }
}

fn wire(of: &Direction) -> String {
    let mut parts = Vec::new();
    if !of.framing.is_zero() {
        parts.push(format!("{} framing", size(of.framing)));
    }
    if of.bleach_ecn {
        parts.push("bleaches ecn".to_owned());
    }
    if of.loss != Loss::None {
        parts.push(loss(&of.loss));
    }
    if let Some(Jitter { added, reorder }) = of.jitter {
        let added = match added {
            Added::Uniform { least, most } => format!("{} to {}", span(least), span(most)),
            Added::Normal { mean, deviation } => format!("{} +- {}", span(mean), span(deviation)),
            Added::Exponential { mean } => format!("exp. {}", span(mean)),
        };
        parts.push(format!("jitter {added}{}", if reorder { " reordering" } else { "" }));
    }
    if of.duplication > 0.0 {
        parts.push(format!("duplicates {} %", digits(of.duplication * 100.0)));
    }
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn flows(experiment: &Experiment, scenario: &Scenario, out: &mut String) {
    let many: usize = experiment.flows.iter().map(|flow| flow.count as usize).sum();
    line!(out, "\n{}", plural(many, "flow"));
    let map = Map::new(experiment);
    for flow in &experiment.flows {
        let times = if flow.count == 1 { String::new() } else { format!("{} x ", flow.count) };
        let layer = if flow.layer == Layer::Low { ", low layer" } else { "" };
        line!(out, "  {}: {times}{}{layer}", flow.name, what(flow));
        let paths = match &flow.kind {
            FlowKind::Quic(quic) if flow.also.is_empty() => {
                quic.paths.iter().map(|path| (path.from.as_str(), path.to.as_str(), path.layer)).collect()
            }
            _ => flow.pairs().take(PAIRS).map(|[from, to]| (from, to, flow.layer)).collect::<Vec<_>>(),
        };
        for (from, to, layer) in paths {
            if let (Some(there), Some(back)) = (map.route(from, to), map.route(to, from)) {
                path(&there, &back, from, layer != flow.layer, scenario, out);
            }
        }
        if let more @ 1.. = (flow.also.len() + 1).saturating_sub(PAIRS) {
            line!(out, "    and {more} more pair{}", if more == 1 { "" } else { "s" });
        }
    }
}

/// Writes the route of a flow with its properties.
fn path(there: &Route<'_>, back: &Route<'_>, from: &str, low: bool, scenario: &Scenario, out: &mut String) {
    let mut way = from.to_owned();
    for hop in &there.hops {
        let [a, b] = &hop.link.between;
        let _ = write!(way, " -> {}", if hop.back { a } else { b });
    }
    let layer = if low { " (other layer)" } else { "" };
    line!(out, "    {way}{layer}");
    let rtt = there.delay().saturating_add(back.delay());
    let mut facts = format!("base RTT {}", about(rtt));
    let traced = there.trace().and_then(|hop| match &hop.direction().rate {
        Capacity::Trace(path) => Some((hop, scenario.trace_rate(path)?)),
        _ => None,
    });
    let slowest = [there.bottleneck(), traced].into_iter().flatten().min_by_key(|&(_, rate)| rate);
    if let Some((hop, slowest)) = slowest {
        let bdp = slowest.bytes_in(rtt);
        let packets = bdp.get().div_ceil(there.mtu().get().max(1));
        let bottleneck = format!("slowest link {} ({})", hop.link.name, about_rate(slowest));
        let _ = write!(facts, ", {bottleneck}, BDP {} ({} packets)", about_size(bdp), packets);
    }
    line!(out, "      {facts}, path MTU {}", size(there.mtu().min(back.mtu())));
}

fn what(flow: &Flow) -> String {
    let stop = flow.stop.map_or(String::new(), |stop| format!(" until {}", at(stop)));
    match &flow.kind {
        FlowKind::Tcp(tcp) => {
            let amount = tcp.size.map_or_else(|| "bulk data".to_owned(), size);
            format!("tcp {}, {amount}{}{stop}", ends(&tcp.tcp), on_off(tcp.on_off))
        }
        FlowKind::Udp(udp) => {
            let how = match udp.arrivals {
                PacketArrivals::Constant => "constant".to_owned(),
                PacketArrivals::Poisson => "poisson".to_owned(),
                PacketArrivals::Ticks { every } => format!("each {}", span(every)),
            };
            let payload = payload(&udp.payload);
            format!("udp {} {how}, payload {payload}{}{stop}", rate(udp.rate), on_off(udp.on_off))
        }
        FlowKind::TcpProcess(process) => {
            let gap = process.mean_gap();
            let often = match process.arrivals {
                Arrivals::Every(_) => {
                    let load = Rate::from_bytes_over(process.size.mean(), gap);
                    format!("one each {} on average (a load of {})", about(gap), about_rate(load))
                }
                Arrivals::Load(load) => {
                    format!("a load of {} (one each {} on average)", rate(load), about(gap))
                }
            };
            let most = process.most_open;
            format!(
                "tcp {} connections, {often}, of {}, at most {most} open{stop}",
                ends(&process.tcp),
                of(&process.size)
            )
        }
        FlowKind::RequestResponse(ask) => {
            let times = ask.requests.map_or(String::new(), |requests| format!(", {requests} times"));
            let think = pause(ask.think);
            format!(
                "requests of {} over tcp {}, answers of {}, a pause of {think}{times}{stop}",
                size(ask.request),
                ends(&ask.tcp),
                of(&ask.response)
            )
        }
        FlowKind::Messages(messages) => {
            let feeder = match messages.feeder {
                Feeder::Conductor => format!("a conductor ({})", messages.messaging.preset.name()),
                Feeder::Greedy => format!("a greedy conductor ({})", messages.messaging.preset.name()),
                Feeder::Fifo => "nothing but a queue".to_owned(),
                Feeder::Writers => "a writer for each priority".to_owned(),
            };
            let sent = sent(&messages.messaging);
            format!("messages through {feeder} over tcp {}: {sent}{stop}", ends(&messages.tcp))
        }
        FlowKind::Quic(quic) => {
            let sent = sent(&quic.messaging);
            let lanes = plural(quic.paths.len(), "lane");
            let scheduler = match &quic.scheduler {
                Scheduler::Plugin(plugin) => plugin_text(plugin),
                built_in => built_in.name().to_owned(),
            };
            let layered = if quic.layered { " in two layers" } else { "" };
            format!("quic on {lanes}{layered} by {scheduler}, {}: {sent}{stop}", quic.controller.name())
        }
    }
}

fn ends(ends: &TcpEnds) -> String {
    let name = match &ends.from.congestion {
        Congestion::Plugin(plugin) => plugin_text(plugin),
        built_in => built_in.name().to_owned(),
    };
    let ecn = if ends.from.ecn { " with ecn" } else { "" };
    let low = if ends.from.low_layer.is_some() { " over a low layer" } else { "" };
    format!("{name}{ecn}{low}")
}

fn payload(payload: &Payload) -> String {
    match payload {
        Payload::Constant(bytes) => size(*bytes),
        Payload::Drawn { size: drawn, most } => format!("{}, at most {}", of(drawn), size(*most)),
        Payload::Listed(Listed { file, is_random, list }) => {
            let order = if *is_random { "at random" } else { "in turn" };
            let known = list.as_ref().map_or(String::new(), |list| {
                let (mean, largest) = (size(list.mean()), size(list.largest().1));
                format!(" ({}, mean {mean}, at most {largest})", plural(list.len(), "size"))
            });
            format!("from {file} {order}{known}")
        }
    }
}

fn of(distribution: &Size) -> String {
    match distribution {
        Size::Constant(bytes) => size(*bytes),
        Size::Exponential { mean } => format!("{} (exponential)", size(*mean)),
        Size::Pareto { shape, mean, most } => {
            format!("{} (pareto, shape {}, at most {})", size(*mean), digits(*shape), size(*most))
        }
        Size::LogNormal { mean, sigma } => format!("{} (log-normal, sigma {})", size(*mean), digits(*sigma)),
    }
}

fn pause(pause: Pause) -> String {
    match pause {
        Pause::Constant(time) => span(time),
        Pause::Exponential { mean } => format!("{} (exponential)", span(mean)),
    }
}

fn on_off(on_off: Option<OnOff>) -> String {
    on_off.map_or(String::new(), |OnOff { on, off }| format!(", on {} off {}", pause(on), pause(off)))
}

fn sent(Messaging { messages, sources, bulk, workload, .. }: &Messaging) -> String {
    let mut parts = Vec::new();
    if !messages.is_empty() {
        let total: Bytes = messages.iter().map(|message| message.size).sum();
        let names: Vec<String> = messages.iter().filter_map(|message| message.name.clone()).collect();
        let named = if names.is_empty() { String::new() } else { format!("; by name: {}", list(&names)) };
        parts.push(format!("{} ({}{named})", plural(messages.len(), "message"), about_size(total)));
    }
    for source in sources {
        parts.push(format!("{} each {} at {}", size(source.size), span(source.period), source.priority));
    }
    for bulk in bulk {
        parts.push(format!("bulk data at {}", bulk.priority));
    }
    parts.extend(workload.as_ref().map(|plugin| format!("messages of {}", plugin_text(plugin))));
    parts.join(", ")
}

/// Writes starts, stops and changes, in order of time.
fn events(experiment: &Experiment, out: &mut String) {
    let mut events: Vec<(Time, String)> = Vec::new();
    for flow in &experiment.flows {
        for (number, name) in (0..).zip(flow.instances()) {
            let later = match flow.start_jitter.is_zero() {
                true => String::new(),
                false => format!(", or up to {} later", span(flow.start_jitter)),
            };
            events.push((flow.start_of(number), format!("{name} starts{later}")));
        }
        if let Some(stop) = flow.stop {
            events.push((stop, format!("{} stops", flow.name)));
        }
    }
    for link in &experiment.links {
        for change in &link.changes {
            let way = match change.way {
                Way::Both => "",
                Way::There => " there",
                Way::Back => " back",
            };
            let becomes =
                change.rate.map(|to| if to == Rate::ZERO { "stands still".to_owned() } else { rate(to) });
            let up = change.up.map(|up| if up { "comes up" } else { "goes down" }.to_owned());
            let delay = change.delay.map(|delay| format!("delay {}", span(delay)));
            let lost = change.loss.as_ref().map(loss);
            let direction = if change.way == Way::Back { &link.back } else { &link.there };
            let before = Transmitter { rate: direction.rate.fixed(), mtu: link.mtu };
            let queue = change.queue.as_ref().map(|to| format!("queue {}", queue(to, before)));
            let what: Vec<String> = [becomes, up, delay, lost, queue].into_iter().flatten().collect();
            events.push((change.at, format!("link {}{way}: {}", link.name, what.join(", "))));
        }
    }
    if !experiment.warm_up.is_zero() {
        events.push((Time::ZERO + experiment.warm_up, "measuring begins".to_owned()));
    }
    events.push((Time::ZERO + experiment.duration, "the run ends".to_owned()));
    events.sort_by_key(|(time, _)| *time);
    line!(out, "\nwhen");
    let mut rows: Vec<Vec<String>> =
        events.iter().map(|(time, what)| vec![at(*time), what.clone()]).collect();
    if rows.len() > LISTED {
        // The last rows show the end of the run, which matters more than the rows in between.
        let more = format!("and {} more", rows.len() - LISTED + 1);
        rows.splice(LISTED - 1..rows.len() - 1, [vec![String::new(), more]]);
    }
    table(&rows, out);
}

fn recorded(experiment: &Experiment, out: &mut String) {
    let record = &experiment.record;
    if !record.series.is_empty() {
        let series: Vec<String> = record.series.iter().map(Series::to_string).collect();
        line!(out, "\nrecorded every {}", span(record.every));
        line!(out, "  {}", list(&series));
    }
    let Pcap { links, snaplen, format } = &record.pcap;
    if !links.is_empty() {
        line!(out, "\npackets captured on");
        line!(out, "  {}", list(links));
        let unsaid = Pcap::default();
        if (*snaplen, *format) != (unsaid.snaplen, unsaid.format) {
            let kept = snaplen.map_or_else(|| "all".to_owned(), |most| format!("up to {}", size(most)));
            line!(out, "  {kept} of each, as {}", format.name());
        }
    }
}

fn runs(scenario: &Scenario, out: &mut String) {
    let grid = scenario.grid();
    line!(out, "\n{}", plural(scenario.count(), "run"));
    for axis in &grid.axes {
        let values: Vec<String> = axis.values.iter().map(marcato_document::Item::spoken).collect();
        line!(out, "  {}: {}", axis.key.name, list(&values));
    }
    let (first, last) = (grid.seeds.first().copied().unwrap_or(0), grid.seeds.last().copied().unwrap_or(0));
    let in_a_row = grid.seeds.is_sorted_by(|a, b| a + 1 == *b);
    match grid.seeds.as_slice() {
        [one] => line!(out, "  seed: {one}"),
        seeds if in_a_row => line!(out, "  seeds: {first} to {last} ({})", seeds.len()),
        seeds => line!(out, "  seeds: {}", list(&seeds.iter().map(u64::to_string).collect::<Vec<_>>())),
    }
    if let Some(run) = scenario.run(0) {
        line!(out, "  the first: {}", scenario.one_line(&run));
    }
}

#[cfg(test)]
mod tests {
    use marcato_queue::{DropTailConfig, PieConfig};

    use super::*;

    #[test]
    fn a_queue_without_a_line_shows_its_changed_keys() {
        let before = Transmitter { rate: None, mtu: Bytes::new(1500) };
        let pie = PieConfig { limit: Limit::Bytes(Bytes::kb(60)), ..PieConfig::default() };
        assert_eq!(by_keys(&Queue::Pie(pie), before), "pie 60 kB");
        let pie = PieConfig { qdelay_ref: Duration::from_millis(5), alpha: 250, ..pie };
        assert_eq!(by_keys(&Queue::Pie(pie), before), "pie 60 kB (target 5 ms, alpha 0.25)");
        assert_eq!(queue(&Queue::DropTail(DropTailConfig::default()), before), "droptail 1000 packets");
    }
}
