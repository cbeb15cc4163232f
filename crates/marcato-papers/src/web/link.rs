//! Links of the web experiments.

use marcato_units::{Bytes, Duration, Rate};

use super::client::STYLE;

/// Payload of a segment with timestamps, and what TCP and IP add to it.
const SEGMENT: u64 = 1448;
const HEADERS: u64 = 20 + 32;
/// Payload of a packet of QUIC of 1452 bytes, and what IP, UDP and QUIC add to it: short header, connection id, packet number, tag, and
/// the head of a frame (RFC 9000 §17.3, §19.8).
const PACKET: u64 = 1452 - QUIC;
const QUIC: u64 = 1 + 8 + 2 + 16 + 9;
const QUIC_HEADERS: u64 = 20 + 8 + QUIC;

/// Scenario of a page that a server sends to a client. `link` has further keys of the link between them.
pub(super) fn scenario(name: &str, seed: u64, link: &str) -> String {
    format!(
        r#"
        name = "{name}"
        duration = "1 s"
        seed = {seed}
        nodes = ["server", "client"]
        [[link]]
        between = ["server", "client"]
        {link}
        [[flow]]
        name = "page"
        kind = "tcp"
        from = "server"
        to = "client"
        "#
    )
}

/// Link with a drop-tail queue, between a server and a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Name in row ids.
    pub(super) name: &'static str,
    pub(super) rate: Rate,
    /// Delay in one direction.
    pub(super) delay: Duration,
    /// Buffer in bandwidth-delay products.
    pub(super) bdp: u64,
}

impl Link {
    /// Links, each measured with two congestion controls.
    pub(super) const ALL: [Self; 3] = [
        Self { name: "2m", rate: Rate::from_mbps(2), delay: Duration::from_millis(50), bdp: 1 },
        Self { name: "2m-10bdp", rate: Rate::from_mbps(2), delay: Duration::from_millis(50), bdp: 10 },
        Self { name: "10m", rate: Rate::from_mbps(10), delay: Duration::from_millis(20), bdp: 1 },
    ];

    /// Links of HTTP/3: those of HTTP/2, and two with longer round trips.
    pub(super) const OF_HTTP3: [Self; 5] = [
        Self::ALL[0],
        Self::ALL[1],
        Self::ALL[2],
        Self { name: "10m-100ms", rate: Rate::from_mbps(10), delay: Duration::from_millis(50), bdp: 1 },
        Self { name: "10m-300ms", rate: Rate::from_mbps(10), delay: Duration::from_millis(150), bdp: 1 },
    ];

    /// Least time over QUIC from the request of the stylesheet to its last byte: a round trip, and its packets.
    pub(super) fn quic_limit(&self) -> Duration {
        let bytes = STYLE + STYLE.div_ceil(PACKET) * QUIC_HEADERS;
        self.delay * 2 + self.rate.transmission_time(Bytes::new(bytes))
    }

    /// Least time from the request of the stylesheet to its last byte: a round trip, and its segments.
    pub(super) fn limit(&self) -> Duration {
        let bytes = STYLE + STYLE.div_ceil(SEGMENT) * HEADERS;
        self.delay * 2 + self.rate.transmission_time(Bytes::new(bytes))
    }

    pub(super) fn scenario(&self, seed: u64) -> String {
        let Self { rate, delay, bdp, .. } = self;
        let queue = rate.bytes_in(*delay * 2).get() * bdp;
        let link = format!(
            r#"
            name = "bottleneck"
            rate = "{} bit/s"
            delay = "{} us"
            queue = {{ kind = "droptail", limit = "{queue} B" }}
            "#,
            rate.as_bps(),
            delay.as_micros(),
        );
        scenario("web", seed, &link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_quic_is_a_round_trip_and_the_packets() {
        // 25 kB in 18 packets of 64 B overhead: 26 152 B, in 104.6 ms.
        assert_eq!(Link::ALL[0].quic_limit(), Duration::from_micros(204_608));
    }

    #[test]
    fn the_limit_is_a_round_trip_and_the_segments_of_the_stylesheet() {
        // 25 kB in 18 segments of 52 B overhead: 25 936 B.
        let limits = Link::ALL.map(|link| link.limit().as_micros());
        assert_eq!(limits, [203_744, 203_744, 60_748]);
    }
}
