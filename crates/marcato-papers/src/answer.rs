//! What one question of an experiment gives, and the report that all of them make.

use marcato_report::{Config, Document, Report, Row, Section, Unit};

use crate::{Experiment, RunOptions};

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

/// The report of `experiment`, in the order of its answers.
pub(crate) fn report(
    experiment: &dyn Experiment,
    config: Config,
    options: &RunOptions,
    answers: impl IntoIterator<Item = Answer>,
) -> Report {
    let (rows, sections): (Vec<_>, Vec<_>) =
        answers.into_iter().map(|answer| (answer.rows, answer.section)).unzip();
    let document =
        Document::new(experiment.name(), options).config(config).with_rows(rows.into_iter().flatten());
    let report = Report::new(experiment.name().to_uppercase(), experiment.about(), document);
    sections.into_iter().fold(report, Report::section)
}

/// Why a quick run claims nothing that needs a long one.
pub(crate) const TOO_SHORT: &str = "a quick run is too short, or too small, for this band";

/// A verdict, or what it would be where the runs are too short to claim it.
pub(crate) fn verdict(id: impl Into<String>, what: impl Into<String>, held: bool, claimed: bool) -> Row {
    if claimed {
        Row::verdict(id, what, held)
    } else {
        Row::new(id, what, Unit::Count).measured(f64::from(u8::from(held)))
    }
}

/// Checks that every published value has a band, or a reason for none.
#[cfg(test)]
pub(crate) fn assert_reasons(report: &Report) {
    let printed = report.document().rows().iter().filter(|row| row.paper_value().is_some());
    let silent: Vec<&str> =
        printed.filter(|row| row.ok().is_none() && row.why_unclaimed().is_none()).map(Row::id).collect();
    assert!(silent.is_empty(), "{silent:?}");
}
