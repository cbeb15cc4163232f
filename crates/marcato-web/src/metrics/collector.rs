//! Values that are read when they are asked for.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use marcato_units::Priority;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::Watched;
use super::requests::level_name;
use crate::counters::ServerCounters;
use crate::files::FilesCounters;

/// Sources of values, as a collector.
#[derive(Clone)]
pub(super) struct Collected(pub(super) Arc<Mutex<Watched>>);

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collected")
    }
}

/// One value of a family, with its labels.
type Value<'a> = (Vec<(&'static str, &'a str)>, u64);

/// Family of values.
struct Group<'a> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    unit: Option<Unit>,
    values: Vec<Value<'a>>,
}

impl<'a> Group<'a> {
    fn new(name: &'static str, help: &'static str, kind: MetricType, values: Vec<Value<'a>>) -> Self {
        Self { name, help, kind, unit: None, values }
    }

    fn counter(name: &'static str, help: &'static str, values: Vec<Value<'a>>) -> Self {
        Self::new(name, help, MetricType::Counter, values)
    }

    fn gauge(name: &'static str, help: &'static str, values: Vec<Value<'a>>) -> Self {
        Self::new(name, help, MetricType::Gauge, values)
    }

    fn bytes(self) -> Self {
        Self { unit: Some(Unit::Bytes), ..self }
    }

    fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self { name, help, kind, unit, values } = self;
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in values {
            if labels.is_empty() {
                write(&mut family, kind, value)?;
            } else {
                write(&mut family.encode_family(&labels)?, kind, value)?;
            }
        }
        Ok(())
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: MetricType, value: u64) -> fmt::Result {
    match kind {
        MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        _ => encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
    }
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let servers: Vec<_> = watched.servers.iter().map(|server| server.counters()).collect();
        let open = |number: fn(&crate::Server) -> usize| {
            vec![(vec![], watched.servers.iter().map(|server| number(server) as u64).sum())]
        };
        let mut groups = of_servers(&servers);
        groups.push(Group::gauge(
            "open_connections",
            "Connections that are open",
            open(crate::Server::open_connections),
        ));
        groups.push(Group::gauge(
            "open_requests",
            "Requests that are not over",
            open(crate::Server::open_requests),
        ));
        groups.push(Group::gauge(
            "addresses",
            "Addresses whose rates are in use",
            open(crate::Server::known_addresses),
        ));
        let files: Vec<(&str, FilesCounters)> =
            watched.files.iter().map(|(name, files)| (name.as_str(), files.counters())).collect();
        groups.extend(of_files(&files));
        #[cfg(feature = "compression")]
        if let Some(compression) = &watched.compression {
            groups.extend(of_compression(&compression.counters()));
        }
        #[cfg(feature = "proxy")]
        let proxies: Vec<_> =
            watched.proxies.iter().map(|(name, proxy)| (name.as_str(), proxy.counters())).collect();
        #[cfg(feature = "proxy")]
        groups.extend(of_proxies(&proxies));
        groups.into_iter().try_for_each(|group| group.encode(&mut encoder))
    }
}

