//! Beyond the paper: the place of CRQ on the path, and the number of its flows.

use marcato_queue::trap::Signal;
use marcato_queue::{
    Admission, Aqm, Buffer, Class, ClassConfig, CrqConfig, FlowTableConfig, Queues, QuicRule,
};
use marcato_report::{Row, Unit};
use marcato_sim::Congestion;
use marcato_units::{Bytes, Duration, Rate};

use super::figure4::{Queue, percent};
use super::published::{ASSESSED, ASSESSED_AT, Control, RTTS, Stack};
use super::scale::{Plan, Ticket, words};
use super::setup::{Bleached, Bottleneck, Outcome, Responder, Setup, Unresponsive};
use super::watched::Preset;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Places of the box, each with the percentage of the round trip between box and receiver. The box
/// is near the sender in the testbed; the paper proposes a place near the receiver (§V).
const PLACES: [(&str, u32); 3] = [("sender", 95), ("middle", 50), ("receiver", 5)];

/// A single CUBIC flow, assessed in three places.
pub(super) fn place(plan: &mut Plan) -> Ask {
    let size = words(plan.scale.bytes(ASSESSED / 2));
    let mut cells: Vec<(&str, Queue, Duration, Ticket)> = Vec::new();
    for (name, client_side) in PLACES {
        for queue in [Queue::Codel { ecn: false }, Queue::Codel { ecn: true }] {
            for rtt in RTTS {
                let bottleneck = Bottleneck::Watched(queue.class(ASSESSED_AT, rtt), 0.0);
                let setup = Setup::new(ASSESSED_AT, rtt, bottleneck, queue.marks());
                let by = Responder::Stack(Stack::OneWay(Control::Cubic));
                let setup = setup.transfer(by, plan.scale.bytes(ASSESSED / 2), 0);
                cells.push((name, queue, rtt, plan.add(Setup { client_side, seeds: 3, ..setup })));
            }
        }
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for &(name, queue, rtt, ticket) in &cells {
            for preset in Preset::ALL {
                let (queued, ms, rules) = (queue.id(), rtt.as_millis(), preset.id());
                let id = format!("crq.place.{name}.{queued}.{ms}.{rules}");
                let what = format!(
                    "cycles of TCP CUBIC called responsive, box near the {name}, {queued}, {ms} ms, {rules} rules"
                );
                let raw = runs.each(ticket, |outcome| {
                    let scores = outcome.transfers.first().map(|it| it.scores[preset as usize]);
                    percent(scores.unwrap_or_default().raw(queue.signal()))
                });
                rows.push(Row::new(id, what, Unit::Percent).samples(&raw));
            }
        }
        let text = prose::text(&format!(include_str!("place.md"), size = size));
        Answer::new("Beyond: place of the CRQ box", text, rows)
    })
}

/// A single CUBIC flow with ECN, and a device on its path that clears the ECN field.
pub(super) fn bleach(plan: &mut Plan) -> Ask {
    let devices = [("none", None), ("before", Some(Bleached::Before)), ("behind", Some(Bleached::Behind))];
    let size = words(plan.scale.bytes(ASSESSED / 2));
    let mut cells: Vec<(&str, Duration, Ticket)> = Vec::new();
    for (name, bleached) in devices {
        for rtt in RTTS {
            let bottleneck = Bottleneck::Watched(Queue::Codel { ecn: true }.class(ASSESSED_AT, rtt), 0.0);
            let setup = Setup::new(ASSESSED_AT, rtt, bottleneck, true);
            let by = Responder::Stack(Stack::OneWay(Control::Cubic));
            let setup = setup.transfer(by, plan.scale.bytes(ASSESSED / 2), 0);
            cells.push((name, rtt, plan.add(Setup { bleached, seeds: 3, ..setup })));
        }
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for &(name, rtt, ticket) in &cells {
            let id = format!("crq.bleach.{name}.{}", rtt.as_millis());
            let named = format!("the ECN field cleared: {name}, {} ms", rtt.as_millis());
            for preset in Preset::ALL {
                for (signal, kind) in [(Signal::Loss, "loss"), (Signal::Ecn, "ecn")] {
                    let raw = runs.each(ticket, |outcome| {
                        let scores = outcome.transfers.first().map(|it| it.scores[preset as usize]);
                        percent(scores.unwrap_or_default().raw(signal))
                    });
                    let what = format!("cycles of TCP CUBIC called responsive to {kind}, {named}");
                    let id = format!("{id}.{}.{kind}", preset.id());
                    rows.push(
                        Row::new(id, format!("{what}, {} rules", preset.id()), Unit::Percent).samples(&raw),
                    );
                }
            }
            let goodput = runs.each(ticket, Outcome::goodput);
            let what = format!("goodput of TCP CUBIC, {named}");
            rows.push(Row::new(format!("{id}.goodput"), what, Unit::MbitPerS).samples(&goodput));
        }
        let text = prose::text(&format!(include_str!("place-bleached.md"), size = size));
        Answer::new("Beyond: devices that clear the ECN field", text, rows)
    })
}

