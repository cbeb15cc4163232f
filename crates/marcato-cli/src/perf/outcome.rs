//! Results of a run as text, JSON and figures.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{AtomicFile, COMMIT, Percentile, Samples, VERSION};
use marcato_units::{Bytes, Layer, Priority, Rate};
use serde_json::{Value, json};

use super::PerfError;
use super::cpu::CpuTime;
use super::direction::{Direction, Mode};
use super::interval::Interval;
use super::load::SourceSpec;
use super::plan::{EngineName, Plan};
use super::quantity::{shown_size, shown_span};
use super::scheduler::{PathName, StreamName};
use crate::output::Directory;
use crate::table::Table;

/// Version of the JSON document. It changes when a key changes its meaning or is removed.
const FORMAT: u32 = 1;
/// Largest number of points of a distribution in the JSON document.
const MOST_POINTS: usize = 1000;

/// Returns the definition of the measured quantity, for readers who have only the result.
fn definition(mode: Mode) -> String {
    let (sender, receiver) = match mode {
        Mode::Both => ("sender", "receiver"),
        Mode::Forward => Direction::Forward.ends(),
        Mode::Reverse => Direction::Reverse.ends(),
    };
    format!(
        "Message completion time, one way: from the release of a message at the {sender} to the moment \
         at\nwhich the {receiver}'s application has all of it, including the wait before the connection"
    )
}

/// Result of the comparison of the two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) shared: bool,
    /// Lead of the server's clock.
    pub(crate) offset_ms: f64,
    /// Largest possible error of the lead.
    pub(crate) error_ms: f64,
    pub(crate) exchanges: u64,
}

impl Clock {
    fn json(&self) -> Value {
        json!({
            "shared": self.shared,
            "offset_ms": self.offset_ms,
            "error_ms": self.error_ms,
            "exchanges": self.exchanges,
        })
    }

    fn words(&self) -> String {
        if self.shared {
            return "both ends are on one host and read one clock".to_owned();
        }
        format!(
            "the clocks differ: the server's is ahead by {:.3} ms, estimated from the quickest of {} \
             exchanges; each time may be wrong by {:.3} ms at most, plus the drift between the clocks",
            self.offset_ms, self.exchanges, self.error_ms
        )
    }
}

/// Results of one source.
#[derive(Clone, Debug)]
pub(crate) struct SourceOutcome {
    pub(crate) spec: SourceSpec,
    /// Number of messages released after the warm-up.
    pub(crate) sent: usize,
    /// Completion times of these messages in ms. Infinite if a message did not arrive; missing if
    /// the run was cut short before it could.
    pub(crate) mct_ms: Samples,
    /// Release of each of these messages in s since the run began, and its completion time in ms,
    /// which is `None` if it did not arrive; only if it was asked for.
    pub(crate) raw: Option<Vec<(f64, Option<f64>)>>,
}

/// Results of one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneOutcome {
    /// Number of its connection, counted from 1.
    pub(crate) connection: usize,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) layer: Layer,
    /// Mean over time, as for `cwnd` and `unsent`.
    pub(crate) srtt_ms: f64,
    pub(crate) cwnd: Bytes,
    pub(crate) unsent: Bytes,
    pub(crate) most_unsent: Bytes,
    pub(crate) packets: u64,
    pub(crate) lost: u64,
}

impl LaneOutcome {
    fn loss(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { self.lost as f64 / self.packets as f64 }
    }

    fn json(&self) -> Value {
        json!({
            "connection": self.connection,
            "local": self.local.map(|addr| addr.to_string()),
            "remote": self.remote.map(|addr| addr.to_string()),
            "layer": self.layer.name(),
            "srtt_ms": self.srtt_ms,
            "cwnd_bytes": self.cwnd.get(),
            "packets": self.packets,
            "lost": self.lost,
            "loss": self.loss(),
            "unsent_bytes": {"mean": self.unsent.get(), "max": self.most_unsent.get()},
        })
    }
}

