//! Target loss rate adapted at run time (PLT §5: "Can the target loss-rate parameter be dynamically
//! tuned?").

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::LcmConfig;
use marcato_sched::lowprio::{Adaptive, Target};
use marcato_sim::PltConfig;

use super::harm::{Arms, Losses};
use super::published::{LARGE_BUFFER, SMALL_BUFFER};
use super::scale::Plan;
use super::single::Single;
use super::world::{self, plt};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::prose;

/// Losses on both sides of the fixed target.
const LOSSES: [(f64, &str); 7] = [
    (1e-3, "1e-3"),
    (3e-3, "3e-3"),
    (5e-3, "5e-3"),
    (6e-3, "6e-3"),
    (1e-2, "1e-2"),
    (2e-2, "2e-2"),
    (4e-2, "4e-2"),
];

fn adaptive() -> PltConfig {
    PltConfig::new(LcmConfig { target: Target::Adaptive(Adaptive::new()), ..LcmConfig::paper() })
}

/// A figure and its buffer, a loss with its name in row ids, and the flows with the fixed target
/// and with the adaptive one.
type Cell = (&'static str, u64, f64, &'static str, [crate::plan::Ticket<Single>; 2]);

/// Adaptive target loss rate.
pub(super) fn target(plan: &mut Plan) -> Ask {
    let (span, claims) = (plan.scale.tendency, plan.scale.claims);
    let mut cells: Vec<Cell> = Vec::new();
    for (figure, buffer) in [("fig3", LARGE_BUFFER), ("fig6", SMALL_BUFFER)] {
        for (loss, id) in LOSSES {
            let mut add = |config| plan.add(Single::paper(loss, buffer, Some(config), span));
            cells.push((figure, buffer, loss, id, [add(plt()), add(adaptive())]));
        }
    }
    let harm = Arms::residual(plan, Losses::Random, adaptive());
    Box::new(move |runs| {
        let mut rows = Vec::new();
        for &(figure, buffer, _, loss, tickets) in &cells {
            for (kind, ticket) in ["fixed", "adaptive"].into_iter().zip(tickets) {
                rows.push(
                    Row::new(
                        format!("plt.target.{figure}.{loss}.{kind}"),
                        format!("goodput of PLT, {kind} target, loss {loss}, buffer {buffer} packets"),
                        Unit::MbitPerS,
                    )
                    .samples(&runs.each(ticket, |flow| flow.goodput)),
                );
            }
        }
        rows.extend(harm.rows(runs, "plt.target.harm", "target at run time", "", claims));
        let text = prose::text(&format!(include_str!("target.md"), span = span.words()));
        let mut answer = Answer::new("A target loss rate found at run time", text, rows);
        for (figure, name) in [("fig3", "large"), ("fig6", "small")] {
            let of = cells.iter().filter(|cell| cell.0 == figure);
            let curve = |name: &str, which: usize| {
                let point = |cell: &Cell| (100.0 * cell.2, runs.mean(cell.4[which], |flow| flow.goodput));
                let interval = |cell: &Cell| runs.ci95(cell.4[which], |flow| flow.goodput);
                Series::line(name, of.clone().map(point).collect::<Vec<_>>())
                    .intervals(of.clone().map(interval).collect::<Vec<_>>())
                    .marks()
            };
            let chart = LineChart::new(
                format!("Goodput with a {name} buffer"),
                Axis::new("loss", "%").log(),
                Axis::new("goodput", "Mbit/s").range(0.0, world::link()),
            )
            .series(curve("found at run time", 1))
            .series(curve("0.5 %", 0));
            answer.section = answer.section.figure(Figure::new(
                format!("target-{figure}"),
                chart,
                "With the paper's target, and with one found at run time.",
            ));
        }
        answer
    })
}
