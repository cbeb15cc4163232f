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
use super::interval::Interval;
use super::plan::{EngineName, Plan, SourceSpec, StreamName};
use super::quantity::{shown_size, shown_span};
use crate::table::Table;

/// Version of the JSON document. It changes when a key changes its meaning or is removed.
const FORMAT: u32 = 1;
/// Largest number of points of a distribution in the JSON document.
const MOST_POINTS: usize = 1000;

/// Definition of the measured quantity, for readers who have only the result.
const MCT: &str = "Message completion time, one way: from the release of a message at the client to the \
                   moment at\nwhich the server's application has all of it, including the wait before the \
                   connection";

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
}

/// Result of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    pub(crate) sources: Vec<SourceOutcome>,
    /// Length of the interval in which bytes were counted.
    pub(crate) seconds: f64,
    /// Bytes received in it.
    pub(crate) by_priority: [Bytes; Priority::COUNT],
    pub(crate) lanes: Vec<LaneOutcome>,
    pub(crate) clock: Clock,
    /// CPU time of the client and of the server during the run.
    pub(crate) cpu: [CpuTime; 2],
    /// Intervals, if they were asked for.
    pub(crate) intervals: Vec<Interval>,
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

impl Outcome {
    fn mbps(&self, bytes: Bytes) -> f64 {
        if self.seconds > 0.0 { bytes.get() as f64 * 8.0 / 1e6 / self.seconds } else { 0.0 }
    }

    fn total(&self) -> Bytes {
        self.by_priority.iter().copied().sum()
    }