/// Results of one direction, of a connection or of all.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) direction: Direction,
    pub(crate) sources: Vec<SourceOutcome>,
    /// Length of the interval in which bytes were counted.
    pub(crate) seconds: f64,
    /// Rate received in it.
    pub(crate) mbit_per_s: [f64; Priority::COUNT],
    /// Lanes of the sender.
    pub(crate) lanes: Vec<LaneOutcome>,
    /// Intervals, if they were asked for.
    pub(crate) intervals: Vec<Interval>,
}

/// Results of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionOutcome {
    /// Results of each direction.
    pub(crate) flows: Vec<Flow>,
    pub(crate) clock: Clock,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    /// Lane scheduler of the server, if it sends over QUIC.
    pub(crate) server_path: Option<PathName>,
    /// Results of each connection.
    pub(crate) connections: Vec<ConnectionOutcome>,
    /// Intervals of all connections together, for each direction.
    pub(crate) intervals: Vec<Vec<Interval>>,
    /// Lines of the intervals.
    pub(crate) lines: String,
    /// CPU time of the client and of the server during the run.
    pub(crate) cpu: [CpuTime; 2],
    /// Reason for an early end; `None` if the run was complete.
    pub(crate) cut: Option<String>,
}

/// Percentiles of the output, with their names.
const PERCENTILES: [(&str, Percentile); 4] = [
    ("p50", Percentile::P50),
    ("p99", Percentile::P99),
    ("p99_9", Percentile::P99_9),
    ("max", Percentile::MAX),
];

impl SourceOutcome {
    fn arrived(&self) -> usize {
        self.mct_ms.sorted().iter().filter(|took| took.is_finite()).count()
    }

    fn json(&self) -> Value {
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        let percentiles: serde_json::Map<String, Value> = PERCENTILES
            .into_iter()
            .map(|(name, percentile)| (name.to_owned(), json!(finite(self.mct_ms.percentile(percentile)))))
            .collect();
        let steps = self.mct_ms.ccdf();
        // Thinning starts at the end, so that the last point of the tail is always kept.
        let thin = steps.len().div_ceil(MOST_POINTS).max(1);
        let kept = steps.iter().rev().step_by(thin).rev();
        let ccdf: Vec<[f64; 2]> = kept.map(|&(at, share)| [at, share]).collect();
        json!({
            "source": self.spec.to_string(),
            "priority": self.spec.priority.to_string(),
            "period_ms": self.spec.period.as_secs_f64() * 1e3,
            "size_bytes": self.spec.size.get(),
            "sent": self.sent,
            "arrived": self.arrived(),
            "mct_ms": percentiles,
            "ccdf": ccdf,
            "raw": self.raw,
        })
    }
}

/// Returns a completion time in ms for readers.
fn shown_time(took: Option<f64>) -> String {
    match took {
        Some(took) if took.is_finite() => format!("{took:.2}"),
        Some(_) => "never".to_owned(),
        None => "–".to_owned(),
    }
}

impl SourceOutcome {
    /// Returns the columns of the source in CSV.
    fn csv(&self) -> String {
        let SourceSpec { period, size, priority } = self.spec;
        let (period, size) = (period.as_secs_f64() * 1e3, size.get());
        let mut csv = format!("{},{priority},{period},{size},{},{}", self.spec, self.sent, self.arrived());
        for (_, percentile) in PERCENTILES {
            let took = self.mct_ms.percentile(percentile).filter(|took| took.is_finite());
            csv += &took.map_or_else(|| ",".to_owned(), |took| format!(",{took}"));
        }
        csv
    }

    /// Adds the same source of another connection.
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        let all = self.mct_ms.sorted().iter().chain(other.mct_ms.sorted());
        self.mct_ms = all.copied().collect();
        if let (Some(raw), Some(others)) = (&mut self.raw, &other.raw) {
            raw.extend(others);
            raw.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        }
    }
}

impl Flow {
    /// Adds the flow of another connection in the same direction.
    fn add(&mut self, other: &Self) {
        for (source, other) in self.sources.iter_mut().zip(&other.sources) {
            source.add(other);
        }
        self.seconds = self.seconds.max(other.seconds);
        for (rate, other) in self.mbit_per_s.iter_mut().zip(other.mbit_per_s) {
            *rate += other;
        }
        self.lanes.extend(&other.lanes);
    }

