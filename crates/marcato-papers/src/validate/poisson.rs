//! Queues with exact solutions: M/M/1 and M/D/1.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::{DatagramFlow, LinkConfig, Network, Route, Side};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

use super::formula::{md1_wait, mm1_wait, mm1_wait_error};
use super::path::{fifo, seconds};
use super::plan::{Plan, Values};
use super::source::{Sizes, Source, Taker};
use super::watch::watched;
use super::{Answer, Ask};
use crate::error::SimulationError;
use crate::prose;

/// Mean packet length: 4000 bytes at 32 Mbit/s take a millisecond.
const MEAN: u64 = 4000;
const SERVICE: f64 = 1e-3;
const LEVELS: usize = 400;

/// Values of a run, in this order:
///
/// - mean wait in ms;
/// - difference between the queue's own account and the receiver's, in packet-nanoseconds;
/// - number of packets;
/// - shares of packets that found 0, 1, 2 … before them.
fn run(sizes: Sizes, rho: f64, packets: f64, seed: Seed) -> Result<Values, SimulationError> {
    let mut net = Network::new(seed);
    let (from, to) = (net.node("from"), net.node("to"));
    let rate = Rate::from_mbps(32);
    let (queue, seen) = watched(fifo(1_000_000)?, false);
    let there = LinkConfig::new(rate, Duration::ZERO).queue(queue);
    let (link, _) = net.link(from, to, there, LinkConfig::delay_only(Duration::ZERO));
    let gap = seconds(SERVICE / rho);
    let until = Time::ZERO + gap.mul_f64(packets);
    let source = Source::new(sizes, MEAN, gap, until);
    let flow = net.datagrams(DatagramFlow::new(source, Taker::default(), vec![Route::new(from, to)]))?;
    net.run_until(until);
    // Runs until the last packet has left; no packet is in flight for as long as a second.
    while !net.queue_counters(link).1.is_empty() {
        net.run_until(net.now() + Duration::from_secs(1));
    }
    net.run_until(net.now() + Duration::from_secs(1));
    let taken = &net.host::<Taker>(flow, Side::Server).ok_or(SimulationError::Missing("receiver"))?.0;
    let mut waited = 0u128;
    let mut found = vec![0u64; LEVELS];
    let mut gone = 0;
    for (at, packet) in taken.iter().enumerate() {
        let service = rate.transmission_time(Bytes::new(packet.len));
        waited += (packet.came - packet.sent).saturating_sub(service).as_nanos();
        while taken[gone].came <= packet.sent {
            gone += 1;
        }
        found[(at - gone).min(LEVELS - 1)] += 1;
    }
    let count = taken.len() as f64;
    let differs = waited.abs_diff(seen.borrow().packet_nanos);
    let mut values = vec![waited as f64 / count / 1e6, differs as f64, count];
    values.extend(found.iter().map(|&n| n as f64 / count));
    Ok(values)
}

/// Probability of finding `n` in M/M/1.
fn geometric(rho: f64, n: usize) -> f64 {
    (1.0 - rho) * libm::pow(rho, n as f64)
}

pub(super) fn poisson(plan: &mut Plan) -> Ask {
    let loads = [(0.5, "50", 500e3, 100e3), (0.8, "80", 1e6, 200e3), (0.9, "90", 2e6, 300e3)];
    let cells = loads.map(|(rho, name, full, quick)| {
        let packets: f64 = plan.pick(full, quick);
        let cost = super::path::whole(packets / 1e3);
        let [mm1, md1] = [Sizes::Exponential, Sizes::Equal]
            .map(|sizes| plan.each(cost, move |seed| run(sizes, rho, packets, seed)));
        (rho, name, packets, mm1, md1)
    });
    Box::new(move |runs| {
        let mut rows = Vec::new();
        let mut chart = LineChart::new(
            "Packets found in M/M/1",
            Axis::new("packets found on arrival", "").window(0.0, 60.0),
            Axis::new("share", "").log().range(1e-5, 1.0),
        );
        for (rho, name, packets, mm1, md1) in cells {
            let three = 300.0 * mm1_wait_error(rho, packets) / mm1_wait(rho);
            for (kind, label, ticket, theory) in
                [("mm1", "M/M/1", mm1, mm1_wait(rho)), ("md1", "M/D/1", md1, md1_wait(rho))]
            {
                let id = |what: &str| format!("validate.{kind}.{name}.{what}");
                rows.push(
                    Row::new(id("wait"), format!("{label} at {name} %, mean wait (±{three:.1} %: three standard errors of M/M/1's mean of {packets:.0} waits)"), Unit::Ms)
                        .paper(theory * SERVICE * 1e3)
                        .samples(&runs.each(ticket, 0))
                        .within_percent(three),
                );
                rows.push(
                    Row::new(id("little"), format!("{label} at {name} %, Little's law: sum of waits less the integral of the queue, in packet-ns"), Unit::Count)
                        .paper(0.0)
                        .samples(&runs.each(ticket, 1))
                        .within(0.0, 0.0),
                );
            }
            let expected: Vec<f64> = (0..LEVELS).map(|n| geometric(rho, n)).collect();
            let share = |n: usize| runs.mean(mm1, 3 + n);
            let distance = expected.iter().enumerate().map(|(n, p)| (share(n) - p).abs()).sum::<f64>() / 2.0;
            rows.push(
                Row::new(format!("validate.mm1.{name}.distribution"), "total variation between what arrivals found and the geometric law (a mean off by its three standard errors shifts it by less)", Unit::Ratio)
                    .paper(0.0)
                    .measured(distance)
                    .at_most(three / 100.0),
            );
            let law = (0..61).map(|n| (n as f64, geometric(rho, n)));
            let seen = (0..61).map(|n| (n as f64, share(n)));
            chart = chart
                .series(
                    Series::line(format!("theory, {name} %"), law.filter(|p| p.1 > 1e-5))
                        .like(format!("measured, {name} %"))
                        .dashed(),
                )
                .series(Series::line(format!("measured, {name} %"), seen.filter(|p| p.1 > 1e-5)));
        }
        let text = prose::text(include_str!("poisson.md"));
        let mut answer = Answer::new("M/M/1 and M/D/1", text, rows);
        answer.section = answer.section.figure(Figure::new("mm1", chart, "Theory dashed."));
        answer
    })
}
