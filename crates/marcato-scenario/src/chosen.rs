//! Reading of a table with a `kind`, which may be that of a plug-in.

use std::rc::Rc;

use marcato_document::nearest::{hint, nearest};
use marcato_document::quantity::{self, Of};
use marcato_document::schema::Schema;
use marcato_document::{Faults, Item, Keys, Origin, Table, Value, quote};

use crate::plugin::{Parameter, Parameters, Plugin, PluginKind, Position};

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
        Keys::trusting(&self.table, self.schema, self.faults)
    }
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

/// Second spellings of kinds, and the kinds: those of the options of `marcato perf`.
const SPELLINGS: [(&str, &str); 2] = [("lowrtt", "low-rtt"), ("rr", "round-robin")];

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
        plugins.into_iter().flat_map(|kind| faults.kinds().of(kind.noun())).collect();
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
    let spelled = SPELLINGS.iter().find(|(other, kind)| *other == &*name && names.contains(kind));
    let name = match spelled {
        Some((other, kind)) if !names.contains(other) => Rc::from(*kind),
        _ => name,
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
        let position = faults.position(item.place).map(Position::from);
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
