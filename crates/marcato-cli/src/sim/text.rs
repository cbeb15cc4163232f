//! Results as tables for a terminal.

use std::fmt::Write as _;

use marcato_report::{Mean, Percentile, Samples};
use marcato_results::direction;
use marcato_scenario::Run;
use marcato_sim::scenario::Outcome;

use super::grid::Point;
use super::summary::has_intervals;
use crate::table::Table;

/// Formats a number with its significant digits, or a dash if there is none.
pub(crate) fn number(value: impl Into<Option<f64>>) -> String {
    match value.into().filter(|value| value.is_finite()) {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(value) if value.abs() < 1.0 => format!("{value:.3}"),
        Some(value) if value.abs() < 100.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// Mark of a percentile that is the longest of its completions, and of one among the five longest.
const MARKS: [&str; 2] = [" max", " *"];
/// Explanations of these marks.
const NOTES: [&str; 2] = [
    "max: the longest; there are too few completions for this percentile",
    "*: one of the five longest; a few completions decide it",
];

/// Formats a percentile of completion times, marked if they are few.
fn percentile(samples: &Samples, percentile: Percentile) -> String {
    let value = samples.percentile(percentile).filter(|value| value.is_finite());
    marked(number(value), value.is_some(), percentile, samples.len())
}

/// Adds the mark of a percentile of a number of completions.
fn marked(text: String, has_value: bool, percentile: Percentile, count: usize) -> String {
    match percentile.of_few(count, "") {
        Some(_) if has_value => text + MARKS[usize::from(percentile.from_greatest(count) > 1)],
        _ => text,
    }
}

/// Returns the explanations of the marks in a table.
fn notes(table: &str) -> String {
    let used = MARKS.iter().zip(NOTES).filter(|(mark, _)| table.contains(*mark));
    used.map(|(_, note)| format!("  {note}\n")).collect()
}

/// Returns the result of one run.
pub(crate) fn of_run(run: &Run, outcome: &Outcome) -> String {
    let experiment = &run.experiment;
    let mut text = experiment.name.clone();
    if !experiment.about.is_empty() {
        text += ": ";
        text += &experiment.about;
    }
    let seed = if experiment.is_random() { "" } else { " (nothing is random: every seed gives the same)" };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\nseed {}{seed}, {} s, of which the first {} s are not measured\n",
        run.seed.get(),
        experiment.duration.as_secs_f64(),
        experiment.warm_up.as_secs_f64()
    );
    if !run.notes.is_empty() {
        let _ = writeln!(text, "left out, since they come after the end: {}\n", run.notes.join(", "));
    }
    let header = [
        "flow", "kind", "Mbit/s", "packets", "lost", "repeated", "timeouts", "RTT ms", "least ms", "delay ms",
    ];
    let mut table = Table::new(header).words(2);
    for flow in &outcome.flows {
        table.row([
            flow.name.clone(),
            flow.kind.to_owned(),
            number(flow.goodput),
            flow.sent.to_string(),
            flow.losses.to_string(),
            flow.retransmissions.to_string(),
            flow.timeouts.to_string(),
            number(flow.rtt),
            number(flow.min_rtt),
            number(flow.delay),
        ]);
    }
    let _ = writeln!(text, "{table}");
    if outcome.flows.iter().any(|flow| !flow.times.is_empty()) {
        let header = [
            "flow",
            "completion of",
            "level",
            "completed",
            "unfinished",
            "refused",
            "p50 ms",
            "p95 ms",
            "p99 ms",
        ];
        let mut table = Table::new(header).words(3);
        for (flow, times) in
            outcome.flows.iter().flat_map(|flow| flow.times.iter().map(move |times| (flow, times)))
        {
            let samples: Samples = times.samples().collect();
            table.row([
                flow.name.clone(),
                times.name.clone(),
                times.priority.map_or_else(|| "-".to_owned(), |priority| priority.to_string()),
                times.done.len().to_string(),
                times.open.len().to_string(),
                times.refused.to_string(),
                percentile(&samples, Percentile::P50),
                percentile(&samples, Percentile::P95),
                percentile(&samples, Percentile::P99),
            ]);
        }
        let table = table.to_string();
        let _ = writeln!(text, "{table}{}", notes(&table));
    }
    if !outcome.groups.is_empty() {
        let header = [
            "flows together",
            "kind",
            "members",
            "sum Mbit/s",
            "mean Mbit/s",
            "Jain's index",
            "p50 ms",
            "p95 ms",
            "p99 ms",
        ];
        let mut table = Table::new(header).words(2);
        for group in &outcome.groups {
            let samples: Samples = group.completions.iter().copied().collect();
            table.row([
                group.name.clone(),
                group.kind.to_owned(),
                group.members.len().to_string(),
                number(group.goodput),
                number(group.mean()),
                number(group.jain()),
                percentile(&samples, Percentile::P50),
                percentile(&samples, Percentile::P95),
                percentile(&samples, Percentile::P99),
            ]);
        }
        let table = table.to_string();
        let _ = writeln!(text, "{table}{}", notes(&table));
    }
    let header = ["link", "way", "Mbit/s", "used %", "queue kB", "most kB", "drops", "marks", "lost"];
    let mut table = Table::new(header).words(2);
    for link in &outcome.links {
        table.row([
            link.name.clone(),
            direction(link.back).to_owned(),
            number(link.throughput),
            number(link.utilisation.map(|share| share * 100.0)),
            number(link.waiting.mean_bytes / 1e3),
            number(link.waiting.most_bytes.get() as f64 / 1e3),
            (link.drops + link.too_big).to_string(),
            link.marks.to_string(),
            link.losses.to_string(),
        ]);
    }
    let _ = write!(text, "{table}");
    if !outcome.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &outcome.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// Returns whether a metric is shown on the terminal; the files have all.
pub(crate) fn is_shown(metric: &str) -> bool {
    let ends = [
        "goodput_mbit_per_s",
        "goodput_sum_mbit_per_s",
        "jain_index",
        "delay_mean_ms",
        "rtt_mean_ms",
        "completion_p50_ms",
        "completion_p99_ms",
        "utilisation_percent",
        "queue_mean_bytes",
    ];
    // Only totals, `flow.NAME.METRIC`, and not metrics of a flow's or a link's parts.
    ends.iter().any(|end| metric.ends_with(end)) && metric.matches('.').count() == 2
}

/// Returns the whole part of a mean of counts.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are small and not negative"
)]
pub(super) fn whole(mean: &Mean) -> usize {
    mean.value as usize
}

