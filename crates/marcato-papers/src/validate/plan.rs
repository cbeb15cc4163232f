//! The runs that all questions together need, spread over all cores.

use marcato_report::Mean;
use marcato_units::Seed;

use super::path::Error;
use crate::{Progress, RunOptions, pool};

/// What a run hands back, in an order that its question knows.
pub(super) type Values = Vec<f64>;

type Work = Box<dyn Fn(Seed) -> Result<Values, Error> + Send + Sync>;

struct Job {
    work: Work,
    /// Roughly how many packets it simulates, in thousands: the dearest begin first.
    cost: u64,
    /// Whether chance has no part in it, so that one run says all.
    once: bool,
}

/// A run that has been asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(usize);

/// What is to be run.
pub(super) struct Plan {
    quick: bool,
    jobs: Vec<Job>,
}

impl Plan {
    pub(super) const fn new(quick: bool) -> Self {
        Self { quick, jobs: Vec::new() }
    }

    /// The one in a full run, the other in a quick one.
    pub(super) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Asks for a run in which nothing is random.
    pub(super) fn once(
        &mut self,
        cost: u64,
        work: impl Fn() -> Result<Values, Error> + Send + Sync + 'static,
    ) -> Ticket {
        self.add(Job { work: Box::new(move |_| work()), cost, once: true })
    }

    /// Asks for a run with each seed.
    pub(super) fn each(
        &mut self,
        cost: u64,
        work: impl Fn(Seed) -> Result<Values, Error> + Send + Sync + 'static,
    ) -> Ticket {
        self.add(Job { work: Box::new(work), cost, once: false })
    }

    fn add(&mut self, job: Job) -> Ticket {
        self.jobs.push(job);
        Ticket(self.jobs.len() - 1)
    }

    /// As if every run had given nothing: shows which rows there would be.
    #[cfg(test)]
    pub(super) fn nothing(&self) -> Runs {
        Runs { values: vec![Vec::new(); self.jobs.len()] }
    }

    /// Runs everything. The outcome does not depend on how many cores there are.
    pub(super) fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Runs, Error> {
        self.run_on(options.jobs(), options.seeds(), progress)
    }

    fn run_on(&self, cores: usize, seeds: &[u64], progress: &mut dyn Progress) -> Result<Runs, Error> {
        let of = |job: &Job| if job.once { &seeds[..seeds.len().min(1)] } else { seeds };
        let mut todo: Vec<(usize, usize, u64)> = Vec::new();
        for (at, job) in self.jobs.iter().enumerate() {
            todo.extend(of(job).iter().enumerate().map(|(place, &seed)| (at, place, seed)));
        }
        todo.sort_by_key(|&(at, ..)| std::cmp::Reverse(self.jobs[at].cost));
        progress.begin("runs", Some(todo.len() as u64));
        let mut done: Vec<Vec<Option<Values>>> =
            self.jobs.iter().map(|job| vec![None; of(job).len()]).collect();
        let run = |&(at, _, seed): &(usize, usize, u64)| (self.jobs[at].work)(Seed::new(seed));
        pool::spread(cores, &todo, run, |&(at, place, _), values| {
            done[at][place] = Some(values);
            progress.advance(1);
        })?;
        let whole = done.into_iter().map(|seeds| seeds.into_iter().collect::<Option<_>>());
        Ok(Runs { values: whole.collect::<Option<_>>().ok_or(Error::Missing("outcome of a run"))? })
    }
}

/// What came of a [`Plan`].
#[derive(Debug, PartialEq)]
pub(super) struct Runs {
    values: Vec<Vec<Values>>,
}

impl Runs {
    /// The value at a place, of each seed.
    pub(super) fn each(&self, ticket: Ticket, place: usize) -> Values {
        self.values[ticket.0].iter().map(|run| run.get(place).copied().unwrap_or(f64::NAN)).collect()
    }

    /// Its mean over the seeds.
    pub(super) fn mean(&self, ticket: Ticket, place: usize) -> f64 {
        Mean::of(&self.each(ticket, place)).value
    }

    /// All values with the first seed.
    pub(super) fn first(&self, ticket: Ticket) -> &[f64] {
        self.values[ticket.0].first().map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[test]
    fn the_outcomes_do_not_depend_on_the_number_of_cores() {
        let mut plan = Plan::new(true);
        let ticket = plan.each(1, |seed| Ok(vec![seed.get() as f64]));
        let constant = plan.once(5, || Ok(vec![7.0, 8.0]));
        let [one, three] = [1, 3].map(|cores| plan.run_on(cores, &[4, 5], &mut Silent).unwrap());
        assert_eq!(one, three);
        assert_eq!((one.each(ticket, 0), one.mean(ticket, 0)), (vec![4.0, 5.0], 4.5));
        assert_eq!((one.first(constant), one.each(constant, 1)), (&[7.0, 8.0][..], vec![8.0]));
    }

    #[test]
    fn a_run_that_is_impossible_stops_all() {
        let mut plan = Plan::new(true);
        plan.once(1, || Err(Error::Missing("patience")));
        assert!(plan.run_on(2, &[1], &mut Silent).is_err());
    }
}
