//! Waiting time of the least urgent level in the Conductor alone.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::conductor::Message;
use marcato_sched::{Conductor, Config, Debt};
use marcato_units::{Bytes, Priority, Seed, Stream, Time};

use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

const CHUNK: Bytes = Bytes::kb(1);
/// Length of P4's messages, of which the next is offered when none is queued. Five of them fit the
/// Conductor at once.
const BACKLOG: Bytes = Bytes::kb(4_000);

/// Service of each level, and the waits of P4.
struct Service {
    /// Largest number of bytes granted to others between two grants of P4, or before the first,
    /// while P4 waited.
    worst: Bytes,
    /// Bytes granted to each level so far, after every grant.
    cumulative: Vec<[Bytes; Priority::COUNT]>,
}

impl Service {
    /// Grants `total` bytes in chunks. P4 always has data; `opposed` returns before each grant
    /// which other levels do.
    fn run(
        debt: Debt,
        total: Bytes,
        mut opposed: impl FnMut() -> [bool; Priority::COUNT],
    ) -> Result<Self, SimulationError> {
        let mut conductor = Conductor::new(Config { chunk: CHUNK, ..Config::with_debt(debt) })?;
        let now = Time::ZERO;
        let (mut got, mut since) = ([Bytes::ZERO; Priority::COUNT], Bytes::ZERO);
        let mut service = Self { worst: Bytes::ZERO, cumulative: vec![got] };
        let mut granted = Bytes::ZERO;
        while granted < total {
            let opposed = opposed();
            for level in Priority::ALL {
                let wanted = level == Priority::P4 || opposed[level.index()];
                if wanted && conductor.counters().level(level).queued.bytes.is_zero() {
                    // Others offer single chunks, so that a level that stops has at most one left.
                    let len = if level == Priority::P4 { BACKLOG } else { CHUNK };
                    conductor.offer(now, Message::new(len, level))?;
                }
            }
            let Some(grant) = conductor.grant(now, CHUNK) else { break };
            granted += grant.len;
            got[grant.priority.index()] += grant.len;
            if grant.priority == Priority::P4 {
                since = Bytes::ZERO;
            } else {
                since += grant.len;
                service.worst = service.worst.max(since);
            }
            service.cumulative.push(got);
        }
        Ok(service)
    }

    /// Runs with data in all other levels throughout.
    fn saturated(debt: Debt) -> Result<Self, SimulationError> {
        Self::run(debt, Bytes::kb(3_000), || [true; Priority::COUNT])
    }

    /// Runs with each other level turning on and off independently.
    fn on_and_off(debt: Debt, seed: u64) -> Result<Self, SimulationError> {
        let mut stream: Stream = Seed::new(seed).stream("cats/starvation");
        let mut on = [true; Priority::COUNT];
        Self::run(debt, Bytes::kb(30_000), move || {
            // A level changes about every 50 kB, which is comparable to the high watermarks.
            for level in &mut on {
                *level ^= stream.chance(0.02);
            }
            on
        })
    }
}

fn kb(bytes: Bytes) -> f64 {
    bytes.get() as f64 / 1e3
}

/// Bytes granted to others while P4 waits, against the bounds of the watermarks.
pub(super) fn starvation(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    let mut rows = Vec::new();
    for (name, debt, bound) in [
        ("authors", Debt::authors(), Debt::authors().wait_bound(Priority::P4, CHUNK)),
        // These rules give P4 watermarks, so that P4 can be in debt itself.
        ("paper", Debt::paper(), Debt::paper().wait_bound_in_debt(Priority::P4, CHUNK)),
        ("marcato", Debt::marcato(), Debt::marcato().wait_bound(Priority::P4, CHUNK)),
    ] {
        for (id, what, service) in [
            ("", "all others always waiting", Service::saturated(debt)?),
            (".onoff", "others starting and stopping", Service::on_and_off(debt, seed)?),
        ] {
            let what = format!("most kB of others while P4 waits, {name}, {what}");
            let row = Row::new(format!("cats.starvation.{name}{id}"), what, Unit::Count)
                .measured(kb(service.worst));
            rows.push(match bound {
                Some(bound) => row.at_most(kb(bound)),
                None => row,
            });
        }
    }

    let service = Service::saturated(Debt::authors())?;
    let last = service.cumulative.last().copied().unwrap_or_default();
    let total = last.into_iter().sum::<Bytes>();
    for priority in Priority::ALL {
        rows.push(
            Row::new(
                format!("cats.starvation.authors.share.p{}", priority.index()),
                format!("share of {priority} where all levels always wait, authors"),
                Unit::Percent,
            )
            .measured(100.0 * kb(last[priority.index()]) / kb(total)),
        );
    }

    let chart = LineChart::new(
        "Service of each level, all five always waiting",
        Axis::new("granted in all", "kB"),
        Axis::new("granted to the level", "kB"),
    );
    let chart = Priority::ALL.into_iter().fold(chart, |chart, priority| {
        let points = service
            .cumulative
            .iter()
            .map(|got| (kb(got.iter().copied().sum()), kb(got[priority.index()])))
            .take_while(|&(all, _)| all <= 600.0);
        chart.series(Series::line(priority.to_string(), points))
    });
    let mut answer = Answer::new(
        "Starvation: waits of the least urgent level",
        prose::text(include_str!("starvation.md")),
        rows,
    );
    answer.section = answer.section.figure(Figure::new(
        "starvation",
        chart,
        "Cumulative service under the authors' debts: the first 600 kB. A level is flat while it is in debt or a more urgent one sends.",
    ));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_a_strict_order_the_least_urgent_level_gets_nothing() {
        let service = Service::saturated(Debt::strict()).unwrap();
        assert_eq!(service.worst, Bytes::kb(3_000));
    }
}
