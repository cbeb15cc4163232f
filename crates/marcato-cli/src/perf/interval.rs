//! Intervals of a run, whose figures are printed while it goes on.

use std::fmt::Write as _;
use std::time::Duration;

use marcato_report::{Percentile, Samples};
use marcato_units::{Bytes, Layer};
use serde_json::{Value, json};

use super::lane::LaneSample;
use super::quantity::{shown_span, span_or_seconds};

/// Shortest interval: each has a report of the server, which come every 100 ms.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// Parses the length of intervals.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let span = span_or_seconds(text)?;
    if span < MIN_INTERVAL {
        return Err(format!("give an interval of at least {}, not {text}", shown_span(MIN_INTERVAL)));
    }
    Ok(span)
}

/// State of a lane at the end of an interval, and its losses within it.
#[derive(Clone, Copy, Debug)]
struct Lane {
    layer: Layer,
    srtt_ms: f64,
    cwnd: Bytes,
    packets: u64,
    lost: u64,
}

/// Figures of one interval. Messages count in the interval in which the client learns of them.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// Beginning and end, since the run began.
    from: Duration,
    to: Duration,
    /// Set if the interval ends within the warm-up.
    warm_up: bool,
    mbit_per_s: f64,
    arrived: usize,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    lanes: Vec<Lane>,
}

impl Interval {
    /// Returns the sum of concurrent intervals, whose completion times are `mct_ms`.
    pub(crate) fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>, mct_ms: Vec<f64>) -> Option<Self> {
        let mut parts = parts.into_iter();
        let mut sum = parts.next()?.clone();
        for part in parts {
            sum.mbit_per_s += part.mbit_per_s;
            sum.arrived += part.arrived;
            sum.lanes.extend(&part.lanes);
        }
        let mct_ms = Samples::new(mct_ms);
        sum.p50_ms = mct_ms.percentile(Percentile::P50);
        sum.p99_ms = mct_ms.percentile(Percentile::P99);
        Some(sum)
    }

    /// Returns the interval as a line of text, after a label.
    pub(crate) fn line(&self, label: &str, lanes: bool) -> String {
        let took = |took: Option<f64>| took.map_or("–".to_owned(), |took| format!("{took:.2}"));
        let mut line = format!(
            "{label}{:7.2} – {:7.2} s  {:9.3} Mbit/s  {:5} messages  p50 {:>6} ms  p99 {:>6} ms",
            self.from.as_secs_f64(),
            self.to.as_secs_f64(),
            self.mbit_per_s,
            self.arrived,
            took(self.p50_ms),
            took(self.p99_ms),
        );
        for (number, lane) in self.lanes.iter().enumerate().filter(|_| lanes) {
            let low = if lane.layer == Layer::Low { " low" } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(
                line,
                "  lane {number}{low}: lost {}, cwnd {} B, srtt {:.2} ms",
                lane.lost,
                lane.cwnd.get(),
                lane.srtt_ms
            );
        }
        line + if self.warm_up { "  (warm-up)\n" } else { "\n" }
    }

    pub(crate) fn json(&self) -> Value {
        let lanes = self.lanes.iter().map(|lane| {
            json!({
                "layer": lane.layer.name(),
                "srtt_ms": lane.srtt_ms,
                "cwnd_bytes": lane.cwnd.get(),
                "packets": lane.packets,
                "lost": lane.lost,
            })
        });
        json!({
            "from_s": self.from.as_secs_f64(),
            "to_s": self.to.as_secs_f64(),
            "warm_up": self.warm_up,
            "mbit_per_s": self.mbit_per_s,
            "arrived": self.arrived,
            "mct_ms": {"p50": self.p50_ms, "p99": self.p99_ms},
            "lanes": lanes.collect::<Vec<_>>(),
        })
    }
}

/// Recorder of intervals.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    /// Length of each; `None` for no intervals.
    every: Option<Duration>,
    warm_up: Duration,
    /// Completion times since the end of the last interval, in ms.
    mct_ms: Vec<f64>,
    /// Time and number of the bytes that had arrived before the current interval.
    before: (i128, u64),
    /// State of the lanes before the current interval.
    lanes: Vec<LaneSample>,
    finished: Vec<Interval>,
}

impl Intervals {
    pub(crate) fn new(every: Option<Duration>, warm_up: Duration) -> Self {
        Self { every, warm_up, ..Self::default() }
    }

    /// Begins the run, at a time of the local clock in ns.
    pub(crate) fn begin(&mut self, at: i128) {
        self.before = (at, 0);
    }

    /// Counts a message that took this long.
    pub(crate) fn arrived(&mut self, mct_ms: f64) {
        if self.every.is_some() {
            self.mct_ms.push(mct_ms);
        }
    }

