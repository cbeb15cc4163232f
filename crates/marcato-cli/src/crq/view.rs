//! Snapshots as text for readers.

use std::collections::HashMap;

use marcato_kernel::{Counter, FlowId};

use super::snapshot::{FlowRow, QueueRow, Snapshot};
use crate::table::Table;

/// Snapshot, beside an earlier one of the same device: rates are those between the two.
pub(super) struct View<'a> {
    pub(super) now: &'a Snapshot,
    pub(super) before: Option<&'a Snapshot>,
}

#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
fn mbps(bytes: u64, span: f64) -> String {
    if span > 0.0 { format!("{:.2}", bytes as f64 * 8e-6 / span) } else { "-".to_owned() }
}

#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
fn shown(bytes: u64, unit: f64) -> String {
    format!("{:.1}", bytes as f64 / unit)
}

impl View<'_> {
    /// Seconds between the snapshots.
    fn span(&self) -> f64 {
        self.before.map_or(0.0, |before| self.now.time_s - before.time_s)
    }

    fn queues(&self) -> Table {
        // Only CRQ below classes has a column for these.
        let owner = |queue: &QueueRow| queue.class.clone().or(queue.subscriber.clone());
        let has_classes = self.now.queues.iter().any(|queue| owner(queue).is_some());
        let name = if self.now.subscribers.is_some() { "subscriber" } else { "class" };
        let header = has_classes.then_some(name).into_iter().chain([
            "queue",
            "kind",
            "Mbit/s",
            "packets",
            "MB",
            "drops",
            "marks",
            "waiting",
            "waiting kB",
        ]);
        let mut table = Table::new(header).words(2 + usize::from(has_classes));
        for queue in &self.now.queues {
            let is_same = |it: &&QueueRow| (it.name, owner(it)) == (queue.name, owner(queue));
            let before = self.before.and_then(|before| before.queues.iter().find(is_same));
            let rate =
                before.map_or("-".to_owned(), |it| mbps(queue.bytes.saturating_sub(it.bytes), self.span()));
            let class = has_classes.then(|| owner(queue).unwrap_or_default());
            table.row(class.into_iter().chain([
                queue.name.to_owned(),
                queue.kind.clone(),
                rate,
                queue.packets.to_string(),
                shown(queue.bytes, 1e6),
                queue.drops.to_string(),
                queue.marks.to_string(),
                queue.waiting_packets.to_string(),
                shown(queue.waiting_bytes, 1e3),
            ]));
        }
        table
    }

    fn verdicts(&self) -> Table {
        let mut table =
            Table::new(["verdict", "packets by response to loss", "MB", "by response to marks", "MB"]);
        for (name, loss, ecn) in [
            ("none", Counter::LossUnclassified, Counter::EcnUnclassified),
            ("responsive", Counter::LossResponsive, Counter::EcnResponsive),
            ("unresponsive", Counter::LossUnresponsive, Counter::EcnUnresponsive),
        ] {
            let [loss, ecn] = [loss, ecn].map(|counter| self.now.count(counter));
            table.row([
                name.to_owned(),
                loss.packets.to_string(),
                shown(loss.bytes, 1e6),
                ecn.packets.to_string(),
                shown(ecn.bytes, 1e6),
            ]);
        }
        table
    }

    fn flows(&self) -> Table {
        let addresses = self.now.flows.iter().any(|flow| flow.from.is_some());
        let places: &[&str] = if addresses { &["from", "to"] } else { &[] };
        let header = ["protocol"].iter().chain(places).chain(&[
            "queue", "on loss", "on marks", "Mbit/s", "packets", "MB", "drops", "marks", "changes", "rtt ms",
            "idle s",
        ]);
        let mut table = Table::new(header.copied()).words(4 + places.len());
        let before: HashMap<FlowId, u64> =
            self.before.iter().flat_map(|it| &it.flows).map(|flow| (flow.id, flow.bytes)).collect();
        for flow in &self.now.flows {
            let rate = before
                .get(&flow.id)
                .map_or("-".to_owned(), |bytes| mbps(flow.bytes.saturating_sub(*bytes), self.span()));
            table.row(flow_cells(flow, rate));
        }
        table
    }
}

fn flow_cells(flow: &FlowRow, rate: String) -> Vec<String> {
    let mut cells = vec![flow.protocol.to_owned()];
    cells.extend([&flow.from, &flow.to].into_iter().flatten().cloned());
    cells.extend([flow.queue, flow.on_loss, flow.on_marks].map(str::to_owned));
    cells.extend([
        rate,
        flow.packets.to_string(),
        shown(flow.bytes, 1e6),
        flow.drops.to_string(),
        flow.marks.to_string(),
        flow.changes.to_string(),
        flow.rtt_ms.map_or("-".to_owned(), |rtt| format!("{rtt:.1}")),
        format!("{:.1}", flow.idle_s),
    ]);
    cells
}

impl std::fmt::Display for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let now = self.now;
        writeln!(f, "{}: {}, {}\n", now.device, now.state, now.settings.shown())?;
        if let Some(number) = now.subscribers {
            writeln!(f, "{number} subscribers; these sent most:\n")?;
        }
        writeln!(f, "{}\n{}", self.queues(), self.verdicts())?;
        let count = |counter| now.count(counter).packets;
        writeln!(
            f,
            "{} flows of at most {}; {} packets not assessed, {} unreadable, {} contended, {} without room, {} no longer young; {} signals of unknown flows",
            now.followed,
            now.settings.flows(),
            count(Counter::Unassessed),
            count(Counter::Unreadable),
            count(Counter::Contended),
            count(Counter::MapFull),
            count(Counter::Outgrown),
            count(Counter::UnknownSignals),
        )?;
        if now.flows.is_empty() { Ok(()) } else { write!(f, "\n{}", self.flows()) }
    }
}
