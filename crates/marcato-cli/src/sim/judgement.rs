//! Claims of a scenario after its runs.

use std::fmt::Write as _;
use std::path::Path;

use marcato_report::page::Section;
use marcato_results::claims::{Cell, is_off};
use marcato_results::{Claims, Frame, Judged, Verdict, document, figures, parquet, sheet};
use marcato_scenario::Scenario;
use marcato_sim::scenario::Traces;

use super::error::SimError;
use super::store::write;
use super::text::number;
use crate::Status;
use crate::arguments::Format;
use crate::table::Table;

/// Claims, each with its verdict.
pub(crate) struct Judgement {
    judged: Vec<Judged>,
    frame: Frame,
}

impl Judgement {
    /// Judges the claims by the numbers of the runs.
    pub(crate) fn of<'n>(claims: &Claims<'_>, cell: impl Fn(usize) -> Cell<'n>) -> Self {
        let judged = claims.judge(cell);
        Self { frame: claims.frame(&judged), judged }
    }

    /// Returns the claims as a section of a page, with the figures of the file; `None` without claims.
    pub(crate) fn section(&self, scenario: &Scenario) -> Option<Section> {
        if self.judged.is_empty() {
            return None;
        }
        let section = Section::new("Claims").table(sheet::table("Claims of the file", &self.frame));
        Some(figures::of(scenario, &self.judged).into_iter().fold(section, Section::figure))
    }

    /// Returns the status of a command whose runs are complete.
    pub(crate) fn status(&self) -> Status {
        if is_off(&self.judged) { Status::Outside } else { Status::Ok }
    }

    /// Writes the claims beside the other results, if there are any.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), SimError> {
        if self.judged.is_empty() {
            return Ok(());
        }
        write(&directory.join("claims.csv"), self.frame.to_csv().as_bytes())?;
        write(&directory.join("claims.parquet"), &parquet::of(&self.frame)?)
    }

    /// Adds the claims to the document of a run or a grid, if there are any.
    pub(crate) fn added_to(&self, json: &str) -> String {
        if self.judged.is_empty() { json.to_owned() } else { document::with_claims(json, &self.frame) }
    }

    /// Returns the claims alone, in a format.
    pub(crate) fn format(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Json => document::of_claims(&self.frame),
            Format::Csv => self.frame.to_csv(),
        }
    }

    /// Returns the claims as a table; nothing without claims.
    pub(crate) fn text(&self) -> String {
        if self.judged.is_empty() {
            return String::new();
        }
        let head = ["claim", "what", "unit", "verdict", "measured", "published", "band"];
        let mut table = Table::new(head).words(4);
        for judged @ Judged { row, verdict, .. } in &self.judged {
            let measured = match (row.measured_value(), judged.ci95()) {
                (Some(value), Some(ci95)) => format!("{} ± {}", number(value), number(ci95)),
                (value, _) => number(value),
            };
            let band = match (row.lo(), row.hi()) {
                (None, None) => "-".to_owned(),
                (Some(least), None) => format!("≥ {}", number(least)),
                (None, Some(most)) => format!("≤ {}", number(most)),
                (Some(least), Some(most)) => format!("{} … {}", number(least), number(most)),
            };
            table.row([
                row.id().to_owned(),
                row.what().to_owned(),
                row.unit().to_string(),
                verdict.name().to_owned(),
                measured,
                number(row.paper_value()),
                band,
            ]);
        }
        let count = |verdict: Verdict| self.judged.iter().filter(|one| one.verdict == verdict).count();
        let verdicts =
            [Verdict::Held, Verdict::Off, Verdict::Unclaimed, Verdict::NotJudged, Verdict::LeftOut];
        let counts: Vec<String> = verdicts
            .into_iter()
            .filter(|&verdict| count(verdict) > 0)
            .map(|verdict| format!("{} {}", count(verdict), verdict.name()))
            .collect();
        let mut text = format!("claims: {}\n\n", counts.join(", "));
        let _ = write!(text, "{table}");
        text
    }
}

/// Checks the claims of a scenario before anything runs.
pub(crate) fn check<'s>(scenario: &'s Scenario, traces: &Traces) -> Result<Claims<'s>, SimError> {
    Ok(Claims::check(scenario, traces)?)
}
