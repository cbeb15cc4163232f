//! Statistics of the links of a lab.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use marcato_lab::{DirectionStats, Lab};
use marcato_units::Time;

use crate::table::Table;

/// Names of the directions of a link.
const WAYS: [&str; 2] = ["there", "back"];

/// Rates and counts of one direction of a link in one interval.
struct Sample {
    link: String,
    way: &'static str,
    mbps: f64,
    queued: u64,
    packets: u64,
    dropped: u64,
    lost: u64,
}

/// Sequence of intervals.
struct Intervals {
    every: Duration,
    /// End of the present interval, and the counters at its beginning.
    next: Time,
    begun: (Time, Vec<[DirectionStats; 2]>),
}

impl Intervals {
    fn new(every: Duration, lab: &Lab) -> Self {
        let (now, stats) = (lab.now(), lab.stats().into_iter().map(|(_, stats)| stats).collect());
        Self { every, next: now + every, begun: (now, stats) }
    }

    /// Returns the samples of an interval that has ended, and its end.
    fn look(&mut self, lab: &Lab) -> Option<(Time, Vec<Sample>)> {
        if lab.now() < self.next {
            return None;
        }
        let (now, stats) = (lab.now(), lab.stats());
        let after = stats.iter().map(|(_, directions)| *directions).collect();
        let (begun, before) = std::mem::replace(&mut self.begun, (now, after));
        let span = now.since(begun).as_secs_f64();
        let mut samples = Vec::new();
        for ((name, after), before) in stats.iter().zip(before) {
            for (way, (before, after)) in WAYS.iter().zip(before.iter().zip(after)) {
                samples.push(Sample {
                    link: (*name).to_owned(),
                    way,
                    mbps: mbps((after.link.delivered_bytes - before.link.delivered_bytes).get(), span),
                    queued: after.queued.get(),
                    packets: after.link.delivered - before.link.delivered,
                    dropped: dropped(after) - dropped(before),
                    lost: after.link.lost - before.link.lost,
                });
            }
        }
        self.next += self.every;
        self.next = self.next.max(now);
        Some((now, samples))
    }
}

/// Log of all links as CSV, with a row for each direction at each interval.
pub(super) struct Log {
    out: BufWriter<File>,
    intervals: Intervals,
}

impl Log {
    pub(super) fn create(path: &Path, every: Duration, lab: &Lab) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "time_s,link,direction,mbps,queue_bytes,packets,dropped,lost")?;
        Ok(Self { out, intervals: Intervals::new(every, lab) })
    }

    /// Adds rows if an interval has ended.
    pub(super) fn look(&mut self, lab: &Lab) -> io::Result<()> {
        let Some((now, samples)) = self.intervals.look(lab) else { return Ok(()) };
        let time = now.since(Time::ZERO).as_secs_f64();
        for Sample { link, way, mbps, queued, packets, dropped, lost } in samples {
            writeln!(self.out, "{time:.3},{link},{way},{mbps:.6},{queued},{packets},{dropped},{lost}")?;
        }
        // The rows are for programs that read along.
        self.out.flush()
    }
}

/// View of all links on a terminal, which is drawn anew at each interval.
pub(super) struct Live {
    intervals: Intervals,
    bar: ProgressBar,
}

impl Live {
    pub(super) fn new(every: Duration, lab: &Lab) -> Self {
        // indicatif hides itself when standard error is not a terminal.
        let bar = ProgressBar::new_spinner().with_style(style());
        Self { intervals: Intervals::new(every, lab), bar }
    }

    /// Draws the links if an interval has ended.
    pub(super) fn look(&mut self, lab: &Lab) {
        let Some((now, samples)) = self.intervals.look(lab) else { return };
        self.bar.set_message(drawn(now, &samples));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Returns a table of the links in the interval that has ended.
fn drawn(now: Time, samples: &[Sample]) -> String {
    let mut table =
        Table::new(["link", "direction", "Mbit/s", "queue kB", "packets", "dropped", "lost"]).words(2);
    for Sample { link, way, mbps, queued, packets, dropped, lost } in samples {
        #[expect(clippy::cast_precision_loss, reason = "a queue for people")]
        let queue = *queued as f64 / 1e3;
        table.row([
            link.clone(),
            (*way).to_owned(),
            format!("{mbps:.3}"),
            format!("{queue:.1}"),
            packets.to_string(),
            dropped.to_string(),
            lost.to_string(),
        ]);
    }
    format!("{:.1} s\n{table}", now.since(Time::ZERO).as_secs_f64())
}

/// Packets that were dropped at either end of a queue, or beside it.
fn dropped(stats: &DirectionStats) -> u64 {
    stats.link.dropped + stats.link.too_big + stats.link.discarded + stats.refused
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn mbps(bytes: u64, span: f64) -> f64 {
    bytes as f64 * 8e-6 / span
}

/// Returns a table of what each direction of each link carried.
pub(super) fn table(lab: &Lab) -> String {
    let span = lab.now().since(Time::ZERO).as_secs_f64();
    let mut table = Table::new([
        "link",
        "direction",
        "packets",
        "Mbit/s",
        "dropped",
        "lost",
        "longest queue, B",
        "late ms",
    ]);
    for (number, (name, directions)) in lab.stats().into_iter().enumerate() {
        for (way, stats) in WAYS.into_iter().zip(directions) {
            let late = lab.lateness(number, way == WAYS[1]).map(|late| late.p99.as_secs_f64() * 1e3);
            let link = stats.link;
            let rate = mbps(link.delivered_bytes.get(), span);
            table.row([
                name.to_owned(),
                way.to_owned(),
                link.delivered.to_string(),
                format!("{rate:.3}"),
                dropped(&stats).to_string(),
                link.lost.to_string(),
                link.longest_queue.get().to_string(),
                late.map_or_else(|| "-".to_owned(), |late| format!("{late:.2}")),
            ]);
        }
    }
    table.words(2).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_view_has_a_line_for_each_direction() {
        let sample = |way| Sample {
            link: "access".into(),
            way,
            mbps: 1.25,
            queued: 3000,
            packets: 104,
            dropped: 2,
            lost: 0,
        };
        let drawn = drawn(Time::from_millis(2500), &[sample("there"), sample("back")]);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!((lines.len(), lines[0]), (5, "2.5 s"));
        let cells: Vec<_> = lines[3].split_whitespace().collect();
        assert_eq!(cells, ["access", "there", "1.250", "3.0", "104", "2", "0"]);
    }
}
