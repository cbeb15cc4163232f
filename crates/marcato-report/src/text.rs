//! Rows as aligned text.

use core::fmt::Write;

use crate::scorecard::Scorecard;
use crate::{Report, Row};

/// Implements [`Report::to_text`].
pub(crate) fn of(report: &Report) -> String {
    let document = report.document();
    let mut text = format!("{}\n{}\n", report.title(), document.provenance());
    if let Some(banner) = report.banner() {
        let _ = writeln!(text, "{banner}");
    }
    let card = report.scorecard();
    if let Some(card) = &card {
        text.push_str(&scorecard(card));
    }
    for (title, rows) in report.groups() {
        let _ = write!(text, "\n{title}\n");
        text.push_str(&table(report.column(), &rows));
    }
    let _ = write!(text, "\n{}\n", document.count());
    if let Some(card) = &card {
        let _ = writeln!(text, "{}", card.tally());
    }
    text
}

/// Every published value next to the measured one.
fn scorecard(card: &Scorecard<'_>) -> String {
    let mut text = format!("\nScorecard: {}\n", card.tally());
    let header = ["where", "what", "unit", "paper", "measured", "deviation", "%", "band"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for (place, row) in card.rows() {
        lines.push(vec![
            place.to_owned(),
            one_line(row.what()),
            row.unit().to_string(),
            number(row.paper_value()),
            measured(row),
            signed(row.deviation()),
            signed(row.deviation_percent()),
            claim(card, row),
        ]);
    }
    text.push_str(&aligned(&lines, 3));
    for (at, reason) in card.reasons.iter().enumerate() {
        let _ = writeln!(text, "  [{}] {}", at + 1, one_line(reason));
    }
    text
}

/// The band and whether the value lies in it, or the number of the reason for having none.
pub(crate) fn claim(card: &Scorecard<'_>, row: &Row) -> String {
    match (row.ok(), card.reason(row)) {
        (Some(true), _) => format!("{}, ok", band(row)),
        (Some(false), _) => format!("{}, OUTSIDE", band(row)),
        (None, Some(reason)) => format!("none [{reason}]"),
        (None, None) => "none".to_owned(),
    }
}

/// A number with its sign; 0 has none.
pub(crate) fn signed(value: Option<f64>) -> String {
    match value {
        Some(value) if value > 0.0 => format!("+{}", number(Some(value))),
        value => number(value),
    }
}

/// A number with four significant digits, but at most three after the point.
pub(crate) fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "–".to_owned() };
    let size = value.abs();
    let digits = match size {
        s if s >= 1000.0 => 0,
        s if s >= 100.0 => 1,
        s if s >= 10.0 => 2,
        s if s >= 0.001 || s == 0.0 => 3,
        _ => return format!("{value:.2e}"),
    };
    let fixed = format!("{value:.digits$}");
    let short = if fixed.contains('.') { fixed.trim_end_matches('0').trim_end_matches('.') } else { &fixed };
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// The measured value with its confidence interval.
pub(crate) fn measured(row: &Row) -> String {
    match row.ci95() {
        Some(ci95) => format!("{} ± {}", number(row.measured_value()), number(Some(ci95))),
        None => number(row.measured_value()),
    }
}

/// The band in which the measured value must lie.
pub(crate) fn band(row: &Row) -> String {
    match (row.lo(), row.hi()) {
        (None, None) => "–".to_owned(),
        (Some(lo), None) => format!("≥ {}", number(Some(lo))),
        (None, Some(hi)) => format!("≤ {}", number(Some(hi))),
        (Some(lo), Some(hi)) => format!("{} … {}", number(Some(lo)), number(Some(hi))),
    }
}

/// Result of the claim; a dash if there is none.
pub(crate) const fn verdict(row: Option<bool>) -> &'static str {
    match row {
        Some(true) => "ok",
        Some(false) => "OUTSIDE",
        None => "–",
    }
}

