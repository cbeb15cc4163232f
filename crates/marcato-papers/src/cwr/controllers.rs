//! Congestion controllers other than the paper's.

use marcato_quic::{Congestion, Pacing};
use marcato_report::Unit;
use marcato_report::chart::Axis;
use marcato_units::Duration;

use super::beyond::{GOODPUT, GROWTH, LOST, Metric, P50, P99, P999, ccdf, every, lanes, rows, setup, span};
use super::published::{Periodic, Scheduler};
use super::scale::Plan;
use super::setup::Setup;
use super::{id, source_name};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const SOURCE: Periodic = every(100, 25);

/// Congestion controllers, with pacing, name in row ids and description. BBRv3 is missing: the
/// engine draws the times of its probes from the operating system without a seed, so that no run
/// could be repeated.
const CONTROLLERS: [(Congestion, Pacing, &str, &str); 3] = [
    (Congestion::NewReno { loss_reduction_factor: 0.7 }, Pacing::Off, "newreno", "NewReno, factor 0.7"),
    (Congestion::Cubic, Pacing::Off, "cubic", "CUBIC"),
    (Congestion::Cubic, Pacing::Session, "cubic-paced", "CUBIC, all data except urgent data paced"),
];

fn planned(plan: &Plan, congestion: Congestion, pacing: Pacing, scheduler: Scheduler) -> Setup {
    let setup = Setup { span: span(plan, Duration::from_secs(50)), ..setup(plan, scheduler, SOURCE) };
    setup.with_session(|session| (session.congestion, session.pacing) = (congestion, pacing))
}

const METRICS: [Metric; 7] = [
    P50,
    P99,
    P999,
    GOODPUT,
    ("srtt", "smoothed round-trip time, mean of both paths", Unit::Ms, |outcome| {
        lanes(outcome, |lane| lane.srtt)
    }),
    LOST,
    GROWTH,
];

/// Each controller under each scheduler.
pub(super) fn controllers(plan: &mut Plan) -> Ask {
    let cells = CONTROLLERS.map(|(congestion, pacing, ..)| {
        Scheduler::ALL.map(|scheduler| plan.add(planned(plan, congestion, pacing, scheduler)))
    });
    Box::new(move |runs: &Runs| {
        let mut all = Vec::new();
        let mut figures = Vec::new();
        for ((.., name, what), tickets) in CONTROLLERS.into_iter().zip(cells) {
            for (scheduler, ticket) in Scheduler::ALL.into_iter().zip(tickets) {
                let at = format!("cwr.controllers.{name}.{}", id(scheduler));
                let of = format!("{}, {what}, {scheduler}", source_name(SOURCE));
                all.extend(rows(runs, ticket, &at, &of, &METRICS));
            }
            let title = format!("{}, {what}", source_name(SOURCE));
            let axis = Axis::new("completion", "ms").window(20.0, 200.0);
            let series = Scheduler::ALL.iter().map(|scheduler| scheduler.name()).zip(tickets);
            figures.push(ccdf(runs, &format!("controllers-{name}"), &title, axis, series));
        }
        let answer = Answer::new(
            "Beyond: other congestion controllers",
            prose::text(include_str!("controllers.md")),
            all,
        );
        let section = figures.into_iter().fold(answer.section, marcato_report::Section::figure);
        Answer { section, ..answer }
    })
}
