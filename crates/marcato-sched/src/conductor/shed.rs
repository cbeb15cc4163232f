//! Load shedding at the source: drops data that the network cannot carry before it is sent, the
//! oldest and least urgent first (CATS §II-D3).

use core::time::Duration;

use marcato_units::{Bytes, Priority};

/// Limits of shedding.
///
/// A partly sent message stays, unless it allows partial delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShedPolicy {
    /// Messages of this level and of all more urgent ones stay.
    pub spare: Priority,
    /// Messages that have waited for less than this stay.
    pub older_than: Duration,
    /// Shedding stops when no more than this is queued, on all levels together.
    pub down_to: Bytes,
}

impl Default for ShedPolicy {
    /// Sheds messages of P3 and P4 that have waited for 2 s, however short the backlog. These
    /// levels are for large or background data; nothing below P2 blocks a user.
    fn default() -> Self {
        Self { spare: Priority::P2, older_than: Duration::from_secs(2), down_to: Bytes::ZERO }
    }
}

/// Conditions of automatic shedding: severe, persistent congestion.
///
/// The paper does not say how to detect congestion (CATS §II-D3). The age of the backlog is no sign
/// of it: behind a large file everything is old, although the network carries its usual rate.
/// Marcato measures the rate of grants over spans of [`SPAN`](Self::SPAN). Congestion is severe
/// while
///
/// 1. there is a backlog all the time;
/// 2. the rate is far below the usual one ([`fallen_to`](Self::fallen_to)), a mean over about half
///    a minute before it fell;
/// 3. at this rate the backlog needs longer than [`drain`](Self::drain).
///
/// Once it has been severe for [`sustained`](Self::sustained), each further span of it sheds what
/// the policy allows. Nothing is shed in the first 8 spans, before the usual rate is known. Load
/// offered beyond a steady rate is not congestion; the bounds of the Conductor limit it
/// ([admission](super#admission)). An application that offers less than the path carries hides how
/// much the rate has fallen: its usual rate is the offered one.
///
/// Every offer and grant checks for it. A shed visits every message of the levels that it may
/// affect, at most once per span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shedding {
    /// A backlog that needs longer than this at the present rate is a sign of congestion.
    pub drain: Duration,
    /// Severe congestion: the rate is at most this share of the usual rate, in thousandths.
    pub fallen_to: u32,
    /// Congestion that lasts this long is persistent.
    pub sustained: Duration,
    /// A rate that has been so low for this long becomes the usual one.
    pub adapts_after: Duration,
    /// Limits of that shedding.
    pub policy: ShedPolicy,
}

impl Shedding {
    /// Time over which the rate is measured: long compared with a round trip and the pauses of
    /// pacing.
    pub const SPAN: Duration = Duration::from_secs(1);
}

impl Default for Shedding {
    /// At most a quarter of the usual rate and a backlog of more than 2 s, for 3 s; adapts after a
    /// minute.
    ///
    /// A window halved by congestion avoidance, or a competitor's fair share, leaves more than a
    /// quarter. A retransmission timeout starts at 1 s (RFC 6298 §2) and the next waits for twice
    /// as long (§5.5). A single lost flight therefore clears within these 3 s and sheds nothing.
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
