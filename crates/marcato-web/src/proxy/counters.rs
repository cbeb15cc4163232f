//! Counters of a proxy.

use std::sync::atomic::{AtomicU64, Ordering};

use marcato_units::Bytes;

/// Snapshot of a proxy's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounters {
    /// Requests that came.
    pub requests: u64,
    /// Requests refused because they were malformed or not supported.
    pub rejected: u64,
    /// Requests refused because all healthy upstreams were full.
    pub overloaded: u64,
    /// Requests answered with 502, because no upstream gave a usable response.
    pub bad_gateways: u64,
    /// Requests answered with 504, because an upstream was late.
    pub timeouts: u64,
    /// Requests that ended because the client's body broke or came too slowly.
    pub client_faults: u64,
    /// Requests whose body was too long to be kept, so that they were sent once.
    pub unkept_bodies: u64,
    /// Bytes of bodies that are kept at present.
    pub kept: Bytes,
    /// Responses whose body broke or fell silent after its head was passed on.
    pub broken_responses: u64,
    /// Tunnels opened by upgrades.
    pub tunnels: u64,
    /// Tunnels closed after a silence.
    pub idle_tunnels: u64,
    /// Bytes of tunnels from clients to upstreams.
    pub tunnel_sent: Bytes,
    /// Bytes of tunnels from upstreams to clients.
    pub tunnel_received: Bytes,
    /// State of each upstream, in the order of the configuration.
    pub upstreams: Vec<UpstreamState>,
}

/// Snapshot of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamState {
    /// URI from the configuration.
    pub uri: String,
    /// True if the upstream is in rotation.
    pub healthy: bool,
    /// Requests and tunnels in flight.
    pub in_flight: u32,
    /// Attempts to pass a request on, including retries.
    pub requests: u64,
    /// Attempts of a request that had failed before, here or elsewhere.
    pub retries: u64,
    /// Attempts that sent a kept body again.
    pub replayed_bodies: u64,
    /// Attempts without a response.
    pub failures: u64,
    /// Health checks made.
    pub checks: u64,
    /// Health checks that failed.
    pub failed_checks: u64,
    /// Connections made.
    pub connections: u64,
    /// Idle connections that were found closed when a request was to use them.
    pub stale: u64,
    /// Idle connections in the pool.
    pub idle: usize,
    /// Idle connections closed because the pool was full.
    pub dropped: u64,
    /// Bytes of request bodies.
    pub sent: Bytes,
    /// Bytes of response bodies.
    pub received: Bytes,
}

/// Counter that many tasks increase.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, number: usize) {
        self.0.fetch_add(u64::try_from(number).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn less(&self, number: usize) {
        self.0.fetch_sub(u64::try_from(number).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of the proxy as a whole.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) requests: Count,
    pub(super) rejected: Count,
    pub(super) overloaded: Count,
    pub(super) bad_gateways: Count,
    pub(super) timeouts: Count,
    pub(super) client_faults: Count,
    pub(super) unkept_bodies: Count,
    /// Bytes at present.
    pub(super) kept: Count,
    pub(super) broken_responses: Count,
    pub(super) tunnels: Count,
    pub(super) idle_tunnels: Count,
    pub(super) tunnel_sent: Count,
    pub(super) tunnel_received: Count,
}

impl Totals {
    pub(super) fn snapshot(&self, upstreams: Vec<UpstreamState>) -> ProxyCounters {
        ProxyCounters {
            requests: self.requests.get(),
            rejected: self.rejected.get(),
            overloaded: self.overloaded.get(),
            bad_gateways: self.bad_gateways.get(),
            timeouts: self.timeouts.get(),
            client_faults: self.client_faults.get(),
            unkept_bodies: self.unkept_bodies.get(),
            kept: Bytes::new(self.kept.get()),
            broken_responses: self.broken_responses.get(),
            tunnels: self.tunnels.get(),
            idle_tunnels: self.idle_tunnels.get(),
            tunnel_sent: Bytes::new(self.tunnel_sent.get()),
            tunnel_received: Bytes::new(self.tunnel_received.get()),
            upstreams,
        }
    }
}

/// Counters of one upstream.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: Count,
    pub(super) retries: Count,
    pub(super) replayed_bodies: Count,
    pub(super) failures: Count,
    pub(super) checks: Count,
    pub(super) failed_checks: Count,
    pub(super) connections: Count,
    pub(super) stale: Count,
    pub(super) dropped: Count,
    sent: Count,
    received: Count,
}

impl Tally {
    pub(super) fn sent(&self, bytes: usize) {
        self.sent.add(bytes);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received.add(bytes);
    }

    /// Counters alone: the caller fills in the state.
    pub(super) fn snapshot(&self) -> UpstreamState {
        UpstreamState {
            requests: self.requests.get(),
            retries: self.retries.get(),
            replayed_bodies: self.replayed_bodies.get(),
            failures: self.failures.get(),
            checks: self.checks.get(),
            failed_checks: self.failed_checks.get(),
            connections: self.connections.get(),
            stale: self.stale.get(),
            dropped: self.dropped.get(),
            sent: Bytes::new(self.sent.get()),
            received: Bytes::new(self.received.get()),
            ..UpstreamState::default()
        }
    }
}