    fn total(&self) -> f64 {
        self.mbit_per_s.iter().sum()
    }

    /// Returns the priorities that were sent, with the rate received and the share of each.
    fn shares(&self, plan: &Plan) -> Vec<(Priority, f64, f64)> {
        let sent = |priority: &Priority| {
            plan.sources.iter().any(|source| source.priority == *priority)
                || plan.bulk.is_some_and(|bulk| bulk.priority == *priority)
        };
        let total = self.total();
        let share = |priority: Priority| {
            let rate = self.mbit_per_s[priority.index()];
            (priority, rate, if total > 0.0 { rate / total } else { 0.0 })
        };
        Priority::ALL.into_iter().filter(sent).map(share).collect()
    }

    /// Returns the flow's tables.
    fn to_text(&self, plan: &Plan) -> String {
        let mut table = Table::new(["source", "sent", "arrived", "p50", "p99", "p99.9", "max"]).words(1);
        for source in &self.sources {
            let took = |percentile| shown_time(source.mct_ms.percentile(percentile));
            let mut row =
                vec![source.spec.to_string(), source.sent.to_string(), source.arrived().to_string()];
            row.extend(PERCENTILES.map(|(_, percentile)| took(percentile)));
            table.row(row);
        }
        let mut text = table.to_string();
        text += &self.tails();
        let (_, receiver) = self.direction.ends();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nThroughput at the {receiver} over {:.2} s", self.seconds);
        let mut table = Table::new(["priority", "Mbit/s", "share"]).words(1);
        for (priority, mbps, share) in self.shares(plan) {
            table.row([priority.to_string(), format!("{mbps:.3}"), format!("{:.1} %", share * 100.0)]);
        }
        table.row(["all".to_owned(), format!("{:.3}", self.total()), String::new()]);
        text += &table.to_string();
        let whose = if self.direction == Direction::Reverse { " of the server" } else { "" };
        let _ = writeln!(text, "\nLanes{whose}, means over time");
        let header = ["lane", "srtt ms", "cwnd B", "packets", "lost", "loss", "unsent B", "most unsent B"];
        let mut table = Table::new(header).words(1);
        // Lanes are numbered within their connection.
        let mut before = (0, 0);
        for lane in &self.lanes {
            let number = if before.0 == lane.connection { before.1 + 1 } else { 0 };
            before = (lane.connection, number);
            let name = if plan.connections > 1 {
                format!("{}.{number}", lane.connection)
            } else {
                number.to_string()
            };
            let name = lane.remote.map_or_else(|| name.clone(), |remote| format!("{name} {remote}"));
            let name = if lane.layer == Layer::Low { name + " low" } else { name };
            table.row([
                name,
                format!("{:.2}", lane.srtt_ms),
                lane.cwnd.get().to_string(),
                lane.packets.to_string(),
                lane.lost.to_string(),
                format!("{:.3} %", lane.loss() * 100.0),
                lane.unsent.get().to_string(),
                lane.most_unsent.get().to_string(),
            ]);
        }
        text + &table.to_string()
    }

    /// Returns the tails of the distributions: the share of messages slower than each of several
    /// thresholds in ms.
    fn tails(&self) -> String {
        let longest = self.sources.iter().flat_map(|source| source.mct_ms.sorted().last()).copied();
        let finite = self.sources.iter().flat_map(|source| source.mct_ms.sorted());
        let finite = finite.copied().filter(|took| took.is_finite()).fold(0.0, f64::max);
        if longest.fold(0.0, f64::max) <= 0.0 {
            return String::new();
        }
        // Steps of 1, 2, 5, 10 … up to the slowest message that arrived.
        let steps = (-2..7).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
        let above = |at: f64| self.sources.iter().map(move |source| source.mct_ms.share_above(at));
        let mut steps: Vec<f64> = steps.take_while(|at| *at < finite).collect();
        steps.retain(|at| above(*at).any(|share| share < 1.0));
        let names = self.sources.iter().map(|source| source.spec.to_string());
        let mut table = Table::new(std::iter::once("longer than".to_owned()).chain(names)).words(0);
        for at in steps {
            let shares = above(at).map(|share| format!("{share:.4}"));
            table.row(std::iter::once(format!("{at} ms")).chain(shares));
        }
        format!("\nCCDF of message completion times\n{table}")
    }

