//! Figs. 5 and 6: three sources together, on paths of equal and of different round-trip times.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Percentile, Row, Unit};
use marcato_units::Duration;

use super::latency::{PERCENTILES, colour, red_helps};
use super::mct;
use super::published::{DIFFERENT_RTTS, SAME_RTT, Scheduler, TABLE_2};
use super::scale::{Plan, Ticket};
use super::setup::Setup;
use super::{id, source_name};
use crate::answer::Answer;
use crate::answer::verdict;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Pairs of round-trip times.
const RTTS: [[Duration; 2]; 3] = [SAME_RTT, DIFFERENT_RTTS[0], DIFFERENT_RTTS[1]];

fn rtts_id(rtts: [Duration; 2]) -> String {
    format!("{}-{}", rtts[0].as_millis(), rtts[1].as_millis())
}

fn rtts_name(rtts: [Duration; 2]) -> String {
    format!("round trips of {} and {} ms", rtts[0].as_millis(), rtts[1].as_millis())
}

fn setup(plan: &Plan, scheduler: Scheduler, rtts: [Duration; 2]) -> Setup {
    Setup::paper(scheduler, rtts, &TABLE_2, plan.scale.several)
}

/// Largest difference that counts as "nearly identical" (§IV-C2), in %; [`NEAR_MS`] gives it in ms.
const NEAR_PERCENT: f64 = 10.0;
const NEAR_MS: f64 = 2.0;

/// Figs. 5 and 6: completion times of three sources together.
pub(super) fn multiple(plan: &mut Plan) -> Ask {
    let claims = plan.scale.claims;
    let all = RTTS.map(|rtts| {
        (
            rtts,
            Scheduler::ALL.map(|scheduler| {
                let setup = setup(plan, scheduler, rtts);
                (scheduler, plan.add(setup))
            }),
        )
    });
    Box::new(move |runs: &Runs| {
        let (mut rows, mut figures) = (Vec::new(), Vec::new());
        for (rtts, schedulers) in all {
            for (index, source) in TABLE_2.into_iter().enumerate() {
                let at = format!("cwr.multi.{}.s{}", rtts_id(rtts), index + 1);
                let of = format!("S{} ({}), {}", index + 1, source_name(source), rtts_name(rtts));
                for (scheduler, ticket) in schedulers {
                    for (name, what, percentile) in PERCENTILES {
                        let id = format!("{at}.{}.{name}", id(scheduler));
                        let what = format!("completion of messages, {what}, {of}, {scheduler}");
                        rows.push(
                            Row::new(id, what, Unit::Ms)
                                .samples(&mct::percentiles(runs, ticket, index, percentile)),
                        );
                    }
                }
                let [_, once, twice] = schedulers.map(|(_, ticket)| mct::samples(runs, ticket, index));
                if rtts == SAME_RTT {
                    rows.push(red_helps(format!("{at}.red_helps"), &of, &once, &twice, claims));
                } else if rtts == DIFFERENT_RTTS[1] {
                    let [cwr, red] =
                        [once, twice].map(|mcts| mcts.percentile(Percentile::P99).unwrap_or(f64::NAN));
                    let near = (red - cwr).abs() <= f64::max(NEAR_MS, cwr * NEAR_PERCENT / 100.0);
                    let what =
                        format!("CWR and CWR+RED are nearly identical: 99 % within 10 % or 2 ms, {of}");
                    rows.push(verdict(format!("{at}.near"), what, near, claims));
                }
                figures.push(ccdf(runs, &schedulers, index, rtts));
            }
        }
        let answer =
            Answer::new("Figs. 5 and 6: three sources", prose::text(include_str!("multiple.md")), rows);
        let section = figures.into_iter().fold(answer.section, marcato_report::Section::figure);
        Answer { section, ..answer }
    })
}

fn ccdf(runs: &Runs, schedulers: &[(Scheduler, Ticket)], index: usize, rtts: [Duration; 2]) -> Figure {
    let title = format!("S{}, {}", index + 1, rtts_name(rtts));
    let chart = LineChart::ccdf(&title, Axis::new("completion", "ms").window(0.0, 250.0), true).down_to(1e-4);
    let chart = schedulers.iter().fold(chart, |chart, &(scheduler, ticket)| {
        let samples = mct::samples(runs, ticket, index);
        chart.series(
            Series::ccdf(scheduler.name(), samples.sorted().iter().copied()).colour(colour(scheduler)),
        )
    });
    let number = if rtts == SAME_RTT { 5 } else { 6 };
    Figure::new(
        format!("fig{number}-{}-s{}", rtts_id(rtts), index + 1),
        chart,
        format!("As Fig. {number}: CCDF of completion times; all seeds."),
    )
}

/// Smoothed round-trip times that the sender measures.
pub(super) fn srtt(plan: &mut Plan) -> Ask {
    let all = RTTS.map(|rtts| {
        let usual = setup(plan, Scheduler::Cwr, rtts);
        let backup = Setup { backup: Some(0), span: plan.scale.short, ..usual.clone() };
        // The receiver's declaration affects its own acknowledgements only; the scheduler still
        // sends data on this path.
        let backup = backup.with_session(|session| session.follow_peer_backup = false);
        (
            rtts,
            [
                ("", "", plan.add(usual)),
                (".backup", ", the receiver's first path a backup", plan.add(backup)),
            ],
        )
    });
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for (rtts, runs_of) in all {
            for (suffix, what, ticket) in runs_of {
                for path in 0..rtts.len() {
                    let at = format!("cwr.srtt.{}.path{}{suffix}", rtts_id(rtts), path + 1);
                    let what = format!(
                        "smoothed round-trip time at the sender, path {}, {}, CWR{what}",
                        path + 1,
                        rtts_name(rtts)
                    );
                    rows.push(
                        Row::new(at, what, Unit::Ms)
                            .samples(&runs.each(ticket, |outcome| outcome.lanes[path].srtt)),
                    );
                }
                if !suffix.is_empty() {
                    for (index, source) in TABLE_2.into_iter().enumerate() {
                        for (name, what, percentile) in PERCENTILES {
                            let at = format!("cwr.srtt.{}.s{}.{name}{suffix}", rtts_id(rtts), index + 1);
                            let what = format!(
                                "completion of messages, {what}, S{} ({}), {}, CWR, the receiver's first path a backup",
                                index + 1,
                                source_name(source),
                                rtts_name(rtts)
                            );
                            rows.push(
                                Row::new(at, what, Unit::Ms)
                                    .samples(&mct::percentiles(runs, ticket, index, percentile)),
                            );
                        }
                    }
                }
            }
        }
        Answer::new("Measured round-trip times", prose::text(include_str!("multiple-srtt.md")), rows)
    })
}
