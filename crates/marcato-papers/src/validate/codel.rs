//! CoDel's control law, under an unresponsive load.

use marcato_queue::{Codel, CodelConfig, Limit};
use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::{LinkConfig, Network, UdpFlow};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

use super::plan::{Plan, Values};
use super::watch::watched;
use super::{Answer, Ask, formula};
use crate::error::SimulationError;
use crate::prose;

/// Transmission time of a packet of 1000 bytes at 8 Mbit/s, in ms.
const PACKET: f64 = 1.0;

/// Times of CoDel's drops, in ms, under twice the load that the link carries.
fn drops(seconds: u64) -> Result<Values, SimulationError> {
    let mut net = Network::new(Seed::new(1));
    let (from, to) = (net.node("from"), net.node("to"));
    let codel = Codel::new(CodelConfig { limit: Limit::Packets(1_000_000), ..CodelConfig::default() })?;
    let (queue, seen) = watched(codel, false);
    let rate = Rate::from_mbps(8);
    let link = || LinkConfig::new(rate, Duration::ZERO);
    net.link(from, to, link().queue(queue), link());
    net.udp(UdpFlow::new(from, to, Rate::from_mbps(16), Bytes::new(972)))?;
    net.run_until(Time::from_secs(seconds));
    let times = seen.borrow().dropped.iter().map(|time| time.as_millis_f64()).collect();
    Ok(times)
}

pub(super) fn codel(plan: &mut Plan) -> Ask {
    let ticket = plan.once(30, || drops(12));
    Box::new(move |runs| {
        let times = runs.first(ticket);
        let first = times.first().copied().unwrap_or(f64::NAN);
        let law: Vec<f64> = formula::codel_drops(100.0).iter().map(|time| time * 100.0).collect();
        let mut rows = vec![
            Row::new("validate.codel.first", "first drop: 5 ms are exceeded after 10 ms of twofold load, and an interval later (±2 packet times: arrivals, departures)", Unit::Ms)
                .paper(110.0)
                .measured(first)
                .within_absolute(2.0 * PACKET),
        ];
        for (index, &time) in law.iter().enumerate().take(8).skip(1) {
            rows.push(
                Row::new(
                    format!("validate.codel.drop.{}", index + 1),
                    "drop after the first (+1 packet time: the next departure)",
                    Unit::Ms,
                )
                .paper(time)
                .measured(times.get(index).copied().unwrap_or(f64::NAN) - first)
                .within(time - 1e-3, time + PACKET),
            );
        }
        let within = |ms: f64| times.iter().filter(|&&time| time - first <= ms).count() as f64;
        for (id, ms) in [("second", 1e3), ("ten", 1e4)] {
            // A drop that is due within the last packet time may come after it.
            let expected = law.iter().filter(|&&time| time <= ms).count() as f64;
            rows.push(
                Row::new(
                    format!("validate.codel.count.{id}"),
                    format!(
                        "drops within {} s of the first (-1: the last may wait for a departure)",
                        ms / 1e3
                    ),
                    Unit::Count,
                )
                .paper(expected)
                .measured(within(ms))
                .within(expected - 1.0, expected),
            );
        }
        let count = |times: &[f64], origin: f64| {
            let points = times.iter().enumerate().map(|(at, time)| ((time - origin) / 1e3, (at + 1) as f64));
            points.take_while(|&(time, _)| time <= 2.0).collect::<Vec<_>>()
        };
        let chart = LineChart::new(
            "CoDel's drops under twofold load",
            Axis::new("time since the first drop", "s"),
            Axis::new("drops", ""),
        )
        .series(Series::step("control law", count(&law, 0.0)).dashed())
        .series(Series::step("measured", count(times, first)));
        let mut answer = Answer::new("CoDel's control law", prose::text(include_str!("codel.md")), rows);
        answer.section = answer.section.figure(Figure::new("codel", chart, "8 Mbit/s, 1000-byte packets."));
        answer
    })
}
