//! Strict reading of a table: every key must be known, and every value must have its key's type.

use std::ops::RangeInclusive;

use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Word};

use crate::document::{Item, Origin, Place, Table, Value, float, quote};
use crate::faults::Faults;
use crate::nearest::{hint, nearest};
use crate::quantity::{self, Of};
use crate::schema::Schema;

/// Reader of a table's keys. Errors go to `faults`, and the caller continues with a default.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    table: &'a Table,
    schema: &'static Schema,
    /// Collector of faults.
    pub faults: &'a Faults,
}

impl<'a> Keys<'a> {
    /// Opens a table, and adds a fault for each key outside its schema.
    pub fn open(table: &'a Table, schema: &'static Schema, faults: &'a Faults) -> Self {
        Self::open_beside(table, schema, &[], faults)
    }

    /// Opens a table that could also have been one of `others`. The fault for one of their keys
    /// names the kind that it belongs to.
    pub fn open_beside(
        table: &'a Table,
        schema: &'static Schema,
        others: &[&'static Schema],
        faults: &'a Faults,
    ) -> Self {
        let format = faults.format();
        for (key, _) in &table.entries {
            let name = key.name.as_str();
            if schema.has(name) {
                continue;
            }
            let what = schema.what;
            let problem = match others.iter().find(|other| other.has(name)) {
                Some(other) => {
                    format!("`{name}` is a key of {}, but this is {what}: leave it out", other.what)
                }
                // In TOML, keys after a header belong to that table. A key of the whole file below a
                // header is the most common mistake.
                None if format.root.has(name) && nearest(name, schema.all()).is_none() => {
                    let whole = format.whole;
                    format!("`{name}` is not a key of {what} but of {whole}: put it above the first [table]")
                }
                None => format!("`{name}` is not a key of {what}: {}", hint(name, schema.all())),
            };
            faults.add(key.place, problem);
        }
        Self { table, schema, faults }
    }

    /// Opens a table without a check of its keys, as some may belong to another schema.
    pub fn trusting(table: &'a Table, schema: &'static Schema, faults: &'a Faults) -> Self {
        Self { table, schema, faults }
    }

    /// Returns a reader of the same table whose faults go to `faults`.
    pub const fn silent(&self, faults: &'a Faults) -> Self {
        Self { table: self.table, schema: self.schema, faults }
    }

    /// Returns the value of a key.
    pub fn item(&self, key: &str) -> Option<&'a Item> {
        debug_assert!(self.schema.has(key), "{key} is missing from the schema of {}", self.schema.what);
        self.table.get(key)
    }

    /// Returns whether the key has a value.
    pub fn has(&self, key: &str) -> bool {
        self.item(key).is_some()
    }

