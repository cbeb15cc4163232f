//! Settings of a quick run.

use marcato_document::{Faults, Item, Key, Table, Value, no_table};

use crate::setting::Set;

/// Returns the settings of `[quick]`.
pub(crate) fn read(root: &Table, faults: &Faults) -> Vec<Set> {
    let mut sets = Vec::new();
    match root.get("quick") {
        Some(Item { value: Value::Table(table), .. }) => collect(table, "", &mut sets),
        Some(other) => faults.add(other.place, no_table("quick", other)),
        None => {}
    }
    sets
}

/// Returns `[quick]` if it has seeds.
pub(crate) fn seeds(root: &Table) -> Option<&Table> {
    root.get("quick")?.as_table().filter(|quick| quick.get("seeds").is_some())
}

/// Collects the settings. A nested table continues its key.
fn collect(table: &Table, before: &str, sets: &mut Vec<Set>) {
    for (key, item) in &table.entries {
        let name = if before.is_empty() { key.name.clone() } else { format!("{before}.{}", key.name) };
        match &item.value {
            Value::Table(inner) => collect(inner, &name, sets),
            _ if name == "seeds" => {}
            _ => sets.push(Set { key: Key::new(name, key.place), item: item.clone() }),
        }
    }
}
