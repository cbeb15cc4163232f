//! Statistics of the links of a lab.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use marcato_lab::{DirectionStats, Lab};
use marcato_units::Time;

use crate::table::Table;

/// Names of the directions of a link.
const WAYS: [&str; 2] = ["there", "back"];

/// Log of all links as CSV, with a row for each direction at each interval.
pub(super) struct Log {
    out: BufWriter<File>,
    every: Duration,
    /// End of the present interval, and the counters at its beginning.
    next: Time,
    begun: (Time, Vec<[DirectionStats; 2]>),
}

impl Log {
    pub(super) fn create(path: &Path, every: Duration, lab: &Lab) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "time_s,link,direction,mbps,queue_bytes,packets,dropped,lost")?;
        let (now, stats) = (lab.now(), lab.stats().into_iter().map(|(_, stats)| stats).collect());
        Ok(Self { out, every, next: now + every, begun: (now, stats) })
    }

    /// Adds rows if an interval has ended.
    pub(super) fn look(&mut self, lab: &Lab) -> io::Result<()> {
        if lab.now() < self.next {
            return Ok(());
        }
        let (now, stats) = (lab.now(), lab.stats());
        let after = stats.iter().map(|(_, directions)| *directions).collect();
        let (begun, before) = std::mem::replace(&mut self.begun, (now, after));
        let span = now.since(begun).as_secs_f64();
        for ((name, after), before) in stats.iter().zip(before) {
            for (way, (before, after)) in WAYS.iter().zip(before.iter().zip(after)) {
                let rate = mbps((after.link.delivered_bytes - before.link.delivered_bytes).get(), span);
                let packets = after.link.delivered - before.link.delivered;
                let (dropped, lost) = (dropped(after) - dropped(before), after.link.lost - before.link.lost);
                let (time, queued) = (now.since(Time::ZERO).as_secs_f64(), after.queued.get());
                writeln!(self.out, "{time:.3},{name},{way},{rate:.6},{queued},{packets},{dropped},{lost}")?;
            }
        }
        // The rows are for programs that read along.
        self.out.flush()?;
        self.next += self.every;
        self.next = self.next.max(now);
        Ok(())
    }
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
    let mut table =
        Table::new(["link", "direction", "packets", "Mbit/s", "dropped", "lost", "longest queue, B"]);
    for (name, directions) in lab.stats() {
        for (way, stats) in WAYS.into_iter().zip(directions) {
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
            ]);
        }
    }
    table.words(2).to_string()
}
