//! A new stream for each message, or reused streams.

use marcato_quic::StreamUse;
use marcato_report::Unit;

use super::beyond::{GOODPUT, Metric, OVERHEAD, P50, P99, P999, every, ratio, read, rows, setup};
use super::published::{Periodic, Scheduler};
use super::scale::Plan;
use super::{source_id, source_name};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// One period is longer than a round trip, one shorter.
const SOURCES: [Periodic; 2] = [every(100, 10), every(20, 10)];

const USES: [(StreamUse, &str, &str); 2] = [
    (StreamUse::PerMessage, "new", "a stream for each message"),
    (StreamUse::Reuse, "reused", "streams reused once acknowledged"),
];

const METRICS: [Metric; 7] = [
    P50,
    P99,
    P999,
    GOODPUT,
    OVERHEAD,
    ("back", "IP bytes on the return path over message bytes read", Unit::Ratio, |outcome| {
        ratio(outcome.lanes.iter().map(|lane| lane.back).sum(), read(outcome))
    }),
    (
        "blocked",
        "times that a message waited for flow control or a stream, whole run",
        Unit::Count,
        |outcome| outcome.stats.flow_blocked as f64,
    ),
];

/// Each source with each use of streams.
pub(super) fn reuse(plan: &mut Plan) -> Ask {
    let cells = SOURCES.map(|source| {
        USES.map(|(streams, ..)| {
            let setup = setup(plan, Scheduler::Cwr, source);
            plan.add(setup.with_session(|session| session.streams = streams))
        })
    });
    Box::new(move |runs: &Runs| {
        let mut all = Vec::new();
        for (source, tickets) in SOURCES.into_iter().zip(cells) {
            for ((_, name, what), ticket) in USES.into_iter().zip(tickets) {
                let at = format!("cwr.reuse.{}.{name}", source_id(source));
                let of = format!("{}, {what}, CWR", source_name(source));
                all.extend(rows(runs, ticket, &at, &of, &METRICS));
            }
        }
        Answer::new("Beyond: reused streams", prose::text(include_str!("reuse.md")), all)
    })
}
