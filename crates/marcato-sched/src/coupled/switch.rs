//! Switch of coupled mode.

use marcato_units::PrioritySet;

/// Condition under which an engine applies the cap of a [`Governor`](super::Governor).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coupling {
    /// Once both urgent and background data were offered. Before that there is nothing to protect,
    /// and the data of one level would only lose to the cap.
    Auto,
    /// Always: also the first urgent data finds the queue empty.
    On,
    /// Never: the congestion controller alone bounds what is in flight.
    Off,
}

impl Coupling {
    /// Returns whether the cap applies, given the levels offered so far.
    pub fn acts(self, offered: PrioritySet, urgent: PrioritySet) -> bool {
        match self {
            Self::Auto => {
                let both = offered.and(urgent);
                both != PrioritySet::EMPTY && both != offered
            }
            Self::On => true,
            Self::Off => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use marcato_units::Priority::{self, P0, P1, P2, P4};

    use super::*;

    fn set(levels: &[Priority]) -> PrioritySet {
        levels.iter().fold(PrioritySet::EMPTY, |set, level| set.with(*level))
    }

    #[test]
    fn auto_acts_once_urgent_and_background_data_were_offered() {
        let urgent = set(&[P0, P1]);
        for alone in [set(&[]), set(&[P0]), set(&[P0, P1]), set(&[P2]), set(&[P2, P4])] {
            assert!(!Coupling::Auto.acts(alone, urgent), "{alone:?}");
            assert!(Coupling::On.acts(alone, urgent) && !Coupling::Off.acts(alone, urgent));
        }
        for both in [set(&[P0, P4]), set(&[P1, P2]), PrioritySet::ALL] {
            assert!(Coupling::Auto.acts(both, urgent), "{both:?}");
            assert!(Coupling::On.acts(both, urgent) && !Coupling::Off.acts(both, urgent));
        }
    }
}
