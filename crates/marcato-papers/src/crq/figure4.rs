//! Fig. 4: responsiveness scores, and scores of more senders by Marcato's rules.

use marcato_queue::ClassConfig;
use marcato_queue::trap::{Scores, Signal};
use marcato_report::chart::HeatMap;
use marcato_report::{Figure, Row, Unit};
use marcato_sim::Congestion;
use marcato_units::{Duration, Rate};

use super::published::{ASSESSED, ASSESSED_AT, Control, RTTS, Stack};
use super::scale::{Plan, Scale, Ticket, words};
use super::scene;
use super::setup::{Bottleneck, Outcome, Responder, Setup};
use super::watched::Preset;
use crate::answer::Answer;
use crate::answer::verdict;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// A queue that gives congestion signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    DropTail,
    /// CoDel of Fig. 4, which drops or marks.
    Tight {
        ecn: bool,
    },
    /// CoDel of Fig. 5.
    Codel {
        ecn: bool,
    },
}

impl Queue {
    /// Queues of Fig. 4.
    const FIGURE_4: [Self; 3] = [Self::DropTail, Self::Tight { ecn: false }, Self::Tight { ecn: true }];
    /// Queues of Figs. 4 and 5.
    const ALL: [Self; 5] = [
        Self::DropTail,
        Self::Tight { ecn: false },
        Self::Tight { ecn: true },
        Self::Codel { ecn: false },
        Self::Codel { ecn: true },
    ];

    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::DropTail => "dt",
            Self::Tight { ecn: false } => "drop",
            Self::Tight { ecn: true } => "ecn",
            Self::Codel { ecn: false } => "drop-fig5",
            Self::Codel { ecn: true } => "ecn-fig5",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::Tight { ecn: false } => "CoDel, drop",
            Self::Tight { ecn: true } => "CoDel, ECN",
            Self::Codel { ecn: false } => "CoDel of Fig. 5, drop",
            Self::Codel { ecn: true } => "CoDel of Fig. 5, ECN",
        }
    }

    pub(super) const fn marks(self) -> bool {
        matches!(self, Self::Tight { ecn: true } | Self::Codel { ecn: true })
    }

    /// Signal by which responsiveness is assessed at this queue.
    pub(super) const fn signal(self) -> Signal {
        if self.marks() { Signal::Ecn } else { Signal::Loss }
    }

    pub(super) fn class(self, rate: Rate, rtt: Duration) -> ClassConfig {
        match self {
            Self::DropTail => scene::drop_tail(rate, rtt),
            Self::Tight { ecn } => scene::tight_codel(rate, rtt, ecn),
            Self::Codel { ecn } => scene::codel(rate, rtt, ecn),
        }
    }

    /// A single flow at this queue, observed by traps.
    fn alone(self, plan: &Plan, rtt: Duration, by: Responder) -> Setup {
        let bottleneck = Bottleneck::Watched(self.class(ASSESSED_AT, rtt), 0.0);
        let setup = Setup::new(ASSESSED_AT, rtt, bottleneck, self.marks());
        setup.transfer(by, plan.scale.bytes(ASSESSED), 0)
    }
}

/// Name of the stack in row ids of Fig. 4.
const fn dotted(stack: Stack) -> &'static str {
    match stack {
        Stack::Quic(Control::Cubic) => "quic.cubic.u",
        Stack::Quic(Control::Bbr) => "quic.bbr.u",
        Stack::OneWay(Control::Cubic) => "tcp.cubic.u",
        Stack::OneWay(Control::Bbr) => "tcp.bbr.u",
        Stack::BothWays(Control::Cubic) => "tcp.cubic.b",
        Stack::BothWays(Control::Bbr) => "tcp.bbr.b",
    }
}

/// Score in percent; not a number if there was nothing to score.
pub(super) fn percent(score: Option<u32>) -> f64 {
    score.map_or(f64::NAN, |score| f64::from(score) / 10.0)
}

fn of(outcome: &Outcome, preset: Preset) -> Scores {
    outcome.transfers.first().map(|it| it.scores[preset as usize]).unwrap_or_default()
}

fn raw(runs: &Runs, ticket: Ticket, queue: Queue, preset: Preset) -> Vec<f64> {
    runs.each(ticket, |outcome| percent(of(outcome, preset).raw(queue.signal())))
}

