//! Frames as tables of a page.

use marcato_report::page::{Cell, Column, Table};

use crate::frame::{Cells, Frame};

/// Suffixes of column names, with their units.
const UNITS: [(&str, &str); 8] = [
    ("_mbit_per_s", "Mbit/s"),
    ("_per_s", "/s"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("_packets", "packets"),
    ("_percent", "%"),
    ("_kb", "kB"),
];

/// Returns a column's name in words, and its unit.
pub fn head(name: &str) -> (String, &'static str) {
    let unit = UNITS.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit)));
    let (name, unit) = unit.unwrap_or((name, ""));
    let words = name.replace('_', " ").replace("rtt", "RTT");
    let words = ["p50", "p95", "p99"]
        .iter()
        .fold(words, |words, percentile| words.replace(percentile, &format!("{} %", &percentile[1..])));
    (words, unit)
}

/// Returns the frame as a table without its empty columns.
pub fn table(caption: &str, frame: &Frame) -> Table {
    let shown: Vec<_> = frame.columns().iter().filter(|column| column.cells.has_any()).collect();
    let heads = shown.iter().map(|column| {
        let (name, unit) = head(&column.name);
        match column.cells {
            Cells::Text(_) => Column::text(name),
            Cells::Count(_) | Cells::Number(_) => Column::number(name).unit(unit),
        }
    });
    let row = |row: usize| {
        let cell = |cells: &Cells| match cells {
            Cells::Text(cells) => Cell::text(cells[row].as_str()),
            Cells::Count(cells) => cells[row]
                .map_or_else(|| Cell::number(None), |count| Cell::valued(count.to_string(), count as f64)),
            Cells::Number(cells) => Cell::number(cells[row]),
        };
        shown.iter().map(|column| cell(&column.cells)).collect::<Vec<_>>()
    };
    Table::new(caption).columns(heads).rows((0..frame.len()).map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns_become_words_and_units() {
        for (name, words, unit) in [
            ("goodput_mbit_per_s", "goodput", "Mbit/s"),
            ("completion_p50_ms", "completion 50 %", "ms"),
            ("rtt_min_ms", "RTT min", "ms"),
            ("start_s", "start", "s"),
            ("queue_max_bytes", "queue max", "bytes"),
            ("utilisation_percent", "utilisation", "%"),
            ("kind", "kind", ""),
        ] {
            assert_eq!(head(name), (words.to_owned(), unit));
        }
    }

    #[test]
    fn columns_without_values_are_left_out() {
        use marcato_report::page::{Page, Section};
        let frame = Frame::new()
            .text("flow", ["<a>"])
            .number::<Option<f64>>("rtt_mean_ms", [None])
            .count("timeouts", [Some(0)]);
        let html = Page::new("t").section(Section::new("s").table(table("Flows", &frame))).to_html();
        assert!(html.contains("&lt;a&gt;") && html.contains(">timeouts<") && !html.contains("RTT"));
    }
}
