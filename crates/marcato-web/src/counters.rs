//! Counters of a server.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use marcato_units::{Bytes, Priority};

use crate::rates::Refusal;

/// Counters of a server since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that were closed at once, because the limit was reached.
    pub crowded: u64,
    /// Connections that were closed at once, because their address opens them too fast.
    pub connections_over_rate: u64,
    /// Connections that were closed at once, because their address has as many open as it may.
    pub connections_over_open: u64,
    /// Requests answered with 429, because their address makes them too fast.
    pub requests_over_rate: u64,
    /// Addresses whose use of their rates was forgotten too early, because there were too many.
    pub forgotten_addresses: u64,
    /// Connections of HTTP/2 and of HTTP/1.1 whose handshake has completed.
    pub connections: [u64; 2],
    /// Handshakes that failed or took too long.
    pub failed_handshakes: u64,
    /// Connections of either version that ended early: they broke, or were closed because of their client or at the end
    /// of the grace.
    pub broken: u64,
    /// Requests of both versions.
    pub requests: u64,
    /// Requests that are over.
    pub ended: u64,
    /// Requests refused because a connection had too many.
    pub refused: u64,
    /// Prefetches declined for clients that save data.
    pub declined: u64,
    /// Responses that the client has reset.
    pub cancelled: u64,
    /// Responses whose handler failed.
    pub failed: u64,
    /// Connections closed because the client took nothing for too long.
    pub stuck: u64,
    /// Responses reset because the client gave no credit for them for too long.
    pub stalled: u64,
    /// Requests answered with 408, because nothing of their body came for too long.
    pub late_bodies: u64,
    /// Connections closed because the head of a request took too long.
    pub slow_heads: u64,
    /// Connections closed because the client violated the protocol by its signals, or reset too many
    /// responses.
    pub violations: u64,
    /// Bytes of content granted over HTTP/2, of each level, the most urgent first.
    pub granted: [Bytes; Priority::COUNT],
}

/// Counters that the connections share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    accepted: AtomicU64,
    crowded: AtomicU64,
    connections_over_rate: AtomicU64,
    connections_over_open: AtomicU64,
    requests_over_rate: AtomicU64,
    connections: [AtomicU64; 2],
    failed_handshakes: AtomicU64,
    broken: AtomicU64,
    requests: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
    declined: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    stuck: AtomicU64,
    stalled: AtomicU64,
    late_bodies: AtomicU64,
    slow_heads: AtomicU64,
    violations: AtomicU64,
    granted: [AtomicU64; Priority::COUNT],
}

/// Adds one.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counters {
    pub(crate) fn accepted(&self) {
        count(&self.accepted);
    }

    pub(crate) fn crowded(&self) {
        count(&self.crowded);
    }

    /// Counts a connection that its address may not open.
    pub(crate) fn refused_entry(&self, refusal: Refusal) {
        count(match refusal {
            Refusal::Rate => &self.connections_over_rate,
            Refusal::Open => &self.connections_over_open,
            Refusal::Full => &self.crowded,
        });
    }

    pub(crate) fn over_rate(&self) {
        count(&self.requests_over_rate);
    }

    /// Counts a connection, of HTTP/2 or else of HTTP/1.1.
    pub(crate) fn connected(&self, is_http2: bool) {
        count(&self.connections[usize::from(!is_http2)]);
    }

    pub(crate) fn failed_handshake(&self) {
        count(&self.failed_handshakes);
    }

    pub(crate) fn broken(&self) {
        count(&self.broken);
    }

    pub(crate) fn requested(&self) {
        count(&self.requests);
    }

    pub(crate) fn ended(&self) {
        count(&self.ended);
    }

    pub(crate) fn refused(&self) {
        count(&self.refused);
    }

    pub(crate) fn declined(&self) {
        count(&self.declined);
    }

    pub(crate) fn cancelled(&self) {
        count(&self.cancelled);
    }

    pub(crate) fn failed(&self) {
        count(&self.failed);
    }

    pub(crate) fn stuck(&self) {
        count(&self.stuck);
    }

    pub(crate) fn stalled(&self) {
        count(&self.stalled);
    }

    pub(crate) fn late_body(&self) {
        count(&self.late_bodies);
    }

    pub(crate) fn slow_head(&self) {
        count(&self.slow_heads);
    }

    pub(crate) fn violated(&self) {
        count(&self.violations);
    }

    pub(crate) fn granted(&self, level: Priority, bytes: usize) {
        self.granted[level.index()].fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> ServerCounters {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        ServerCounters {
            accepted: read(&self.accepted),
            crowded: read(&self.crowded),
            connections_over_rate: read(&self.connections_over_rate),
            connections_over_open: read(&self.connections_over_open),
            requests_over_rate: read(&self.requests_over_rate),
            forgotten_addresses: 0,
            connections: [read(&self.connections[0]), read(&self.connections[1])],
            failed_handshakes: read(&self.failed_handshakes),
            broken: read(&self.broken),
            requests: read(&self.requests),
            ended: read(&self.ended),
            refused: read(&self.refused),
            declined: read(&self.declined),
            cancelled: read(&self.cancelled),
            failed: read(&self.failed),
            stuck: read(&self.stuck),
            stalled: read(&self.stalled),
            late_bodies: read(&self.late_bodies),
            slow_heads: read(&self.slow_heads),
            violations: read(&self.violations),
            granted: std::array::from_fn(|level| Bytes::new(read(&self.granted[level]))),
        }
    }
}