fn table(against: &str, rows: &[&Row]) -> String {
    let lab = rows.iter().any(|row| row.virtual_value().is_some());
    let mut header = vec!["what", "unit", against, "measured"];
    if lab {
        header.push("virtual");
    }
    header.extend(["band", "ok"]);
    let mut lines = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for row in rows {
        let mut line =
            vec![one_line(row.what()), row.unit().to_string(), number(row.paper_value()), measured(row)];
        if lab {
            line.push(number(row.virtual_value()));
        }
        line.extend([band(row), verdict(row.ok()).to_owned()]);
        lines.push(line);
    }
    aligned(&lines, 2)
}

/// Aligns lines of cells in columns under a header: the first `words` columns hold words, the
/// others numbers. The last column is not padded.
fn aligned(lines: &[Vec<String>], words: usize) -> String {
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| match column {
                // Words to the left, numbers to the right.
                c if c < words => format!("{cell:<width$}"),
                c if c == widths.len() - 1 => cell.clone(),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
        if index == 0 {
            let _ =
                writeln!(text, "  {}", widths.iter().map(|&w| "-".repeat(w)).collect::<Vec<_>>().join("  "));
        }
    }
    text
}

/// Replaces control characters, which would break the table or send commands to the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{COMMIT, Document, Provenance, Section, Unit, VERSION};

    #[test]
    fn numbers_are_short_and_readable() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (130.0, "130"),
            (1327.4, "1327"),
            (282.456, "282.5"),
            (13.25, "13.25"),
            (2.0, "2"),
            (0.9876, "0.988"),
            (-4.5, "-4.5"),
            (100_000.0, "100000"),
            (0.000_012_3, "1.23e-5"),
        ];
        for (value, printed) in cases {
            assert_eq!(number(Some(value)), printed);
        }
        assert_eq!(number(None), "–");
    }

    #[test]
    fn a_report_is_printed_as_aligned_tables_and_a_closing_count() {
        let row = |id: &str, what: &str| Row::new(id, what, Unit::Ms);
        let document = Document::new("cats", Provenance::of_seeds([1]))
            .row(row("cats.a", "P0 complete").paper(130.0).measured(130.5).within_percent(1.0))
            .row(row("cats.b", "P1").paper(282.0).measured(1293.0).within_percent(1.0))
            .row(row("cats.c", "left\nover").measured(2.0));
        let report = Report::new("CATS", "about", document)
            .section(Section::new("Table I").rows(["cats.a", "cats.b"]));
        let expected = format!(
            "CATS\nworld virtual, seed 1, Marcato {VERSION} ({COMMIT})\n\
             \nScorecard: 2 values that the paper prints: 1 within their band, 1 outside, 0 unclaimed; 1 deviate by more \
             than 15 %, 1 of them claimed\n\
             \x20 where    what         unit  paper  measured  deviation       %  band\n\
             \x20 -------  -----------  ----  -----  --------  ---------  ------  ----------------------\n\
             \x20 text: a  P0 complete  ms      130     130.5       +0.5  +0.385  128.7 … 131.3, ok\n\
             \x20 text: b  P1           ms      282      1293      +1011  +358.5  279.2 … 284.8, OUTSIDE\n\
             \nTable I\n\
             \x20 what         unit  paper  measured           band  ok\n\
             \x20 -----------  ----  -----  --------  -------------  -------\n\
             \x20 P0 complete  ms      130     130.5  128.7 … 131.3  ok\n\
             \x20 P1           ms      282      1293  279.2 … 284.8  OUTSIDE\n\
             \nOther rows\n\
             \x20 what       unit  paper  measured  band  ok\n\
             \x20 ---------  ----  -----  --------  ----  --\n\
             \x20 left over  ms        –         2     –  –\n\
             \n1 ok, 1 outside, 1 unclaimed\n\
             2 values that the paper prints: 1 within their band, 1 outside, 0 unclaimed; 1 deviate by more than 15 %, 1 of \
             them claimed\n"
        );
        assert_eq!(report.to_text(), expected);
    }
}
