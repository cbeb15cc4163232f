//! Losses of the paths, and the effect of losing acknowledgements as well.

use marcato_report::{Row, Unit};
use marcato_units::{Bytes, Duration};

use super::latency::PERCENTILES;
use super::mct;
use super::published::{LOSS, Periodic, SAME_RTT, Scheduler};
use super::scale::{Plan, Ticket};
use super::setup::Setup;
use super::table::columns;
use super::{id, source_name};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Packets that the paths lost, and completion times with acknowledgements lost as well.
pub(super) fn losses(plan: &mut Plan) -> Ask {
    let columns = columns(plan);
    let source = Periodic { period: Duration::from_millis(50), size: Bytes::kb(25) };
    let short = plan.scale.short;
    let variants = [Scheduler::LowRtt, Scheduler::Cwr, Scheduler::CwrRed].map(|scheduler| {
        let setup = Setup::paper(scheduler, SAME_RTT, &[source], short);
        (scheduler, plan.add(setup.with_paths(|path| path.ack_loss = LOSS)))
    });
    Box::new(move |runs: &Runs| {
        let [checked, _] = &columns;
        let lanes = |ticket: Ticket| runs.of(ticket).into_iter().flat_map(|outcome| &outcome.lanes);
        let all = || checked.cells.iter().flat_map(|&(_, ticket)| lanes(ticket));
        let [packets, lost, dropped] = [
            all().map(|lane| lane.stats.packets).sum::<u64>(),
            all().map(|lane| lane.lost).sum(),
            all().map(|lane| lane.dropped).sum(),
        ];
        let mut rows = vec![
            Row::new(
                "cwr.losses.wire",
                "data packets that the wires lost, all cells of Table I",
                Unit::Percent,
            )
            .paper(LOSS * 100.0)
            .measured(100.0 * lost as f64 / packets as f64)
            .unclaimed_because("a setting, not a result: the row shows its random outcome"),
            Row::new(
                "cwr.losses.queues",
                "data packets that queues dropped, all cells of Table I",
                Unit::Count,
            )
            .measured(dropped as f64)
            .within(0.0, 0.0),
        ];
        for (scheduler, ticket) in variants {
            let at = format!("cwr.losses.acks.{}", id(scheduler));
            let of = format!("{}, {scheduler}, acknowledgements lost as well", source_name(source));
            for path in 0..SAME_RTT.len() {
                let growth = runs.each(ticket, |outcome| outcome.lanes[path].windows.per_rtt());
                let what = format!("window growth, path {}, {of}", path + 1);
                rows.push(
                    Row::new(format!("{at}.path{}", path + 1), what, Unit::BytesPerRtt).samples(&growth),
                );
            }
            for (name, what, percentile) in PERCENTILES {
                let what = format!("completion of messages, {what}, {of}");
                let row = Row::new(format!("{at}.{name}"), what, Unit::Ms);
                rows.push(row.samples(&mct::percentiles(runs, ticket, 0, percentile)));
            }
        }
        Answer::new("Losses", prose::text(include_str!("losses.md")), rows)
    })
}
