//! The runs that all questions together need, each made once, on all cores.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use marcato_units::{Duration, Time};

use super::world::Error;
use crate::Progress;

/// A run that measures `length` after `warm_up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
}

impl Span {
    const fn seconds(warm_up: u64, length: u64) -> Self {
        Self { warm_up: Duration::from_secs(warm_up), length: Duration::from_secs(length) }
    }

    /// Where the measurement begins.
    pub(super) fn from(self) -> Time {
        Time::ZERO + self.warm_up
    }

    /// Where it ends.
    pub(super) fn until(self) -> Time {
        self.from() + self.length
    }

    /// The whole run, in seconds.
    pub(super) fn whole(self) -> u64 {
        (self.warm_up + self.length).as_secs()
    }
}

/// How long runs are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Of a single flow, as in the paper: the last 1000 s of 1200.
    pub(super) long: Span,
    /// Of what shows a tendency.
    pub(super) tendency: Span,
    /// Of the short flows.
    pub(super) short: Span,
    /// Of the network of two bottlenecks: up to its last part, and that.
    pub(super) bottlenecks: Span,
    /// Of harm and how often it is run.
    pub(super) harm: Span,
    pub(super) harm_seeds: u64,
    /// Of several PLT flows.
    pub(super) fairness: Span,
    /// How much sooner than in the paper flows follow each other.
    pub(super) apart_divisor: u32,
    /// Whether runs are long enough for what the paper states; otherwise it is not claimed.
    pub(super) claims: bool,
}

impl Scale {
    pub(super) const FULL: Self = Self {
        long: Span::seconds(200, 1000),
        tendency: Span::seconds(60, 240),
        short: Span::seconds(30, 300),
        bottlenecks: Span::seconds(900, 300),
        harm: Span::seconds(20, 180),
        harm_seeds: 10,
        fairness: Span::seconds(200, 100),
        apart_divisor: 1,
        claims: true,
    };
    /// Enough to see that everything works.
    pub(super) const QUICK: Self = Self {
        long: Span::seconds(2, 3),
        tendency: Span::seconds(2, 2),
        short: Span::seconds(1, 2),
        bottlenecks: Span::seconds(2, 1),
        harm: Span::seconds(1, 3),
        harm_seeds: 2,
        fairness: Span::seconds(2, 1),
        apart_divisor: 240,
        claims: false,
    };

    /// That of a full or of a quick run.
    pub(super) const fn of(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }
}

/// Something that can be run with a seed, and shows all it is by [`Debug`](fmt::Debug): what looks the same is run once.
pub(super) trait Setup: fmt::Debug + Send + Sync + 'static {
    /// What comes of it.
    type Outcome: Send + 'static;

    /// About how much work it is, in simulated seconds of a full link.
    fn cost(&self) -> u64;

    /// Runs it.
    fn run(&self, seed: u64) -> Result<Self::Outcome, Error>;
}

type Outcome = Box<dyn Any + Send>;

/// A [`Setup`] of any kind.
trait Erased: Send + Sync {
    fn cost(&self) -> u64;
    fn run(&self, seed: u64) -> Result<Outcome, Error>;
}

impl<S: Setup> Erased for S {
    fn cost(&self) -> u64 {
        Setup::cost(self)
    }

    fn run(&self, seed: u64) -> Result<Outcome, Error> {
        Ok(Box::new(Setup::run(self, seed)?))
    }
}

/// A setup that will be run with every seed.
pub(super) struct Ticket<S> {
    at: usize,
    of: PhantomData<fn() -> S>,
}

impl<S> Clone for Ticket<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Ticket<S> {}

/// What is to be run. Questions that want the same setup share its runs.
pub(super) struct Plan {
    pub(super) scale: Scale,
    setups: Vec<(String, Box<dyn Erased>)>,
}

impl Plan {
    pub(super) const fn new(scale: Scale) -> Self {
        Self { scale, setups: Vec::new() }
    }

    /// Asks for the runs of a setup.
    pub(super) fn add<S: Setup>(&mut self, setup: S) -> Ticket<S> {
        // Setups hold configurations that cannot be compared, but that show all they are.
        let key = format!("{} {setup:?}", std::any::type_name::<S>());
        let known = self.setups.iter().position(|(other, _)| *other == key);
        let at = known.unwrap_or_else(|| {
            self.setups.push((key, Box::new(setup)));
            self.setups.len() - 1
        });
        Ticket { at, of: PhantomData }
    }

