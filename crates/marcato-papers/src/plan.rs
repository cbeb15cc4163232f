//! Runs that all questions of an experiment need, each made once, on all cores, and optionally
//! kept.
//!
//! The questions of a long experiment plan the runs that they need. Identical runs execute once. With
//! `--out`, each completed run is kept (`shelf`), keyed by everything that it depends on: the program's
//! bytes, the setup, the seed.

mod shelf;

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

pub use self::shelf::Shelf;
use crate::error::SimulationError;
use crate::{Progress, RunOptions, pool};

/// A run, apart from its seed. Its [`Debug`](fmt::Debug) text identifies it: equal texts are run
/// once.
pub(crate) trait Setup: fmt::Debug + Send + Sync + 'static {
    /// Result of a run.
    type Outcome: Send + 'static;

    /// Approximate work of a run, in the steps that the plan's progress counts.
    fn cost(&self) -> u64;

    /// Largest number of seeds that the setup is run with.
    fn seeds(&self) -> usize {
        usize::MAX
    }

    /// Runs the setup with one seed.
    fn run(&self, seed: u64) -> Result<Self::Outcome, SimulationError>;

    /// The outcome as text for a [`Shelf`]; `None` if it cannot be kept.
    fn write(_outcome: &Self::Outcome) -> Option<String> {
        None
    }

    /// Reads the outcome that [`write`](Self::write) wrote; `None` if the text is damaged.
    fn read(_kept: &str) -> Option<Self::Outcome> {
        None
    }
}

/// Implements [`Setup::write`] and [`Setup::read`] with JSON.
macro_rules! kept_as_json {
    () => {
        fn write(outcome: &Self::Outcome) -> Option<String> {
            // JSON has no infinite values: a run with one is repeated instead of read.
            serde_json::to_string(outcome).ok()
        }

        fn read(kept: &str) -> Option<Self::Outcome> {
            serde_json::from_str(kept).ok()
        }
    };
}
pub(crate) use kept_as_json;

type Outcome = Box<dyn Any + Send>;

/// A [`Setup`] of any kind.
trait Erased: Send + Sync {
    fn cost(&self) -> u64;
    fn seeds(&self) -> usize;
    /// Runs the setup, and returns the outcome and, if asked for, its text.
    fn run(&self, seed: u64, keep: bool) -> Result<(Outcome, Option<String>), SimulationError>;
    /// Reads an outcome from its text.
    fn read(&self, kept: &str) -> Option<Outcome>;
}

impl<S: Setup> Erased for S {
    fn cost(&self) -> u64 {
        Setup::cost(self)
    }

    fn seeds(&self) -> usize {
        Setup::seeds(self)
    }

    fn run(&self, seed: u64, keep: bool) -> Result<(Outcome, Option<String>), SimulationError> {
        let outcome = Setup::run(self, seed)?;
        let kept = if keep { S::write(&outcome) } else { None };
        Ok((Box::new(outcome), kept))
    }

    fn read(&self, kept: &str) -> Option<Outcome> {
        Some(Box::new(S::read(kept)?))
    }
}

/// Claim to the outcomes of a setup that will be run with every seed.
pub(crate) struct Ticket<S> {
    at: usize,
    of: PhantomData<fn() -> S>,
}

impl<S> Clone for Ticket<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Ticket<S> {}

impl<S> fmt::Debug for Ticket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.at).finish()
    }
}

/// Set of runs. Questions that need the same setup share its runs.
pub(crate) struct Plan<Scale> {
    /// Length of the runs.
    pub(crate) scale: Scale,
    setups: Vec<(String, Box<dyn Erased>)>,
}

impl<Scale> Plan<Scale> {
    pub(crate) const fn new(scale: Scale) -> Self {
        Self { scale, setups: Vec::new() }
    }

    /// Asks for the runs of a setup.
    pub(crate) fn add<S: Setup>(&mut self, setup: S) -> Ticket<S> {
        // Setups hold configurations without an equality, but their debug text shows all fields.
        let key = format!("{} {setup:?}", std::any::type_name::<S>());
        let known = self.setups.iter().position(|(other, _)| *other == key);
        let at = known.unwrap_or_else(|| {
            self.setups.push((key, Box::new(setup)));
            self.setups.len() - 1
        });
        Ticket { at, of: PhantomData }
    }

