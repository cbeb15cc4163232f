//! Sources with irregular releases, declared, learned or unknown.

use marcato_quic::PathScheduler;
use marcato_report::Unit;
use marcato_report::chart::Axis;
use marcato_sched::schedule::CwrConfig;
use marcato_sim::quic::Release;
use marcato_units::Duration;

use super::beyond::{BACKGROUND, Metric, P50, P99, P999, ccdf, every, rows, setup};
use super::published::{Periodic, SAME_RTT, Scheduler};
use super::scale::{Plan, Ticket};
use super::setup::Outcome;
use super::source_name;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const SOURCE: Periodic = every(100, 10);

const fn part(percent: u64) -> Release {
    Release::Jittered(Duration::from_nanos(SOURCE.period.subsec_nanos() as u64 * percent / 100))
}

const RELEASES: [(Release, &str, &str); 4] = [
    (Release::Periodic, "periodic", "periodic"),
    (part(10), "jitter10", "up to 10 % of the period early or late"),
    (part(25), "jitter25", "up to 25 % of the period early or late"),
    (Release::Poisson, "poisson", "a Poisson process"),
];

/// Knowledge of the scheduler about a source.
const KNOWN: [(&str, &str); 3] =
    [("declared", "declared"), ("learned", "learned"), ("unknown", "neither declared nor learned")];

/// Window kept from waiting background data, as the rate that this window allows.
fn unused(outcome: &Outcome) -> f64 {
    let whole = outcome.length + outcome.warm_up;
    let room = outcome.unused.byte_nanos as f64 / whole.as_secs_f64() / 1e9;
    room * 8e-6 / SAME_RTT[0].as_secs_f64()
}

const METRICS: [Metric; 5] = [
    P50,
    P99,
    P999,
    BACKGROUND,
    ("unused", "window kept from background data, as a rate", Unit::MbitPerS, unused),
];

/// Each pattern of releases, with each knowledge of it.
pub(super) fn aperiodic(plan: &mut Plan) -> Ask {
    let cells = RELEASES.map(|(release, ..)| {
        [0, 1, 2].map(|known: usize| {
            let setup = setup(plan, Scheduler::Cwr, SOURCE).with_sources(|source| {
                source.release = release;
                source.declared = known == 0;
            });
            let config = CwrConfig { learn: known == 1, ..CwrConfig::paper() };
            plan.add(setup.with_session(|session| session.path_scheduler = PathScheduler::Cwr(config)))
        })
    });
    Box::new(move |runs: &Runs| {
        let mut all = Vec::new();
        let mut figures = Vec::new();
        for ((_, release, what), tickets) in RELEASES.into_iter().zip(cells) {
            for ((known, how), ticket) in KNOWN.into_iter().zip(tickets) {
                let at = format!("cwr.aperiodic.{release}.{known}");
                let of = format!("{}, {what}, {how}, CWR", source_name(SOURCE));
                all.extend(rows(runs, ticket, &at, &of, &METRICS));
            }
            let series: Vec<(&str, Ticket)> = KNOWN.iter().map(|it| it.0).zip(tickets).collect();
            let axis = Axis::new("completion", "ms").window(20.0, 150.0);
            let title = format!("{}, {what}", source_name(SOURCE));
            figures.push(ccdf(runs, &format!("aperiodic-{release}"), &title, axis, series));
        }
        let answer = Answer::new("Beyond: aperiodic sources", prose::text(include_str!("aperiodic.md")), all);
        let section = figures.into_iter().fold(answer.section, marcato_report::Section::figure);
        Answer { section, ..answer }
    })
}
