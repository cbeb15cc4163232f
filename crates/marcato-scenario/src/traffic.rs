//! Sizes and times of application data.

use marcato_units::{Bytes, Duration, Priority};

/// Distribution of message and response sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Constant size.
    Constant(Bytes),
    /// Exponential distribution.
    Exponential {
        /// Mean.
        mean: Bytes,
    },
    /// Pareto distribution with an upper limit.
    Pareto {
        /// Tail index, above 1; lower values give a heavier tail. Files on the web have 1.1 to 1.3.
        shape: f64,
        /// Mean of the distribution without the upper limit.
        mean: Bytes,
        /// Upper limit; larger draws are reduced to it.
        most: Bytes,
    },
    /// Log-normal distribution.
    LogNormal {
        /// Mean of the sizes, not of their logarithms.
        mean: Bytes,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl Size {
    /// Returns the mean; for a Pareto distribution, without its upper limit.
    pub const fn mean(&self) -> Bytes {
        match *self {
            Self::Constant(mean)
            | Self::Exponential { mean }
            | Self::Pareto { mean, .. }
            | Self::LogNormal { mean, .. } => mean,
        }
    }
}

/// Distribution of pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Constant pause.
    Constant(Duration),
    /// Exponential distribution.
    Exponential {
        /// Mean.
        mean: Duration,
    },
}

impl Pause {
    /// Returns the mean.
    pub const fn mean(&self) -> Duration {
        match *self {
            Self::Constant(mean) | Self::Exponential { mean } => mean,
        }
    }
}

/// Alternating periods of sending and silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOff {
    /// Duration of a period of sending.
    pub on: Pause,
    /// Duration of a period of silence.
    pub off: Pause,
}

/// Rate of new connections, which arrive as a Poisson process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Mean interval between arrivals.
    Every(Duration),
    /// Mean offered load, from which the arrival rate follows by the mean size.
    Load(marcato_units::Rate),
}

/// Message that an application sends once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Name for a separate line in results; `None` reports the message with the others.
    pub name: Option<String>,
    /// Release time, from the start of the flow.
    pub after: Duration,
    /// Length.
    pub size: Bytes,
    /// Priority.
    pub priority: Priority,
    /// Lifetime; `None` if the message never expires.
    pub lifetime: Option<Duration>,
}

/// Periodic source of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Interval between messages.
    pub period: Duration,
    /// Bytes of each message.
    pub size: Bytes,
    /// Priority of the messages.
    pub priority: Priority,
    /// Release time of the first message, from the start of the flow.
    pub first: Duration,
    /// Timing of releases.
    pub release: Release,
    /// Redundancy across lanes; used by QUIC only.
    pub redundancy: Redundancy,
    /// Lifetime of each message; `None` if messages never expire.
    pub lifetime: Option<Duration>,
    /// Declares the source to the lane scheduler; used by QUIC only.
    pub declared: bool,
    /// Names the source in its messages, so that its period can be learned; used by QUIC only.
    pub named: bool,
}

/// Timing of a source's releases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// Equal intervals.
    #[default]
    Periodic,
    /// Equal intervals with a uniform deviation of up to this much, before or after.
    Jittered(Duration),
    /// Poisson process, with the period as its mean interval.
    Poisson,
}

/// Redundancy of a message across lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundancy {
    /// One lane.
    #[default]
    Once,
    /// Whole copy on every lane that can take it.
    EveryLane,
}

/// Bulk data that fills all remaining room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// Priority.
    pub priority: Priority,
    /// Bytes of each message.
    pub size: Bytes,
}

/// Rules by which levels run up and pay back debt (CATS §II-E), or by which flows are judged (CRQ
/// §III).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Rules as run by the authors.
    Authors,
    /// Rules as printed in the paper.
    Paper,
    /// Rules of this project; debt run up while nothing less urgent waited is forgiven.
    #[default]
    Marcato,
}

impl Preset {
    /// Returns the name used in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authors => "authors",
            Self::Paper => "paper",
            Self::Marcato => "marcato",
        }
    }
}
