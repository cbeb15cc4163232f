//! Tables of a page.

use core::fmt::{Result, Write};

use crate::markup::escape;
use crate::text;

/// Number of rows above which a table is folded by default.
const LONG: usize = 24;

/// A table with a caption, named columns and any number of rows; readers can sort it by each
/// column.
///
/// The first cell of a row is its heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    folded: Option<bool>,
}

/// Head of a column: its name, the unit of its values, and their alignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    name: String,
    unit: String,
    number: bool,
}

/// One cell of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    text: String,
    note: String,
    value: Option<f64>,
    mood: Mood,
}

/// Emphasis of a cell. Its text must say the same in words, for readers who see no colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Plain,
    Good,
    Bad,
    Muted,
}

impl Column {
    /// Creates a column of words, aligned to the left.
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), unit: String::new(), number: false }
    }

    /// Creates a column of numbers, aligned to the right.
    pub fn number(name: impl Into<String>) -> Self {
        Self { number: true, ..Self::text(name) }
    }

    /// Sets the unit, which stands in the head so that cells need not repeat it.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }
}

impl Cell {
    /// A cell of words, sorted as text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number with four significant digits; a dash for `None`. Sorting uses the exact value.
    pub fn number(value: Option<f64>) -> Self {
        Self { text: text::number(value), value: value.filter(|value| value.is_finite()), ..Self::default() }
    }

    /// A number and the half-width of its confidence interval, if it has one.
    pub fn interval(value: Option<f64>, half_width: Option<f64>) -> Self {
        let cell = Self::number(value);
        match half_width {
            Some(half) => Self { text: format!("{} ± {}", cell.text, text::number(Some(half))), ..cell },
            None => cell,
        }
    }

    /// A cell that shows `text` and is sorted by `value`.
    pub fn valued(text: impl Into<String>, value: f64) -> Self {
        Self { text: text.into(), value: Some(value).filter(|value| value.is_finite()), ..Self::default() }
    }

    /// Adds a note in small type below the text, such as an id.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Colours the cell as good news.
    #[must_use]
    pub fn good(self) -> Self {
        Self { mood: Mood::Good, ..self }
    }

    /// Colours the cell as bad news.
    #[must_use]
    pub fn bad(self) -> Self {
        Self { mood: Mood::Bad, ..self }
    }

    /// Greys the cell, as of little interest.
    #[must_use]
    pub fn muted(self) -> Self {
        Self { mood: Mood::Muted, ..self }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::number(Some(value))
    }
}

impl Table {
    /// Creates a table without columns and rows. The caption names its content.
    pub fn new(caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), ..Self::default() }
    }

    /// Adds a column.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Adds columns.
    #[must_use]
    pub fn columns(mut self, columns: impl IntoIterator<Item = Column>) -> Self {
        self.columns.extend(columns);
        self
    }

    /// Adds a row. Cells beyond the last column are left out; missing ones are empty.
    #[must_use]
    pub fn row<C: Into<Cell>>(mut self, cells: impl IntoIterator<Item = C>) -> Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// Adds rows, as [`row`](Self::row) adds one.
    #[must_use]
    pub fn rows<R: IntoIterator<Item = Cell>>(mut self, rows: impl IntoIterator<Item = R>) -> Self {
        self.rows.extend(rows.into_iter().map(|row| row.into_iter().collect()));
        self
    }

    /// Folds the table, or keeps it open, at any length. By default, tables of more than 24 rows
    /// are folded.
    #[must_use]
    pub fn folded(mut self, folded: bool) -> Self {
        self.folded = Some(folded);
        self
    }

    /// Returns true if the table has no rows or no columns.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() || self.columns.is_empty()
    }

    /// Writes the table, in a section with this title.
    pub(super) fn write(&self, page: &mut String, title: &str) -> Result {
        if self.is_empty() {
            return Ok(());
        }
        let folded = self.folded.unwrap_or(self.rows.len() > LONG);
        let (caption, count) = (escape(&self.caption), self.rows.len());
        if folded {
            let rows = if count == 1 { "row" } else { "rows" };
            writeln!(page, "<details>\n<summary>{caption} ({count} {rows})</summary>")?;
        }
        // The summary or the heading already shows the caption. Readers with a screen reader still need
        // it at the table.
        let is_seen = folded || super::section::repeats(&self.caption, title);
        let class = if is_seen { " class=\"heard\"" } else { "" };
        write!(
            page,
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"sort\">\n<caption{class}>{caption}</caption>\n<thead><tr>"
        )?;
        for column in &self.columns {
            let class = if column.number { " class=\"n\"" } else { "" };
            write!(page, "<th scope=\"col\"{class}>{}", escape(&column.name))?;
            if !column.unit.is_empty() {
                write!(page, " <small>{}</small>", escape(&column.unit))?;
            }
            page.push_str("</th>");
        }
        page.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            page.push_str("<tr>");
            for (at, column) in self.columns.iter().enumerate() {
                let empty = Cell::default();
                row.get(at).unwrap_or(&empty).write(page, column.number, at == 0)?;
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</tbody>\n</table></div>\n");
        if folded {
            page.push_str("</details>\n");
        }
        Ok(())
    }
}

