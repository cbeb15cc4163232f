//! Coupled mode: our own background data no longer delays our urgent data.
//!
//! No paper has it; CATS §VI names it as future work. Each file holds one question; [`Coupled`] runs
//! them all.

mod alone;
mod cell;
mod cellular;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod lab;
mod page;
mod share;
mod traffic;

use marcato_report::{Config, Report, Row, World};

use crate::answer::Answer;
use crate::experiment::WITH_LAB;
use crate::plan::Runs;
use crate::{Experiment, Progress, RunError, RunOptions};

/// Rule that is measured, as in a scenario.
const RULE: &str = "fast";

/// Lengths of the runs.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// Seconds measured, in each of which comes an urgent message.
    seconds: u64,
    /// True if the claims of full runs are made.
    claims: bool,
}

impl Scale {
    const fn of(quick: bool) -> Self {
        if quick { Self { seconds: 20, claims: false } } else { Self { seconds: 120, claims: true } }
    }

    /// Row with its bound, which a short run does not claim.
    fn claim(self, row: Row, bounded: impl FnOnce(Row) -> Row) -> Row {
        if self.claims { bounded(row) } else { row.unclaimed_because(crate::answer::TOO_SHORT) }
    }
}

type Plan = crate::plan::Plan<Scale>;
type Ticket = crate::plan::Ticket<cell::Cell>;

/// Turns the outcomes of a question's planned runs into its answer.
type Ask = Box<dyn FnOnce(&Runs) -> Answer>;

/// Plans the runs that a question needs.
type Question = fn(&mut Plan) -> Ask;

/// Questions, in the order of the report.
const QUESTIONS: &[Question] = &[
    alone::tuned,
    alone::held_out,
    page::page,
    share::beside,
    share::late,
    share::among,
    traffic::cross,
    traffic::loss,
    traffic::support,
    cellular::cellular,
];

/// The experiments of coupled mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coupled;

impl Experiment for Coupled {
    fn name(&self) -> &'static str {
        "coupled"
    }

    fn about(&self) -> &'static str {
        "coupled mode: our own background no longer delays our urgent data"
    }

    fn worlds(&self) -> &'static [World] {
        WITH_LAB
    }

    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        #[cfg(target_os = "linux")]
        if options.world == World::Lab {
            return lab::report(options, progress);
        }
        let scale = Scale::of(options.quick);
        let mut plan = Plan::new(scale);
        let asked: Vec<Ask> = QUESTIONS.iter().map(|question| question(&mut plan)).collect();
        let runs = plan.run("coupled, simulated seconds at 10 Mbit/s", options, progress);
        let runs = runs.map_err(|error| RunError::failed("coupled", error))?;
        let answers = asked.into_iter().map(|ask| ask(&runs));
        let config = Config::new().set("rule", RULE).set("seconds", scale.seconds);
        Ok(crate::answer::report(self, config, options, answers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    /// A report at this scale without outcomes, to inspect rows and texts alone.
    fn told(scale: Scale) -> Report {
        let mut plan = Plan::new(scale);
        let asked: Vec<Ask> = QUESTIONS.iter().map(|question| question(&mut plan)).collect();
        let runs = plan.nothing();
        let answers = asked.into_iter().map(|ask| ask(&runs));
        crate::answer::report(&Coupled, Config::new(), &RunOptions::default(), answers)
    }

    #[test]
    fn every_row_is_documented_and_every_documented_row_is_printed() {
        crate::validate::documented::check(&told(Scale::of(false)));
    }

    #[test]
    fn a_quick_run_measures_every_row_and_claims_none() {
        let mut options = RunOptions::repeated(1, 1).unwrap();
        options.quick = true;
        let report = Coupled.run(&options, &mut Silent).unwrap();
        let rows = report.document().rows();
        assert!(rows.iter().all(|row| row.ok().is_none()));
        let unmeasured: Vec<_> =
            rows.iter().filter(|row| row.measured_value().is_none()).map(|row| row.id()).collect();
        // A message that is not complete at the end of a run has no time, and may be the 99 %.
        assert!(unmeasured.iter().all(|id| id.ends_with("p99")), "{unmeasured:?}");
    }
}
