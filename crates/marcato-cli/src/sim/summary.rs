//! Report of a grid, as a page.

use marcato_report::chart::{Axis, DotChart, Dots, Drawing, LineChart, MOST_SERIES, Series};
use marcato_report::page::{Cell, Column, Page, Section, Table};
use marcato_report::{Figure, Mean};
use marcato_results::report::{about, program};
use marcato_results::{scaled, sheet};
use marcato_scenario::{Scenario, Setting};

use super::grid::{Point, unrandom};
use super::judgement::Judgement;
use super::text::whole;

/// Metrics of flows, of groups and of links in the report; the files have all.
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
const GROUP: [&str; 6] = [
    "goodput_sum_mbit_per_s",
    "goodput_mean_mbit_per_s",
    "jain_index",
    "completion_p50_ms",
    "completion_p95_ms",
    "completion_p99_ms",
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
const DRAWN: [&str; 10] = [
    "goodput_mbit_per_s",
    "goodput_sum_mbit_per_s",
    "jain_index",
    "completion_p50_ms",
    "completion_p99_ms",
    "delay_mean_ms",
    "utilisation_percent",
    "queue_mean_bytes",
    "lost_packets",
    "dropped_packets",
];

/// Subject of a metric: a flow, a group of flows, or a direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    /// Prefix of its metrics.
    stem: String,
    name: String,
    metrics: &'static [&'static str],
}

/// Returns the flows, groups and links of all points. A link without a rate has no metric of interest and
/// is left out.
fn subjects(points: &[Point]) -> Vec<Subject> {
    let mut all: Vec<Subject> = Vec::new();
    for (metric, mean) in points.iter().flat_map(|point| &point.metrics) {
        let ends = |end: &str| metric.strip_suffix(end)?.strip_suffix('.');
        let flow = ends("goodput_mbit_per_s").filter(|stem| stem.starts_with("flow."));
        let link = ends("utilisation_percent").filter(|_| mean.n > 0);
        let group = ends("goodput_sum_mbit_per_s").filter(|stem| stem.starts_with("group."));
        let Some(stem) = flow.or(group).or(link) else { continue };
        if all.iter().any(|subject| subject.stem == stem) {
            continue;
        }
        let name = stem.split_once('.').map_or(stem, |(_, name)| name);
        let name = match (link, name.strip_suffix(".back")) {
            (Some(_), Some(name)) => format!("{name}, back"),
            _ if group.is_some() => format!("{name}, together"),
            _ => name.to_owned(),
        };
        let metrics: &[&str] = match (link, group) {
            (Some(_), _) => &LINK,
            (None, Some(_)) => &GROUP,
            (None, None) => &FLOW,
        };
        all.push(Subject { stem: stem.to_owned(), name, metrics });
    }
    all
}

fn mean<'a>(point: &'a Point, subject: &Subject, metric: &str) -> Option<&'a Mean> {
    let is_it =
        |name: &str| name.strip_prefix(&subject.stem).and_then(|rest| rest.strip_prefix('.')) == Some(metric);
    point.metrics.iter().find(|(name, _)| is_it(name)).map(|(_, mean)| mean).filter(|mean| mean.n > 0)
}

/// Returns the shortest end of a key that no other varied key has.
fn short<'a>(settings: &[Setting], key: &'a str) -> &'a str {
    let ends = key.rmatch_indices('.').map(|(dot, _)| &key[dot + 1..]);
    let is_alone = |end: &&str| {
        let has = |other: &str| other == *end || other.ends_with(&format!(".{end}"));
        settings.iter().filter(|setting| has(&setting.key)).count() == 1
    };
    ends.into_iter().find(is_alone).unwrap_or(key)
}

/// Returns the settings of a point other than the one along the axis, and than those that all points
/// share.
fn others(points: &[Point], point: &Point, along: usize) -> String {
    let others = point.settings.iter().enumerate();
    let others = others.filter(|&(place, _)| place != along && distinct(points, place) > 1);
    let others: Vec<String> =
        others.map(|(_, one)| format!("{} {}", short(&point.settings, &one.key), one.value)).collect();
    others.join(", ")
}

/// Line of a chart: its name, which its colour follows on the whole page, and the means of its points.
struct Line<'a> {
    name: String,
    means: Vec<(&'a Setting, &'a Mean)>,
}

