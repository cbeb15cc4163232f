//! Shedding load at its source: what the network cannot carry anyway is dropped before it is sent, the oldest and
//! least urgent first (CATS §II-D3).

use core::time::Duration;

use marcato_units::{Bytes, Priority};

/// What may be shed.
///
/// A message of which bytes have left stays, unless it allows partial delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedPolicy {
    /// Messages of this level and of all more urgent ones stay.
    pub spare: Priority,
    /// Messages that have waited for less than this stay.
    pub older_than: Duration,
    /// Shedding stops when no more than this waits, on all levels together.
    pub down_to: Bytes,
}

impl Default for ShedPolicy {
    /// Sheds P3 and P4 (what is large or in the background; nothing below P2 blocks a user) that have waited for
    /// 2 s, however little waits.
    fn default() -> Self {
        Self { spare: Priority::P2, older_than: Duration::from_secs(2), down_to: Bytes::ZERO }
    }
}

/// When to shed without being told to: under severe, persistent congestion.
///
/// The paper does not say how to tell congestion (CATS §II-D3). The age of the backlog does not: behind a large file
/// everything is old, although the network carries what it always did. Here the rate at which bytes are granted is
/// measured over spans of [`SPAN`](Self::SPAN). Congestion is severe while
///
/// 1. something waits all the time;
/// 2. the rate is far below the usual one ([`fallen_to`](Self::fallen_to)), a mean over the latest half minute or so
///    before it fell;
/// 3. at this rate the backlog needs longer than [`drain`](Self::drain).
///
/// Once it has been severe for [`sustained`](Self::sustained), each further span of it sheds what the policy allows.
/// Nothing is shed in the first 8 spans, before the usual rate is known. What an application offers beyond a steady rate is
/// not congestion: there the bounds of the Conductor hold ([admission](super#admission)). An application that offers less
/// than the path carries hides how much the rate has fallen: its usual rate is what it offered.
///
/// It is looked at on every offer and grant. A shed looks at every message of the levels that it may touch, at most once
/// per span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shedding {
    /// A backlog that needs longer than this at the present rate is a sign of congestion.
    pub drain: Duration,
    /// The part of the usual rate, in thousandths, at which and below which congestion is severe.
    pub fallen_to: u32,
    /// Congestion that lasts this long is persistent.
    pub sustained: Duration,
    /// A rate that has been so low for this long is the usual one from then on.
    pub adapts_after: Duration,
    /// What is shed then.
    pub policy: ShedPolicy,
}

impl Shedding {
    /// The time over which the rate is measured: long against a round trip and the pauses of pacing.
    pub const SPAN: Duration = Duration::from_secs(1);
}

impl Default for Shedding {
    /// A quarter of the usual rate or less and a backlog of more than 2 s, for 3 s; adapts after a minute. A window of
    /// which congestion avoidance takes a half, or a competitor its share, leaves more than a quarter. A
    /// retransmission timeout starts at 1 s (RFC 6298 §2) and the next waits for twice as long, so a single lost flight
    /// clears within these 3 s and sheds nothing.
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(2),
            fallen_to: 250,
            sustained: Duration::from_secs(3),
            adapts_after: Duration::from_secs(60),
            policy: ShedPolicy::default(),
        }
    }
}