    /// Returns the priorities that were sent, with the rate received and the share of each.
    fn shares(&self) -> impl Iterator<Item = (Priority, f64, f64)> {
        let sent = |priority: &Priority| {
            self.plan.sources.iter().any(|source| source.priority == *priority)
                || self.plan.bulk.is_some_and(|bulk| bulk.priority == *priority)
        };
        let total = self.total().get().max(1) as f64;
        Priority::ALL.into_iter().filter(sent).map(move |priority| {
            let bytes = self.by_priority[priority.index()];
            (priority, self.mbps(bytes), bytes.get() as f64 / total)
        })
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
            sources,
            bulk,
            bitrate,
            bytes,
            unreliable,
            path,
            layered,
            stream,
            duration,
            warm_up,
            backlog,
            seed,
            raw: _,
        } = &self.plan;
        let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
        let throughput: Vec<Value> = self
            .shares()
            .map(|(priority, mbps, share)| {
                json!({"priority": priority.to_string(), "mbit_per_s": mbps, "share": share})
            })
            .collect();
        let lanes: Vec<Value> = self
            .lanes
            .iter()
            .map(|lane| {
                json!({
                    "local": lane.local.map(|addr| addr.to_string()),
                    "remote": lane.remote.map(|addr| addr.to_string()),
                    "layer": lane.layer.name(),
                    "srtt_ms": lane.srtt_ms,
                    "cwnd_bytes": lane.cwnd.get(),
                    "packets": lane.packets,
                    "lost": lane.lost,
                    "loss": lane.loss(),
                    "unsent_bytes": {"mean": lane.unsent.get(), "max": lane.most_unsent.get()},
                })
            })
            .collect();
        let document = json!({
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
                "path_scheduler": (*engine == EngineName::Quic).then(|| path.to_string()),
                "layered": *layered,
                "stream_scheduler": stream.to_string(),
                "debt": self.debt(),
                "duration_s": duration.as_secs_f64(),
                "warm_up_s": warm_up.as_secs_f64(),
                "backlog_bytes": backlog.get(),
            },
            "measured": MCT.replace('\n', " "),
            "clock": {
                "shared": self.clock.shared,
                "offset_ms": self.clock.offset_ms,
                "error_ms": self.clock.error_ms,
                "exchanges": self.clock.exchanges,
            },
            "sources": self.sources.iter().map(SourceOutcome::json).collect::<Vec<_>>(),
            "throughput": {
                "seconds": self.seconds,
                "mbit_per_s": self.mbps(self.total()),
                "by_priority": throughput,
            },
            "lanes": lanes,
            "cpu_s": {"client": self.cpu[0].json(), "server": self.cpu[1].json()},
            "intervals": self.intervals.iter().map(Interval::json).collect::<Vec<_>>(),
        });
        // Strings, finite numbers and maps with string keys cannot fail to serialise.
        serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
    }

    /// Returns the result as text, without the intervals, which have been printed before.
    pub(crate) fn to_text(&self) -> String {
        let plan = &self.plan;
        let mut text = format!("marcato perf {VERSION} ({COMMIT}), seed {}\n", plan.seed);
        let scheduler = match plan.engine {
            EngineName::Tcp => String::new(),
            EngineName::Quic if plan.layered => format!(", paths {} in two layers", plan.path),
            EngineName::Quic => format!(", paths {}", plan.path),
        };
        let end = plan.bytes.map_or(String::new(), |bytes| format!(" or {} of bulk", shown_size(bytes)));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}{scheduler}, streams {}, {}{end} of which {} to warm up, at most {} waiting in each level",
            plan.engine,
            plan.stream,
            shown_span(plan.duration),
            shown_span(plan.warm_up),
            shown_size(plan.backlog)
        );
        if let Some(reason) = &self.cut {
            let _ = writeln!(
                text,
                "\nINCOMPLETE: {reason}.\nPercentiles are of the messages that had arrived by then."
            );
        }
        let _ = writeln!(text, "\nMessages, in ms. {MCT};\n{}", self.clock.words());
        let mut table = Table::new(["source", "sent", "arrived", "p50", "p99", "p99.9", "max"]).words(1);
        for source in &self.sources {
            let took = |percentile| match source.mct_ms.percentile(percentile) {
                Some(took) if took.is_finite() => format!("{took:.2}"),
                Some(_) => "never".to_owned(),
                None => "–".to_owned(),
            };
            let mut row =
                vec![source.spec.to_string(), source.sent.to_string(), source.arrived().to_string()];
            row.extend(PERCENTILES.map(|(_, percentile)| took(percentile)));
            table.row(row);
        }
        text += &table.to_string();
        text += &self.tails();
        let _ = writeln!(text, "\nThroughput at the server over {:.2} s", self.seconds);
        let mut table = Table::new(["priority", "Mbit/s", "share"]).words(1);
        for (priority, mbps, share) in self.shares() {
            table.row([priority.to_string(), format!("{mbps:.3}"), format!("{:.1} %", share * 100.0)]);
        }
        table.row(["all".to_owned(), format!("{:.3}", self.mbps(self.total())), String::new()]);
        text += &table.to_string();
        let _ = writeln!(text, "\nLanes, means over time");
        let header = ["lane", "srtt ms", "cwnd B", "packets", "lost", "loss", "unsent B", "most unsent B"];
        let mut table = Table::new(header).words(1);
        for (number, lane) in self.lanes.iter().enumerate() {
            let name = lane.remote.map_or_else(|| number.to_string(), |remote| format!("{number} {remote}"));
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
        text += &table.to_string();
        let [client, server] = self.cpu.map(CpuTime::words);
        let _ = writeln!(text, "\nCPU time in s: client {client}, server {server}");
        text
    }

    /// Returns a line for each source; `complete` is the same in all of them.
    pub(crate) fn to_csv(&self) -> String {
        let mut csv = String::from("source,priority,period_ms,size_bytes,sent,arrived");
        PERCENTILES.iter().for_each(|(name, _)| csv += &format!(",{name}_ms"));
        csv += ",complete\n";
        for source in &self.sources {
            let SourceSpec { period, size, priority } = source.spec;
            let (period, size) = (period.as_secs_f64() * 1e3, size.get());
            csv +=
                &format!("{},{priority},{period},{size},{},{}", source.spec, source.sent, source.arrived());
            for (_, percentile) in PERCENTILES {
                let took = source.mct_ms.percentile(percentile).filter(|took| took.is_finite());
                csv += &took.map_or_else(|| ",".to_owned(), |took| format!(",{took}"));
            }
            csv += if self.cut.is_none() { ",true\n" } else { ",false\n" };
        }
        csv
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

    /// Returns the distributions as a figure.
    pub(crate) fn to_svg(&self) -> String {
        let few = self.sources.iter().map(|source| source.mct_ms.len()).max().unwrap_or(0).max(10);
        let axis = Axis::new("message completion time, one way", "ms");
        let name = |source: &SourceOutcome| source.spec.to_string();
        let chart = LineChart::ccdf("CCDF of message completion times", axis, true).down_to(1.0 / few as f64);
        let series =
            |source: &SourceOutcome| Series::ccdf(name(source), source.mct_ms.sorted().iter().copied());
        self.sources.iter().fold(chart, |chart, source| chart.series(series(source))).to_svg()
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
            let lines: String = self.intervals.iter().map(Interval::line).collect();
            file(&out.join("result.txt"), &(lines + &self.to_text()))?;
            file(&out.join("mct.svg"), &self.to_svg())?;
        }
        svg.map_or(Ok(()), |path| file(path, &self.to_svg()))
    }
}

