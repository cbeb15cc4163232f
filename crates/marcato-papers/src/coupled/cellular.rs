//! Over a cellular link, whose rate follows a trace.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Mean, Percentile, Row, Samples, Unit};
use marcato_sim::scenario::{Traces, build};
use marcato_sim::{Trace, TraceError};
use marcato_units::Time;
use serde::{Deserialize, Serialize};

use super::cell::{head, ours};
use super::{Plan, RULE};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Ticket, kept_as_json};
use crate::{lab, prose};

/// Times in ms at which a packet may leave, a line each.
const TRACE: &str = include_str!("../../../../examples/traces/cellular.trace");
const NAME: &str = "cellular.trace";

/// Seeds of each sender. A message that meets a silence of the link takes much longer than others, so single
/// seeds differ a lot.
const SEEDS: u64 = 6;

/// A sender over the link.
#[derive(Clone, Debug, PartialEq)]
struct Radio {
    congestion: &'static str,
    /// Value of the key `coupled`, as in a scenario.
    coupled: String,
    /// True if background data fills the connection.
    bulk: bool,
    seconds: u64,
    /// First seed, less one.
    seeds_from: u64,
}

/// Median completion of urgent messages in ms, 99th percentile, and goodput in Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Heard {
    p50: f64,
    p99: f64,
    goodput: f64,
}

impl Radio {
    fn scenario(&self, seed: u64) -> String {
        let head = head("cellular", 8, self.seconds, self.seeds_from + seed);
        let tcp = r#"send-buffer = "16 MB", receive-buffer = "16 MB""#;
        let ours = ours(self.congestion, &self.coupled, self.bulk, tcp);
        format!(
            r#"
            {head}
            [[link]]
            name = "radio"
            between = ["sender", "receiver"]
            trace = "{NAME}"
            delay = "25 ms"
            queue = {{ kind = "droptail", limit = "1 MB" }}
            back = {{ rate = "5 Mbit/s", queue = {{ kind = "droptail", limit = "100 packets" }} }}
            {ours}
            "#
        )
    }
}

fn trace() -> Result<Trace, SimulationError> {
    let millis = TRACE.lines().map(|line| line.trim().parse().unwrap_or(u32::MAX));
    Trace::from_millis(millis).map_err(|error: TraceError| lab::failed(error))
}

impl crate::plan::Setup for Radio {
    type Outcome = Heard;

    kept_as_json!();

    fn cost(&self) -> u64 {
        self.seconds
    }

    fn seeds(&self) -> usize {
        1
    }

    fn run(&self, seed: u64) -> Result<Heard, SimulationError> {
        let experiment = crate::lab::experiment(&self.scenario(seed))?;
        let traces = Traces::from([(NAME.to_owned(), trace()?)]);
        let world = build(&experiment, &traces).map_err(lab::failed)?;
        let outcome = world.run(&mut |_: Time| ()).map_err(lab::failed)?;
        let flow = outcome.flows.first().ok_or(SimulationError::Missing("flow"))?;
        let times = Samples::new(flow.completions());
        let of = |percentile| times.percentile(percentile).unwrap_or(f64::NAN);
        Ok(Heard { p50: of(Percentile::P50), p99: of(Percentile::P99), goodput: flow.goodput })
    }
}

/// Packets that background data may keep in the queue: the parameter that moves delay against goodput.
const AIMS: [u32; 6] = [2, 4, 8, 16, 32, 64];

/// Runs of a sender, one for each seed.
type Tickets = Vec<Ticket<Radio>>;

/// Value of each seed's run, given that seed's run without background data as well.
fn each(runs: &Runs, tickets: &Tickets, beside: &Tickets, value: impl Fn(&Heard, &Heard) -> f64) -> Vec<f64> {
    let first = |ticket: &Ticket<Radio>| runs.first(*ticket);
    let both = tickets.iter().zip(beside).filter_map(|(one, other)| Some((first(one)?, first(other)?)));
    both.map(|(one, other)| value(one, other)).collect()
}

