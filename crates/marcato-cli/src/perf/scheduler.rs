//! Schedulers of a sender, by their names on the command line and on the wire.

use std::fmt;

use clap::ValueEnum;
use marcato_units::Priority;

/// Lane scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathName {
    /// The fastest lane with room
    Lowrtt,
    /// One lane after the other
    Rr,
    /// The fastest lane, with room in the congestion window reserved for each source (CWR)
    Cwr,
    /// As cwr, with the reservation and a copy of each urgent message on every lane (CWR+RED)
    CwrRed,
}

/// Order in which messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamName {
    /// By priority, and no priority starves: the Conductor, with the debts of CATS
    Cats,
    /// Strictly by priority; first come, first served within a priority
    Pfifo,
    /// A packet of each message in turn, whatever its priority
    Rr,
    /// First come, first served, whatever the priority
    Fifo,
}

impl fmt::Display for PathName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lowrtt => "lowrtt",
            Self::Rr => "rr",
            Self::Cwr => "cwr",
            Self::CwrRed => "cwr-red",
        })
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cats => "cats",
            Self::Pfifo => "pfifo",
            Self::Rr => "rr",
            Self::Fifo => "fifo",
        })
    }
}

impl PathName {
    const ALL: [Self; 4] = [Self::Lowrtt, Self::Rr, Self::Cwr, Self::CwrRed];

    /// Returns the scheduler with this code of the wire format.
    pub(super) fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Lowrtt => 0,
            Self::Rr => 1,
            Self::Cwr => 2,
            Self::CwrRed => 3,
        }
    }

    /// Returns whether it reserves room in the congestion window for sources.
    pub(crate) const fn reserves(self) -> bool {
        matches!(self, Self::Cwr | Self::CwrRed)
    }
}

impl StreamName {
    const ALL: [Self; 4] = [Self::Cats, Self::Pfifo, Self::Rr, Self::Fifo];

    /// Returns the scheduler with this code of the wire format.
    pub(super) fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Cats => 0,
            Self::Pfifo => 1,
            Self::Rr => 2,
            Self::Fifo => 3,
        }
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
    fn codes_of_schedulers_are_read_back() {
        for path in PathName::ALL {
            assert_eq!(PathName::of(path.code()), Some(path));
        }
        for stream in StreamName::ALL {
            assert_eq!(StreamName::of(stream.code()), Some(stream));
        }
        assert_eq!((PathName::of(4), StreamName::of(4)), (None, None));
    }
}
