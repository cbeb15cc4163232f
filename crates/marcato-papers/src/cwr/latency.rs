//! Fig. 4: completion times of one source's messages, and the throughput of the whole transmission.

use marcato_units::{Bytes, Duration, Rate};

use super::predict::CHECKED_ON;
use super::published::{Growth, Periodic, RATE, REPAIRED_RTTS, SAME_RTT, Scheduler};
use super::runs::{Plan, Runs, Ticket};
use super::setup::Setup;
use super::table::{Column, columns};
use super::{Answer, Ask, id, source_id, source_name, verdict};
use crate::chart::{Axis, BarChart, Bars, Colour, LineChart, Series};
use crate::{Figure, Percentile, Row, Samples, Unit};

/// The percentiles printed, as row ids have them.
pub(super) const PERCENTILES: [(&str, &str, Percentile); 3] = [
    ("p50", "median", Percentile::P50),
    ("p99", "99 %", Percentile::P99),
    ("p999", "99.9 %", Percentile::P99_9),
];

/// So many messages make a 99.9th percentile of which something can be claimed.
pub(super) const ENOUGH: usize = 10_000;

/// What a message that finds room may take beyond the way itself.
const MARGIN_MS: f64 = 2.0;

/// Stream bytes in a full packet of the sessions here, and IP bytes of it.
const PAYLOAD: Bytes = Bytes::new(1270);
const FULL: Bytes = Bytes::new(1350 + 28);

/// A message that finds room and loses nothing takes at most so many ms: the one-way delay, its packets one after the
/// other, and the margin.
fn undisturbed(size: Bytes, rtt: Duration, rate: Rate) -> f64 {
    let packets = size.get().div_ceil(PAYLOAD.get());
    let wire = FULL * packets;
    (rtt / 2 + rate.transmission_time(wire)).as_secs_f64() * 1e3 + MARGIN_MS
}

pub(super) const fn colour(scheduler: Scheduler) -> Colour {
    match scheduler {
        Scheduler::LowRtt => Colour::Orange,
        Scheduler::Cwr => Colour::Blue,
        Scheduler::CwrRed => Colour::Green,
    }
}

/// Fig. 4.
pub(super) fn latency(plan: &mut Plan) -> Ask {
    let columns = columns(plan);
    let claims = plan.scale.claims;
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for column in &columns {
            for &(cell, ticket) in &column.cells {
                rows.extend(completions(runs, column, cell, ticket));
            }
        }
        let [checked, _] = &columns;
        for cells in checked.sources() {
            let [_, (cwr, once), (_, twice)] = *cells else { continue };
            let [once, twice] = [once, twice].map(|ticket| runs.mcts(ticket, 0));
            let at = format!("cwr.mct.{}.red_helps", source_id(cwr.source));
            rows.push(red_helps(at, &source_name(cwr.source), &once, &twice, claims));
        }
        let mut answer = Answer::new("Fig. 4, left: completion times beside one source", TEXT, rows);
        for (cells, letter) in checked.sources().zip('a'..) {
            answer.section = answer.section.figure(ccdf(runs, cells, letter));
        }
        answer
    })
}

const TEXT: &str = "";

fn completions(runs: &Runs, column: &Column, cell: Growth, ticket: Ticket) -> Vec<Row> {
    let Growth { source, scheduler, .. } = cell;
    let row = |(name, what, percentile): (&str, &str, Percentile)| {
        let row = Row::new(
            format!("cwr.mct.{}.{}.{name}{}", source_id(source), id(scheduler), column.suffix()),
            format!(
                "completion of messages, {what}, {}, {scheduler}, {}",
                source_name(source),
                column.name()
            ),
            Unit::Ms,
        )
        .samples(&runs.percentiles(ticket, 0, percentile));
        // A window that is halved need not have room for 50 kB.
        let fits = column.reduction == CHECKED_ON || source.size < Bytes::kb(50);
        if name == "p50" && scheduler != Scheduler::LowRtt && fits {
            row.at_most(undisturbed(source.size, SAME_RTT[0], RATE))
        } else {
            row
        }
    };
    PERCENTILES.map(row).to_vec()
}

/// Whether redundancy shortens the longest completion times of the messages of all seeds together.
pub(super) fn red_helps(id: String, of: &str, once: &Samples, twice: &Samples, claims: bool) -> Row {
    let [cwr, red] = [once, twice].map(|mcts| mcts.percentile(Percentile::P99_9));
    let enough = once.len().min(twice.len()) >= ENOUGH;
    let what = format!("99.9 % of all seeds' messages complete sooner under CWR+RED than under CWR, {of}");
    verdict(id, what, red < cwr, claims && enough)
}

fn ccdf(runs: &Runs, cells: &[(Growth, Ticket)], letter: char) -> Figure {
    let source = cells[0].0.source;
    let chart = LineChart::ccdf(source_name(source), Axis::new("completion", "ms").range(20.0, 200.0), true)
        .down_to(1e-4);
    let chart = cells.iter().fold(chart, |chart, &(cell, ticket)| {
        let samples = runs.mcts(ticket, 0);
        let series = Series::ccdf(cell.scheduler.name(), samples.sorted().iter().copied());
        chart.series(series.colour(colour(cell.scheduler)))
    });
    Figure::new(
        format!("fig4{letter}-mct"),
        chart.to_svg(),
        format!("As Fig. 4: shares of the messages that took longer, {}; all seeds.", source_name(source)),
    )
}

