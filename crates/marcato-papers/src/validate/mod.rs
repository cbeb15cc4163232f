//! Validation of the simulator against theory.
//!
//! Each file holds one piece of theory. The formula is in [`formula`], the set-up and the band are
//! in the file. A band covers effects that the formula omits (whole packets, the round trip that
//! recovery takes), and three standard errors if the run is random. It is fixed before any run.
//! [`Validate`] runs all files.

#[cfg(test)]
#[path = "../../tests/experiments/documented.rs"]
pub(crate) mod documented;

mod aimd;
mod bbr;
mod codel;
mod cubic;
mod dctcp;
mod formula;
mod mathis;
mod path;
mod pftk;
mod plan;
mod poisson;
mod priority;
mod rtt;
mod source;
mod timing;
mod utilisation;
mod watch;

use marcato_report::{Config, Document, Report};

use self::plan::{Plan, Runs};
use crate::answer::Answer;
use crate::{Experiment, Progress, RunError, RunOptions};

/// The simulator against theory. It belongs to no paper, and so is not in
/// [`registry`](crate::registry).
#[derive(Clone, Copy, Debug, Default)]
pub struct Validate;

/// Turns the outcomes of a question's planned runs into its answer.
type Ask = Box<dyn FnOnce(&Runs) -> Answer>;

/// Plans the runs that a question needs.
type Question = fn(&mut Plan) -> Ask;

/// Questions, in the order of the report.
const QUESTIONS: &[Question] = &[
    timing::timing,
    mathis::mathis,
    pftk::pftk,
    utilisation::utilisation,
    cubic::cubic,
    bbr::bbr,
    dctcp::dctcp,
    rtt::rtt,
    codel::codel,
    poisson::poisson,
    priority::priority,
];

impl Experiment for Validate {
    fn name(&self) -> &'static str {
        "validate"
    }

    fn about(&self) -> &'static str {
        "Validation: the simulator against theory"
    }

    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        report(QUESTIONS, options, progress)
    }
}

/// Answers these questions.
fn report(
    questions: &[Question],
    options: &RunOptions,
    progress: &mut dyn Progress,
) -> Result<Report, RunError> {
    let mut plan = Plan::new(options.quick);
    let asked: Vec<Ask> = questions.iter().map(|question| question(&mut plan)).collect();
    let runs = plan.run(options, progress).map_err(|error| RunError::failed("validate", error))?;
    Ok(told(asked, &runs, options))
}

/// Report of the answers to these questions.
fn told(asked: Vec<Ask>, runs: &Runs, options: &RunOptions) -> Report {
    let answers: Vec<Answer> = asked.into_iter().map(|ask| ask(runs)).collect();
    let (rows, sections): (Vec<_>, Vec<_>) =
        answers.into_iter().map(|answer| (answer.rows, answer.section)).unzip();
    let config = Config::new()
        .set("mss_bytes", path::MSS)
        .set("rtt_ms", path::RTT * 1e3)
        .set("delayed_ack", "off, except where a row says so");
    let document = Document::new("validate", options).config(config).with_rows(rows.into_iter().flatten());
    let report = Report::new("Validation", Validate.about(), document).against("theory");
    sections.into_iter().fold(report, Report::section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[test]
    fn every_row_is_documented_and_every_documented_row_is_printed() {
        // The set of rows does not depend on the outcomes.
        let mut plan = Plan::new(true);
        let asked = QUESTIONS.iter().map(|question| question(&mut plan)).collect();
        let report = told(asked, &plan.nothing(), &RunOptions::default());
        documented::check(&report);
        assert_eq!(report.document().count().ok, 0, "nothing holds of what was not measured");
    }

    /// The tests of the simulator leave these laws to it.
    #[test]
    fn quick_questions_agree_with_theory() {
        let few: &[Question] = &[
            timing::timing,
            mathis::mathis,
            utilisation::utilisation,
            cubic::cubic,
            bbr::bbr,
            codel::codel,
            poisson::poisson,
            priority::priority,
        ];
        let options = RunOptions::default().shortened(true);
        let report = report(few, &options, &mut Silent).unwrap();
        let outside: Vec<_> = report.document().rows().iter().filter(|row| row.ok() == Some(false)).collect();
        assert!(outside.is_empty(), "{outside:#?}");
        assert!(report.document().count().ok >= 90, "{}", report.document().count());
        assert!(report.to_text().contains("theory  measured"));
    }
}
