//! Counters of an exchange.

use marcato_units::{Bytes, Priority};

/// Counters of an exchange since it was made.
///
/// `supplied` always equals the sum of `granted`, `dropped` and what is staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Responses opened.
    pub opened: u64,
    /// Responses not accepted, because the limit was reached or the stream was invalid.
    pub not_opened: u64,
    /// Weights not set, because the limit was reached.
    pub weights_not_set: u64,
    /// Responses closed.
    pub closed: u64,
    /// Responses reported because they could not arrive by their deadline.
    pub late: u64,
    /// Those of them that were closed by that.
    pub expired: u64,
    /// Bytes accepted by `supply`.
    pub supplied: Bytes,
    /// Bytes not accepted, because more would be staged than the limit.
    pub not_supplied: Bytes,
    /// Bytes granted and not refused, of each level, the most urgent first.
    pub granted: [Bytes; Priority::COUNT],
    /// Bytes supplied and never granted, because their response was closed.
    pub dropped: Bytes,
    /// Grants of which the transport took only a part.
    pub refusals: u64,
    /// Redistributions of debt, one each time all waiting levels were in debt.
    pub redistributions: u64,
}

impl Counters {
    /// Returns the bytes granted of all levels.
    pub fn total_granted(&self) -> Bytes {
        self.granted.into_iter().sum()
    }
}
