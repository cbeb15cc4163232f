//! Configuration of an exchange.

use marcato_units::{Bytes, Rate};

use super::error::ConfigError;
use super::group::Grouping;
use super::urgency::LevelTable;
use crate::conductor::Debt;

/// Choice of the rules of debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// [`Debt::web_at`] the rate that the connection carries: see
    /// [`Exchange::set_rate`](super::Exchange::set_rate).
    #[default]
    FollowRate,
    /// These rules at every rate.
    Fixed(Debt),
}

impl Rules {
    /// Returns the rules at `rate`, for chunks of `chunk`.
    pub(super) fn at(self, rate: Rate, chunk: Bytes) -> Debt {
        match self {
            Self::FollowRate => Debt::web_at(rate, chunk),
            Self::Fixed(debt) => debt,
        }
    }
}

/// Configuration of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rules by which levels run up and pay back debt.
    pub rules: Rules,
    /// Level of each urgency.
    pub levels: LevelTable,
    /// Largest budget that will be requested at first. The watermarks are checked against it.
    pub chunk: Bytes,
    /// Most bytes of a grant while incremental responses, or groups, take turns.
    pub turn: Bytes,
    /// Place of groups in the order.
    pub grouping: Grouping,
    /// Most groups that have a weight other than the default.
    pub max_weights: usize,
    /// Most responses open at once.
    pub max_responses: usize,
    /// Most bytes staged for one response. Raise it for bodies that are in memory as a whole.
    pub max_staged: Bytes,
}

impl Config {
    /// Checks the configuration, and returns the first rules.
    pub(super) fn debt(&self) -> Result<Debt, ConfigError> {
        let debt = self.rules.at(Rate::ZERO, self.chunk);
        debt.validate(self.chunk)?;
        if self.turn.is_zero() { Err(ConfigError::TurnIsZero) } else { Ok(debt) }
    }
}

impl Default for Config {
    /// Watermarks that follow the rate, chunks of 1460 bytes at first, and turns of 16 384 bytes, the
    /// largest frame of HTTP/2 unless the client allows more (RFC 9113 §4.2). Groups share within their
    /// urgency. At most 256 responses are open, with 64 KiB staged for each, and 256 groups have weights.
    fn default() -> Self {
        Self {
            rules: Rules::FollowRate,
            levels: LevelTable::DEFAULT,
            chunk: Bytes::new(1460),
            turn: Bytes::new(16 << 10),
            grouping: Grouping::WithinUrgency,
            max_weights: 256,
            max_responses: 256,
            max_staged: Bytes::new(64 << 10),
        }
    }
}