/// Value of a label, and the counter with it.
type OfServer = (&'static str, fn(&ServerCounters) -> u64);

/// Counters of servers, summed.
fn of_servers<'a>(servers: &[ServerCounters]) -> Vec<Group<'a>> {
    let sum = |value: fn(&ServerCounters) -> u64| servers.iter().map(value).sum();
    let one = |value| vec![(vec![], sum(value))];
    let by = |label, values: &[OfServer]| {
        values.iter().map(|(name, value)| (vec![(label, *name)], sum(*value))).collect()
    };
    let granted = Priority::ALL.iter().map(|level| {
        let bytes = servers.iter().map(|counters| counters.granted[level.index()].get()).sum();
        (vec![("level", level_name(*level))], bytes)
    });
    vec![
        Group::counter("connections_accepted", "Connections accepted", one(|of| of.accepted)),
        Group::counter(
            "connections_refused",
            "Connections closed at once",
            by(
                "reason",
                &[
                    ("limit", |of| of.crowded),
                    ("rate", |of| of.connections_over_rate),
                    ("open", |of| of.connections_over_open),
                ],
            ),
        ),
        Group::counter(
            "connections",
            "Connections whose handshake has completed",
            by("version", &[("2", |of| of.connections[0]), ("1.1", |of| of.connections[1])]),
        ),
        Group::counter(
            "handshakes_failed",
            "Handshakes that failed or took too long",
            one(|of| of.failed_handshakes),
        ),
        Group::counter("connections_broken", "Connections that ended early", one(|of| of.broken)),
        Group::counter(
            "connections_closed",
            "Connections closed because of the client",
            by(
                "reason",
                &[
                    ("stuck", |of| of.stuck),
                    ("violation", |of| of.violations),
                    ("slow-head", |of| of.slow_heads),
                ],
            ),
        ),
        Group::counter("requests_begun", "Requests received", one(|of| of.requests)),
        Group::counter(
            "requests_refused",
            "Requests that no handler has seen",
            by(
                "reason",
                &[
                    ("streams", |of| of.refused),
                    ("rate", |of| of.requests_over_rate),
                    ("prefetch", |of| of.declined),
                ],
            ),
        ),
        Group::counter("responses_cancelled", "Responses that the client has reset", one(|of| of.cancelled)),
        Group::counter("responses_failed", "Responses whose handler failed", one(|of| of.failed)),
        Group::counter(
            "responses_stalled",
            "Responses reset because the client gave no credit for them",
            one(|of| of.stalled),
        ),
        Group::counter(
            "request_bodies_late",
            "Requests answered with 408, because nothing of their body came",
            one(|of| of.late_bodies),
        ),
        Group::counter("granted", "Content granted over HTTP/2", granted.collect()).bytes(),
        Group::counter(
            "addresses_forgotten",
            "Addresses whose use of their rates was forgotten too early",
            one(|of| of.forgotten_addresses),
        ),
    ]
}

/// Counters of file services, by the names of their directories.
fn of_files<'a>(files: &[(&'a str, FilesCounters)]) -> Vec<Group<'a>> {
    let by = |value: fn(&FilesCounters) -> u64| {
        files.iter().map(|(name, counters)| (vec![("directory", *name)], value(counters))).collect()
    };
    vec![
        Group::counter("files_hits", "Requests answered from memory", by(|of| of.hits)),
        Group::counter(
            "files_misses",
            "Requests whose content was read from the file system",
            by(|of| of.misses),
        ),
        Group::counter("files_revalidations", "Checks of files in memory", by(|of| of.revalidations)),
        Group::counter("files_evictions", "Files removed from memory to make room", by(|of| of.evictions)),
        Group::counter("files_not_found", "Requests for files that do not exist", by(|of| of.not_found)),
        Group::counter("files_refused", "Requests refused for their path", by(|of| of.refused)),
        Group::counter("files_failed", "Requests that the operating system failed", by(|of| of.failed)),
        Group::counter(
            "files_stale",
            "Precompressed files that were older than their original",
            by(|of| of.stale),
        ),
        Group::counter(
            "files_blocking",
            "Requests and chunks read by the blocking pool",
            by(|of| of.blocking),
        ),
        Group::gauge("files_in_memory", "Files in memory", by(|of| of.cached_files)),
        Group::gauge("files_memory", "Memory of these files", by(|of| of.cached.get())).bytes(),
    ]
}

/// Counters of compression.
#[cfg(feature = "compression")]
fn of_compression<'a>(counters: &crate::compression::CompressionCounters) -> Vec<Group<'a>> {
    let one = |value: u64| vec![(vec![], value)];
    let codings = [("zstd", counters.zstd), ("br", counters.brotli), ("gzip", counters.gzip)];
    let by = codings.into_iter().map(|(name, value)| (vec![("coding", name)], value)).collect();
    vec![
        Group::counter("compressed_responses", "Responses compressed while they were sent", by),
        Group::counter("compression_read", "Content before compression", one(counters.read.get())).bytes(),
        Group::counter("compression_written", "Content after compression", one(counters.written.get()))
            .bytes(),
        Group::counter(
            "compression_crowded",
            "Responses sent as they were, because encoders had all of the memory",
            one(counters.crowded),
        ),
        Group::counter("compression_failed", "Responses whose encoder failed", one(counters.failed)),
        Group::gauge("compression_encoders", "Encoders in use", one(counters.encoders)),
        Group::gauge(
            "compression_memory",
            "Bound of the memory of these encoders",
            one(counters.memory.get()),
        )
        .bytes(),
    ]
}

