//! Message that an owner hands to a session.

use bytes::Bytes as Payload;
use marcato_sched::conductor::Redundancy;
use marcato_sched::reserve::SourceKey;
use marcato_units::{Duration, Priority};

/// A message to be sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// Content; at least one byte.
    pub body: Payload,
    /// Priority with which the Conductor queues the message.
    pub priority: Priority,
    /// Time after which the message is no longer worth sending; `None` if it never expires.
    pub lifetime: Option<Duration>,
    /// Redundancy: whether it travels on one lane or on several.
    pub redundancy: Redundancy,
    /// Set if a part of the message is useful to the receiver.
    pub partial_ok: bool,
    /// Periodic source of the message, if any: its reservation applies.
    pub source: Option<SourceKey>,
}

impl Message {
    /// Creates a message that never expires, travels once and is of use only as a whole.
    pub const fn new(body: Payload, priority: Priority) -> Self {
        Self { body, priority, lifetime: None, redundancy: Redundancy::Once, partial_ok: false, source: None }
    }
}
