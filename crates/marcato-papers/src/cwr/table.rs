//! Table I: growth of the windows with reservations.

use marcato_report::chart::{Axis, BarChart, Bars, Colour};
use marcato_report::{Figure, Row, Unit};

use super::predict::{self, CHECKED_ON, Prediction, Reduction};
use super::published::{Growth, PACKET, SAME_RTT, Scheduler, TABLE_1};
use super::scale::{Plan, Ticket};
use super::setup::{Outcome, Setup};
use super::{id, short_name, source_id, source_name};
use crate::answer::Answer;
use crate::answer::{TOO_SHORT, verdict};
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Tolerance of Table I's values around the paper's, in %.
const BAND_PERCENT: f64 = 15.0;

/// Each setup of Table I with one factor.
pub(super) struct Column {
    pub(super) reduction: Reduction,
    pub(super) cells: Vec<(Growth, Ticket)>,
}

impl Column {
    /// Suffix of the column's ids; empty for the one whose values are claimed.
    pub(super) const fn suffix(&self) -> &'static str {
        match self.reduction {
            Reduction::Half => ".half",
            Reduction::SevenTenths => "",
        }
    }

    /// Name of the column in words.
    pub(super) fn name(&self) -> String {
        format!("factor {}", self.reduction.factor())
    }

    /// Cells of each source: one for each scheduler.
    pub(super) fn sources(&self) -> impl Iterator<Item = &[(Growth, Ticket)]> {
        self.cells.chunks(Scheduler::ALL.len())
    }
}

/// Rows of each cell of these columns.
pub(super) fn of_cells<R: IntoIterator<Item = Row>>(
    columns: &[Column],
    rows: impl Fn(&Column, Growth, Ticket) -> R,
) -> Vec<Row> {
    let cells = columns.iter().flat_map(|column| column.cells.iter().map(move |&cell| (column, cell)));
    cells.flat_map(|(column, (cell, ticket))| rows(column, cell, ticket)).collect()
}

/// Table I with each factor, first the one that it is checked on.
pub(super) fn columns(plan: &mut Plan) -> [Column; 2] {
    [CHECKED_ON, Reduction::Half].map(|reduction| {
        // The other column claims little and only has to show a tendency.
        let span = if reduction == CHECKED_ON { plan.scale.long } else { plan.scale.short };
        let cells = TABLE_1.map(|cell| {
            let setup = Setup::paper(cell.scheduler, SAME_RTT, &[cell.source], span);
            (cell, plan.add(setup.reduced_to(reduction)))
        });
        Column { reduction, cells: cells.to_vec() }
    })
}

/// Table I: growth of the windows, against the paper and the prediction.
pub(super) fn table_1(plan: &mut Plan) -> Ask {
    let claims = plan.scale.claims;
    let columns = columns(plan);
    Box::new(move |runs: &Runs| {
        let mut rows = of_cells(&columns, |column, cell, ticket| growth(runs, claims, column, cell, ticket));
        for cells in columns[0].sources() {
            rows.push(order(runs, claims, cells));
        }
        let predictions = predict::table_1(CHECKED_ON);
        for &Prediction { published, per_rtt, .. } in &predictions {
            let id =
                format!("cwr.table1.{}.{}.predicted", source_id(published.source), id(published.scheduler));
            let what = format!(
                "window growth by arithmetic, {}, {}",
                source_name(published.source),
                published.scheduler
            );
            rows.push(Row::new(id, what, Unit::BytesPerRtt).measured(per_rtt));
        }
        for column in &columns {
            rows.push(mean_window(runs, column));
        }
        let mut answer = Answer::new(
            "Table I: growth of the congestion windows",
            prose::text(include_str!("table.md")),
            rows,
        );
        for scheduler in [Scheduler::Cwr, Scheduler::CwrRed] {
            answer.section = answer.section.figure(picture(runs, &columns, &predictions, scheduler));
        }
        answer
    })
}

/// Reason for claiming nothing about the column of the other factor.
const HALF: &str = "the paper does not give the factor of a reduction; 0.7 was declared before any run \
    as the one to be checked, and 0.5 is shown next to it, from shorter runs";

/// Reason for claiming nothing about the other reading of growth.
const WHOLE: &str = "another reading of growth in congestion avoidance, from the end of recovery to the next reduction; the \
    declared one is from the first to the last step up of each span";

