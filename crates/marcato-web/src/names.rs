//! Table of names, for lookups on every request.

/// Values by name in lower case.
///
/// A lookup ignores case and copies nothing. It compares only names of the same length, which are few among content types
/// and extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names<V> {
    /// Sorted names of each length.
    entries: Vec<Vec<(Box<str>, V)>>,
}

impl<V: Copy> Names<V> {
    /// Returns the value of a name in any case.
    pub(crate) fn get(&self, name: &[u8]) -> Option<V> {
        let same_length = self.entries.get(name.len())?;
        let found = same_length.iter().find(|(other, _)| other.as_bytes().eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value)
    }

    /// Names, the shortest first.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().flatten().map(|(name, _)| &**name)
    }

    /// Sets the value of a name in lower case, or removes the name.
    pub(crate) fn set(&mut self, name: &str, value: Option<V>) {
        if self.entries.len() <= name.len() {
            self.entries.resize_with(name.len() + 1, Vec::new);
        }
        let same_length = &mut self.entries[name.len()];
        match (same_length.binary_search_by_key(&name, |(other, _)| other), value) {
            (Ok(at), Some(value)) => same_length[at].1 = value,
            (Ok(at), None) => drop(same_length.remove(at)),
            (Err(at), Some(value)) => same_length.insert(at, (name.into(), value)),
            (Err(_), None) => {}
        }
        // Tables of the same names are equal.
        while self.entries.last().is_some_and(Vec::is_empty) {
            self.entries.pop();
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
            let (mut names, mut model) = (Names::default(), BTreeMap::<String, u8>::new());
            for (name, value) in &changes {
                names.set(name, *value);
                match value {
                    Some(value) => model.insert(name.clone(), *value),
                    None => model.remove(name),
                };
            }
            prop_assert_eq!(&names, &model.iter().map(|(name, value)| (&**name, *value)).collect());
            for name in &looked_up {
                prop_assert_eq!(names.get(name.as_bytes()), model.get(&name.to_ascii_lowercase()).copied());
            }
        }
    }
}