fn assessed(runs: &Runs, ticket: Ticket, queue: Queue, preset: Preset) -> Vec<f64> {
    runs.each(ticket, |outcome| percent(of(outcome, preset).assessed(queue.signal())))
}

type Cell = (Queue, Duration, Stack, Ticket);

/// Fig. 4: responsiveness scores of single flows, by each set of rules.
pub(super) fn figure_4(plan: &mut Plan) -> Ask {
    let (claims, scale) = (plan.scale.claims, plan.scale);
    let mut cells: Vec<Cell> = Vec::new();
    for queue in Queue::FIGURE_4 {
        for rtt in RTTS {
            for stack in Stack::ALL {
                let setup = queue.alone(plan, rtt, Responder::Stack(stack));
                cells.push((queue, rtt, stack, plan.add(setup)));
            }
        }
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for &(queue, rtt, stack, ticket) in &cells {
            for preset in Preset::ALL {
                let id =
                    format!("crq.fig4.{}.{}.{}.{}", queue.id(), rtt.as_millis(), dotted(stack), preset.id());
                let of = format!(
                    "{}, {} ms, {}, {} rules",
                    queue.name(),
                    rtt.as_millis(),
                    stack.name(),
                    preset.id()
                );
                rows.push(
                    Row::new(id.clone(), format!("responsive cycles of all, {of}"), Unit::Percent)
                        .samples(&raw(runs, ticket, queue, preset)),
                );
                rows.push(
                    Row::new(
                        format!("{id}.assessed"),
                        format!("responsive cycles of those judged, {of}"),
                        Unit::Percent,
                    )
                    .samples(&assessed(runs, ticket, queue, preset)),
                );
            }
        }
        rows.extend(said(runs, &cells, claims));
        let mut answer = Answer::new("Fig. 4: responsiveness scores", text(scale), rows);
        for preset in Preset::ALL {
            answer.section = answer.section.figure(picture(runs, &cells, preset));
        }
        answer
    })
}

fn text(scale: Scale) -> String {
    prose::text(&format!(include_str!("figure4.md"), size = words(scale.bytes(ASSESSED))))
}

/// Rows for the paper's statements about its scores.
fn said(runs: &Runs, cells: &[Cell], claims: bool) -> Vec<Row> {
    let mean = |queue: Queue, rtt: Duration, stack: Stack| {
        let cell = cells.iter().find(|&&(q, r, s, _)| (q, r, s) == (queue, rtt, stack));
        cell.map_or(f64::NAN, |&(queue, _, _, ticket)| {
            marcato_report::Mean::of(&raw(runs, ticket, queue, Preset::Authors)).value
        })
    };
    let both = |control: Control| [Stack::OneWay(control), Stack::BothWays(control)];
    let (drop, ecn) = (Queue::Tight { ecn: false }, Queue::Tight { ecn: true });
    let all = |queue: Queue, rtts: &[Duration], stacks: &[Stack], responsive: bool| {
        rtts.iter().all(|&rtt| stacks.iter().all(|&stack| (mean(queue, rtt, stack) >= 50.0) == responsive))
    };
    let one_way = [Stack::OneWay(Control::Cubic), Stack::OneWay(Control::Bbr)];
    let both_ways = [Stack::BothWays(Control::Cubic), Stack::BothWays(Control::Bbr)];
    let quic = |control: Control| [Stack::Quic(control)];
    let claimed = [
        ("ecn.cubic", "CoDel-ECN: TCP CUBIC is responsive", all(ecn, &RTTS, &both(Control::Cubic), true)),
        ("ecn.bbr", "CoDel-ECN: TCP BBR is not", all(ecn, &RTTS, &both(Control::Bbr), false)),
    ];
    let shown = [
        (
            "dt.cubic",
            "drop-tail: TCP CUBIC is responsive",
            all(Queue::DropTail, &RTTS, &both(Control::Cubic), true),
        ),
        (
            "dt.bbr",
            "drop-tail: TCP BBR is responsive",
            all(Queue::DropTail, &RTTS, &both(Control::Bbr), true),
        ),
        (
            "dt.quic-bbr",
            "drop-tail: QUIC BBR is responsive",
            all(Queue::DropTail, &RTTS, &quic(Control::Bbr), true),
        ),
        ("drop.u", "CoDel-drop: one-way TCP is always responsive", all(drop, &RTTS, &one_way, true)),
        ("drop.b", "CoDel-drop: both ways, TCP is not at 5 ms", all(drop, &RTTS[..1], &both_ways, false)),
        ("drop.quic-cubic", "CoDel-drop: QUIC CUBIC is not", all(drop, &RTTS, &quic(Control::Cubic), false)),
        ("ecn.quic-bbr", "CoDel-ECN: QUIC BBR is responsive", all(ecn, &RTTS, &quic(Control::Bbr), true)),
    ];
    let row = |(id, what, held): (&str, &str, bool), claims| {
        verdict(format!("crq.fig4.said.{id}"), what, held, claims)
    };
    claimed.into_iter().map(|it| row(it, claims)).chain(shown.into_iter().map(|it| row(it, false))).collect()
}