/// Counters of proxies by the names of their origins, and of their upstreams.
#[cfg(feature = "proxy")]
fn of_proxies<'a>(proxies: &'a [(&'a str, crate::proxy::ProxyCounters)]) -> Vec<Group<'a>> {
    use crate::proxy::{ProxyCounters, UpstreamState};

    let by = |value: fn(&ProxyCounters) -> u64| {
        proxies.iter().map(|(name, counters)| (vec![("origin", *name)], value(counters))).collect()
    };
    let each = |value: fn(&UpstreamState) -> u64| {
        let of = |(name, counters): &'a (&'a str, ProxyCounters)| {
            let origin = *name;
            counters.upstreams.iter().map(move |upstream| {
                (vec![("origin", origin), ("upstream", upstream.uri.as_str())], value(upstream))
            })
        };
        proxies.iter().flat_map(of).collect()
    };
    vec![
        Group::counter("proxy_requests", "Requests to a proxy", by(|of| of.requests)),
        Group::counter(
            "proxy_rejected",
            "Requests that were malformed or not supported",
            by(|of| of.rejected),
        ),
        Group::counter(
            "proxy_overloaded",
            "Requests refused because all upstreams were full",
            by(|of| of.overloaded),
        ),
        Group::counter("proxy_bad_gateways", "Requests without a usable response", by(|of| of.bad_gateways)),
        Group::counter("proxy_timeouts", "Requests whose upstream was late", by(|of| of.timeouts)),
        Group::counter(
            "proxy_client_faults",
            "Requests whose body broke or came too slowly",
            by(|of| of.client_faults),
        ),
        Group::counter(
            "proxy_unkept_bodies",
            "Requests whose body was too long to be kept",
            by(|of| of.unkept_bodies),
        ),
        Group::gauge("proxy_kept", "Bodies that are kept to be sent again", by(|of| of.kept.get())).bytes(),
        Group::counter(
            "proxy_broken_responses",
            "Responses that broke after their head",
            by(|of| of.broken_responses),
        ),
        Group::counter("proxy_tunnels", "Tunnels opened", by(|of| of.tunnels)),
        Group::counter("proxy_idle_tunnels", "Tunnels closed after a silence", by(|of| of.idle_tunnels)),
        Group::counter("proxy_tunnel_sent", "Bytes of tunnels to upstreams", by(|of| of.tunnel_sent.get()))
            .bytes(),
        Group::counter(
            "proxy_tunnel_received",
            "Bytes of tunnels from upstreams",
            by(|of| of.tunnel_received.get()),
        )
        .bytes(),
        Group::gauge("upstream_healthy", "1 if the upstream is in rotation", each(|of| of.healthy.into())),
        Group::gauge("upstream_in_flight", "Requests and tunnels in flight", each(|of| of.in_flight.into())),
        Group::counter("upstream_requests", "Attempts to pass a request on", each(|of| of.requests)),
        Group::counter(
            "upstream_retries",
            "Attempts of requests that had failed before",
            each(|of| of.retries),
        ),
        Group::counter(
            "upstream_replayed_bodies",
            "Attempts that sent a kept body again",
            each(|of| of.replayed_bodies),
        ),
        Group::counter("upstream_failures", "Attempts without a response", each(|of| of.failures)),
        Group::counter("upstream_checks", "Health checks", each(|of| of.checks)),
        Group::counter("upstream_failed_checks", "Health checks that failed", each(|of| of.failed_checks)),
        Group::counter("upstream_connections", "Connections made", each(|of| of.connections)),
        Group::counter(
            "upstream_stale_connections",
            "Idle connections that were found closed",
            each(|of| of.stale),
        ),
        Group::counter(
            "upstream_dropped_connections",
            "Idle connections closed by a full pool",
            each(|of| of.dropped),
        ),
        Group::gauge("upstream_idle_connections", "Idle connections", each(|of| of.idle as u64)),
        Group::counter("upstream_sent", "Bytes of request bodies", each(|of| of.sent.get())).bytes(),
        Group::counter("upstream_received", "Bytes of response bodies", each(|of| of.received.get())).bytes(),
    ]
}

#[cfg(test)]
mod tests {
    use marcato_units::Bytes;

    use super::*;

    /// Values of groups.
    fn values(groups: Vec<Group<'_>>) -> Vec<u64> {
        let mut values: Vec<u64> =
            groups.into_iter().flat_map(|group| group.values).map(|(_, value)| value).collect();
        values.sort_unstable();
        values
    }

    #[test]
    fn every_counter_of_a_server_is_a_value_and_sums() {
        // All fields are named: another one does not compile before it is here.
        let counters = ServerCounters {
            accepted: 1,
            crowded: 2,
            connections_over_rate: 3,
            connections_over_open: 4,
            requests_over_rate: 5,
            forgotten_addresses: 6,
            connections: [7, 8],
            failed_handshakes: 9,
            broken: 10,
            requests: 11,
            // It is in the number of open requests.
            ended: 0,
            refused: 12,
            declined: 13,
            cancelled: 14,
            failed: 15,
            stuck: 16,
            slow_heads: 17,
            violations: 18,
            stalled: 19,
            late_bodies: 20,
            granted: [21, 22, 23, 24, 25].map(Bytes::new),
        };
        assert_eq!(values(of_servers(&[counters])), (1..=25).collect::<Vec<_>>());
        assert_eq!(values(of_servers(&[counters, counters])), (1..=25).map(|n| 2 * n).collect::<Vec<_>>());
    }

    #[test]
    fn every_counter_of_a_file_service_is_a_value() {
        let counters = FilesCounters {
            hits: 1,
            misses: 2,
            revalidations: 3,
            evictions: 4,
            not_found: 5,
            refused: 6,
            failed: 7,
            stale: 8,
            blocking: 9,
            cached_files: 10,
            cached: Bytes::new(11),
        };
        assert_eq!(values(of_files(&[("a", counters)])), (1..=11).collect::<Vec<_>>());
    }

    #[cfg(feature = "compression")]
    #[test]
    fn every_counter_of_compression_is_a_value() {
        let counters = crate::compression::CompressionCounters {
            zstd: 1,
            brotli: 2,
            gzip: 3,
            read: Bytes::new(4),
            written: Bytes::new(5),
            crowded: 6,
            failed: 7,
            encoders: 8,
            memory: Bytes::new(9),
        };
        assert_eq!(values(of_compression(&counters)), (1..=9).collect::<Vec<_>>());
    }

    #[cfg(feature = "proxy")]
    #[test]
    fn every_counter_of_a_proxy_and_its_upstreams_is_a_value() {
        use crate::proxy::{ProxyCounters, UpstreamState};

        let upstream = UpstreamState {
            uri: "http://a".into(),
            healthy: true,
            in_flight: 2,
            requests: 3,
            retries: 4,
            failures: 5,
            checks: 6,
            failed_checks: 7,
            connections: 8,
            stale: 9,
            idle: 10,
            dropped: 11,
            sent: Bytes::new(12),
            received: Bytes::new(13),
            replayed_bodies: 25,
        };
        let counters = ProxyCounters {
            requests: 14,
            rejected: 15,
            overloaded: 16,
            bad_gateways: 17,
            timeouts: 18,
            client_faults: 19,
            broken_responses: 20,
            tunnels: 21,
            idle_tunnels: 22,
            tunnel_sent: Bytes::new(23),
            tunnel_received: Bytes::new(24),
            unkept_bodies: 26,
            kept: Bytes::new(27),
            upstreams: vec![upstream],
        };
        assert_eq!(values(of_proxies(&[("a", counters)])), (1..=27).collect::<Vec<_>>());
    }
}