/// Percentiles on the terminal.
const PERCENTILES: [(&str, Percentile); 2] =
    [("completion_p50_ms", Percentile::P50), ("completion_p99_ms", Percentile::P99)];

/// Number of points in one table.
const ABREAST: usize = 5;

/// Returns the result of a grid: the most important metrics, with a column for each point.
pub(crate) fn of_grid(name: &str, points: &[Point]) -> String {
    let mut text = String::new();
    let runs: usize = points.iter().map(|point| point.seeds.len()).sum();
    let values = match points.iter().map(|point| point.seeds.len()).max() {
        Some(2..) if has_intervals(points) => "means over seeds ± 95 % confidence intervals",
        Some(2..) => "means over seeds",
        _ => "values of one seed",
    };
    let _ = writeln!(text, "{name}: {runs} runs, {values}");
    if let Some(unrandom) = super::grid::unrandom(points) {
        let _ = writeln!(text, "{unrandom}");
    }
    let numbered: Vec<(usize, &Point)> = (1..).zip(points).collect();
    for points in numbered.chunks(ABREAST) {
        text.push('\n');
        for (number, point) in points {
            let settings: Vec<String> =
                point.settings.iter().map(|one| format!("{} = {}", one.key, one.value)).collect();
            let _ = writeln!(text, "[{number}] {}", settings.join(", "));
        }
        let header = points.iter().map(|(number, _)| format!("[{number}]"));
        let mut table = Table::new(["metric".to_owned()].into_iter().chain(header));
        for metric in shown(points) {
            let cells = points.iter().map(|(_, point)| cell(point, metric));
            table.row([metric.to_owned()].into_iter().chain(cells));
        }
        let table = table.to_string();
        let _ = write!(text, "{table}{}", notes(&table));
    }
    text
}

fn mean<'a>(point: &'a Point, metric: &str) -> Option<&'a Mean> {
    let found = point.metrics.iter().find(|(name, _)| name == metric);
    found.map(|(_, mean)| mean).filter(|mean| mean.n > 0)
}

fn cell(point: &Point, metric: &str) -> String {
    let Some(mean) = mean(point, metric) else { return "-".to_owned() };
    let text = match mean.ci95 {
        Some(ci95) => format!("{} ± {}", number(mean.value), number(ci95)),
        None => number(mean.value),
    };
    let Some((percentile, stem)) =
        PERCENTILES.iter().find_map(|(end, percentile)| Some((*percentile, metric.strip_suffix(end)?)))
    else {
        return text;
    };
    match self::mean(point, &format!("{stem}completion_samples")) {
        Some(samples) => marked(text, true, percentile, whole(samples)),
        None => text,
    }
}

/// Returns the most important metrics that have a value, in order. Links without a rate have none.
fn shown<'a>(points: &[(usize, &'a Point)]) -> Vec<&'a str> {
    let exists = |metric: &str| points.iter().any(|(_, point)| mean(point, metric).is_some());
    let mut shown: Vec<&str> = Vec::new();
    for (metric, _) in points.iter().flat_map(|(_, point)| &point.metrics) {
        let link = metric.strip_suffix("queue_mean_bytes").filter(|_| metric.starts_with("link."));
        let has_rate = link.is_none_or(|link| exists(&format!("{link}utilisation_percent")));
        // Completion time of each message that has a name.
        let named = metric.strip_suffix("completion_p50_ms").filter(|stem| stem.matches('.').count() == 3);
        let is_alone =
            named.is_some_and(|stem| !stem.ends_with(".transfer.") && exists(&format!("{stem}released_s")));
        if (is_shown(metric) || is_alone) && exists(metric) && has_rate && !shown.contains(&metric.as_str()) {
            shown.push(metric);
        }
    }
    shown
}
