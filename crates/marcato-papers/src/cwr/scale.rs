//! Durations of the runs, and the plan that they are asked of.

use marcato_units::Duration;

use super::setup::{Setup, Span};

/// Runs that all questions together need.
pub(super) type Plan = crate::plan::Plan<Scale>;

/// A setup that will be run with every seed.
pub(super) type Ticket = crate::plan::Ticket<Setup>;

/// Length of the runs of each question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Span of runs with a band that needs many messages or many losses.
    pub(super) long: Span,
    /// Span of runs that need many messages and have several sources of them.
    pub(super) several: Span,
    /// Span of runs that only show a tendency.
    pub(super) short: Span,
    /// True if the long runs are long enough for such bands; otherwise they are not claimed.
    pub(super) claims: bool,
}

impl Scale {
    /// Full runs: with five seeds, at least 11 000 messages of each source.
    pub(super) const FULL: Self = Self {
        long: span(10_000, 600_000),
        several: span(10_000, 300_000),
        short: span(10_000, 50_000),
        claims: true,
    };
    /// Just long enough to exercise everything.
    pub(super) const QUICK: Self = Self {
        long: span(3_000, 5_000),
        several: span(3_000, 5_000),
        short: span(3_000, 2_000),
        claims: false,
    };

    /// Scale of a full or of a quick run.
    pub(super) const fn of(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }
}

pub(super) const fn span(warm_up: u64, length: u64) -> Span {
    Span { warm_up: Duration::from_millis(warm_up), length: Duration::from_millis(length) }
}

#[cfg(test)]
mod tests {
    use marcato_units::Bytes;

    use super::super::published::{Periodic, SAME_RTT, Scheduler};
    use super::*;
    use crate::{RunOptions, Silent};

    fn setup(scheduler: Scheduler) -> Setup {
        let source = Periodic { period: Duration::from_millis(50), size: Bytes::kb(10) };
        Setup::paper(scheduler, SAME_RTT, &[source], span(1_000, 500))
    }

    #[test]
    fn the_same_setup_is_run_once() {
        let mut plan = Plan::new(Scale::QUICK);
        let [first, other, again] =
            [Scheduler::Cwr, Scheduler::CwrRed, Scheduler::Cwr].map(|scheduler| plan.add(setup(scheduler)));
        let same = |a: Ticket, b: Ticket| format!("{a:?}") == format!("{b:?}");
        assert!(same(first, again) && !same(first, other));
    }

    #[test]
    fn the_outcomes_do_not_depend_on_the_number_of_cores() {
        let options = RunOptions::repeated(1, 2).unwrap();
        let mut plan = Plan::new(Scale::QUICK);
        let tickets = Scheduler::ALL.map(|scheduler| plan.add(setup(scheduler)));
        let [one, three] = [1, 3].map(|cores| plan.run_on(cores, "CWR", &options, &mut Silent).unwrap());
        for ticket in tickets {
            assert_eq!(one.of(ticket), three.of(ticket));
            assert_ne!(one.of(ticket)[0], one.of(ticket)[1]);
        }
    }
}