/// Returns the lines of a metric by a key.
fn lines<'a>(points: &'a [Point], subjects: &[&Subject], metric: &str, along: usize) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for point in points {
        for subject in subjects {
            let (Some(mean), Some(setting)) = (mean(point, subject, metric), point.settings.get(along))
            else {
                continue;
            };
            let others = others(points, point, along);
            // The title names the subject of a chart that has only one.
            let name = match (subjects.len() > 1, others.is_empty()) {
                (_, true) => subject.name.clone(),
                (true, false) => format!("{}, {others}", subject.name),
                (false, false) => others,
            };
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.means.push((setting, mean)),
                None => lines.push(Line { name, means: vec![(setting, mean)] }),
            }
        }
    }
    lines
}

/// Ratio of the largest to the smallest value from which an axis is logarithmic.
const WIDE: f64 = 20.0;

/// Returns the axis of a key whose values are quantities, and the place of each value on it; `None` if
/// they are words.
fn numeric(points: &[Point], along: usize) -> Option<(Axis, Vec<(&Setting, f64)>)> {
    let settings: Vec<&Setting> = points.iter().filter_map(|point| point.settings.get(along)).collect();
    let (unit, values) = scaled(&settings)?;
    let (lo, hi) =
        values.iter().fold((f64::INFINITY, 0.0_f64), |(lo, hi), &value| (lo.min(value), hi.max(value)));
    let first = settings.first()?;
    let axis = Axis::new(short(&points.first()?.settings, &first.key), sheet::unit(unit));
    let axis = if lo > 0.0 && hi / lo >= WIDE && distinct(points, along) > 2 { axis.log() } else { axis };
    Some((axis, settings.into_iter().zip(values).collect()))
}

/// Returns one chart of a metric by a key: lines over an axis of quantities, or dots in rows that words
/// name.
fn chart(points: &[Point], subjects: &[&Subject], metric: &str, along: usize) -> Option<Drawing> {
    let lines = lines(points, subjects, metric, along);
    if lines.is_empty() {
        return None;
    }
    let (what, unit) = sheet::head(metric);
    let of = if let [one] = subjects { format!(" of {}", one.name) } else { String::new() };
    let settings = &points.first()?.settings;
    let title = format!("{what}{of} by {}", short(settings, &settings.get(along)?.key));
    let half = |mean: &Mean| mean.ci95.unwrap_or(f64::NAN);
    let Some((axis, places)) = numeric(points, along) else {
        let mut rows: Vec<&str> = Vec::new();
        for setting in points.iter().filter_map(|point| point.settings.get(along)) {
            if !rows.contains(&setting.value.as_str()) {
                rows.push(&setting.value);
            }
        }
        let chart = DotChart::new(title, Axis::new(what, unit)).rows(rows.iter().copied());
        let dots = |Line { name, means }: Line<'_>| {
            let of =
                |row: &&str| means.iter().find(|(setting, _)| setting.value == **row).map(|(_, mean)| *mean);
            Dots::new(name, rows.iter().map(|row| of(row).map_or(f64::NAN, |mean| mean.value)))
                .intervals(rows.iter().map(|row| of(row).map_or(f64::NAN, half)))
        };
        return Some(lines.into_iter().map(dots).fold(chart, DotChart::dots).into());
    };
    let chart = LineChart::new(title, axis, Axis::new(what, unit));
    let series = |Line { name, means }: Line<'_>| {
        let place = |setting: &Setting| {
            places.iter().find(|(other, _)| *other == setting).map_or(f64::NAN, |&(_, place)| place)
        };
        let mut all: Vec<(f64, &Mean)> =
            means.iter().map(|&(setting, mean)| (place(setting), mean)).collect();
        all.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Series::line(name, all.iter().map(|(place, mean)| (*place, mean.value)))
            .intervals(all.iter().map(|(_, mean)| half(mean)))
            .marks()
    };
    Some(lines.into_iter().map(series).fold(chart, LineChart::series).into())
}

