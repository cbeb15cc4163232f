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

/// When to shed without being told to: the oldest backlog has been older than `age` for `sustained`.
///
/// The age is that of the message at the head of a level, whichever is oldest, counted from its offer. It is
/// looked at on every offer and grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shedding {
    /// Backlog older than this is a sign of congestion.
    pub age: Duration,
    /// Congestion that lasts this long is persistent.
    pub sustained: Duration,
    /// What is shed then.
    pub policy: ShedPolicy,
}

impl Default for Shedding {
    /// Age 2 s, sustained for 1 s. A retransmission timeout starts at 1 s (RFC 6298 §2) and the next waits for
    /// twice as long, so a single lost flight clears within these 3 s and sheds nothing; what is still not under
    /// way then is slower than users wait for.
    fn default() -> Self {
        Self { age: Duration::from_secs(2), sustained: Duration::from_secs(1), policy: ShedPolicy::default() }
    }
}
