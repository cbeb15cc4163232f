//! Resolved scenario as JSON.

use std::collections::BTreeMap;

use marcato_report::{COMMIT, VERSION};
use marcato_results::document::config;
use marcato_scenario::{Run, Scenario};
use serde::Serialize;
use serde_json::Value;

/// Document of a scenario that was not run.
#[derive(Serialize)]
struct Document<'a> {
    scenario: &'a str,
    about: &'a str,
    version: &'a str,
    commit: &'a str,
    /// Number of runs: every combination with every seed.
    runs: usize,
    seeds: Vec<u64>,
    experiments: Vec<Explained>,
}

/// Combination of the varied settings, or the scenario itself if it has no grid.
#[derive(Serialize)]
struct Explained {
    settings: BTreeMap<String, String>,
    /// Names of its runs, seed by seed.
    runs: Vec<String>,
    /// Notes on events after its end, where the duration was set or varied.
    left_out: Vec<String>,
    /// Resolved experiment, with its first seed.
    config: Value,
}

/// Returns the resolved experiments of a scenario as one JSON document.
pub(super) fn to_json(scenario: &Scenario) -> String {
    let mut seeds = Vec::new();
    let mut experiments: Vec<Explained> = Vec::new();
    let mut last = None;
    for Run { id, settings, seed, experiment, notes } in scenario.runs() {
        if let Some(explained) = experiments.last_mut().filter(|_| last.as_ref() == Some(&settings)) {
            explained.runs.push(id);
        } else {
            let said = settings.iter().map(|one| (one.key.clone(), one.value.clone())).collect();
            let config = config(&experiment);
            experiments.push(Explained { settings: said, runs: vec![id], left_out: notes, config });
            last = Some(settings);
        }
        if experiments.len() == 1 {
            seeds.push(seed.get());
        }
    }
    let document = Document {
        scenario: &scenario.experiment().name,
        about: &scenario.experiment().about,
        version: VERSION,
        commit: COMMIT,
        runs: scenario.count(),
        seeds,
        experiments,
    };
    // Strings, finite numbers and maps with string keys cannot fail to serialise.
    serde_json::to_string_pretty(&document).map(|json| json + "\n").unwrap_or_default()
}
