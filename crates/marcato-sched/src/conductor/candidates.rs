//! Levels that a grant may come from.

use marcato_units::{Priority, PrioritySet};

/// Levels that a grant may come from, and levels that none in debt may overtake.
///
/// Debts are redistributed when all candidates are in debt (CATS §II-E, eq. 1). That must not happen
/// only because a level that is owed cannot be served at this moment: the debtors would overtake it
/// again and again, and the bounds of [`Debt::wait_bound`](super::Debt::wait_bound) would not hold.
/// A level is therefore excluded by the reason why it cannot be served:
///
/// ```
/// use marcato_sched::conductor::Candidates;
/// use marcato_units::Priority;
///
/// let candidates = Candidates::ALL
///     // Flow control stops P1, so it does not wait for its turn.
///     .blocked(Priority::P1)
///     // P3 only waits for room in a window, so no debtor may overtake it.
///     .waiting(Priority::P3);
/// assert!(!candidates.contains(Priority::P1) && !candidates.contains(Priority::P3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates {
    levels: PrioritySet,
    protected: Option<Priority>,
}

impl Candidates {
    /// All levels.
    pub const ALL: Self = Self::of(PrioritySet::ALL);

    /// These levels; the engine cannot take data of the others, which therefore do not wait for
    /// their turn.
    pub const fn of(levels: PrioritySet) -> Self {
        Self { levels, protected: None }
    }

    /// Excludes a level of which the engine cannot take data, for example because of flow control.
    #[must_use]
    pub const fn blocked(self, level: Priority) -> Self {
        Self { levels: self.levels.without(level), ..self }
    }

    /// Excludes a level whose next chunk only waits for room in a window or for a pacer, and
    /// [protects](Self::protecting) it.
    #[must_use]
    pub fn waiting(self, level: Priority) -> Self {
        self.blocked(level).protecting(level)
    }

    /// Grants nothing to a more urgent level in debt while data of `level` waits outside the
    /// Conductor, for example a retransmission.
    #[must_use]
    pub fn protecting(self, level: Priority) -> Self {
        Self { protected: self.protected.max(Some(level)), ..self }
    }

    /// Returns whether a grant may come from the level.
    pub const fn contains(self, level: Priority) -> bool {
        self.levels.contains(level)
    }

    /// Candidates as bits, the most urgent level in the lowest.
    pub(crate) const fn bits(self) -> u8 {
        self.levels.bits()
    }

    /// Returns whether any level is protected.
    #[inline]
    pub(crate) const fn protects_any(self) -> bool {
        self.protected.is_some()
    }

    /// Returns whether `level`, which is in debt, would overtake a protected level.
    pub(crate) fn forbid(self, level: Priority) -> bool {
        self.protected.is_some_and(|protected| level.is_more_urgent_than(protected))
    }
}

impl Default for Candidates {
    fn default() -> Self {
        Self::ALL
    }
}

impl From<PrioritySet> for Candidates {
    fn from(levels: PrioritySet) -> Self {
        Self::of(levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_urgent_protected_level_counts() {
        for order in [[Priority::P1, Priority::P3], [Priority::P3, Priority::P1]] {
            let candidates = order.into_iter().fold(Candidates::ALL, Candidates::waiting);
            let forbidden = Priority::ALL.map(|level| candidates.forbid(level));
            assert_eq!(forbidden, [true, true, true, false, false]);
            let eligible = Priority::ALL.map(|level| candidates.contains(level));
            assert_eq!(eligible, [true, false, true, false, true]);
        }
    }

    #[test]
    fn a_blocked_level_is_not_protected() {
        let candidates = Candidates::ALL.blocked(Priority::P4);
        assert!(!candidates.contains(Priority::P4) && !candidates.forbid(Priority::P0));
    }
}