    /// Outcomes as if every run had produced none, to inspect rows and texts alone.
    #[cfg(test)]
    pub(crate) fn nothing(&self) -> Runs {
        Runs { outcomes: self.setups.iter().map(|_| Vec::new()).collect() }
    }

    /// Runs everything with each of the seeds, showing `title` and the costs as progress. The
    /// outcomes depend neither on the number of cores nor on which runs are kept already.
    pub(crate) fn run(
        &self,
        title: &str,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Runs, SimulationError> {
        self.run_on(options.jobs(), title, options, progress)
    }

    pub(crate) fn run_on(
        &self,
        cores: usize,
        title: &str,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Runs, SimulationError> {
        let (seeds, shelf) = (options.seeds(), options.shelf());
        let cost = |at: usize| self.setups[at].1.cost();
        let key = |at: usize, seed: usize| format!("{} with seed {}", self.setups[at].0, seeds[seed]);
        let of = |at: usize| seeds.len().min(self.setups[at].1.seeds());
        let mut jobs: Vec<(usize, usize)> =
            (0..self.setups.len()).flat_map(|at| (0..of(at)).map(move |seed| (at, seed))).collect();
        progress.begin(title, Some(jobs.iter().map(|&(at, _)| cost(at)).sum()));
        let mut done: Vec<Vec<Option<Outcome>>> =
            (0..self.setups.len()).map(|at| (0..of(at)).map(|_| None).collect()).collect();
        if let Some(shelf) = shelf {
            for &(at, seed) in &jobs {
                done[at][seed] = shelf.take(&key(at, seed)).and_then(|kept| self.setups[at].1.read(&kept));
            }
            jobs.retain(|&(at, seed)| done[at][seed].is_none());
            // Runs taken from the shelf count as progress made.
            let kept = (0..self.setups.len()).map(|at| done[at].iter().flatten().count() as u64 * cost(at));
            progress.advance(kept.sum());
        }
        // Longest first, so that no core waits long for the last run.
        jobs.sort_by_key(|&(at, _)| std::cmp::Reverse(cost(at)));
        // Captures only the setups: the scale may be of any type, and so not `Sync`.
        let setups = &self.setups;
        let run = |&(at, seed): &(usize, usize)| setups[at].1.run(seeds[seed], shelf.is_some());
        pool::spread(cores, &jobs, run, |&(at, seed), (outcome, kept)| {
            if let (Some(shelf), Some(kept)) = (shelf, kept) {
                shelf.put(&key(at, seed), &kept);
            }
            done[at][seed] = Some(outcome);
            progress.advance(cost(at));
        })?;
        let whole = done.into_iter().map(|seeds| seeds.into_iter().collect::<Option<_>>());
        Ok(Runs { outcomes: whole.collect::<Option<_>>().ok_or(SimulationError::Missing("outcome"))? })
    }
}

/// Outcomes of a [`Plan`].
pub(crate) struct Runs {
    /// For each setup, the outcome with each seed.
    outcomes: Vec<Vec<Outcome>>,
}

impl Runs {
    /// Outcomes of one setup, in the order of its seeds.
    pub(crate) fn of<S: Setup>(&self, ticket: Ticket<S>) -> Vec<&S::Outcome> {
        // A ticket and its outcomes have the same type, so that no outcome is skipped.
        self.outcomes[ticket.at].iter().filter_map(|outcome| outcome.downcast_ref()).collect()
    }

    /// Value of one setup with each seed.
    pub(crate) fn each<S: Setup>(
        &self,
        ticket: Ticket<S>,
        mut value: impl FnMut(&S::Outcome) -> f64,
    ) -> Vec<f64> {
        self.of(ticket).into_iter().map(&mut value).collect()
    }

    /// Mean of a value over the seeds.
    pub(crate) fn mean<S: Setup>(&self, ticket: Ticket<S>, value: impl FnMut(&S::Outcome) -> f64) -> f64 {
        marcato_report::Mean::of(&self.each(ticket, value)).value
    }

    /// Half-width of the 95 % confidence interval of that mean; not a number with a single seed.
    pub(crate) fn ci95<S: Setup>(&self, ticket: Ticket<S>, value: impl FnMut(&S::Outcome) -> f64) -> f64 {
        marcato_report::Mean::of(&self.each(ticket, value)).ci95.unwrap_or(f64::NAN)
    }

    /// Outcome of the first seed, which figures show.
    pub(crate) fn first<S: Setup>(&self, ticket: Ticket<S>) -> Option<&S::Outcome> {
        self.of(ticket).into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[derive(Debug)]
    struct Sum(u64);

    impl Setup for Sum {
        type Outcome = f64;

        fn cost(&self) -> u64 {
            1
        }

        fn run(&self, seed: u64) -> Result<f64, SimulationError> {
            if self.0 == 0 {
                Err(SimulationError::Missing("summand"))
            } else {
                Ok(self.0 as f64 / 3.0 + seed as f64)
            }
        }

        kept_as_json!();
    }

    /// Counts the runs that were not taken from the shelf.
    #[derive(Default)]
    struct Counting {
        steps: Vec<u64>,
    }

    impl Progress for Counting {
        fn begin(&mut self, _what: &str, _steps: Option<u64>) {}

        fn advance(&mut self, steps: u64) {
            self.steps.push(steps);
        }
    }

    #[test]
    fn the_same_setup_is_run_once_and_each_ticket_finds_its_own() {
        let options = RunOptions::repeated(10, 2).unwrap();
        for cores in [1, 3] {
            let mut plan = Plan::new(());
            let [first, other, again] = [3, 6, 3].map(|number| plan.add(Sum(number)));
            assert_eq!((first.at, plan.setups.len()), (again.at, 2));
            let runs = plan.run_on(cores, "sums", &options, &mut Silent).unwrap();
            assert_eq!((runs.of(first), runs.of(other)), (vec![&11.0, &12.0], vec![&12.0, &13.0]));
        }
    }

    #[test]
    fn a_run_that_is_impossible_stops_all() {
        let options = RunOptions::repeated(1, 2).unwrap();
        for (numbers, cores) in [(&[0][..], 1), (&[0], 2), (&[3, 0, 6], 1), (&[3, 6, 0], 2)] {
            let mut plan = Plan::new(());
            for &number in numbers {
                plan.add(Sum(number));
            }
            let run = plan.run_on(cores, "sums", &options, &mut Silent);
            assert!(matches!(run, Err(SimulationError::Missing("summand"))), "{numbers:?} on {cores} cores");
        }
    }

    #[test]
    fn kept_runs_are_not_repeated_and_are_bit_identical() {
        let directory = tempfile::tempdir().unwrap();
        let with = |seeds: u32, program: &str| {
            let shelf = Shelf::new(directory.path(), program);
            RunOptions::repeated(1, seeds).unwrap().kept_on(shelf)
        };
        let mut plan = Plan::new(());
        let tickets = [1, 2, 4].map(|number| plan.add(Sum(number)));
        let run = |options: &RunOptions| {
            let mut progress = Counting::default();
            let runs = plan.run_on(1, "sums", options, &mut progress).unwrap();
            let values: Vec<f64> = tickets.iter().flat_map(|&it| runs.each(it, |&sum| sum)).collect();
            (values, progress.steps)
        };
        let (first, steps) = run(&with(2, "a program"));
        assert_eq!(steps, [0, 1, 1, 1, 1, 1, 1]);
        assert_eq!(run(&with(2, "a program")), (first.clone(), vec![6]));
        // Another seed adds runs, and outcomes kept by another program are not used.
        assert_eq!(run(&with(3, "a program")).1, [6, 1, 1, 1]);
        assert_eq!(run(&with(2, "another program")), (first, vec![0, 1, 1, 1, 1, 1, 1]));
    }
}
