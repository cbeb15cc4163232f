//! Toxics: faults that a proxy adds to its connections.

use marcato_units::{Bytes, Duration, Rate};

/// Direction of the bytes that a toxic acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From the client to the target.
    Upstream,
    /// From the target to the client.
    Downstream,
}

/// Fault of the connections of a proxy, in one direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Toxic {
    /// Delay of all data.
    Latency {
        /// Mean delay.
        latency: Duration,
        /// Most that a delay is below or above the mean, drawn uniformly.
        jitter: Duration,
    },
    /// Limit of the rate. Zero stops all data.
    Bandwidth {
        /// Payload of each connection.
        rate: Rate,
    },
    /// Delay of the end of a connection.
    SlowClose {
        /// Additional delay of the end.
        delay: Duration,
    },
    /// Discards all data, and closes the connection later.
    Timeout {
        /// Time until the connection is closed; zero leaves it open.
        timeout: Duration,
    },
    /// Discards all data, and resets the connection.
    ResetPeer {
        /// Time until the reset.
        timeout: Duration,
    },
    /// Slices of data, each in a write of its own.
    Slicer {
        /// Average size of a slice.
        average: Bytes,
        /// Most that a slice is smaller or larger.
        variation: Bytes,
        /// Pause before each further slice.
        delay: Duration,
    },
    /// Closes the connection after an amount of data.
    LimitData {
        /// Bytes that pass.
        bytes: Bytes,
    },
    /// Loss of single datagrams.
    Loss(f64),
    /// Datagrams that skip the delay.
    Reorder(f64),
    /// Datagrams that arrive twice.
    Duplicate(f64),
    /// Datagrams of which one bit is inverted.
    Corrupt(f64),
}

impl Toxic {
    /// Returns whether it acts on connections of TCP.
    pub const fn is_for_tcp(&self) -> bool {
        !matches!(self, Self::Loss(_) | Self::Reorder(_) | Self::Duplicate(_) | Self::Corrupt(_))
    }

    /// Returns whether it acts on datagrams.
    pub const fn is_for_udp(&self) -> bool {
        !self.is_for_tcp()
            || matches!(self, Self::Latency { .. } | Self::Bandwidth { .. } | Self::Timeout { .. })
    }
}

/// Toxic with its name and reach.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedToxic {
    /// Name, unique in its proxy.
    pub name: String,
    /// Direction.
    pub side: Side,
    /// Probability that it acts on a connection, 0 to 1.
    pub toxicity: f64,
    /// Fault.
    pub toxic: Toxic,
}
