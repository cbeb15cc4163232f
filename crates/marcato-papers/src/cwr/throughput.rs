//! Fig. 4, right: throughput of the whole transmission, and the share of urgent data.

use marcato_report::chart::{Axis, BarChart, Bars};
use marcato_report::{Figure, Row, Unit};

use super::latency::colour;
use super::published::{Growth, Scheduler};
use super::scale::{Plan, Ticket};
use super::setup::Outcome;
use super::table::{Column, columns, of_cells};
use super::{id, short_name, source_id, source_name};
use crate::answer::Answer;
use crate::answer::verdict;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Fig. 4, right: goodput of all and of urgent messages, and the rate of copies.
pub(super) fn throughput(plan: &mut Plan) -> Ask {
    let columns = columns(plan);
    let claims = plan.scale.claims;
    Box::new(move |runs: &Runs| {
        let mut rows = of_cells(&columns, |column, cell, ticket| goodputs(runs, column, cell, ticket));
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
        let mut answer =
            Answer::new("Fig. 4, right: throughput", prose::text(include_str!("throughput.md")), rows);
        answer.section = answer.section.figure(bars(runs, checked));
        answer
    })
}

/// Goodput of all and of urgent messages, and the rate of copies, in one cell.
pub(super) fn goodputs(runs: &Runs, column: &Column, cell: Growth, ticket: Ticket) -> [Row; 3] {
    let at = format!("cwr.goodput.{}.{}", source_id(cell.source), id(cell.scheduler));
    let of = format!("{}, {}, {}", source_name(cell.source), cell.scheduler, column.name());
    GOODPUTS.map(|(name, what, value)| {
        let id = format!("{at}.{name}{}", column.suffix());
        let row = Row::new(id, format!("goodput, {what}, {of}"), Unit::MbitPerS);
        row.samples(&runs.each(ticket, value))
    })
}

type Value = fn(&Outcome) -> f64;

const GOODPUTS: [(&str, &str, Value); 3] = [
    ("total", "all messages", |outcome| outcome.goodput()),
    ("priority", "urgent messages", |outcome| outcome.rate(outcome.bytes[0])),
    ("copies", "copies, not counted", |outcome| outcome.rate(outcome.duplicates)),
];

pub(super) fn bars(runs: &Runs, column: &Column) -> Figure {
    let chart = BarChart::new("Throughput, copies included", Axis::new("throughput", "Mbit/s"))
        .groups(column.sources().map(|cells| short_name(cells[0].0.source)))
        .part("urgent");
    let chart = Scheduler::ALL.into_iter().fold(chart, |chart, scheduler| {
        let cells = column.cells.iter().filter(|(cell, _)| cell.scheduler == scheduler);
        let tickets: Vec<Ticket> = cells.map(|&(_, ticket)| ticket).collect();
        let each = |value: Value| tickets.iter().map(|&ticket| runs.mean(ticket, value)).collect::<Vec<_>>();
        let totals = each(|outcome| outcome.goodput() + outcome.rate(outcome.duplicates));
        let urgent = each(|outcome| outcome.rate(outcome.bytes[0] + outcome.duplicates));
        let total = |outcome: &Outcome| outcome.goodput() + outcome.rate(outcome.duplicates);
        let intervals: Vec<f64> = tickets.iter().map(|&ticket| runs.ci95(ticket, total)).collect();
        let bars = Bars::new(scheduler.name(), totals).parts(urgent).intervals(intervals);
        chart.bars(bars.colour(colour(scheduler)))
    });
    Figure::new(
        "fig4-throughput",
        chart,
        "As Fig. 4: throughput of the transport; the lighter part is urgent. As in the paper, both copies of an urgent \
         message count here; the rows count each byte once.",
    )
}
