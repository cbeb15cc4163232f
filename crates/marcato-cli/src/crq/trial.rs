//! Page about a trial of `monitor`: what the flows of a device are like, and what CRQ would have done with them.

use std::collections::HashMap;

use marcato_kernel::{Counter, FlowId};
use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::page::{Cell, Column, Page, Section, Table};
use marcato_report::{COMMIT, Figure, VERSION};

use super::snapshot::{Count, FlowRow, Snapshot};

/// Most unresponsive flows that are kept: the smallest make room.
const MOST_FLOWS: usize = 2000;
/// Flows on the page.
const SHOWN: usize = 50;
/// Most intervals of the chart: then each two become one.
const MOST_SPANS: usize = 600;

/// Interval of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    seconds: f64,
    /// Bytes by the queue that CRQ would have chosen: responsive, other.
    bytes: [u64; 2],
}

/// Observations of a trial so far.
#[derive(Debug, Default)]
pub(super) struct Trial {
    first: Option<Snapshot>,
    last: Option<Snapshot>,
    spans: Vec<Span>,
    /// Snapshots that are one interval of the chart.
    width: usize,
    /// Snapshots in the last interval.
    filled: usize,
    unresponsive: HashMap<FlowId, FlowRow>,
}

/// Bytes by the queue that CRQ would have chosen: responsive, other.
fn chosen(snapshot: &Snapshot) -> [u64; 2] {
    let bytes = |counter| snapshot.count(counter).bytes;
    let [responsive, standard] = [Counter::Responsive, Counter::Standard].map(bytes);
    [responsive, standard]
}

fn is_unresponsive(flow: &FlowRow) -> bool {
    [flow.on_loss, flow.on_marks].contains(&"unresponsive")
}

#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| 100.0 * part as f64 / of as f64)
}

#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
fn megabytes(bytes: u64) -> Option<f64> {
    Some(bytes as f64 * 1e-6)
}

#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
fn mbps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{share:.1} %"))
}

impl Trial {
    /// Takes note of a snapshot, which has all flows.
    pub(super) fn note(&mut self, snapshot: &Snapshot) {
        if let Some(last) = &self.last {
            let (before, now) = (chosen(last), chosen(snapshot));
            let bytes = [0, 1].map(|queue| now[queue].saturating_sub(before[queue]));
            self.lengthen(Span { seconds: snapshot.time_s - last.time_s, bytes });
        }
        // A flow that is called responsive later was judged in haste.
        for flow in &snapshot.flows {
            if is_unresponsive(flow) {
                self.unresponsive.insert(flow.id, flow.clone());
            } else {
                self.unresponsive.remove(&flow.id);
            }
        }
        if self.unresponsive.len() > MOST_FLOWS {
            let mut flows: Vec<FlowRow> = self.unresponsive.drain().map(|(_, flow)| flow).collect();
            flows.sort_by_key(|flow| std::cmp::Reverse((flow.bytes, flow.id)));
            flows.truncate(MOST_FLOWS / 2);
            self.unresponsive = flows.into_iter().map(|flow| (flow.id, flow)).collect();
        }
        let without_flows = || Snapshot { flows: Vec::new(), ..snapshot.clone() };
        self.first.get_or_insert_with(without_flows);
        self.last = Some(without_flows());
    }

    fn lengthen(&mut self, span: Span) {
        let width = self.width.max(1);
        match self.spans.last_mut() {
            Some(last) if self.filled < width => {
                last.seconds += span.seconds;
                last.bytes = [0, 1].map(|queue| last.bytes[queue] + span.bytes[queue]);
                self.filled += 1;
            }
            _ => {
                self.spans.push(span);
                self.filled = 1;
            }
        }
        if self.spans.len() > MOST_SPANS {
            let both = |pair: &[Span]| Span {
                seconds: pair.iter().map(|span| span.seconds).sum(),
                bytes: [0, 1].map(|queue| pair.iter().map(|span| span.bytes[queue]).sum()),
            };
            // The last one has no partner yet, and one snapshot.
            self.spans = self.spans.chunks(2).map(both).collect();
            self.width = 2 * width;
        }
    }

