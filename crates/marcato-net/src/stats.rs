//! How a connection is, and what it has done.

use std::fmt::Write as _;
use std::net::SocketAddr;

use marcato_sched::conductor::{Counters, Tally};
use marcato_sched::lane::LaneId;
use marcato_units::{Bytes, Duration, Layer, Priority};

use crate::inbound::InboundCounters;

/// A snapshot of a connection; after its end, how it was then.
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
    /// Its name within the connection.
    pub id: LaneId,
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
    /// What has been handed over and never left: over TCP, the bytes that the kernel has not sent; over QUIC, what the
    /// lane's UDP socket holds, with the kernel's overhead and that of all connections which use it.
    pub backlog: Bytes,
    /// Packets with data that were sent, those sent again included.
    pub sent: u64,
    /// And their bytes.
    pub sent_bytes: Bytes,
    /// Packets that were lost; over TCP, those sent again.
    pub lost: u64,
}

impl LaneStats {
    /// Which part of what was sent was lost, 0 to 1; 0 if nothing was sent.
    pub fn loss(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

/// What has become of the messages of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// What waits to be sent.
    pub backlog: Tally,
    /// What has been handed to the engine.
    pub sent: Tally,
    /// Messages that have not been delivered.
    pub unfinished: usize,
    /// Messages whose lifetime ended before they were sent.
    pub expired: u64,
    /// Messages that were taken back, discarded or shed.
    pub dropped: u64,
    /// What has come in at this level: messages that are complete, and all bytes.
    pub received: Tally,
}

impl ConnectionStats {
    /// What has become of the messages of `priority`.
    pub fn level(&self, priority: Priority) -> LevelStats {
        let level = self.conducted.level(priority);
        let at = priority.index();
        LevelStats {
            backlog: level.queued,
            sent: level.granted,
            unfinished: self.unfinished[at],
            expired: level.expired.messages,
            dropped: level.cancelled.messages + level.discarded.messages + level.shed.messages,
            received: Tally { messages: self.received.messages[at], bytes: self.received.level_bytes[at] },
        }
    }
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
            let label = |lane: &LaneStats| (format!("lane=\"{}\"", lane.id.index()), value(lane));
            self.lanes.iter().map(label).collect()
        };
        let micros = |lane: &LaneStats| u64::try_from(lane.srtt.as_micros()).unwrap_or(u64::MAX);
        family("lane_srtt_microseconds", gauge, "Smoothed round-trip time.", &lanes(&micros));
        family("lane_cwnd_bytes", gauge, "Congestion window.", &lanes(&|lane| lane.cwnd.get()));
        family("lane_in_flight_bytes", gauge, "Bytes under way.", &lanes(&|lane| lane.in_flight.get()));
        family(
            "lane_backlog_bytes",
            gauge,
            "Bytes handed over that have not left.",
            &lanes(&|lane| lane.backlog.get()),
        );
        family("lane_sent_total", counter, "Packets sent.", &lanes(&|lane| lane.sent));
        family(
            "lane_sent_bytes_total",
            counter,
            "Bytes sent, headers included.",
            &lanes(&|lane| lane.sent_bytes.get()),
        );
        family("lane_lost_total", counter, "Packets lost.", &lanes(&|lane| lane.lost));
        out
    }
}