    /// Returns the keys of the JSON document that describe this flow.
    fn json(&self, plan: &Plan) -> [(&'static str, Value); 4] {
        let by_priority: Vec<Value> = self
            .shares(plan)
            .into_iter()
            .map(|(priority, mbps, share)| {
                json!({"priority": priority.to_string(), "mbit_per_s": mbps, "share": share})
            })
            .collect();
        let throughput = json!({
            "seconds": self.seconds,
            "mbit_per_s": self.total(),
            "by_priority": by_priority,
        });
        [
            ("sources", self.sources.iter().map(SourceOutcome::json).collect()),
            ("throughput", throughput),
            ("lanes", self.lanes.iter().map(LaneOutcome::json).collect()),
            ("intervals", self.intervals.iter().map(Interval::json).collect()),
        ]
    }
}

/// Returns an object with the keys of each flow: those of the first one, and for a second one those
/// in the key `reverse`.
fn flows_json(flows: &[Flow], plan: &Plan) -> serde_json::Map<String, Value> {
    let object = |flow: &Flow| {
        flow.json(plan)
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<serde_json::Map<_, _>>()
    };
    let mut all = flows.first().map(object).unwrap_or_default();
    all.insert("reverse".to_owned(), flows.get(1).map_or(Value::Null, |flow| object(flow).into()));
    all
}

impl Outcome {
    /// Returns the results of each direction, of all connections together.
    fn flows(&self) -> Vec<Flow> {
        let Some((first, others)) = self.connections.split_first() else { return Vec::new() };
        let mut flows = first.flows.clone();
        for other in others {
            for (flow, other) in flows.iter_mut().zip(&other.flows) {
                flow.add(other);
            }
        }
        for (flow, intervals) in flows.iter_mut().zip(&self.intervals) {
            flow.intervals.clone_from(intervals);
        }
        flows
    }

    /// Returns the comparison of the clocks with the largest possible error of all connections.
    fn clock(&self) -> Clock {
        let clocks = self.connections.iter().map(|connection| connection.clock);
        let none = Clock { shared: false, offset_ms: 0.0, error_ms: 0.0, exchanges: 0 };
        clocks.reduce(|worst, one| if one.error_ms > worst.error_ms { one } else { worst }).unwrap_or(none)
    }

    fn debt(&self) -> &'static str {
        match self.plan.stream {
            StreamName::Pfifo => "strict",
            StreamName::Cats => "marcato",
            StreamName::Rr | StreamName::Fifo => "none: one level",
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let Plan {
            engine,
            mode,
            connections,
            sources,
            bulk,
            bitrate,
            bytes,
            unreliable,
            path,
            layered,
            coupled,
            marks,
            stream,
            duration,
            warm_up,
            backlog,
            seed,
            raw: _,
        } = &self.plan;
        let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
        let flows = self.flows();
        let clock = self.clock();
        let parts: Vec<Value> = self
            .connections
            .iter()
            .filter(|_| *connections > 1)
            .map(|connection| {
                let mut part = flows_json(&connection.flows, &self.plan);
                part.insert("clock".to_owned(), connection.clock.json());
                part.into()
            })
            .collect();
        let mut document = json!({
            "perf": FORMAT,
            "version": VERSION,
            "commit": COMMIT,
            "complete": self.cut.is_none(),
            "incomplete_because": self.cut,
            "seed": seed,
            "config": {
                "engine": engine.to_string(),
                "sources": sources,
                "bulk": bulk.map(|bulk| bulk.to_string()),
                "bitrate_bit_per_s": bitrate.map(Rate::as_bps),
                "bytes": bytes.map(Bytes::get),
                "unreliable": *unreliable,
                "direction": mode.to_string(),
                "connections": connections,
                "path_scheduler": (*engine == EngineName::Quic && mode.is_forward()).then(|| path.to_string()),
                "server_path_scheduler": self.server_path.map(|path| path.to_string()),
                "layered": *layered,
                "coupled": mode.is_forward().then(|| coupled.to_string()),
                "marks": mode.is_forward().then_some(*marks),
                "stream_scheduler": stream.to_string(),
                "debt": self.debt(),
                "duration_s": duration.as_secs_f64(),
                "warm_up_s": warm_up.as_secs_f64(),
                "backlog_bytes": mode.is_forward().then(|| backlog.get()),
            },
            "measured": definition(*mode).replace('\n', " "),
            "clock": clock.json(),
            "cpu_s": {"client": self.cpu[0].json(), "server": self.cpu[1].json()},
            "connections": parts,
        });
        if let Some(document) = document.as_object_mut() {
            document.extend(flows_json(&flows, &self.plan));
        }
        // Strings, finite numbers and maps with string keys cannot fail to serialise.
        serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
    }

