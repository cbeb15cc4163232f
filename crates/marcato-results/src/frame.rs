//! Columns of equal length, from which every table of results is written.

use std::collections::HashMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Table by columns. CSV, JSON and Parquet are written from the same one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame(Vec<Column>);

/// Column, whose name ends with its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name, with the unit at its end.
    pub name: String,
    /// Cells.
    pub cells: Cells,
}

/// Cells of a column, by type.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Words; an empty one stands for a missing value.
    Text(Vec<String>),
    /// Whole numbers.
    Count(Vec<Option<u64>>),
    /// Finite numbers.
    Number(Vec<Option<f64>>),
}

impl Cells {
    fn len(&self) -> usize {
        match self {
            Self::Text(cells) => cells.len(),
            Self::Count(cells) => cells.len(),
            Self::Number(cells) => cells.len(),
        }
    }

    /// Adds empty cells up to this length.
    fn fill(&mut self, len: usize) {
        match self {
            Self::Text(cells) => cells.resize(len.max(cells.len()), String::new()),
            Self::Count(cells) => cells.resize(len.max(cells.len()), None),
            Self::Number(cells) => cells.resize(len.max(cells.len()), None),
        }
    }

    /// Returns whether any cell of the column has a value.
    pub fn has_any(&self) -> bool {
        match self {
            Self::Text(cells) => cells.iter().any(|cell| !cell.is_empty()),
            Self::Count(cells) => cells.iter().any(Option::is_some),
            Self::Number(cells) => cells.iter().any(Option::is_some),
        }
    }

    /// Returns a cell as in CSV: empty if it has no value.
    fn text(&self, row: usize) -> String {
        match self {
            Self::Text(cells) => cells.get(row).cloned(),
            Self::Count(cells) => cells.get(row).copied().flatten().map(|count| count.to_string()),
            // Shortest text that reads back as the same number.
            Self::Number(cells) => cells.get(row).copied().flatten().map(|number| number.to_string()),
        }
        .unwrap_or_default()
    }
}

impl Frame {
    /// Creates a table without columns.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a column of words.
    #[must_use]
    pub fn text<S: Into<String>>(mut self, name: &str, cells: impl IntoIterator<Item = S>) -> Self {
        let cells = Cells::Text(cells.into_iter().map(Into::into).collect());
        self.0.push(Column { name: name.to_owned(), cells });
        self
    }

    /// Adds a column of whole numbers.
    #[must_use]
    pub fn count<C: Into<Option<u64>>>(mut self, name: &str, cells: impl IntoIterator<Item = C>) -> Self {
        let cells = Cells::Count(cells.into_iter().map(Into::into).collect());
        self.0.push(Column { name: name.to_owned(), cells });
        self
    }

