//! Result of one run as tables.

use marcato_report::{Percentile, Samples};
use marcato_sched::coupled::Mode;
use marcato_sim::DelaySummary;
use marcato_sim::scenario::{FlowOutcome, GroupOutcome, LinkOutcome, Outcome, SeriesOutcome, Times};
use marcato_units::Duration;

use crate::frame::Frame;

/// Results of a run as tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// One row per flow.
    pub flows: Frame,
    /// One row per kind of completion, such as a flow's transfers or messages.
    pub times: Frame,
    /// One row for each flow with several instances, and for each process.
    pub groups: Frame,
    /// One row per lane of QUIC.
    pub lanes: Frame,
    /// One row per direction of a link.
    pub links: Frame,
    /// One row per sample.
    pub series: Frame,
}

/// Columns of percentiles of completion times.
pub(crate) const COMPLETIONS: [(&str, Percentile); 4] = [
    ("completion_p50_ms", Percentile::P50),
    ("completion_p95_ms", Percentile::P95),
    ("completion_p99_ms", Percentile::P99),
    ("completion_max_ms", Percentile::MAX),
];
/// Column with the number of samples of these percentiles.
pub(crate) const SAMPLES: &str = "completion_samples";

fn percentile(samples: &Samples, percentile: Percentile) -> Option<f64> {
    samples.percentile(percentile).filter(|value| value.is_finite())
}

/// Adds columns with the percentiles of these samples, and their number.
fn completion(frame: Frame, samples: &[Samples]) -> Frame {
    let frame = COMPLETIONS.into_iter().fold(frame, |frame, (name, which)| {
        frame.number(name, samples.iter().map(move |samples| percentile(samples, which)))
    });
    let count = |samples: &Samples| (!samples.is_empty()).then_some(samples.len() as u64);
    frame.count(SAMPLES, samples.iter().map(count))
}

fn flows(flows: &[FlowOutcome]) -> Frame {
    let whole: Vec<Samples> = flows.iter().map(|flow| flow.completions().into_iter().collect()).collect();
    let frame = Frame::new()
        .text("flow", flows.iter().map(|flow| flow.name.as_str()))
        .text("kind", flows.iter().map(|flow| flow.kind))
        .number("start_s", flows.iter().map(|flow| flow.start.as_secs_f64()))
        .number("finished_s", flows.iter().map(|flow| flow.finished.map(|at| at.as_secs_f64())))
        .number("first_byte_ms", flows.iter().map(|flow| flow.first_byte))
        .count("received_bytes", flows.iter().map(|flow| flow.bytes.get()))
        .number("goodput_mbit_per_s", flows.iter().map(|flow| flow.goodput))
        .count("sent_packets", flows.iter().map(|flow| flow.sent))
        .count("lost_packets", flows.iter().map(|flow| flow.losses))
        .count("retransmissions", flows.iter().map(|flow| flow.retransmissions))
        .count("timeouts", flows.iter().map(|flow| flow.timeouts))
        .number("rtt_mean_ms", flows.iter().map(|flow| flow.rtt))
        .number("rtt_p95_ms", flows.iter().map(|flow| flow.rtt_p95))
        .number("rtt_min_ms", flows.iter().map(|flow| flow.min_rtt))
        .number("delay_mean_ms", flows.iter().map(|flow| flow.delay))
        .number("delay_p95_ms", flows.iter().map(|flow| flow.delay_p95))
        .count("low_packets", flows.iter().map(|flow| flow.low.map(|low| low.packets)))
        .count("low_lost_packets", flows.iter().map(|flow| flow.low.map(|low| low.lost)))
        .count("low_repairs", flows.iter().map(|flow| flow.low.map(|low| low.repairs)))
        .count("low_received_bytes", flows.iter().map(|flow| flow.low.map(|low| low.bytes.get())))
        .count(
            "judged_cycles",
            flows.iter().map(|flow| flow.report.map(|report| report.scores.cycles.into())),
        )
        .number("responsive_percent", flows.iter().map(|flow| Some(100.0 * flow.report?.responsive()?)))
        .count("queue_changes", flows.iter().map(|flow| flow.report.map(|report| report.changes.into())))
        .number("compete_percent", flows.iter().map(|flow| Some(100.0 * flow.coupled?.share(Mode::Compete)?)))
        .count("mode_changes", flows.iter().map(|flow| flow.coupled.map(|counts| counts.transitions)));
    completion(frame, &whole)
}

fn times(flows: &[FlowOutcome]) -> Frame {
    let all: Vec<(&str, &Times)> =
        flows.iter().flat_map(|flow| flow.times.iter().map(|times| (flow.name.as_str(), times))).collect();
    let samples: Vec<Samples> = all.iter().map(|(_, times)| times.samples().collect()).collect();
    let len = |of: fn(&Times) -> usize| all.iter().map(|(_, times)| of(times) as u64).collect::<Vec<_>>();
    let priority = |times: &Times| times.priority.map(|priority| priority.to_string()).unwrap_or_default();
    let frame = Frame::new()
        .text("flow", all.iter().map(|&(flow, _)| flow))
        .text("what", all.iter().map(|(_, times)| times.name.as_str()))
        .text("priority", all.iter().map(|(_, times)| priority(times)))
        .count("released", all.iter().map(|(_, times)| times.released))
        .count("refused", all.iter().map(|(_, times)| times.refused))
        .count("completed", len(|times| times.done.len()))
        .count("unfinished", len(|times| times.open.len()))
        .number("released_s", all.iter().map(|(_, times)| times.alone.map(|it| it.released.as_secs_f64())))
        .number("completed_s", all.iter().map(|(_, times)| Some(times.alone?.completed?.as_secs_f64())));
    completion(frame, &samples)
}

