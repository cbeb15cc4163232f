//! Metrics for a monitoring system: connections and endpoints by name, in the text format of
//! Prometheus.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use marcato_sched::coupled::Mode;
use marcato_units::{Bytes, Priority};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::shared::Transport;
use crate::signal::lock;
use crate::stats::{ConnectionStats, EndpointStats};

/// Registry of connections and endpoints that Prometheus can scrape.
///
/// Values of the same name are summed, so the number of series equals the number of names, however
/// many connections begin and end. The cost arises only on reading. Besides
/// [`encode`](Self::encode) it is a [`Collector`], for programs that already have a registry of
/// `prometheus-client`.
///
/// ```
/// # async fn serve(endpoint: &marcato_net::Endpoint) -> Result<(), marcato_net::AcceptError> {
/// let metrics = marcato_net::Metrics::new();
/// metrics.watch_endpoint("ingest", endpoint);
/// let connection = endpoint.accept().await?;
/// metrics.watch("sensors", &connection);
/// // What a server answers to GET /metrics, as `text/plain; version=0.0.4` or OpenMetrics.
/// let text = metrics.encode();
/// assert!(text.contains(r#"marcato_sent_messages_total{connection="sensors",priority="P0"}"#));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Watched>>);

type EndpointSource = Arc<dyn Fn() -> EndpointStats + Send + Sync>;

#[derive(Default)]
struct Watched {
    connections: BTreeMap<String, Group>,
    endpoints: BTreeMap<String, Vec<EndpointSource>>,
}

/// Connections of one name.
#[derive(Default)]
struct Group {
    /// Sums of the counters of ended connections.
    past: Sums,
    alive: Vec<Arc<dyn Transport>>,
    /// Number of connections when ended ones were last removed.
    after_cleanup: usize,
}

/// Sums over all connections of a name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sums {
    connections: u64,
    levels: [Level; Priority::COUNT],
    missed: u64,
    unreliable_dropped: u64,
    stops: u64,
    sent_packets: u64,
    sent_bytes: u64,
    lost: u64,
    usable: u64,
    backlog: u64,
    cwnd: u64,
    in_flight: u64,
    /// Round-trip time of the slowest lane, in seconds.
    srtt: f64,
    /// Connections in which coupled mode acts; and over their lanes, changes of its mode, and the sum
    /// of its bounds.
    coupled: u64,
    transitions: u64,
    cap: u64,
    /// Seconds of lanes in each mode.
    in_mode: [f64; Mode::COUNT],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Level {
    backlog_bytes: u64,
    backlog_messages: u64,
    sent_bytes: u64,
    sent_messages: u64,
    unfinished: u64,
    expired: u64,
    dropped: u64,
    received_bytes: u64,
    received_messages: u64,
}

impl Sums {
    fn add(&mut self, stats: &ConnectionStats) {
        self.connections += 1;
        for (sum, priority) in self.levels.iter_mut().zip(Priority::ALL) {
            let level = stats.level(priority);
            sum.backlog_bytes += level.backlog.bytes.get();
            sum.backlog_messages += level.backlog.messages;
            sum.sent_bytes += level.sent.bytes.get();
            sum.sent_messages += level.sent.messages;
            sum.unfinished += level.unfinished as u64;
            sum.expired += level.expired;
            sum.dropped += level.dropped;
            sum.received_bytes += level.received.bytes.get();
            sum.received_messages += level.received.messages;
        }
        self.missed += stats.received.missed;
        self.unreliable_dropped += stats.received.unreliable_dropped;
        self.stops += stats.received.stops;
        for lane in &stats.lanes {
            self.sent_packets += lane.sent;
            self.sent_bytes += lane.sent_bytes.get();
            self.lost += lane.lost;
            self.usable += u64::from(lane.usable);
            let sum = |lanes: Bytes, so_far: &mut u64| *so_far += lanes.get();
            sum(lane.backlog, &mut self.backlog);
            sum(lane.cwnd, &mut self.cwnd);
            sum(lane.in_flight, &mut self.in_flight);
            self.srtt = self.srtt.max(lane.srtt.as_secs_f64());
        }
        self.coupled += u64::from(stats.coupled.is_some());
        for coupled in stats.lanes.iter().filter_map(|lane| lane.coupled.as_ref()) {
            self.transitions += coupled.counters.transitions;
            self.cap = self.cap.saturating_add(coupled.cap.map_or(0, Bytes::get));
            for (sum, time) in self.in_mode.iter_mut().zip(coupled.counters.time) {
                *sum += time.as_secs_f64();
            }
        }
    }

