//! Data that the Conductor does not send: Save-Data, shedding and lifetimes. CATS §II-D3.

use std::ops::Range;

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Percentile, Row, Unit};
use marcato_sched::conductor::{ShedPolicy, Shedding};
use marcato_sched::{Conductor, Config, Debt};
use marcato_sim::{Planned, Side};
use marcato_units::{Bytes, Duration, Priority, Rate, Time};

use super::delays::Delays;
use super::page;
use super::path::{Feeding, Path, Transfer};
use super::watched::Watched;
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

/// The page with Save-Data.
pub(super) fn save_data(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    let path = Path::authors();
    let config = Config { chunk: path.chunk(), ..Config::with_debt(Debt::authors()) };
    let load = |threshold: Priority| {
        let mut conductor = Conductor::new(config)?;
        conductor.discard_less_urgent_than(threshold);
        let app = path.conducting(conductor, Feeding::Greedy, page::plan());
        let mut transfer = path.open(Feeding::Greedy, Box::new(app), &page::plan(), seed)?;
        transfer.net.run_until(Time::from_secs(30))?;
        Ok::<_, SimulationError>(transfer)
    };
    let (without, with) = (load(Priority::P4)?, load(Priority::P2)?);

    let arrived = with.net.reception(with.flow, Side::Server).bytes;
    let mut rows = vec![
        // (60 + 150) / 283 = 74.205 %: nothing of P3 and P4 may be on the wire, and all the rest
        // must be.
        Row::new("cats.savedata.unsent", "share of the page's bytes that was not sent", Unit::Percent)
            .measured(
                100.0 * (1.0 - arrived.get() as f64 / page::GROUPS.into_iter().sum::<Bytes>().get() as f64),
            )
            .within(74.2, 74.21),
    ];
    for (place, priority) in page::ORDER.into_iter().enumerate().rev() {
        if Priority::P2.is_more_urgent_than(priority) {
            continue;
        }
        for (id, transfer) in [("without", &without), ("with", &with)] {
            rows.push(
                Row::new(
                    format!("cats.savedata.{id}.p{}", priority.index()),
                    format!("{} complete, {id} Save-Data", page::NAMES[priority.index()]),
                    Unit::Ms,
                )
                .measured(transfer.complete(place)? - transfer.first_byte()?),
            );
        }
    }
    Ok(Answer::new(
        "Save-Data: data less urgent than P2 is discarded",
        prose::text(include_str!("save-data.md")),
        rows,
    ))
}

/// Time in which the bottleneck is slow.
const SLOW: Range<Duration> = Duration::from_secs(10)..Duration::from_secs(30);

/// Messages of `len` at `priority`, one per `period`, over 40 s.
fn periodic(len: u64, priority: Priority, period: Duration) -> impl Iterator<Item = Planned> {
    let message = Planned::now(Bytes::new(len), priority);
    let count = u32::try_from(Duration::from_secs(40).as_nanos() / period.as_nanos()).unwrap_or(u32::MAX);
    (0..count).map(move |k| message.after(period * k))
}

/// Control, results and telemetry of one application: 416 kbit/s.
fn mixture() -> Vec<Planned> {
    let mut plan: Vec<Planned> = periodic(200, Priority::P0, Duration::from_millis(100))
        .chain(periodic(2_000, Priority::P2, Duration::from_millis(200)))
        .chain(periodic(4_000, Priority::P4, Duration::from_millis(100)))
        .collect();
    plan.sort_by_key(|planned| planned.after);
    plan
}

/// Sends `plan` over the authors' path, whose bottleneck falls to 200 kbit/s for 20 s.
fn congested(shedding: Option<Shedding>, plan: &[Planned], seed: u64) -> Result<Transfer, SimulationError> {
    let path = Path::authors();
    let config = Config { chunk: path.chunk(), shedding, ..Config::with_debt(Debt::marcato()) };
    let app = Watched::new(path.conducted(config, Feeding::Lean, plan.to_vec())?);
    let mut transfer = path.open(Feeding::Lean, Box::new(app), plan, seed)?;
    let bottleneck = transfer.bottleneck;
    transfer.net.simulator()?.set_rate_at(bottleneck, Time::ZERO + SLOW.start, Rate::from_kbps(200));
    transfer.net.simulator()?.set_rate_at(bottleneck, Time::ZERO + SLOW.end, path.bottleneck);
    transfer.net.run_until(Time::from_secs(60))?;
    Ok(transfer)
}

/// Shedding at half of the usual rate. The default is a quarter. Here the Conductor knows of the
/// path only the 416 kbit/s that this application offers, and 200 kbit/s are just less than half of
/// that.
const AT_HALF: Shedding = Shedding {
    drain: Duration::from_secs(2),
    fallen_to: 500,
    sustained: Duration::from_secs(3),
    adapts_after: Duration::from_secs(60),
    policy: ShedPolicy { spare: Priority::P2, older_than: Duration::from_secs(2), down_to: Bytes::ZERO },
};

