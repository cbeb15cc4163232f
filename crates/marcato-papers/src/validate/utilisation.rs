//! Utilisation of a link by one Reno flow, by its buffer.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::LinkConfig;
use marcato_units::{Duration, Rate, Seed, Time};

use super::path::{MSS, ONE_WAY, OneFlow, fifo, plain, whole};
use super::plan::{Plan, Values};
use super::{Answer, Ask, formula};
use crate::error::SimulationError;
use crate::prose;

/// Bandwidth-delay product: 40 Mbit/s over 80 ms, in packets of 1000 bytes.
const PRODUCT: f64 = 400.0;

/// Share of the link in use over whole cycles, in %.
fn busy(buffer: u64, cycles: u64) -> Result<Values, SimulationError> {
    let there = LinkConfig::new(Rate::from_mbps(40), ONE_WAY).queue(fifo(buffer)?);
    let mut one = OneFlow::new(Seed::new(1), there, LinkConfig::delay_only(ONE_WAY), plain())?;
    let goodput = one.over_reductions(Time::from_secs(60), cycles, Duration::from_millis(10))?;
    let headers = 1000.0 / f64::from(MSS);
    Ok(vec![goodput * 8.0 * headers / 40e6 * 100.0])
}

pub(super) fn utilisation(plan: &mut Plan) -> Ask {
    let cycles = plan.pick(12, 2);
    let cells = [0u32, 10, 25, 50, 100].map(|percent| {
        // A queue needs room for at least one packet.
        let buffer = whole(PRODUCT * f64::from(percent) / 100.0).max(1);
        (percent, buffer, plan.once(100 * cycles, move || busy(buffer, cycles)))
    });
    let roomier = plan.once(100 * cycles, move || busy(2, cycles));
    Box::new(move |runs| {
        let theory = |buffer: f64| 100.0 * formula::utilisation(buffer / PRODUCT);
        let row = |id: &str, said: &str, buffer: u64, ticket| {
            let packets = if buffer == 1 { "1 packet".to_owned() } else { format!("{buffer} packets") };
            let what = format!("one Reno flow, buffer of {packets} ({said})");
            Row::new(format!("validate.utilisation.{id}"), what, Unit::Percent)
                .paper(theory(buffer as f64))
                .samples(&runs.each(ticket, 0))
        };
        let said = "±1: recovery's round trip and whole packets, of 200 round trips";
        let mut rows = Vec::new();
        for (percent, buffer, ticket) in cells {
            if buffer == 1 {
                let bursts = "not claimed: two packets that leave together find no room while another waits";
                rows.push(row(&percent.to_string(), bursts, buffer, ticket));
                let what = format!("the same; {said}");
                rows.push(row("0.why", &what, 2, roomier).within_absolute(1.0));
            } else {
                rows.push(row(&percent.to_string(), said, buffer, ticket).within_absolute(1.0));
            }
        }
        let curve = (0..=60).map(|step| (f64::from(step) * 2.0, theory(PRODUCT * f64::from(step) / 50.0)));
        let points = cells.map(|(percent, _, ticket)| (f64::from(percent), runs.mean(ticket, 0)));
        let chart = LineChart::new(
            "Utilisation by one Reno flow",
            Axis::new("buffer, of the bandwidth-delay product", "%"),
            Axis::new("utilisation", "%").range(70.0, 102.0),
        )
        .series(Series::line("theory", curve).dashed())
        .series(Series::line("measured", points).marks());
        let text = prose::text(include_str!("utilisation.md"));
        let mut answer = Answer::new("Utilisation against buffer", text, rows);
        answer.section = answer.section.figure(Figure::new(
            "utilisation",
            chart,
            "40 Mbit/s, 80 ms: 400 packets of 1000 bytes.",
        ));
        answer
    })
}
