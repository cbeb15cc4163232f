//! Beyond the paper: a sender in two layers, as in PLT, through CRQ.

use marcato_queue::trap::Signal;
use marcato_queue::{Aqm, Buffer, Class, ClassConfig, CrqConfig, FlowTableConfig, QuicRule};
use marcato_report::{Row, Unit};
use marcato_sim::Congestion;
use marcato_units::{Bytes, Duration, Rate};

use super::scale::Plan;
use super::setup::{Bottleneck, Outcome, Responder, Setup, Unresponsive};
use super::watched::Preset;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const LINK: Rate = Rate::from_mbps(100);
const RTT: Duration = Duration::from_millis(80);
const SPAN: Duration = Duration::from_secs(60);
/// Rate of the flood. CRQ shares the link by halves, so the standard queue has room left for
/// others.
const FLOOD: Rate = Rate::from_mbps(30);

/// Second sender, with the queue of its low layer.
#[derive(Clone, Copy)]
enum Second {
    /// Reno without a low layer.
    Plain,
    /// PLT whose low packets carry no marking that CRQ knows, and go to the standard queue.
    Together,
    /// PLT whose low packets are marked as less than best effort (RFC 8622), and served when both
    /// queues are empty.
    Below,
}

impl Second {
    const ALL: [Self; 3] = [Self::Plain, Self::Together, Self::Below];

    const fn id(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Together => "together",
            Self::Below => "below",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "Reno without a low layer",
            Self::Together => "PLT whose low packets go to the standard queue",
            Self::Below => "PLT whose low packets are served below both queues",
        }
    }
}

fn crq(rules: Preset) -> CrqConfig {
    let aqm =
        Aqm::Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn: false };
    let responsive = ClassConfig { aqm, buffer: Buffer::Bytes(LINK.bytes_in(RTT)), share: 1 };
    let standard = ClassConfig { aqm: Aqm::DropTail, ..responsive };
    CrqConfig {
        standard,
        queues: marcato_queue::Queues::Two { responsive, admission: marcato_queue::Admission::Loss },
        trap: rules.rules(),
        quic: QuicRule::Handshake,
        flows: FlowTableConfig { flows: 1024, ..FlowTableConfig::default() },
        ..CrqConfig::new(LINK, RTT, false)
    }
}

/// A plain Reno flow, a sender in two layers, and a flood.
pub(super) fn layers(plan: &mut Plan) -> Ask {
    let span = plan.scale.span(SPAN);
    let text = prose::text(&format!(include_str!("layers.md"), span = span.as_secs_f64()));
    let mut cells = Vec::new();
    for rules in [Preset::Authors, Preset::Marcato] {
        for second in Second::ALL {
            let setup = Setup::new(LINK, RTT, Bottleneck::Crq(crq(rules)), false);
            let by = match second {
                Second::Plain => Responder::Tcp(Congestion::Reno, false),
                Second::Together | Second::Below => Responder::Layered,
            };
            let setup = setup
                .transfer(Responder::Tcp(Congestion::Reno, false), Bytes::MAX, 0)
                .transfer(by, Bytes::MAX, 1)
                .flood(Unresponsive::udp(FLOOD, Duration::from_secs(1), 1));
            let below = matches!(second, Second::Below).then(|| LINK.bytes_in(RTT));
            cells.push((rules, second, plan.add(Setup { below, at_most: span, seeds: 3, ..setup })));
        }
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for &(rules, second, ticket) in &cells {
            let mut row = |what: &str, why: &str, unit, value: &dyn Fn(&Outcome) -> f64| {
                let id = format!("crq.layers.{}.{}.{what}", second.id(), rules.id());
                let why = format!("{why}; {}, {} rules", second.name(), rules.id());
                rows.push(Row::new(id, why, unit).samples(&runs.each(ticket, value)));
            };
            let goodput = |outcome: &Outcome, at: usize| {
                let bytes = outcome.transfers.get(at).map_or(0, |it| it.bytes.get());
                bytes as f64 * 8e-6 / outcome.lasted.as_secs_f64()
            };
            let accepted = |outcome: &Outcome, at: usize| {
                let report = outcome.transfers.get(at).and_then(|it| it.report);
                f64::from(u8::from(report.is_some_and(|report| report.class == Class::Responsive)))
            };
            row("bystander", "goodput of the competing Reno flow", Unit::MbitPerS, &|it| goodput(it, 0));
            row("sender", "goodput of the sender", Unit::MbitPerS, &|it| goodput(it, 1));
            row("flood", "received rate of UDP of 30 Mbit/s", Unit::MbitPerS, &|it| {
                let bytes = it.floods.first().map_or(0, |it| it.bytes.get());
                bytes as f64 * 8e-6 / it.lasted.as_secs_f64()
            });
            row("responsive", "cycles of the sender's high layer called responsive", Unit::Percent, &|it| {
                it.transfers.get(1).map_or(f64::NAN, |it| it.responsive(Signal::Loss))
            });
            row("accepted", "that layer is in the responsive queue at the end", Unit::Count, &|it| {
                accepted(it, 1)
            });
        }
        Answer::new("Beyond: two layers through CRQ", text, rows)
    })
}
