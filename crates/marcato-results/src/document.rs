//! Document of one run.

use std::collections::BTreeMap;

use marcato_report::{COMMIT, VERSION};
use marcato_scenario::{Experiment, Run};
use marcato_sim::scenario::Outcome;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::frame::{Frame, Row};
use crate::tables::Tables;

/// Returns a resolved experiment as JSON, converted from its TOML.
pub fn config(experiment: &Experiment) -> Value {
    // The text is valid TOML. As a fallback, the text itself contains everything.
    let text = experiment.to_toml();
    toml::from_str(&text).unwrap_or(Value::String(text))
}

/// Document of one run.
#[derive(Serialize)]
struct Document<'a> {
    scenario: &'a str,
    version: &'a str,
    commit: &'a str,
    seed: u64,
    /// True if anything measured depends on the seed.
    random: bool,
    settings: BTreeMap<&'a str, &'a str>,
    config: Value,
    /// Warnings that the run may not have done what was intended.
    warnings: Vec<String>,
    /// Notes on events after the end of a run whose duration was set or varied.
    left_out: &'a [String],
    events: u64,
    flows: Vec<FlowRow<'a>>,
    groups: Vec<Row<'a>>,
    links: Vec<Row<'a>>,
}

/// Row of a flow, with its completion times and lanes.
struct FlowRow<'a> {
    row: Row<'a>,
    times: Vec<Row<'a>>,
    lanes: Vec<Row<'a>>,
}

impl Serialize for FlowRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.row.entries(&mut map)?;
        map.serialize_entry("times", &self.times)?;
        map.serialize_entry("lanes", &self.lanes)?;
        map.end()
    }
}

/// Returns the document of a run as indented JSON with a trailing newline.
pub fn json(run: &Run, outcome: &Outcome, tables: &Tables) -> String {
    let mut times = tables.times.rows();
    let mut lanes = tables.lanes.rows();
    let flows = tables.flows.rows().zip(&outcome.flows).map(|(row, flow)| FlowRow {
        row,
        times: times.by_ref().take(flow.times.len()).collect(),
        lanes: lanes.by_ref().take(flow.lanes.len()).collect(),
    });
    let document = Document {
        scenario: &run.experiment.name,
        version: VERSION,
        commit: COMMIT,
        seed: run.seed.get(),
        random: run.experiment.is_random(),
        settings: run.settings.iter().map(|one| (one.key.as_str(), one.value.as_str())).collect(),
        config: config(&run.experiment),
        warnings: outcome.warnings.iter().map(ToString::to_string).collect(),
        left_out: &run.notes,
        events: outcome.events,
        flows: flows.collect(),
        groups: tables.groups.rows().collect(),
        links: tables.links.rows().collect(),
    };
    // Strings, finite numbers and maps with string keys cannot fail to serialise.
    serde_json::to_string_pretty(&document).map(|json| json + "\n").unwrap_or_default()
}

/// Claims beside the other members of a document.
#[derive(Serialize)]
struct Claimed<'a> {
    claims: Vec<Row<'a>>,
}

/// Returns a document of claims alone.
pub fn of_claims(claims: &Frame) -> String {
    // As above.
    serde_json::to_string_pretty(&Claimed { claims: claims.rows().collect() }).unwrap_or_default() + "\n"
}

/// Returns a document with the member `claims` at its end.
pub fn with_claims(json: &str, claims: &Frame) -> String {
    let own = of_claims(claims);
    match (json.trim_end().strip_suffix("\n}"), own.strip_prefix('{')) {
        (Some(begin), Some(end)) => format!("{begin},{end}"),
        _ => json.to_owned(),
    }
}