fn picture(runs: &Runs, cells: &[Cell], preset: Preset) -> Figure {
    let columns: Vec<_> = Queue::FIGURE_4.iter().flat_map(|&queue| RTTS.map(|rtt| (queue, rtt))).collect();
    let title = format!("Responsive cycles of all, in %, {} rules", preset.id());
    let names =
        columns.iter().map(|(queue, rtt)| (queue.name().to_owned(), format!("{} ms", rtt.as_millis())));
    let map = HeatMap::new(title, 0.0, 100.0).columns(names);
    let map = Stack::ALL.into_iter().fold(map, |map, stack| {
        let values = columns.iter().map(|&(queue, rtt)| {
            let cell = cells.iter().find(|&&(q, r, s, _)| (q, r, s) == (queue, rtt, stack));
            cell.map_or(f64::NAN, |&(queue, _, _, ticket)| {
                marcato_report::Mean::of(&raw(runs, ticket, queue, preset)).value
            })
        });
        map.row(stack.name(), values)
    });
    Figure::new(format!("fig4-{}", preset.id()), map, format!("Fig. 4 by the {} rules.", preset.id()))
}

/// Responsive senders, by Marcato's rules.
pub(super) fn senders(plan: &mut Plan) -> Ask {
    const SENDERS: [(&str, Congestion); 3] =
        [("cubic", Congestion::CUBIC), ("reno", Congestion::Reno), ("dctcp", Congestion::Dctcp)];
    let claims = plan.scale.claims;
    let mut cells = Vec::new();
    for queue in Queue::ALL {
        for rtt in RTTS {
            for (name, congestion) in SENDERS {
                // DCTCP responds to marks, which this queue does not give.
                if congestion == Congestion::Dctcp && !queue.marks() {
                    continue;
                }
                for both in [false, true] {
                    let by = match (congestion.clone(), both) {
                        (Congestion::Cubic(_), false) => Responder::Stack(Stack::OneWay(Control::Cubic)),
                        (Congestion::Cubic(_), true) => Responder::Stack(Stack::BothWays(Control::Cubic)),
                        _ => Responder::Tcp(congestion.clone(), both),
                    };
                    let ticket = plan.add(queue.alone(plan, rtt, by));
                    cells.push((queue, rtt, name, if both { "b" } else { "u" }, ticket));
                }
            }
        }
    }
    Box::new(move |runs: &Runs| {
        let row = |&(queue, rtt, name, way, ticket): &(Queue, Duration, &str, &str, Ticket)| {
            let id = format!("crq.assessed.{}.{}.{name}.{way}", queue.id(), rtt.as_millis());
            let what = format!(
                "responsive cycles of those judged, {}, {} ms, {name} ({way}), marcato rules",
                queue.name(),
                rtt.as_millis()
            );
            let judged: Vec<f64> = assessed(runs, ticket, queue, Preset::Marcato)
                .into_iter()
                .filter(|value| value.is_finite())
                .collect();
            let row = Row::new(id, what, Unit::Percent).samples(&judged);
            if claims && !judged.is_empty() { row.at_least(90.0) } else { row }
        };
        let rows: Vec<Row> = cells.iter().map(row).collect();
        Answer::new(
            "Senders that answer, by Marcato's rules",
            prose::text(include_str!("figure4-senders.md")),
            rows,
        )
    })
}
