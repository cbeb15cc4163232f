//! Beyond the paper: short flows, and senders that try to pass for them.

use marcato_report::{Percentile, Row, Samples, Unit};
use marcato_sim::scenario::{FlowOutcome, Traces, build};
use marcato_units::{Duration, Time};
use serde::{Deserialize, Serialize};

use super::scale::Plan;
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Ticket, kept_as_json};
use crate::{lab, prose};

const SPAN: Duration = Duration::from_secs(60);
/// Number of 5-tuples of a sender of small flows. Each of them is used at 40 kbit/s on average, so that to a queue
/// it is a new flow each time.
const TUPLES: u64 = 1000;
/// Time that a packet of 1228 bytes takes at 40 Mbit/s, in ns.
const PACKET_NS: u64 = 245_600;
/// Completion time, in relation to that with FQ-CoDel, above which short flows lose by CRQ.
const NO_WORSE: f64 = 1.1;

/// Traffic that short flows compete with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rivals {
    Cubic,
    Bbr,
    Flood,
    All,
    /// A CUBIC flow, and a flood that changes its 5-tuple after this number of packets.
    Small(u64),
}

impl Rivals {
    const ALL: [Self; 7] =
        [Self::Cubic, Self::Bbr, Self::Flood, Self::All, Self::Small(1), Self::Small(10), Self::Small(100)];

    fn id(self) -> String {
        match self {
            Self::Cubic => "cubic".to_owned(),
            Self::Bbr => "bbr".to_owned(),
            Self::Flood => "flood".to_owned(),
            Self::All => "all".to_owned(),
            Self::Small(packets) => format!("small{packets}"),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Cubic => "a CUBIC flow".to_owned(),
            Self::Bbr => "a BBR flow".to_owned(),
            Self::Flood => "a flood".to_owned(),
            Self::All => "CUBIC, BBR and a flood".to_owned(),
            Self::Small(packets) => format!("CUBIC and a flood of flows of {packets}"),
        }
    }

    /// Flows from the server; those that do not respond begin late, when the others have verdicts.
    fn flows(self, span: Duration) -> String {
        let quiet = span / 15;
        let tcp = |name: &str| {
            format!(
                r#"
                [[flow]]
                name = "long-{name}"
                kind = "tcp"
                congestion = "{name}"
                from = "server"
                to = "client"
                "#
            )
        };
        let flood = |more: &str| {
            format!(
                r#"
                [[flow]]
                name = "flood"
                kind = "udp"
                rate = "40 Mbit/s"
                start = "{quiet} ms"
                from = "server"
                to = "client"
                {more}
                "#,
                quiet = quiet.as_millis(),
            )
        };
        match self {
            Self::Cubic => tcp("cubic"),
            Self::Bbr => tcp("bbr"),
            Self::Flood => flood(""),
            Self::All => [tcp("cubic"), tcp("bbr"), flood("")].concat(),
            Self::Small(packets) => {
                let on = packets * PACKET_NS / 1000;
                // In a short run there is no time for all of them.
                let turns = u64::try_from((span - quiet).as_micros()).unwrap_or(u64::MAX) / on;
                let tuples = turns.clamp(2, TUPLES);
                let off = on * (tuples - 1);
                let turns =
                    format!("count = {tuples}\nstagger = \"{on} us\"\non = \"{on} us\"\noff = \"{off} us\"");
                [tcp("cubic"), flood(&turns)].concat()
            }
        }
    }
}

