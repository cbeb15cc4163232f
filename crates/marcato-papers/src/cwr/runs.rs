//! The runs that all questions together need, each made once, on all cores.

use marcato_report::{Percentile, Samples};
use marcato_units::Duration;

use super::setup::{Error, Outcome, Setup, Span, run};
use crate::{Progress, RunOptions, pool};

/// How long runs are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Of what has a band that needs many messages or many losses.
    pub(super) long: Span,
    /// Of what needs many messages, and has several sources of them.
    pub(super) several: Span,
    /// Of what only shows a tendency.
    pub(super) short: Span,
    /// Whether the long runs are long enough for such bands; otherwise they are not claimed.
    pub(super) claims: bool,
}

impl Scale {
    /// With five seeds, at least 11 000 messages of each source.
    pub(super) const FULL: Self = Self {
        long: span(10_000, 600_000),
        several: span(10_000, 300_000),
        short: span(10_000, 50_000),
        claims: true,
    };
    /// Enough to see that everything works.
    pub(super) const QUICK: Self = Self {
        long: span(3_000, 5_000),
        several: span(3_000, 5_000),
        short: span(3_000, 2_000),
        claims: false,
    };

    /// That of a full or of a quick run.
    pub(super) const fn of(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }
}

const fn span(warm_up: u64, length: u64) -> Span {
    Span { warm_up: Duration::from_millis(warm_up), length: Duration::from_millis(length) }
}

/// A setup that will be run with every seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(usize);

/// What is to be run. Questions that want the same setup share its runs.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) scale: Scale,
    setups: Vec<(String, Setup)>,
}

impl Plan {
    pub(super) const fn new(scale: Scale) -> Self {
        Self { scale, setups: Vec::new() }
    }

    /// Asks for the runs of a setup.
    pub(super) fn add(&mut self, setup: Setup) -> Ticket {
        // Setups hold configurations that cannot be compared, but that show all they are.
        let key = format!("{setup:?}");
        let known = self.setups.iter().position(|(other, _)| *other == key);
        Ticket(known.unwrap_or_else(|| {
            self.setups.push((key, setup));
            self.setups.len() - 1
        }))
    }

    /// As if every run had given nothing: shows what would be said of them.
    #[cfg(test)]
    pub(super) fn nothing(&self) -> Runs {
        Runs { outcomes: vec![Vec::new(); self.setups.len()] }
    }

    /// Runs everything with each of `seeds`. The outcome does not depend on how many cores there are.
    pub(super) fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Runs, Error> {
        self.run_on(options.jobs(), options.seeds(), progress)
    }

    fn run_on(&self, cores: usize, seeds: &[u64], progress: &mut dyn Progress) -> Result<Runs, Error> {
        let of = |at: usize| seeds.iter().copied().take(self.setups[at].1.seeds);
        let mut jobs: Vec<_> =
            (0..self.setups.len()).flat_map(|at| of(at).map(move |seed| (at, seed))).collect();
        // The longest first, so that no core waits long for the last.
        jobs.sort_by_key(|&(at, _)| std::cmp::Reverse(self.setups[at].1.duration()));
        let seconds = |at: usize| self.setups[at].1.duration().as_secs();
        progress.begin("CWR, simulated seconds", Some(jobs.iter().map(|&(at, _)| seconds(at)).sum()));

        let mut done: Vec<Vec<Option<Outcome>>> =
            (0..self.setups.len()).map(|at| vec![None; of(at).count()]).collect();
        let place = |at: usize, seed: u64| of(at).position(|other| other == seed);
        let work = |&(at, seed): &(usize, u64)| run(&self.setups[at].1, seed);
        pool::spread(cores, &jobs, work, |&(at, seed), outcome| {
            if let Some(place) = place(at, seed) {
                done[at][place] = Some(outcome);
            }
            progress.advance(seconds(at));
        })?;
        let whole = done.into_iter().map(|seeds| seeds.into_iter().collect::<Option<_>>());
        let outcomes = whole.collect::<Option<_>>().ok_or(Error::Missing("outcome of a run"))?;
        Ok(Runs { outcomes })
    }
}

/// What came of a [`Plan`].
#[derive(Debug)]
pub(super) struct Runs {
    /// Of each setup, with each of its seeds.
    outcomes: Vec<Vec<Outcome>>,
}

impl Runs {
    /// Of one setup, the outcome with each seed.
    pub(super) fn of(&self, ticket: Ticket) -> &[Outcome] {
        &self.outcomes[ticket.0]
    }

    /// A value of one setup with each seed.
    pub(super) fn each(&self, ticket: Ticket, value: impl FnMut(&Outcome) -> f64) -> Vec<f64> {
        self.of(ticket).iter().map(value).collect()
    }

    /// The mean of a value over the seeds.
    pub(super) fn mean(&self, ticket: Ticket, value: impl FnMut(&Outcome) -> f64) -> f64 {
        marcato_report::Mean::of(&self.each(ticket, value)).value
    }

    /// Half the width of the 95 % confidence interval of that mean; not a number with a single seed.
    pub(super) fn ci95(&self, ticket: Ticket, value: impl FnMut(&Outcome) -> f64) -> f64 {
        marcato_report::Mean::of(&self.each(ticket, value)).ci95.unwrap_or(f64::NAN)
    }

    /// The completion times of a source's messages with all seeds, in ms.
    pub(super) fn mcts(&self, ticket: Ticket, source: usize) -> Samples {
        self.of(ticket).iter().flat_map(|outcome| outcome.mcts(source)).collect()
    }

    /// A percentile of the completion times of a source's messages with each seed, in ms.
    pub(super) fn percentiles(&self, ticket: Ticket, source: usize, percentile: Percentile) -> Vec<f64> {
        self.each(ticket, |outcome| {
            outcome.mcts(source).collect::<Samples>().percentile(percentile).unwrap_or(f64::NAN)
        })
    }
}

#[cfg(test)]
mod tests {
    use marcato_units::Bytes;

    use super::super::published::{Periodic, SAME_RTT, Scheduler};
    use super::*;
    use crate::Silent;

    fn setup(scheduler: Scheduler) -> Setup {
        let source = Periodic { period: Duration::from_millis(50), size: Bytes::kb(10) };
        Setup::paper(scheduler, SAME_RTT, &[source], span(1_000, 500))
    }

    #[test]
    fn the_same_setup_is_run_once() {
        let mut plan = Plan::new(Scale::QUICK);
        let [first, other, again] =
            [Scheduler::Cwr, Scheduler::CwrRed, Scheduler::Cwr].map(|scheduler| plan.add(setup(scheduler)));
        assert_eq!((first, plan.setups.len()), (again, 2));
        assert_ne!(first, other);
    }

    #[test]
    fn the_outcomes_do_not_depend_on_the_number_of_cores() {
        let mut plan = Plan::new(Scale::QUICK);
        let tickets = Scheduler::ALL.map(|scheduler| plan.add(setup(scheduler)));
        let [one, three] = [1, 3].map(|cores| plan.run_on(cores, &[1, 2], &mut Silent).unwrap());
        for ticket in tickets {
            assert_eq!(one.of(ticket), three.of(ticket));
            assert_ne!(one.of(ticket)[0], one.of(ticket)[1]);
        }
    }

    #[test]
    fn a_run_that_is_impossible_stops_all() {
        let mut plan = Plan::new(Scale::QUICK);
        plan.add(setup(Scheduler::Cwr).with_paths(|path| path.queue = 0));
        assert!(plan.run_on(2, &[1, 2], &mut Silent).is_err());
    }
}
