//! Strict reading of a table: every key must be known, and every value must have its key's type.

use std::ops::RangeInclusive;
use std::rc::Rc;

use marcato_document::nearest::{hint, nearest};
use marcato_document::quantity::{self, Of};
use marcato_document::{Item, Origin, Place, Table, Value, float, quote};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate};

use crate::fault::Faults;
use crate::plugin::{Parameter, Parameters, Plugin, PluginKind};
use crate::read::ROOT;
use crate::schema::Schema;

/// Reader of a table's keys. Errors go to `faults`, and the caller continues with a default.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    table: &'a Table,
    schema: &'static Schema,
    pub(crate) faults: &'a Faults,
}

/// Word of a closed list, with its meaning.
pub(crate) type Word<T> = (&'static str, T);

impl<'a> Keys<'a> {
    /// Opens a table, and adds a fault for each key outside its schema.
    pub(crate) fn open(table: &'a Table, schema: &'static Schema, faults: &'a Faults) -> Self {
        Self::open_beside(table, schema, &[], faults)
    }

    /// Opens a table that could also have been one of `others`. The fault for one of their keys
    /// names the kind that it belongs to.
    pub(crate) fn open_beside(
        table: &'a Table,
        schema: &'static Schema,
        others: &[&'static Schema],
        faults: &'a Faults,
    ) -> Self {
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
                // In TOML, keys after a header belong to that table. A key of the scenario below a
                // header is the most common mistake.
                None if ROOT.has(name) && nearest(name, schema.all()).is_none() => {
                    format!(
                        "`{name}` is not a key of {what} but of the scenario: put it above the first [table]"
                    )
                }
                None => format!("`{name}` is not a key of {what}: {}", hint(name, schema.all())),
            };
            faults.add(key.place, problem);
        }
        Self { table, schema, faults }
    }

    /// Opens a table without a check of its keys, as some may belong to another schema.
    pub(crate) fn trusting(table: &'a Table, schema: &'static Schema, faults: &'a Faults) -> Self {
        Self { table, schema, faults }
    }

    /// Returns a reader of the same table whose faults go to `faults`.
    pub(crate) const fn silent(&self, faults: &'a Faults) -> Self {
        Self { table: self.table, schema: self.schema, faults }
    }

    /// Returns the value of a key.
    pub(crate) fn item(&self, key: &str) -> Option<&'a Item> {
        debug_assert!(self.schema.has(key), "{key} is missing from the schema of {}", self.schema.what);
        self.table.get(key)
    }

    /// Returns the value of a key that only some tables of this family have.
    pub(crate) fn optional(&self, key: &str) -> Option<&'a Item> {
        if self.schema.has(key) { self.table.get(key) } else { None }
    }

    /// Returns whether a grid or `--set` chooses the value of a key. Keys of the file that only fit
    /// another value are then ignored.
    pub(crate) fn is_chosen(&self, key: &str) -> bool {
        self.table.origin(key).is_some_and(|origin| origin != Origin::File)
    }

    /// Returns whether a grid or `--set` gives a key its value.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.table.origin(key) == Some(Origin::Set)
    }

    /// Returns the place of a key's value, or of the table if the key has no value.
    pub(crate) fn place(&self, key: &str) -> Place {
        self.table.place_of(key)
    }

    /// Returns the place of the table.
    pub(crate) fn here(&self) -> Place {
        self.table.place
    }

    pub(crate) fn fault(&self, key: &str, problem: impl Into<String>) {
        self.faults.add(self.place(key), problem.into());
    }

    /// Returns whether the key exists, and adds a fault if not. `advice` explains the key's use and
    /// gives an example.
    pub(crate) fn need(&self, key: &str, advice: &str) -> bool {
        let there = self.item(key).is_some();
        if !there {
            self.faults.add(self.here(), format!("{} needs `{key}`: {advice}", self.schema.what));
        }
        there
    }

    fn wrong_type(&self, key: &str, item: &Item, wanted: &str) {
        self.faults.add(item.place, format!("`{key}` is {wanted}, not {}", item.value.what()));
    }

    pub(crate) fn string(&self, key: &str) -> Option<&'a str> {
        let item = self.item(key)?;
        let text = item.as_str();
        if text.is_none() {
            self.wrong_type(key, item, "a string");
        }
        text
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
                self.wrong_type(key, item, "true or false");
                None
            }
        }
    }

    pub(crate) fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let item = self.item(key)?;
        integer_of(key, item, range, self.faults)
    }

    pub(crate) fn small(&self, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        self.integer(key, range).and_then(|number| u32::try_from(number).ok())
    }

    pub(crate) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Option<f64> {
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

    pub(crate) fn probability(&self, key: &str) -> Option<f64> {
        self.number(key, 0.0..=1.0)
    }

    fn quantity(&self, key: &str, of: Of) -> Option<u64> {
        let item = self.item(key)?;
        quantity_of(key, item, of, self.faults)
    }

    pub(crate) fn span(&self, key: &str) -> Option<Duration> {
        self.quantity(key, Of::Span).map(Duration::from_nanos)
    }

    /// Reads a span above 0.
    pub(crate) fn some_span(&self, key: &str) -> Option<Duration> {
        let span = self.span(key)?;
        if span.is_zero() {
            self.fault(key, format!("`{key}` is 0: set it above 0"));
            return None;
        }
        Some(span)
    }

    pub(crate) fn size(&self, key: &str) -> Option<Bytes> {
        self.quantity(key, Of::Size).map(Bytes::new)
    }

    /// Reads a size above 0.
    pub(crate) fn some_size(&self, key: &str) -> Option<Bytes> {
        let size = self.size(key)?;
        if size.is_zero() {
            self.fault(key, format!("`{key}` is 0: set it above 0"));
            return None;
        }
        Some(size)
    }

    pub(crate) fn rate(&self, key: &str) -> Option<Rate> {
        self.quantity(key, Of::Rate).map(Rate::from_bps)
    }

    /// Reads a rate above 0.
    pub(crate) fn some_rate(&self, key: &str) -> Option<Rate> {
        let rate = self.rate(key)?;
        if rate == Rate::ZERO {
            self.fault(key, format!("`{key}` is 0, and nothing would be sent: set it above 0"));
            return None;
        }
        Some(rate)
    }

    pub(crate) fn word<T: Copy>(&self, key: &str, words: &[Word<T>]) -> Option<T> {
        let text = self.string(key)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            self.fault(key, unknown_word(key, text, words));
        }
        found
    }

    pub(crate) fn priority(&self, key: &str) -> Option<Priority> {
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

    pub(crate) fn layer(&self, key: &str) -> Option<Layer> {
        self.word(key, &[Layer::High, Layer::Low].map(|layer| (layer.name(), layer)))
    }

    /// Reads a list of at most `most` items.
    pub(crate) fn list(&self, key: &str, most: usize) -> Option<&'a [Item]> {
        let item = self.item(key)?;
        match &item.value {
            Value::Array(items) if items.len() <= most => Some(items),
            Value::Array(items) => {
                self.fault(
                    key,
                    format!("`{key}` has {} entries, but at most {most} are possible", items.len()),
                );
                None
            }
            _ => {
                self.wrong_type(key, item, "a list");
                None
            }
        }
    }

    /// Reads a list of tables; any other item is a fault.
    pub(crate) fn tables(&self, key: &'a str, most: usize) -> impl Iterator<Item = &'a Table> + use<'a> {
        let faults = self.faults;
        let items = match self.item(key) {
            Some(item @ Item { value: Value::Table(_), .. }) => {
                faults
                    .add(item.place, format!("`{key}` is a list of tables, not one alone: put it into [ ]"));
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
    pub(crate) fn strings(&self, key: &str, most: usize) -> Vec<(&'a str, Place)> {
        let mut strings = Vec::new();
        for item in self.list(key, most).unwrap_or_default() {
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
    pub(crate) fn table(&self, key: &str) -> Option<&'a Table> {
        let item = self.item(key)?;
        let table = item.as_table();
        if table.is_none() {
            self.faults.add(item.place, no_table(key, item));
        }
        table
    }

    /// Reads a table with a `kind`, or the kind alone as a string.
    pub(crate) fn tagged<T: Clone>(&self, key: &str, kinds: &[Kind<T>]) -> Option<(T, Tagged<'a>)> {
        tagged_of(key, self.item(key)?, kinds, self.faults)
    }
}

/// Kind of a tagged table: its name, its value and its keys.
pub(crate) type Kind<T> = (&'static str, T, &'static Schema);

/// Kind of a tagged table that a scenario has chosen.
pub(crate) enum Chosen<'a, T> {
    /// Built-in kind, with its keys.
    BuiltIn(T, Tagged<'a>),
    /// Plug-in.
    Plugin(Plugin),
}

/// Keys of a tagged table, other than `kind`.
pub(crate) struct Tagged<'a> {
    /// Table of the file, or an empty one if the file has only the kind as a string.
    table: std::borrow::Cow<'a, Table>,
    schema: &'static Schema,
    faults: &'a Faults,
}

impl Tagged<'_> {
    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys { table: &self.table, schema: self.schema, faults: self.faults }
    }
}

