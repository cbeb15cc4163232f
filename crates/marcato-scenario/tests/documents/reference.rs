//! Tests that `docs/scenarios.md` lists exactly the keys of each table, and that scenarios in
//! `docs/` are valid.

use marcato_scenario::Scenario;
use marcato_scenario::plugin::PluginKind;
use marcato_scenario::record::{FlowMetric, LinkMetric};
use marcato_scenario::schema::{Schema, tables};

const REFERENCE: &str = include_str!("../../../../docs/scenarios.md");

/// Section of the reference: its heading in lower case, its text, and the introduction of its
/// chapter, which applies to every section.
struct Part {
    heading: String,
    text: String,
    common: String,
}

fn parts() -> Vec<Part> {
    let mut parts = Vec::new();
    for chapter in REFERENCE.split("\n## ").skip(1) {
        let mut sections = chapter.split("\n### ");
        let common = sections.next().unwrap_or_default();
        let (heading, text) = common.split_once('\n').unwrap_or((common, ""));
        parts.push(Part { heading: heading.to_lowercase(), text: text.to_owned(), common: String::new() });
        for section in sections {
            let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
            let (heading, text) = (heading.to_lowercase(), text.to_owned());
            parts.push(Part { heading, text, common: common.to_owned() });
        }
    }
    parts
}

/// Returns whether the heading names the table: alone, or in a list after a colon.
fn names(heading: &str, schema: &Schema) -> bool {
    let list = heading.split_once(": ").map_or(heading, |(_, list)| list);
    list.split(", ").any(|name| name == schema.what)
}

#[test]
fn every_key_of_every_table_is_in_the_reference() {
    let parts = parts();
    for schema in tables() {
        let part = parts.iter().find(|part| names(&part.heading, &schema));
        let part = part.unwrap_or_else(|| panic!("no heading names {}", schema.what));
        for key in schema.all() {
            let quoted = format!("`{key}`");
            let there = part.text.contains(&quoted) || part.common.contains(&quoted);
            assert!(there, "{} of {} is missing", quoted, schema.what);
        }
    }
}

/// Rows of all keys, with the name of their table.
fn rows() -> Vec<(&'static str, String)> {
    let of = |schema: Schema| -> Vec<(&'static str, String)> {
        let entries = schema.entries.iter().flat_map(|group| group.iter());
        entries.flat_map(|entry| entry.rows()).map(|row| (schema.what, row)).collect()
    };
    tables().flat_map(of).collect()
}

#[test]
fn every_key_has_the_meaning_and_default_of_its_declaration() {
    let lines: Vec<&str> = REFERENCE.lines().collect();
    let missing: Vec<String> = rows()
        .into_iter()
        .filter(|(_, row)| !lines.contains(&row.as_str()))
        .map(|(what, row)| format!("{what}: {row}"))
        .collect();
    assert!(missing.is_empty(), "rows that docs/scenarios.md needs:\n{}", missing.join("\n"));
}

#[test]
fn the_reference_has_no_row_that_is_not_declared() {
    let rows: Vec<String> = rows().into_iter().map(|(_, row)| row).collect();
    let keys: Vec<&str> = tables().flat_map(|schema| schema.all()).collect();
    let old: Vec<&str> = REFERENCE
        .lines()
        .filter(|line| {
            let name = line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
            // The rows of `kind` list the kinds.
            name.is_some_and(|name| keys.contains(&name) && name != "kind")
        })
        .filter(|line| !rows.iter().any(|row| row == line))
        .collect();
    assert!(old.is_empty(), "rows of docs/scenarios.md that no key declares:\n{}", old.join("\n"));
}

#[test]
fn the_reference_has_no_key_that_is_not_read() {
    for part in parts() {
        let of: Vec<Schema> = tables().filter(|schema| names(&part.heading, schema)).collect();
        for row in part.text.lines().filter_map(|line| line.strip_prefix("| `")) {
            let key = row.split('`').next().unwrap_or_default();
            let known = match of.as_slice() {
                // Keys common to all flows are listed in the introduction of their chapter.
                [] => tables().any(|schema| schema.has(key)),
                of => of.iter().any(|schema| schema.has(key)),
            };
            assert!(known, "`{key}` under {} is read by nobody", part.heading);
        }
    }
}

#[test]
fn keys_of_kinds_name_every_built_in_kind() {
    for (key, kind) in [("congestion", PluginKind::Congestion), ("scheduler", PluginKind::Scheduler)] {
        let rows = REFERENCE.lines().filter(|line| line.starts_with(&format!("| `{key}` |")));
        for name in kind.built_in() {
            let quoted = format!("`\"{name}\"`");
            assert!(rows.clone().any(|row| row.contains(&quoted)), "no row of `{key}` names {name}");
        }
    }
}

#[test]
fn every_metric_is_in_the_reference() {
    let names = FlowMetric::ALL.iter().map(|metric| metric.name());
    for name in names.chain(LinkMetric::ALL.iter().map(|metric| metric.name())) {
        assert!(REFERENCE.contains(&format!("`{name}`")), "{name} is missing");
    }
}

#[test]
fn the_scenarios_of_the_documentation_are_valid() {
    let first = REFERENCE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    Scenario::parse("scenarios.md", first).unwrap_or_else(|error| panic!("{error}"));
    let text = include_str!("../../../../docs/coming-from.md");
    let blocks: Vec<&str> = text.split("```toml\n").skip(1).filter_map(|it| it.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        Scenario::parse("coming-from.md", block).unwrap_or_else(|error| panic!("{error}"));
    }
}