/// Shedding under severe, persistent congestion.
pub(super) fn shedding(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    let plan = mixture();
    let (off, on) = (congested(None, &plan, seed)?, congested(Some(AT_HALF), &plan, seed)?);
    let mut rows = Vec::new();
    let mut chart = LineChart::new(
        "Age of telemetry (P4) at delivery",
        Axis::new("offered at", "s"),
        Axis::new("age", "ms"),
    );
    for (id, name, transfer) in [("off", "without shedding", &off), ("on", "with shedding", &on)] {
        for (level, priority) in [("p0", Priority::P0), ("p2", Priority::P2)] {
            let delays = Delays::of(transfer, priority, SLOW)?;
            for (metric, value) in
                [("p50", delays.percentile(Percentile::P50)), ("p99", delays.percentile(Percentile::P99))]
            {
                let what = format!("{priority} offered while the bottleneck is slow, {metric} delay, {name}");
                rows.push(
                    Row::new(format!("cats.shedding.{id}.{level}.{metric}"), what, Unit::Ms).measured(value),
                );
            }
        }
        let watched = transfer.sender::<Watched>()?;
        let telemetry = watched.app().conductor().counters().level(Priority::P4);
        let arrived = Delays::of(transfer, Priority::P4, Duration::ZERO..Duration::MAX)?.arrived_percent();
        let ages = Delays::of(transfer, Priority::P4, SLOW)?.arrived();
        let shed = 100.0 * telemetry.shed.messages as f64 / telemetry.offered.messages as f64;
        for (metric, what, value, unit) in [
            ("p4.delivered", "P4 delivered", arrived, Unit::Percent),
            ("p4.shed", "P4 shed", shed, Unit::Percent),
            (
                "p4.age.p50",
                "P4 offered while the bottleneck is slow, p50 age at delivery",
                ages.percentile(Percentile::P50),
                Unit::Ms,
            ),
            (
                "p4.age.p99",
                "P4 offered while the bottleneck is slow, p99 age at delivery",
                ages.percentile(Percentile::P99),
                Unit::Ms,
            ),
            (
                "backlog",
                "greatest backlog in the Conductor, kB",
                watched.greatest_backlog().get() as f64 / 1e3,
                Unit::Count,
            ),
        ] {
            rows.push(
                Row::new(format!("cats.shedding.{id}.{metric}"), format!("{what}, {name}"), unit)
                    .measured(value),
            );
        }
        let points = (0..plan.len())
            .filter(|&place| plan[place].message.priority == Priority::P4)
            .map(|place| Ok((plan[place].after.as_secs_f64(), transfer.delay(place)?)))
            .collect::<Result<Vec<_>, SimulationError>>()?;
        chart = chart.series(Series::line(name, points).marks());
    }
    let mut answer = Answer::new(
        "Shedding under severe, persistent congestion",
        prose::text(include_str!("shedding.md")),
        rows,
    );
    answer.section = answer.section.figure(Figure::new(
        "shedding",
        chart,
        "Shed messages are missing. The bottleneck is slow from second 10 to second 30.",
    ));
    Ok(answer)
}

/// Time for which a position is of interest.
const LIFETIME: Duration = Duration::from_millis(200);

/// Lifetimes on the same path.
pub(super) fn lifetimes(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    let mut rows = Vec::new();
    let mut chart = LineChart::ccdf("Age of positions at delivery", Axis::new("age", "ms").log(), true);
    for (id, name, lifetime) in
        [("off", "without a lifetime", None), ("on", "with a lifetime of 200 ms", Some(LIFETIME))]
    {
        let mut plan = mixture();
        plan.extend(periodic(500, Priority::P1, Duration::from_millis(50)).map(|mut planned| {
            planned.message.lifetime = lifetime;
            planned
        }));
        plan.sort_by_key(|planned| planned.after);
        let transfer = congested(None, &plan, seed)?;
        let ages = Delays::of(&transfer, Priority::P1, SLOW)?;
        let expired = transfer.sender::<Watched>()?.app().conductor().counters().level(Priority::P1).expired;
        let offered = plan.iter().filter(|planned| planned.message.priority == Priority::P1).count();
        for (metric, what, value, unit) in [
            ("expired", "positions expired", 100.0 * expired.messages as f64 / offered as f64, Unit::Percent),
            (
                "age.p50",
                "age of positions at delivery, p50",
                ages.arrived().percentile(Percentile::P50),
                Unit::Ms,
            ),
            (
                "age.p99",
                "age of positions at delivery, p99",
                ages.arrived().percentile(Percentile::P99),
                Unit::Ms,
            ),
            (
                "p2.p99",
                "P2 offered while the bottleneck is slow, p99 delay",
                Delays::of(&transfer, Priority::P2, SLOW)?.percentile(Percentile::P99),
                Unit::Ms,
            ),
        ] {
            rows.push(
                Row::new(format!("cats.lifetime.{id}.{metric}"), format!("{what}, {name}"), unit)
                    .measured(value),
            );
        }
        chart = chart.series(Series::ccdf(name, ages.arrived().sorted().iter().copied()));
        if let Some(lifetime) = lifetime {
            rows.push(Row::verdict(
                "cats.lifetime.on.held",
                "no position was begun after its lifetime",
                latest_begin(&transfer)?.is_some_and(|latest| latest <= lifetime),
            ));
        }
    }
    let mut answer =
        Answer::new("Lifetimes: outdated data is not sent", prose::text(include_str!("lifetimes.md")), rows);
    answer.section = answer.section.figure(Figure::new("lifetimes", chart, "Only positions that arrived."));
    Ok(answer)
}

/// Longest time between the offer of a position and the grant of its first byte.
fn latest_begin(transfer: &Transfer) -> Result<Option<Duration>, SimulationError> {
    let waits = Watched::waits(transfer)?;
    let positions = |place: usize| transfer.plan()[place].message.priority == Priority::P1;
    Ok(waits.into_iter().filter(|&(place, _)| positions(place)).map(|(_, wait)| wait).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_lifetime_positions_are_begun_later_than_one() {
        // Without lifetimes some positions wait longer, so that the verdict means something.
        let mut plan = mixture();
        plan.extend(periodic(500, Priority::P1, Duration::from_millis(50)));
        plan.sort_by_key(|planned| planned.after);
        let transfer = congested(None, &plan, 1).unwrap();
        assert!(latest_begin(&transfer).unwrap().unwrap() > LIFETIME);
    }
}
