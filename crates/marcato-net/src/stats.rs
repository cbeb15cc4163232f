//! How a connection is, and what it has done.

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
    /// Messages that were taken back, discarded, shed or evicted for more urgent ones.
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
            dropped: [level.cancelled, level.discarded, level.shed, level.evicted]
                .iter()
                .map(|gone| gone.messages)
                .sum(),
            received: Tally { messages: self.received.messages[at], bytes: self.received.level_bytes[at] },
        }
    }
}
