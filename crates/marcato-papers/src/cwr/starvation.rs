//! Starvation of the least urgent level by more urgent data than the lanes can carry.

use marcato_quic::PathScheduler;
use marcato_report::chart::{Axis, BarChart, Bars};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::Debt;
use marcato_sched::conductor::Config;
use marcato_sim::quic::Background;
use marcato_units::{Bytes, Duration, Priority};

use super::beyond::{P50, P99, every, rows, setup, span};
use super::published::{Periodic, Scheduler};
use super::scale::{Plan, Ticket};
use super::setup::{Outcome, Setup};
use super::source_name;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Loads: more than the windows carry (40 Mbit/s for 33), and a quarter of what they carry.
const LOADS: [(Periodic, &str, &str); 2] =
    [(every(2, 10), "over", "more P0 than the lanes carry"), (every(10, 10), "under", "P0 a quarter of it")];

const DEBTS: [(Debt, &str, &str); 3] = [
    (Debt::strict(), "strict", "strict order"),
    (Debt::authors(), "authors", "the authors' debts"),
    (Debt::marcato(), "marcato", "Marcato's debts"),
];

/// Lifetime of urgent messages that have not begun to leave. Without it, P0's backlog would grow
/// until the Conductor is full and refuses other levels too.
const LIFETIME: Duration = Duration::from_millis(500);

/// Stream bytes in a full packet of the sessions here.
const CHUNK: Bytes = Bytes::new(1270);

fn planned(plan: &Plan, source: Periodic, debt: Debt) -> Setup {
    let background = |priority| Background { priority, ..Background::default() };
    let setup =
        setup(plan, Scheduler::LowRtt, source).with_sources(|source| source.lifetime = Some(LIFETIME));
    let setup = Setup {
        span: span(plan, Duration::from_secs(30)),
        background: Priority::ALL[1..].iter().copied().map(background).collect(),
        watch: Some(Priority::P4),
        ..setup
    };
    setup.with_session(|session| {
        session.conductor = Config::with_debt(debt);
        session.path_scheduler = PathScheduler::LowRtt;
    })
}

/// Each load with each debt configuration.
pub(super) fn starvation(plan: &mut Plan) -> Ask {
    let claims = plan.scale.claims;
    let cells = LOADS.map(|(source, ..)| DEBTS.map(|(debt, ..)| plan.add(planned(plan, source, debt))));
    Box::new(move |runs: &Runs| {
        let mut all = Vec::new();
        for ((source, load, how), tickets) in LOADS.into_iter().zip(cells) {
            for ((debt, name, order), ticket) in DEBTS.into_iter().zip(tickets) {
                let at = format!("cwr.starvation.{load}.{name}");
                let of = format!("{how} ({}), {order}", source_name(source));
                all.extend(levels(runs, ticket, &at, &of));
                all.push(waits(runs, ticket, &at, &of, debt.wait_bound(Priority::P4, CHUNK), claims));
                let longest = |outcome: &Outcome| outcome.waited.time.as_secs_f64() * 1e3;
                let what = format!("P4's longest wait, {of}");
                let row = Row::new(format!("{at}.p4.wait"), what, Unit::Ms);
                all.push(row.samples(&runs.each(ticket, longest)));
                // Above the lanes' capacity the backlog grows throughout the run, so that
                // percentiles say nothing.
                if load == "under" {
                    all.extend(rows(runs, ticket, &format!("{at}.p0"), &of, &[P50, P99]));
                }
            }
        }
        let mut answer = Answer::new(
            "Beyond: five levels and debts against starvation",
            prose::text(include_str!("starvation.md")),
            all,
        );
        for ((_, load, how), tickets) in LOADS.into_iter().zip(cells) {
            answer.section = answer.section.figure(picture(runs, load, how, tickets));
        }
        answer
    })
}

fn rate(runs: &Runs, ticket: Ticket, level: Priority) -> Vec<f64> {
    runs.each(ticket, |outcome| outcome.rate(outcome.bytes[level.index()]))
}

fn levels(runs: &Runs, ticket: Ticket, at: &str, of: &str) -> Vec<Row> {
    let row = |level: Priority| {
        let id = format!("{at}.p{}.goodput", level.index());
        let what = format!("goodput of P{}, {of}", level.index());
        Row::new(id, what, Unit::MbitPerS).samples(&rate(runs, ticket, level))
    };
    Priority::ALL.map(row).to_vec()
}

/// Row with the bytes granted to others while P4 waited, over their bound.
fn waits(runs: &Runs, ticket: Ticket, at: &str, of: &str, bound: Option<Bytes>, claims: bool) -> Row {
    let what = format!("most granted to others while P4 waited, over the bound, {of}");
    let row = Row::new(format!("{at}.p4.bound"), what, Unit::Ratio);
    let Some(bound) = bound else { return row };
    let over = |outcome: &Outcome| outcome.waited.others.get() as f64 / bound.get() as f64;
    let row = row.samples(&runs.each(ticket, over));
    if claims { row.at_most(1.0) } else { row }
}

fn picture(runs: &Runs, load: &str, how: &str, tickets: [Ticket; 3]) -> Figure {
    let chart = BarChart::new(format!("Goodput of each level, {how}"), Axis::new("goodput", "Mbit/s"))
        .groups(Priority::ALL.map(|level| format!("P{}", level.index())));
    let chart = DEBTS.into_iter().zip(tickets).fold(chart, |chart, ((_, _, order), ticket)| {
        let each = Priority::ALL.map(|level| marcato_report::Mean::of(&rate(runs, ticket, level)));
        let intervals = each.map(|mean| mean.ci95.unwrap_or(f64::NAN));
        chart.bars(Bars::new(order, each.map(|mean| mean.value)).intervals(intervals))
    });
    Figure::new(format!("starvation-{load}"), chart, "Data of each level that the receiver read.")
}
