//! Urgency of a response, and its level.

use core::fmt;

use marcato_units::Priority;

/// Urgency of a response, from 0 (most urgent) to 255.
///
/// More urgent is *less*, as in RFC 9218. HTTP has urgencies 0 to 7 (RFC 9218 §4.1): [`new`](Self::new)
/// makes these alone. Other protocols use all 256 by [`exact`](Self::exact).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Urgency(u8);

impl Urgency {
    /// Number of the urgencies of HTTP.
    pub const COUNT: usize = 8;
    /// Most urgent: 0.
    pub const MOST: Self = Self(0);
    /// Least urgent of HTTP: 7.
    pub const LEAST: Self = Self(7);
    /// Urgency of a response without a signal: 3 (RFC 9218 §4.1).
    pub const DEFAULT: Self = Self(3);

    /// Returns the urgency of HTTP of this number; `None` above 7.
    pub const fn new(urgency: u8) -> Option<Self> {
        if urgency <= Self::LEAST.0 { Some(Self(urgency)) } else { None }
    }

    /// Returns the urgency of this number.
    pub const fn exact(urgency: u8) -> Self {
        Self(urgency)
    }

    /// Number of the urgency.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Index of the urgency. Those of HTTP are below [`COUNT`](Self::COUNT).
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
pub struct LevelTable(Table);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Table {
    /// Levels of HTTP's urgencies.
    Each([Priority; Urgency::COUNT]),
    /// First urgencies of P1 to P4.
    From([u8; Priority::COUNT - 1]),
}

impl LevelTable {
    /// Urgency 0 is P0, 1 and 2 are P1, 3 is P2, 4 and 5 are P3, 6 and more are P4.
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

    /// Creates a table with these levels for urgencies 0 to 7. Larger ones have the level of 7.
    pub const fn new(levels: [Priority; Urgency::COUNT]) -> Self {
        Self(Table::Each(levels))
    }

    /// Creates a table for all 256 urgencies from the first ones of P1, P2, P3 and P4, in ascending
    /// order. A level whose next one begins at the same urgency stays empty.
    pub const fn from_thresholds(first: [u8; Priority::COUNT - 1]) -> Self {
        Self(Table::From(first))
    }

    /// Returns the level of an urgency.
    #[inline]
    pub const fn level(&self, urgency: Urgency) -> Priority {
        match self.0 {
            Table::Each(levels) => {
                let last = Urgency::COUNT - 1;
                levels[if urgency.index() < last { urgency.index() } else { last }]
            }
            Table::From([p1, p2, p3, p4]) => match urgency.get() {
                u if u >= p4 => Priority::P4,
                u if u >= p3 => Priority::P3,
                u if u >= p2 => Priority::P2,
                u if u >= p1 => Priority::P1,
                _ => Priority::P0,
            },
        }
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
        assert!(Urgency::MOST < Urgency::default() && Urgency::LEAST < Urgency::exact(8));
        assert_eq!(Urgency::default().to_string(), "u=3");
    }

    #[test]
    fn both_defaults_meet_at_p2() {
        let levels = (0..8).map(|u| LevelTable::default().level(Urgency::new(u).unwrap()).index());
        assert!(levels.eq([0, 1, 1, 2, 3, 3, 4, 4]));
        assert_eq!(LevelTable::DEFAULT.level(Urgency::DEFAULT), Priority::default());
        assert_eq!(LevelTable::DEFAULT.level(Urgency::exact(255)), Priority::P4);
    }

    #[test]
    fn thresholds_divide_all_urgencies_into_levels() {
        let table = LevelTable::from_thresholds([10, 20, 20, 200]);
        let levels = [0, 9, 10, 19, 20, 199, 200, 255].map(|u| table.level(Urgency::exact(u)).index());
        assert_eq!(levels, [0, 0, 1, 1, 3, 3, 4, 4]);
    }
}
