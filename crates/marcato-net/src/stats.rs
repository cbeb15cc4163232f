//! State and counters of connections and endpoints.

use std::net::SocketAddr;

use marcato_sched::conductor::{Counters, Tally};
use marcato_sched::coupled::{Counters as GovernorCounters, Mode};
use marcato_sched::lane::LaneId;
use marcato_stream::InboundCounters;
use marcato_units::{Bytes, Duration, Layer, Priority};

/// Snapshot of a connection; after its end, its last state.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Lanes; over TCP one.
    pub lanes: Vec<LaneStats>,
    /// Counters of the Conductor, by level.
    pub conducted: Counters,
    /// Parts of long messages among the messages granted in [`conducted`](Self::conducted), except
    /// last parts, by level.
    pub parts: [u64; Priority::COUNT],
    /// Messages that have not been delivered, by level.
    pub unfinished: [usize; Priority::COUNT],
    /// Early messages sent.
    pub early: EarlyStats,
    /// Counters of received data.
    pub received: InboundCounters,
    /// State of [coupled mode](crate::Coupling) on the first lane on which it acts; `None` until
    /// then. With several lanes, each has [its own](LaneStats::coupled).
    pub coupled: Option<CoupledStats>,
}

/// Snapshot of the coupled mode of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoupledStats {
    /// Mode of the governor.
    pub mode: Mode,
    /// Bound on the bytes in flight while only background data waits; `None` if there is none.
    pub cap: Option<Bytes>,
    /// Counters since coupled mode acts: changes of the mode, and the time in each. Over QUIC they
    /// begin anew when the lane's address changes.
    pub counters: GovernorCounters,
    /// Times that the connection looked for acknowledgements because data was held back. QUIC is
    /// told of them, so there it is zero.
    pub looks: u64,
}

/// Counters of the messages that a client has sent before its handshake was complete. Only over
/// QUIC, with [`Endpoint::connect_early`](crate::Endpoint::connect_early).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EarlyStats {
    /// Messages of which something was sent early.
    pub sent: u64,
    /// Messages that the server has accepted as early.
    pub accepted: u64,
    /// Messages that the server has rejected as early, and that were sent again after the
    /// handshake.
    pub rejected: u64,
}

/// Snapshot of a lane. Values that the engine does not report are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStats {
    /// Identifier within the connection.
    pub id: LaneId,
    /// Local address; `None` if the engine does not report it.
    pub local: Option<SocketAddr>,
    /// Remote address; `None` if the engine does not report it.
    pub remote: Option<SocketAddr>,
    /// Class in which the network should serve it.
    pub layer: Layer,
    /// Set if it carries data now.
    pub usable: bool,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Latest round-trip time; `None` if the engine does not report it, as over TCP.
    pub latest_rtt: Option<Duration>,
    /// Least round-trip time; `None` before the first measurement.
    pub least_rtt: Option<Duration>,
    /// Bytes of the largest packet: the payload of UDP over QUIC, that of a full segment over TCP.
    pub mtu: Bytes,
    /// Times that the congestion control has reduced its window; zero over TCP, where Linux does not tell.
    pub reductions: u64,
    /// Expiries of the retransmission timer; zero over QUIC, and before Linux 6.7.
    pub timeouts: u64,
    /// Congestion window in bytes.
    pub cwnd: Bytes,
    /// Bytes in flight that count against the window.
    pub in_flight: Bytes,
    /// Bytes handed over and not sent. Over TCP these are the bytes that the kernel has not sent.
    /// Over QUIC it is the content of the lane's UDP socket, with the kernel's overhead, for all
    /// connections that use the socket.
    pub backlog: Bytes,
    /// Data packets sent, including retransmissions.
    pub sent: u64,
    /// Bytes of these packets.
    pub sent_bytes: Bytes,
    /// Packets lost; over TCP, packets retransmitted.
    pub lost: u64,
    /// State of [coupled mode](crate::Coupling); `None` until it acts. Lanes of the low layer never
    /// have it: urgent data does not meet their queue.
    pub coupled: Option<CoupledStats>,
}

impl LaneStats {
    /// Returns the share of packets that were lost, 0 to 1; 0 if none was sent.
    pub fn loss(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

/// Outcomes of the messages of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Messages and bytes queued.
    pub backlog: Tally,
    /// Messages and bytes handed to the engine.
    pub sent: Tally,
    /// Messages that have not been delivered.
    pub unfinished: usize,
    /// Messages whose lifetime ended before they were sent.
    pub expired: u64,
    /// Messages that were cancelled, discarded, shed or evicted for more urgent ones.
    pub dropped: u64,
    /// Messages completely received and bytes received.
    pub received: Tally,
}

impl ConnectionStats {
    /// Returns the outcomes of the messages of `priority`.
    pub fn level(&self, priority: Priority) -> LevelStats {
        let level = self.conducted.level(priority);
        let at = priority.index();
        LevelStats {
            backlog: level.queued,
            // A message that was handed over part by part counts once, with its last part.
            sent: Tally { messages: level.granted.messages.saturating_sub(self.parts[at]), ..level.granted },
            unfinished: self.unfinished[at],
            expired: level.expired.messages,
            dropped: [level.cancelled, level.discarded, level.shed, level.evicted]
                .iter()
                .map(|gone| gone.messages)
                .sum(),
            received: Tally { messages: self.received.messages[at], bytes: self.received.level_bytes[at] },
        }
    }
}

/// Counters and current load of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Current connections.
    pub connections: usize,
    /// Handshakes in progress.
    pub handshakes: usize,
    /// Peers that wait for their turn: for handshakes of others of their address to end, and over QUIC for
    /// [`accept`](crate::Endpoint::accept) too.
    pub waiting: usize,
    /// Bytes of received data that the connections hold.
    pub held: Bytes,
    /// Peers accepted.
    pub accepted: u64,
    /// Peers refused because of the limit of connections, or because the application accepted none.
    pub refused: u64,
    /// Peers refused because too many of their address were in their handshake, or waited for it.
    pub crowded: u64,
    /// Peers asked to prove that they receive packets at their address. Only over QUIC.
    pub retried: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Datagrams that belonged to no connection and began none. Only over QUIC.
    pub stray: u64,
    /// Batches of datagrams discarded because their socket stayed full. Only over QUIC.
    pub discarded: u64,
    /// Datagrams that one [driver](crate::QuicConfig::drivers) received and handed to that of their
    /// connection. None are while the kernel gives each to the right one. Only over QUIC.
    pub handed_over: u64,
    /// Datagrams discarded instead of being handed over, because too many waited. Only over QUIC.
    pub overrun: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_dropped_for_any_reason_counts_as_dropped() {
        let mut stats = ConnectionStats::default();
        let level = &mut stats.conducted.levels[Priority::P3.index()];
        let tallies = [&mut level.cancelled, &mut level.discarded, &mut level.shed, &mut level.evicted];
        for (messages, tally) in [1, 20, 300, 4000].into_iter().zip(tallies) {
            tally.messages = messages;
        }
        level.expired.messages = 7;
        let of = Priority::ALL.map(|priority| stats.level(priority).dropped);
        assert_eq!((of, stats.level(Priority::P3).expired), ([0, 0, 0, 4321, 0], 7));
    }
}
