//! How a connection is, and what it has done.

use std::fmt::Write as _;
use std::net::SocketAddr;

use marcato_sched::conductor::Counters;
use marcato_units::{Bytes, Duration, Layer, Priority};

use crate::inbound::InboundCounters;

/// A snapshot of a connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectionStats {
    /// Its lanes; over TCP one.
    pub lanes: Vec<LaneStats>,
    /// What passed through the Conductor, level by level.
    pub conducted: Counters,
    /// Messages that have not been delivered, level by level.
    pub unfinished: [usize; Priority::COUNT],
    /// What has come in.
    pub received: InboundCounters,
}

/// A snapshot of a lane. What the engine does not tell is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneStats {
    /// Our address; `None` if the engine does not tell.
    pub local: Option<SocketAddr>,
    /// The peer's; `None` if the engine does not tell.
    pub remote: Option<SocketAddr>,
    /// In which class the network is to serve it.
    pub layer: Layer,
    /// Whether it carries data now.
    pub usable: bool,
    /// The smoothed round-trip time.
    pub srtt: Duration,
    /// The congestion window.
    pub cwnd: Bytes,
    /// How much of it is taken.
    pub in_flight: Bytes,
    /// What the engine has taken and never sent.
    pub unsent: Bytes,
    /// Packets that were sent.
    pub packets: u64,
    /// Packets that were lost; over TCP, those sent again.
    pub lost: u64,
}

impl ConnectionStats {
    /// The counters in the text format that Prometheus reads, each line with these labels (`peer="a",role="b"`; may be
    /// empty).
    ///
    /// ```
    /// let text = marcato_net::ConnectionStats::default().to_prometheus(r#"peer="printer""#);
    /// assert!(text.contains(r#"marcato_queued_bytes{peer="printer",priority="P0"} 0"#));
    /// ```
    pub fn to_prometheus(&self, labels: &str) -> String {
        let mut out = String::new();
        let comma = if labels.is_empty() { "" } else { "," };
        let mut family = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
            // Writing to a string does not fail.
            let _ = writeln!(out, "# HELP marcato_{name} {help}\n# TYPE marcato_{name} {kind}");
            for (label, value) in values {
                let comma = if label.is_empty() { "" } else { comma };
                let _ = writeln!(out, "marcato_{name}{{{labels}{comma}{label}}} {value}");
            }
        };
        let levels = |value: &dyn Fn(Priority) -> u64| -> Vec<(String, u64)> {
            Priority::ALL.iter().map(|&level| (format!("priority=\"{level}\""), value(level))).collect()
        };
        let level = |p: Priority| self.conducted.level(p);
        let (gauge, counter) = ("gauge", "counter");
        family(
            "queued_bytes",
            gauge,
            "Bytes that wait to be sent.",
            &levels(&|p| level(p).queued.bytes.get()),
        );
        family(
            "queued_messages",
            gauge,
            "Messages that wait to be sent.",
            &levels(&|p| level(p).queued.messages),
        );
        family(
            "sent_bytes_total",
            counter,
            "Bytes handed to the engine.",
            &levels(&|p| level(p).granted.bytes.get()),
        );
        family(
            "sent_messages_total",
            counter,
            "Messages handed to the engine.",
            &levels(&|p| level(p).granted.messages),
        );
        family(
            "expired_messages_total",
            counter,
            "Messages whose lifetime ended first.",
            &levels(&|p| level(p).expired.messages),
        );
        family(
            "shed_messages_total",
            counter,
            "Messages shed under congestion.",
            &levels(&|p| level(p).shed.messages),
        );
        family(
            "unfinished_messages",
            gauge,
            "Messages not delivered yet.",
            &levels(&|p| self.unfinished[p.index()] as u64),
        );
        family(
            "received_messages_total",
            counter,
            "Messages that became complete.",
            &levels(&|p| self.received.messages[p.index()]),
        );
        let one = |value: u64| vec![(String::new(), value)];
        family("received_bytes_total", counter, "Payload received.", &one(self.received.bytes.get()));
        family(
            "missed_messages_total",
            counter,
            "Messages that the peer gave up.",
            &one(self.received.missed),
        );
        family(
            "read_stops_total",
            counter,
            "Times that reading stopped for the application.",
            &one(self.received.stops),
        );
        let lanes = |value: &dyn Fn(&LaneStats) -> u64| -> Vec<(String, u64)> {
            let label = |(at, lane): (usize, &LaneStats)| (format!("lane=\"{at}\""), value(lane));
            self.lanes.iter().enumerate().map(label).collect()
        };
        let micros = |lane: &LaneStats| u64::try_from(lane.srtt.as_micros()).unwrap_or(u64::MAX);
        family("lane_srtt_microseconds", gauge, "Smoothed round-trip time.", &lanes(&micros));
        family("lane_cwnd_bytes", gauge, "Congestion window.", &lanes(&|lane| lane.cwnd.get()));
        family("lane_in_flight_bytes", gauge, "Bytes under way.", &lanes(&|lane| lane.in_flight.get()));
        family(
            "lane_unsent_bytes",
            gauge,
            "Bytes that the engine has not sent.",
            &lanes(&|lane| lane.unsent.get()),
        );
        family("lane_packets_total", counter, "Packets sent.", &lanes(&|lane| lane.packets));
        family("lane_lost_total", counter, "Packets lost.", &lanes(&|lane| lane.lost));
        out
    }
}
