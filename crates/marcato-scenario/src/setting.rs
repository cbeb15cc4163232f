//! Settings from `--set` and grids.

use marcato_document::nearest::hint;
use marcato_document::{Faults, Item, Key, Origin, Place, Table, Value};

use crate::read::link_name;

/// Setting: a key and its new value.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) key: Key,
    pub(crate) item: Item,
}

/// Time at which a setting is applied: those of the topology before it is expanded, all others
/// after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    BeforeTopology,
    AfterTopology,
}

impl Set {
    fn when(&self) -> When {
        let of_topology = self.key.name == "topology" || self.key.name.starts_with("topology.");
        if of_topology { When::BeforeTopology } else { When::AfterTopology }
    }

    /// Applies the setting to `root`, if its time is `when`. A key that refers to nothing is a
    /// fault.
    pub(crate) fn make(&self, root: &mut Table, when: When, faults: &Faults) {
        if self.when() != when {
            return;
        }
        let place = self.key.place;
        let parts: Vec<&str> = self.key.name.split('.').collect();
        let fault = |problem: String| faults.add(place, problem);
        if parts.contains(&"") {
            return fault(format!("`{}` is not a key: a part of it is empty", self.key.name));
        }
        match parts.as_slice() {
            ["grid" | "seed", ..] => {
                fault("seeds and grids are not set like this: write `seeds` in [grid], or --seed".to_owned());
            }
            ["topology" | "link" | "flow" | "record"] => {
                fault(format!(
                    "`{0}` is a whole table: state which of its settings, for example {0}.{1}",
                    parts[0],
                    example(parts[0])
                ));
            }
            [what @ ("link" | "flow"), name, rest @ ..] => {
                match (find(root, what, name), rest, &self.item.value) {
                    // A table as the value of a whole link or flow sets several of its keys at once.
                    (Ok(table), [], Value::Table(settings)) => {
                        for (key, item) in &settings.entries {
                            table.set(key.clone().set(), item.clone());
                        }
                    }
                    (_, [], value) if !matches!(value, Value::Table(_)) => fault(format!(
                        "state which setting of {what} `{name}`, for example {what}.{name}.{}",
                        second(what)
                    )),
                    (Ok(table), rest, _) => self.put(table, rest, faults),
                    // The name may belong to a table that could not be read.
                    (Err(_), ..) if !faults.has_names(what) => {}
                    (Err(names), ..) => fault(format!(
                        "there is no {what} `{name}`: {}",
                        hint(name, names.iter().map(String::as_str))
                    )),
                }
            }
            rest => self.put(root, rest, faults),
        }
    }

    /// Marks the key in `root` as varied by a grid. Keys of the file that do not fit another of its
    /// values are then ignored.
    pub(crate) fn note(&self, root: &mut Table) {
        let parts: Vec<&str> = self.key.name.split('.').collect();
        match parts.as_slice() {
            [what @ ("link" | "flow"), name, rest @ ..] => {
                let Ok(table) = find(root, what, name) else { return };
                match (rest, &self.item.value) {
                    ([], Value::Table(settings)) => {
                        settings.entries.iter().for_each(|(key, _)| vary(table, &[key.name.as_str()]));
                    }
                    (rest, _) => vary(table, rest),
                }
            }
            rest => vary(root, rest),
        }
    }

    /// Sets the value at `path`, starting from `table`.
    fn put(&self, table: &mut Table, path: &[&str], faults: &Faults) {
        let place = self.key.place;
        match path {
            [] => {}
            [last] => table.set(Key::new(*last, place).set(), self.item.clone()),
            [part, rest @ ..] => {
                if table.get(part).is_none() {
                    let empty = Item { value: Value::Table(Table::empty(place)), place };
                    table.set(Key::new(*part, place).set(), empty);
                }
                if let Some(item) = table.get_mut(part) {
                    self.enter(item, part, rest, faults);
                }
            }
        }
    }

    /// Sets the value at `path`, starting from `item`, whose name is `name`.
    fn enter(&self, item: &mut Item, name: &str, path: &[&str], faults: &Faults) {
        // queue = "codel" is short for { kind = "codel" }, to which keys can be added.
        if let Value::String(_) = item.value {
            let kind = std::mem::replace(&mut item.value, Value::Boolean(false));
            let place = item.place;
            let entry = (Key::new("kind", place), Item { value: kind, place });
            item.value = Value::Table(Table { entries: vec![entry], place });
        }
        match (&mut item.value, path) {
            (Value::Table(table), _) => self.put(table, path, faults),
            // A number selects an entry of a list, counted from 1.
            (Value::Array(items), [number, rest @ ..]) => {
                let many = items.len();
                let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                match (index.and_then(|index| items.get_mut(index)), rest) {
                    (Some(entry), []) => *entry = self.item.clone(),
                    (Some(entry), rest) => self.enter(entry, name, rest, faults),
                    (None, _) => {
                        let problem = format!(
                            "`{name}` is a list: state which entry, 1 to {many}, for example {name}.1"
                        );
                        faults.add(self.key.place, problem);
                    }
                }
            }
            (other, _) => {
                faults.add(self.key.place, format!("`{name}` is {}, which has no keys", other.what()));
            }
        }
    }
}

/// Marks the key at `path`, starting from `table`, as varied, if the file has it.
fn vary(table: &mut Table, path: &[&str]) {
    let [part, rest @ ..] = path else { return };
    let Some((key, item)) = table.entries.iter_mut().find(|(key, _)| key.name == *part) else { return };
    match (rest, &mut item.value) {
        ([], _) => key.origin = Origin::Varied,
        (rest, Value::Table(inner)) => vary(inner, rest),
        _ => {}
    }
}

fn example(what: &str) -> &'static str {
    match what {
        "topology" => "rate",
        "record" => "every",
        "link" => "bottleneck.rate",
        _ => "bulk.start",
    }
}

fn second(what: &str) -> &'static str {
    if what == "link" { "rate" } else { "start" }
}

/// Returns the link or flow of this name, or else the names that exist.
fn find<'a>(root: &'a mut Table, what: &str, name: &str) -> Result<&'a mut Table, Vec<String>> {
    let name_of = |table: &Table| match what {
        "link" => link_name(table),
        _ => table.get("name").and_then(Item::as_str).map(ToOwned::to_owned),
    };
    let names: Vec<String> = root.tables(what).filter_map(name_of).collect();
    if let Some(Item { value: Value::Array(items), .. }) = root.get_mut(what) {
        for item in items {
            if let Value::Table(table) = &mut item.value
                && name_of(table).as_deref() == Some(name)
            {
                return Ok(table);
            }
        }
    }
    Err(names)
}

/// Reads `KEY=VALUE` from the text with index `source`.
pub(crate) fn read(source: usize, text: &str, faults: &Faults) -> Option<Set> {
    let Some((key, value)) = text.split_once('=') else {
        let place = Place { source, start: 0, end: text.len() };
        faults.add(place, "a setting is KEY=VALUE, for example link.bottleneck.rate=\"5 Mbit/s\"".to_owned());
        return None;
    };
    let at = key.len() + 1;
    let blanks = value.len() - value.trim_start().len();
    let item = marcato_document::parse_value(source, at + blanks, value.trim());
    let place = Place { source, start: 0, end: key.len() };
    Some(Set { key: Key::new(key.trim(), place), item })
}
