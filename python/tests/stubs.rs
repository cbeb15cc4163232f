//! Tests of the type stubs against the native module.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::path::Path;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the names that the module exports.
fn exported() -> BTreeSet<String> {
    let source = text("src/lib.rs");
    let parts = source.split("#[pymodule_export]").skip(1);
    let names = parts.flat_map(|part| {
        let statement = part.trim_start().split(';').next().unwrap_or_default();
        let names = match statement.strip_prefix("const ") {
            Some(constant) => constant.split(':').next().unwrap_or_default(),
            None => statement.rsplit("::").next().unwrap_or_default(),
        };
        names.trim_matches(['{', '}']).split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns the names at the top level of the stubs.
fn declared() -> BTreeSet<String> {
    let stubs = text("pymarcato/_native.pyi");
    let name = |line: &str| {
        let rest = line.strip_prefix("class ").or_else(|| line.strip_prefix("def ")).unwrap_or(line);
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let is_constant = rest.get(end..).is_some_and(|rest| rest.starts_with(':'));
        (rest.len() < line.len() || is_constant).then(|| rest.get(..end).unwrap_or_default().to_owned())
    };
    stubs.lines().filter(|line| line.starts_with(char::is_alphabetic)).filter_map(name).collect()
}

#[test]
fn every_export_has_a_stub_and_every_stub_an_export() {
    assert!(exported().len() > 8, "{:?}", exported());
    assert_eq!(exported(), declared());
}