/// Queues of the bottleneck: id, name, and value of the key.
const QUEUES: [(&str, &str, &str); 5] = [
    ("fifo", "one FIFO", r#"kind = "droptail""#),
    ("fq-codel", "FQ-CoDel", r#"kind = "fq-codel", ecn = false"#),
    ("paper", "CRQ, paper", r#"kind = "crq", young-share = 0"#),
    ("young", "CRQ, place", r#"kind = "crq""#),
    ("fair", "CRQ, fair", r#"kind = "crq", standard = "fq-codel", responsive = "fq-codel""#),
];

/// A run.
#[derive(Clone, Debug, PartialEq)]
struct Short {
    rivals: Rivals,
    queue: &'static str,
    span: Duration,
}

/// Measurements of a run. Times are in ms, rates in Mbit/s. A time is infinite if the transfer never began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Took {
    p50: f64,
    p95: f64,
    lookup: f64,
    call: f64,
    long: f64,
    flood: f64,
}

impl Short {
    fn scenario(&self, seed: u64) -> String {
        let (span, from) = (self.span.as_millis(), self.span.as_millis() / 12);
        let Self { rivals, queue, .. } = self;
        let rivals = rivals.flows(self.span);
        let process = |name: &str, arrivals: &str, size: &str| {
            format!(
                r#"
                [[flow]]
                name = "{name}"
                kind = "tcp-process"
                arrivals = "{arrivals}"
                size = "{size}"
                start = "{from} ms"
                from = "server"
                to = "client"
                "#
            )
        };
        let short = [process("download", "1 /s", "300 kB"), process("lookup", "2 /s", "300 B")].concat();
        format!(
            r#"
            name = "short"
            duration = "{span} ms"
            warm-up = "{from} ms"
            seed = {seed}
            nodes = ["server", "client"]
            [[link]]
            name = "access"
            between = ["server", "client"]
            rate = "20 Mbit/s"
            delay = "20 ms"
            queue = {{ {queue}, limit = "250 kB" }}
            back = {{ rate = "100 Mbit/s", queue = "droptail" }}
            {short}
            [[flow]]
            name = "call"
            kind = "udp"
            rate = "80 kbit/s"
            payload = "172 B"
            start = "{from} ms"
            from = "server"
            to = "client"
            {rivals}
            "#
        )
    }
}

impl crate::plan::Setup for Short {
    type Outcome = Took;

    kept_as_json!();

    fn cost(&self) -> u64 {
        // The link's rate, and the flood's.
        self.span.as_secs() * 6
    }

    fn run(&self, seed: u64) -> Result<Took, SimulationError> {
        let experiment = lab::experiment(&self.scenario(seed))?;
        let world = build(&experiment, &Traces::default()).map_err(lab::failed)?;
        let outcome = world.run(&mut |_: Time| ()).map_err(lab::failed)?;
        let [download, lookup, call, rivals @ ..] = &outcome.flows[..] else {
            return Err(SimulationError::Missing("flow"));
        };
        let times = |flow: &FlowOutcome, percentile| {
            Samples::new(flow.completions()).percentile(percentile).unwrap_or(f64::NAN)
        };
        let goodput = |of: &str| {
            let rates = rivals.iter().filter(|flow| flow.name.starts_with(of)).map(|flow| flow.goodput);
            // The sum of no numbers is -0.
            rates.sum::<f64>() + 0.0
        };
        Ok(Took {
            p50: times(download, Percentile::P50),
            p95: times(download, Percentile::P95),
            lookup: times(lookup, Percentile::P95),
            call: call.delay_p95.unwrap_or(f64::NAN),
            long: goodput("long"),
            flood: goodput("flood"),
        })
    }
}

type Value = fn(&Took) -> f64;

/// Measurements that each run prints: id, meaning, unit, value.
const VALUES: [(&str, &str, Unit, Value); 6] = [
    ("p50", "downloads of 300 kB, median", Unit::Ms, |took| took.p50),
    ("p95", "downloads of 300 kB, 95 %", Unit::Ms, |took| took.p95),
    ("lookup", "look-ups of one segment, 95 %", Unit::Ms, |took| took.lookup),
    ("call", "one-way delay of a call, 95 %", Unit::Ms, |took| took.call),
    ("long", "goodput of long TCP flows", Unit::MbitPerS, |took| took.long),
    ("flood", "goodput of the flood", Unit::MbitPerS, |took| took.flood),
];

/// Each queue with each kind of competition.
pub(super) fn short(plan: &mut Plan) -> Ask {
    let span = plan.scale.span(SPAN);
    let claims = plan.scale.claims;
    let mut cells = Vec::new();
    for rivals in Rivals::ALL {
        let tickets: Vec<Ticket<Short>> =
            QUEUES.iter().map(|&(_, _, queue)| plan.add(Short { rivals, queue, span })).collect();
        cells.push((rivals, tickets));
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for (rivals, tickets) in &cells {
            let fair = runs.of(tickets[1]);
            for (&(queue, name, _), &ticket) in QUEUES.iter().zip(tickets) {
                for (id, meaning, unit, value) in VALUES {
                    let id = format!("crq.short.{}.{queue}.{id}", rivals.id());
                    let what = format!("{meaning}, {name}, beside {}", rivals.name());
                    rows.push(Row::new(id, what, unit).samples(&runs.each(ticket, value)));
                }
                if !["young", "fair"].contains(&queue) {
                    continue;
                }
                for (id, meaning, _, value) in &VALUES[..3] {
                    let ours = runs.of(ticket);
                    let ratios: Vec<f64> =
                        ours.iter().zip(&fair).map(|(ours, fair)| value(ours) / value(fair)).collect();
                    let id = format!("crq.short.{}.{queue}.{id}.beside-fq-codel", rivals.id());
                    let what = format!("{meaning}, {name} over FQ-CoDel, beside {}", rivals.name());
                    let row = Row::new(id, what, Unit::Ratio).samples(&ratios);
                    // Whoever sends many small flows takes part of the place from other short flows.
                    let claimed = claims && !matches!(rivals, Rivals::Small(_));
                    rows.push(if claimed { row.at_most(NO_WORSE) } else { row });
                }
            }
        }
        let text = prose::text(&format!(include_str!("short.md"), span = span.as_secs_f64()));
        Answer::new("Beyond: short flows", text, rows)
    })
}
