//! Report of a grid, as a page.

use marcato_report::chart::{Axis, Interval, IntervalChart};
use marcato_report::page::{Cell, Column, Page, Section, Table};
use marcato_report::{Figure, Mean};
use marcato_results::report::{about, program};
use marcato_results::{scaled, sheet};
use marcato_scenario::{Scenario, Setting};

use super::grid::{Point, unrandom};

/// Metrics of flows and of links in the report; the files have all.
const FLOW: [&str; 9] = [
    "goodput_mbit_per_s",
    "completion_p50_ms",
    "completion_p95_ms",
    "completion_p99_ms",
    "rtt_mean_ms",
    "delay_mean_ms",
    "delay_p95_ms",
    "lost_packets",
    "retransmissions",
];
const LINK: [&str; 6] = [
    "utilisation_percent",
    "queue_mean_bytes",
    "queue_max_bytes",
    "dropped_packets",
    "marked_packets",
    "lost_packets",
];
/// Metrics with a chart.
const DRAWN: [&str; 8] = [
    "goodput_mbit_per_s",
    "completion_p50_ms",
    "completion_p99_ms",
    "delay_mean_ms",
    "utilisation_percent",
    "queue_mean_bytes",
    "lost_packets",
    "dropped_packets",
];
/// Largest number of distinguishable lines in a chart.
const MOST_LINES: usize = 12;

/// Subject of a metric: a flow, or a direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    /// Prefix of its metrics.
    stem: String,
    name: String,
    metrics: &'static [&'static str],
}

/// Returns the flows and links of all points. A link without a rate has no metric of interest and
/// is left out.
fn subjects(points: &[Point]) -> Vec<Subject> {
    let mut all: Vec<Subject> = Vec::new();
    for (metric, mean) in points.iter().flat_map(|point| &point.metrics) {
        let ends = |end: &str| metric.strip_suffix(end)?.strip_suffix('.');
        let flow = ends("goodput_mbit_per_s").filter(|stem| stem.starts_with("flow."));
        let link = ends("utilisation_percent").filter(|_| mean.n > 0);
        let Some(stem) = flow.or(link) else { continue };
        if all.iter().any(|subject| subject.stem == stem) {
            continue;
        }
        let name = stem.split_once('.').map_or(stem, |(_, name)| name);
        let name = match (link, name.strip_suffix(".back")) {
            (Some(_), Some(name)) => format!("{name}, back"),
            _ => name.to_owned(),
        };
        let metrics: &[&str] = if link.is_some() { &LINK } else { &FLOW };
        all.push(Subject { stem: stem.to_owned(), name, metrics });
    }
    all
}

fn mean<'a>(point: &'a Point, subject: &Subject, metric: &str) -> Option<&'a Mean> {
    let is_it =
        |name: &str| name.strip_prefix(&subject.stem).and_then(|rest| rest.strip_prefix('.')) == Some(metric);
    point.metrics.iter().find(|(name, _)| is_it(name)).map(|(_, mean)| mean).filter(|mean| mean.n > 0)
}

/// Returns the last part of a key, which identifies it to a reader.
fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Returns the name of a line in a chart: the subject, with the settings other than the one along
/// the axis.
fn line(subject: &Subject, point: &Point, along: usize, several: bool) -> String {
    let others = point.settings.iter().enumerate().filter(|&(place, _)| place != along);
    let others: Vec<String> =
        others.map(|(_, Setting { key, value })| format!("{} {value}", short(key))).collect();
    match (several, others.is_empty()) {
        (true, true) => subject.name.clone(),
        (true, false) => format!("{}, {}", subject.name, others.join(", ")),
        (false, true) => "mean".to_owned(),
        (false, false) => others.join(", "),
    }
}

/// Returns one chart of a metric by a key.
fn chart(
    points: &[Point],
    subjects: &[&Subject],
    metric: &str,
    along: usize,
) -> Option<(IntervalChart, usize)> {
    let (what, unit) = sheet::head(metric);
    let of = if let [one] = subjects { format!(" of {}", one.name) } else { String::new() };
    let key = &points.first()?.settings.get(along)?.key;
    let mut chart = IntervalChart::new(format!("{what}{of} by {}", short(key)), Axis::new(what, unit));
    let mut lines: Vec<String> = Vec::new();
    for point in points {
        for subject in subjects {
            let Some(mean) = mean(point, subject, metric) else { continue };
            let name = line(subject, point, along, subjects.len() > 1);
            if !lines.contains(&name) {
                lines.push(name.clone());
            }
            if lines.iter().position(|line| *line == name) >= Some(MOST_LINES) {
                continue;
            }
            let half = mean.ci95.unwrap_or(0.0);
            let value = &point.settings.get(along)?.value;
            let shown = Interval::new(value, name, mean.value - half, mean.value + half);
            chart = chart.interval(shown.label(number(mean.value)));
        }
    }
    (!lines.is_empty()).then_some((chart, lines.len()))
}

/// Formats a number with three digits, for a bar's label.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

