//! Ledger of debts: the state that the rules of [`Debt`] change (CATS §II-E).
//!
//! The [`Conductor`](crate::Conductor) and the [`exchange`](crate::exchange) choose their levels by it.
//!
//! [`Debt::web_at`] sets the watermarks by the rate of a connection. When the rate changes, a debt stays the
//! same part of its watermark.

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

    /// Converts the debts from the rules `from` to the rules `to`, so that each stays the same part
    /// of its high watermark. Truncates, and forgives what exceeds the new watermark.
    ///
    /// A debt in bytes would last a hundred times as long on a connection that has become a hundred
    /// times slower.
    #[cfg(feature = "alloc")]
    pub(crate) fn convert(&mut self, from: &Debt, to: &Debt) {
        for i in 0..LEVELS {
            if let (Some(old), Some(new)) = (from.watermarks[i], to.watermarks[i])
                && old != new
            {
                let (debt, old, new) = (self.debts[i].get(), old.high.get().max(1), new.high.get());
                let part = u128::from(debt) * u128::from(new) / u128::from(old);
                self.debts[i] = Bytes::new(u64::try_from(part).map_or(new, |part| part.min(new)));
            }
            self.settle(to, i);
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
    #[cfg(feature = "alloc")]
    use marcato_units::Rate;

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

    #[cfg(feature = "alloc")]
    #[test]
    fn a_debt_stays_the_same_part_of_its_watermark() {
        let at = |mbps| Debt::web_at(Rate::from_mbps(mbps), Bytes::kb(1));
        let mut ledger = Ledger::CLEAR;
        // P1 has 1 s: 625 kB at 5 Mbit/s.
        ledger.charge(&at(5), Priority::P1, Bytes::kb(500), 0b110);
        ledger.charge(&at(5), Priority::P2, Bytes::kb(313), 0b100);
        assert_eq!((ledger.debts[1], ledger.in_debt), (Bytes::kb(187), 0));
        ledger.charge(&at(5), Priority::P1, Bytes::kb(438), 0b110);
        assert_eq!((ledger.debts[1], ledger.in_debt), (Bytes::kb(625), 0b10));
        ledger.convert(&at(5), &at(50));
        assert_eq!((ledger.debts[1], ledger.in_debt), (Bytes::kb(6250), 0b10));
        ledger.convert(&at(50), &at(5));
        assert_eq!((ledger.debts[1], ledger.in_debt), (Bytes::kb(625), 0b10));
        // A debt beyond the watermark, by a chunk, is brought back to it.
        for debt in [Bytes::new(625_999), Bytes::MAX] {
            ledger.debts[1] = debt;
            ledger.convert(&at(5), &at(50));
            assert_eq!((ledger.debts[1], ledger.in_debt), (Bytes::kb(6250), 0b10));
        }
        // A level without watermarks owes nothing and is never in debt.
        ledger.convert(&at(50), &Debt::strict());
        assert_eq!(ledger.in_debt, 0);
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
