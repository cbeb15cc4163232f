//! Directions in which data is sent.

use std::fmt;

/// Direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the client to the server.
    Forward,
    /// From the server to the client.
    Reverse,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        })
    }
}

impl Direction {
    /// Returns the names of the sender and of the receiver.
    pub(crate) const fn ends(self) -> (&'static str, &'static str) {
        match self {
            Self::Forward => ("client", "server"),
            Self::Reverse => ("server", "client"),
        }
    }
}

/// Directions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The client sends.
    Forward,
    /// The server sends.
    Reverse,
    /// Both send at once.
    Both,
}

impl Mode {
    /// Returns the directions, the client's first.
    pub(crate) const fn directions(self) -> &'static [Direction] {
        match self {
            Self::Forward => &[Direction::Forward],
            Self::Reverse => &[Direction::Reverse],
            Self::Both => &[Direction::Forward, Direction::Reverse],
        }
    }

    /// Returns whether the client sends.
    pub(crate) const fn is_forward(self) -> bool {
        matches!(self, Self::Forward | Self::Both)
    }

    /// Returns whether the server sends.
    pub(crate) const fn is_reverse(self) -> bool {
        matches!(self, Self::Reverse | Self::Both)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
            Self::Both => "bidir",
        })
    }
}
