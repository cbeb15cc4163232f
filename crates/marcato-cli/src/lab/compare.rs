//! `marcato lab compare`: simulation and lab, laid over each other.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use marcato_lab::LabOptions;
use marcato_report::page::{Page, Section};
use marcato_report::{AtomicFile, COMMIT, VERSION};
use marcato_results::{Frame, Row, chart, report, sheet};
use marcato_scenario::{Run, Scenario};
use marcato_sim::scenario::{Outcome, Traces, build};
use serde::Serialize;

use super::trial::{failed, in_lab, load};
use super::{LabError, privileges};
use crate::Status;
use crate::arguments::{Format, LabTrial};
use crate::interrupt::Interrupt;
use crate::output::{self, Directory};
use crate::sim::text::number;
use crate::sim::{Done, SimError, execute};
use crate::table::Table;

/// Names of the outcomes behind the lines of a chart.
const NAMES: [&str; 2] = [", simulated", ", lab"];

/// One number of a run, in the simulation and in the lab.
struct Pair {
    run: String,
    metric: String,
    simulated: f64,
    lab: f64,
}

impl Pair {
    /// Difference of the lab from the simulation, in per cent; `None` without a reference.
    fn difference(&self) -> Option<f64> {
        let share = (self.lab / self.simulated - 1.0) * 100.0;
        Some(share).filter(|share| share.is_finite())
    }
}

#[derive(Serialize)]
struct Document<'a> {
    scenario: &'a str,
    version: &'a str,
    commit: &'a str,
    rows: Vec<Row<'a>>,
}

pub(super) fn run(asked: &LabTrial, stdout: &mut dyn Write) -> Result<Status, LabError> {
    let (scenario, traces) = load(asked)?;
    privileges();
    check(&scenario, &traces, asked.offload).map_err(failed)?;
    let open = |out: &PathBuf| Directory::open(out).map_err(SimError::file(out)).map_err(failed);
    let _directory = asked.out.as_ref().map(open).transpose()?;
    let interrupt = Interrupt::listen().map_err(LabError::Interrupt)?;
    let (mut pairs, mut sections) = (Vec::new(), Vec::new());
    let mut ended = Ok(());
    for run in scenario.runs() {
        match both(&run, &traces, asked, &interrupt) {
            Ok((both, written)) => {
                sections.push(figures(&run, &both));
                pairs.extend(paired(&run, &both));
                ended = written;
            }
            Err(error) => ended = Err(error),
        }
        if ended.is_err() {
            break;
        }
    }
    // What was measured until then is not lost.
    if pairs.is_empty()
        && let Err(error) = ended
    {
        return Err(failed(error));
    }
    let frame = frame(&pairs);
    let document = Document {
        scenario: &scenario.experiment().name,
        version: VERSION,
        commit: COMMIT,
        rows: frame.rows().collect(),
    };
    // Strings and finite numbers cannot fail to serialise.
    let json = serde_json::to_string_pretty(&document).unwrap_or_default() + "\n";
    let write = |out: &PathBuf| write(out, &scenario, &frame, &json, sections);
    let written = asked.out.as_ref().map_or(Ok(()), write);
    let text = match asked.format {
        Format::Text => text(&pairs),
        Format::Json => json,
        Format::Csv => frame.to_csv(),
    };
    output::print(stdout, &text).map_err(LabError::Print)?;
    ended.and(written).map_err(failed)?;
    Ok(Status::Ok)
}

/// Checks that each combination can be built in both worlds, before the first of them runs for a minute.
fn check(scenario: &Scenario, traces: &Traces, offload: bool) -> Result<(), SimError> {
    let mut seen = BTreeSet::new();
    for run in scenario.runs() {
        let mut experiment = run.experiment;
        // Seeds do not decide whether a run can be built.
        experiment.seed = scenario.experiment().seed;
        if seen.insert(experiment.to_toml()) {
            build(&experiment, traces)?;
            marcato_trial::open(&experiment, traces, LabOptions { offload })?;
        }
    }
    Ok(())
}

