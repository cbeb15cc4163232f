//! How much a piece of data matters.

use core::fmt;

/// How much a piece of data matters, from [`P0`](Self::P0) (critical, interactive) to [`P4`](Self::P4)
/// (background). CATS §II-D1.
///
/// More urgent is *less*: `P0 < P4`, as in the paper. Say [`is_more_urgent_than`](Self::is_more_urgent_than)
/// where the direction of a comparison could be misread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Critical and interactive: what the user waits for.
    P0,
    /// Needed to show anything at all.
    P1,
    /// The default: what nobody said anything about.
    #[default]
    P2,
    /// Large and visible, but not blocking.
    P3,
    /// Background: analytics, prefetching, synchronisation.
    P4,
}

impl Priority {
    /// Number of levels.
    pub const COUNT: usize = 5;
    /// All levels, the most urgent first.
    pub const ALL: [Self; Self::COUNT] = [Self::P0, Self::P1, Self::P2, Self::P3, Self::P4];

    /// The level's place in an array of [`COUNT`](Self::COUNT), 0 for the most urgent.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The level at `index`, or `None` beyond the last.
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < Self::COUNT { Some(Self::ALL[index]) } else { None }
    }

    /// Whether this level leaves before `other`.
    pub const fn is_more_urgent_than(self, other: Self) -> bool {
        (self as u8) < (other as u8)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
