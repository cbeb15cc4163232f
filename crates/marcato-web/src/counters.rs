//! Counters of a server.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use marcato_units::{Bytes, Priority};

/// Counters of a server since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that were closed at once, because the limit was reached.
    pub crowded: u64,
    /// Connections of HTTP/2 and of HTTP/1.1 whose handshake has completed.
    pub connections: [u64; 2],
    /// Handshakes that failed or took too long.
    pub failed_handshakes: u64,
    /// Connections that ended with an error.
    pub broken: u64,
    /// Requests of both versions.
    pub requests: u64,
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
    connections: [AtomicU64; 2],
    failed_handshakes: AtomicU64,
    broken: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    declined: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    stuck: AtomicU64,
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
            connections: [read(&self.connections[0]), read(&self.connections[1])],
            failed_handshakes: read(&self.failed_handshakes),
            broken: read(&self.broken),
            requests: read(&self.requests),
            refused: read(&self.refused),
            declined: read(&self.declined),
            cancelled: read(&self.cancelled),
            failed: read(&self.failed),
            stuck: read(&self.stuck),
            violations: read(&self.violations),
            granted: std::array::from_fn(|level| Bytes::new(read(&self.granted[level]))),
        }
    }
}
