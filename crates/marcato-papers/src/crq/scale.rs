//! Size of the transfers, and evaluation of the runs.

use marcato_units::{Bytes, Duration};

use super::published::{UDP_FROM, fct_score};
use super::setup::Setup;
use crate::plan::Runs;

/// Runs to be made, with their scale.
pub(super) type Plan = crate::plan::Plan<Scale>;

/// A setup that will be run with its seeds.
pub(super) type Ticket = crate::plan::Ticket<Setup>;

/// Size of the transfers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Divisor of the paper's transfers.
    pub(super) divisor: u64,
    /// True if the claims of full runs are made; otherwise values are only shown.
    pub(super) claims: bool,
    /// True if the signs of Fig. 5 are claimed.
    pub(super) signs: bool,
}

impl Scale {
    /// Transfers as in the paper.
    pub(super) const FULL: Self = Self { divisor: 1, claims: true, signs: true };
    /// Large enough for signs.
    pub(super) const QUICK: Self = Self { divisor: 20, claims: false, signs: true };
    /// Just large enough to exercise everything.
    #[cfg(test)]
    pub(super) const TINY: Self = Self { divisor: 400, claims: false, signs: false };

    /// Scale of a full or of a quick run.
    pub(super) const fn of(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }

    /// Transfer that replaces one of `bytes`.
    pub(super) fn bytes(self, bytes: Bytes) -> Bytes {
        bytes / self.divisor
    }

    /// Start of the unresponsive traffic: as in the paper, or earlier in short runs, so that it
    /// still disturbs them.
    pub(super) fn udp_from(self, rtt: Duration) -> Duration {
        if self.divisor == 1 { UDP_FROM } else { (5 * rtt).max(Duration::from_millis(50)) }
    }

    /// Duration of runs whose traffic does not end.
    pub(super) fn span(self, full: Duration) -> Duration {
        if self.divisor == 1 { full } else { (full / 10).max(Duration::from_secs(2)) }
    }
}

/// A number of bytes in words, in decimal units.
pub(super) fn words(bytes: Bytes) -> String {
    let bytes = bytes.get() as f64;
    match bytes {
        b if b >= 1e9 => format!("{} GB", b / 1e9),
        b if b >= 1e6 => format!("{} MB", b / 1e6),
        b => format!("{} kB", b / 1e3),
    }
}

/// FCT scores of one setup against another: for each seed, the mean over its flows. CRQ §IV-C2.
pub(super) fn scores(runs: &Runs, baseline: Ticket, crq: Ticket, at_most: Duration) -> Vec<f64> {
    let pairs = runs.of(baseline).into_iter().zip(runs.of(crq));
    pairs
        .map(|(baseline, crq)| {
            let flows = baseline.transfers.iter().zip(&crq.transfers);
            let scores = flows.map(|(b, c)| fct_score(b.ms(at_most), c.ms(at_most)));
            scores.sum::<f64>() / baseline.transfers.len() as f64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::published::{Control, Pair, RTTS, Stack};
    use super::super::scene::{self, Column};
    use super::super::watched::Preset;
    use super::*;
    use crate::{RunOptions, Shelf, Silent};

    fn setup(plan: &Plan, stack: Stack) -> Setup {
        let setup = scene::against(Pair::Codel, RTTS[0], Column::Clean, Preset::Marcato);
        scene::single(setup, stack, plan.scale.bytes(Bytes::kb(400_000)), plan.scale.udp_from(RTTS[0]))
    }

    #[test]
    fn outcomes_are_independent_of_core_count_and_of_kept_runs() {
        let mut plan = Plan::new(Scale::TINY);
        let stacks =
            [Stack::Quic(Control::Cubic), Stack::BothWays(Control::Bbr), Stack::OneWay(Control::Cubic)];
        let tickets = stacks.map(|stack| {
            let setup = setup(&plan, stack);
            plan.add(setup)
        });
        let directory = tempfile::tempdir().unwrap();
        let options = RunOptions::repeated(1, 2).unwrap();
        let kept = options.clone().kept_on(Shelf::new(directory.path(), "tests"));
        let run = |cores, options| plan.run_on(cores, "CRQ", options, &mut Silent).unwrap();
        let (one, three, taken) = (run(1, &options), run(3, &kept), run(1, &kept));
        for ticket in tickets {
            assert_eq!(one.of(ticket), three.of(ticket));
            assert_eq!(one.of(ticket), taken.of(ticket));
            assert!(one.of(ticket)[0].transfers[0].fct.is_some());
        }
    }
}