    /// Returns whether the time of the current interval is over, `now` after the beginning of the
    /// run.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.every.is_some_and(|every| now >= self.from() + every)
    }

    /// Ends the current interval, if it has begun, and returns its completion times. `report` has
    /// the time and number of the bytes that had arrived last.
    pub(crate) fn finish(
        &mut self,
        now: Duration,
        report: Option<(i128, u64)>,
        lanes: &[LaneSample],
    ) -> Option<Vec<f64>> {
        let from = self.from();
        if self.every.is_none() || now <= from {
            return None;
        }
        let report = report.unwrap_or(self.before);
        let ns = report.0 - self.before.0;
        let bytes = report.1.saturating_sub(self.before.1);
        let times = std::mem::take(&mut self.mct_ms);
        let mct_ms: Samples = times.iter().copied().collect();
        let before = |lane: &LaneSample| self.lanes.iter().find(|before| before.id == lane.id);
        let interval = Interval {
            from,
            to: now,
            warm_up: now <= self.warm_up,
            mbit_per_s: if ns > 0 { bytes as f64 * 8e3 / ns as f64 } else { 0.0 },
            arrived: mct_ms.len(),
            p50_ms: mct_ms.percentile(Percentile::P50),
            p99_ms: mct_ms.percentile(Percentile::P99),
            lanes: lanes
                .iter()
                .map(|lane| Lane {
                    layer: lane.layer,
                    srtt_ms: lane.srtt.as_secs_f64() * 1e3,
                    cwnd: lane.cwnd,
                    packets: lane.packets.saturating_sub(before(lane).map_or(0, |before| before.packets)),
                    lost: lane.lost.saturating_sub(before(lane).map_or(0, |before| before.lost)),
                })
                .collect(),
        };
        self.finished.push(interval);
        (self.before, self.lanes) = (report, lanes.to_vec());
        Some(times)
    }

    /// Returns the end of the last interval.
    fn from(&self) -> Duration {
        self.finished.last().map_or(Duration::ZERO, |last| last.to)
    }

    pub(crate) fn finished(&self) -> &[Interval] {
        &self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_has_its_own_bytes_and_messages() {
        let second = Duration::from_secs(1);
        let mut intervals = Intervals::new(Some(second), second);
        intervals.begin(0);
        [1.0, 2.0, 3.0].into_iter().for_each(|took| intervals.arrived(took));
        assert!(!intervals.is_due(second / 2) && intervals.is_due(second));
        let times = intervals.finish(second, Some((1_000_000_000, 1_000_000)), &[]);
        assert_eq!(times, Some(vec![1.0, 2.0, 3.0]));
        intervals.arrived(7.0);
        assert!(!intervals.is_due(second * 3 / 2) && intervals.is_due(second * 2));
        intervals.finish(second * 2, Some((2_000_000_000, 1_250_000)), &[]);
        // Nothing is reported in the last, shorter interval.
        intervals.finish(second * 5 / 2, Some((2_000_000_000, 1_250_000)), &[]);
        let said: Vec<Value> = intervals.finished().iter().map(Interval::json).collect();
        let of = |key: &str| said.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
        assert_eq!(of("mbit_per_s"), [8.0, 2.0, 0.0]);
        assert_eq!(of("arrived"), [3, 1, 0]);
        assert_eq!(of("to_s"), [1.0, 2.0, 2.5]);
        assert_eq!(of("warm_up"), [true, false, false]);
        let p50: Vec<Value> = of("mct_ms").iter().map(|mct| mct["p50"].clone()).collect();
        assert_eq!(p50, [json!(2.0), json!(7.0), Value::Null]);
        let lines: Vec<String> = intervals.finished().iter().map(|one| one.line("[1] ", true)).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("[1]  ") && lines[0].contains("8.000 Mbit/s"), "{lines:?}");
        assert!(lines[0].ends_with("(warm-up)\n") && lines[2].contains("p50      – ms"), "{lines:?}");
    }

    #[test]
    fn concurrent_intervals_add_up() {
        let second = Duration::from_secs(1);
        let one = |bytes, times: &[f64]| {
            let mut intervals = Intervals::new(Some(second), Duration::ZERO);
            intervals.begin(0);
            times.iter().for_each(|took| intervals.arrived(*took));
            intervals.finish(second, Some((1_000_000_000, bytes)), &[]);
            intervals.finished()[0].clone()
        };
        let parts = [one(1_000_000, &[1.0, 5.0]), one(500_000, &[9.0])];
        let sum = Interval::sum(&parts, vec![1.0, 5.0, 9.0]).unwrap().json();
        assert_eq!((&sum["mbit_per_s"], &sum["arrived"]), (&12.0.into(), &3.into()));
        assert_eq!(sum["mct_ms"], json!({"p50": 5.0, "p99": 9.0}));
        assert!(Interval::sum([], vec![]).is_none());
    }

    #[test]
    fn without_intervals_nothing_is_kept() {
        let mut intervals = Intervals::new(None, Duration::ZERO);
        intervals.arrived(1.0);
        assert_eq!(intervals.finish(Duration::from_secs(1), None, &[]), None);
        assert!(intervals.finished().is_empty() && intervals.mct_ms.is_empty());
    }

    #[test]
    fn an_interval_is_a_span_or_a_number_of_seconds() {
        assert_eq!(interval("1"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert!(interval("100ms").unwrap_err().contains("at least 200ms"));
    }
}
