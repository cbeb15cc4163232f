//! Flows that come and go while the network runs.

use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Stream, Time};

use crate::distribution::{Distribution, DistributionError};
use crate::packet::Side;
use crate::route::Path;
use crate::tally::FlowTally;
use crate::tcp::{TcpConfig, TcpConfigError};
use crate::topology::{NodeId, RouteError};

/// Names a process of a [`Network`](crate::Network).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) u32);

/// When the flows of a process begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowArrivals {
    /// As a Poisson process of so many flows per second on average.
    PerSecond(f64),
    /// As a Poisson process whose flows together have so much to send on average: a share of a link's rate for an
    /// offered load. Only what applications write counts, no headers and no retransmissions.
    Offering(Rate),
    /// With gaps between one beginning and the next that are distributed so. The first flow begins after a gap too.
    Gaps(Distribution<Duration>),
}

/// TCP connections that begin one after the other, each with a handshake of its own, transfer so much, close and are
/// gone, as they shall be.
///
/// How many there have been costs nothing but a [`FlowRecord`] each: what a connection needs is freed when it ends. A
/// flow ends when both ends have closed and know that the other knows it, when a handshake is given up, or on a reset.
///
/// ```
/// use marcato_sim::{Distribution, FlowArrivals, FlowProcess, LinkConfig, Network, TcpConfig};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
/// net.link(client, server, link(), link());
/// let sizes = Distribution::truncated_pareto(1.2, Bytes::kb(25), Bytes::kb(1_000))?;
/// // Half of what the link carries.
/// let arrivals = FlowArrivals::Offering(Rate::from_mbps(5));
/// let web = net.spawn(FlowProcess::new(client, server, TcpConfig::default(), sizes, arrivals))?;
/// net.run_until(Time::from_secs(20));
/// let stats = net.process_stats(web);
/// assert_eq!(stats.spawned, stats.completed + stats.open);
/// assert!(net.flow_records(web).iter().all(|flow| flow.completion() > Some(Duration::from_millis(60))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FlowProcess {
    /// Where the clients live: the ends that open the connections.
    pub client: NodeId,
    /// Where the servers live.
    pub server: NodeId,
    /// How the clients' TCP behaves.
    pub client_config: TcpConfig,
    /// How the servers' TCP behaves.
    pub server_config: TcpConfig,
    /// Which end has something to send. The server begins when its half of the handshake is done.
    pub sender: Side,
    /// How much each flow transfers; 0 counts as 1 byte.
    pub sizes: Distribution<Bytes>,
    /// When they begin.
    pub arrivals: FlowArrivals,
    /// From when on flows begin.
    pub start: Time,
    /// From when on no flow begins.
    pub stop: Time,
    /// How many flows there are at most.
    pub most_flows: u64,
    /// How many may be open at once. A flow that would be one too many is refused, and counted.
    pub most_at_once: u64,
    /// Of how many flows the record is kept; those after are only counted.
    pub most_records: usize,
    /// The priority of what they transfer.
    pub priority: Priority,
    /// The class in which the network serves the flows.
    pub layer: Layer,
}

impl FlowProcess {
    /// Flows whose clients send from time zero and without end, at most 10 000 at once. Records are kept of 16 million.
    pub fn new(
        client: NodeId,
        server: NodeId,
        config: TcpConfig,
        sizes: Distribution<Bytes>,
        arrivals: FlowArrivals,
    ) -> Self {
        Self {
            client,
            server,
            client_config: config.clone(),
            server_config: config,
            sender: Side::Client,
            sizes,
            arrivals,
            start: Time::ZERO,
            stop: Time::MAX,
            most_flows: u64::MAX,
            most_at_once: 10_000,
            most_records: 16_000_000,
            priority: Priority::default(),
            layer: Layer::High,
        }
    }

    /// From `start` on.
    #[must_use]
    pub fn start(self, start: Time) -> Self {
        Self { start, ..self }
    }

    /// Until `stop`.
    #[must_use]
    pub fn stop(self, stop: Time) -> Self {
        Self { stop, ..self }
    }

    /// With data from this end.
    #[must_use]
    pub fn sender(self, sender: Side) -> Self {
        Self { sender, ..self }
    }

    /// With at most so many flows open.
    #[must_use]
    pub fn most_at_once(self, most_at_once: u64) -> Self {
        Self { most_at_once, ..self }
    }

    /// The distribution of the gaps between beginnings.
    pub(crate) fn gaps(&self) -> Result<Distribution<Duration>, SpawnError> {
        let mean = match self.arrivals {
            FlowArrivals::Gaps(gaps) if gaps.mean() > 0.0 => return Ok(gaps),
            FlowArrivals::Gaps(_) => return Err(SpawnError::Arrivals),
            FlowArrivals::PerSecond(rate) => 1.0 / rate,
            FlowArrivals::Offering(rate) => self.sizes.mean() * 8.0 / rate.as_bps() as f64,
        };
        // A century, far beyond any run, so that the span can be told.
        if !(mean > 0.0 && mean < 3.2e9) {
            return Err(SpawnError::Arrivals);
        }
        Ok(Distribution::exponential(Duration::from_secs_f64(mean))?)
    }
}

