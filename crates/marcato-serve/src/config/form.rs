//! Forms of values that only this format has.

use std::marker::PhantomData;
use std::path::PathBuf;

use marcato_document::quantity::Of as Quantity;
use marcato_document::{Form, Format, Keyed, Keys, Place, Value};

use super::Root;
use super::located::Located;

/// Texts of faults in configurations.
pub(super) static FORMAT: Format = Format { root: &Root::SCHEMA, whole: "the whole file", unit };

const fn unit(_key: &str, of: Quantity) -> &'static str {
    match of {
        Quantity::Span => "s",
        Quantity::Size => "KiB",
        Quantity::Rate | Quantity::Packets => of.usual(),
    }
}

/// Context of all tables. It says nothing, but is a type of this crate, so that tables are read as types
/// of other crates.
pub(crate) struct Serve;

/// Value that a function reads.
pub(super) struct By<T>(pub(super) fn(&Keys<'_>, &'static str) -> Option<T>);

impl<T> Form<Serve> for By<T> {
    type Value = T;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], _: &Serve) -> Option<T> {
        let key = names.first()?;
        keys.item(key)?;
        (self.0)(keys, key)
    }
}

/// Value with its place.
pub(super) struct Placed<F>(pub(super) F);

impl<F: Form<Serve>> Form<Serve> for Placed<F> {
    type Value = Located<F::Value>;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], of: &Serve) -> Option<Self::Value> {
        let value = self.0.read(keys, names, of)?;
        Some(Located::at(keys.place(names.first()?), value))
    }
}

/// Path of a file or a directory.
pub(super) const PATH: By<Located<PathBuf>> =
    By(|keys, key| Some(Located::at(keys.place(key), PathBuf::from(keys.some_string(key)?))));

/// Table.
pub(super) struct Section<T>(PhantomData<T>);

/// Returns the form of a table that is read as `T`.
pub(super) const fn section<T>() -> Section<T> {
    Section(PhantomData)
}

impl<T: Keyed<Serve>> Form<Serve> for Section<T> {
    type Value = T;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], of: &Serve) -> Option<T> {
        T::open(keys.table(names.first()?)?, keys.faults, of)
    }
}

/// True, false or a table.
pub(super) struct FlagOr<T, V> {
    /// Value of true and false.
    pub(super) flag: fn(bool) -> V,
    /// Value of a table.
    pub(super) table: fn(T) -> V,
}

impl<T: Keyed<Serve>, V> Form<Serve> for FlagOr<T, V> {
    type Value = V;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], of: &Serve) -> Option<V> {
        let key = *names.first()?;
        match &keys.item(key)?.value {
            Value::Boolean(flag) => Some((self.flag)(*flag)),
            Value::Table(table) => T::open(table, keys.faults, of).map(self.table),
            other => {
                keys.fault(key, format!("`{key}` is true, false or a table, not {}", other.what()));
                None
            }
        }
    }
}

/// Reads a list of texts, or one text, each with `read`. A text for which it returns an error is a fault.
pub(super) fn each<T>(
    keys: &Keys<'_>,
    key: &str,
    most: usize,
    mut read: impl FnMut(&str, Place) -> Result<T, String>,
) -> Vec<T> {
    let mut found = Vec::new();
    for (text, place) in keys.several_strings(key, most) {
        match read(text, place) {
            Ok(value) => found.push(value),
            Err(problem) => keys.faults.add(place, problem),
        }
    }
    found
}
