//! Table of names, for lookups on every request.

/// Values by name in lower case.
///
/// A lookup ignores case and copies nothing. It compares only names of the same length, which are few among content types
/// and extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names<V> {
    /// Sorted by length, then by name.
    entries: Vec<(Box<str>, V)>,
}

impl<V: Copy> Names<V> {
    /// Returns the value of a name in any case.
    pub(crate) fn get(&self, name: &[u8]) -> Option<V> {
        let first = self.entries.partition_point(|(other, _)| other.len() < name.len());
        let same_length = self.entries[first..].iter().take_while(|(other, _)| other.len() == name.len());
        same_length
            .into_iter()
            .find(|(other, _)| other.as_bytes().eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }

    /// Names, the shortest first.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| &**name)
    }

    /// Sets the value of a name in lower case, or removes the name.
    pub(crate) fn set(&mut self, name: &str, value: Option<V>) {
        let found = self.entries.binary_search_by_key(&(name.len(), name), |(other, _)| (other.len(), other));
        match (found, value) {
            (Ok(at), Some(value)) => self.entries[at].1 = value,
            (Ok(at), None) => drop(self.entries.remove(at)),
            (Err(at), Some(value)) => self.entries.insert(at, (name.into(), value)),
            (Err(_), None) => {}
        }
    }
}

impl<V: Copy> Default for Names<V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<'a, V: Copy> FromIterator<(&'a str, V)> for Names<V> {
    fn from_iter<I: IntoIterator<Item = (&'a str, V)>>(entries: I) -> Self {
        let mut names = Self::default();
        entries.into_iter().for_each(|(name, value)| names.set(name, Some(value)));
        names
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_found_in_any_case_as_a_map_finds_them(
            changes in proptest::collection::vec(("[a-c/]{0,3}", any::<Option<u8>>()), 0..40),
            looked_up in proptest::collection::vec("[a-cA-C/]{0,4}", 0..40),
        ) {
            let (mut names, mut model) = (Names::default(), BTreeMap::new());
            for (name, value) in &changes {
                names.set(name, *value);
                match value {
                    Some(value) => model.insert(name.clone(), *value),
                    None => model.remove(name),
                };
            }
            for name in &looked_up {
                prop_assert_eq!(names.get(name.as_bytes()), model.get(&name.to_ascii_lowercase()).copied());
            }
        }
    }
}