    /// Returns the counters that remain when the connections have ended: those that only grow.
    fn past(mut self) -> Self {
        for level in &mut self.levels {
            *level = Level { backlog_bytes: 0, backlog_messages: 0, unfinished: 0, ..*level };
        }
        Self {
            levels: self.levels,
            missed: self.missed,
            unreliable_dropped: self.unreliable_dropped,
            stops: self.stops,
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            lost: self.lost,
            transitions: self.transitions,
            in_mode: self.in_mode,
            ..Self::default()
        }
    }
}

impl Group {
    /// Removes ended connections, and keeps their sums.
    fn settle(&mut self) {
        let mut past = std::mem::take(&mut self.past);
        self.alive.retain(|connection| {
            let over = connection.shared().closed().is_some();
            if over {
                past.add(&connection.stats());
            }
            !over
        });
        self.past = past.past();
        self.after_cleanup = self.alive.len();
    }

    fn sums(&mut self) -> Sums {
        self.settle();
        let mut sums = self.past.clone();
        self.alive.iter().for_each(|connection| sums.add(&connection.stats()));
        sums
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = lock(&self.0);
        f.debug_struct("Metrics")
            .field("connections", &watched.connections.keys())
            .field("endpoints", &watched.endpoints.keys())
            .finish()
    }
}

impl Metrics {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a connection to the sums of this name until it has ended. Use few names, and none
    /// chosen by a peer.
    pub fn watch(&self, name: &str, connection: &Connection) {
        let mut watched = lock(&self.0);
        let group = watched.connections.entry(name.to_owned()).or_default();
        group.alive.push(connection.share());
        // Ended connections are removed even if the registry is never read.
        if group.alive.len() > 2 * group.after_cleanup + 16 {
            group.settle();
        }
    }

    /// Adds an endpoint to the sums of this name, also after it has been dropped.
    pub fn watch_endpoint(&self, name: &str, endpoint: &Endpoint) {
        lock(&self.0).endpoints.entry(name.to_owned()).or_default().push(endpoint.observe());
    }

