//! The runs that all questions together need, each made once, on all cores.

use marcato_units::{Bytes, Duration};

use super::published::{UDP_FROM, fct_score};
use super::setup::{Error, Outcome, Setup, run};
use crate::{Progress, pool};

/// How much is transferred.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The part of what the paper transfers: one over this.
    pub(super) divisor: u64,
    /// Whether what is claimed of the full runs is claimed; otherwise it is only shown.
    pub(super) claims: bool,
    /// Whether the signs of Fig. 5 are.
    pub(super) signs: bool,
}

impl Scale {
    /// As in the paper.
    pub(super) const FULL: Self = Self { divisor: 1, claims: true, signs: true };
    /// Enough for signs.
    pub(super) const QUICK: Self = Self { divisor: 20, claims: false, signs: true };
    /// Enough to see that everything works.
    #[cfg(test)]
    pub(super) const TINY: Self = Self { divisor: 400, claims: false, signs: false };

    /// That of a full or of a quick run.
    pub(super) const fn of(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }

    /// What is transferred in the place of so much.
    pub(super) fn bytes(self, bytes: Bytes) -> Bytes {
        bytes / self.divisor
    }

    /// When unresponsive traffic begins: as in the paper, or so early that there is something left to disturb.
    pub(super) fn udp_from(self, rtt: Duration) -> Duration {
        if self.divisor == 1 { UDP_FROM } else { (5 * rtt).max(Duration::from_millis(50)) }
    }

    /// How long something lasts that has no end of its own.
    pub(super) fn span(self, full: Duration) -> Duration {
        if self.divisor == 1 { full } else { (full / 10).max(Duration::from_secs(2)) }
    }
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

    /// Runs everything with each of `seeds`. The outcome does not depend on how many cores there are.
    pub(super) fn run(&self, seeds: &[u64], progress: &mut dyn Progress) -> Result<Runs, Error> {
        self.run_on(pool::cores(), seeds, progress)
    }

    fn run_on(&self, cores: usize, seeds: &[u64], progress: &mut dyn Progress) -> Result<Runs, Error> {
        let of = |at: usize| seeds.iter().copied().take(self.setups[at].1.seeds);
        let mut jobs: Vec<_> =
            (0..self.setups.len()).flat_map(|at| of(at).map(move |seed| (at, seed))).collect();
        // The longest first, so that no core waits long for the last.
        jobs.sort_by_key(|&(at, _)| std::cmp::Reverse(self.setups[at].1.work()));
        let work = |at: usize| self.setups[at].1.work();
        progress.begin("CRQ, megabytes", Some(jobs.iter().map(|&(at, _)| work(at)).sum()));

        let mut done: Vec<Vec<Option<Outcome>>> =
            (0..self.setups.len()).map(|at| vec![None; of(at).count()]).collect();
        let place = |at: usize, seed: u64| of(at).position(|other| other == seed);
        let once = |&(at, seed): &(usize, u64)| run(&self.setups[at].1, seed);
        pool::spread(cores, &jobs, once, |&(at, seed), outcome| {
            if let Some(place) = place(at, seed) {
                done[at][place] = Some(outcome);
            }
            progress.advance(work(at));
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

    /// The FCT scores of one setup against another: for each seed, the mean of those of its flows. CRQ §IV-C2.
    pub(super) fn scores(&self, baseline: Ticket, crq: Ticket, at_most: Duration) -> Vec<f64> {
        let pairs = self.of(baseline).iter().zip(self.of(crq));
        pairs
            .map(|(baseline, crq)| {
                let flows = baseline.transfers.iter().zip(&crq.transfers);
                let scores = flows.map(|(b, c)| fct_score(b.ms(at_most), c.ms(at_most)));
                scores.sum::<f64>() / baseline.transfers.len() as f64
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::published::{Control, Pair, RTTS, Stack};
    use super::super::scene::{self, Column};
    use super::super::watched::Preset;
    use super::*;
    use crate::Silent;

    fn setup(plan: &Plan, stack: Stack) -> Setup {
        let setup = scene::against(Pair::Codel, RTTS[0], Column::Clean, Preset::Marcato);
        scene::single(setup, stack, plan.scale.bytes(Bytes::kb(400_000)), plan.scale.udp_from(RTTS[0]))
    }

    #[test]
    fn the_same_setup_is_run_once() {
        let mut plan = Plan::new(Scale::TINY);
        let stacks =
            [Stack::OneWay(Control::Cubic), Stack::OneWay(Control::Bbr), Stack::OneWay(Control::Cubic)];
        let [first, other, again] = stacks.map(|stack| {
            let setup = setup(&plan, stack);
            plan.add(setup)
        });
        assert_eq!((first, plan.setups.len()), (again, 2));
        assert_ne!(first, other);
    }

    #[test]
    fn the_outcomes_do_not_depend_on_the_number_of_cores() {
        let mut plan = Plan::new(Scale::TINY);
        let stacks =
            [Stack::Quic(Control::Cubic), Stack::BothWays(Control::Bbr), Stack::OneWay(Control::Cubic)];
        let tickets = stacks.map(|stack| {
            let setup = setup(&plan, stack);
            plan.add(setup)
        });
        let [one, three] = [1, 3].map(|cores| plan.run_on(cores, &[1, 2], &mut Silent).unwrap());
        for ticket in tickets {
            assert_eq!(one.of(ticket), three.of(ticket));
            assert!(one.of(ticket)[0].transfers[0].fct.is_some());
        }
    }

    #[test]
    fn a_run_that_is_impossible_stops_all() {
        let mut plan = Plan::new(Scale::TINY);
        let mut impossible = setup(&plan, Stack::OneWay(Control::Cubic));
        if let super::super::setup::Bottleneck::Crq(config) = &mut impossible.bottleneck {
            config.standard.share = 0;
        }
        plan.add(impossible);
        assert!(plan.run_on(2, &[1, 2], &mut Silent).is_err());
    }
}
