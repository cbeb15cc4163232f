//! The square root law: Reno's rate where losses are regular, and where they are independent.

use marcato_sim::{DelayedAck, Loss, TcpConfig};
use marcato_units::{Seed, Time};

use super::aimd::Aimd;
use super::formula::{OTT, mathis_constant, mathis_window};
use super::path::{Error, MSS, ONE_WAY, OneFlow, RTT, mbps, plain, seconds, whole, wide};
use super::plan::{Plan, Values};
use super::{Answer, Ask};
use crate::chart::{Axis, LineChart, Series};
use crate::{Figure, Mean, Row, Unit};

const PROBABILITIES: [(f64, &str); 3] = [(1e-4, "1e-4"), (1e-3, "1e-3"), (1e-2, "1e-2")];

/// Packets per round trip to Mbit/s of payload.
fn rate(window: f64) -> f64 {
    mbps(window * f64::from(MSS) / RTT)
}

/// Goodput in Mbit/s over about so many losses, after twenty in which slow start's end is forgotten.
fn reno(p: f64, loss: Loss, losses: f64, config: TcpConfig, seed: Seed) -> Result<Values, Error> {
    let cycle = RTT / (p * mathis_window(p));
    let mut one = OneFlow::new(seed, wide(ONE_WAY)?.loss(loss), wide(ONE_WAY)?, config)?;
    let warm = Time::ZERO + seconds(20.0 * cycle);
    Ok(vec![mbps(one.goodput(warm, seconds(losses * cycle)))])
}

/// The model's packets per round trip, and the standard error of one run over so many losses, both by replicates of a
/// quarter of the length.
fn model(p: f64, name: &str, losses: f64) -> Values {
    let rates: Vec<f64> = (0..12)
        .map(|replicate| {
            let stream = Seed::new(1).stream(&format!("validate/aimd/{name}/{replicate}"));
            Aimd::PLAIN.rate(p, whole(losses / 4.0 / p), Some(stream))
        })
        .collect();
    let mean = Mean::of(&rates).value;
    let squares: f64 = rates.iter().map(|rate| (rate - mean) * (rate - mean)).sum();
    let replicates = rates.len() as f64;
    vec![mean, (squares / (replicates - 1.0)).sqrt() / 2.0]
}

