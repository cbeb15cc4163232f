//! Frames as tables of a page.

use marcato_report::page::{Cell, Column, Table};

use crate::frame::{Cells, Frame};
use crate::tables::{COMPLETIONS, SAMPLES};

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

/// Returns a unit as people write it, from the end of a column's name, such as `mbit_per_s`.
pub fn unit(end: &str) -> &'static str {
    UNITS.iter().find(|(suffix, _)| &suffix[1..] == end).map_or("", |(_, unit)| unit)
}

/// Returns a column's name in words, and its unit.
pub fn head(name: &str) -> (String, &'static str) {
    let unit = UNITS.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit)));
    let (name, unit) = unit.unwrap_or((name, ""));
    let words = name.replace('_', " ").replace("rtt", "RTT").replace("jain", "Jain");
    let words = ["p50", "p95", "p99"]
        .iter()
        .fold(words, |words, percentile| words.replace(percentile, &format!("{} %", &percentile[1..])));
    (words, unit)
}

/// Columns of percentiles that come from histograms.
const BINNED: [&str; 5] =
    ["rtt_p95_ms", "delay_p95_ms", "queue_delay_p50_ms", "queue_delay_p95_ms", "queue_delay_p99_ms"];

/// Returns a note on the percentiles of a table that come from histograms; `None` if it has none with
/// a value.
pub fn binned(frame: &Frame) -> Option<String> {
    let columns = frame.columns().iter();
    let shown = columns.filter(|column| BINNED.contains(&column.name.as_str()) && column.cells.has_any());
    note(&shown.map(|column| column.name.as_str()).collect::<Vec<_>>())
}

/// Returns the same note on those of these metrics that come from histograms.
pub fn note(metrics: &[&str]) -> Option<String> {
    let binned = metrics.iter().filter(|metric| BINNED.contains(metric));
    let names: Vec<String> = binned.map(|metric| head(metric).0).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Values of {} are the middles of histogram bins, within 1/32 of the exact percentiles. Means, \
             minima and maxima are exact.",
            names.join(", ")
        )
    })
}

/// Returns words for a percentile of few completions, such as "longest of 55": the metric ends with
/// its column's name. `None` for other metrics, and for enough completions.
pub fn of_few(metric: &str, samples: usize) -> Option<String> {
    let (_, percentile) = COMPLETIONS.iter().find(|(name, _)| metric == *name)?;
    percentile.of_few(samples, "longest")
}

/// Returns the frame as a table without its empty columns. Percentiles of few completions say which
/// of them they are.
pub fn table(caption: &str, frame: &Frame) -> Table {
    let shown: Vec<_> = frame.columns().iter().filter(|column| column.cells.has_any()).collect();
    let heads = shown.iter().map(|column| {
        let (name, unit) = head(&column.name);
        match column.cells {
            Cells::Text(_) => Column::text(name),
            Cells::Count(_) | Cells::Number(_) => Column::number(name).unit(unit),
        }
    });
    let samples = frame.columns().iter().find(|column| column.name == SAMPLES).map(|column| &column.cells);
    let few = |name: &str, row: usize| match samples {
        Some(Cells::Count(samples)) => of_few(name, usize::try_from(samples[row]?).ok()?),
        _ => None,
    };
    let row = |row: usize| {
        let cell = |column: &crate::frame::Column| match &column.cells {
            Cells::Text(cells) => Cell::text(cells[row].as_str()),
            Cells::Count(cells) => cells[row]
                .map_or_else(|| Cell::number(None), |count| Cell::valued(count.to_string(), count as f64)),
            Cells::Number(cells) => {
                let cell = Cell::number(cells[row]);
                let few = few(&column.name, row).filter(|_| cells[row].is_some());
                few.into_iter().fold(cell, Cell::note)
            }
        };
        shown.iter().map(|column| cell(column)).collect::<Vec<_>>()
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
            ("jain_index", "Jain index", ""),
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