const LINK: Rate = Rate::from_mbps(200);
const RTT: Duration = Duration::from_millis(20);
const FLOWS: [usize; 4] = [1, 10, 100, 1000];
const SPAN: Duration = Duration::from_secs(20);

fn crowd(rules: Preset) -> CrqConfig {
    let aqm =
        Aqm::Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn: true };
    let class = ClassConfig { aqm, buffer: Buffer::Bytes(LINK.bytes_in(RTT * 5)), share: 1 };
    CrqConfig {
        standard: class,
        queues: Queues::Two { responsive: class, admission: Admission::Any },
        trap: rules.rules(),
        quic: QuicRule::Handshake,
        flows: FlowTableConfig { flows: 4096, ..FlowTableConfig::default() },
        ..CrqConfig::new(LINK, RTT, true)
    }
}

/// 1 to 1000 CUBIC flows that compete with a flood.
pub(super) fn flows(plan: &mut Plan) -> Ask {
    let span = plan.scale.span(SPAN);
    let text = prose::text(&format!(include_str!("place-flows.md"), span = span.as_secs_f64()));
    let mut cells = Vec::new();
    for rules in [Preset::Authors, Preset::Marcato] {
        for count in FLOWS {
            let setup = Setup::new(LINK, RTT, Bottleneck::Crq(crowd(rules)), true);
            let setup = setup.flood(Unresponsive::udp(Rate::from_mbps(150), Duration::from_millis(500), 1));
            let by = Responder::Tcp(Congestion::CUBIC, false);
            let setup = (0..count).fold(setup, |setup, _| setup.transfer(by.clone(), Bytes::MAX, 0));
            cells.push((rules, count, plan.add(Setup { at_most: span, seeds: 1, ..setup })));
        }
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for &(rules, count, ticket) in &cells {
            let row = |what: &str, why: &str, unit, values: Vec<f64>| {
                let id = format!("crq.flows.{count}.{}.{what}", rules.id());
                Row::new(id, format!("{why}, {count} flows, {} rules", rules.id()), unit).samples(&values)
            };
            let accepted = runs.each(ticket, |outcome| {
                let reports = outcome.transfers.iter().filter_map(|it| it.report);
                let accepted = reports.filter(|report| report.class == Class::Responsive).count();
                accepted as f64 * 100.0 / count as f64
            });
            let cycles = runs.each(ticket, |outcome| {
                let responsive =
                    |signal| outcome.transfers.iter().map(move |it| it.responsive(signal)).sum::<f64>();
                responsive(Signal::Loss).max(responsive(Signal::Ecn)) / count as f64
            });
            let goodput = runs.each(ticket, Outcome::goodput);
            rows.push(row("accepted", "flows in the responsive queue at the end", Unit::Percent, accepted));
            rows.push(row("cycles", "cycles called responsive", Unit::Percent, cycles));
            rows.push(row(
                "goodput",
                "goodput of all flows beside UDP of 150 Mbit/s",
                Unit::MbitPerS,
                goodput,
            ));
        }
        Answer::new("Beyond: one flow to a thousand", text, rows)
    })
}
