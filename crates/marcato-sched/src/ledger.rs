//! Ledger of debts: the state that the rules of [`Debt`] change (CATS §II-E).
//!
//! The [`Conductor`](crate::Conductor) chooses its levels by it.

use marcato_units::{Bytes, Priority};

use crate::conductor::debt::{Debt, Redistribution, scale};

const LEVELS: usize = Priority::COUNT;

/// Set of levels: bit i for the level of index i.
pub(crate) type Levels = u8;

/// Debts and states of the five levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) debts: [Bytes; LEVELS],
    pub(crate) in_debt: Levels,
}

impl Ledger {
    pub(crate) const CLEAR: Self = Self { debts: [Bytes::ZERO; LEVELS], in_debt: 0 };

    /// Returns whether all levels in `waiting` are in debt.
    #[inline]
    pub(crate) const fn must_redistribute(&self, waiting: Levels) -> bool {
        waiting & !self.in_debt == 0
    }

    /// Returns the level whose turn it is among those `waiting`, and true if debts had to be
    /// redistributed first.
    #[inline]
    pub(crate) fn choose(&mut self, rules: &Debt, waiting: Levels) -> Option<(Priority, bool)> {
        if waiting == 0 {
            return None;
        }
        let redistribute = self.must_redistribute(waiting);
        if redistribute {
            self.redistribute(rules, waiting);
        }
        let eligible = waiting & !self.in_debt;
        // Bit 0 is P0, so the lowest set bit is the most urgent eligible level (CATS §II-E).
        Some((Priority::from_index(eligible.trailing_zeros() as usize)?, redistribute))
    }

    /// Redistributes debts by CATS §II-E, eq. 1. All levels in `waiting` are in debt.
    #[cold]
    fn redistribute(&mut self, rules: &Debt, waiting: Levels) {
        let takes_part =
            |i: usize| matches!(rules.redistribution, Redistribution::AllLevels) || waiting >> i & 1 == 1;
        let m = |i: usize| u64::from(rules.multipliers[i].as_thousandths());
        let total = (0..LEVELS).filter(|&i| takes_part(i)).map(m).sum();
        for i in (0..LEVELS).filter(|i| waiting >> i & 1 == 1) {
            self.debts[i] = Bytes::new(scale(self.debts[i].get(), m(i), total));
            self.settle(rules, i);
        }
        if waiting & !self.in_debt == 0 {
            // Not in the paper, which states that eq. 1 always frees a level. See [`Debt`].
            let first = waiting.trailing_zeros() as usize;
            if let Some(watermarks) = rules.watermarks[first] {
                self.debts[first] = watermarks.low - Bytes::new(1);
            }
            self.settle(rules, first);
        }
    }

    /// Updates the debts after `bytes` of `level` were sent while the levels in `waiting` waited
    /// (CATS §II-E, state update).
    #[inline]
    pub(crate) fn charge(&mut self, rules: &Debt, level: Priority, bytes: Bytes, waiting: Levels) {
        let j = level.index();
        let unopposed = waiting & !(1 << j) == 0;
        if let Some(watermarks) = rules.watermarks[j]
            && !(rules.forgive_unopposed && unopposed)
        {
            self.debts[j] += bytes;
            if self.debts[j] >= watermarks.high {
                self.in_debt |= 1 << j;
            }
        }
        let payback = rules.multipliers[j].payback(bytes);
        for i in 0..j {
            // The subtraction saturates: max(0, D_i - N M_j).
            self.debts[i] -= payback;
            self.settle(rules, i);
        }
    }

    /// Makes level `i` eligible if its debt is below its low watermark.
    #[inline]
    fn settle(&mut self, rules: &Debt, i: usize) {
        if rules.watermarks[i].is_none_or(|watermarks| self.debts[i] < watermarks.low) {
            self.in_debt &= !(1 << i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sole_level_that_equation_1_cannot_free_is_set_just_below_l() {
        let rules = Debt::paper();
        let mut ledger = Ledger::CLEAR;
        ledger.charge(&rules, Priority::P1, Bytes::kb(30), 0b10);
        assert_eq!(ledger.in_debt, 0b10);
        assert_eq!(ledger.choose(&rules, 0b10), Some((Priority::P1, true)));
        // Factor 0.5 / 0.5 changes nothing; then the debt is set just below L.
        assert_eq!(ledger.debts[1], Bytes::new(14_999));
    }

    #[test]
    fn the_authors_redistribution_divides_by_all_five_multipliers() {
        let rules = Debt::authors();
        let mut ledger = Ledger::CLEAR;
        ledger.charge(&rules, Priority::P1, Bytes::kb(30), 0b10);
        assert_eq!(ledger.choose(&rules, 0b10), Some((Priority::P1, true)));
        // trunc(30000 x 0.5 / 5.25)
        assert_eq!(ledger.debts[1], Bytes::new(2_857));
    }
}