    /// Runs everything with each of `seeds`. The outcome does not depend on how many cores there are.
    pub(super) fn run(&self, seeds: &[u64], progress: &mut dyn Progress) -> Result<Runs, Error> {
        self.run_on(thread::available_parallelism().map_or(1, NonZeroUsize::get), seeds, progress)
    }

    fn run_on(&self, cores: usize, seeds: &[u64], progress: &mut dyn Progress) -> Result<Runs, Error> {
        let mut jobs: Vec<(usize, usize)> =
            (0..self.setups.len()).flat_map(|at| (0..seeds.len()).map(move |seed| (at, seed))).collect();
        // The longest first, so that no core waits long for the last.
        jobs.sort_by_key(|&(at, _)| std::cmp::Reverse(self.setups[at].1.cost()));
        let cost = |at: usize| self.setups[at].1.cost();
        progress.begin("PLT, simulated seconds", Some(jobs.iter().map(|&(at, _)| cost(at)).sum()));

        let next = AtomicUsize::new(0);
        let (send, receive) = mpsc::channel();
        let mut done: Vec<Vec<Option<Outcome>>> =
            self.setups.iter().map(|_| seeds.iter().map(|_| None).collect()).collect();
        thread::scope(|scope| {
            for _ in 0..cores.min(jobs.len()) {
                let (send, next, jobs) = (send.clone(), &next, &jobs);
                scope.spawn(move || {
                    while let Some(&(at, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let outcome = self.setups[at].1.run(seeds[seed]);
                        if send.send((at, seed, outcome)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(send);
            for (at, seed, outcome) in receive {
                let outcome = outcome.inspect_err(|_| next.store(jobs.len(), Ordering::Relaxed))?;
                done[at][seed] = Some(outcome);
                progress.advance(cost(at));
            }
            Ok::<_, Error>(())
        })?;
        let whole = done.into_iter().map(|seeds| seeds.into_iter().collect::<Option<_>>());
        let outcomes = whole.collect::<Option<_>>().ok_or(Error::Missing("outcome of a run"))?;
        Ok(Runs { outcomes })
    }
}

/// What came of a [`Plan`].
pub(super) struct Runs {
    /// Of each setup, with each seed.
    outcomes: Vec<Vec<Outcome>>,
}

impl Runs {
    /// Of one setup, the outcome with each seed.
    pub(super) fn of<S: Setup>(&self, ticket: Ticket<S>) -> Vec<&S::Outcome> {
        // A ticket is given for a setup of its type alone.
        self.outcomes[ticket.at].iter().filter_map(|outcome| outcome.downcast_ref()).collect()
    }

    /// A value of one setup with each seed.
    pub(super) fn each<S: Setup>(
        &self,
        ticket: Ticket<S>,
        mut value: impl FnMut(&S::Outcome) -> f64,
    ) -> Vec<f64> {
        self.of(ticket).into_iter().map(&mut value).collect()
    }

    /// The mean of a value over the seeds.
    pub(super) fn mean<S: Setup>(&self, ticket: Ticket<S>, value: impl FnMut(&S::Outcome) -> f64) -> f64 {
        crate::Mean::of(&self.each(ticket, value)).value
    }

    /// The outcome of the first seed, which figures show.
    pub(super) fn first<S: Setup>(&self, ticket: Ticket<S>) -> Option<&S::Outcome> {
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
        type Outcome = u64;

        fn cost(&self) -> u64 {
            1
        }

        fn run(&self, seed: u64) -> Result<u64, Error> {
            if self.0 == 0 { Err(Error::Missing("summand")) } else { Ok(self.0 + seed) }
        }
    }

    #[test]
    fn the_same_setup_is_run_once_and_each_ticket_finds_its_own() {
        for cores in [1, 3] {
            let mut plan = Plan::new(Scale::QUICK);
            let [first, other, again] = [1, 2, 1].map(|number| plan.add(Sum(number)));
            assert_eq!((first.at, plan.setups.len()), (again.at, 2));
            let runs = plan.run_on(cores, &[10, 20], &mut Silent).unwrap();
            assert_eq!((runs.of(first), runs.of(other)), (vec![&11, &21], vec![&12, &22]));
        }
    }

    #[test]
    fn a_run_that_is_impossible_stops_all() {
        let mut plan = Plan::new(Scale::QUICK);
        plan.add(Sum(0));
        assert!(plan.run_on(2, &[1, 2], &mut Silent).is_err());
    }
}