    /// Returns the result as text, without the intervals, which have been printed before.
    pub(crate) fn to_text(&self) -> String {
        let plan = &self.plan;
        let mut text = format!("marcato perf {VERSION} ({COMMIT}), seed {}\n", plan.seed);
        let layers = if plan.layered { " in two layers" } else { "" };
        let own = plan.own_path().filter(|_| plan.mode.is_forward());
        let scheduler = match (own, self.server_path) {
            (None, None) => String::new(),
            (Some(path), None) | (None, Some(path)) => format!(", paths {path}{layers}"),
            (Some(own), Some(server)) => format!(", paths {own} and at the server {server}{layers}"),
        };
        let scheduler = match (plan.mode, plan.connections) {
            (Mode::Forward, 1) => scheduler,
            (mode, connections) => format!(" {mode} over {connections} connections{scheduler}")
                .replace("over 1 connections", "over 1 connection"),
        };
        let end = plan.bytes.map_or(String::new(), |bytes| format!(" or {} of bulk", shown_size(bytes)));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{}{scheduler}, streams {}, {}{end} of which {} to warm up",
            plan.engine,
            plan.stream,
            shown_span(plan.duration),
            shown_span(plan.warm_up),
        );
        if plan.mode.is_forward() {
            let _ = write!(text, ", at most {} waiting in each level", shown_size(plan.backlog));
        }
        text += "\n";
        if let Some(reason) = &self.cut {
            let _ = writeln!(
                text,
                "\nINCOMPLETE: {reason}.\nPercentiles are of the messages that had arrived by then."
            );
        }
        let _ = writeln!(text, "\nMessages, in ms. {};\n{}", definition(plan.mode), self.clock().words());
        for flow in self.flows() {
            if plan.mode == Mode::Both {
                let (sender, receiver) = flow.direction.ends();
                let _ = writeln!(text, "\nFrom the {sender} to the {receiver}");
            }
            text += &flow.to_text(plan);
        }
        text += &self.connections_text();
        let [client, server] = self.cpu.map(CpuTime::words);
        let _ = writeln!(text, "\nCPU time in s: client {client}, server {server}");
        text
    }

    /// Returns a table of the connections, if there are several.
    fn connections_text(&self) -> String {
        if self.connections.len() < 2 {
            return String::new();
        }
        let header = ["connection", "direction", "Mbit/s", "sent", "arrived", "p50", "p99", "max", "lost"];
        let mut table = Table::new(header).words(2);
        for (number, connection) in (1..).zip(&self.connections) {
            for flow in &connection.flows {
                let all: Samples =
                    flow.sources.iter().flat_map(|source| source.mct_ms.sorted()).copied().collect();
                let took = |percentile| shown_time(all.percentile(percentile));
                let sum =
                    |of: fn(&SourceOutcome) -> usize| flow.sources.iter().map(of).sum::<usize>().to_string();
                let lost: u64 = flow.lanes.iter().map(|lane| lane.lost).fold(0, u64::saturating_add);
                table.row([
                    format!("{number}"),
                    flow.direction.to_string(),
                    format!("{:.3}", flow.total()),
                    sum(|source| source.sent),
                    sum(SourceOutcome::arrived),
                    took(Percentile::P50),
                    took(Percentile::P99),
                    took(Percentile::MAX),
                    lost.to_string(),
                ]);
            }
        }
        format!("\nConnections, messages of all sources in ms\n{table}")
    }