    /// Returns all values in the text format that Prometheus reads.
    pub fn encode(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

/// Family by level: its name, help, type, and value for one level.
type OfLevel = (&'static str, &'static str, MetricType, fn(&Level) -> u64);
/// Family by connection name: its name, help, type, and value of the sums.
type OfAll = (&'static str, &'static str, MetricType, fn(&Sums) -> u64);
type OfEndpoint = (&'static str, &'static str, MetricType, fn(&EndpointStats) -> u64);

const BY_LEVEL: [OfLevel; 9] = [
    ("backlog_bytes", "Bytes queued for sending", MetricType::Gauge, |level| level.backlog_bytes),
    ("backlog_messages", "Messages queued for sending", MetricType::Gauge, |level| level.backlog_messages),
    ("sent_bytes", "Bytes handed to the engine", MetricType::Counter, |level| level.sent_bytes),
    ("sent_messages", "Messages handed to the engine", MetricType::Counter, |level| level.sent_messages),
    ("unfinished_messages", "Messages not delivered yet", MetricType::Gauge, |level| level.unfinished),
    ("expired_messages", "Messages whose lifetime ended first", MetricType::Counter, |level| level.expired),
    ("dropped_messages", "Messages cancelled, discarded or shed", MetricType::Counter, |level| level.dropped),
    ("received_bytes", "Payload received", MetricType::Counter, |level| level.received_bytes),
    ("received_messages", "Messages completed", MetricType::Counter, |level| level.received_messages),
];

const OF_ALL: [OfAll; 14] = [
    ("connections", "Connections", MetricType::Gauge, |sums| sums.connections),
    ("missed_messages", "Messages given up by the peer", MetricType::Counter, |sums| sums.missed),
    (
        "unreliable_dropped",
        "Unreliable messages that the application did not take",
        MetricType::Counter,
        |sums| sums.unreliable_dropped,
    ),
    ("read_stops", "Times that reading stopped for the application", MetricType::Counter, |sums| sums.stops),
    ("lane_packets", "Packets sent", MetricType::Counter, |sums| sums.sent_packets),
    ("lane_bytes", "Bytes sent, headers included", MetricType::Counter, |sums| sums.sent_bytes),
    ("lane_lost_packets", "Packets lost", MetricType::Counter, |sums| sums.lost),
    ("lanes", "Lanes that carry data", MetricType::Gauge, |sums| sums.usable),
    ("lane_backlog_bytes", "Bytes handed over but not sent", MetricType::Gauge, |sums| sums.backlog),
    ("lane_cwnd_bytes", "Congestion windows", MetricType::Gauge, |sums| sums.cwnd),
    ("lane_in_flight_bytes", "Bytes in flight", MetricType::Gauge, |sums| sums.in_flight),
    ("coupled_connections", "Connections in which coupled mode acts", MetricType::Gauge, |sums| sums.coupled),
    ("coupled_transitions", "Changes of the mode of coupled mode", MetricType::Counter, |sums| {
        sums.transitions
    }),
    ("coupled_cap_bytes", "Bounds of coupled mode on bytes in flight", MetricType::Gauge, |sums| sums.cap),
];

const OF_ENDPOINTS: [OfEndpoint; 13] = [
    ("endpoint_connections", "Open connections", MetricType::Gauge, |stats| stats.connections as u64),
    ("endpoint_handshakes", "Handshakes in progress", MetricType::Gauge, |stats| stats.handshakes as u64),
    ("endpoint_waiting", "Peers waiting for their handshake", MetricType::Gauge, |stats| {
        stats.waiting as u64
    }),
    ("endpoint_held_bytes", "Bytes of received data held", MetricType::Gauge, |stats| stats.held.get()),
    ("endpoint_accepted", "Peers accepted", MetricType::Counter, |stats| stats.accepted),
    ("endpoint_refused", "Peers refused because a limit was reached", MetricType::Counter, |stats| {
        stats.refused
    }),
    (
        "endpoint_crowded",
        "Peers refused because of other handshakes of their address",
        MetricType::Counter,
        |stats| stats.crowded,
    ),
    ("endpoint_retried", "Peers asked to prove their address", MetricType::Counter, |stats| stats.retried),
    ("endpoint_failed", "Failed handshakes", MetricType::Counter, |stats| stats.failed),
    ("endpoint_stray", "Datagrams of no connection", MetricType::Counter, |stats| stats.stray),
    ("endpoint_discarded", "Batches discarded at a full socket", MetricType::Counter, |stats| {
        stats.discarded
    }),
    ("endpoint_handed_over", "Datagrams that a driver handed to another", MetricType::Counter, |stats| {
        stats.handed_over
    }),
    ("endpoint_overrun", "Datagrams discarded instead of being handed over", MetricType::Counter, |stats| {
        stats.overrun
    }),
];

/// Writes one family: its values, each with its labels.
fn family<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, kind): (&str, &str, MetricType),
    values: impl Iterator<Item = (Vec<(&'a str, String)>, u64)>,
) -> fmt::Result {
    let name = format!("marcato_{name}");
    let mut metric = encoder.encode_descriptor(&name, help, None, kind)?;
    for (labels, value) in values {
        let mut one = metric.encode_family(&labels)?;
        match kind {
            MetricType::Counter => one.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
            _ => one.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))?,
        }
    }
    Ok(())
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (sums, endpoints) = {
            let mut watched = lock(&self.0);
            let groups = watched.connections.iter_mut();
            let sums: Vec<_> = groups.map(|(name, group)| (name.clone(), group.sums())).collect();
            let endpoints: Vec<_> =
                watched.endpoints.iter().map(|(name, all)| (name.clone(), all.clone())).collect();
            (sums, endpoints)
        };
        for (name, help, kind, value) in BY_LEVEL {
            let of = |(group, sums): &(String, Sums)| {
                let of = |(level, priority): (&Level, Priority)| {
                    let labels = vec![("connection", group.clone()), ("priority", priority.to_string())];
                    (labels, value(level))
                };
                sums.levels.iter().zip(Priority::ALL).map(of).collect::<Vec<_>>()
            };
            family(&mut encoder, (name, help, kind), sums.iter().flat_map(of))?;
        }
        for (name, help, kind, value) in OF_ALL {
            let of = |(group, sums): &(String, Sums)| (vec![("connection", group.clone())], value(sums));
            family(&mut encoder, (name, help, kind), sums.iter().map(of))?;
        }
        let help = "Smoothed round-trip time of the slowest lane";
        let mut srtt =
            encoder.encode_descriptor("marcato_lane_srtt_seconds", help, None, MetricType::Gauge)?;
        for (group, sums) in &sums {
            srtt.encode_family(&[("connection", group.as_str())])?.encode_gauge(&sums.srtt)?;
        }
        let help = "Time of lanes in each mode of coupled mode";
        let mut in_mode =
            encoder.encode_descriptor("marcato_coupled_seconds", help, None, MetricType::Counter)?;
        for (group, sums) in &sums {
            for (mode, time) in Mode::ALL.into_iter().zip(sums.in_mode) {
                let labels = [("connection", group.as_str()), ("mode", mode.name())];
                in_mode.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&time, None)?;
            }
        }
        for (name, help, kind, value) in OF_ENDPOINTS {
            let of = |(group, endpoints): &(String, Vec<EndpointSource>)| {
                let sum = endpoints.iter().map(|source| value(&source())).sum();
                (vec![("endpoint", group.clone())], sum)
            };
            family(&mut encoder, (name, help, kind), endpoints.iter().map(of))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClientSecurity, Config, Remote, ServerSecurity};
    use crate::engine::Engine;
    use crate::stats::{CoupledStats, LaneStats};
    use marcato_sched::conductor::Tally;

    #[test]
    fn an_empty_registry_has_all_families_and_no_series() {
        let text = Metrics::new().encode();
        assert!(text.contains("# TYPE marcato_sent_bytes counter"), "{text}");
        assert!(text.contains("# TYPE marcato_lane_srtt_seconds gauge"), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
    }

    #[tokio::test]
    async fn ended_connections_leave_a_registry_that_nobody_reads() {
        let config = Config::new(Engine::Tcp);
        let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Endpoint::listen(&config, &[local.into()], &ServerSecurity::Plaintext).await.unwrap();
        let remote = Remote::new(server.local_addrs()[0], ClientSecurity::Plaintext);
        let metrics = Metrics::new();
        for _ in 0..50 {
            let connection = Endpoint::connect(&config, &remote).await.unwrap();
            metrics.watch("clients", &connection);
            connection.abort();
            connection.closed().await;
        }
        let watched = lock(&metrics.0).connections["clients"].alive.len();
        assert!(watched <= 17, "{watched}");
    }

    /// Every source has a number of its own, and two connections double it.
    #[test]
    fn each_series_shows_its_own_counter() {
        let mut next = 0;
        let mut number = || {
            next += 1;
            next
        };
        let mut stats = ConnectionStats::default();
        let mut expected = BTreeMap::new();
        let tally = |messages, bytes| Tally { messages, bytes: Bytes::new(bytes) };
        for priority in Priority::ALL {
            let at = priority.index();
            let level = &mut stats.conducted.levels[at];
            let mut set =
                |name: &str, value: u64| _ = expected.insert(format!("{name} {priority}"), 2 * value);
            level.queued = tally(number(), number());
            set("backlog_messages", level.queued.messages);
            set("backlog_bytes", level.queued.bytes.get());
            level.granted = tally(number(), number());
            set("sent_messages", level.granted.messages);
            set("sent_bytes", level.granted.bytes.get());
            level.expired = tally(number(), 0);
            set("expired_messages", level.expired.messages);
            level.cancelled = tally(number(), 0);
            set("dropped_messages", level.cancelled.messages);
            stats.received.messages[at] = number();
            set("received_messages", stats.received.messages[at]);
            stats.received.level_bytes[at] = Bytes::new(number());
            set("received_bytes", stats.received.level_bytes[at].get());
            stats.unfinished[at] = usize::try_from(number()).unwrap();
            set("unfinished_messages", stats.unfinished[at] as u64);
        }
        let mut set = |name: &str, value: u64| _ = expected.insert(name.to_owned(), 2 * value);
        stats.received.missed = number();
        set("missed_messages", stats.received.missed);
        stats.received.unreliable_dropped = number();
        set("unreliable_dropped", stats.received.unreliable_dropped);
        stats.received.stops = number();
        set("read_stops", stats.received.stops);
        set("connections", 1);
        let mut coupled = CoupledStats {
            mode: Mode::Steady,
            cap: Some(Bytes::new(number())),
            counters: Default::default(),
            looks: 0,
        };
        coupled.counters.transitions = number();
        set("coupled_connections", 1);
        set("coupled_transitions", coupled.counters.transitions);
        set("coupled_cap_bytes", coupled.cap.unwrap().get());
        stats.coupled = Some(coupled);
        let lane = LaneStats {
            id: marcato_sched::lane::LaneId::FIRST,
            local: None,
            remote: None,
            layer: marcato_units::Layer::High,
            usable: true,
            srtt: marcato_units::Duration::from_millis(7),
            latest_rtt: None,
            least_rtt: None,
            mtu: Bytes::new(1452),
            reductions: 0,
            timeouts: 0,
            cwnd: Bytes::new(number()),
            in_flight: Bytes::new(number()),
            backlog: Bytes::new(number()),
            sent: number(),
            sent_bytes: Bytes::new(number()),
            lost: number(),
            coupled: Some(coupled),
        };
        set("lanes", 1);
        set("lane_cwnd_bytes", lane.cwnd.get());
        set("lane_in_flight_bytes", lane.in_flight.get());
        set("lane_backlog_bytes", lane.backlog.get());
        set("lane_packets", lane.sent);
        set("lane_bytes", lane.sent_bytes.get());
        set("lane_lost_packets", lane.lost);
        stats.lanes = vec![lane];

        let mut sums = Sums::default();
        sums.add(&stats);
        sums.add(&stats);
        assert!((sums.srtt - 0.007).abs() < 1e-9);
        let mut shown = BTreeMap::new();
        for (name, _, _, value) in BY_LEVEL {
            for (level, priority) in sums.levels.iter().zip(Priority::ALL) {
                shown.insert(format!("{name} {priority}"), value(level));
            }
        }
        shown.extend(OF_ALL.map(|(name, _, _, value)| (name.to_owned(), value(&sums))));
        assert_eq!(shown, expected);
    }

    #[test]
    fn each_series_of_an_endpoint_shows_its_own_counter() {
        let stats = EndpointStats {
            connections: 1,
            handshakes: 2,
            waiting: 3,
            held: Bytes::new(4),
            accepted: 5,
            refused: 6,
            crowded: 7,
            retried: 8,
            failed: 9,
            stray: 10,
            discarded: 11,
            handed_over: 12,
            overrun: 13,
        };
        let expected = [
            "connections",
            "handshakes",
            "waiting",
            "held_bytes",
            "accepted",
            "refused",
            "crowded",
            "retried",
            "failed",
            "stray",
            "discarded",
            "handed_over",
            "overrun",
        ];
        let shown = OF_ENDPOINTS.map(|(name, _, _, value)| (name.to_owned(), value(&stats)));
        assert_eq!(shown, std::array::from_fn(|at| (format!("endpoint_{}", expected[at]), at as u64 + 1)));
    }

    #[test]
    fn counters_include_ended_connections_and_gauges_do_not() {
        let mut sums = Sums { connections: 1, usable: 2, srtt: 0.1, lost: 7, ..Sums::default() };
        (sums.coupled, sums.cap, sums.transitions, sums.in_mode[1]) = (1, 9000, 3, 2.5);
        sums.levels[0] = Level { backlog_bytes: 5, sent_bytes: 9, unfinished: 1, ..Level::default() };
        let mut counted = Sums { lost: 7, transitions: 3, ..Sums::default() };
        counted.in_mode[1] = 2.5;
        counted.levels[0] = Level { sent_bytes: 9, ..Level::default() };
        assert_eq!(sums.past(), counted);
    }
}
