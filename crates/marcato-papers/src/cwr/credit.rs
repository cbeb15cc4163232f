//! Recovery of the window growth that a reservation costs.

use marcato_quic::Growth;
use marcato_report::chart::{Axis, BarChart, Bars, Colour};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::reserve::Framing;
use marcato_units::Bytes;

use super::beyond::{GOODPUT, GROWTH, LOST, Metric, P50, P999, every, rows, setup};
use super::latency::colour;
use super::predict::{self, CHECKED_ON};
use super::published::{LOSS, PACKET, Periodic, SAME_RTT, Scheduler};
use super::scale::{Plan, Ticket};
use super::{id, source_id, source_name};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const SOURCES: [Periodic; 2] = [every(50, 50), every(100, 25)];
const RESERVING: [Scheduler; 2] = [Scheduler::Cwr, Scheduler::CwrRed];
const GROWTHS: [(Growth, &str, &str); 2] = [
    (Growth::Acknowledged, "acknowledged", "windows grow by acknowledged data"),
    (Growth::Credited, "credited", "windows grow as if reserved room had been used"),
];
const METRICS: [Metric; 5] = [GROWTH, P50, P999, GOODPUT, LOST];

/// Tolerance in %: a window that is under-used only because it is reserved must grow as a full one.
const WHOLE_PERCENT: f64 = 5.0;

/// Returns true if a window is under-used for that reason only. A message in flight and the room
/// for the next must fit the mean window together, headers included. Otherwise the messages
/// themselves keep each other from filling it.
fn only_reserved(scheduler: Scheduler, source: Periodic) -> bool {
    let framing = Framing::new(Bytes::new(1270), Bytes::new(44)).unwrap_or(Framing::NONE);
    let wire = Periodic { size: framing.wire(source.size), ..source };
    !predict::collides(scheduler, wire, SAME_RTT[0], predict::mean_window(CHECKED_ON, LOSS, PACKET))
}

struct Cell {
    source: Periodic,
    low_rtt: Ticket,
    /// Runs under each reserving scheduler, with each growth.
    reserving: [(Scheduler, [Ticket; 2]); 2],
}

/// Each source and scheduler, with both kinds of growth.
pub(super) fn credit(plan: &mut Plan) -> Ask {
    let claims = plan.scale.claims;
    let cells = SOURCES.map(|source| Cell {
        source,
        low_rtt: plan.add(setup(plan, Scheduler::LowRtt, source)),
        reserving: RESERVING.map(|scheduler| {
            let grown = |(growth, ..): (Growth, _, _)| {
                let setup = setup(plan, scheduler, source);
                plan.add(setup.with_session(|session| session.growth = growth))
            };
            (scheduler, GROWTHS.map(grown))
        }),
    });
    Box::new(move |runs: &Runs| {
        let mut all = Vec::new();
        for Cell { source, low_rtt, reserving } in &cells {
            let at = format!("cwr.credit.{}", source_id(*source));
            let name = source_name(*source);
            all.extend(rows(
                runs,
                *low_rtt,
                &format!("{at}.lowrtt"),
                &format!("{name}, {}", Scheduler::LowRtt),
                &METRICS,
            ));
            for &(scheduler, tickets) in reserving {
                let at = format!("{at}.{}", id(scheduler));
                for (ticket, (_, growth, what)) in tickets.into_iter().zip(GROWTHS) {
                    let of = format!("{name}, {scheduler}, {what}");
                    all.extend(rows(runs, ticket, &format!("{at}.{growth}"), &of, &METRICS));
                }
                let of = |ticket: Ticket| runs.mean(ticket, GROWTH.3);
                let share = of(tickets[1]) / of(*low_rtt);
                let what =
                    format!("window growth over that of LowRTT, {name}, {scheduler}, {}", GROWTHS[1].2);
                let row = Row::new(format!("{at}.whole"), what, Unit::Ratio).measured(share);
                let margin = WHOLE_PERCENT / 100.0;
                let claimed = claims && only_reserved(scheduler, *source);
                all.push(if claimed { row.within(1.0 - margin, 1.0 + margin) } else { row });
            }
        }
        let mut answer = Answer::new(
            "Beyond: growth credited for reserved room",
            prose::text(include_str!("credit.md")),
            all,
        );
        answer.section = answer.section.figure(picture(runs, &cells));
        answer
    })
}

fn picture(runs: &Runs, cells: &[Cell]) -> Figure {
    let groups = cells.iter().flat_map(|cell| {
        RESERVING.map(|scheduler| format!("{} {scheduler}", source_id(cell.source).replace('.', "/")))
    });
    let bars = |name: &str, which: fn(&Cell, usize) -> Ticket| {
        let tickets: Vec<Ticket> =
            cells.iter().flat_map(|cell| [0, 1].map(|scheduler| which(cell, scheduler))).collect();
        let means = tickets.iter().map(|&ticket| runs.mean(ticket, GOODPUT.3));
        Bars::new(name, means).intervals(tickets.iter().map(|&ticket| runs.ci95(ticket, GOODPUT.3)))
    };
    let chart = BarChart::new("Goodput of all messages", Axis::new("goodput", "Mbit/s"))
        .groups(groups)
        .bars(bars("LowRTT", |cell, _| cell.low_rtt).colour(colour(Scheduler::LowRtt)))
        .bars(bars("acknowledged", |cell, at| cell.reserving[at].1[0]).colour(Colour::Purple))
        .bars(bars("credited", |cell, at| cell.reserving[at].1[1]).colour(Colour::Orange));
    Figure::new("credit", chart, "Period in ms / size in kB.")
}
