//! Values that the CWR paper prints, and the setting of its measurements.

use core::fmt;
use core::time::Duration;

use marcato_units::{Bytes, Rate};

/// Transmission rate of each path (§IV-A).
pub const RATE: Rate = Rate::from_mbps(100);
/// Share of packets that each path loses (§IV-A: 0.05 %).
pub const LOSS: f64 = 0.000_5;
/// Longest packet. A window grows by this for each window of acknowledged bytes (§IV-B).
pub const PACKET: Bytes = Bytes::new(1350);
/// Round-trip times of both paths in the experiments with one source (§IV-B) and the first with
/// three (§IV-C1).
pub const SAME_RTT: [Duration; 2] = [Duration::from_millis(50); 2];
/// Round-trip times of both paths in the other experiments with three sources (§IV-C2).
pub const DIFFERENT_RTTS: [[Duration; 2]; 2] = [
    [Duration::from_millis(50), Duration::from_millis(100)],
    [Duration::from_millis(20), Duration::from_millis(100)],
];
/// Least completion time of a message with a lost and retransmitted packet, in round-trip times
/// (§IV-B).
pub const REPAIRED_RTTS: f64 = 1.625;
/// Least completion time of such a message with a round trip of 50 ms (§IV-B).
pub const REPAIRED: Duration = Duration::from_micros(81_250);

/// Path schedulers that the paper compares (§IV).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheduler {
    /// The path of the lowest round-trip time with room, for all data alike.
    LowRtt,
    /// Congestion window reservation, on one path for each message.
    Cwr,
    /// Congestion window reservation on every path, with urgent messages sent on all of them.
    CwrRed,
}

impl Scheduler {
    /// All schedulers, in the order of the paper.
    pub const ALL: [Self; 3] = [Self::LowRtt, Self::Cwr, Self::CwrRed];

    /// Name of the scheduler in the paper.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowRtt => "LowRTT",
            Self::Cwr => "CWR",
            Self::CwrRed => "CWR+RED",
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A source of urgent messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Periodic {
    /// Time between two messages: the paper's inter-arrival time.
    pub period: Duration,
    /// Length of each message.
    pub size: Bytes,
}

const fn every(millis: u64, kilobytes: u64) -> Periodic {
    Periodic { period: Duration::from_millis(millis), size: Bytes::kb(kilobytes) }
}

/// A row of Table I.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Growth {
    /// Source of urgent messages, the only one in its run.
    pub source: Periodic,
    /// Path scheduler of the run.
    pub scheduler: Scheduler,
    /// Mean growth of the first and of the second path's window per round trip in congestion
    /// avoidance.
    pub per_rtt: [Bytes; 2],
}

const fn row(source: Periodic, scheduler: Scheduler, first: u64, second: u64) -> Growth {
    Growth { source, scheduler, per_rtt: [Bytes::new(first), Bytes::new(second)] }
}

/// Table I: mean growth of the congestion windows per round trip (50 ms), in bytes.
pub const TABLE_1: [Growth; 18] = {
    use Scheduler::{Cwr, CwrRed, LowRtt};
    [
        row(every(50, 10), LowRtt, 1342, 1340),
        row(every(50, 10), Cwr, 1264, 1263),
        row(every(50, 10), CwrRed, 1190, 1189),
        row(every(50, 25), LowRtt, 1333, 1334),
        row(every(50, 25), Cwr, 1175, 1246),
        row(every(50, 25), CwrRed, 969, 972),
        row(every(50, 50), LowRtt, 1336, 1350),
        row(every(50, 50), Cwr, 1111, 1102),
        row(every(50, 50), CwrRed, 738, 771),
        row(every(100, 10), LowRtt, 1346, 1354),
        row(every(100, 10), Cwr, 1294, 1318),
        row(every(100, 10), CwrRed, 1289, 1306),
        row(every(100, 25), LowRtt, 1334, 1345),
        row(every(100, 25), Cwr, 1288, 1254),
        row(every(100, 25), CwrRed, 1183, 1200),
        row(every(100, 50), LowRtt, 1332, 1335),
        row(every(100, 50), Cwr, 1149, 1183),
        row(every(100, 50), CwrRed, 1048, 1033),
    ]
};

/// Table II: sources S1 to S3 of the experiments with three of them.
pub const TABLE_2: [Periodic; 3] = [every(100, 10), every(70, 7), every(135, 5)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_1_has_every_scheduler_with_every_source_once() {
        let mut rows = TABLE_1.iter();
        for (period, size) in [(50, 10), (50, 25), (50, 50), (100, 10), (100, 25), (100, 50)] {
            for scheduler in Scheduler::ALL {
                let row = rows.next().unwrap();
                assert_eq!((row.source, row.scheduler), (every(period, size), scheduler));
            }
        }
        assert_eq!(rows.next(), None);
    }

    #[test]
    fn statements_of_the_paper_follow_from_its_table() {
        // §IV-B: LowRTT comes close to a packet per round trip, a reservation costs growth,
        // redundancy costs more.
        for rows in TABLE_1.chunks(3) {
            let [low_rtt, cwr, red] = [0, 1, 2].map(|at| rows[at].per_rtt);
            assert!(low_rtt.iter().all(|growth| growth.get().abs_diff(PACKET.get()) <= 18));
            assert!((0..2).all(|path| red[path] < cwr[path] && cwr[path] < low_rtt[path]));
        }
        assert_eq!(REPAIRED, SAME_RTT[0].mul_f64(REPAIRED_RTTS));
    }
}
