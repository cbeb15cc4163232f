//! Urgent data that comes late, which the authors' experiment cannot show.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::Debt;
use marcato_sim::Planned;
use marcato_units::{Bytes, Duration, Priority, Time};

use super::page;
use super::path::{Feeding, Path, Scheme};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

/// Step of the times after `connect` at which the urgent group is offered.
const STEP: Duration = Duration::from_millis(50);
const STEPS: u32 = 20;

/// Late P0, with the lean feeder against the authors' greedy one. P0 is offered every 50 ms from 0
/// to 1 s, each time in a separate run, while the rest of the page is being sent.
pub(super) fn late(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    late_on(&Path::authors(), seed)
}

/// Late P0 on any path.
pub(super) fn late_on(path: &Path, seed: u64) -> Result<Answer, SimulationError> {
    let schemes = [
        ("lean", Scheme::Conductor(Debt::authors(), Feeding::Lean)),
        ("greedy", Scheme::Conductor(Debt::authors(), Feeding::Greedy)),
        ("fifo", Scheme::Fifo),
    ];
    let mut rows = Vec::new();
    let mut chart = LineChart::new(
        "Late P0",
        Axis::new("P0 offered after connect", "ms"),
        Axis::new("offer to completion", "ms"),
    );
    let (mut lean_waits, mut greedy_waits) = (Vec::new(), Vec::new());
    for (name, scheme) in schemes {
        let mut delays = Vec::new();
        for step in 0..=STEPS {
            let after = STEP * step;
            delays.push((after.as_secs_f64() * 1e3, delay(path, scheme, after, seed)?));
        }
        let waits: Vec<f64> = delays.iter().map(|d| d.1).collect();
        let max = waits.iter().copied().fold(0.0, f64::max);
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        for (metric, value) in [("max", max), ("mean", mean)] {
            rows.push(
                Row::new(
                    format!("cats.late.{name}.p0.{metric}"),
                    format!("P0 offered late, {name}: {metric} of offer to completion"),
                    Unit::Ms,
                )
                .measured(value),
            );
        }
        match name {
            "lean" => lean_waits = waits,
            "greedy" => greedy_waits = waits,
            _ => {}
        }
        chart = chart.series(Series::line(name, delays).marks());
    }
    let never_later = lean_waits.iter().zip(&greedy_waits).all(|(lean, greedy)| lean <= greedy);
    rows.push(Row::verdict(
        "cats.late.lean.never_later",
        "the lean feeder completes a late P0 no later than the greedy one, at every time tried",
        never_later,
    ));
    let mut answer = Answer::new(
        "Late urgent data: lean feeder against greedy feeder",
        prose::text(include_str!("late.md")),
        rows,
    );
    answer.section = answer.section.figure(Figure::new(
        "late",
        chart,
        "Completion time of a P0 group that is offered while the rest of the page is being sent.",
    ));
    Ok(answer)
}

/// Time from offer to completion of a P0 group that is offered `after` the rest of the page, in ms.
fn delay(path: &Path, scheme: Scheme, after: Duration, seed: u64) -> Result<f64, SimulationError> {
    let mut plan: Vec<Planned> = page::plan();
    let last = plan.len() - 1;
    let len: Bytes = page::GROUPS[Priority::P0.index()];
    plan[last] = Planned::now(len, Priority::P0).after(after);
    let transfer = path.send(scheme, &plan, Time::from_secs(30), seed)?;
    Ok(transfer.complete(last)? - after.as_secs_f64() * 1e3)
}
