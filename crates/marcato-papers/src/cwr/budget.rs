//! Benefit and cost of copies, with and without a budget.

use marcato_quic::PathScheduler;
use marcato_report::Unit;
use marcato_report::chart::Axis;
use marcato_sched::conductor::Redundancy;
use marcato_sched::schedule::{Budget, CwrConfig};

use super::beyond::{GOODPUT, Metric, OVERHEAD, P50, P99, P999, ccdf, every, ratio, rows, setup};
use super::published::{Periodic, Scheduler};
use super::scale::Plan;
use super::setup::{Outcome, Setup};
use super::source_name;
use crate::answer::Answer;
use crate::answer::verdict;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const SOURCE: Periodic = every(100, 10);

/// Losses: name in row ids, name in words, and share of packets.
const LOSSES: [(&str, &str, f64); 3] =
    [("loss0.05", "0.05 %", 0.000_5), ("loss1", "1 %", 0.01), ("loss5", "5 %", 0.05)];

/// Policy for copies.
#[derive(Clone, Copy)]
enum Copies {
    None,
    Budget,
    Unlimited,
}

impl Copies {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::None, "none", "CWR"),
        (Self::Budget, "budget", "CWR+RED with a budget"),
        (Self::Unlimited, "unlimited", "CWR+RED"),
    ];

    fn setup(self, plan: &Plan, loss: f64) -> Setup {
        let scheduler = match self {
            Self::None => PathScheduler::Cwr(CwrConfig::paper()),
            Self::Budget => {
                PathScheduler::CwrRed(CwrConfig { budget: Budget::default(), ..CwrConfig::paper() })
            }
            Self::Unlimited => PathScheduler::CwrRed(CwrConfig::paper()),
        };
        let redundancy = if let Self::None = self { Redundancy::Once } else { Redundancy::EveryLane };
        setup(plan, Scheduler::Cwr, SOURCE)
            .with_paths(|path| path.loss = loss)
            .with_sources(|source| source.redundancy = redundancy)
            .with_session(|session| session.path_scheduler = scheduler)
    }
}

const METRICS: [Metric; 6] = [
    P50,
    P99,
    P999,
    GOODPUT,
    OVERHEAD,
    ("copies", "bytes of copies over urgent bytes", Unit::Percent, |outcome| {
        100.0 * ratio(outcome.duplicates, outcome.bytes[0])
    }),
];

/// Returns true if copies kept within the default budget: 100 kB and a tenth of the bytes sent for
/// the first time. The bytes are those that the session handed to the engine, independent of the
/// scheduler's own count. Both count what packets count against a window, and neither counts
/// retransmissions.
fn within_budget(outcome: &Outcome) -> bool {
    outcome.stats.copied <= Budget::default().limit(outcome.stats.first)
}

/// Each policy at each loss.
pub(super) fn budget(plan: &mut Plan) -> Ask {
    let cells = LOSSES.map(|(.., loss)| Copies::ALL.map(|(copies, ..)| plan.add(copies.setup(plan, loss))));
    Box::new(move |runs: &Runs| {
        let mut all = Vec::new();
        let mut figures = Vec::new();
        for ((loss, percent, _), tickets) in LOSSES.into_iter().zip(cells) {
            for ((copies, name, what), ticket) in Copies::ALL.into_iter().zip(tickets) {
                let at = format!("cwr.budget.{loss}.{name}");
                let of = format!("{}, {percent} of packets lost, {what}", source_name(SOURCE));
                all.extend(rows(runs, ticket, &at, &of, &METRICS));
                if let Copies::Budget = copies {
                    let held = runs.of(ticket).into_iter().all(within_budget);
                    let what = format!("copies keep within 100 kB and a tenth of what is sent first, {of}");
                    all.push(verdict(format!("{at}.held"), what, held, true));
                }
            }
            let names = Copies::ALL.map(|(_, name, _)| name);
            let title = format!("{}, {percent} of packets lost", source_name(SOURCE));
            let axis = Axis::new("completion", "ms").window(20.0, 250.0);
            let id = format!("budget-{}", loss.replace('.', "-"));
            figures.push(ccdf(runs, &id, &title, axis, names.into_iter().zip(tickets)));
        }
        let answer = Answer::new("Beyond: a budget for copies", prose::text(include_str!("budget.md")), all);
        let section = figures.into_iter().fold(answer.section, marcato_report::Section::figure);
        Answer { section, ..answer }
    })
}