/// Returns the message for a value that should be a table.
pub(crate) fn no_table(key: &str, item: &Item) -> String {
    let remedy = match &item.value {
        Value::Array(items) if items.iter().any(|item| item.as_table().is_some()) => {
            format!(": write [{key}], in single brackets, and only once")
        }
        _ => String::new(),
    };
    format!("`{key}` is a table, not {}{remedy}", item.value.what())
}

/// Returns advice for a number that stands where a kind belongs: the table that it probably stands
/// for.
fn instead(key: &str, value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) if text.starts_with(|c: char| c.is_ascii_digit()) => text.trim(),
        Value::Integer(_) | Value::Float(_) | Value::Huge(_) => "",
        _ => return None,
    };
    let quantity = |of: &[Of], usual: &str| {
        let is_one = of.iter().any(|&of| quantity::read(text, of).is_ok());
        if is_one { quote(text) } else { quote(usual) }
    };
    match key {
        "loss" => {
            let number = match value {
                Value::Integer(number) => Some(*number as f64),
                Value::Float(number) => Some(*number),
                _ => {
                    let percent = text.strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
                    percent.map(|percent| percent / 100.0).or_else(|| text.parse().ok())
                }
            };
            let lost = number.filter(|lost| (0.0..=1.0).contains(lost)).unwrap_or(0.01);
            Some(format!("write {{ kind = \"random\", probability = {lost} }}"))
        }
        "queue" => {
            let limit = quantity(&[Of::Packets, Of::Size, Of::Span], "100 packets");
            Some(format!("write {{ kind = \"droptail\", limit = {limit} }}"))
        }
        "jitter" => Some(format!("write {{ kind = \"uniform\", most = {} }}", quantity(&[Of::Span], "5 ms"))),
        _ => None,
    }
}