/// Checks before a run that its results can be written.
pub(crate) fn prepare(out: Option<&Path>, svg: Option<&Path>) -> Result<(), PerfError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| PerfError::File { path, source }
    };
    if let Some(out) = out {
        crate::output::writable_directory(out).map_err(failed(out))?;
    }
    if let Some(svg) = svg {
        AtomicFile::create(svg).map_err(failed(svg))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::plan::PathName;
    use super::*;

    fn outcome(mct_ms: impl IntoIterator<Item = f64>) -> Outcome {
        let plan = Plan {
            engine: EngineName::Quic,
            sources: vec!["100ms:10kB".parse().unwrap()],
            bulk: Some("p4".parse().unwrap()),
            bitrate: None,
            bytes: None,
            unreliable: false,
            path: PathName::Cwr,
            layered: false,
            stream: StreamName::Cats,
            duration: Duration::from_secs(10),
            warm_up: Duration::from_secs(1),
            backlog: Bytes::kb(1000),
            seed: 7,
            raw: false,
        };
        let mct_ms: Samples = mct_ms.into_iter().collect();
        let sources = vec![SourceOutcome { spec: plan.sources[0], sent: mct_ms.len(), mct_ms, raw: None }];
        let kb = |kb| Bytes::kb(kb);
        let by_priority = [kb(250), kb(0), kb(0), kb(0), kb(750)];
        let lane = LaneOutcome {
            local: None,
            remote: Some(([192, 0, 2, 1], 4433).into()),
            layer: Layer::High,
            srtt_ms: 12.5,
            cwnd: kb(20),
            unsent: kb(1),
            most_unsent: kb(3),
            packets: 1000,
            lost: 5,
        };
        let clock = Clock { shared: false, offset_ms: 12.0, error_ms: 0.25, exchanges: 20 };
        Outcome {
            plan,
            sources,
            seconds: 8.0,
            by_priority,
            lanes: vec![lane],
            clock,
            cpu: [CpuTime::default(); 2],
            intervals: vec![],
            cut: None,
        }
    }

    #[test]
    fn a_run_that_was_cut_short_is_marked_in_every_format() {
        let mut cut = outcome([1.0, 3.0]);
        cut.sources[0].sent = 5;
        assert!(!cut.to_text().contains("INCOMPLETE") && cut.to_csv().ends_with(",true\n"));
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
            "source,priority,period_ms,size_bytes,sent,arrived,p50_ms,p99_ms,p99_9_ms,max_ms,complete\n\
             100ms:10kB:p0,P0,100,10000,5,2,1,3,3,3,false\n"
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
    fn what_cannot_be_written_is_known_beforehand() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(prepare(Some(&file.join("below")), None).is_err());
        assert!(prepare(None, Some(&directory.path().join("none/a.svg"))).is_err());
        let (out, svg) = (directory.path().join("new/out"), directory.path().join("a.svg"));
        prepare(Some(&out), Some(&svg)).unwrap();
        outcome([1.0]).write(Some(&out), Some(&svg)).unwrap();
        assert!(out.join("result.json").exists() && std::fs::read_to_string(svg).unwrap().contains("<svg"));
    }
}
