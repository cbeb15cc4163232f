//! Byte budget of redundancy.

use marcato_units::Bytes;
use thiserror::Error;

/// Bound on redundancy: an allowance, and a share of the bytes sent for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    allowance: Bytes,
    thousandths: u32,
}

/// Error returned for an invalid budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BudgetError {
    /// The share is more than a copy on every other lane.
    #[error(
        "{thousandths} thousandths are more than {limit}: give the copies per first byte, in thousandths"
    )]
    ShareTooLarge {
        /// Requested share, in thousandths.
        thousandths: u32,
        /// Largest useful share, in thousandths: a copy on every other lane.
        limit: u32,
    },
}

impl Budget {
    /// No bound, as in the reproduction of CWR.
    pub const UNLIMITED: Self = Self { allowance: Bytes::MAX, thousandths: 0 };
    /// Share of a copy on each of the other lanes, in thousandths.
    #[expect(clippy::cast_possible_truncation, reason = "there are few lanes")]
    const MAX_THOUSANDTHS: u32 = 1000 * (crate::lane::MAX_LANES as u32 - 1);

    /// Creates a budget of `allowance` bytes and a share of all bytes sent for the first time, of
    /// any priority. The share is in `thousandths`.
    ///
    /// # Errors
    ///
    /// If the share is more than a copy on every other lane.
    pub const fn new(allowance: Bytes, thousandths: u32) -> Result<Self, BudgetError> {
        if thousandths > Self::MAX_THOUSANDTHS {
            return Err(BudgetError::ShareTooLarge { thousandths, limit: Self::MAX_THOUSANDTHS });
        }
        Ok(Self { allowance, thousandths })
    }

    /// Returns the total of copied bytes allowed once `first` bytes have been sent for the first
    /// time.
    pub fn limit(&self, first: Bytes) -> Bytes {
        let share = u128::from(first.get()) * u128::from(self.thousandths) / 1000;
        self.allowance + Bytes::new(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

impl Default for Budget {
    /// 100 kB and a tenth of the bytes sent for the first time.
    fn default() -> Self {
        Self { allowance: Bytes::kb(100), thousandths: 100 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_grows_with_what_is_sent() {
        let budget = Budget::new(Bytes::kb(1), 500).unwrap();
        assert_eq!(budget.limit(Bytes::ZERO), Bytes::kb(1));
        assert_eq!(budget.limit(Bytes::kb(10)), Bytes::kb(6));
        assert_eq!(Budget::UNLIMITED.limit(Bytes::ZERO), Bytes::MAX);
        assert_eq!(Budget::new(Bytes::ZERO, 15_000).unwrap().limit(Bytes::MAX), Bytes::MAX);
        assert!(Budget::new(Bytes::ZERO, 15_001).is_err());
    }
}
