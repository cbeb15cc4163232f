//! Padhye's formula: Reno's rate with timeouts.

use marcato_queue::{Fate, Filtered};
use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::{Loss, Packet, Side, Tcp};
use marcato_units::{Duration, Seed, Stream, Time};

use super::formula::{mathis_window, pftk_approximate, pftk_full};
use super::path::{MSS, ONE_WAY, OneFlow, RTT, fifo, mbps, seconds, textbook, whole, wide};
use super::plan::{Plan, Values};
use super::{Answer, Ask};
use crate::error::SimulationError;
use crate::prose;

/// First timeout.
const T0: Duration = Duration::from_millis(400);

/// Loss as the formula assumes (§II-A): each packet with a probability, and after a loss all later
/// packets of the same round. Gaps separate the rounds: on a fast link, the packets of a round
/// arrive together.
fn round_loss(probability: f64, mut stream: Stream) -> impl FnMut(Time, &mut Packet) -> Fate {
    let (mut losing, mut last) = (false, Time::ZERO);
    move |now, _| {
        if now - last > ONE_WAY / 2 {
            losing = false;
        }
        last = now;
        losing = losing || stream.chance(probability);
        if losing { Fate::Drop } else { Fate::Pass }
    }
}

/// Payload sent in Mbit/s, which is the formula's quantity, and timeouts per loss indication in %.
fn run(p: f64, rounds: bool, losses: f64, seed: Seed) -> Result<Values, SimulationError> {
    let mut there = wide(ONE_WAY)?;
    if rounds {
        let stream = seed.stream("validate/pftk");
        there = there.queue(Filtered::of(fifo(1_000_000)?, round_loss(p, stream)));
    } else {
        there = there.loss(Loss::Random(p));
    }
    // With timestamps, the acknowledgement of a retransmission ends the back-off, as in the model.
    let config = Tcp { min_rto: T0, timestamps: true, ..textbook() };
    let mut one = OneFlow::new(seed, there, wide(ONE_WAY)?, config)?;
    let cycle = RTT / (p * pftk_full(p, 1.0, T0.as_secs_f64() / RTT));
    let (warm, span) = (Time::ZERO + seconds(20.0 * cycle), seconds(losses * cycle));
    let stats =
        |one: &OneFlow| one.net.tcp_stats(one.flow, Side::Client).ok_or(SimulationError::Missing("TCP flow"));
    one.net.run_until(warm);
    let before = stats(&one)?;
    one.net.run_until(warm + span);
    let after = stats(&one)?;
    let sent = (after.segments_sent - before.segments_sent) as f64 * f64::from(MSS) / span.as_secs_f64();
    let timeouts = (after.timeouts - before.timeouts) as f64;
    let indications = timeouts + (after.reductions - before.reductions) as f64;
    Ok(vec![mbps(sent), 100.0 * timeouts / indications])
}

pub(super) fn pftk(plan: &mut Plan) -> Ask {
    let losses = plan.pick(6000.0, 1000.0);
    let cells = [(0.005, "0.5"), (0.01, "1"), (0.02, "2"), (0.05, "5")].map(|(p, name)| {
        let cost = whole(losses / p / 1e3);
        let by_rounds = plan.each(cost, move |seed| run(p, true, losses, seed));
        let independent = plan.each(cost, move |seed| run(p, false, losses, seed));
        (p, name, by_rounds, independent)
    });
    Box::new(move |runs| {
        let t0 = T0.as_secs_f64() / RTT;
        let rate = |window: f64| mbps(window * f64::from(MSS) / RTT);
        let mut rows = Vec::new();
        let mut points = [Vec::new(), Vec::new()];
        for (p, name, by_rounds, independent) in cells {
            let theory = rate(pftk_full(p, 1.0, t0));
            rows.push(
                Row::new(
                    format!("validate.pftk.{name}"),
                    format!("Reno, {name} % lost, rest of the round as well: rate sent (-30 % to +10 %: slow start and lost retransmissions, which the formula leaves out)"),
                    Unit::MbitPerS,
                )
                .paper(theory)
                .samples(&runs.each(by_rounds, 0))
                .within(theory * 0.7, theory * 1.1),
            );
            rows.push(
                Row::new(
                    format!("validate.pftk.{name}.timeouts"),
                    "share of loss indications that are timeouts",
                    Unit::Percent,
                )
                .samples(&runs.each(by_rounds, 1)),
            );
            rows.push(
                Row::new(
                    format!("validate.pftk.{name}.independent"),
                    "the same where losses are independent, against the approximation: not claimed, because SACK needs fewer timeouts then",
                    Unit::MbitPerS,
                )
                .paper(rate(pftk_approximate(p, 1.0, t0)))
                .samples(&runs.each(independent, 0)),
            );
            points[0].push((p, runs.mean(by_rounds, 0)));
            points[1].push((p, runs.mean(independent, 0)));
        }
        let line = |form: &dyn Fn(f64) -> f64| {
            let steps = (0..=40).map(|step| libm::pow(10.0, -2.6 + 1.6 * f64::from(step) / 40.0));
            steps.map(|p| (p, rate(form(p)))).collect::<Vec<_>>()
        };
        let [by_rounds, independent] = points;
        let chart = LineChart::new(
            "Rate of a Reno flow with timeouts",
            Axis::new("loss probability", "").log(),
            Axis::new("rate sent", "Mbit/s").log(),
        )
        .series(Series::line("PFTK, full", line(&|p| pftk_full(p, 1.0, t0))).dashed())
        .series(Series::line("PFTK, approximate", line(&|p| pftk_approximate(p, 1.0, t0))).dashed())
        .series(Series::line("Mathis", line(&mathis_window)).dashed())
        .series(Series::line("measured, by rounds", by_rounds).marks())
        .series(Series::line("measured, independent", independent).marks());
        let mut answer =
            Answer::new("Timeouts: Padhye's formula", prose::text(include_str!("pftk.md")), rows);
        answer.section =
            answer.section.figure(Figure::new("pftk", chart, "Theory dashed, simulation marked."));
        answer
    })
}
