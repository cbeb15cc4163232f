//! Units of rows.

use core::fmt;

use serde::{Serialize, Serializer};

/// Unit of a [`Row`](crate::Row)'s numbers. `kB` is 1000 bytes wherever Marcato prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    Seconds,
    /// Megabits (1 000 000 bits) per second.
    MbitPerS,
    /// Bytes per round-trip time, for the growth of a congestion window.
    BytesPerRtt,
    /// Bytes.
    Bytes,
    /// Kilobytes of 1000 bytes.
    Kilobytes,
    /// Parts of a hundred.
    Percent,
    /// Quotient of two quantities of the same unit.
    Ratio,
    /// Number of items; also a verdict, 1 or 0.
    Count,
}

impl Unit {
    /// All units.
    pub const ALL: [Self; 10] = [
        Self::Us,
        Self::Ms,
        Self::Seconds,
        Self::MbitPerS,
        Self::BytesPerRtt,
        Self::Bytes,
        Self::Kilobytes,
        Self::Percent,
        Self::Ratio,
        Self::Count,
    ];

    /// Spelling of the unit in every output.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Us => "µs",
            Self::Ms => "ms",
            Self::Seconds => "s",
            Self::MbitPerS => "Mbit/s",
            Self::BytesPerRtt => "B/RTT",
            Self::Bytes => "B",
            Self::Kilobytes => "kB",
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
