//! How long runs are.

use marcato_units::{Duration, Time};

/// What is to be run.
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

    /// Where the measurement begins.
    pub(super) fn from(self) -> Time {
        Time::ZERO + self.warm_up
    }

    /// Where it ends.
    pub(super) fn until(self) -> Time {
        self.from() + self.length
    }

    /// How long is measured and after how long, in words.
    pub(super) fn words(self) -> String {
        format!("{} s after {} s", self.length.as_secs_f64(), self.warm_up.as_secs_f64())
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
    /// Over how many draws short flows from an empty link are run.
    pub(super) short_draws: u64,
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
        short_draws: 20,
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
        short_draws: 1,
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