    /// Returns the value of a key that only some tables of this family have.
    pub fn optional(&self, key: &str) -> Option<&'a Item> {
        if self.schema.has(key) { self.table.get(key) } else { None }
    }

    /// Returns whether a grid or `--set` chooses the value of a key. Keys of the file that only fit
    /// another value are then ignored.
    pub fn is_chosen(&self, key: &str) -> bool {
        self.table.origin(key).is_some_and(|origin| origin != Origin::File)
    }

    /// Returns whether a grid or `--set` gives a key its value.
    pub fn is_set(&self, key: &str) -> bool {
        self.table.origin(key) == Some(Origin::Set)
    }

    /// Returns the place of a key's value, or of the table if the key has no value.
    pub fn place(&self, key: &str) -> Place {
        self.table.place_of(key)
    }

    /// Returns the place of the table.
    pub fn here(&self) -> Place {
        self.table.place
    }

    /// Adds a fault at a key's value, or at the table if the key has no value.
    pub fn fault(&self, key: &str, problem: impl Into<String>) {
        self.faults.add(self.place(key), problem.into());
    }

    /// Returns whether the key exists, and adds a fault if not. `advice` explains the key's use and
    /// gives an example.
    pub fn need(&self, key: &str, advice: &str) -> bool {
        let there = self.item(key).is_some();
        if !there {
            self.faults.add(self.here(), format!("{} needs `{key}`: {advice}", self.schema.what));
        }
        there
    }

    fn wrong_type(&self, key: &str, item: &Item, wanted: &str) {
        self.faults.add(item.place, format!("`{key}` is {wanted}, not {}", item.value.what()));
    }

    /// Reads a string.
    pub fn string(&self, key: &str) -> Option<&'a str> {
        let item = self.item(key)?;
        let text = item.as_str();
        if text.is_none() {
            self.wrong_type(key, item, "a string");
        }
        text
    }

    /// Reads a string with at least one character.
    pub fn some_string(&self, key: &str) -> Option<&'a str> {
        let text = self.string(key)?;
        if text.is_empty() {
            self.fault(key, format!("`{key}` is empty: give it a value, or remove it"));
            return None;
        }
        Some(text)
    }

    /// Reads true or false.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        let item = self.item(key)?;
        match &item.value {
            Value::Boolean(flag) => Some(*flag),
            Value::String(text) if matches!(&**text, "true" | "false") => {
                self.fault(key, format!("`{key}` is true or false: write {text}, without quotes"));
                None
            }
            _ => {
                self.wrong_type(key, item, "true or false");
                None
            }
        }
    }

    /// Reads a whole number of 64 bits within a range.
    pub fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let item = self.item(key)?;
        integer_of(key, item, range, self.faults)
    }

    /// Reads a whole number of 32 bits within a range.
    pub fn small(&self, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        self.integer(key, range).and_then(|number| u32::try_from(number).ok())
    }

    /// Reads a number within a range.
    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let item = self.item(key)?;
        let (least, most) = (range.start(), range.end());
        let within = if *most >= 1e12 { format!("at least {least}") } else { format!("{least} to {most}") };
        let number = match &item.value {
            Value::Float(number) => *number,
            Value::Huge(number) => {
                self.fault(key, format!("`{key}` is {within}, not {number}"));
                return None;
            }
            Value::Integer(number) => *number as f64,
            Value::String(text) if text.trim_end_matches([' ', '%']).parse::<f64>().is_ok() => {
                let bare = text.trim_end_matches([' ', '%']);
                let number = if text.contains('%') {
                    bare.parse::<f64>().unwrap_or_default() / 100.0
                } else {
                    bare.parse().unwrap_or_default()
                };
                self.fault(key, format!("`{key}` is a number: write {number}, without quotes"));
                return None;
            }
            _ => {
                self.wrong_type(key, item, "a number");
                return None;
            }
        };
        // NaN lies in no range, so it is refused here.
        if range.contains(&number) {
            return Some(number);
        }
        let number = if number.is_nan() { "nan".to_owned() } else { number.to_string() };
        self.fault(key, format!("`{key}` is {within}, not {number}"));
        None
    }

    /// Reads a probability.
    pub fn probability(&self, key: &str) -> Option<f64> {
        self.number(key, 0.0..=1.0)
    }

    fn quantity(&self, key: &str, of: Of) -> Option<u64> {
        let item = self.item(key)?;
        quantity_of(key, item, of, self.faults)
    }

    /// Reads a span of time.
    pub fn span(&self, key: &str) -> Option<Duration> {
        self.quantity(key, Of::Span).map(Duration::from_nanos)
    }

    /// Reads a span above 0.
    pub fn some_span(&self, key: &str) -> Option<Duration> {
        let span = self.span(key)?;
        if span.is_zero() {
            self.fault(key, format!("`{key}` is 0: set it above 0"));
            return None;
        }
        Some(span)
    }

    /// Reads a span within a range.
    pub fn span_within(&self, key: &str, range: &RangeInclusive<Duration>) -> Option<Duration> {
        let span = self.span(key)?;
        let (least, most) = (quantity::span(*range.start()), quantity::span(*range.end()));
        self.within(key, range.contains(&span), &least, &most, &quantity::span(span))?;
        Some(span)
    }

    /// Reads a size within a range.
    pub fn size_within(&self, key: &str, range: &RangeInclusive<Bytes>) -> Option<Bytes> {
        let size = self.size(key)?;
        let (least, most) = (quantity::size(*range.start()), quantity::size(*range.end()));
        self.within(key, range.contains(&size), &least, &most, &quantity::size(size))?;
        Some(size)
    }

    /// Adds a fault if a quantity is not within its range.
    fn within(&self, key: &str, is_within: bool, least: &str, most: &str, found: &str) -> Option<()> {
        if !is_within {
            self.fault(key, format!("`{key}` is {least} to {most}, not {found}"));
        }
        is_within.then_some(())
    }

    /// Reads a size.
    pub fn size(&self, key: &str) -> Option<Bytes> {
        self.quantity(key, Of::Size).map(Bytes::new)
    }

    /// Reads a size above 0.
    pub fn some_size(&self, key: &str) -> Option<Bytes> {
        let size = self.size(key)?;
        if size.is_zero() {
            self.fault(key, format!("`{key}` is 0: set it above 0"));
            return None;
        }
        Some(size)
    }

    /// Reads a rate.
    pub fn rate(&self, key: &str) -> Option<Rate> {
        self.quantity(key, Of::Rate).map(Rate::from_bps)
    }

    /// Reads a rate above 0.
    pub fn some_rate(&self, key: &str) -> Option<Rate> {
        let rate = self.rate(key)?;
        if rate == Rate::ZERO {
            self.fault(key, format!("`{key}` is 0, and nothing would be sent: set it above 0"));
            return None;
        }
        Some(rate)
    }

    /// Reads a word of a closed list.
    pub fn word<T: Copy>(&self, key: &str, words: &[Word<T>]) -> Option<T> {
        let text = self.string(key)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            self.fault(key, unknown_word(key, text, words));
        }
        found
    }

    /// Reads a priority.
    pub fn priority(&self, key: &str) -> Option<Priority> {
        let item = self.item(key)?;
        if let Value::Integer(number @ 0..=4) = item.value {
            self.fault(key, format!("`{key}` is a priority: write \"p{number}\", not {number}"));
            return None;
        }
        let text = self.string(key)?;
        let digit = text.strip_prefix(['p', 'P']).and_then(|digit| digit.parse().ok());
        let priority = digit.and_then(Priority::from_index);
        if priority.is_none() {
            self.fault(
                key,
                format!("`{text}` is not a priority: write \"p0\" (critical) to \"p4\" (background)"),
            );
        }
        priority
    }

    /// Reads a layer of the network.
    pub fn layer(&self, key: &str) -> Option<Layer> {
        self.word(key, &[Layer::High, Layer::Low].map(|layer| (layer.name(), layer)))
    }

    /// Reads a list of at most `most` items.
    pub fn list(&self, key: &str, most: usize) -> Option<&'a [Item]> {
        let item = self.item(key)?;
        match &item.value {
            Value::Array(items) if items.len() <= most => Some(items),
            Value::Array(items) => {
                self.fault(key, format!("`{key}` has {} entries: give at most {most}", items.len()));
                None
            }
            _ => {
                self.wrong_type(key, item, "a list");
                None
            }
        }
    }

    /// Reads a list of at most `most` items, or one item without a list.
    pub fn several(&self, key: &str, most: usize) -> &'a [Item] {
        match self.item(key) {
            Some(Item { value: Value::Array(_), .. }) => self.list(key, most).unwrap_or_default(),
            item => item.map_or(&[], std::slice::from_ref),
        }
    }

    /// Reads a list of tables; any other item is a fault.
    pub fn tables(&self, key: &'a str, most: usize) -> impl Iterator<Item = &'a Table> + use<'a> {
        let faults = self.faults;
        let items = match self.item(key) {
            Some(item @ Item { value: Value::Table(_), .. }) => {
                let remedy = match faults.begins_with(item.place, '[') {
                    true => format!("write [[{key}]], in double brackets"),
                    false => "put it into [ ]".to_owned(),
                };
                faults.add(item.place, format!("`{key}` is a list of tables, not one alone: {remedy}"));
                std::slice::from_ref(item)
            }
            _ => self.list(key, most).unwrap_or_default(),
        };
        items.iter().filter_map(move |item| {
            let table = item.as_table();
            if table.is_none() {
                faults.add(item.place, format!("`{key}` is a list of tables, not of {}", item.value.what()));
            }
            table
        })
    }

    /// Reads a list of strings with their places.
    pub fn strings(&self, key: &str, most: usize) -> Vec<(&'a str, Place)> {
        self.strings_of(key, self.list(key, most).unwrap_or_default())
    }

    /// Reads a list of strings, or one string without a list, with their places.
    pub fn several_strings(&self, key: &str, most: usize) -> Vec<(&'a str, Place)> {
        self.strings_of(key, self.several(key, most))
    }

    fn strings_of(&self, key: &str, items: &'a [Item]) -> Vec<(&'a str, Place)> {
        let mut strings = Vec::new();
        for item in items {
            match item.as_str() {
                Some(text) => strings.push((text, item.place)),
                None => {
                    self.faults.add(
                        item.place,
                        format!("`{key}` is a list of strings, not of {}", item.value.what()),
                    );
                }
            }
        }
        strings
    }

    /// Reads a table under a key.
    pub fn table(&self, key: &str) -> Option<&'a Table> {
        let item = self.item(key)?;
        let table = item.as_table();
        if table.is_none() {
            self.faults.add(item.place, no_table(key, item));
        }
        table
    }
}

