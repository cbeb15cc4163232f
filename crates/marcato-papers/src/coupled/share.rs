//! Beside other flows, and coupled flows among themselves.

use marcato_report::{Mean, Percentile, Row, Samples, Unit};
use marcato_units::Duration;

use super::cell::{Cell, Path, tcp};
use super::{Plan, RULE, Ticket};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Seeds of each cell, beyond those of the command.
const SEEDS: u64 = 3;
/// Seconds measured beside others.
const SECONDS: u64 = 90;

/// Time at which a late flow begins.
const LATE: Duration = Duration::from_secs(5);

/// Cell beside others, without and with coupled mode, for each seed.
struct Arms {
    id: String,
    what: String,
    plain: Vec<Ticket>,
    coupled: Vec<Ticket>,
}

fn mean(runs: &Runs, tickets: &[Ticket], value: impl Fn(&super::cell::Seen) -> f64) -> f64 {
    let each: Vec<f64> = tickets.iter().flat_map(|&ticket| runs.each(ticket, &value)).collect();
    Mean::of(&each).value
}

/// Plans a cell once for each seed.
fn with_seeds(plan: &mut Plan, cell: &Cell) -> Vec<Ticket> {
    let seeds = 0..if plan.scale.claims { SEEDS } else { 1 };
    seeds.map(|seeds_from| plan.add(Cell { seeds_from, ..cell.clone() })).collect()
}

/// Plans a flow of each congestion control beside each number of others, whose control is one of these, with
/// each buffer: without and with coupled mode. `change` makes the cell another one.
fn arms(
    plan: &mut Plan,
    (others, counts, buffers): (&[&str], &[u32], &[f64]),
    relation: &str,
    change: impl Fn(Cell) -> Cell,
) -> Vec<Arms> {
    let seconds = if plan.scale.claims { SECONDS } else { plan.scale.seconds };
    let mut all = Vec::new();
    for other in others {
        for (count, bdp) in counts.iter().flat_map(|&count| buffers.iter().map(move |&bdp| (count, bdp))) {
            for congestion in ["cubic", "reno"] {
                let path = Path { mbit: 10, rtt: 50, bdp };
                let mut add = |coupled| {
                    let cell = Cell::new(path, congestion, coupled, seconds);
                    with_seeds(plan, &change(Cell { others: tcp(other, count), ..cell }))
                };
                all.push(Arms {
                    id: format!("{count}-{other}.{bdp}.{congestion}"),
                    what: format!("{congestion} {relation} {count} of {other}, {bdp} BDP"),
                    plain: add("off"),
                    coupled: add(RULE),
                });
            }
        }
    }
    all
}

/// Share that a coupled flow gets of what it gets without coupled mode.
pub(super) fn beside(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let (counts, buffers): (&[u32], &[f64]) =
        if scale.claims { (&[1, 3, 10], &[0.5, 1.0, 4.0, 16.0]) } else { (&[1], &[1.0]) };
    let all = arms(plan, (&["cubic", "reno", "bbr"], counts, buffers), "beside", |cell| cell);
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        let mut shares = Vec::new();
        for Arms { id, what, plain, coupled } in &all {
            let ratio = |value: &dyn Fn(&super::cell::Seen) -> f64| {
                mean(runs, coupled, value) / mean(runs, plain, value)
            };
            let share = ratio(&|seen| seen.sum());
            shares.push(share);
            let row = |id: String, of: &str, value| {
                Row::new(id, format!("{of}, {what}"), Unit::Ratio).measured(value)
            };
            let id = format!("coupled.share.{id}");
            let p50 = ratio(&|seen| seen.percentile(Percentile::P50));
            let p99 = ratio(&|seen| seen.percentile(Percentile::P99));
            rows.push(scale.claim(row(id.clone(), "goodput over plain's", share), |row| row.at_least(0.9)));
            rows.push(
                scale.claim(row(format!("{id}.p50"), "median over plain's", p50), |row| row.at_most(1.15)),
            );
            rows.push(
                scale.claim(row(format!("{id}.p99"), "99 % over plain's", p99), |row| row.at_most(1.4)),
            );
        }
        let median = Samples::new(shares).percentile(Percentile::P50).unwrap_or(f64::NAN);
        let row = Row::new("coupled.share.median", "median of the goodputs over plain's", Unit::Ratio);
        rows.push(scale.claim(row.measured(median), |row| row.at_least(0.97)));
        Answer::new("Beside other flows", prose::text(include_str!("share.md")), rows)
    })
}

/// Share of a flow that begins when others already keep the queue full, so that it never sees the path's own
/// round trip.
pub(super) fn late(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let (counts, buffers): (&[u32], &[f64]) =
        if scale.claims { (&[1, 3], &[1.0, 4.0, 16.0]) } else { (&[1], &[1.0]) };
    let late = |cell| Cell { start: LATE, ..cell };
    let all = arms(plan, (&["cubic", "reno"], counts, buffers), "after", late);
    Box::new(move |runs: &Runs| {
        let rows = all.iter().map(|Arms { id, what, plain, coupled }| {
            let sum = |tickets| mean(runs, tickets, super::cell::Seen::sum);
            let id = format!("coupled.late.{id}");
            let row = Row::new(id, format!("goodput over plain's, {what}"), Unit::Ratio);
            scale.claim(row.measured(sum(coupled) / sum(plain)), |row| row.at_least(0.9))
        });
        let rows = rows.collect();
        Answer::new("After flows that already fill the queue", prose::text(include_str!("late.md")), rows)
    })
}

/// Fairness of coupled flows that start together.
pub(super) fn among(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let counts: &[u32] = if scale.claims { &[2, 4, 8] } else { &[2] };
    let path = Path { mbit: 10, rtt: 40, bdp: 4.0 };
    let mut cells = Vec::new();
    for &count in counts {
        let mut add = |coupled| {
            let cell = Cell::new(path, "cubic", coupled, scale.seconds);
            plan.add(Cell { flows: (count, 0), ..cell })
        };
        cells.push((count, add("off"), add(RULE)));
    }
    Box::new(move |runs: &Runs| {
        let rows = cells.iter().flat_map(|&(count, plain, coupled)| {
            let id = format!("coupled.among.{count}");
            let row = |id, of, ticket, value: fn(&super::cell::Seen) -> f64, unit| {
                Row::new(id, format!("{of}, {count} flows"), unit).samples(&runs.each(ticket, value))
            };
            let p50 = |seen: &super::cell::Seen| seen.percentile(Percentile::P50);
            let jain = row(id.clone(), "Jain's index", coupled, super::cell::Seen::jain, Unit::Ratio);
            [
                scale.claim(jain, |row| row.at_least(0.95)),
                row(format!("{id}.p50"), "median over the limit", coupled, p50, Unit::Ratio),
                row(format!("{id}.plain"), "the same without coupled mode", plain, p50, Unit::Ratio),
                row(
                    format!("{id}.compete"),
                    "time without a cap",
                    coupled,
                    |seen| seen.compete,
                    Unit::Percent,
                ),
            ]
        });
        Answer::new("Coupled flows among themselves", prose::text(include_str!("among.md")), rows.collect())
    })
}
