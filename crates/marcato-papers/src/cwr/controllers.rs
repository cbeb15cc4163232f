//! Other congestion controllers than the paper's.

use marcato_quic::{Congestion, Pacing};
use marcato_units::Duration;

use super::beyond::{GOODPUT, GROWTH, LOST, Metric, P50, P99, P999, ccdf, every, lanes, rows, setup, span};
use super::published::{Periodic, Scheduler};
use super::runs::{Plan, Runs};
use super::setup::Setup;
use super::{Answer, Ask, id, source_name};
use crate::Unit;
use crate::chart::Axis;

const SOURCE: Periodic = every(100, 25);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Controller {
    NewReno,
    Cubic,
    Bbr3,
}

impl Controller {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::NewReno, "newreno", "NewReno, factor 0.7"),
        (Self::Cubic, "cubic", "CUBIC"),
        (Self::Bbr3, "bbr3", "BBRv3, paced by the session"),
    ];

    fn setup(self, plan: &Plan, scheduler: Scheduler) -> Setup {
        let span = span(plan, Duration::from_secs(50));
        let setup = Setup { span, ..setup(plan, scheduler, SOURCE) };
        match self {
            Self::NewReno => setup,
            Self::Cubic => setup.with_session(|session| session.congestion = Congestion::Cubic),
            Self::Bbr3 => setup.with_session(|session| {
                session.congestion = Congestion::Bbr3;
                session.pacing = Pacing::Session;
            }),
        }
    }
}

const METRICS: [Metric; 6] = [
    P50,
    P99,
    P999,
    GOODPUT,
    ("srtt", "smoothed round-trip time, mean of both paths", Unit::Ms, |outcome| {
        lanes(outcome, |lane| lane.srtt)
    }),
    LOST,
];

/// Each controller under each scheduler.
pub(super) fn controllers(plan: &mut Plan) -> Ask {
    let cells = Controller::ALL
        .map(|(controller, ..)| Scheduler::ALL.map(|scheduler| plan.add(controller.setup(plan, scheduler))));
    Box::new(move |runs: &Runs| {
        let mut all = Vec::new();
        let mut figures = Vec::new();
        for ((controller, name, what), tickets) in Controller::ALL.into_iter().zip(cells) {
            for (scheduler, ticket) in Scheduler::ALL.into_iter().zip(tickets) {
                let at = format!("cwr.controllers.{name}.{}", id(scheduler));
                let of = format!("{}, {what}, {scheduler}", source_name(SOURCE));
                all.extend(rows(runs, ticket, &at, &of, &METRICS));
                // BBR has no congestion avoidance in which a window would grow.
                if controller != Controller::Bbr3 {
                    all.extend(rows(runs, ticket, &at, &of, &[GROWTH]));
                }
            }
            let title = format!("{}, {what}", source_name(SOURCE));
            let axis = Axis::new("completion", "ms").range(20.0, 200.0);
            let series = Scheduler::ALL.iter().map(|scheduler| scheduler.name()).zip(tickets);
            figures.push(ccdf(runs, &format!("controllers-{name}"), &title, axis, series));
        }
        let answer = Answer::new("Beyond: other congestion controllers", TEXT, all);
        let section = figures.into_iter().fold(answer.section, crate::Section::figure);
        Answer { section, ..answer }
    })
}

const TEXT: &str = "";
