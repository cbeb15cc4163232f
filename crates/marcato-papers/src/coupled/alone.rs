//! Alone on a link of constant rate.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Percentile, Row, Unit};

use marcato_units::Bytes;

use super::cell::{CONTROLS, Cell, Path};
use super::{Plan, RULE, Scale, Ticket};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Least bandwidth-delay product that bounds are promised for, eight packets: on smaller paths the four packets that
/// are always in flight are a queue by themselves.
const MIN_BDP: Bytes = Bytes::new(8 * 1500);

/// A path with a congestion control, without and with coupled mode.
struct Arms {
    path: Path,
    congestion: &'static str,
    plain: Ticket,
    coupled: Ticket,
}

/// Bounds of the median and of the 99th percentile.
fn bounds(congestion: &str) -> (f64, f64) {
    if congestion == "bbr" { (1.2, 1.4) } else { (1.15, 1.25) }
}

fn arms(plan: &mut Plan, paths: impl Iterator<Item = Path>, seeds_from: u64) -> Vec<Arms> {
    let seconds = plan.scale.seconds;
    let mut all = Vec::new();
    for path in paths {
        for congestion in CONTROLS {
            let mut add =
                |coupled| plan.add(Cell { seeds_from, ..Cell::new(path, congestion, coupled, seconds) });
            all.push(Arms { path, congestion, plain: add("off"), coupled: add(RULE) });
        }
    }
    all
}

/// Rows of all cells: median, 99th percentile, cost, and time without a cap.
fn rows(runs: &Runs, name: &str, words: &str, scale: Scale, all: &[Arms]) -> Vec<Row> {
    let rows = all.iter().flat_map(|Arms { path, congestion, plain, coupled }| {
        let id = |what| format!("coupled.{name}.{}.{congestion}.{what}", path.id());
        let what = |of| format!("{of}{words}, {}, {congestion}", path.name());
        let times = |percentile| runs.each(*coupled, |seen| seen.percentile(percentile));
        let before = runs.mean(*plain, |seen| seen.sum());
        let cost = runs.each(*coupled, |seen| 100.0 * (1.0 - seen.sum() / before));
        let (p50, p99) = bounds(congestion);
        let rows = [
            (
                Row::new(id("p50"), what("median over the limit"), Unit::Ratio)
                    .samples(&times(Percentile::P50)),
                p50,
            ),
            (
                Row::new(id("p99"), what("99 % over the limit"), Unit::Ratio)
                    .samples(&times(Percentile::P99)),
                p99,
            ),
            (Row::new(id("cost"), what("goodput that it costs"), Unit::Percent).samples(&cost), 1.5),
            (
                Row::new(id("compete"), what("time without a cap"), Unit::Percent)
                    .samples(&runs.each(*coupled, |seen| seen.compete)),
                1.0,
            ),
        ];
        let claimed = path.product() >= MIN_BDP && path.bdp >= 1.0;
        rows.map(|(row, most)| {
            if !claimed {
                row.unclaimed_because("no bound is promised below eight packets or one BDP of buffer")
            } else {
                scale.claim(row, |row| row.at_most(most))
            }
        })
    });
    rows.collect()
}

/// Times over the limit on one path, without and with coupled mode.
fn ccdf(runs: &Runs, path: Path, all: &[Arms]) -> LineChart {
    let title = format!("Urgent messages beside background data: {}", path.name());
    let mut chart = LineChart::ccdf(title, Axis::new("completion time over the limit", "").log(), true);
    for Arms { congestion, plain, coupled, .. } in all.iter().filter(|arms| arms.path == path) {
        for (name, ticket) in [("plain", *plain), ("coupled", *coupled)] {
            let ratios = runs.of(ticket).into_iter().flat_map(|seen| seen.ratios().iter().copied());
            chart = chart.series(Series::ccdf(format!("{congestion}, {name}"), ratios));
        }
    }
    chart
}

/// The matrix that the rules were tuned on.
pub(super) fn tuned(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let (rates, rtts, buffers): (&[u32], &[u32], &[f64]) = if scale.claims {
        (&[2, 10, 50], &[20, 100, 200], &[0.5, 1.0, 4.0, 16.0])
    } else {
        (&[10], &[100], &[1.0, 4.0])
    };
    let paths = paths(rates, rtts, buffers);
    let all = arms(plan, paths, 0);
    Box::new(move |runs: &Runs| {
        let rows = rows(runs, "alone", "", scale, &all);
        let mut answer = Answer::new("Alone on the link", prose::text(include_str!("alone.md")), rows);
        let drawn = Path { mbit: 10, rtt: 100, bdp: 4.0 };
        answer.section = answer.section.figure(Figure::new(
            "alone",
            ccdf(runs, drawn, &all),
            "Share of urgent messages that take longer than this, with and without coupled mode.",
        ));
        answer
    })
}

/// Paths that no rule was tuned on: other rates, round trips, buffers and seeds.
pub(super) fn held_out(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let (rates, rtts, buffers): (&[u32], &[u32], &[f64]) =
        if scale.claims { (&[5, 25], &[35, 60, 150], &[0.75, 2.0, 8.0]) } else { (&[5], &[60], &[2.0]) };
    let all = arms(plan, paths(rates, rtts, buffers), 6);
    Box::new(move |runs: &Runs| {
        let rows = rows(runs, "held-out", " (held out)", scale, &all);
        Answer::new("Alone on links held out", prose::text(include_str!("held-out.md")), rows)
    })
}

fn paths(rates: &[u32], rtts: &[u32], buffers: &[f64]) -> impl Iterator<Item = Path> {
    let of =
        move |mbit| rtts.iter().flat_map(move |&rtt| buffers.iter().map(move |&bdp| Path { mbit, rtt, bdp }));
    rates.iter().flat_map(move |&mbit| of(mbit))
}
