//! The page about one run.

use marcato_papers::{Config, Document, Report, Row, RunOptions, Section, SeedError, Unit};
use marcato_scenario::Run;
use marcato_sim::scenario::{FlowOutcome, LinkOutcome, Outcome};
use serde_json::Value;

use super::result::{config, direction};
use super::{chart, frame};

/// A column of the tables that a reader wants first, what it is called, its unit, and by what it is divided.
type Shown = (&'static str, &'static str, Unit);

const FLOW: [Shown; 10] = [
    ("goodput_mbit_per_s", "goodput", Unit::MbitPerS),
    ("completion_p50_ms", "completion, median", Unit::Ms),
    ("completion_p95_ms", "completion, 95th percentile", Unit::Ms),
    ("completion_p99_ms", "completion, 99th percentile", Unit::Ms),
    ("rtt_mean_ms", "round-trip time, mean", Unit::Ms),
    ("delay_mean_ms", "one-way delay, mean", Unit::Ms),
    ("lost_packets", "packets dropped or lost", Unit::Count),
    ("retransmissions", "retransmissions", Unit::Count),
    ("low_received_bytes", "bytes that came by the low layer", Unit::Count),
    ("low_repairs", "segments of the high layer that repeat what the low one lost", Unit::Count),
];

const LINK: [Shown; 7] = [
    ("throughput_mbit_per_s", "throughput", Unit::MbitPerS),
    ("utilisation_percent", "utilisation", Unit::Percent),
    ("queue_mean_packets", "packets waiting, mean", Unit::Count),
    ("queue_max_packets", "packets waiting, most", Unit::Count),
    ("dropped_packets", "packets dropped", Unit::Count),
    ("lost_packets", "packets lost on the wire", Unit::Count),
    ("responsive_percent", "came of flows that answer congestion signals", Unit::Percent),
];

/// The rows of a line of a table: those of its columns that are shown and have a number.
fn rows(stem: &str, name: &str, shown: &[Shown], line: frame::Row<'_>) -> Vec<Row> {
    let cells = serde_json::to_value(line).unwrap_or_default();
    let number = |column: &str| cells.get(column).and_then(Value::as_f64);
    shown
        .iter()
        .filter_map(|&(column, what, unit)| {
            let row = Row::new(format!("{stem}.{column}"), format!("{name}: {what}"), unit);
            number(column).map(|value| row.measured(value))
        })
        .collect()
}

fn flow_rows(flows: &[FlowOutcome], table: &frame::Frame) -> Vec<Row> {
    let of = |(flow, line): (&FlowOutcome, _)| rows(&format!("flow.{}", flow.name), &flow.name, &FLOW, line);
    flows.iter().zip(table.rows()).flat_map(of).collect()
}

fn link_rows(links: &[LinkOutcome], table: &frame::Frame) -> Vec<Row> {
    let of = |(link, line): (&LinkOutcome, _)| {
        let back = if link.back { ".back" } else { "" };
        let name = format!("{}, {}", link.name, direction(link.back));
        rows(&format!("link.{}{back}", link.name), &name, &LINK, line)
    };
    links.iter().zip(table.rows()).flat_map(of).collect()
}

/// The report of one run: its figures, what a reader wants first of its numbers, and what was run.
///
/// # Errors
/// None: one seed is as good as another.
pub(crate) fn of(run: &Run, outcome: &Outcome, tables: &super::result::Tables) -> Result<Report, SeedError> {
    let experiment = &run.experiment;
    let flows = flow_rows(&outcome.flows, &tables.flows);
    let links = link_rows(&outcome.links, &tables.links);
    let ids = |rows: &[Row]| rows.iter().map(|row| row.id().to_owned()).collect::<Vec<_>>();
    let mut flow_section = Section::new("Flows").rows(ids(&flows));
    if let Some(figure) = chart::completions(&outcome.flows) {
        flow_section = flow_section.figure(figure);
    }
    let link_section = Section::new("Links").rows(ids(&links));
    let over_time = chart::series(outcome).into_iter().fold(Section::new("Over time"), Section::figure);
    let settings = match config(experiment) {
        Value::Object(all) => {
            all.into_iter().fold(Config::new(), |config, (key, value)| config.set(key, value))
        }
        text => Config::new().set("scenario", text),
    };
    let document = Document::new("sim", &RunOptions::repeated(run.seed.get(), 1)?)
        .config(settings)
        .with_rows(flows)
        .with_rows(links);
    let about = format!(
        "{} {} s in virtual time, of which the first {} s are not measured.",
        if experiment.about.is_empty() { "A scenario:" } else { &experiment.about },
        experiment.duration.as_secs_f64(),
        experiment.warm_up.as_secs_f64()
    );
    let mut report = Report::new(&experiment.name, about, document);
    if !outcome.warnings.is_empty() {
        let warnings: Vec<String> = outcome.warnings.iter().map(ToString::to_string).collect();
        report = report.section(Section::new("Warnings").text(warnings.join("\n\n")));
    }
    report = report.section(flow_section).section(link_section);
    if !outcome.series.is_empty() {
        report = report.section(over_time);
    }
    Ok(report)
}
