//! Answers to an experiment's questions, and the report that they form.

use marcato_report::{Config, Document, Report, Row, Section, Unit};

use crate::RunOptions;

/// Answer to one question: its rows, with their text and figures.
pub(crate) struct Answer {
    pub(crate) rows: Vec<Row>,
    pub(crate) section: Section,
}

impl Answer {
    /// Creates a section that shows all of `rows` with `text`.
    pub(crate) fn new(title: &str, text: impl Into<String>, rows: Vec<Row>) -> Self {
        let section = Section::new(title).text(text).rows(rows.iter().map(Row::id));
        Self { rows, section }
    }
}

/// Joins `answers` into the report of the experiment with this name and purpose, in their order.
pub(crate) fn report(
    (name, about): (&str, &str),
    config: Config,
    options: &RunOptions,
    answers: impl IntoIterator<Item = Answer>,
) -> Report {
    let (rows, sections): (Vec<_>, Vec<_>) =
        answers.into_iter().map(|answer| (answer.rows, answer.section)).unzip();
    let document = Document::new(name, options).config(config).with_rows(rows.into_iter().flatten());
    let report = Report::new(name.to_uppercase(), about, document);
    sections.into_iter().fold(report, Report::section)
}

/// Reason that a quick run gives for a missing band.
pub(crate) const TOO_SHORT: &str = "a quick run is too short, or too small, for this band";

/// Row for a verdict, without a band if the runs are too short to claim it.
pub(crate) fn verdict(id: impl Into<String>, what: impl Into<String>, held: bool, claimed: bool) -> Row {
    if claimed {
        Row::verdict(id, what, held)
    } else {
        Row::new(id, what, Unit::Count).measured(f64::from(u8::from(held)))
    }
}
