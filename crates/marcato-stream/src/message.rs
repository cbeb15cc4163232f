//! Message to be sent.

use bytes::Bytes as Payload;
use marcato_sched::conductor::{self, Redundancy};
use marcato_sched::reserve::SourceKey;
use marcato_units::{Bytes, Duration, Priority};
use marcato_wire::Exchange;

/// Message to be sent. In the terms of TAPS (RFC 9622 §9.1.3): `msgPriority` and `msgLifetime` are
/// set here. All messages are `msgReliable` unless they are [unreliable](Message::unreliable), and
/// none is `msgOrdered` relative to others.
#[derive(Clone, Debug)]
pub struct Message {
    /// Content, which may be empty.
    pub body: Payload,
    /// Level with which the Conductor queues it.
    pub priority: Priority,
    /// Time for which it is worth sending; `None` for always.
    pub lifetime: Option<Duration>,
    /// Number of lanes that it travels on.
    pub redundancy: Redundancy,
    /// Set if a part of it is useful to the receiver.
    pub partial_ok: bool,
    /// Periodic source of it, if any: its reservation applies.
    pub source: Option<SourceKey>,
    /// Set unless it may be lost.
    pub reliable: bool,
    /// Set if the receiver reports when its application has taken it.
    pub receipt: bool,
    /// Set if it may arrive twice without harm.
    pub idempotent: bool,
    /// Part of it in a request and its reply. `Connection::request` and `Request::reply` of
    /// `marcato-net` set it.
    pub exchange: Exchange,
}

impl Message {
    /// Creates a message of priority P2 that never expires and is of use only when whole. It does
    /// not copy `body`, whose bytes stay in use until they have left.
    pub fn new(body: impl Into<Payload>) -> Self {
        Self {
            body: body.into(),
            priority: Priority::default(),
            lifetime: None,
            redundancy: Redundancy::Once,
            partial_ok: false,
            source: None,
            reliable: true,
            receipt: false,
            idempotent: false,
            exchange: Exchange::None,
        }
    }

    /// Describes this message for a Conductor, which holds no bytes. An empty message counts as one
    /// byte there, because a Conductor grants bytes.
    pub fn description(&self) -> conductor::Message {
        conductor::Message {
            len: Bytes::new(self.body.len().max(1) as u64),
            priority: self.priority,
            lifetime: self.lifetime,
            redundancy: self.redundancy,
            partial_ok: self.partial_ok,
        }
    }

    /// Returns this message with this priority (`msgPriority`).
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Returns this message, worth sending for `lifetime` only (`msgLifetime`). Once bytes of it
    /// have left it is completed nevertheless, unless it [allows partial
    /// delivery](Self::allowing_partial_delivery). The receiver learns that it missed it.
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime: Some(lifetime), ..self }
    }

    /// Returns this message, with permission to lose it (`msgReliable` is false).
    ///
    /// Over QUIC it travels in one DATAGRAM frame (RFC 9221), in its order among the others and
    /// within the congestion window. It is not retransmitted if lost. It has to fit a packet
    /// (`Connection::max_unreliable` of `marcato-net`), travels on one lane, and waits with its
    /// level where flow control stops that. `MessageHandle::acknowledged` then reports that it has
    /// left. A receiver that does not take it in time drops it, the least urgent first
    /// ([`Limits::unreliable`](crate::Limits::unreliable)).
    ///
    /// TCP has no unreliable delivery, so there it is sent like any other message. A program
    /// behaves alike over both engines, because an unreliable message need not be lost. Give it a
    /// [lifetime](Self::with_lifetime), so that TCP does not send it either once it is useless.
    #[must_use]
    pub fn unreliable(self) -> Self {
        Self { reliable: false, ..self }
    }

    /// Returns this message with a request for a receipt: the receiver reports when its application
    /// has taken it, which `MessageHandle::received` of `marcato-net` waits for. That costs a frame.
    /// As many as [`Limits::receipts`](crate::Limits::receipts) may be outstanding; at the limit,
    /// sending another such message waits. An [unreliable](Self::unreliable) message has none.
    #[must_use]
    pub fn with_receipt(self) -> Self {
        Self { receipt: true, ..self }
    }

    /// Returns this message, marked as one whose processing twice has the effect of processing it
    /// once. RFC 9622 §9.1.3 calls it `safelyReplayable`.
    ///
    /// Only such messages may leave before the handshake is complete, as early data (0-RTT), on a
    /// connection of `Endpoint::connect_early` of `marcato-net`. Everywhere else the mark changes
    /// nothing.
    ///
    /// **Early data has no protection against replay** (RFC 8446 §8, RFC 9001 §9.2). An attacker
    /// who records it can send it again, and the server's application may get it again. It also
    /// lacks forward secrecy: an attacker who gets the keys of the earlier session can read it. A
    /// lookup may be early, a payment may not. The receiver sees
    /// [`Received::early`](crate::Received::early).
    #[must_use]
    pub fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    /// Returns this message with this redundancy. Without a lane scheduler that makes copies it
    /// travels once.
    #[must_use]
    pub fn with_redundancy(self, redundancy: Redundancy) -> Self {
        Self { redundancy, ..self }
    }

    /// Returns this message, with permission to abandon it after a part of it has left.
    #[must_use]
    pub fn allowing_partial_delivery(self) -> Self {
        Self { partial_ok: true, ..self }
    }

    /// Returns this message as one of a periodic source for which room is reserved.
    #[must_use]
    pub fn from_source(self, source: SourceKey) -> Self {
        Self { source: Some(source), ..self }
    }
}
