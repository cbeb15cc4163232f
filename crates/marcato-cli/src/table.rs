//! Tables of aligned text.

use std::fmt;

/// Table with words aligned left and numbers aligned right.
pub(crate) struct Table {
    /// Number of leading columns that hold words.
    words: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<C: Into<String>>(header: impl IntoIterator<Item = C>) -> Self {
        Self { words: 1, rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    /// Sets the number of leading columns that hold words.
    pub(crate) fn words(self, words: usize) -> Self {
        Self { words, ..self }
    }

    pub(crate) fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                line += "  ";
                line +=
                    &if column < self.words { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 {
                let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
                writeln!(f, "  {}", rules.join("  "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_to_the_left_and_numbers_to_the_right() {
        let mut table = Table::new(["what", "ms"]);
        table.row(["µ", "1000"]);
        table.row(["longer", "1"]);
        assert_eq!(table.to_string(), "  what      ms\n  ------  ----\n  µ       1000\n  longer     1\n");
    }
}
