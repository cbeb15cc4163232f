//! Configurations as they take effect: what a file says, and the default of each key that it omits.

use std::fmt::Write as _;

use marcato_document::schema::{Schema, Usual};
use marcato_document::{Item, Key, Keyed as _, Table, Value};
use marcato_web::Limits;
use marcato_web::files::FilesConfig;
use marcato_web::proxy::{HealthConfig, PassiveConfig};

use super::Root;
use super::access::AccessLog;
use super::acme::AcmeKeys;
use super::admission::Admission;
use super::certificate::CertificateFiles;
use super::compression::CompressKeys;
use super::fields::Hsts;
use super::guess::GuessKeys;
use super::listen::ListenKeys;
use super::marks::MarkKeys;
use super::origin::{OriginConfig, UpstreamKeys};
use super::rates::{Rate, Rates};
use super::redirect::RedirectKeys;
use super::site::{RouteKeys, SiteKeys};
use super::watch::Watch;

/// Tables that have the same meaning if they are absent and if they are empty.
const ALWAYS: [(&str, &str); 5] = [
    ("the file", "limits"),
    ("the file", "rates"),
    ("the file", "compression"),
    ("an origin", "passive"),
    ("the file", "access-log"),
];

/// Returns the schema of the table under a key of another.
fn schema_of(of: &str, key: &str) -> Option<Schema> {
    Some(match (of, key) {
        ("the file", "listen") => ListenKeys::SCHEMA,
        ("the file", "site") => SiteKeys::SCHEMA,
        ("the file", "origin") => OriginConfig::SCHEMA,
        ("the file", "acme") => AcmeKeys::SCHEMA,
        ("the file", "limits") => Limits::SCHEMA,
        ("the file", "rates") => Rates::SCHEMA,
        ("the file", "guess") => GuessKeys::SCHEMA,
        ("the file", "marks") => MarkKeys::SCHEMA,
        ("the file", "compression") => CompressKeys::SCHEMA,
        ("the file", "access-log") => AccessLog::SCHEMA,
        ("the file", "watch") => Watch::SCHEMA,
        ("a site", "route") => RouteKeys::SCHEMA,
        ("a site" | "a route", "files") => FilesConfig::SCHEMA,
        ("a site" | "a route", "redirect") => RedirectKeys::SCHEMA,
        ("a site" | "a route", "access") => Admission::SCHEMA,
        ("a site", "certificate") => CertificateFiles::SCHEMA,
        ("a site", "hsts") => Hsts::SCHEMA,
        ("an origin", "to") => UpstreamKeys::SCHEMA,
        ("an origin", "health") => HealthConfig::SCHEMA,
        ("an origin", "passive") => PassiveConfig::SCHEMA,
        ("[rates]", "requests" | "connections") => Rate::SCHEMA,
        _ => return None,
    })
}

/// Returns whether the default of a key may be written although the key is absent. Some keys are refused beside others.
fn may_have(of: &str, key: &str, table: &Table) -> bool {
    match (of, key) {
        ("a listener", "https-port") => table.get("redirect-to-https").is_some_and(is_true),
        ("an origin", "cookie") => table.get("balance").is_some_and(|item| item.as_str() == Some("cookie")),
        ("a route", "strip-prefix") => table.get("rewrite").is_none(),
        _ => true,
    }
}

const fn is_true(item: &Item) -> bool {
    matches!(item.value, Value::Boolean(true))
}

/// Writes the whole of a configuration, which reads back to the same.
pub(super) fn printed(root: &Table) -> String {
    let mut out = String::new();
    table(&mut out, "", root, &Root::SCHEMA);
    out
}

/// Writes a table: its keys, then the tables in it, each with its head.
fn table(out: &mut String, path: &str, of: &Table, schema: &Schema) {
    // Comments for keys without a value come last: they say that nothing is set.
    let (mut tables, mut absent) = (Vec::new(), String::new());
    for entry in schema.entries.iter().flat_map(|group| group.iter()) {
        for (index, key) in entry.keys.iter().enumerate() {
            let inner = schema_of(schema.what, key.name);
            match (of.get(key.name), entry.usual) {
                (Some(item), _) => match (&item.value, inner) {
                    (Value::Table(found), Some(inner)) => {
                        tables.push((key.name, false, vec![found.clone()], inner));
                    }
                    (Value::Array(items), Some(inner)) if all_tables(items) => {
                        let found = items.iter().filter_map(Item::as_table).cloned().collect();
                        tables.push((key.name, true, found, inner));
                    }
                    _ => line(out, key.name, &shown(item)),
                },
                (None, _) if ALWAYS.contains(&(schema.what, key.name)) => {
                    if let Some(inner) = inner {
                        tables.push((key.name, false, vec![Table::empty(of.place)], inner));
                    }
                }
                (None, Usual::Value(value)) if may_have(schema.what, key.name, of) => {
                    line(out, key.name, &value());
                }
                (None, Usual::Value(value)) => comment(&mut absent, key.name, &value()),
                (None, Usual::Text(texts)) => {
                    comment(&mut absent, key.name, texts.get(index).copied().unwrap_or("none"));
                }
            }
        }
    }
    // Tables of free keys, as the guesses by type, have no schema.
    for (Key { name, .. }, item) in of.entries.iter().filter(|(key, _)| !schema.has(&key.name)) {
        line(out, name, &shown(item));
    }
    out.push_str(&absent);
    for (name, is_list, found, inner) in tables {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for one in found {
            let head = if is_list { format!("[[{path}]]") } else { format!("[{path}]") };
            // Writing to a string cannot fail.
            let _ = writeln!(out, "\n{head}");
            table(out, &path, &one, &inner);
        }
    }
}

fn all_tables(items: &[Item]) -> bool {
    !items.is_empty() && items.iter().all(|item| item.as_table().is_some())
}

fn line(out: &mut String, key: &str, value: &str) {
    let _ = writeln!(out, "{key} = {value}");
}

fn comment(out: &mut String, key: &str, usual: &str) {
    let _ = writeln!(out, "# {key}: {usual}");
}

/// Returns a value in the form of TOML.
fn shown(item: &Item) -> String {
    match item.as_str() {
        Some(text) => marcato_document::quote(text),
        None => item.spoken(),
    }
}