/// Returns the charts by one key.
fn by_key(points: &[Point], subjects: &[Subject], along: usize) -> Vec<Figure> {
    let mut figures = Vec::new();
    for metric in DRAWN {
        let of: Vec<&Subject> = subjects.iter().filter(|subject| subject.metrics.contains(&metric)).collect();
        // A metric that is 0 everywhere needs no chart.
        let of: Vec<&Subject> = of
            .into_iter()
            .filter(|subject| {
                points.iter().any(|point| mean(point, subject, metric).is_some_and(|mean| mean.value != 0.0))
            })
            .collect();
        let others = points.len() / distinct(points, along).max(1);
        let parts: Vec<Vec<&Subject>> = match of.len() * others.max(1) {
            0 => Vec::new(),
            1..=MOST_LINES => vec![of],
            _ => of.into_iter().map(|subject| vec![subject]).collect(),
        };
        for (place, part) in parts.iter().enumerate() {
            let Some((chart, lines)) = chart(points, part, metric, along) else { continue };
            let caption = match lines.checked_sub(MOST_LINES) {
                Some(more @ 1..) => format!("{more} more lines are in the table only."),
                _ if points.iter().all(|point| !point.is_random) => "The number is the mean.".to_owned(),
                _ => "Bars are 95 % confidence intervals of the mean over seeds; the number is the mean."
                    .to_owned(),
            };
            let id = format!("by-{}-{}-{}", along + 1, metric.replace('_', "-"), place + 1);
            figures.push(Figure::new(id, chart.to_svg(), caption));
        }
    }
    figures
}

/// Returns the number of distinct values of a key.
fn distinct(points: &[Point], place: usize) -> usize {
    let mut values: Vec<&str> =
        points.iter().filter_map(|point| Some(point.settings.get(place)?.value.as_str())).collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}

/// Returns a table with a row for each combination and subject, and a column for each metric.
fn means(caption: &str, points: &[Point], subjects: &[&Subject], metrics: &[&str]) -> Table {
    let exists = |metric: &&&str| {
        points.iter().any(|point| subjects.iter().any(|subject| mean(point, subject, metric).is_some()))
    };
    let metrics: Vec<&str> = metrics.iter().filter(exists).copied().collect();
    let keys = points.first().map_or(&[][..], |point| &point.settings);
    let heads = keys.iter().map(|setting| Column::text(&setting.key));
    let numbers = metrics.iter().map(|metric| {
        let (name, unit) = sheet::head(metric);
        Column::number(name).unit(unit)
    });
    let columns = heads.chain([Column::text("of")]).chain(numbers);
    let rows = points.iter().flat_map(|point| subjects.iter().map(move |subject| (point, *subject)));
    let row = |(point, subject): (&Point, &Subject)| {
        let cell = |metric: &&str| match mean(point, subject, metric) {
            Some(mean) => Cell::interval(Some(mean.value), mean.ci95),
            None => Cell::number(None),
        };
        let settings = point.settings.iter().map(value);
        settings.chain([Cell::text(&subject.name)]).chain(metrics.iter().map(cell)).collect::<Vec<_>>()
    };
    Table::new(caption).columns(columns).rows(rows.map(row))
}

/// Returns a setting's cell. Quantities are sorted by value.
fn value(setting: &Setting) -> Cell {
    match scaled(&[setting]) {
        // `scaled` chooses the unit for this value alone: s for long spans, ms for others. A common
        // unit is needed for sorting.
        Some(("s", seconds)) => Cell::valued(&setting.value, seconds[0] * 1e3),
        Some((_, values)) => Cell::valued(&setting.value, values[0]),
        None => Cell::text(&setting.value),
    }
}

/// Returns the report of a grid: charts by each varied key, tables of means, and the resolved
/// experiment.
pub(super) fn of(scenario: &Scenario, points: &[Point]) -> Page {
    let experiment = scenario.experiment();
    let seeds = points.first().map_or(0, |point| point.seeds.len());
    let runs: usize = points.iter().map(|point| point.seeds.len()).sum();
    let mut page = Page::new(&experiment.name)
        .about(about(experiment))
        .provenance(program())
        .summary(format!("{runs} runs: {} combinations of settings, {seeds} seeds each.", points.len()));
    if let Some(unrandom) = unrandom(points) {
        page = page.summary(unrandom);
    }
    let subjects = subjects(points);
    let keys = points.first().map_or(&[][..], |point| &point.settings);
    for (place, setting) in keys.iter().enumerate().filter(|&(place, _)| distinct(points, place) > 1) {
        let figures = by_key(points, &subjects, place);
        if !figures.is_empty() {
            let section = Section::new(format!("By {}", setting.key));
            page = page.section(figures.into_iter().fold(section, Section::figure));
        }
    }
    let [flows, links]: [Vec<&Subject>; 2] = [&FLOW[..], &LINK[..]]
        .map(|metrics| subjects.iter().filter(|subject| subject.metrics == metrics).collect());
    let text = "Means over seeds, with half the width of their 95 % confidence intervals (Student's t). \
                Click a column heading to sort. `grid.csv` has every metric, `runs.csv` a row for each \
                run.";
    for (title, of, metrics) in [("Flows", &flows, &FLOW[..]), ("Links", &links, &LINK[..])] {
        if !of.is_empty() {
            let caption = format!("{title}: means over seeds");
            let table = means(&caption, points, of, metrics);
            page = page.section(Section::new(title).text(text).table(table));
        }
    }
    let heads = keys.iter().map(|setting| Column::text(&setting.key)).chain([Column::text("command")]);
    let commands = points.iter().map(|point| {
        point.settings.iter().map(value).chain([Cell::text(&point.one_line)]).collect::<Vec<_>>()
    });
    let commands =
        Table::new("Commands that repeat a combination").columns(heads).rows(commands).folded(true);
    let repeating = Section::new("Repeating")
        .text("With --out, a single run also writes series, captures and completions.")
        .table(commands);
    let scenario = Section::new("Scenario")
        .text("The complete scenario, defaults included, without the varied settings.")
        .code(experiment.to_toml());
    page.section(repeating).section(scenario)
}
