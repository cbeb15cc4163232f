//! Strict reading of a table: every key must be known, and every value must have its key's type.

use std::ops::RangeInclusive;
use std::time::Duration;

use marcato_document::nearest::{hint, nearest};
use marcato_document::quantity::{self, Of};
use marcato_document::{Item, Place, Table, Value, quote};
use marcato_units::Bytes;

use super::error::Faults;

/// Reader of a table. Faults are collected, and the caller goes on with a default.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) table: &'a Table,
    /// Noun of the table with its article, for messages.
    what: &'static str,
    pub(crate) faults: &'a Faults,
}

impl<'a> Keys<'a> {
    /// Opens a table, and reports each key that it does not have.
    pub(crate) fn open(table: &'a Table, what: &'static str, known: &[&str], faults: &'a Faults) -> Self {
        for (key, _) in &table.entries {
            let name = key.name.as_str();
            if known.contains(&name) {
                continue;
            }
            let is_root = super::ROOT.contains(&name) && nearest(name, known.iter().copied()).is_none();
            let remedy = match is_root {
                // In TOML, keys after a header belong to that table.
                true => "it is one of the whole file: put it above the first [table]".to_owned(),
                false => hint(name, known.iter().copied()),
            };
            faults.add(key.place, format!("`{name}` is not a key of {what}: {remedy}"));
        }
        Self { table, what, faults }
    }

    pub(crate) fn item(&self, key: &str) -> Option<&'a Item> {
        self.table.get(key)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.item(key).is_some()
    }

    /// Place of a key's value, or of the table.
    pub(crate) fn place(&self, key: &str) -> Place {
        self.table.place_of(key)
    }

    pub(crate) fn fault(&self, key: &str, problem: impl Into<String>) {
        self.faults.add(self.place(key), problem);
    }

    /// Reports a key that is absent.
    pub(crate) fn need(&self, key: &str, advice: &str) {
        if !self.has(key) {
            self.faults.add(self.table.place, format!("{} needs `{key}`: {advice}", self.what));
        }
    }

    fn wrong(&self, key: &str, item: &Item, wanted: &str) {
        self.faults.add(item.place, format!("`{key}` is {wanted}, not {}", item.value.what()));
    }

    pub(crate) fn string(&self, key: &str) -> Option<&'a str> {
        let item = self.item(key)?;
        match item.as_str() {
            Some("") => {
                self.fault(key, format!("`{key}` is empty: give it a value, or remove it"));
                None
            }
            Some(text) => Some(text),
            None => {
                self.wrong(key, item, "a string");
                None
            }
        }
    }

    pub(crate) fn boolean(&self, key: &str) -> Option<bool> {
        let item = self.item(key)?;
        match &item.value {
            Value::Boolean(flag) => Some(*flag),
            Value::String(text) if matches!(&**text, "true" | "false") => {
                self.fault(key, format!("`{key}` is true or false: write {text}, without quotes"));
                None
            }
            _ => {
                self.wrong(key, item, "true or false");
                None
            }
        }
    }

    /// Reads a whole number within a range.
    pub(crate) fn whole(&self, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let item = self.item(key)?;
        let (least, most) = (range.start(), range.end());
        match &item.value {
            Value::Integer(number) => {
                let found = u32::try_from(*number).ok().filter(|number| range.contains(number));
                if found.is_none() {
                    self.fault(key, format!("`{key}` is {number}: give {least} to {most}"));
                }
                found
            }
            Value::String(text) if text.parse::<u32>().is_ok() => {
                self.fault(key, format!("`{key}` is a whole number: write {text}, without quotes"));
                None
            }
            _ => {
                self.wrong(key, item, "a whole number");
                None
            }
        }
    }

    fn quantity(&self, key: &str, of: Of, unit: &str) -> Option<u64> {
        let item = self.item(key)?;
        let what = of.what();
        match &item.value {
            Value::String(text) => match quantity::read(text, of) {
                Ok(value) => return Some(value),
                Err(problem) => self.fault(key, problem),
            },
            Value::Integer(_) | Value::Float(_) | Value::Huge(_) => {
                let number = item.spoken();
                self.fault(key, format!("`{key}` is {what} and needs a unit: write \"{number} {unit}\""));
            }
            _ => self.wrong(key, item, &format!("{what} such as \"10 {unit}\"")),
        }
        None
    }

    /// Reads a span of time within a range.
    pub(crate) fn span(&self, key: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let span = Duration::from_nanos(self.quantity(key, Of::Span, "s")?);
        if range.contains(&span) {
            return Some(span);
        }
        let (least, most) = (quantity::span(*range.start()), quantity::span(*range.end()));
        self.fault(key, format!("`{key}` is {}: give {least} to {most}", quantity::span(span)));
        None
    }

    /// Reads a size within a range.
    pub(crate) fn size(&self, key: &str, range: RangeInclusive<u64>) -> Option<Bytes> {
        let size = self.quantity(key, Of::Size, "KiB")?;
        if range.contains(&size) {
            return Some(Bytes::new(size));
        }
        let shown = |bytes: u64| quantity::size(Bytes::new(bytes));
        let (least, most) = (shown(*range.start()), shown(*range.end()));
        self.fault(key, format!("`{key}` is {}: give {least} to {most}", shown(size)));
        None
    }

    /// Reads a word of a closed list.
    pub(crate) fn word<T: Copy>(&self, key: &str, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.string(key)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let advice = hint(text, words.iter().map(|(word, _)| *word).collect::<Vec<_>>());
            self.fault(key, format!("`{key}` is {}: {advice}", quote(text)));
        }
        found
    }

    /// Reads the items of a list, or one item without a list.
    pub(crate) fn items(&self, key: &str, most: usize) -> &'a [Item] {
        let Some(item) = self.item(key) else { return &[] };
        match &item.value {
            Value::Array(items) if items.len() > most => {
                self.fault(key, format!("`{key}` has {} entries: give at most {most}", items.len()));
                &[]
            }
            Value::Array(items) => items,
            _ => std::slice::from_ref(item),
        }
    }

    /// Reads a list of strings, or one string, each with its place.
    pub(crate) fn strings(&self, key: &str, most: usize) -> Vec<(&'a str, Place)> {
        let mut found = Vec::new();
        for item in self.items(key, most) {
            match item.as_str() {
                Some(text) => found.push((text, item.place)),
                None => self
                    .faults
                    .add(item.place, format!("`{key}` is a list of strings, not of {}", item.value.what())),
            }
        }
        found
    }

    /// Reads a list of tables.
    pub(crate) fn tables(&self, key: &str, most: usize) -> Vec<&'a Table> {
        if let Some(item) = self.item(key).filter(|item| item.as_table().is_some()) {
            self.faults
                .add(item.place, format!("`{key}` is a list of tables: write [[{key}]], in double brackets"));
        }
        let items = self.items(key, most).iter();
        items
            .filter_map(|item| {
                if item.as_table().is_none() {
                    self.faults.add(
                        item.place,
                        format!("`{key}` is a list of tables, not of {}", item.value.what()),
                    );
                }
                item.as_table()
            })
            .collect()
    }

    /// Reads a table.
    pub(crate) fn table(&self, key: &str) -> Option<&'a Table> {
        let item = self.item(key)?;
        let table = item.as_table();
        if table.is_none() {
            let remedy = match &item.value {
                Value::Array(items) if items.iter().any(|item| item.as_table().is_some()) => {
                    format!(": write [{key}], in single brackets, and only once")
                }
                _ => String::new(),
            };
            self.faults.add(item.place, format!("`{key}` is a table, not {}{remedy}", item.value.what()));
        }
        table
    }
}