/// Delay against goodput: senders that users have today, and both rules.
pub(super) fn cellular(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let mut add = |congestion, coupled: &str, bulk| -> Tickets {
        let coupled = if coupled.starts_with('{') { coupled.to_owned() } else { format!(r#""{coupled}""#) };
        let radio = |seeds_from| Radio {
            congestion,
            coupled: coupled.clone(),
            bulk,
            seconds: scale.seconds,
            seeds_from,
        };
        (0..if scale.claims { SEEDS } else { 1 }).map(|seeds_from| plan.add(radio(seeds_from))).collect()
    };
    let alone = add("cubic", "off", false);
    let plain = add("cubic", "off", true);
    let senders = [
        ("plain", "CUBIC", plain.clone()),
        ("bbr", "BBR", add("bbr", "off", true)),
        ("ledbat", "LEDBAT++", add("ledbat++", "off", true)),
        ("fast", "coupled CUBIC", add("cubic", "fast", true)),
    ];
    let aims = AIMS.map(|aim| {
        let coupled = format!(r#"{{ kind = "fast", queued-packets = {aim} }}"#);
        (aim, add("cubic", &coupled, true))
    });
    Box::new(move |runs: &Runs| {
        let p50 = |it: &Heard, alone: &Heard| it.p50 / alone.p50;
        let p99 = |it: &Heard, alone: &Heard| it.p99 / alone.p99;
        let mut rows = Vec::new();
        for (id, name, tickets) in &senders {
            let row = |of: &str, what: &str, unit, value: &dyn Fn(&Heard, &Heard) -> f64| {
                let id = format!("coupled.cellular.{id}.{of}");
                Row::new(id, format!("{what}, {name}"), unit).samples(&each(runs, tickets, &alone, value))
            };
            rows.push(row("p50", "median over that without background", Unit::Ratio, &p50));
            rows.push(row("p99", "99 % over that without background", Unit::Ratio, &p99));
            rows.push(row("goodput", "goodput", Unit::MbitPerS, &|it, _| it.goodput));
            if *id == RULE {
                let cost = |it: &Heard, plain: &Heard| 100.0 * (1.0 - it.goodput / plain.goodput);
                let (p50, cost) = (each(runs, tickets, &alone, p50), each(runs, tickets, &plain, cost));
                let claims = [
                    ("p50", "median over that without background", Unit::Ratio, p50, 1.5),
                    ("cost", "goodput that it costs", Unit::Percent, cost, 10.0),
                ];
                for (of, what, unit, samples, most) in claims {
                    let row = Row::new(format!("coupled.cellular.{of}"), what, unit).samples(&samples);
                    rows.push(scale.claim(row, |row| row.at_most(most)));
                }
            }
        }
        for (aim, tickets) in &aims {
            let row = |of: &str, what: &str, unit, value: &dyn Fn(&Heard, &Heard) -> f64| {
                let id = format!("coupled.cellular.aim.{aim}.{of}");
                Row::new(id, format!("{what}, {aim} packets in the queue"), unit)
                    .samples(&each(runs, tickets, &alone, value))
            };
            rows.push(row("p50", "median over that without background", Unit::Ratio, &p50));
            rows.push(row("goodput", "goodput", Unit::MbitPerS, &|it, _| it.goodput));
        }
        let point = |tickets: &Tickets| {
            let goodput = each(runs, tickets, &alone, |it, _| it.goodput);
            (Mean::of(&goodput).value, Mean::of(&each(runs, tickets, &alone, p50)).value)
        };
        let goodput = Axis::new("goodput", "Mbit/s");
        let delay = Axis::new("median over that without background", "ratio").log();
        let curve = Series::line("CUBIC coupled, 2 to 64 packets", aims.iter().map(|(_, it)| point(it)));
        let mut chart = LineChart::new("Delay against goodput over a cellular link", goodput, delay);
        chart = chart.series(curve.marks());
        for (_, name, tickets) in senders.iter().filter(|(id, ..)| *id != RULE) {
            chart = chart.series(Series::line(*name, [point(tickets)]).marks());
        }
        let mut answer = Answer::new("Over a cellular link", prose::text(include_str!("cellular.md")), rows);
        answer.section = answer.section.figure(Figure::new(
            "cellular",
            chart,
            "Medians of urgent messages, by the packets that coupled background data may keep in the queue, beside \
             other senders.",
        ));
        answer
    })
}