    /// Returns a line for each source, over all connections and, if there are several, of each;
    /// `complete` is the same in all of them.
    pub(crate) fn to_csv(&self) -> String {
        let mut csv = String::from("source,priority,period_ms,size_bytes,sent,arrived");
        PERCENTILES.iter().for_each(|(name, _)| csv += &format!(",{name}_ms"));
        csv += ",complete,direction,connection\n";
        let mut add = |flows: &[Flow], connection: &str| {
            for flow in flows {
                for source in &flow.sources {
                    let (complete, direction) = (self.cut.is_none(), flow.direction);
                    csv += &format!("{},{complete},{direction},{connection}\n", source.csv());
                }
            }
        };
        add(&self.flows(), "all");
        for (number, connection) in (1..).zip(&self.connections).filter(|_| self.connections.len() > 1) {
            add(&connection.flows, &format!("{number}"));
        }
        csv
    }

    /// Returns the distributions as a figure.
    pub(crate) fn to_svg(&self) -> String {
        let flows = self.flows();
        let sources =
            || flows.iter().flat_map(|flow| flow.sources.iter().map(|source| (flow.direction, source)));
        let few = sources().map(|(_, source)| source.mct_ms.len()).max().unwrap_or(0).max(10);
        let axis = Axis::new("message completion time, one way", "ms");
        let name = |direction: Direction, source: &SourceOutcome| match self.plan.mode {
            Mode::Both => format!("{} {direction}", source.spec),
            Mode::Forward | Mode::Reverse => source.spec.to_string(),
        };
        let chart = LineChart::ccdf("CCDF of message completion times", axis, true).down_to(1.0 / few as f64);
        let series = |(direction, source): (Direction, &SourceOutcome)| {
            Series::ccdf(name(direction, source), source.mct_ms.sorted().iter().copied())
        };
        sources().fold(chart, |chart, source| chart.series(series(source))).to_svg()
    }

    /// Writes the requested files: `result.json`, `result.csv`, `result.txt` and `mct.svg` into a
    /// directory, and the figure into a file.
    pub(crate) fn write(&self, out: Option<&Path>, svg: Option<&Path>) -> Result<(), PerfError> {
        let file = |path: &Path, text: &str| {
            AtomicFile::write(path, text).map_err(|source| PerfError::File { path: path.to_owned(), source })
        };
        if let Some(out) = out {
            file(&out.join("result.json"), &self.to_json())?;
            file(&out.join("result.csv"), &self.to_csv())?;
            file(&out.join("result.txt"), &(self.lines.clone() + &self.to_text()))?;
            file(&out.join("mct.svg"), &self.to_svg())?;
        }
        svg.map_or(Ok(()), |path| file(path, &self.to_svg()))
    }
}