/// Returns the message for a value that should be a table.
pub fn no_table(key: &str, item: &Item) -> String {
    let remedy = match &item.value {
        Value::Array(items) if items.iter().any(|item| item.as_table().is_some()) => {
            format!(": write [{key}], in single brackets, and only once")
        }
        _ => String::new(),
    };
    format!("`{key}` is a table, not {}{remedy}", item.value.what())
}

fn unknown_word<T>(key: &str, text: &str, words: &[Word<T>]) -> String {
    let advice = hint(text, words.iter().map(|(word, _)| *word).collect::<Vec<_>>());
    format!("`{key}` is {}: {advice}", quote(text))
}

/// Reads a value as a whole number within a range.
pub fn integer_of(key: &str, item: &Item, range: RangeInclusive<u64>, faults: &Faults) -> Option<u64> {
    let (least, most) = (*range.start(), *range.end());
    match &item.value {
        Value::Integer(number) => {
            let found = u64::try_from(*number).ok().filter(|number| range.contains(number));
            if found.is_none() {
                let within =
                    if most == u64::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
                faults.add(item.place, format!("`{key}` is {within}, not {number}"));
            }
            found
        }
        Value::String(text) if text.parse::<u64>().is_ok() => {
            faults.add(item.place, format!("`{key}` is a whole number: write {text}, without quotes"));
            None
        }
        Value::Float(number) => {
            faults.add(item.place, format!("`{key}` is a whole number, not {}", float(*number)));
            None
        }
        Value::Huge(number) => {
            let within =
                if most == u64::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
            faults.add(item.place, format!("`{key}` is {within}, not {number}"));
            None
        }
        other => {
            faults.add(item.place, format!("`{key}` is a whole number, not {}", other.what()));
            None
        }
    }
}

