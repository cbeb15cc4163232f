//! Beyond the paper: a video call that competes with a flood.

use marcato_queue::{
    Aqm, Buffer, ClassConfig, CodelConfig, CrqConfig, FlowTableConfig, FqCodelConfig, Limit, QuicRule,
};
use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Percentile, Row, Samples, Unit};
use marcato_units::{Bytes, Duration, Rate};

use super::scale::{Plan, Ticket};
use super::setup::{Bottleneck, Guest, MTU, Outcome, Setup, Unresponsive};
use super::watched::Preset;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Rate of an access link.
const LINK: Rate = Rate::from_mbps(20);
const RTT: Duration = Duration::from_millis(20);
/// Room of a single queue: a tenth of a second.
const BUFFER: Bytes = Bytes::kb(250);
const SPAN: Duration = Duration::from_secs(60);
/// Delay in ms above which a frame disturbs a conversation. ITU-T G.114 allows 150 ms one way, and
/// this path takes 10.
const LATE: f64 = 200.0;
/// Floods: more than the link carries, and less than half of it.
const FLOODS: [(&str, &str, Rate); 2] = [
    ("over", "a flood of 30 Mbit/s", Rate::from_mbps(30)),
    ("half", "a flood of 9 Mbit/s", Rate::from_mbps(9)),
];

const fn codel(ecn: bool) -> Aqm {
    Aqm::Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn }
}

fn plain(aqm: Aqm) -> Bottleneck {
    Bottleneck::Plain(ClassConfig { aqm, buffer: Buffer::Bytes(BUFFER), share: 1 })
}

fn crq(rules: Preset) -> Bottleneck {
    let class = ClassConfig { aqm: codel(true), buffer: Buffer::Bytes(BUFFER), share: 1 };
    let config = CrqConfig::new(LINK, RTT, true);
    Bottleneck::Crq(CrqConfig {
        standard: class,
        queues: marcato_queue::Queues::Two { responsive: class, admission: marcato_queue::Admission::Any },
        trap: rules.rules(),
        quic: QuicRule::Handshake,
        flows: FlowTableConfig { flows: 1024, ..FlowTableConfig::default() },
        ..config
    })
}

fn fq_codel() -> Bottleneck {
    let default = FqCodelConfig::default();
    let codel = CodelConfig { limit: Limit::Bytes(BUFFER), maxpacket: MTU, ..default.codel };
    Bottleneck::FqCodel(FqCodelConfig { codel, ..default })
}

/// Each queue with each flood.
pub(super) fn call(plan: &mut Plan) -> Ask {
    let queues = [
        ("droptail", "drop-tail", plain(Aqm::DropTail)),
        ("codel", "CoDel", plain(codel(true))),
        ("fq-codel", "FQ-CoDel", fq_codel()),
        ("crq-authors", "CRQ, authors rules", crq(Preset::Authors)),
        ("crq-marcato", "CRQ, marcato rules", crq(Preset::Marcato)),
    ];
    let span = plan.scale.span(SPAN);
    let mut cells: Vec<(&str, &str, &str, &str, Ticket)> = Vec::new();
    for (flood, how, rate) in FLOODS {
        for (queue, name, bottleneck) in queues {
            let setup = Setup::new(LINK, RTT, bottleneck, true);
            let setup = setup.flood(Unresponsive::udp(rate, span / 10, 1));
            let setup = Setup { guest: Some(Guest::Call), at_most: span, seeds: 3, ..setup };
            cells.push((flood, how, queue, name, plan.add(setup)));
        }
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for &(flood, how, queue, name, ticket) in &cells {
            let frames = |percentile: Percentile| {
                runs.each(ticket, |outcome| late(outcome).percentile(percentile).unwrap_or(f64::NAN))
            };
            let row = |what: &str, why: &str, unit, values: &[f64]| {
                Row::new(format!("crq.call.{flood}.{queue}.{what}"), format!("{why}, {name}, {how}"), unit)
                    .samples(values)
            };
            rows.push(row("p50", "delay of a frame, median", Unit::Ms, &frames(Percentile::P50)));
            rows.push(row("p99", "delay of a frame, 99 %", Unit::Ms, &frames(Percentile::P99)));
            let never = runs.each(ticket, |outcome| late(outcome).share_above(LATE) * 100.0);
            let why = "frames later than 200 ms, or not received by the end";
            rows.push(row("late", why, Unit::Percent, &never));
            let goodput =
                runs.each(ticket, |outcome| outcome.guest.get() as f64 * 8e-6 / outcome.lasted.as_secs_f64());
            rows.push(row("goodput", "goodput of the call", Unit::MbitPerS, &goodput));
        }
        let mut answer =
            Answer::new("Beyond: a video call beside a flood", prose::text(include_str!("call.md")), rows);
        for (flood, how, _) in FLOODS {
            let chart = LineChart::ccdf(
                format!("Delay of frames beside {how}"),
                Axis::new("delay", "ms").log(),
                true,
            );
            let of = cells.iter().filter(|cell| cell.0 == flood);
            let chart = of.fold(chart.down_to(1e-3), |chart, &(_, _, _, name, ticket)| {
                let all: Samples =
                    runs.of(ticket).iter().flat_map(|outcome| outcome.frames.iter().copied()).collect();
                chart.series(Series::ccdf(name, all.sorted().iter().copied()))
            });
            answer.section =
                answer.section.figure(Figure::new(format!("call-{flood}"), chart, "CCDF of all frames."));
        }
        answer
    })
}

fn late(outcome: &Outcome) -> Samples {
    outcome.frames.iter().copied().collect()
}
