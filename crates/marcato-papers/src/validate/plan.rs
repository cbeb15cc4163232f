//! Runs of closures, which return their values in an order that their question knows.

use std::fmt;

use marcato_report::Mean;
use marcato_units::Seed;

use crate::error::SimulationError;
use crate::plan::Setup;
use crate::{Progress, RunOptions, plan};

/// Values of a run, in an order that its question knows.
pub(super) type Values = Vec<f64>;

type Work = Box<dyn Fn(Seed) -> Result<Values, SimulationError> + Send + Sync>;

/// A closure to run. Closures cannot be compared, so each has a number.
pub(super) struct Job {
    number: usize,
    work: Work,
    /// Approximate number of packets, in thousands.
    cost: u64,
    /// `true` if nothing in it is random, so that one seed suffices.
    once: bool,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.number).finish()
    }
}

impl Setup for Job {
    type Outcome = Values;

    fn cost(&self) -> u64 {
        self.cost
    }

    fn seeds(&self) -> usize {
        if self.once { 1 } else { usize::MAX }
    }

    fn run(&self, seed: u64) -> Result<Values, SimulationError> {
        (self.work)(Seed::new(seed))
    }
}

/// A run that a question has asked for.
pub(super) type Ticket = plan::Ticket<Job>;

/// Runs that all questions together need.
pub(super) struct Plan {
    plan: plan::Plan<()>,
    quick: bool,
    jobs: usize,
}

impl Plan {
    pub(super) const fn new(quick: bool) -> Self {
        Self { plan: plan::Plan::new(()), quick, jobs: 0 }
    }

    /// `full` in a full run, `quick` in a quick one.
    pub(super) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Asks for a run in which nothing is random, of `cost` thousand packets.
    pub(super) fn once(
        &mut self,
        cost: u64,
        work: impl Fn() -> Result<Values, SimulationError> + Send + Sync + 'static,
    ) -> Ticket {
        self.add(cost, true, Box::new(move |_| work()))
    }

    /// Asks for a run with each seed, of `cost` thousand packets.
    pub(super) fn each(
        &mut self,
        cost: u64,
        work: impl Fn(Seed) -> Result<Values, SimulationError> + Send + Sync + 'static,
    ) -> Ticket {
        self.add(cost, false, Box::new(work))
    }

    fn add(&mut self, cost: u64, once: bool, work: Work) -> Ticket {
        self.jobs += 1;
        self.plan.add(Job { number: self.jobs, work, cost, once })
    }

    /// Outcomes of runs that returned no value, to list the rows.
    #[cfg(test)]
    pub(super) fn nothing(&self) -> Runs {
        Runs { runs: self.plan.nothing() }
    }

    /// Runs everything.
    pub(super) fn run(
        &self,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Runs, SimulationError> {
        self.run_on(options.jobs(), options, progress)
    }

    fn run_on(
        &self,
        cores: usize,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Runs, SimulationError> {
        let runs = self.plan.run_on(cores, "validation, thousands of packets", options, progress)?;
        Ok(Runs { runs })
    }
}

/// Outcomes of a [`Plan`].
pub(super) struct Runs {
    runs: plan::Runs,
}

impl Runs {
    /// Value at a place, with each seed.
    pub(super) fn each(&self, ticket: Ticket, place: usize) -> Values {
        self.runs.each(ticket, |run| run.get(place).copied().unwrap_or(f64::NAN))
    }

    /// Mean of a value over the seeds.
    pub(super) fn mean(&self, ticket: Ticket, place: usize) -> f64 {
        Mean::of(&self.each(ticket, place)).value
    }

    /// All values with the first seed.
    pub(super) fn first(&self, ticket: Ticket) -> &[f64] {
        self.runs.first(ticket).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[test]
    fn the_outcomes_do_not_depend_on_the_number_of_cores() {
        let options = RunOptions::repeated(4, 2).unwrap();
        let mut plan = Plan::new(true);
        let ticket = plan.each(1, |seed| Ok(vec![seed.get() as f64]));
        let constant = plan.once(5, || Ok(vec![7.0, 8.0]));
        let [one, three] = [1, 3].map(|cores| plan.run_on(cores, &options, &mut Silent).unwrap());
        for ticket in [ticket, constant] {
            assert_eq!(one.runs.of(ticket), three.runs.of(ticket));
        }
        assert_eq!((one.each(ticket, 0), one.mean(ticket, 0)), (vec![4.0, 5.0], 4.5));
        assert_eq!((one.first(constant), one.each(constant, 1)), (&[7.0, 8.0][..], vec![8.0]));
    }
}
