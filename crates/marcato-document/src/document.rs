//! Tree of a TOML text, in which every value has its position.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Position of a key or value: a text and a byte range within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Index of the text: 0 is the file, and higher numbers are settings from elsewhere.
    pub source: usize,
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
}

impl Place {
    fn new(source: usize, span: Range<usize>) -> Self {
        Self { source, start: span.start, end: span.end }
    }

    /// Start of the file, used for keys that are missing from the whole file.
    pub const START: Self = Self { source: 0, start: 0, end: 0 };
}

/// Value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// String.
    String(Rc<str>),
    /// Whole number.
    Integer(i64),
    /// Number with a fraction or an exponent.
    Float(f64),
    /// Number, as written, that fits neither an integer nor a float.
    Huge(Rc<str>),
    /// True or false.
    Boolean(bool),
    /// Date, which no key accepts.
    Date,
    /// List.
    Array(Vec<Item>),
    /// Table.
    Table(Table),
}

impl Value {
    /// Returns the value's type with its article, for error messages.
    pub const fn what(&self) -> &'static str {
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

/// Value with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Value.
    pub value: Value,
    /// Position.
    pub place: Place,
}

impl Item {
    /// Creates a string.
    pub fn string(text: &str, place: Place) -> Self {
        Self { value: Value::String(text.into()), place }
    }

    /// Returns the string; `None` for other values.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the table; `None` for other values.
    pub fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Returns the value as a user writes it after `--set KEY=`.
    pub fn spoken(&self) -> String {
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

    /// Returns the value as it stands within another value.
    fn quoted(&self) -> String {
        match &self.value {
            Value::String(text) => quote(text),
            _ => self.spoken(),
        }
    }
}

/// Formats a number as TOML does.
pub fn float(number: f64) -> String {
    if number.is_nan() { "nan".to_owned() } else { format!("{number:?}") }
}

/// Formats a key: bare if TOML allows it, otherwise quoted.
fn key_text(name: &str) -> Cow<'_, str> {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { Cow::Borrowed(name) } else { Cow::Owned(quote(name)) }
}

/// Formats a basic string of TOML.
pub fn quote(text: &str) -> String {
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

/// Source of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// File.
    File,
    /// File, for a key that the grid varies.
    Varied,
    /// Grid or `--set`.
    Set,
}

/// Key with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Name, without quotes.
    pub name: String,
    /// Position.
    pub place: Place,
    /// Source of the value.
    pub origin: Origin,
}

impl Key {
    /// Creates a key of the file.
    pub fn new(name: impl Into<String>, place: Place) -> Self {
        Self { name: name.into(), place, origin: Origin::File }
    }

    /// Marks the key as set by a grid or `--set`.
    pub fn set(mut self) -> Self {
        self.origin = Origin::Set;
        self
    }
}

/// Keys and values, in the order of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Entries.
    pub entries: Vec<(Key, Item)>,
    /// Position: of the header, or of the braces.
    pub place: Place,
}

impl Table {
    /// Creates a table without entries.
    pub const fn empty(place: Place) -> Self {
        Self { entries: Vec::new(), place }
    }

    /// Returns the value of a key.
    pub fn get(&self, name: &str) -> Option<&Item> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(_, item)| item)
    }

    /// Returns the value of a key, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Item> {
        self.entries.iter_mut().find(|(key, _)| key.name == name).map(|(_, item)| item)
    }

    /// Returns the source of a key's value; `None` if the key has no value.
    pub fn origin(&self, name: &str) -> Option<Origin> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(key, _)| key.origin)
    }

    /// Returns the place of a key's value, or of the table if the key has no value.
    pub fn place_of(&self, name: &str) -> Place {
        self.get(name).map_or(self.place, |item| item.place)
    }

    /// Sets a key, and appends it if it is new.
    pub fn set(&mut self, key: Key, item: Item) {
        match self.entries.iter_mut().find(|(old, _)| old.name == key.name) {
            Some(entry) => *entry = (key, item),
            None => self.entries.push((key, item)),
        }
    }

    /// Returns the items of the array of tables under this key; none if there is no such array.
    pub fn tables(&self, name: &str) -> impl Iterator<Item = &Self> {
        let items = match self.get(name) {
            Some(Item { value: Value::Array(items), .. }) => items.as_slice(),
            _ => &[],
        };
        items.iter().filter_map(Item::as_table)
    }
}

/// Reads the text with index `source`, and reports each part that is not TOML to `fault`. `lists` are the
/// keys whose tables may be repeated.
///
/// The table holds what could be read. The flag says whether to check it further: after an error of
/// grammar the rest may have been misread, whereas a duplicate key is harmless.
pub fn parse(
    source: usize,
    text: &str,
    lists: &[&str],
    mut fault: impl FnMut(Place, String),
) -> (Table, bool) {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut readable = true;
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().trim();
        let is_twice = message == "duplicate key";
        readable &= is_twice;
        let problem = match text.get(span.clone()).filter(|_| is_twice) {
            Some(name) if lists.contains(&name) => {
                format!("there are several tables `{name}`: write [[{name}]] above each, in double brackets")
            }
            Some(name) => format!("`{name}` is given twice: remove one"),
            None => format!("this is not TOML: {message}"),
        };
        fault(Place::new(source, span), problem);
    }
    let span = root.span();
    let reader = Converter { source };
    let mut table = reader.table(span, root.get_ref());
    table.place = Place { source, start: 0, end: 0 };
    (table, readable)
}

/// Reads the value of a setting `KEY=VALUE`, which begins at byte `at`. Text that is not a TOML
/// value is a string.
pub fn parse_value(source: usize, at: usize, text: &str) -> Item {
    let place = Place { source, start: at, end: at + text.len() };
    match DeValue::parse(text) {
        // No key takes a date, so text that looks like one is meant as a string.
        Ok(value) if !value.get_ref().is_datetime() => {
            let mut item = Converter { source }.item(&value);
            shift(&mut item, at);
            item
        }
        _ => Item::string(text, place),
    }
}

/// Shifts positions by `by` bytes, for text that was parsed out of the middle of a source.
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
        // The parser sorts keys by name. The order of the text is restored so that faults and
        // listings follow the file.
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
