//! What applications send, and when.

use marcato_units::{Bytes, Duration, Priority};

/// How long a message or an answer is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Always the same.
    Constant(Bytes),
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean: Bytes,
    },
    /// Pareto distributed, cut off above.
    Pareto {
        /// The exponent of the tail, above 1: the lower, the heavier. Of files on the web, 1.1 to 1.3.
        shape: f64,
        /// The mean of the distribution before it is cut off.
        mean: Bytes,
        /// The most; what would be longer is this long.
        most: Bytes,
    },
    /// The logarithm is normally distributed.
    LogNormal {
        /// The mean.
        mean: Bytes,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl Size {
    /// The mean; of a Pareto distribution, before it is cut off.
    pub const fn mean(&self) -> Bytes {
        match *self {
            Self::Constant(mean)
            | Self::Exponential { mean }
            | Self::Pareto { mean, .. }
            | Self::LogNormal { mean, .. } => mean,
        }
    }
}

/// How long a pause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Always the same.
    Constant(Duration),
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean: Duration,
    },
}

impl Pause {
    /// The mean.
    pub const fn mean(&self) -> Duration {
        match *self {
            Self::Constant(mean) | Self::Exponential { mean } => mean,
        }
    }
}

/// Sends for a while, then is silent for a while, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOff {
    /// How long it sends.
    pub on: Pause,
    /// How long it is silent.
    pub off: Pause,
}

/// How often new connections begin: as a Poisson process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// So far apart on average.
    Every(Duration),
    /// So often that their sizes make up this rate on average.
    Load(marcato_units::Rate),
}

/// A message that an application sends once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Name under which its completion is reported on a line of its own; `None`: together with the others.
    pub name: Option<String>,
    /// When, from the start of the flow.
    pub after: Duration,
    /// Its length.
    pub size: Bytes,
    /// How much it matters.
    pub priority: Priority,
    /// How long it is worth sending; `None`: for ever.
    pub lifetime: Option<Duration>,
}

/// A source of messages: one in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// From one message to the next.
    pub period: Duration,
    /// Bytes of each.
    pub size: Bytes,
    /// How much they matter.
    pub priority: Priority,
    /// When the first is released, from the start of the flow.
    pub first: Duration,
    /// When they are released.
    pub release: Release,
    /// On how many lanes they travel. Means something to QUIC only.
    pub redundancy: Redundancy,
    /// How long each is worth sending; `None`: for ever.
    pub lifetime: Option<Duration>,
    /// Whether the lane scheduler is told of the source. Means something to QUIC only.
    pub declared: bool,
    /// Whether its messages name it, so that it can be learned. Means something to QUIC only.
    pub named: bool,
}

/// When a source releases its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// At equal distances.
    #[default]
    Periodic,
    /// On a grid, each up to so much before or after its time, uniformly.
    Jittered(Duration),
    /// As a Poisson process, a period apart on average.
    Poisson,
}

/// On how many lanes a message travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundancy {
    /// On one.
    #[default]
    Once,
    /// Whole on every lane that can take it.
    EveryLane,
}

/// Data that fills whatever room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// How much it matters.
    pub priority: Priority,
    /// Bytes of each message.
    pub size: Bytes,
}

/// By which rules levels run up and pay back debt (CATS §II-E), or flows are judged (CRQ §III).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// As the authors ran it.
    Authors,
    /// As the paper prints it.
    Paper,
    /// Our own: debt run up while nothing less urgent waited is forgiven.
    #[default]
    Marcato,
}

impl Preset {
    /// Its name, as a file has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authors => "authors",
            Self::Paper => "paper",
            Self::Marcato => "marcato",
        }
    }
}
