//! Beyond the paper: what unresponsive senders gain by posing as others.

use marcato_queue::trap::Signal;
use marcato_queue::{
    Admission, Aqm, Buffer, ClassConfig, CodelConfig, CrqConfig, FlowTableConfig, FqCodelConfig, Limit,
    Queues, QuicRule, YoungConfig,
};
use marcato_report::{Row, Unit};
use marcato_sim::Congestion;
use marcato_units::{Bytes, Duration, Rate};

use super::flood::{Pulse, Spin};
use super::scale::{Plan, Ticket};
use super::setup::{Bottleneck, MTU, Outcome, Responder, Setup, Unresponsive};
use super::watched::Preset;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const LINK: Rate = Rate::from_mbps(20);
const RTT: Duration = Duration::from_millis(40);
/// Room of a single queue: a tenth of a second.
const BUFFER: Bytes = Bytes::kb(250);
const SPAN: Duration = Duration::from_secs(60);
const FLOOD: Rate = Rate::from_mbps(40);
/// Spin bit of an ordinary connection, at some rate.
const REGULAR: Spin = Spin::Flips([25; 4]);

/// Senders: id, name, spin bit, and pulses.
const SENDERS: [(&str, &str, Spin, Option<Pulse>); 4] = [
    ("random", "a random spin bit", Spin::Random, None),
    ("game", "flips after 1000, 1000, 6, 6 packets", Spin::Flips([1000, 1000, 6, 6]), None),
    (
        "two-rate",
        "40 and 10 Mbit/s in turn",
        REGULAR,
        Some(Pulse {
            on: Duration::from_millis(500),
            period: Duration::from_secs(1),
            rest: Some(Rate::from_mbps(10)),
        }),
    ),
    (
        "burst",
        "100 ms of every 16 s",
        REGULAR,
        Some(Pulse { on: Duration::from_millis(100), period: Duration::from_secs(16), rest: None }),
    ),
];

const SINGLE: Aqm =
    Aqm::Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn: false };
const FAIR: Aqm = Aqm::FqCodel {
    target: Duration::from_millis(5),
    interval: Duration::from_millis(100),
    ecn: false,
    flows: 1024,
};

fn crq(rules: Preset, aqm: Aqm, place: bool) -> Bottleneck {
    let class = ClassConfig { aqm, buffer: Buffer::Bytes(BUFFER), share: 1 };
    let young = YoungConfig { buffer: class.buffer, ..YoungConfig::new(RTT, false) };
    Bottleneck::Crq(CrqConfig {
        standard: class,
        queues: Queues::Two { responsive: class, admission: Admission::Loss },
        young: place.then_some(young),
        trap: rules.rules(),
        quic: if rules == Preset::Marcato { QuicRule::Handshake } else { QuicRule::FirstBit },
        flows: FlowTableConfig { flows: 1024, ..FlowTableConfig::default() },
        ..CrqConfig::new(LINK, RTT, false)
    })
}

fn fq_codel() -> Bottleneck {
    let default = FqCodelConfig::default();
    let codel = CodelConfig { limit: Limit::Bytes(BUFFER), maxpacket: MTU, ecn: false, ..default.codel };
    Bottleneck::FqCodel(FqCodelConfig { codel, ..default })
}

/// Goodput in Mbit/s.
fn goodput(bytes: Bytes, outcome: &Outcome) -> f64 {
    bytes.get() as f64 * 8e-6 / outcome.lasted.as_secs_f64()
}

/// Each sender with each queue.
pub(super) fn evasion(plan: &mut Plan) -> Ask {
    let span = plan.scale.span(SPAN);
    let queues = [
        ("fq-codel", "FQ-CoDel", fq_codel()),
        ("paper", "CRQ, paper", crq(Preset::Paper, SINGLE, false)),
        ("young", "CRQ, place", crq(Preset::Marcato, SINGLE, true)),
        ("fair", "CRQ, fair", crq(Preset::Marcato, FAIR, true)),
    ];
    let mut cells: Vec<(&str, &str, &str, &str, Ticket)> = Vec::new();
    for (sender, how, spin, pulse) in SENDERS {
        for (queue, name, bottleneck) in queues {
            let flood = Unresponsive { rate: FLOOD, from: span / 10, server: 1, spin: Some(spin), pulse };
            let endless = LINK.bytes_in(span) * 2;
            let setup = Setup::new(LINK, RTT, bottleneck, false)
                .transfer(Responder::Tcp(Congestion::CUBIC, false), endless, 0)
                .flood(flood);
            cells.push((sender, how, queue, name, plan.add(Setup { at_most: span, ..setup })));
        }
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for &(sender, how, queue, name, ticket) in &cells {
            let row = |what: &str, why: &str, unit, values: &[f64]| {
                Row::new(
                    format!("crq.evasion.{sender}.{queue}.{what}"),
                    format!("{why}, {name}, {how}"),
                    unit,
                )
                .samples(values)
            };
            let gained = runs.each(ticket, |outcome| {
                outcome.floods.first().map_or(f64::NAN, |flood| goodput(flood.bytes, outcome))
            });
            rows.push(row("gained", "goodput of the sender that answers nothing", Unit::MbitPerS, &gained));
            let cubic = runs.each(ticket, |outcome| {
                outcome.transfers.first().map_or(f64::NAN, |transfer| goodput(transfer.bytes, outcome))
            });
            rows.push(row("cubic", "goodput of the CUBIC flow", Unit::MbitPerS, &cubic));
            if queue != "fq-codel" {
                let responsive = runs.each(ticket, |outcome| {
                    outcome.floods.first().map_or(f64::NAN, |flood| flood.responsive(Signal::Loss))
                });
                rows.push(row("responsive", "its cycles called responsive", Unit::Percent, &responsive));
            }
        }
        let text = prose::text(&format!(include_str!("evasion.md"), span = span.as_secs_f64()));
        Answer::new("Beyond: what evasion gains", text, rows)
    })
}
