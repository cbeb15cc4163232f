//! Counters of a proxy.

use marcato_units::Bytes;

use crate::counter::counters;

counters! {
    /// Snapshot of a proxy's counters.
    pub struct ProxyCounters;
    /// Counters of the proxy as a whole.
    pub(super) struct Totals;
    counted {
        /// Requests that came.
        requests: u64 => counter("proxy_requests", "Requests to a proxy"),
        /// Requests refused because they were malformed or not supported.
        rejected: u64 => counter("proxy_rejected", "Requests that were malformed or not supported"),
        /// Requests refused because all healthy upstreams were full.
        overloaded: u64 => counter("proxy_overloaded", "Requests refused because all upstreams were full"),
        /// Requests answered with 502, because no upstream gave a usable response.
        bad_gateways: u64 => counter("proxy_bad_gateways", "Requests without a usable response"),
        /// Requests answered with 504, because an upstream was late.
        timeouts: u64 => counter("proxy_timeouts", "Requests whose upstream was late"),
        /// Requests that ended because the client's body broke or came too slowly.
        client_faults: u64 => counter("proxy_client_faults", "Requests whose body broke or came too slowly"),
        /// Requests whose body was too long to be kept, so that they were sent once.
        unkept_bodies: u64 => counter("proxy_unkept_bodies", "Requests whose body was too long to be kept"),
        /// Bytes of bodies that are kept at present.
        kept: Bytes => gauge("proxy_kept", "Bodies that are kept to be sent again"),
        /// Responses whose body broke or fell silent after its head was passed on.
        broken_responses: u64 => counter("proxy_broken_responses", "Responses that broke after their head"),
        /// Tunnels opened by upgrades.
        tunnels: u64 => counter("proxy_tunnels", "Tunnels opened"),
        /// Tunnels closed after a silence.
        idle_tunnels: u64 => counter("proxy_idle_tunnels", "Tunnels closed after a silence"),
        /// Bytes of tunnels from clients to upstreams.
        tunnel_sent: Bytes => counter("proxy_tunnel_sent", "Bytes of tunnels to upstreams"),
        /// Bytes of tunnels from upstreams to clients.
        tunnel_received: Bytes => counter("proxy_tunnel_received", "Bytes of tunnels from upstreams"),
    }
    present {
        /// State of each upstream, in the order of the configuration.
        upstreams: Vec<UpstreamState>,
    }
}

counters! {
    /// Snapshot of one upstream.
    pub struct UpstreamState;
    /// Counters of one upstream.
    pub(super) struct Tally;
    counted {
        /// Attempts to pass a request on, including retries.
        requests: u64 => counter("upstream_requests", "Attempts to pass a request on"),
        /// Attempts of a request that had failed before, here or elsewhere.
        retries: u64 => counter("upstream_retries", "Attempts of requests that had failed before"),
        /// Attempts that sent a kept body again.
        replayed_bodies: u64 => counter("upstream_replayed_bodies", "Attempts that sent a kept body again"),
        /// Attempts without a response.
        failures: u64 => counter("upstream_failures", "Attempts without a response"),
        /// Health checks made.
        checks: u64 => counter("upstream_checks", "Health checks"),
        /// Health checks that failed.
        failed_checks: u64 => counter("upstream_failed_checks", "Health checks that failed"),
        /// Connections made.
        connections: u64 => counter("upstream_connections", "Connections made"),
        /// Idle connections that were found closed when a request was to use them.
        stale: u64 => counter("upstream_stale_connections", "Idle connections that were found closed"),
        /// Idle connections closed because the pool was full.
        dropped: u64 => counter("upstream_dropped_connections", "Idle connections closed by a full pool"),
        /// Bytes of request bodies.
        sent: Bytes => counter("upstream_sent", "Bytes of request bodies"),
        /// Bytes of response bodies.
        received: Bytes => counter("upstream_received", "Bytes of response bodies"),
    }
    present {
        /// URI from the configuration.
        uri: String,
        /// True if the upstream is in rotation.
        healthy: bool => gauge("upstream_healthy", "1 if the upstream is in rotation"),
        /// Requests and tunnels in flight.
        in_flight: u32 => gauge("upstream_in_flight", "Requests and tunnels in flight"),
        /// Idle connections in the pool.
        idle: usize => gauge("upstream_idle_connections", "Idle connections"),
    }
}
