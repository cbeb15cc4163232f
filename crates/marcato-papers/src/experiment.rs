//! The interface of experiments, with their options and errors.

use std::error::Error;
use std::num::NonZeroU16;

use marcato_report::{Provenance, Report, World};
use marcato_units::Seed;
use thiserror::Error;

use crate::{Files, Shelf, pool};

/// Worlds of experiments that also run in a lab, which needs Linux.
pub(crate) const WITH_LAB: &[World] =
    if cfg!(target_os = "linux") { &[World::Virtual, World::Lab] } else { &[World::Virtual] };

/// One paper's experiments: everything that `marcato papers NAME` runs.
pub trait Experiment: Send + Sync {
    /// The paper's short name on the command line: lower-case, and the first part of its rows' ids.
    fn name(&self) -> &'static str;

    /// Description of the experiment, in one line.
    fn about(&self) -> &'static str;

    /// Worlds in which the experiment can run. Virtual time only, by default.
    fn worlds(&self) -> &'static [World] {
        &[World::Virtual]
    }

    /// Returns the scenario files that questions of the experiment consist of; `None` if there are none.
    fn files(&self) -> Option<Files> {
        None
    }

    /// Runs the experiment. The report depends on the options and Marcato's version only.
    ///
    /// # Errors
    ///
    /// Returns an error if the experiment cannot be run to its end. A value outside its band is no
    /// error: its row says so.
    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError>;
}

/// Options of an experiment's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// A shorter run that still exercises everything; the bands are wider where the experiment says
    /// so.
    pub quick: bool,
    /// Seeds, one run for each; at least one.
    seeds: Vec<u64>,
    /// World to run in.
    pub world: World,
    /// Store of completed runs, if any.
    shelf: Option<Shelf>,
    /// Number of parallel runs; `None` for one per core.
    jobs: Option<NonZeroU16>,
}

impl Default for RunOptions {
    /// One full run in virtual time with seed 1.
    fn default() -> Self {
        Self { quick: false, seeds: vec![1], world: World::Virtual, shelf: None, jobs: None }
    }
}

impl RunOptions {
    /// Largest number of runs that one call may ask for.
    pub const MOST_RUNS: u32 = 1000;

    /// Options for `repeat` runs whose seeds are `seed` and the numbers after it.
    ///
    /// # Errors
    ///
    /// Returns an error if `repeat` is 0 or more than [`MOST_RUNS`](Self::MOST_RUNS), or if a seed
    /// would be above [`Seed::MAX`].
    pub fn repeated(seed: u64, repeat: u32) -> Result<Self, SeedError> {
        if repeat == 0 || repeat > Self::MOST_RUNS {
            return Err(SeedError::Repeat { repeat });
        }
        let last = seed.checked_add(u64::from(repeat) - 1).filter(|last| *last <= Seed::MAX);
        let last = last.ok_or(SeedError::Overflow { seed, repeat })?;
        Ok(Self { seeds: (seed..=last).collect(), ..Self::default() })
    }

    /// Options for a run with each of these seeds.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no seed, or if there are more than
    /// [`MOST_RUNS`](Self::MOST_RUNS); if a seed occurs twice, or is above [`Seed::MAX`].
    pub fn seeded(seeds: Vec<u64>) -> Result<Self, SeedError> {
        let repeat = u32::try_from(seeds.len()).unwrap_or(u32::MAX);
        if repeat == 0 || repeat > Self::MOST_RUNS {
            return Err(SeedError::Repeat { repeat });
        }
        for (place, &seed) in seeds.iter().enumerate() {
            if seed > Seed::MAX {
                return Err(SeedError::Overflow { seed, repeat: 1 });
            }
            if seeds[..place].contains(&seed) {
                return Err(SeedError::Twice { seed });
            }
        }
        Ok(Self { seeds, ..Self::default() })
    }

    /// Sets the world.
    #[must_use]
    pub fn in_world(mut self, world: World) -> Self {
        self.world = world;
        self
    }

    /// Chooses a shortened run, or a full one.
    #[must_use]
    pub fn shortened(mut self, quick: bool) -> Self {
        self.quick = quick;
        self
    }

    /// Keeps completed runs on a shelf and reuses those already there. This changes no result, only
    /// the time needed. Not every experiment uses the shelf.
    #[must_use]
    pub fn kept_on(mut self, shelf: Shelf) -> Self {
        self.shelf = Some(shelf);
        self
    }

    /// Sets the number of parallel runs; `None` for one per core. This changes no result. Not every
    /// experiment runs several at once.
    #[must_use]
    pub fn at_once(mut self, jobs: Option<NonZeroU16>) -> Self {
        self.jobs = jobs;
        self
    }