impl Cell {
    fn write(&self, page: &mut String, number: bool, heading: bool) -> Result {
        let tag = if heading { "th" } else { "td" };
        write!(page, "<{tag}")?;
        if heading {
            page.push_str(" scope=\"row\"");
        }
        let mood = match self.mood {
            Mood::Plain => "",
            Mood::Good => "good",
            Mood::Bad => "bad",
            Mood::Muted => "muted",
        };
        let classes = [if number { "n" } else { "" }, mood].map(str::to_owned);
        let classes: Vec<String> = classes.into_iter().filter(|class| !class.is_empty()).collect();
        if !classes.is_empty() {
            write!(page, " class=\"{}\"", classes.join(" "))?;
        }
        if let Some(value) = self.value {
            write!(page, " data-v=\"{value}\"")?;
        }
        write!(page, ">{}", escape(&self.text))?;
        if !self.note.is_empty() {
            write!(page, "<br><small>{}</small>", escape(&self.note))?;
        }
        write!(page, "</{tag}>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize) -> Table {
        let empty = Table::new("Flows <all>")
            .column(Column::text("flow"))
            .column(Column::number("goodput").unit("Mbit/s"));
        (0..rows).fold(empty, |table, row| {
            table.row([
                Cell::text(format!("f{row}")).note("a & b"),
                Cell::interval(Some(1.0 / 3.0), Some(0.5)),
            ])
        })
    }

    fn html(table: &Table) -> String {
        let mut page = String::new();
        table.write(&mut page, "").unwrap();
        page
    }

    #[test]
    fn a_table_has_a_caption_and_scoped_heads() {
        let html = html(&table(1));
        assert!(html.contains("<caption>Flows &lt;all&gt;</caption>"));
        assert!(html.contains(
            "<th scope=\"col\">flow</th><th scope=\"col\" class=\"n\">goodput <small>Mbit/s</small></th>"
        ));
        assert!(html.contains("<th scope=\"row\">f0<br><small>a &amp; b</small></th>"));
    }

    #[test]
    fn cells_show_few_digits_and_are_sorted_by_all_of_them() {
        assert!(html(&table(1)).contains("<td class=\"n\" data-v=\"0.3333333333333333\">0.333 ± 0.5</td>"));
        let missing = Table::new("t").column(Column::text("a")).row([Cell::number(Some(f64::NAN))]);
        assert!(!html(&missing).contains("data-v"));
    }

    #[test]
    fn long_tables_are_folded_and_short_ones_are_not() {
        assert!(!html(&table(LONG)).contains("<details>"));
        let long = html(&table(LONG + 1));
        assert!(
            long.contains("<details>\n<summary>Flows &lt;all&gt; (25 rows)</summary>")
                && long.ends_with("</details>\n")
        );
        assert!(html(&table(1).folded(true)).contains("(1 row)"));
        assert!(!html(&table(LONG + 1).folded(false)).contains("<details>"));
    }

    #[test]
    fn rows_are_cut_or_padded_to_the_columns_and_none_give_no_table() {
        let table = Table::new("t").columns([Column::text("a"), Column::text("b")]);
        assert_eq!(html(&table), "");
        let html = html(&table.row(["1", "2", "3"]).row(["4"]));
        assert!(html.contains("<th scope=\"row\">1</th><td>2</td></tr>"));
        assert!(html.contains("<th scope=\"row\">4</th><td></td></tr>"));
    }
}