fn unknown_word<T>(key: &str, text: &str, words: &[Word<T>]) -> String {
    format!(
        "`{text}` is not a {}: {}",
        key.replace('-', " "),
        hint(text, words.iter().map(|(word, _)| *word).collect::<Vec<_>>())
    )
}

/// Reads a table with a `kind`, or the kind alone as a string.
pub(crate) fn tagged_of<'a, T: Clone>(
    key: &str,
    item: &'a Item,
    kinds: &[Kind<T>],
    faults: &'a Faults,
) -> Option<(T, Tagged<'a>)> {
    match chosen_of(key, item, kinds, None, faults)? {
        Chosen::BuiltIn(value, tagged) => Some((value, tagged)),
        Chosen::Plugin(_) => None,
    }
}

/// Reads a table with a `kind`, or the kind alone as a string. The kind may be a plug-in of
/// `plugins`.
pub(crate) fn chosen_of<'a, T: Clone>(
    key: &str,
    item: &'a Item,
    kinds: &[Kind<T>],
    plugins: Option<PluginKind>,
    faults: &'a Faults,
) -> Option<Chosen<'a, T>> {
    let noun = plugins.map_or("", PluginKind::noun);
    let plugins: Vec<(&str, &[String])> =
        plugins.into_iter().flat_map(|kind| faults.plugins().of(kind)).collect();
    let names: Vec<&str> =
        kinds.iter().map(|(name, ..)| *name).chain(plugins.iter().map(|(name, _)| *name)).collect();
    let of = key.replace('-', " ");
    if let Some(remedy) = instead(key, &item.value) {
        let what = match &item.value {
            Value::String(text) => quote(text),
            other => other.what().to_owned(),
        };
        faults.add(item.place, format!("`{key}` is a kind or a table with a `kind`, not {what}: {remedy}"));
        return None;
    }
    let (name, place) = match &item.value {
        Value::String(name) => (Rc::clone(name), item.place),
        Value::Table(table) => match table.get("kind") {
            Some(Item { value: Value::String(name), place }) => (Rc::clone(name), *place),
            Some(kind) => {
                faults.add(kind.place, format!("`kind` is a string, not {}", kind.value.what()));
                return None;
            }
            None => {
                let advice = hint("", names.iter().copied());
                faults.add(item.place, format!("this {of} needs a `kind`: {advice}"));
                return None;
            }
        },
        other => {
            faults
                .add(item.place, format!("`{key}` is a kind or a table with a `kind`, not {}", other.what()));
            return None;
        }
    };
    // A mistyped kind is read as its nearest match, so that further errors of the table are
    // reported too.
    let meant = match names.iter().find(|one| **one == &*name) {
        Some(known) => *known,
        None => {
            let problem = format!("`{name}` is not a kind of {of}: {}", hint(&name, names.iter().copied()));
            faults.add(place, problem);
            nearest(&name, names.iter().copied())?
        }
    };
    // Keys of kinds that are not chosen.
    let of_others = |key: &str| {
        kinds.iter().any(|(.., other)| other.has(key))
            || plugins.iter().any(|(_, keys)| keys.iter().any(|one| one == key))
    };
    let Some((_, value, schema)) = kinds.iter().find(|(one, ..)| *one == meant) else {
        let (_, keys) = plugins.iter().find(|(one, _)| *one == meant)?;
        let parameters = match &item.value {
            Value::Table(table) => parameters(&format!("the {noun} {meant}"), table, keys, of_others, faults),
            _ => Parameters::default(),
        };
        let position = faults.position(item.place);
        return Some(Chosen::Plugin(Plugin { name: meant.to_owned(), parameters, position }));
    };
    let table = match &item.value {
        Value::Table(table) => {
            let others: Vec<&'static Schema> = kinds.iter().map(|(.., schema)| *schema).collect();
            let is_chosen = table.origin("kind").is_some_and(|origin| origin != Origin::File);
            let table = if is_chosen {
                // The file has the keys of every kind that the grid varies over. Those of other
                // kinds are removed, except where `--set` gives them.
                let mut own = table.clone();
                own.entries.retain(|(key, _)| {
                    key.origin == Origin::Set || schema.has(&key.name) || !of_others(&key.name)
                });
                std::borrow::Cow::Owned(own)
            } else {
                std::borrow::Cow::Borrowed(table)
            };
            Keys::open_beside(&table, schema, &others, faults);
            table
        }
        _ => std::borrow::Cow::Owned(Table::empty(item.place)),
    };
    Some(Chosen::BuiltIn(value.clone(), Tagged { table, schema, faults }))
}