    /// Adds a column of numbers; values that are not finite are left out.
    #[must_use]
    pub fn number<N: Into<Option<f64>>>(mut self, name: &str, cells: impl IntoIterator<Item = N>) -> Self {
        let finite = |cell: N| cell.into().filter(|number| number.is_finite());
        let cells = Cells::Number(cells.into_iter().map(finite).collect());
        self.0.push(Column { name: name.to_owned(), cells });
        self
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[Column] {
        &self.0
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.0.first().map_or(0, |column| column.cells.len())
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rows of all `frames`, one after the other. Columns are in the order in which they
    /// first occur. Cells of a column that a frame lacks are empty.
    ///
    /// # Errors
    /// The name of a column that has different types.
    pub fn stacked(frames: &[Self]) -> Result<Self, String> {
        let mut whole: Vec<Column> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut rows = 0;
        for frame in frames {
            for Column { name, cells } in &frame.0 {
                let place = *places.entry(name).or_insert_with(|| {
                    let empty = match cells {
                        Cells::Text(_) => Cells::Text(Vec::new()),
                        Cells::Count(_) => Cells::Count(Vec::new()),
                        Cells::Number(_) => Cells::Number(Vec::new()),
                    };
                    whole.push(Column { name: name.clone(), cells: empty });
                    whole.len() - 1
                });
                whole[place].cells.fill(rows);
                match (&mut whole[place].cells, cells) {
                    (Cells::Text(all), Cells::Text(more)) => all.extend_from_slice(more),
                    (Cells::Count(all), Cells::Count(more)) => all.extend_from_slice(more),
                    (Cells::Number(all), Cells::Number(more)) => all.extend_from_slice(more),
                    _ => return Err(name.clone()),
                }
            }
            rows += frame.len();
        }
        whole.iter_mut().for_each(|column| column.cells.fill(rows));
        Ok(Self(whole))
    }

    /// Returns the rows, which serialise with the columns' names as keys, in the columns' order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.len()).map(|row| Row { frame: self, row })
    }

    /// Returns the table as CSV (RFC 4180, except for bare newlines), beginning with a header.
    pub fn to_csv(&self) -> String {
        self.csv_head() + &self.csv_rows()
    }

    /// Returns the header of the CSV.
    pub fn csv_head(&self) -> String {
        let mut csv = String::new();
        line(&mut csv, self.0.iter().map(|column| column.name.clone()));
        csv
    }

    /// Returns the CSV without its header.
    pub fn csv_rows(&self) -> String {
        let mut csv = String::new();
        for row in 0..self.len() {
            line(&mut csv, self.0.iter().map(|column| column.cells.text(row)));
        }
        csv
    }
}

fn line(csv: &mut String, fields: impl Iterator<Item = String>) {
    for (place, field) in fields.enumerate() {
        if place > 0 {
            csv.push(',');
        }
        if field.contains([',', '"', '\n', '\r']) {
            csv.push('"');
            csv.push_str(&field.replace('"', "\"\""));
            csv.push('"');
        } else {
            csv.push_str(&field);
        }
    }
    csv.push('\n');
}

/// Row of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    frame: &'a Frame,
    row: usize,
}

impl Row<'_> {
    /// Adds its cells to a map.
    pub fn entries<M: SerializeMap>(self, map: &mut M) -> Result<(), M::Error> {
        self.frame.0.iter().try_for_each(|Column { name, cells }| match cells {
            Cells::Text(cells) => map.serialize_entry(name, &cells[self.row]),
            Cells::Count(cells) => map.serialize_entry(name, &cells[self.row]),
            Cells::Number(cells) => map.serialize_entry(name, &cells[self.row]),
        })
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.frame.0.len()))?;
        self.entries(&mut map)?;
        map.end()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn frame() -> Frame {
        Frame::new()
            .text("name", ["a,\"b\"", "plain"])
            .count("drops", [Some(3), None])
            .number("delay_ms", [Some(0.1), Some(f64::INFINITY)])
    }

    #[test]
    fn csv_quotes_what_has_to_be_and_leaves_out_what_is_not_there() {
        assert_eq!(frame().to_csv(), "name,drops,delay_ms\n\"a,\"\"b\"\"\",3,0.1\nplain,,\n");
    }

    #[test]
    fn json_keeps_the_order_of_the_columns() {
        let rows: Vec<_> = frame().rows().map(|row| serde_json::to_string(&row).unwrap()).collect();
        assert_eq!(rows[0], r#"{"name":"a,\"b\"","drops":3,"delay_ms":0.1}"#);
        assert_eq!(rows[1], r#"{"name":"plain","drops":null,"delay_ms":null}"#);
    }

    #[test]
    fn stacked_frames_have_the_columns_of_all() {
        let one = Frame::new().text("name", ["a"]).count("drops", [Some(1)]);
        let two = Frame::new().number("delay_ms", [0.5]).text("name", ["b"]);
        let whole = Frame::stacked(&[one.clone(), two, one.clone()]).unwrap();
        assert_eq!(whole.to_csv(), "name,drops,delay_ms\na,1,\nb,,0.5\na,1,\n");
        let other = Frame::new().text("drops", ["many"]);
        assert_eq!(Frame::stacked(&[one, other]), Err("drops".to_owned()));
    }
}
