//! Paper whose questions plan their runs in virtual time.

use marcato_report::{Config, Report, World};

use crate::answer::{self, Answer};
use crate::experiment::WITH_LAB;
use crate::plan::{Plan, Runs};
use crate::{Experiment, Progress, RunError, RunOptions};

/// Turns the outcomes of a question's planned runs into its answer.
pub(crate) type Ask = Box<dyn FnOnce(&Runs) -> Answer>;

/// Plans the runs that a question needs at a scale.
pub(crate) type Question<S> = fn(&mut Plan<S>) -> Ask;

/// Paper whose questions plan their runs in virtual time. `S` is the scale of these runs.
pub(crate) struct Paper<S: 'static> {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Title of the progress, with the unit of its steps.
    pub(crate) unit: &'static str,
    /// Questions, in the order of the report.
    pub(crate) questions: &'static [Question<S>],
    /// Scale of a quick run, or of a full one.
    pub(crate) scale: fn(bool) -> S,
    /// Configuration, for the record.
    pub(crate) config: fn(S) -> Config,
    #[cfg(target_os = "linux")]
    pub(crate) lab: fn(&RunOptions, &mut dyn Progress) -> Result<Report, RunError>,
}

impl<S: Copy> Paper<S> {
    /// Answers every question at this scale.
    pub(crate) fn report(
        &self,
        scale: S,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Report, RunError> {
        self.answer(scale, options, |plan| {
            plan.run(self.unit, options, progress).map_err(|error| RunError::failed(self.name, error))
        })
    }

    /// Report at this scale without outcomes, to inspect rows and texts alone.
    #[cfg(test)]
    pub(crate) fn without_outcomes(&self, scale: S) -> Report {
        let report = self.answer(scale, &RunOptions::default(), |plan| Ok(plan.nothing()));
        report.unwrap_or_else(|error| panic!("nothing was run: {error}"))
    }

    fn answer(
        &self,
        scale: S,
        options: &RunOptions,
        run: impl FnOnce(&Plan<S>) -> Result<Runs, RunError>,
    ) -> Result<Report, RunError> {
        let mut plan = Plan::new(scale);
        let asked: Vec<Ask> = self.questions.iter().map(|question| question(&mut plan)).collect();
        let runs = run(&plan)?;
        let answers = asked.into_iter().map(|ask| ask(&runs));
        Ok(answer::report((self.name, self.about), (self.config)(scale), options, answers))
    }
}

impl<S: Copy> Experiment for Paper<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn worlds(&self) -> &'static [World] {
        WITH_LAB
    }

    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        #[cfg(target_os = "linux")]
        if options.world == World::Lab {
            return (self.lab)(options, progress);
        }
        self.report((self.scale)(options.quick), options, progress)
    }
}

#[cfg(test)]
mod tests {
    use marcato_report::Row;

    use crate::{crq::CRQ, cwr::CWR, plt::PLT};

    #[test]
    fn every_published_value_has_a_band_or_a_reason_for_none() {
        for quick in [false, true] {
            let reports = [
                PLT.without_outcomes((PLT.scale)(quick)),
                CWR.without_outcomes((CWR.scale)(quick)),
                CRQ.without_outcomes((CRQ.scale)(quick)),
            ];
            let rows = reports.iter().flat_map(|report| report.document().rows());
            let published = rows.filter(|row| row.paper_value().is_some());
            let silent = published.filter(|row| row.ok().is_none() && row.why_unclaimed().is_none());
            let silent: Vec<&str> = silent.map(Row::id).collect();
            assert!(silent.is_empty(), "quick {quick}: {silent:?}");
        }
    }
}