/// Reads the parameters of `what`, a plug-in with these keys. A grid may choose the plug-in; keys
/// of the file that only another kind has are then ignored.
fn parameters(
    what: &str,
    table: &Table,
    keys: &[String],
    of_others: impl Fn(&str) -> bool,
    faults: &Faults,
) -> Parameters {
    /// Greatest whole number up to which all are exact: 2^53.
    const MOST: u64 = 1 << 53;
    let is_chosen = table.origin("kind").is_some_and(|origin| origin != Origin::File);
    let mut parameters = Parameters::default();
    for (key, item) in table.entries.iter().filter(|(key, _)| key.name != "kind") {
        let name = key.name.as_str();
        if !keys.iter().any(|one| one == name) {
            if !is_chosen || key.origin == Origin::Set || !of_others(name) {
                let known = keys.iter().map(String::as_str).chain(["kind"]);
                faults.add(key.place, format!("`{name}` is not a key of {what}: {}", hint(name, known)));
            }
            continue;
        }
        let value = match &item.value {
            Value::Integer(number) if number.unsigned_abs() <= MOST => Parameter::Number(*number as f64),
            Value::Float(number) if number.is_finite() => Parameter::Number(*number),
            Value::Boolean(flag) => Parameter::Flag(*flag),
            Value::String(text) => Parameter::Text(text.to_string()),
            Value::Integer(_) | Value::Float(_) | Value::Huge(_) => {
                let number = item.spoken();
                faults.add(item.place, format!("`{name}` is at most 2^53 either way, not {number}"));
                continue;
            }
            other => {
                let other = other.what();
                let problem = format!("`{name}` is a number, a string, or true or false, not {other}");
                faults.add(item.place, problem);
                continue;
            }
        };
        parameters = parameters.with(name, value);
    }
    parameters
}