    /// Page about the trial; `None` before the first snapshot.
    pub(super) fn page(&self) -> Option<Page> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let seconds = last.time_s - first.time_s;
        let counted = |counter| {
            let (before, now) = (first.count(counter), last.count(counter));
            Count {
                packets: now.packets.saturating_sub(before.packets),
                bytes: now.bytes.saturating_sub(before.bytes),
            }
        };
        let [responsive, other] = [Counter::Responsive, Counter::Standard].map(counted);
        let bytes = responsive.bytes + other.bytes;
        let signals = [Counter::Drops, Counter::Marks].map(|counter| counted(counter).packets);
        let fastest = self.spans.iter().map(|span| mbps(span.bytes[0] + span.bytes[1], span.seconds));
        let fastest = fastest.fold(0.0, f64::max);
        let mut page = Page::new(format!("CRQ on trial: {}", last.device))
            .about(format!(
                "Flows of {} for {seconds:.0} s, watched by `marcato crq monitor` ({}). No packet and no queue was changed.",
                last.device,
                last.settings.shown(),
            ))
            .provenance(format!("Marcato {VERSION}, commit {COMMIT}"))
            .without_script();
        if signals == [0, 0] {
            page = page.banner(
                "The device's queue dropped and marked no packet of a flow, so no flow could be judged. Watch a device whose queue fills, or shape it.",
            );
        }
        Some(
            page.summary(format!(
                "`attach` would have sent {} of the bytes to the responsive queue, and {} to the standard queue.",
                percent(share(responsive.bytes, bytes)),
                percent(share(other.bytes, bytes)),
            ))
            .section(self.would_have(last, counted(Counter::Changes).packets, signals, fastest))
            .section(shares(&counted))
            .section(self.flows()),
        )
    }

    fn would_have(&self, last: &Snapshot, changes: u64, [drops, marks]: [u64; 2], fastest: f64) -> Section {
        let mut at = 0.0;
        let mut lines = [Vec::new(), Vec::new()];
        for span in &self.spans {
            for (line, bytes) in lines.iter_mut().zip(span.bytes) {
                line.push((at, mbps(bytes, span.seconds)));
            }
            at += span.seconds;
        }
        let [responsive, other] = lines;
        let chart = LineChart::new("Rates by queue", Axis::new("time", "s"), Axis::new("rate", "Mbit/s"))
            .series(Series::step("responsive queue", responsive))
            .series(Series::step("standard queue", other));
        let caption = "Rate of the traffic that `attach` would have sent to each queue.";
        Section::new("What attach would have done")
            .text(format!(
                "Flows would have changed their queue {changes} times. The device's queue gave {drops} drops and {marks} marks to flows. The highest rate of an interval was {fastest:.1} Mbit/s.",
            ))
            .text("A shaped device has other drops than one that is only watched: flows are judged more often, and the shares of flows without a verdict fall.")
            .code(format!("marcato crq attach {} --rate RATE --dry-run", last.device))
            .figure(Figure::new("rates", chart, caption))
    }

    fn flows(&self) -> Section {
        let mut flows: Vec<&FlowRow> = self.unresponsive.values().collect();
        flows.sort_by_key(|flow| std::cmp::Reverse((flow.bytes, flow.id)));
        let addresses = flows.iter().any(|flow| flow.from.is_some());
        let places = if addresses { vec![Column::text("from"), Column::text("to")] } else { Vec::new() };
        let mut table = Table::new("Flows that did not slow down, the largest first")
            .column(Column::text("protocol"))
            .columns(places)
            .columns(["on loss", "on marks"].map(Column::text))
            .column(Column::number("sent").unit("MB"))
            .columns(["drops", "marks"].map(Column::number))
            .column(Column::number("round trip").unit("ms"));
        for flow in flows.iter().take(SHOWN) {
            let mut cells = vec![Cell::text(flow.protocol)];
            cells.extend([&flow.from, &flow.to].into_iter().flatten().map(Cell::text));
            cells.extend([flow.on_loss, flow.on_marks].map(Cell::text));
            cells.push(Cell::number(megabytes(flow.bytes)));
            cells.extend([flow.drops, flow.marks].map(|count| Cell::number(Some(f64::from(count)))));
            cells.push(Cell::number(flow.rtt_ms));
            table = table.row(cells);
        }
        let section = Section::new("Unresponsive flows");
        let count = flows.len();
        let section = match count {
            0 => section.text("No flow was called unresponsive."),
            _ => section
                .text(format!("{count} flows were called unresponsive when they were seen last. {}", {
                    if addresses { "" } else { "`--addresses` shows who they are." }
                })),
        };
        if count > 0 { section.table(table) } else { section }
    }
}

