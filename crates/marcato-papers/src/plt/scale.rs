//! Length of runs.

use marcato_units::{Duration, Time};

/// Runs to be made, with their scale.
pub(super) type Plan = crate::plan::Plan<Scale>;

/// A run that measures `length` after `warm_up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
}

impl Span {
    pub(super) const fn seconds(warm_up: u64, length: u64) -> Self {
        Self { warm_up: Duration::from_secs(warm_up), length: Duration::from_secs(length) }
    }

    /// Start of the measurement.
    pub(super) fn from(self) -> Time {
        Time::ZERO + self.warm_up
    }

    /// End of the measurement.
    pub(super) fn until(self) -> Time {
        self.from() + self.length
    }

    /// Length of the measurement and of the warm-up, in words.
    pub(super) fn words(self) -> String {
        format!("{} s after {} s", self.length.as_secs_f64(), self.warm_up.as_secs_f64())
    }

    /// Length of the whole run, in seconds.
    pub(super) fn whole(self) -> u64 {
        (self.warm_up + self.length).as_secs()
    }
}

/// Length of the runs of each question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Span of a single flow, as in the paper: the last 1000 s of 1200.
    pub(super) long: Span,
    /// Span of runs that show a tendency.
    pub(super) tendency: Span,
    /// Span of the short flows.
    pub(super) short: Span,
    /// Number of draws for short flows from an empty link.
    pub(super) short_draws: u64,
    /// Span of the network of two bottlenecks: everything before the last part, and that part.
    pub(super) bottlenecks: Span,
    /// Span of the runs about harm, and their number for each seed.
    pub(super) harm: Span,
    pub(super) harm_seeds: u64,
    /// Span of several PLT flows.
    pub(super) fairness: Span,
    /// Divisor of the time between the starts of flows: 1 for the paper's, more in quick runs.
    pub(super) apart_divisor: u32,
    /// True if runs are long enough for the paper's statements; otherwise nothing is claimed.
    pub(super) claims: bool,
}

impl Scale {
    pub(super) const FULL: Self = Self {
        long: Span::seconds(200, 1000),
        tendency: Span::seconds(60, 240),
        short: Span::seconds(30, 300),
        short_draws: 20,
        bottlenecks: Span::seconds(900, 300),
        harm: Span::seconds(20, 180),
        harm_seeds: 10,
        fairness: Span::seconds(200, 100),
        apart_divisor: 1,
        claims: true,
    };
    /// Just long enough to exercise everything.
    pub(super) const QUICK: Self = Self {
        long: Span::seconds(2, 3),
        tendency: Span::seconds(2, 2),
        short: Span::seconds(1, 2),
        short_draws: 1,
        bottlenecks: Span::seconds(2, 1),
        harm: Span::seconds(1, 3),
        harm_seeds: 2,
        fairness: Span::seconds(2, 1),
        apart_divisor: 240,
        claims: false,
    };

    /// Scale of a full or of a quick run.
    pub(super) const fn of(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }
}