/// Returns words for a percentile that few completions of a run make a matter of chance; `None` if
/// there are enough, or for another metric. Samples are a mean over seeds.
fn of_few(point: &Point, subject: &Subject, metric: &str) -> Option<String> {
    sheet::of_few(metric, whole(mean(point, subject, "completion_samples")?))
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
        // Subjects share a chart if all lines fit, or if each has only one. Otherwise each has its own.
        let parts: Vec<Vec<&Subject>> = match (of.len() * others.max(1), others) {
            (0, _) => Vec::new(),
            (1..=MOST_SERIES, _) | (_, ..=1) => vec![of],
            _ => of.into_iter().map(|subject| vec![subject]).collect(),
        };
        for (place, part) in parts.iter().enumerate() {
            let Some(chart) = chart(points, part, metric, along) else { continue };
            let all = points.iter().flat_map(|point| part.iter().map(move |subject| (point, *subject)));
            let fewest = all
                .filter_map(|(point, subject)| {
                    let samples = mean(point, subject, "completion_samples")?.value;
                    Some((samples, of_few(point, subject, metric)?))
                })
                .min_by(|(one, _), (other, _)| one.total_cmp(other));
            let caption = fewest.map(|(_, words)| {
                format!("With the fewest completions, {} is the {words} in a run.", sheet::head(metric).0)
            });
            let id = format!("by-{}-{}-{}", along + 1, metric.replace('_', "-"), place + 1);
            let figure = Figure::new(id, chart, caption.unwrap_or_default());
            figures.push(if place < MOST_SERIES { figure } else { figure.folded() });
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
            Some(mean) => {
                let cell = Cell::interval(Some(mean.value), mean.ci95);
                of_few(point, subject, metric).into_iter().fold(cell, Cell::note)
            }
            None => Cell::number(None),
        };
        let settings = point.settings.iter().map(value);
        settings.chain([Cell::text(&subject.name)]).chain(metrics.iter().map(cell)).collect::<Vec<_>>()
    };
    Table::new(caption).columns(columns).rows(rows.map(row))
}

/// Words after "means over seeds" where intervals are shown.
const INTERVALS: &str = " ± half the width of their 95 % confidence intervals (Student's t)";

/// Returns true if any mean has an interval: one seed has none, and equal runs neither.
pub(super) fn has_intervals(points: &[Point]) -> bool {
    points.iter().flat_map(|point| &point.metrics).any(|(_, mean)| mean.ci95.is_some())
}

/// Returns a count with its noun.
fn counted(count: usize, noun: &str) -> String {
    match (count, noun.split_once(' ')) {
        (1, _) => format!("1 {noun}"),
        (_, Some((first, rest))) => format!("{count} {first}s {rest}"),
        (_, None) => format!("{count} {noun}s"),
    }
}

/// Returns the number of seeds of each combination.
pub(super) fn seeds_of(points: &[Point]) -> String {
    counted(points.first().map_or(0, |point| point.seeds.len()), "seed")
}

/// Returns what the marks of the charts are.
fn marks(points: &[Point]) -> String {
    match points.first().map_or(0, |point| point.seeds.len()) {
        0 | 1 => "Marks are values of one seed, so they have no intervals.".to_owned(),
        _ if !has_intervals(points) => {
            "Marks are means. Nothing is random, so they have no intervals.".to_owned()
        }
        seeds => {
            format!(
                "Marks are means over {seeds} seeds, whiskers their 95 % confidence intervals (Student's t)."
            )
        }
    }
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
pub(super) fn of(scenario: &Scenario, points: &[Point], judgement: &Judgement) -> Page {
    let experiment = scenario.experiment();
    let mut page = Page::new(&experiment.name)
        .about(about(experiment))
        .provenance(program())
        .summary(format!("{}, {} each.", counted(points.len(), "combination of settings"), seeds_of(points)));
    if let Some(unrandom) = unrandom(points) {
        page = page.summary(unrandom);
    }
    page = judgement.section(scenario).into_iter().fold(page, Page::section);
    let subjects = subjects(points);
    let keys = points.first().map_or(&[][..], |point| &point.settings);
    for (place, setting) in keys.iter().enumerate().filter(|&(place, _)| distinct(points, place) > 1) {
        let figures = by_key(points, &subjects, place);
        if !figures.is_empty() {
            let section = Section::new(format!("By {}", setting.key)).text(marks(points));
            page = page.section(figures.into_iter().fold(section, Section::figure));
        }
    }
    let text = "Click a column heading to sort. `grid.csv` has every metric, `runs.csv` a row for each run.";
    for (title, metrics) in [("Flows", &FLOW[..]), ("Groups", &GROUP[..]), ("Links", &LINK[..])] {
        let of: Vec<&Subject> = subjects.iter().filter(|subject| subject.metrics == metrics).collect();
        if !of.is_empty() {
            let caption = match points.iter().map(|point| point.seeds.len()).max() {
                Some(2..) => {
                    "Means over seeds".to_owned() + if has_intervals(points) { INTERVALS } else { "" }
                }
                _ => "Values of one seed".to_owned(),
            };
            let table = means(&caption, points, &of, metrics);
            let section = Section::new(title).text(text);
            let section = sheet::note(metrics).into_iter().fold(section, Section::text);
            page = page.section(section.table(table));
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
