//! The units that rows are in.

use core::fmt;

use serde::{Serialize, Serializer};

/// The unit of a [`Row`](crate::Row)'s numbers. `kB` is 1000 bytes wherever Marcato prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// Megabits (1 000 000 bits) per second.
    MbitPerS,
    /// Bytes per round-trip time: how fast a window grows.
    BytesPerRtt,
    /// Parts of a hundred.
    Percent,
    /// One quantity divided by another of the same unit.
    Ratio,
    /// A number of things; also a verdict, 1 or 0.
    Count,
}

impl Unit {
    /// The unit as every output spells it.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::MbitPerS => "Mbit/s",
            Self::BytesPerRtt => "B/RTT",
            Self::Percent => "%",
            Self::Ratio => "ratio",
            Self::Count => "count",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.symbol())
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.symbol())
    }
}