    /// Number of parallel runs.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.map_or_else(pool::cores, |jobs| usize::from(jobs.get()))
    }

    /// Store of completed runs, if any.
    pub fn shelf(&self) -> Option<&Shelf> {
        self.shelf.as_ref()
    }

    /// Seeds, one run for each; at least one.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }
}

impl From<&RunOptions> for Provenance {
    fn from(options: &RunOptions) -> Self {
        Self { world: options.world, seeds: options.seeds.clone(), quick: options.quick }
    }
}

/// Error returned when seeds cannot be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SeedError {
    /// No run, or too many, asked for.
    #[error("cannot repeat {repeat} times: ask for 1 to {} runs", RunOptions::MOST_RUNS)]
    Repeat {
        /// Number of runs asked for.
        repeat: u32,
    },
    /// The seeds from this one on would pass the largest.
    #[error(
        "a seed is 0 to {}: fewer than {repeat} are left from {seed} on, choose a smaller seed",
        Seed::MAX
    )]
    Overflow {
        /// First seed.
        seed: u64,
        /// Number of runs asked for.
        repeat: u32,
    },
    /// A seed occurs twice. Its run would count twice.
    #[error("the seed {seed} is given twice: leave one out")]
    Twice {
        /// Seed.
        seed: u64,
    },
}

/// Error returned when an experiment cannot be run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The experiment does not run in that world yet.
    #[error("{paper} does not run in the world `{world}` yet: use --world {built}")]
    WorldNotBuilt {
        /// Short name of the paper.
        paper: &'static str,
        /// World asked for.
        world: World,
        /// Worlds in which the experiment does run.
        built: String,
    },
    /// A run reported other rows than the first one, so that no mean can be taken.
    #[error("the run with seed {seed} reports other rows than the runs before it: {detail}")]
    UnevenRows {
        /// Seed of the differing run.
        seed: u64,
        /// First difference.
        detail: String,
    },
    /// The experiment ran and reported no rows, so that nothing can be said to hold.
    #[error("{paper} reported no rows")]
    NoRows {
        /// Short name of the paper.
        paper: &'static str,
    },
    /// The experiment could not be run to its end.
    #[error("{paper} could not be run: {source}")]
    Failed {
        /// Short name of the paper.
        paper: &'static str,
        /// Cause of the failure.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl RunError {
    /// Creates a [`Failed`](Self::Failed) error for `paper`.
    pub fn failed(paper: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed { paper, source: source.into() }
    }
}

/// Receiver of an experiment's progress. It must not change the results.
pub trait Progress {
    /// Begins a stretch of work, with its number of steps if known.
    fn begin(&mut self, what: &str, steps: Option<u64>);

    /// Reports further steps of the stretch as done.
    fn advance(&mut self, steps: u64);
}

/// A [`Progress`] that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _what: &str, _steps: Option<u64>) {}

    fn advance(&mut self, _steps: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_runs_take_the_seeds_that_follow() {
        assert_eq!(RunOptions::repeated(7, 3).unwrap().seeds(), [7, 8, 9]);
        assert_eq!(RunOptions::repeated(Seed::MAX, 1).unwrap().seeds(), [Seed::MAX]);
        assert_eq!(RunOptions::repeated(Seed::MAX - 1, 2).unwrap().seeds(), [Seed::MAX - 1, Seed::MAX]);
    }

    #[test]
    fn as_many_runs_are_made_at_once_as_was_asked_for() {
        let options = RunOptions::default();
        assert_eq!(options.clone().at_once(None).jobs(), pool::cores());
        assert_eq!(options.at_once(NonZeroU16::new(3)).jobs(), 3);
    }

    #[test]
    fn seeds_that_are_given_are_taken_in_their_order() {
        assert_eq!(RunOptions::seeded(vec![7, 3, Seed::MAX]).unwrap().seeds(), [7, 3, Seed::MAX]);
        assert_eq!(RunOptions::seeded(vec![]), Err(SeedError::Repeat { repeat: 0 }));
        assert_eq!(RunOptions::seeded(vec![4, 5, 4]), Err(SeedError::Twice { seed: 4 }));
        let seed = Seed::MAX + 1;
        assert_eq!(RunOptions::seeded(vec![seed]), Err(SeedError::Overflow { seed, repeat: 1 }));
    }

    #[test]
    fn no_run_and_too_many_are_refused() {
        assert_eq!(RunOptions::repeated(1, 0), Err(SeedError::Repeat { repeat: 0 }));
        assert_eq!(RunOptions::repeated(1, 1001), Err(SeedError::Repeat { repeat: 1001 }));
        for (seed, repeat) in [(Seed::MAX, 2), (Seed::MAX + 1, 1), (u64::MAX, 2)] {
            assert_eq!(RunOptions::repeated(seed, repeat), Err(SeedError::Overflow { seed, repeat }));
        }
    }
}