pub(super) fn mathis(plan: &mut Plan) -> Ask {
    let periodic_losses = plan.pick(200.0, 60.0);
    let mut tickets = Vec::new();
    for (p, name) in PROBABILITIES {
        let every = Loss::Every(whole(1.0 / p));
        let losses = match name {
            "1e-4" => plan.pick(1500.0, 150.0),
            "1e-3" => plan.pick(4000.0, 800.0),
            _ => plan.pick(20_000.0, 4_000.0),
        };
        let cost = |losses: f64| whole(losses / p / 1e3);
        let regular = every.clone();
        let periodic = plan.once(cost(periodic_losses), move || {
            reno(p, regular.clone(), periodic_losses, plain(), Seed::new(1))
        });
        let delayed = plan.once(cost(periodic_losses), move || {
            let config = TcpConfig { delayed_ack: DelayedAck::default(), ..plain() };
            reno(p, every.clone(), periodic_losses, config, Seed::new(1))
        });
        let counting = plan.once(cost(100.0), move || {
            let model = Aimd { per_ack: 2, counts_packets: false };
            Ok(vec![model.rate(p, whole(100.0 / p), None)])
        });
        let random = plan.each(cost(losses), move |seed| reno(p, Loss::Random(p), losses, plain(), seed));
        let model = plan.once(cost(losses), move || Ok(model(p, name, losses)));
        tickets.push((p, name, periodic, delayed, counting, random, model));
    }
    Box::new(move |runs| {
        let (mut rows, mut points) = (Vec::new(), [Vec::new(), Vec::new()]);
        for (p, name, periodic, delayed, counting, random, model) in tickets {
            // A sawtooth of whole packets is half a packet off its mean, and the round trip of recovery, one of W/2,
            // carries a third less or more than the mean: together a packet of the greatest window at most.
            let whole_packets = 100.0 * 3.0 / 4.0 / mathis_window(p);
            let band = 1.0 + whole_packets;
            let id = |kind: &str| format!("validate.mathis.{kind}.{name}");
            let row = |kind: &str, what: String| Row::new(id(kind), what, Unit::MbitPerS);
            rows.push(
                row("periodic", format!("Reno, every 1/{name}th packet lost (±{band:.1} %: whole packets, recovery's round trip)"))
                    .paper(rate(mathis_window(p)))
                    .samples(&runs.each(periodic, 0))
                    .within_percent(band),
            );
            // The last packet of a flight waits for its acknowledgement until the next flight comes: nothing is sent
            // late for long, but growth may come an acknowledgement later.
            let band = band + whole_packets;
            rows.push(
                row("delayed", format!("the same, delayed acknowledgements, whose bytes are counted (±{band:.1} %: a packet more)"))
                    .paper(rate(mathis_window(p)))
                    .samples(&runs.each(delayed, 0))
                    .within_percent(band),
            );
            rows.push(
                row(
                    "delayed.why",
                    "the model of rounds where acknowledgements are counted instead, against C = 0.866"
                        .to_owned(),
                )
                .paper(rate(mathis_constant(2.0) / p.sqrt()))
                .measured(rate(runs.mean(counting, 0)))
                .within_percent(band),
            );
            let (expected, error) = (runs.mean(model, 0), runs.mean(model, 1));
            let band = 3.0 + 300.0 * error / expected;
            rows.push(
                row("random", format!("Reno, losses independent, against a model of rounds (±{band:.1} %: 3 % and three standard errors)"))
                    .paper(rate(expected))
                    .samples(&runs.each(random, 0))
                    .within_percent(band),
            );
            let band = whole_packets + 300.0 * error * 2.0 / 12f64.sqrt() / expected + 1.0;
            rows.push(
                Row::new(id("limit"), format!("that model's constant against the limit for small p (±{band:.1} %: whole packets, standard errors)"), Unit::Ratio)
                    .paper(OTT)
                    .measured(expected * p.sqrt())
                    .within_percent(band),
            );
            points[0].push((p, runs.mean(periodic, 0)));
            points[1].push((p, runs.mean(random, 0)));
        }
        let law = |c: f64| {
            (0..=40).map(move |step| {
                let p = libm::pow(10.0, -4.3 + 2.6 * f64::from(step) / 40.0);
                (p, rate(c / p.sqrt()))
            })
        };
        let [periodic, random] = points;
        let chart = LineChart::new(
            "Rate of a Reno flow under loss",
            Axis::new("loss probability", "").log(),
            Axis::new("goodput", "Mbit/s").log(),
        )
        .series(Series::line("Mathis, C = 1.225", law(mathis_constant(1.0))).dashed())
        .series(Series::line("Ott, C = 1.310", law(OTT)).dashed())
        .series(Series::line("measured, periodic", periodic).marks())
        .series(Series::line("measured, independent", random).marks());
        let mut answer = Answer::new("The square root law", TEXT, rows);
        answer.section =
            answer.section.figure(Figure::new("mathis", chart.to_svg(), "Theory dashed, simulation marked."));
        answer
    })
}

const TEXT: &str = "Mathis et al. (1997): where exactly every (1/p)th packet is lost, a flow that gains a packet per round \
    trip and halves its window carries C·MSS/(RTT·sqrt(p)), C = sqrt(3/2). Delayed acknowledgements lower C to 0.866 for a \
    sender that counts acknowledgements; this one counts bytes (RFC 3465), and keeps the 1.225. The rows that end in why \
    run the model of rounds with that one parameter changed.\n\n\
    Where losses are independent the constant is 1.310 in the limit (Ott, Kemperman and Mathis 1996); for greater p a model \
    of rounds of whole packets, which shares no code with the simulator, says what to expect, and how far chance moves a run \
    of this length. Losses of one round trip count once; which packets those are, model and simulator may take \
    differently, hence 3 %.";
