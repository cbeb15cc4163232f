//! Modules of the crate: none depends on another that depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Modules that the code below `path` names, without that of its tests.
fn named(path: &Path, into: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            named(&entry.unwrap().path(), into);
        }
        return;
    }
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    for line in code {
        let paths = line.split("crate::").skip(1);
        let module = |path: &str| path.chars().take_while(|at| at.is_alphanumeric() || *at == '_').collect();
        into.extend(paths.map(module));
    }
}

#[test]
fn no_two_modules_depend_on_each_other() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut arrows = BTreeMap::new();
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap().to_owned();
        let mut to = BTreeSet::new();
        named(&path, &mut to);
        to.remove(&name);
        arrows.insert(name, to);
    }
    assert!(arrows["connection"].contains("shared") && arrows["error"].contains("engine"), "{arrows:?}");
    // Modules that depend on no other are taken away, again and again. Circles remain.
    let mut rest = arrows;
    loop {
        let left: BTreeSet<String> = rest.keys().cloned().collect();
        let before = rest.len();
        rest.retain(|_, to| to.iter().any(|module| left.contains(module)));
        if rest.len() == before {
            break;
        }
    }
    assert!(rest.is_empty(), "modules in or above a circle: {rest:?}");
}