fn groups(groups: &[GroupOutcome]) -> Frame {
    let completions: Vec<Samples> =
        groups.iter().map(|group| group.completions.iter().copied().collect()).collect();
    let frame = Frame::new()
        .text("group", groups.iter().map(|group| group.name.as_str()))
        .text("kind", groups.iter().map(|group| group.kind))
        .count("members", groups.iter().map(|group| group.members.len() as u64))
        .number("goodput_sum_mbit_per_s", groups.iter().map(|group| group.goodput))
        .number("goodput_mean_mbit_per_s", groups.iter().map(GroupOutcome::mean))
        .number("jain_index", groups.iter().map(GroupOutcome::jain));
    completion(frame, &completions)
}

fn lanes(flows: &[FlowOutcome]) -> Frame {
    let all: Vec<_> =
        flows.iter().flat_map(|flow| flow.lanes.iter().map(|lane| (flow.name.as_str(), lane))).collect();
    Frame::new()
        .text("flow", all.iter().map(|&(flow, _)| flow))
        .text("lane", all.iter().map(|(_, lane)| lane.name.as_str()))
        .count("packets", all.iter().map(|(_, lane)| lane.packets))
        .count("arrived_bytes", all.iter().map(|(_, lane)| lane.bytes.get()))
        .count("lost_packets", all.iter().map(|(_, lane)| lane.lost))
        .count("repairs", all.iter().map(|(_, lane)| lane.repairs))
        .number("srtt_end_ms", all.iter().map(|(_, lane)| lane.srtt))
}

/// Returns the name of a link's direction.
pub const fn direction(back: bool) -> &'static str {
    if back { "back" } else { "there" }
}

/// Returns one value of the sojourn times of each queue, in ms.
fn queue_delay<'a>(
    links: &'a [LinkOutcome],
    of: impl Fn(DelaySummary) -> Duration + 'a,
) -> impl Iterator<Item = Option<f64>> + 'a {
    links.iter().map(move |link| link.queue_delay.map(|delay| of(delay).as_secs_f64() * 1e3))
}

fn links(links: &[LinkOutcome]) -> Frame {
    Frame::new()
        .text("link", links.iter().map(|link| link.name.as_str()))
        .text("direction", links.iter().map(|link| direction(link.back)))
        .count("offered_packets", links.iter().map(|link| link.offered))
        .count("delivered_packets", links.iter().map(|link| link.delivered))
        .count("delivered_bytes", links.iter().map(|link| link.bytes.get()))
        .number("throughput_mbit_per_s", links.iter().map(|link| link.throughput))
        .number("utilisation_percent", links.iter().map(|link| link.utilisation.map(|share| share * 100.0)))
        .number("queue_mean_bytes", links.iter().map(|link| link.waiting.mean_bytes))
        .count("queue_max_bytes", links.iter().map(|link| link.waiting.most_bytes.get()))
        .number("queue_mean_packets", links.iter().map(|link| link.waiting.mean_packets))
        .count("queue_max_packets", links.iter().map(|link| link.waiting.most_packets))
        .number("queue_delay_mean_ms", queue_delay(links, |delay| delay.mean))
        .number("queue_delay_p50_ms", queue_delay(links, |delay| delay.p50))
        .number("queue_delay_p95_ms", queue_delay(links, |delay| delay.p95))
        .number("queue_delay_p99_ms", queue_delay(links, |delay| delay.p99))
        .number("queue_delay_max_ms", queue_delay(links, |delay| delay.max))
        .count("dropped_packets", links.iter().map(|link| link.drops))
        .count("too_big_packets", links.iter().map(|link| link.too_big))
        .count("marked_packets", links.iter().map(|link| link.marks))
        .count("lost_packets", links.iter().map(|link| link.losses))
        .count("duplicated_packets", links.iter().map(|link| link.duplicates))
        .number("responsive_percent", links.iter().map(|link| link.responsive.map(|share| share * 100.0)))
}

fn series(series: &[SeriesOutcome]) -> Frame {
    let Some(first) = series.first() else { return Frame::new() };
    // All series are sampled at the same times.
    let time = Frame::new().number("time_s", first.points.iter().map(|&(at, _)| at.as_secs_f64()));
    series.iter().fold(time, |frame, one| frame.number(&one.name, one.points.iter().map(|&(_, value)| value)))
}

impl Tables {
    /// Returns the tables of a run.
    pub fn of(outcome: &Outcome) -> Self {
        Self {
            flows: flows(&outcome.flows),
            times: times(&outcome.flows),
            groups: groups(&outcome.groups),
            lanes: lanes(&outcome.flows),
            links: links(&outcome.links),
            series: series(&outcome.series),
        }
    }

    /// Returns the tables with their names, as files have them.
    pub fn named(&self) -> [(&'static str, &Frame); 6] {
        let Self { flows, times, groups, lanes, links, series } = self;
        [
            ("flows", flows),
            ("times", times),
            ("groups", groups),
            ("lanes", lanes),
            ("links", links),
            ("series", series),
        ]
    }
}