/// Growth on both paths in one cell, by both definitions.
pub(super) fn growth(runs: &Runs, claims: bool, column: &Column, cell: Growth, ticket: Ticket) -> Vec<Row> {
    let at = format!("cwr.table1.{}.{}", source_id(cell.source), id(cell.scheduler));
    let of = format!("{}, {}, {}", source_name(cell.source), cell.scheduler, column.name());
    let mut rows = Vec::new();
    for index in 0..SAME_RTT.len() {
        let path = index + 1;
        let row = |suffix: &str, what: &str, values: Vec<f64>| {
            let id = format!("{at}.path{path}{}{suffix}", column.suffix());
            Row::new(id, format!("window growth{what}, path {path}, {of}"), Unit::BytesPerRtt)
                .paper(cell.per_rtt[index].get() as f64)
                .samples(&values)
        };
        let steps = runs.each(ticket, |outcome| outcome.lanes[index].windows.per_rtt());
        let steps = row("", "", steps);
        rows.push(match column.reduction {
            Reduction::Half => steps.unclaimed_because(HALF),
            Reduction::SevenTenths if claims => steps.within_percent(BAND_PERCENT),
            Reduction::SevenTenths => steps.unclaimed_because(TOO_SHORT),
        });
        let whole = runs.each(ticket, |outcome| outcome.lanes[index].windows.whole_per_rtt());
        let whole = row(".whole", " from the end of recovery to the next reduction", whole);
        rows.push(whole.unclaimed_because(WHOLE));
    }
    rows
}

/// Mean of both paths.
fn both(runs: &Runs, ticket: Ticket) -> f64 {
    runs.mean(ticket, of_both)
}

fn of_both(outcome: &Outcome) -> f64 {
    let each = outcome.lanes.iter().map(|lane| lane.windows.per_rtt());
    each.sum::<f64>() / outcome.lanes.len() as f64
}

/// Row that claims that more reservation means less growth.
pub(super) fn order(runs: &Runs, claims: bool, cells: &[(Growth, Ticket)]) -> Row {
    let source = cells[0].0.source;
    let growths: Vec<f64> = cells.iter().map(|&(_, ticket)| both(runs, ticket)).collect();
    verdict(
        format!("cwr.table1.{}.order", source_id(source)),
        format!("windows grow fastest under LowRTT, then CWR, then CWR+RED, {}", source_name(source)),
        growths.is_sorted_by(|faster, slower| faster > slower),
        claims,
    )
}

/// Row with the mean window under LowRTT over the predicted one.
fn mean_window(runs: &Runs, column: &Column) -> Row {
    let id = format!("cwr.window{}", column.suffix());
    let ratio = |ticket: Ticket| {
        let predicted = predict::mean_window(column.reduction, super::published::LOSS, PACKET);
        runs.mean(ticket, |outcome| {
            let each = outcome.lanes.iter().map(|lane| lane.windows.mean());
            each.sum::<f64>() / outcome.lanes.len() as f64
        }) / predicted
    };
    let under_low_rtt = column.cells.iter().filter(|(cell, _)| cell.scheduler == Scheduler::LowRtt);
    let ratios: Vec<f64> = under_low_rtt.map(|&(_, ticket)| ratio(ticket)).collect();
    let what = format!("mean window under LowRTT over the one predicted, {}", column.name());
    Row::new(id, what, Unit::Ratio).measured(marcato_report::Mean::of(&ratios).value)
}

/// Figure of one scheduler's cells: as printed, as predicted and as measured.
fn picture(runs: &Runs, columns: &[Column; 2], predictions: &[Prediction], scheduler: Scheduler) -> Figure {
    let tickets = |column: &Column| {
        let cells = column.cells.iter().filter(|(cell, _)| cell.scheduler == scheduler);
        cells.map(|&(_, ticket)| ticket).collect::<Vec<_>>()
    };
    let predictions = || predictions.iter().filter(|it| it.published.scheduler == scheduler);
    let mean = |cell: Growth| cell.per_rtt.iter().map(|bytes| bytes.get() as f64).sum::<f64>() / 2.0;
    let chart =
        BarChart::new(format!("Growth of the windows under {scheduler}"), Axis::new("growth", "B/RTT"))
            .groups(predictions().map(|it| short_name(it.published.source)))
            .bars(
                Bars::new("by arithmetic", predictions().map(|it| it.per_rtt))
                    .colour(Colour::Green)
                    .outlined(),
            );
    let colours = [Colour::Blue, Colour::Orange];
    let chart = columns.iter().zip(colours).fold(chart, |chart, (column, colour)| {
        let tickets = tickets(column);
        let measured = tickets.iter().map(|&ticket| both(runs, ticket));
        let intervals = tickets.iter().map(|&ticket| runs.ci95(ticket, of_both));
        let published = predictions().map(|it| mean(it.published));
        let bars = Bars::new(format!("measured, {}", column.name()), measured);
        chart.bars(bars.intervals(intervals).paper(published).colour(colour))
    });
    Figure::new(
        format!("table1-{}", id(scheduler)),
        chart,
        format!("Table I's cells with {scheduler}, mean of both paths and all seeds."),
    )
}