/// Reads a value as a quantity.
pub fn quantity_of(key: &str, item: &Item, of: Of, faults: &Faults) -> Option<u64> {
    match &item.value {
        Value::String(text) => match quantity::read(text, of) {
            Ok(value) => return Some(value),
            Err(wrong) => faults.add(item.place, wrong),
        },
        Value::Huge(number) => faults.add(item.place, format!("`{number}` is more than can be counted")),
        Value::Float(number) if !number.is_finite() => {
            let (what, number) = (of.what(), float(*number));
            let problem =
                format!("`{key}` is {what}, for example \"{}\", not {number}", example(key, of, faults));
            faults.add(item.place, problem);
        }
        Value::Integer(_) | Value::Float(_) => {
            let number = item.spoken();
            let unit = (faults.format().unit)(key, of);
            let what = of.what();
            faults.add(
                item.place,
                format!("`{key}` is {what} and needs a unit: write \"{number} {unit}\", not {number}"),
            );
        }
        other => {
            let what = other.what();
            faults.add(
                item.place,
                format!("`{key}` is {}, for example \"{}\", not {what}", of.what(), example(key, of, faults)),
            );
        }
    }
    None
}

fn example(key: &str, of: Of, faults: &Faults) -> String {
    format!("10 {}", (faults.format().unit)(key, of))
}
