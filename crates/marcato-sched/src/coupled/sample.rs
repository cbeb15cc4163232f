//! Measurements of an engine for coupled mode.

use marcato_units::{Bytes, Duration};

/// Measurements of the engine at an acknowledgement, or when it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Bytes acknowledged since the connection began.
    pub delivered: Bytes,
    /// Bytes sent, and neither acknowledged nor lost.
    pub in_flight: Bytes,
    /// Round trip of a packet with data. One without is shorter by its time on the link.
    pub rtt: Option<Duration>,
    /// Part of the round trip that stood in a queue on the way back; zero if that is not known.
    pub back: Duration,
    /// Set if a packet was lost since the last sample.
    pub lost: bool,
    /// Set if urgent data waits, here or in the engine.
    pub urgent: bool,
}
