//! Switch of coupled mode.

use marcato_units::{PrioritySet, words};

words! {
    /// Use of coupled mode, by connection: the condition under which an engine applies the cap of a
    /// [`Governor`](super::Governor).
    ///
    /// A congestion control fills the queue of the slowest link by itself. An urgent message that is sent
    /// later waits behind the connection's own background data: several round trips, if the queue is
    /// long. In coupled mode, background data is held back while more than a few packets of it would stand
    /// in that queue. The congestion control stays as it is; the smaller of both bounds counts.
    ///
    /// P0 and P1 are urgent, P2 to P4 are background. If other senders fill the queue, holding back helps
    /// nobody: the connection notices, and then sends as if coupled mode were off.
    #[derive(Default, Hash)]
    pub enum Coupling {
        /// From the moment at which a connection has been given both urgent and background messages.
        /// Before that there is nothing to protect: a connection with messages of one kind sends as if
        /// coupled mode were off, at no cost. So this needs no choice by the application.
        #[default]
        Auto = "auto",
        /// From the beginning of each connection, so that the queue is already short when the first urgent
        /// message comes.
        On = "on",
        /// Never: the congestion control alone bounds what is in flight.
        Off = "off",
    }
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
    fn the_default_is_auto_and_names_are_those_of_options() {
        let names = [Coupling::default(), Coupling::On, Coupling::Off].map(|it| std::format!("{it}"));
        assert_eq!(names, ["auto", "on", "off"]);
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