/// Why a process cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// No route leads from one end to the other.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// An end of TCP cannot be configured so.
    #[error("tcp cannot be configured so: {0}")]
    Config(#[from] TcpConfigError),
    /// Flows would never begin, or all at once.
    #[error("flows need a rate above 0, or gaps with a mean above 0 and below a century")]
    Arrivals,
    /// The gaps are too short for a nanosecond.
    #[error("flows cannot begin so: {0}")]
    Gaps(#[from] DistributionError),
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowOutcome {
    /// All its bytes have arrived and both ends have closed.
    Completed,
    /// The handshake was given up.
    Failed,
    /// An end has reset it.
    Reset,
    /// It has not ended yet.
    Open,
}

/// What is known of a flow of a [`FlowProcess`]: 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    pub(crate) start: Time,
    // `Time::MAX` is never: half the size of an `Option`.
    pub(crate) first_sent: Time,
    pub(crate) first_received: Time,
    pub(crate) last_received: Time,
    pub(crate) size: Bytes,
    pub(crate) received: Bytes,
    pub(crate) number: u32,
    pub(crate) retransmissions: u32,
    pub(crate) timeouts: u32,
    pub(crate) outcome: FlowOutcome,
}

fn known(time: Time) -> Option<Time> {
    (time != Time::MAX).then_some(time)
}

impl FlowRecord {
    /// Which flow of its process it is: they are counted from 0 as they begin, refused ones included.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How it ended.
    pub fn outcome(&self) -> FlowOutcome {
        self.outcome
    }

    /// When its client opened the connection.
    pub fn start(&self) -> Time {
        self.start
    }

    /// When the first segment with data left its sender.
    pub fn first_sent_at(&self) -> Option<Time> {
        known(self.first_sent)
    }

    /// When the first byte reached the other end's application.
    pub fn first_received_at(&self) -> Option<Time> {
        known(self.first_received)
    }

    /// When the latest byte did.
    pub fn last_received_at(&self) -> Option<Time> {
        known(self.last_received)
    }

    /// How much it has to transfer.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// How much of that has arrived.
    pub fn received(&self) -> Bytes {
        self.received
    }

    /// Segments that its sender sent again.
    pub fn retransmissions(&self) -> u32 {
        self.retransmissions
    }

    /// Expiries of its sender's retransmission timer.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// From its start to the arrival of its last byte, handshake included; `None` if it was not completed.
    pub fn completion(&self) -> Option<Duration> {
        (self.outcome == FlowOutcome::Completed).then(|| self.last_received - self.start)
    }
}

/// What a process has done so far. At every moment `spawned = completed + failed + reset + open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Flows begun.
    pub spawned: u64,
    /// Flows that would have been one too many at once, and never began.
    pub refused: u64,
    /// Flows whose bytes have all arrived and whose ends have both closed.
    pub completed: u64,
    /// Flows whose handshake was given up.
    pub failed: u64,
    /// Flows that an end has reset.
    pub reset: u64,
    /// Flows that are open.
    pub open: u64,
    /// Most that were open at once.
    pub most_open: u64,
    /// Flows that have ended and whose record was not kept.
    pub unrecorded: u64,
    /// What the clients of flows that are gone sent, and what became of it.
    pub from_clients: FlowTally,
    /// What their servers sent.
    pub from_servers: FlowTally,
}

/// A [`FlowProcess`] under way.
pub(crate) struct Process {
    pub(crate) config: FlowProcess,
    /// By which the random streams of its flows are called.
    pub(crate) name: String,
    pub(crate) gaps: Distribution<Duration>,
    pub(crate) path: Path,
    pub(crate) arrivals: Stream,
    pub(crate) sizes: Stream,
    /// Flows that have come, refused ones included.
    pub(crate) arrived: u64,
    pub(crate) stats: ProcessStats,
    pub(crate) records: Vec<FlowRecord>,
}

impl Process {
    /// A flow has ended.
    pub(crate) fn note(&mut self, record: FlowRecord) {
        self.stats.open -= 1;
        match record.outcome {
            FlowOutcome::Completed => self.stats.completed += 1,
            FlowOutcome::Failed => self.stats.failed += 1,
            FlowOutcome::Reset => self.stats.reset += 1,
            FlowOutcome::Open => {}
        }
        if self.records.len() < self.config.most_records {
            self.records.push(record);
        } else {
            self.stats.unrecorded += 1;
        }
    }
}

/// Which flow of which process a flow is.
#[derive(Clone, Copy)]
pub(crate) struct Spawned {
    pub(crate) process: u32,
    pub(crate) number: u32,
    pub(crate) size: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_small_as_it_says() {
        assert_eq!(size_of::<FlowRecord>(), 64);
    }
}
