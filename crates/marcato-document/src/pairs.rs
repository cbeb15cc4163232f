//! Keys and values of a table, as TOML.

use crate::document::quote;

/// Keys and values in the order of output.
#[derive(Clone, Debug, Default)]
pub struct Pairs(Vec<(&'static str, String)>);

impl Pairs {
    /// Creates a table without keys.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a value in its TOML form: a number, a table or a list.
    pub fn raw(&mut self, key: &'static str, value: impl ToString) -> &mut Self {
        self.0.push((key, value.to_string()));
        self
    }

    /// Adds a string.
    pub fn text(&mut self, key: &'static str, value: impl AsRef<str>) -> &mut Self {
        self.raw(key, quote(value.as_ref()))
    }

    /// Adds a number.
    pub fn float(&mut self, key: &'static str, value: f64) -> &mut Self {
        // Debug output is the shortest text that reads back as the same float, and always has a
        // point or an exponent.
        self.raw(key, format!("{value:?}"))
    }

    /// Removes a key, if it is there.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| *name != key);
    }

    /// Returns the table as an inline table.
    pub fn inline(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        format!("{{ {} }}", pairs.join(", "))
    }

    /// Returns the table with each key on a line of its own.
    pub fn lines(&self) -> String {
        self.0.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }

    /// Returns all keys with their values in TOML.
    pub fn into_pairs(self) -> Vec<(&'static str, String)> {
        self.0
    }

    /// Returns the value of the first key.
    pub fn into_first(self) -> String {
        self.0.into_iter().next().map(|(_, value)| value).unwrap_or_default()
    }
}

/// Formats a list.
pub fn array(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    format!("[{}]", items.join(", "))
}

/// Formats a list of strings.
pub fn strings(items: &[String]) -> String {
    array(items.iter().map(|item| quote(item)))
}