/// Executes a run in the simulator, and then in a lab. An error of writing comes beside the results.
fn both(
    run: &Run,
    traces: &Traces,
    asked: &LabTrial,
    interrupt: &Interrupt,
) -> Result<([Done; 2], Result<(), SimError>), SimError> {
    let directory = |world: &str| asked.out.as_ref().map(|out| out.join(world).join(&run.id));
    let [simulation, lab] = ["simulation", "lab"].map(directory);
    let mut experiment = run.experiment.clone();
    if asked.out.is_none() {
        experiment.record.pcap.links.clear();
    }
    let world = build(&experiment, traces)?;
    let simulated = execute(run, world, simulation.as_deref(), "simulated seconds", interrupt)?;
    let real = in_lab(run, traces, asked.offload, lab.as_deref(), interrupt)?;
    let both = [simulated, real];
    let written = both
        .iter()
        .zip([simulation, lab])
        .try_for_each(|(done, directory)| directory.map_or(Ok(()), |directory| done.write(&directory, run)));
    Ok((both, written))
}

/// Returns the numbers that both outcomes have.
fn paired(run: &Run, [simulated, lab]: &[Done; 2]) -> Vec<Pair> {
    let others = lab.numbers();
    let pair = |(metric, simulated): (String, f64)| {
        let (_, lab) = others.iter().find(|(other, _)| *other == metric)?;
        let both = simulated.is_finite() && lab.is_finite();
        both.then(|| Pair { run: run.id.clone(), metric, simulated, lab: *lab })
    };
    simulated.numbers().into_iter().filter_map(pair).collect()
}

fn frame(pairs: &[Pair]) -> Frame {
    Frame::new()
        .text("run", pairs.iter().map(|pair| pair.run.as_str()))
        .text("metric", pairs.iter().map(|pair| pair.metric.as_str()))
        .number("simulation", pairs.iter().map(|pair| pair.simulated))
        .number("lab", pairs.iter().map(|pair| pair.lab))
        .number("difference_percent", pairs.iter().map(Pair::difference))
}

/// Returns whether a metric is shown on the terminal; the files have all.
fn is_shown(metric: &str) -> bool {
    let ends = ["queue_delay_mean_ms", "dropped_packets", "retransmissions", "completion_p50_ms"];
    crate::sim::text::is_shown(metric) || ends.iter().any(|end| metric.ends_with(end))
}

fn text(pairs: &[Pair]) -> String {
    let mut table = Table::new(["run", "metric", "simulation", "lab", "difference %"]).words(2);
    for pair in pairs.iter().filter(|pair| is_shown(&pair.metric)) {
        let difference = pair.difference().map_or_else(|| "-".to_owned(), |share| format!("{share:+.1}"));
        table.row([
            pair.run.clone(),
            pair.metric.clone(),
            number(pair.simulated),
            number(pair.lab),
            difference,
        ]);
    }
    table.to_string()
}

/// Returns the charts of a run, with both outcomes.
fn figures(run: &Run, [simulated, lab]: &[Done; 2]) -> Section {
    let outcomes: [(&str, &Outcome); 2] = [(NAMES[0], &simulated.outcome), (NAMES[1], &lab.outcome)];
    let flows = outcomes.map(|(name, outcome)| (name, outcome.flows.as_slice()));
    let prefix = format!("{}-", run.id);
    let figures = chart::overlaid(&prefix, &outcomes);
    let figures = figures.into_iter().chain(chart::completions_overlaid(&prefix, &flows));
    let section = Section::new(format!("Run {}", run.id));
    let warnings = lab.outcome.warnings.iter().map(ToString::to_string);
    let section = warnings.fold(section, Section::text);
    figures.fold(section, Section::figure)
}

fn write(
    out: &Path,
    scenario: &Scenario,
    frame: &Frame,
    json: &str,
    sections: Vec<Section>,
) -> Result<(), SimError> {
    let file = |name: &str, content: &str| {
        let path = out.join(name);
        AtomicFile::write(&path, content.as_bytes()).map_err(SimError::file(&path))
    };
    file("comparison.json", json)?;
    file("comparison.csv", &frame.to_csv())?;
    let experiment = scenario.experiment();
    let page = Page::new(&experiment.name)
        .about(format!("{} The simulation, and the kernel's sockets in a lab.", experiment.about))
        .provenance(report::program());
    let page = sections.into_iter().fold(page, Page::section);
    let table =
        sheet::table("Every number of both; the difference is that of the lab from the simulation", frame);
    file("report.html", &page.section(Section::new("Numbers").table(table)).to_html())
}