/// Fig. 4, right.
pub(super) fn throughput(plan: &mut Plan) -> Ask {
    let columns = columns(plan);
    let claims = plan.scale.claims;
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for column in &columns {
            for &(cell, ticket) in &column.cells {
                let at = format!("cwr.goodput.{}.{}", source_id(cell.source), id(cell.scheduler));
                let of = format!("{}, {}, {}", source_name(cell.source), cell.scheduler, column.name());
                for (name, what, value) in GOODPUTS {
                    let id = format!("{at}.{name}{}", column.suffix());
                    let row = Row::new(id, format!("goodput, {what}, {of}"), Unit::MbitPerS);
                    rows.push(row.samples(&runs.each(ticket, value)));
                }
            }
        }
        let [checked, _] = &columns;
        for cells in checked.sources() {
            let source = cells[0].0.source;
            let totals: Vec<f64> =
                cells.iter().map(|&(_, ticket)| runs.mean(ticket, |outcome| outcome.goodput())).collect();
            rows.push(verdict(
                format!("cwr.goodput.{}.order", source_id(source)),
                format!("goodput is highest under LowRTT, then CWR, then CWR+RED, {}", source_name(source)),
                totals.is_sorted_by(|more, less| more > less),
                claims,
            ));
        }
        let mut answer = Answer::new("Fig. 4, right: throughput", GOODPUT_TEXT, rows);
        answer.section = answer.section.figure(bars(runs, checked));
        answer
    })
}

const GOODPUT_TEXT: &str = "";

type Value = fn(&super::setup::Outcome) -> f64;

const GOODPUTS: [(&str, &str, Value); 3] = [
    ("total", "all messages", |outcome| outcome.goodput()),
    ("priority", "urgent messages", |outcome| outcome.rate(outcome.bytes[0])),
    ("copies", "copies, which count for nothing", |outcome| outcome.rate(outcome.duplicates)),
];

fn bars(runs: &Runs, column: &Column) -> Figure {
    let chart = BarChart::new("Throughput, copies included", Axis::new("throughput", "Mbit/s"))
        .groups(column.sources().map(|cells| source_name(cells[0].0.source)))
        .part("urgent");
    let chart = Scheduler::ALL.into_iter().fold(chart, |chart, scheduler| {
        let cells = column.cells.iter().filter(|(cell, _)| cell.scheduler == scheduler);
        let tickets: Vec<Ticket> = cells.map(|&(_, ticket)| ticket).collect();
        let each = |value: Value| tickets.iter().map(|&ticket| runs.mean(ticket, value)).collect::<Vec<_>>();
        let totals = each(|outcome| outcome.goodput() + outcome.rate(outcome.duplicates));
        let urgent = each(|outcome| outcome.rate(outcome.bytes[0] + outcome.duplicates));
        chart.bars(Bars::new(scheduler.name(), totals).parts(urgent).colour(colour(scheduler)))
    });
    Figure::new(
        "fig4-throughput",
        chart.to_svg(),
        "As Fig. 4: what the transport delivered, the lighter part urgent. As in the paper, both copies of an urgent \
         message count here; the rows count each byte once.",
    )
}

/// How soon after its release a message is complete of which a packet was lost.
pub(super) fn recovery(plan: &mut Plan) -> Ask {
    let source = Periodic { period: Duration::from_millis(100), size: Bytes::kb(10) };
    let setup = Setup::paper(Scheduler::Cwr, SAME_RTT, &[source], plan.scale.long);
    let packets = plan.add(setup.clone());
    let time = plan.add(setup.with_session(|session| session.packet_threshold = u32::MAX));
    let claims = plan.scale.claims;
    Box::new(move |runs: &Runs| {
        let rtt = SAME_RTT[0].as_secs_f64() * 1e3;
        let mut rows = Vec::new();
        for (name, what, ticket, least, paper) in [
            ("packets", "three later packets acknowledged", packets, 1.5, None),
            ("time", "9/8 of a round trip alone", time, REPAIRED_RTTS, Some(REPAIRED_RTTS)),
        ] {
            let row = |suffix: &str, which: &str| {
                Row::new(
                    format!("cwr.recovery.{name}{suffix}"),
                    format!(
                        "{which} of CWR that took more than a round trip, in round trips; a packet is lost after {what}"
                    ),
                    Unit::Ratio,
                )
            };
            let late = |mcts: &[f64]| {
                mcts.iter().copied().filter(|&mct| mct > rtt).map(|mct| mct / rtt).collect::<Samples>()
            };
            let samples = late(runs.mcts(ticket, 0).sorted());
            let of = |percentile| samples.percentile(percentile).unwrap_or(f64::NAN);
            let zero = Percentile::from_thousandths(0).unwrap_or(Percentile::P50);
            let mut earliest = row("", "earliest completion of a message").measured(of(zero));
            if let Some(paper) = paper {
                earliest = earliest.paper(paper);
            }
            rows.push(if claims { earliest.at_least(least) } else { earliest });
            rows.push(row(".median", "median completion of messages").measured(of(Percentile::P50)));
            let count = Row::new(
                format!("cwr.recovery.{name}.count"),
                format!(
                    "messages of CWR that took more than a round trip, all seeds; a packet is lost after {what}"
                ),
                Unit::Count,
            );
            rows.push(count.measured(samples.len() as f64));
        }
        Answer::new("Recovery: how late a message is of which a packet was lost", "", rows)
    })
}
