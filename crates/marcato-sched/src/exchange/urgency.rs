//! Urgency of a response, and its level.

use core::fmt;

use marcato_units::Priority;

/// Urgency of a response, from 0 (most urgent) to 7 (RFC 9218 §4.1).
///
/// More urgent is *less*, as in the RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Urgency(u8);

impl Urgency {
    /// Number of urgencies.
    pub const COUNT: usize = 8;
    /// Most urgent: 0.
    pub const MOST: Self = Self(0);
    /// Least urgent: 7.
    pub const LEAST: Self = Self(7);
    /// Urgency of a response without a signal: 3 (RFC 9218 §4.1).
    pub const DEFAULT: Self = Self(3);

    /// Returns the urgency of this number; `None` above 7.
    pub const fn new(urgency: u8) -> Option<Self> {
        if urgency <= Self::LEAST.0 { Some(Self(urgency)) } else { None }
    }

    /// Number of the urgency, 0 to 7.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Index of the urgency in an array of [`COUNT`](Self::COUNT).
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Default for Urgency {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Urgency {
    /// Writes the parameter as in the header field: `u=3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u={}", self.0)
    }
}

/// Table of the level of each urgency.
///
/// The [default](Self::DEFAULT) puts both defaults into one level: urgency 3 is P2. Browsers use
/// different ranges. Chromium sends 0 to 4, Firefox 0 to 6. Two urgencies per level keep both
/// ranges apart in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LevelTable {
    levels: [Priority; Urgency::COUNT],
}

impl LevelTable {
    /// Urgency 0 is P0, 1 and 2 are P1, 3 is P2, 4 and 5 are P3, 6 and 7 are P4.
    pub const DEFAULT: Self = Self::new([
        Priority::P0,
        Priority::P1,
        Priority::P1,
        Priority::P2,
        Priority::P3,
        Priority::P3,
        Priority::P4,
        Priority::P4,
    ]);

    /// Creates a table with these levels for urgencies 0 to 7.
    pub const fn new(levels: [Priority; Urgency::COUNT]) -> Self {
        Self { levels }
    }

    /// Returns the level of an urgency.
    pub const fn level(&self, urgency: Urgency) -> Priority {
        self.levels[urgency.index()]
    }
}

impl Default for LevelTable {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn urgencies_are_those_of_the_header_field() {
        assert_eq!(Urgency::new(8), None);
        assert_eq!(Urgency::new(7), Some(Urgency::LEAST));
        assert!(Urgency::MOST < Urgency::default());
        assert_eq!(Urgency::default().to_string(), "u=3");
    }

    #[test]
    fn both_defaults_meet_at_p2() {
        let levels = (0..8).map(|u| LevelTable::default().level(Urgency::new(u).unwrap()).index());
        assert!(levels.eq([0, 1, 1, 2, 3, 3, 4, 4]));
        assert_eq!(LevelTable::DEFAULT.level(Urgency::DEFAULT), Priority::default());
    }
}
