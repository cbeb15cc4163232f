//! A path that fails during a run and recovers.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_units::{Duration, Time};

use super::beyond::{every, setup, span};
use super::published::{Periodic, SAME_RTT, Scheduler};
use super::scale::{Plan, Ticket};
use super::setup::{Outcome, Released, Setup};
use super::{id, source_name};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const SOURCE: Periodic = every(100, 10);

/// Number of undisturbed messages in a row after which the run counts as normal again. A message is
/// undisturbed if it takes at most a round trip.
const IN_A_ROW: usize = 10;

/// Treatment of the lane whose path failed.
const LANES: [(&str, &str); 2] =
    [("kept", "its lane kept"), ("reopened", "its lane given up and opened again")];

/// Time without a path, and the time without a packet after which its lane is given up.
#[derive(Clone, Copy)]
struct Outage {
    from: Time,
    until: Time,
    give_up: Duration,
}

impl Outage {
    fn of(plan: &Plan) -> Self {
        let millis = if plan.scale.claims { [10_000, 5000, 2000] } else { [500, 1000, 500] };
        let [after, length, give_up] = millis.map(Duration::from_millis);
        let from = Time::ZERO + span(plan, LENGTH).warm_up + after;
        Self { from, until: from + length, give_up }
    }

    fn setup(self, plan: &Plan, scheduler: Scheduler, path: usize, reopened: bool) -> Setup {
        let mut setup =
            Setup { span: span(plan, LENGTH), reopen: reopened, ..setup(plan, scheduler, SOURCE) };
        setup.paths[path].outage = Some((self.from, self.until));
        setup.with_session(|session| {
            session.lane_idle_timeout = reopened.then_some(self.give_up);
            // Data one way and acknowledgements on another path leave one end without any packet on
            // a lane.
            session.keep_alive = Some(self.give_up / 4);
        })
    }
}

const LENGTH: Duration = Duration::from_secs(40);

/// Time from `from` to the release of the first of [`IN_A_ROW`] undisturbed messages, in ms.
fn normal_after(outcome: &Outcome, from: Time) -> f64 {
    let rtt = SAME_RTT[0].as_secs_f64() * 1e3;
    let later = outcome.sources[0].iter().position(|released| released.at >= from).unwrap_or(usize::MAX);
    let releases = outcome.sources[0].get(later..).unwrap_or_default();
    let calm = releases.windows(IN_A_ROW).find(|row| row.iter().all(|released| released.mct <= rtt));
    calm.map_or(f64::NAN, |row| row[0].at.since(from).as_secs_f64() * 1e3)
}

fn longest(outcome: &Outcome, outage: Outage) -> f64 {
    // Messages in flight when the path failed count too.
    let during = |released: &&Released| (outage.from - SAME_RTT[0]..outage.until).contains(&released.at);
    outcome.sources[0].iter().filter(during).map(|released| released.mct).fold(0.0, f64::max)
}

/// Outage of each path, under each scheduler.
pub(super) fn outage(plan: &mut Plan) -> Ask {
    let outage = Outage::of(plan);
    let cells = Scheduler::ALL.map(|scheduler| {
        let tickets = [0, 1].map(|path: usize| {
            [false, true].map(|reopened| plan.add(outage.setup(plan, scheduler, path, reopened)))
        });
        (scheduler, tickets)
    });
    Box::new(move |runs: &Runs| {
        let mut all = Vec::new();
        for (scheduler, tickets) in cells {
            for (path, tickets) in (1..).zip(tickets) {
                for ((lane, what), ticket) in LANES.into_iter().zip(tickets) {
                    let at = format!("cwr.outage.path{path}.{lane}.{}", id(scheduler));
                    let of = format!("{}, path {path} dead, {what}, {scheduler}", source_name(SOURCE));
                    all.extend(completions(runs, ticket, outage, &at, &of, lane == "reopened"));
                }
            }
        }
        let mut answer = Answer::new("Beyond: a path that dies and comes back", text(outage), all);
        for (index, path) in (1..).zip([0, 1]) {
            let tickets = cells.map(|(scheduler, tickets)| (scheduler, tickets[path][0]));
            answer.section = answer.section.figure(picture(runs, outage, index, tickets));
        }
        answer
    })
}

fn text(outage: Outage) -> String {
    let (length, give_up) = (outage.until.since(outage.from).as_secs_f64(), outage.give_up.as_secs_f64());
    prose::text(&format!(
        include_str!("outage.md"),
        length = length,
        give_up = give_up,
        keep_alive = give_up / 4.0,
    ))
}

fn completions(runs: &Runs, ticket: Ticket, outage: Outage, at: &str, of: &str, reopened: bool) -> Vec<Row> {
    let each = |name: &str, what: &str, unit: Unit, value: &dyn Fn(&Outcome) -> f64| {
        Row::new(format!("{at}.{name}"), format!("{what}, {of}"), unit).samples(&runs.each(ticket, value))
    };
    let missing = |outcome: &Outcome| {
        let never = outcome.mcts(0).filter(|mct| mct.is_infinite()).count();
        never as f64 + outcome.refused as f64
    };
    let mut rows = vec![
        each("missing", "messages that never completed", Unit::Count, &missing).within(0.0, 0.0),
        each("again", "messages that completed twice", Unit::Count, &|outcome| outcome.again as f64)
            .within(0.0, 0.0),
        each("adapt", "from the path's death to normal completions", Unit::Ms, &|outcome| {
            normal_after(outcome, outage.from)
        }),
        each("return", "from the path's return to normal completions", Unit::Ms, &|outcome| {
            normal_after(outcome, outage.until)
        }),
        each("max", "longest completion of a message of the outage", Unit::Ms, &|outcome| {
            longest(outcome, outage)
        }),
        each("goodput", "goodput of all messages, the outage included", Unit::MbitPerS, &Outcome::goodput),
    ];
    if reopened {
        rows.push(each("down", "lanes given up", Unit::Count, &|outcome| outcome.lanes_down as f64));
        rows.push(each("up", "lanes opened", Unit::Count, &|outcome| outcome.lanes_up as f64));
    }
    rows
}

fn picture(runs: &Runs, outage: Outage, path: usize, tickets: [(Scheduler, Ticket); 3]) -> Figure {
    let title = format!("Messages while path {path} is dead and after, first seed");
    let from = outage.from - Duration::from_millis(500);
    let until = outage.until + Duration::from_secs(3);
    let x = Axis::new("released after the path's death", "s");
    let length = outage.until.since(outage.from).as_secs_f64();
    let chart = LineChart::new(title, x, Axis::new("completion", "ms").log()).shade(0.0, length, "dead");
    let chart = tickets.into_iter().fold(chart, |chart, (scheduler, ticket)| {
        let releases = runs.of(ticket).first().map_or(&[][..], |outcome| &outcome.sources[0][..]);
        let seen = releases.iter().filter(|released| (from..until).contains(&released.at));
        let point =
            |released: &Released| (released.at.as_secs_f64() - outage.from.as_secs_f64(), released.mct);
        let series = Series::line(scheduler.name(), seen.map(point));
        chart.series(series.colour(super::latency::colour(scheduler)))
    });
    Figure::new(
        format!("outage-path{path}"),
        chart,
        "Completion time of each message over its release; the path comes back at the end of the outage.",
    )
}
