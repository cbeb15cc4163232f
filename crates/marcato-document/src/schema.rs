//! Keys of a table, as declared where the table is read.

/// Keys of a table.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// Name of the table with its article, for error messages.
    pub what: &'static str,
    /// Keys without further description, in groups.
    pub keys: &'static [&'static [&'static str]],
    /// Keys with their meanings and defaults, in groups.
    pub entries: &'static [&'static [Entry]],
}

/// Keys that are read together: in most cases one.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Keys.
    pub keys: &'static [Key],
    /// Value without the keys.
    pub usual: Usual,
}

/// Key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name.
    pub name: &'static str,
    /// Meaning, as in the reference.
    pub meaning: &'static str,
}

/// Value of keys that a file omits.
#[derive(Clone, Copy, Debug)]
pub enum Usual {
    /// Description for each key.
    Text(&'static [&'static str]),
    /// Value of a single key, as in a file.
    Value(fn() -> String),
}

impl Entry {
    /// Returns the row of each key in the tables of the reference: name, meaning and default.
    pub fn rows(&self) -> Vec<String> {
        let row = |(index, key): (usize, &Key)| {
            let usual = match self.usual {
                Usual::Text(texts) => texts.get(index).copied().unwrap_or("none").to_owned(),
                Usual::Value(write) => format!("`{}`", write()),
            };
            format!("| `{}` | {} | {usual} |", key.name, key.meaning.trim())
        };
        self.keys.iter().enumerate().map(row).collect()
    }
}

impl Schema {
    /// Returns the keys of a kind without settings.
    pub const fn plain(what: &'static str) -> Self {
        Self { what, keys: &[&["kind"]], entries: &[] }
    }

    /// Returns all keys.
    pub fn all(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        let described = self.entries.iter().flat_map(|group| group.iter());
        let described = described.flat_map(|entry| entry.keys.iter().map(|key| key.name));
        self.keys.iter().flat_map(|group| group.iter().copied()).chain(described)
    }

    /// Returns whether the table has this key.
    pub fn has(&self, key: &str) -> bool {
        self.all().any(|one| one == key)
    }
}