pub(crate) fn integer_of(key: &str, item: &Item, range: RangeInclusive<u64>, faults: &Faults) -> Option<u64> {
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

pub(crate) fn quantity_of(key: &str, item: &Item, of: Of, faults: &Faults) -> Option<u64> {
    match &item.value {
        Value::String(text) => match quantity::read(text, of) {
            Ok(value) => return Some(value),
            Err(wrong) => faults.add(item.place, wrong),
        },
        Value::Huge(number) => faults.add(item.place, format!("`{number}` is more than can be counted")),
        Value::Float(number) if !number.is_finite() => {
            let (what, number) = (of.what(), float(*number));
            let problem = format!("`{key}` is {what}, for example \"{}\", not {number}", example(key, of));
            faults.add(item.place, problem);
        }
        Value::Integer(_) | Value::Float(_) => {
            let number = item.spoken();
            let unit = usual_unit(key, of);
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
                format!("`{key}` is {}, for example \"{}\", not {what}", of.what(), example(key, of)),
            );
        }
    }
    None
}

/// Returns the unit that the key most likely needs, for the advice in a message.
fn usual_unit(key: &str, of: Of) -> &'static str {
    match key {
        "duration" | "warm-up" | "start" | "start-jitter" | "stop" | "at" | "stagger" | "on" | "off" => "s",
        "size" | "send-buffer" | "receive-buffer" => "kB",
        _ => of.usual(),
    }
}

fn example(key: &str, of: Of) -> String {
    format!("10 {}", usual_unit(key, of))
}

/// Checks a name, and adds a fault if it is invalid.
pub(crate) fn check_name(what: &str, name: &str, place: Place, faults: &Faults) -> bool {
    let wrong = wrong_name(what, name);
    let is_right = wrong.is_none();
    wrong.into_iter().for_each(|problem| faults.add(place, problem));
    is_right
}

/// Returns the problem of an invalid name. Names appear in keys, file names and commands, which
/// limits their characters.
pub(crate) fn wrong_name(what: &str, name: &str) -> Option<String> {
    let most = crate::limit::MAX_NAME;
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.is_empty() {
        return Some(format!("the name of a {what} is empty: state what it is called"));
    }
    if name.len() > most {
        return Some(format!(
            "the name of a {what} has {} bytes, but at most {most} are possible",
            name.len()
        ));
    }
    let bad = name.chars().find(|c| !u8::try_from(*c).is_ok_and(good))?;
    Some(format!("{bad:?} cannot be in the name of a {what}: letters, digits, - and _ can"))
}

/// Checks that `name` is in the list, and adds a fault if not.
pub(crate) fn check_known<'n>(
    what: &str,
    name: &str,
    place: Place,
    among: impl IntoIterator<Item = &'n str> + Clone,
    faults: &Faults,
) -> bool {
    let known = among.clone().into_iter().any(|one| one == name);
    // An item that could not be read has an empty name and was already reported.
    if !known && !name.is_empty() && faults.has_names(what) {
        if faults.is_full() {
            faults.add(place, String::new());
            return false;
        }
        let advice = hint(name, among);
        faults.add(place, format!("there is no {what} `{name}`: {advice}"));
    }
    known
}
