//! Table of guesses.

use marcato_document::{Item, Table, Value, quote};
use marcato_web::GuessTable;

use super::error::Faults;
use super::keys::Keys;

const KEYS: [&str; 8] = [
    "prefetch",
    "attachment",
    "large",
    "large-above-bytes",
    "decline-prefetch",
    "destinations",
    "types",
    "extensions",
];

/// Reads `[guess]`. Its values are judged by [`GuessTable`] itself, one at a time, so that each error has
/// its place.
pub(super) fn read(table: &Table, faults: &Faults) -> GuessTable {
    let keys = Keys::open(table, "[guess]", &KEYS, faults);
    let mut text = String::new();
    let mut tables = String::new();
    for (key, item) in table.entries.iter().filter(|(key, _)| KEYS.contains(&key.name.as_str())) {
        let name = key.name.as_str();
        if !matches!(name, "destinations" | "types" | "extensions") {
            text += &judged("", name, item, faults).unwrap_or_default();
            continue;
        }
        let header = format!("[{name}]\n");
        tables += &header;
        for (key, item) in keys.table(name).map_or(&[][..], |table| table.entries.as_slice()) {
            tables += &judged(&header, &key.name, item, faults).unwrap_or_default();
        }
    }
    // Each line alone was read.
    toml::from_str(&format!("{text}{tables}")).unwrap_or_default()
}

/// Returns an entry as a line, if the table accepts it.
fn judged(header: &str, key: &str, item: &Item, faults: &Faults) -> Option<String> {
    let value = match &item.value {
        Value::String(text) => quote(text),
        _ => item.spoken(),
    };
    let line = format!("{} = {value}\n", quote(key));
    match toml::from_str::<GuessTable>(&format!("{header}{line}")) {
        Ok(_) => Some(line),
        Err(error) => {
            faults.add(item.place, error.message().trim());
            None
        }
    }
}
