//! Fig. 4, left: completion times of one source's messages.

use marcato_report::chart::{Axis, Colour, LineChart, Series};
use marcato_report::{Figure, Percentile, Row, Samples, Unit};
use marcato_units::{Bytes, Duration, Rate};

use super::mct;
use super::predict::CHECKED_ON;
use super::published::{Growth, RATE, SAME_RTT, Scheduler};
use super::scale::{Plan, Ticket};
use super::table::{Column, columns, of_cells};
use super::{id, source_id, source_name};
use crate::answer::Answer;
use crate::answer::verdict;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Printed percentiles, with their names in row ids.
pub(super) const PERCENTILES: [(&str, &str, Percentile); 3] = [
    ("p50", "median", Percentile::P50),
    ("p99", "99 %", Percentile::P99),
    ("p999", "99.9 %", Percentile::P99_9),
];

/// Number of messages from which on a claim is made about a 99.9th percentile.
pub(super) const ENOUGH: usize = 10_000;

/// Allowance in ms for a message that finds room, beyond the one-way delay and its transmission.
const MARGIN_MS: f64 = 2.0;

/// Stream bytes in a full packet of the sessions here, and IP bytes of it.
const PAYLOAD: Bytes = Bytes::new(1270);
const FULL: Bytes = Bytes::new(1350 + 28);

/// Upper bound in ms for a message that finds room and loses nothing: the one-way delay, its
/// packets one after the other, and the margin.
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

/// Fig. 4, left: CCDFs of completion times, and the benefit of redundancy.
pub(super) fn latency(plan: &mut Plan) -> Ask {
    let columns = columns(plan);
    let claims = plan.scale.claims;
    Box::new(move |runs: &Runs| {
        let mut rows = of_cells(&columns, |column, cell, ticket| completions(runs, column, cell, ticket));
        let [checked, _] = &columns;
        for cells in checked.sources() {
            let [_, (cwr, once), (_, twice)] = *cells else { continue };
            let [once, twice] = [once, twice].map(|ticket| mct::samples(runs, ticket, 0));
            let at = format!("cwr.mct.{}.red_helps", source_id(cwr.source));
            rows.push(red_helps(at, &source_name(cwr.source), &once, &twice, claims));
        }
        let mut answer = Answer::new(
            "Fig. 4, left: completion times beside one source",
            prose::text(include_str!("latency.md")),
            rows,
        );
        for (cells, letter) in checked.sources().zip('a'..) {
            answer.section = answer.section.figure(ccdf(runs, cells, letter));
        }
        answer
    })
}

pub(super) fn completions(runs: &Runs, column: &Column, cell: Growth, ticket: Ticket) -> Vec<Row> {
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
        .samples(&mct::percentiles(runs, ticket, 0, percentile));
        // A window halved by a loss may have no room for 50 kB.
        let fits = column.reduction == CHECKED_ON || source.size < Bytes::kb(50);
        if name == "p50" && scheduler != Scheduler::LowRtt && fits {
            row.at_most(undisturbed(source.size, SAME_RTT[0], RATE))
        } else {
            row
        }
    };
    PERCENTILES.map(row).to_vec()
}

/// Row that claims that redundancy shortens the longest completion times, of the messages of all
/// seeds together.
pub(super) fn red_helps(id: String, of: &str, once: &Samples, twice: &Samples, claims: bool) -> Row {
    let [cwr, red] = [once, twice].map(|mcts| mcts.percentile(Percentile::P99_9));
    let enough = once.len().min(twice.len()) >= ENOUGH;
    let what = format!("99.9 % of all seeds' messages complete sooner under CWR+RED than under CWR, {of}");
    verdict(id, what, red < cwr, claims && enough)
}

pub(super) fn ccdf(runs: &Runs, cells: &[(Growth, Ticket)], letter: char) -> Figure {
    let source = cells[0].0.source;
    let chart = LineChart::ccdf(source_name(source), Axis::new("completion", "ms").window(20.0, 200.0), true)
        .down_to(1e-4);
    let chart = cells.iter().fold(chart, |chart, &(cell, ticket)| {
        let samples = mct::samples(runs, ticket, 0);
        let series = Series::ccdf(cell.scheduler.name(), samples.sorted().iter().copied());
        chart.series(series.colour(colour(cell.scheduler)))
    });
    Figure::new(format!("fig4{letter}-mct"), chart, "As Fig. 4: CCDF of completion times; all seeds.")
}
