//! The text of a scenario as a tree whose every leaf knows where it stands.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::fault::Faults;

/// Where something stands: in which text, and from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// 0 is the file; what follows are settings from elsewhere.
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Place {
    fn new(source: usize, span: Range<usize>) -> Self {
        Self { source, start: span.start, end: span.end }
    }

    /// The beginning of the file, for what is missing from all of it.
    pub(crate) const START: Self = Self { source: 0, start: 0, end: 0 };
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    String(Rc<str>),
    Integer(i64),
    Float(f64),
    /// A number, as it is written, that neither of these can hold.
    Huge(Rc<str>),
    Boolean(bool),
    /// A date, of which a scenario has no use.
    Date,
    Array(Vec<Item>),
    Table(Table),
}

impl Value {
    /// What it is, with its article.
    pub(crate) const fn what(&self) -> &'static str {
        match self {
            Self::String(_) => "a string",
            Self::Integer(_) | Self::Float(_) | Self::Huge(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::Date => "a date",
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

impl Item {
    pub(crate) fn string(text: &str, place: Place) -> Self {
        Self { value: Value::String(text.into()), place }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The value as one writes it after `--set KEY=`.
    pub(crate) fn spoken(&self) -> String {
        match &self.value {
            Value::String(text) => text.to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => float(*number),
            Value::Huge(number) => number.to_string(),
            Value::Boolean(flag) => flag.to_string(),
            Value::Date => "?".to_owned(),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(Self::quoted).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Table(table) => {
                let quoted =
                    |(key, item): &(Key, Self)| format!("{} = {}", key_text(&key.name), item.quoted());
                let entries: Vec<String> = table.entries.iter().map(quoted).collect();
                if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
            }
        }
    }

    /// The value as it stands within another.
    fn quoted(&self) -> String {
        match &self.value {
            Value::String(text) => quote(text),
            _ => self.spoken(),
        }
    }
}

/// A number as TOML has it.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() { "nan".to_owned() } else { format!("{number:?}") }
}

/// A key, bare if it may be.
fn key_text(name: &str) -> Cow<'_, str> {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { Cow::Borrowed(name) } else { Cow::Owned(quote(name)) }
}

/// A basic string of TOML.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Who gives a key its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The file.
    File,
    /// The file, but its grid varies the key.
    Varied,
    /// A grid or `--set`.
    Set,
}

/// A key and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) origin: Origin,
}

impl Key {
    /// A key of the file.
    pub(crate) fn new(name: impl Into<String>, place: Place) -> Self {
        Self { name: name.into(), place, origin: Origin::File }
    }

    /// The same key, set by a grid or `--set`.
    pub(crate) fn set(mut self) -> Self {
        self.origin = Origin::Set;
        self
    }
}

/// Keys and values, in the order of the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) entries: Vec<(Key, Item)>,
    pub(crate) place: Place,
}

impl Table {
    pub(crate) const fn empty(place: Place) -> Self {
        Self { entries: Vec::new(), place }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Item> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(_, item)| item)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Item> {
        self.entries.iter_mut().find(|(key, _)| key.name == name).map(|(_, item)| item)
    }

    /// Who gives a key its value; `None` if it has none.
    pub(crate) fn origin(&self, name: &str) -> Option<Origin> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(key, _)| key.origin)
    }

    /// Where the value of a key stands; without one, where the table does.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        self.get(name).map_or(self.place, |item| item.place)
    }

    /// Sets a key, at the end if it is new.
    pub(crate) fn set(&mut self, key: Key, item: Item) {
        match self.entries.iter_mut().find(|(old, _)| old.name == key.name) {
            Some(entry) => *entry = (key, item),
            None => self.entries.push((key, item)),
        }
    }

    /// The items of an array of tables under this key; none if there is no such array.
    pub(crate) fn tables(&self, name: &str) -> impl Iterator<Item = &Self> {
        let items = match self.get(name) {
            Some(Item { value: Value::Array(items), .. }) => items.as_slice(),
            _ => &[],
        };
        items.iter().filter_map(Item::as_table)
    }
}

/// Reads the text of source `source`. What of it is no TOML is a fault; the rest is there all the same. The flag is whether
/// the rest is worth reading: of a text that breaks TOML's grammar it may be anything.
pub(crate) fn parse(source: usize, text: &str, faults: &Faults) -> (Table, bool) {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut readable = true;
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().trim();
        let is_twice = message == "duplicate key";
        readable &= is_twice;
        let problem = match text.get(span.clone()).filter(|_| is_twice) {
            Some(name @ ("link" | "flow")) => {
                format!("there are several tables `{name}`: write [[{name}]] above each, in double brackets")
            }
            Some(name) => format!("`{name}` is there twice: leave one out"),
            None => format!("this is not TOML: {message}"),
        };
        faults.add(Place::new(source, span), problem);
    }
    let span = root.span();
    let reader = Converter { source };
    let mut table = reader.table(span, root.get_ref());
    table.place = Place { source, start: 0, end: 0 };
    (table, readable)
}

/// Reads the value of a setting given as `KEY=VALUE`, whose value begins at `at`: as TOML if it is any, else as a string.
pub(crate) fn parse_value(source: usize, at: usize, text: &str) -> Item {
    let place = Place { source, start: at, end: at + text.len() };
    match DeValue::parse(text) {
        // A date is rather a string that looks like one.
        Ok(value) if !value.get_ref().is_datetime() => {
            let mut item = Converter { source }.item(&value);
            shift(&mut item, at);
            item
        }
        _ => Item::string(text, place),
    }
}

/// Moves what was read from the middle of a text to where it stands.
fn shift(item: &mut Item, by: usize) {
    let moved = |place: &mut Place| {
        place.start += by;
        place.end += by;
    };
    moved(&mut item.place);
    match &mut item.value {
        Value::Array(items) => items.iter_mut().for_each(|item| shift(item, by)),
        Value::Table(table) => {
            moved(&mut table.place);
            for (key, item) in &mut table.entries {
                moved(&mut key.place);
                shift(item, by);
            }
        }
        _ => {}
    }
}

struct Converter {
    source: usize,
}

impl Converter {
    fn table(&self, span: Range<usize>, table: &DeTable<'_>) -> Table {
        let mut entries: Vec<(Key, Item)> = table
            .iter()
            .map(|(key, value)| {
                let place = Place::new(self.source, key.span());
                (Key::new(key.get_ref().as_ref(), place), self.item(value))
            })
            .collect();
        // The parser sorts by name; a person reads from above.
        entries.sort_by_key(|(key, _)| key.place);
        Table { entries, place: Place::new(self.source, span) }
    }

    fn item(&self, value: &Spanned<DeValue<'_>>) -> Item {
        let place = Place::new(self.source, value.span());
        let value = match value.get_ref() {
            DeValue::String(text) => Value::String(text.as_ref().into()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Huge(number.to_string().into()),
            },
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(value) if value.is_finite() || number.as_str().contains("inf") => Value::Float(value),
                Ok(value) if value.is_nan() => Value::Float(value),
                _ => Value::Huge(number.as_str().into()),
            },
            DeValue::Boolean(flag) => Value::Boolean(*flag),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(items) => Value::Array(items.iter().map(|item| self.item(item)).collect()),
            DeValue::Table(table) => Value::Table(self.table(value.span(), table)),
        };
        Item { value, place }
    }
}
