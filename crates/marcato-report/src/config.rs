//! Configuration of an experiment, for the record.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The settings of a run by name, in the order in which they were first set.
///
/// ```
/// use marcato_report::Config;
/// let config = Config::new().set("bottleneck_mbit_per_s", 2).set("mss_bytes", 1000).set("cc", "bbr1");
/// let json = serde_json::to_string(&config)?;
/// assert_eq!(json, r#"{"bottleneck_mbit_per_s":2,"mss_bytes":1000,"cc":"bbr1"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config(Vec<(String, Value)>);

impl Config {
    /// Creates an empty configuration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `name` to `value`; a second value for a name replaces the first. Put the unit into the
    /// name (`rtt_ms`).
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
        self
    }

    /// Settings with their values, in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns true if nothing is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_keeps_its_place_when_it_is_set_again() {
        let config = Config::new().set("z", 1).set("a", 2).set("z", 3);
        assert_eq!(serde_json::to_string(&config).unwrap(), r#"{"z":3,"a":2}"#);
    }
}