/// Checks before a run that its results can be written, and returns the directory for them.
pub(crate) fn prepare(out: Option<&Path>, svg: Option<&Path>) -> Result<Option<Directory>, PerfError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| PerfError::File { path, source }
    };
    let directory = out.map(|out| Directory::open(out).map_err(failed(out))).transpose()?;
    if let Some(svg) = svg {
        AtomicFile::create(svg).map_err(failed(svg))?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn flow(direction: Direction, spec: SourceSpec, mct_ms: Samples) -> Flow {
        let lane = LaneOutcome {
            connection: 1,
            local: None,
            remote: Some(([192, 0, 2, 1], 4433).into()),
            layer: Layer::High,
            srtt_ms: 12.5,
            cwnd: Bytes::kb(20),
            unsent: Bytes::kb(1),
            most_unsent: Bytes::kb(3),
            packets: 1000,
            lost: 5,
        };
        let raw = Some(mct_ms.sorted().iter().map(|took| (*took, Some(*took))).collect());
        Flow {
            direction,
            sources: vec![SourceOutcome { spec, sent: mct_ms.len(), mct_ms, raw }],
            seconds: 8.0,
            mbit_per_s: [0.25, 0.0, 0.0, 0.0, 0.75],
            lanes: vec![lane],
            intervals: vec![],
        }
    }

    fn outcome(mct_ms: impl IntoIterator<Item = f64>) -> Outcome {
        let plan = Plan { warm_up: Duration::from_secs(1), seed: 7, ..crate::perf::plan::tests::plan() };
        let clock = Clock { shared: false, offset_ms: 12.0, error_ms: 0.25, exchanges: 20 };
        let flow = flow(Direction::Forward, plan.sources[0], mct_ms.into_iter().collect());
        Outcome {
            plan,
            server_path: None,
            connections: vec![ConnectionOutcome { flows: vec![flow], clock }],
            intervals: vec![vec![]],
            lines: String::new(),
            cpu: [CpuTime::default(); 2],
            cut: None,
        }
    }

    #[test]
    fn connections_are_summed_and_shown_one_by_one() {
        let mut run = outcome([1.0, 3.0]);
        let spec = run.plan.sources[0];
        run.plan.connections = 2;
        let mut second = run.connections[0].clone();
        second.clock.error_ms = 0.75;
        second.flows = vec![flow(Direction::Forward, spec, [2.0, 9.0].into_iter().collect())];
        second.flows[0].lanes[0].connection = 2;
        run.connections.push(second);
        let json: Value = serde_json::from_str(&run.to_json()).unwrap();
        let source = &json["sources"][0];
        assert_eq!((&source["sent"], &source["mct_ms"]["p50"]), (&4.into(), &2.0.into()));
        assert_eq!(source["raw"], json!([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [9.0, 9.0]]));
        assert_eq!(
            (&json["throughput"]["mbit_per_s"], &json["clock"]["error_ms"]),
            (&2.0.into(), &0.75.into())
        );
        assert_eq!(json["lanes"].as_array().unwrap().len(), 2);
        let parts = json["connections"].as_array().unwrap();
        assert_eq!((parts.len(), &parts[1]["sources"][0]["mct_ms"]["max"]), (2, &9.0.into()));
        assert_eq!(
            (&parts[0]["throughput"]["mbit_per_s"], &parts[0]["reverse"]),
            (&1.0.into(), &Value::Null)
        );
        let text = run.to_text();
        for said in ["forward over 2 connections", "connection  direction", "  2.0 192.0.2.1:4433"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let last: Vec<String> =
            run.to_csv().lines().map(|line| line.rsplit(',').next().unwrap().to_owned()).collect();
        assert_eq!(last, ["connection", "all", "1", "2"]);
    }

    #[test]
    fn both_directions_are_shown_with_their_ends() {
        let mut run = outcome([1.0]);
        run.plan.mode = Mode::Both;
        run.server_path = Some(PathName::Lowrtt);
        let mut reverse = flow(Direction::Reverse, run.plan.sources[0], [5.0].into_iter().collect());
        reverse.lanes[0].remote = None;
        run.connections[0].flows.push(reverse);
        run.intervals.push(vec![]);
        let json: Value = serde_json::from_str(&run.to_json()).unwrap();
        assert_eq!(json["reverse"]["sources"][0]["mct_ms"]["max"], 5.0);
        assert_eq!((&json["sources"][0]["mct_ms"]["max"], &json["connections"]), (&1.0.into(), &json!([])));
        assert_eq!(json["config"]["server_path_scheduler"], "lowrtt");
        let text = run.to_text();
        for said in [
            "quic bidir over 1 connection, paths cwr and at the server lowrtt",
            "From the client to the server",
            "From the server to the client",
            "Throughput at the client",
            "Lanes of the server",
            "release of a message at the sender",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(run.to_csv().ends_with(",true,reverse,all\n"));
        assert!(run.to_svg().contains("100ms:10kB:p0 reverse"));
        run.plan.mode = Mode::Reverse;
        run.connections[0].flows.remove(0);
        let json: Value = serde_json::from_str(&run.to_json()).unwrap();
        assert_eq!((&json["sources"][0]["mct_ms"]["max"], &json["reverse"]), (&5.0.into(), &Value::Null));
        assert_eq!(json["config"]["path_scheduler"], Value::Null);
        assert!(run.to_text().contains("release of a message at the server"));
    }

    #[test]
    fn a_run_that_was_cut_short_is_marked_in_every_format() {
        let mut cut = outcome([1.0, 3.0]);
        cut.connections[0].flows[0].sources[0].sent = 5;
        assert!(!cut.to_text().contains("INCOMPLETE") && cut.to_csv().ends_with(",true,forward,all\n"));
        cut.cut = Some("interrupted".to_owned());
        let json: Value = serde_json::from_str(&cut.to_json()).unwrap();
        assert_eq!((&json["complete"], &json["incomplete_because"]), (&false.into(), &"interrupted".into()));
        let source = &json["sources"][0];
        assert_eq!((&source["sent"], &source["arrived"]), (&5.into(), &2.into()));
        // The other three messages might still have arrived.
        assert_eq!(source["mct_ms"]["max"], 3.0);
        let text = cut.to_text();
        assert!(text.contains("INCOMPLETE: interrupted.") && !text.contains("never"), "{text}");
        assert_eq!(
            cut.to_csv(),
            "source,priority,period_ms,size_bytes,sent,arrived,p50_ms,p99_ms,p99_9_ms,max_ms,complete,\
             direction,connection\n\
             100ms:10kB:p0,P0,100,10000,5,2,1,3,3,3,false,forward,all\n"
        );
    }

    #[test]
    fn the_json_has_its_keys_and_a_lost_message_makes_the_max_null() {
        let json: Value = serde_json::from_str(&outcome([1.0, 3.0, 2.0, f64::INFINITY]).to_json()).unwrap();
        let source = &json["sources"][0];
        assert_eq!((&source["sent"], &source["arrived"]), (&4.into(), &3.into()));
        assert_eq!((&json["complete"], &json["incomplete_because"]), (&true.into(), &Value::Null));
        assert_eq!((&source["mct_ms"]["p50"], &source["mct_ms"]["max"]), (&2.0.into(), &Value::Null));
        assert_eq!(source["ccdf"], json!([[1.0, 0.75], [2.0, 0.5], [3.0, 0.25]]));
        assert_eq!(json["throughput"]["mbit_per_s"], 1.0);
        assert_eq!(
            json["throughput"]["by_priority"][1],
            json!({"priority": "P4", "mbit_per_s": 0.75, "share": 0.75})
        );
        assert_eq!((&json["lanes"][0]["loss"], &json["lanes"][0]["local"]), (&0.005.into(), &Value::Null));
        assert_eq!((&json["lanes"][0]["layer"], &json["config"]["layered"]), (&"high".into(), &false.into()));
        assert_eq!((&json["seed"], &json["config"]["bulk"]), (&7.into(), &"p4:64kB".into()));
        assert_eq!(json["clock"]["error_ms"], 0.25);
    }

    #[test]
    fn the_tail_of_many_messages_is_kept() {
        let many = outcome((1..=12_345).map(f64::from));
        let json: Value = serde_json::from_str(&many.to_json()).unwrap();
        let ccdf = json["sources"][0]["ccdf"].as_array().unwrap();
        assert!(ccdf.len() <= MOST_POINTS);
        assert_eq!(ccdf.last(), Some(&json!([12_345.0, 0.0])));
    }

    #[test]
    fn the_text_says_what_was_measured_and_how_well() {
        let text = outcome([1.0, 3.0, 2.0, f64::INFINITY]).to_text();
        for said in ["100ms:10kB:p0", "one way", "0.250 ms at most", "never", "75.0 %", "0.500 %", "seed 7"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let none = outcome([]);
        assert!(none.to_text().contains('–') && none.to_svg().contains("<svg"));
    }

    #[test]
    fn files_that_cannot_be_written_are_known_beforehand() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(prepare(Some(&file.join("below")), None).is_err());
        assert!(prepare(None, Some(&directory.path().join("none/a.svg"))).is_err());
        let (out, svg) = (directory.path().join("new/out"), directory.path().join("a.svg"));
        drop(prepare(Some(&out), Some(&svg)).unwrap());
        assert!(!out.exists() && !svg.exists(), "nothing stays without a result");
        let _directory = prepare(Some(&out), Some(&svg)).unwrap();
        outcome([1.0]).write(Some(&out), Some(&svg)).unwrap();
        assert!(out.join("result.json").exists() && std::fs::read_to_string(svg).unwrap().contains("<svg"));
    }
}
