//! What one question of an experiment gives.

use crate::{Row, Section};

/// What one question gives: its rows, and what is said and drawn about them.
pub(crate) struct Answer {
    pub(crate) rows: Vec<Row>,
    pub(crate) section: Section,
}

impl Answer {
    /// A section that shows all of `rows` with `text`.
    pub(crate) fn new(title: &str, text: impl Into<String>, rows: Vec<Row>) -> Self {
        let section = Section::new(title).text(text).rows(rows.iter().map(Row::id));
        Self { rows, section }
    }
}