/// Shares of the traffic by verdict.
fn shares(counted: &dyn Fn(Counter) -> Count) -> Section {
    let mut section = Section::new("Shares by verdict")
        .text("A flow has a verdict on drops and one on marks; `none` means that it had no such signals, or too few.");
    for (signal, counters) in [
        ("drops", [Counter::LossUnclassified, Counter::LossResponsive, Counter::LossUnresponsive]),
        ("marks", [Counter::EcnUnclassified, Counter::EcnResponsive, Counter::EcnUnresponsive]),
    ] {
        let counts = counters.map(counted);
        let unassessed = counted(Counter::Unassessed);
        let all = counts.iter().chain([&unassessed]);
        let (packets, bytes) = all.fold((0, 0), |sum, count| (sum.0 + count.packets, sum.1 + count.bytes));
        let mut table = Table::new(format!("Traffic by its flow's verdict on {signal}"))
            .column(Column::text("verdict"))
            .column(Column::number("packets").unit("%"))
            .column(Column::number("bytes").unit("%"))
            .column(Column::number("sent").unit("MB"));
        let names = ["none", "responsive", "unresponsive", "no flow that can be assessed"];
        for (name, count) in names.into_iter().zip(counts.iter().chain([&unassessed])) {
            table = table.row([
                Cell::text(name),
                Cell::number(share(count.packets, packets)),
                Cell::number(share(count.bytes, bytes)),
                Cell::number(megabytes(count.bytes)),
            ]);
        }
        section = section.table(table);
    }
    section
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    use marcato_wire::FlowTuple;

    use super::*;
    use crate::crq::settings::Settings;

    fn flow(port: u16, on_loss: &'static str, bytes: u64, addresses: bool) -> FlowRow {
        let host = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        let id = FlowId::new(&FlowTuple {
            protocol: FlowTuple::TCP,
            source: host(1),
            destination: host(2),
            source_port: port,
            destination_port: 443,
        });
        let place = |host: &str| addresses.then(|| host.to_owned());
        FlowRow {
            id,
            protocol: "tcp",
            from: place("192.0.2.1:7"),
            to: place("192.0.2.2:443"),
            queue: "standard",
            on_loss,
            on_marks: "none",
            packets: 1,
            bytes,
            drops: 4,
            marks: 0,
            changes: 0,
            cycles: 9,
            rtt_ms: Some(20.0),
            idle_s: 0.0,
        }
    }

    /// Snapshot at a time, after so many MB to each queue: responsive, standard.
    fn snapshot(time_s: f64, megabytes: [u64; 2], drops: u64, flows: Vec<FlowRow>) -> Snapshot {
        let of = |bytes| Count { packets: bytes / 1000, bytes };
        let [responsive, standard] = megabytes.map(|count| of(count * 1_000_000));
        let counters = [
            (Counter::Responsive, responsive),
            (Counter::Standard, standard),
            (Counter::LossResponsive, responsive),
            (Counter::LossUnresponsive, standard),
            (Counter::Drops, Count { packets: drops, bytes: 0 }),
        ];
        Snapshot {
            version: VERSION,
            commit: COMMIT,
            device: "wan".to_owned(),
            time_s,
            settings: Settings::default(),
            state: "attached".to_owned(),
            queues: Vec::new(),
            subscribers: None,
            counters: counters.into_iter().map(|(counter, count)| (counter.name(), count)).collect(),
            followed: flows.len(),
            flows,
            groups: BTreeMap::new(),
        }
    }

    #[test]
    fn a_page_says_what_attach_would_have_done() {
        let page = |addresses| {
            let mut trial = Trial::default();
            assert!(trial.page().is_none());
            trial.note(&snapshot(100.0, [5, 5], 1, vec![flow(7, "unresponsive", 2_000_000, addresses)]));
            let later = vec![
                flow(7, "responsive", 3_000_000, addresses),
                flow(8, "unresponsive", 1_000_000, addresses),
            ];
            trial.note(&snapshot(110.0, [35, 15], 9, later));
            trial.page().unwrap().to_html()
        };
        let html = page(false);
        // From the first snapshot on: 30 and 10 MB in 10 s.
        for said in [
            "75.0 % of the bytes to the responsive queue",
            "32.0 Mbit/s",
            "8 drops and 0 marks",
            "watched by",
        ] {
            assert!(html.contains(said), "{said}: {html}");
        }
        assert!(
            html.contains("1 flows were called unresponsive") && html.contains("`--addresses`"),
            "{html}"
        );
        assert!(!html.contains("192.0.2") && !html.contains("<script"), "{html}");
        assert!(page(true).contains("192.0.2.1:7"));
    }

    #[test]
    fn a_queue_that_never_fills_gives_a_warning() {
        let mut trial = Trial::default();
        trial.note(&snapshot(0.0, [0, 0], 0, Vec::new()));
        let html = trial.page().unwrap().to_html();
        assert!(
            html.contains("no flow could be judged") && html.contains("No flow was called unresponsive"),
            "{html}"
        );
    }

    #[test]
    fn a_long_trial_keeps_few_intervals_and_all_bytes() {
        let mut trial = Trial::default();
        for second in 0..=5000_u32 {
            trial.note(&snapshot(second.into(), [second.into(), 2 * u64::from(second)], 0, Vec::new()));
        }
        assert!((100..=MOST_SPANS).contains(&trial.spans.len()), "{}", trial.spans.len());
        let sum = |queue: usize| trial.spans.iter().map(|span| span.bytes[queue]).sum::<u64>();
        assert_eq!([sum(0), sum(1)], [5_000_000_000, 10_000_000_000]);
        assert!(trial.spans.iter().rev().skip(1).all(|span| span.seconds == trial.spans[0].seconds));
    }

    #[test]
    fn many_unresponsive_flows_leave_the_largest() {
        let mut trial = Trial::default();
        let flows = (0..3000_u16).map(|port| flow(port, "unresponsive", port.into(), false)).collect();
        trial.note(&snapshot(0.0, [0, 0], 0, flows));
        assert!(trial.unresponsive.len() <= MOST_FLOWS);
        assert!(trial.unresponsive.values().all(|flow| flow.bytes >= 2000));
    }
}
