//! Report of one run, as a page.

use marcato_report::page::{Page, Section};
use marcato_report::{COMMIT, VERSION};
use marcato_scenario::Run;
use marcato_sim::scenario::Outcome;

use crate::tables::Tables;
use crate::{chart, sheet};

/// Returns the version and commit for a page.
pub fn program() -> String {
    format!("Marcato {VERSION} ({COMMIT})")
}

/// Returns the description of an experiment, with its duration.
pub fn about(experiment: &marcato_scenario::Experiment) -> String {
    let mut about = experiment.about.clone();
    if !about.is_empty() && !about.ends_with(['.', '!', '?']) {
        about.push('.');
    }
    let seconds = experiment.duration.as_secs_f64();
    let measured = match experiment.warm_up.is_zero() {
        true => "all of it measured".to_owned(),
        false => format!("measured from {} s on", experiment.warm_up.as_secs_f64()),
    };
    format!("{about} {seconds} s in virtual time, {measured}.").trim_start().to_owned()
}

/// Returns the report of one run: figures, tables and the resolved experiment.
pub fn of(run: &Run, outcome: &Outcome, tables: &Tables) -> Page {
    let experiment = &run.experiment;
    let page = Page::new(&experiment.name).about(about(experiment)).provenance(format!(
        "seed {}, {}",
        run.seed.get(),
        program()
    ));
    let page = outcome.warnings.iter().fold(page, |page, warning| page.banner(warning.to_string()));
    let page = if experiment.is_random() {
        page
    } else {
        page.summary("Nothing in this run is random: every seed gives the same numbers.")
    };
    let mut charts = Section::new("Charts");
    if outcome.series.is_empty() {
        charts = charts
            .text("No series were recorded: name some under `series` in [record] to see them over time.");
    }
    let figures = chart::series(outcome).into_iter().chain(chart::completions(&outcome.flows));
    let charts = figures.fold(charts, Section::figure);
    let Tables { flows, times, groups, lanes, links, series: _ } = tables;
    let all = [
        ("Flows", "After the warm-up", flows),
        ("Completion times", "Transfers and messages, by name", times),
        ("Groups", "Flows of several instances and processes, together, after the warm-up", groups),
        ("Lanes", "QUIC flows, over the whole run", lanes),
        ("Links", "Each direction, after the warm-up", links),
    ];
    let page = all.into_iter().filter(|(_, _, frame)| !frame.is_empty()).fold(
        page.section(charts),
        |page, (title, caption, frame)| {
            let section = sheet::binned(frame).into_iter().fold(Section::new(title), Section::text);
            page.section(section.table(sheet::table(caption, frame)))
        },
    );
    let scenario = Section::new("Scenario")
        .text("The complete scenario, defaults included. Saved as a scenario file, it repeats the same run.")
        .code(experiment.to_toml());
    page.section(scenario)
}
