//! Table I and Fig. 4 over real sockets: two lanes across links of a lab, beside their simulation.

use marcato_report::{Document, Percentile, Report, Row, World};

use super::published::{Growth, SAME_RTT, Scheduler, TABLE_1};
use super::scale::{Plan, Scale, span};
use super::setup::Setup;
use super::table::Column;
use super::{CWR, config, latency, mct, source_id, source_name, table, throughput};
use crate::answer::{Answer, verdict};
use crate::error::SimulationError;
use crate::plan::Runs;
use crate::{Progress, RunError, RunOptions, lab, prose};

/// Cells of Table I that are run: those with a message every 50 ms.
const CELLS: &[Growth] = TABLE_1.split_at(9).0;
/// Number of cells of a quick run: those of the first source.
const QUICK: usize = Scheduler::ALL.len();

/// Length of runs in real time. Losses are few in them, so only large differences are claimed.
const fn scale(quick: bool) -> Scale {
    let span = if quick { span(3_000, 10_000) } else { span(10_000, 60_000) };
    Scale { long: span, several: span, short: span, claims: false }
}

/// Rows and figures of one world.
struct Seen {
    runs: Runs,
    column: Column,
}

impl Seen {
    /// Runs all cells in this world, with every seed.
    fn run(world: World, options: &RunOptions, progress: &mut dyn Progress) -> Result<Self, SimulationError> {
        let mut plan = Plan::new(scale(options.quick));
        let cells = if options.quick { &CELLS[..QUICK] } else { CELLS };
        let cells = cells.iter().map(|&cell| {
            let setup = Setup::paper(cell.scheduler, SAME_RTT, &[cell.source], plan.scale.long);
            let setup = if world == World::Lab { setup.in_lab() } else { setup };
            (cell, plan.add(setup))
        });
        let column = Column { reduction: super::predict::CHECKED_ON, cells: cells.collect() };
        let runs = lab::run_plan(&plan, "CWR", world, options, progress)?;
        Ok(Self { runs, column })
    }

    /// Rows of Table I, of completion times and of goodput.
    fn rows(&self) -> [Vec<Row>; 3] {
        let Self { runs, column } = self;
        let cells = || column.cells.iter().copied();
        [
            cells().flat_map(|(cell, ticket)| table::growth(runs, false, column, cell, ticket)).collect(),
            cells().flat_map(|(cell, ticket)| latency::completions(runs, column, cell, ticket)).collect(),
            cells().flat_map(|(cell, ticket)| throughput::goodputs(runs, column, cell, ticket)).collect(),
        ]
    }

    /// Claims about the lab: the trend of Table I where it is large, and what reservations are for.
    fn verdicts(&self, quick: bool) -> [Vec<Row>; 2] {
        let Self { runs, column } = self;
        let (mut trend, mut sooner) = (Vec::new(), Vec::new());
        for cells in column.sources() {
            let [(low_rtt, low), (_, once), _] = *cells else { continue };
            let source = low_rtt.source;
            let is_large = source.size >= marcato_units::Bytes::kb(50);
            trend.push(table::order(runs, !quick && is_large, cells));
            let [low, once] =
                [low, once].map(|ticket| mct::samples(runs, ticket, 0).percentile(Percentile::P99));
            let id = format!("cwr.mct.{}.sooner", source_id(source));
            let what = format!(
                "99 % of messages complete sooner under CWR than under LowRTT, {}",
                source_name(source)
            );
            sooner.push(verdict(id, what, once < low, !quick));
        }
        [trend, sooner]
    }
}

/// Answers the questions in virtual time and in a lab.
pub(super) fn report(options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
    let mut run = |world| Seen::run(world, options, progress).map_err(|error| RunError::failed("cwr", error));
    let (simulated, real) = (run(World::Virtual)?, run(World::Lab)?);
    let [trend, sooner] = real.verdicts(options.quick);
    let titles = ["Table I", "Fig. 4, left: completion times", "Fig. 4, right: throughput"];
    let verdicts = [trend, sooner, Vec::new()];
    let text = prose::text(include_str!("lab.md"));
    let mut document = Document::new(CWR.name, options).config(config(scale(options.quick)));
    let mut sections = Vec::new();
    for (((title, verdicts), rows), other) in
        titles.into_iter().zip(verdicts).zip(real.rows()).zip(simulated.rows())
    {
        let rows: Vec<Row> = lab::beside(rows, &other).chain(verdicts).collect();
        sections.push(Answer::new(title, text.clone(), rows.clone()).section);
        document = document.with_rows(rows);
    }
    for (cells, letter) in real.column.sources().zip('a'..) {
        sections[1] = std::mem::take(&mut sections[1]).figure(latency::ccdf(&real.runs, cells, letter));
    }
    let about = "CWR: two lanes of QUIC over real sockets, across links of the lab";
    Ok(sections.into_iter().fold(Report::new("CWR in the lab", about, document), Report::section))
}

#[cfg(test)]
mod tests {
    use marcato_testing::{Need, absent, timely};

    use super::*;
    use crate::plan::Setup as _;

    /// Needs root, or user namespaces with access to `/dev/net/tun`.
    #[test]
    fn both_lanes_of_a_lab_carry_messages() {
        let source = CELLS[0].source;
        let setup = Setup::paper(Scheduler::Cwr, SAME_RTT, &[source], span(2_000, 500)).in_lab();
        if absent!(Need::Lab) {
            return;
        }
        // Half of the time between two messages.
        let pause = std::time::Duration::from_millis(25);
        let Some(outcome) = timely(env!("CARGO_PKG_NAME"), pause, || setup.run(1).unwrap()) else { return };
        let mcts: Vec<f64> = outcome.mcts(0).collect();
        // Half of a round trip of 50 ms is the least.
        assert!(
            (9..=11).contains(&mcts.len()) && mcts.iter().all(|&ms| ms >= 25.0 && ms.is_finite()),
            "{mcts:?}"
        );
        assert!(outcome.lanes.iter().all(|lane| lane.wire.get() > 100_000), "{:?}", outcome.lanes);
        assert_eq!((outcome.refused, outcome.again), (0, 0));
    }
}
