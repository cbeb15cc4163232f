//! Schedulers of a sender, by their names on the command line and on the wire.

use clap::ValueEnum;
use marcato_units::{Priority, Worded as _, words};

words! {
    /// Lane scheduler.
    #[derive(ValueEnum)]
    pub enum PathName {
        /// The fastest lane with room
        // The second names are those of scenario files.
        #[value(alias = "low-rtt")]
        Lowrtt = "lowrtt",
        /// One lane after the other
        #[value(alias = "round-robin")]
        Rr = "rr",
        /// The fastest lane, with room in the congestion window reserved for each source (CWR)
        Cwr = "cwr",
        /// As cwr, with the reservation and a copy of each urgent message on every lane (CWR+RED)
        CwrRed = "cwr-red",
    }
}

words! {
    /// Order in which messages are sent.
    #[derive(ValueEnum)]
    pub enum StreamName {
        /// By priority, and no priority starves: the Conductor, with the debts of CATS
        Cats = "cats",
        /// Strictly by priority; first come, first served within a priority
        Pfifo = "pfifo",
        /// A packet of each message in turn, whatever its priority
        Rr = "rr",
        /// First come, first served, whatever the priority
        Fifo = "fifo",
    }
}

impl PathName {
    /// Returns the scheduler with this code of the wire format: its place in the declaration.
    pub(super) fn of(code: u8) -> Option<Self> {
        Self::WORDS.get(usize::from(code)).map(|word| word.1)
    }

    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    /// Returns whether it reserves room in the congestion window for sources.
    pub(crate) const fn reserves(self) -> bool {
        matches!(self, Self::Cwr | Self::CwrRed)
    }
}

impl StreamName {
    /// Returns the scheduler with this code of the wire format: its place in the declaration.
    pub(super) fn of(code: u8) -> Option<Self> {
        Self::WORDS.get(usize::from(code)).map(|word| word.1)
    }

    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the level at which messages of this priority are offered.
    pub(crate) const fn level(self, priority: Priority) -> Priority {
        match self {
            Self::Cats | Self::Pfifo => priority,
            Self::Rr | Self::Fifo => Priority::P2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scenario_files_are_taken_too() {
        for (name, path) in [("low-rtt", PathName::Lowrtt), ("round-robin", PathName::Rr)] {
            assert_eq!(PathName::from_str(name, false), Ok(path));
        }
    }

    #[test]
    fn codes_of_schedulers_are_read_back() {
        let paths = [PathName::Lowrtt, PathName::Rr, PathName::Cwr, PathName::CwrRed];
        let streams = [StreamName::Cats, StreamName::Pfifo, StreamName::Rr, StreamName::Fifo];
        for (code, (path, stream)) in (0..).zip(paths.into_iter().zip(streams)) {
            assert_eq!((path.code(), stream.code()), (code, code));
            assert_eq!((PathName::of(code), StreamName::of(code)), (Some(path), Some(stream)));
        }
        assert_eq!((PathName::of(4), StreamName::of(4)), (None, None));
    }
}
