//! Counters of a server.

use marcato_units::{Bytes, Priority};

use crate::counter::counters;
use crate::rates::Refusal;

counters! {
    /// Counters of a server since it was created.
    #[derive(Copy)]
    #[non_exhaustive]
    pub struct ServerCounters;
    /// Counters that the connections share.
    pub(crate) struct Counters;
    counted {
        /// Connections accepted.
        accepted: u64 => counter("connections_accepted", "Connections accepted"),
        /// Connections that were closed at once, because the limit was reached.
        crowded: u64 => counter("connections_refused", "Connections closed at once", "reason" = ["limit"]),
        /// Connections that were closed at once, because their address opens them too fast.
        connections_over_rate: u64 => counter("connections_refused", "", "reason" = ["rate"]),
        /// Connections that were closed at once, because their address has as many open as it may.
        connections_over_open: u64 => counter("connections_refused", "", "reason" = ["open"]),
        /// Connections of HTTP/2, of HTTP/1.1 and of HTTP/3 whose handshake has completed.
        connections: [u64; 3] => counter(
            "connections", "Connections whose handshake has completed", "version" = ["2", "1.1", "3"]
        ),
        /// Handshakes that failed or took too long.
        failed_handshakes: u64 => counter("handshakes_failed", "Handshakes that failed or took too long"),
        /// Connections of either version that ended early: they broke, or were closed because of their client or at
        /// the end of the grace.
        broken: u64 => counter("connections_broken", "Connections that ended early"),
        /// Connections closed because the client took nothing for too long.
        stuck: u64 => counter(
            "connections_closed", "Connections closed because of the client", "reason" = ["stuck"]
        ),
        /// Connections closed because the client violated the protocol by its signals, or reset too many
        /// responses.
        violations: u64 => counter("connections_closed", "", "reason" = ["violation"]),
        /// Connections closed because the head of a request took too long.
        slow_heads: u64 => counter("connections_closed", "", "reason" = ["slow-head"]),
        /// Requests of both versions.
        requests: u64 => counter("requests_begun", "Requests received"),
        /// Requests that are over.
        ended: u64,
        /// Requests refused because a connection had too many.
        refused: u64 => counter("requests_refused", "Requests that no handler has seen", "reason" = ["streams"]),
        /// Requests answered with 429, because their address makes them too fast.
        requests_over_rate: u64 => counter("requests_refused", "", "reason" = ["rate"]),
        /// Requests of HTTP/3 whose head is malformed, too large, or incomplete.
        malformed: u64 => counter("requests_refused", "", "reason" = ["malformed"]),
        /// Prefetches declined for clients that save data.
        declined: u64 => counter("requests_refused", "", "reason" = ["prefetch"]),
        /// Responses that the client has reset.
        cancelled: u64 => counter("responses_cancelled", "Responses that the client has reset"),
        /// Responses whose handler failed.
        failed: u64 => counter("responses_failed", "Responses whose handler failed"),
        /// Responses reset because the client gave no credit for them for too long.
        stalled: u64 => counter(
            "responses_stalled", "Responses reset because the client gave no credit for them"
        ),
        /// Requests answered with 408, because nothing of their body came for too long.
        late_bodies: u64 => counter(
            "request_bodies_late", "Requests answered with 408, because nothing of their body came"
        ),
        /// Bytes of content granted over HTTP/2 and HTTP/3, of each level, the most urgent first.
        granted: [Bytes; Priority::COUNT] => counter(
            "granted", "Content granted over HTTP/2 and HTTP/3", "level" = ["P0", "P1", "P2", "P3", "P4"]
        ),
    }
    present {
        /// Addresses whose use of their rates was forgotten too early, because there were too many.
        forgotten_addresses: u64 => counter(
            "addresses_forgotten", "Addresses whose use of their rates was forgotten too early"
        ),
    }
}

impl Counters {
    /// Counts a connection that its address may not open.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        let count = match refusal {
            Refusal::Rate => &self.connections_over_rate,
            Refusal::Open => &self.connections_over_open,
            Refusal::Full => &self.crowded,
        };
        count.one();
    }

    /// Counts a connection, of HTTP/2 or else of HTTP/1.1.
    pub(crate) fn connect(&self, is_http2: bool) {
        self.connections[usize::from(!is_http2)].one();
    }

    /// Counts a connection of HTTP/3.
    #[cfg(feature = "http3")]
    pub(crate) fn connect_http3(&self) {
        self.connections[2].one();
    }

    /// Counts content that was granted.
    pub(crate) fn grant(&self, level: Priority, bytes: usize) {
        self.granted[level.index()].add(bytes);
    }
}
