//! Priority of data.

use core::fmt;

/// Priority of data, from [`P0`](Self::P0) (critical, interactive) to [`P4`](Self::P4)
/// (background). CATS §II-D1.
///
/// More urgent is *less*: `P0 < P4`, as in the paper. Use
/// [`is_more_urgent_than`](Self::is_more_urgent_than) where the direction of a comparison could be
/// misread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Critical and interactive data, for which the user waits.
    P0,
    /// Data needed to show anything at all.
    P1,
    /// Default for data without a stated priority.
    #[default]
    P2,
    /// Large and visible data that block nothing.
    P3,
    /// Background data: analytics, prefetching, synchronisation.
    P4,
}

impl Priority {
    /// Number of levels.
    pub const COUNT: usize = 5;
    /// All levels, the most urgent first.
    pub const ALL: [Self; Self::COUNT] = [Self::P0, Self::P1, Self::P2, Self::P3, Self::P4];

    /// Index of the level in an array of [`COUNT`](Self::COUNT), 0 for the most urgent.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Level at `index`, or `None` beyond the last.
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < Self::COUNT { Some(Self::ALL[index]) } else { None }
    }

    /// Returns whether this level leaves before `other`.
    pub const fn is_more_urgent_than(self, other: Self) -> bool {
        (self as u8) < (other as u8)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.index())
    }
}

/// Set of levels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrioritySet(u8);

impl PrioritySet {
    /// No level.
    pub const EMPTY: Self = Self(0);
    /// Every level.
    pub const ALL: Self = Self((1 << Priority::COUNT) - 1);
    /// Levels that are urgent by default: P0 and P1. The others are background.
    pub const URGENT: Self = Self::one(Priority::P0).with(Priority::P1);

    /// Set of this level only.
    pub const fn one(level: Priority) -> Self {
        Self(1 << level as u8)
    }

    /// Set without this level.
    #[must_use]
    pub const fn without(self, level: Priority) -> Self {
        Self(self.0 & !(1 << level as u8))
    }

    /// Set with this level.
    #[must_use]
    pub const fn with(self, level: Priority) -> Self {
        Self(self.0 | 1 << level as u8)
    }

    /// Set with this level if `present`, and without it otherwise.
    #[must_use]
    pub const fn with_if(self, present: bool, level: Priority) -> Self {
        if present { self.with(level) } else { self.without(level) }
    }

    /// Set of the levels that both contain.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the set contains the level.
    pub const fn contains(self, level: Priority) -> bool {
        self.0 & (1 << level as u8) != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Set of [bits](Self::bits). Bits beyond the levels are ignored.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Set as bits, the most urgent level in the lowest.
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for PrioritySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Priority::ALL.into_iter().filter(|&level| self.contains(level))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_made_of_its_bits() {
        assert_eq!(PrioritySet::from_bits(PrioritySet::URGENT.bits()), PrioritySet::URGENT);
        assert_eq!(PrioritySet::from_bits(u8::MAX), PrioritySet::ALL);
    }

    #[test]
    fn levels_are_set_and_sets_intersected() {
        let set = PrioritySet::EMPTY.with_if(true, Priority::P1).with_if(true, Priority::P3);
        assert_eq!(set.with_if(false, Priority::P1), PrioritySet::one(Priority::P3));
        let other = PrioritySet::ALL.without(Priority::P3);
        assert_eq!(set.and(other), PrioritySet::one(Priority::P1));
    }

    #[test]
    fn levels_and_indices_agree() {
        for (index, level) in Priority::ALL.into_iter().enumerate() {
            assert_eq!(level.index(), index);
            assert_eq!(Priority::from_index(index), Some(level));
            assert_eq!(std::format!("{level}"), std::format!("P{index}"));
        }
        assert_eq!(Priority::from_index(5), None);
        assert!(Priority::P0.is_more_urgent_than(Priority::P4));
        assert!(!Priority::P2.is_more_urgent_than(Priority::P2));
        assert_eq!(Priority::default(), Priority::P2);
    }

    #[test]
    fn a_set_contains_the_levels_that_were_added() {
        let set = PrioritySet::one(Priority::P0).with(Priority::P4);
        assert!(set.contains(Priority::P0) && set.contains(Priority::P4) && !set.contains(Priority::P2));
        assert_eq!(set.without(Priority::P0), PrioritySet::one(Priority::P4));
        assert_eq!(PrioritySet::ALL.bits(), 0b11111);
        assert!(PrioritySet::one(Priority::P3).without(Priority::P3).is_empty());
    }
}
