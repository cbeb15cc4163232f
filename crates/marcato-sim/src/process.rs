//! Processes of flows that come and go while the network runs.

use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Stream, Time};

use crate::distribution::{Distribution, DistributionError};
use crate::flow::Reception;
use crate::packet::Side;
use crate::tally::FlowTally;
use crate::tcp::{TcpConfigError, TcpEnd, TcpStats};
use crate::topology::{NodeId, RouteError};

/// Identifier of a process in a [`Network`](crate::Network).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) u32);

impl ProcessId {
    /// Creates the identifier with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number, for use as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Arrival process of flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowArrivals {
    /// Poisson process with this mean number of flows per second.
    PerSecond(f64),
    /// Poisson process whose flows together offer this mean load, such as a share of a link's rate.
    /// Only application data counts, not headers and retransmissions.
    Offering(Rate),
    /// Gaps between beginnings with this distribution. The first flow also begins after a gap.
    Gaps(Distribution<Duration>),
}

/// Configuration of a process of TCP connections. Each has its own handshake, transfers a random
/// number of bytes, closes and is freed.
///
/// The number of past flows costs only a [`FlowRecord`] each: a connection's state is freed when it
/// ends. A flow ends when both ends have closed and know that the other end has, when a handshake
/// is abandoned, or on a reset.
///
/// ```
/// use marcato_sim::{Distribution, FlowArrivals, FlowProcess, LinkConfig, Network, Tcp};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
/// net.link(client, server, link(), link());
/// let sizes = Distribution::truncated_pareto(1.2, Bytes::kb(25), Bytes::kb(1_000))?;
/// // Half of what the link carries.
/// let arrivals = FlowArrivals::Offering(Rate::from_mbps(5));
/// let web = net.spawn(FlowProcess::new(client, server, Tcp::default(), sizes, arrivals))?;
/// net.run_until(Time::from_secs(20));
/// let stats = net.process_stats(web);
/// assert_eq!(stats.spawned, stats.completed + stats.open);
/// assert!(net.flow_records(web).iter().all(|flow| flow.completion() > Some(Duration::from_millis(60))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FlowProcess {
    /// Node of the clients, which open the connections.
    pub client: NodeId,
    /// Node of the servers.
    pub server: NodeId,
    /// TCP configuration of the clients.
    pub client_config: TcpEnd,
    /// TCP configuration of the servers.
    pub server_config: TcpEnd,
    /// End that sends the data. A server begins when its half of the handshake is done.
    pub sender: Side,
    /// Transfer size of each flow; 0 counts as 1 byte.
    pub sizes: Distribution<Bytes>,
    /// Arrival process of the flows.
    pub arrivals: FlowArrivals,
    /// Time from which flows begin.
    pub start: Time,
    /// Time from which no flow begins.
    pub stop: Time,
    /// Upper bound on the number of flows.
    pub most_flows: u64,
    /// Upper bound on the number of open flows. A flow beyond it is refused and counted.
    pub most_at_once: u64,
    /// Number of flows with a record; later ones are only counted.
    pub most_records: usize,
    /// Priority of the transferred data.
    pub priority: Priority,
    /// Class in which the network serves the flows.
    pub layer: Layer,
}

impl FlowProcess {
    /// Flows whose clients send, from time zero without end, with at most 10 000 open and 16
    /// million records.
    pub fn new(
        client: NodeId,
        server: NodeId,
        config: impl Into<TcpEnd>,
        sizes: Distribution<Bytes>,
        arrivals: FlowArrivals,
    ) -> Self {
        let config = config.into();
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

    /// Sets the time from which flows begin.
    #[must_use]
    pub fn start(self, start: Time) -> Self {
        Self { start, ..self }
    }

    /// Sets the time from which no flow begins.
    #[must_use]
    pub fn stop(self, stop: Time) -> Self {
        Self { stop, ..self }
    }

    /// Sets the end that sends the data.
    #[must_use]
    pub fn sender(self, sender: Side) -> Self {
        Self { sender, ..self }
    }

    /// Sets the upper bound on open flows.
    #[must_use]
    pub fn most_at_once(self, most_at_once: u64) -> Self {
        Self { most_at_once, ..self }
    }

    /// Returns the distribution of the gaps between beginnings.
    fn gaps(&self) -> Result<Distribution<Duration>, SpawnError> {
        let mean = match self.arrivals {
            FlowArrivals::Gaps(gaps) if gaps.mean() > 0.0 => return Ok(gaps),
            FlowArrivals::Gaps(_) => return Err(SpawnError::Arrivals),
            FlowArrivals::PerSecond(rate) => 1.0 / rate,
            FlowArrivals::Offering(rate) => self.sizes.mean() * 8.0 / rate.as_bps() as f64,
        };
        // Upper bound of a century, far beyond any run, so that the gap fits a `Duration`.
        if !(mean > 0.0 && mean < 3.2e9) {
            return Err(SpawnError::Arrivals);
        }
        Ok(Distribution::exponential(Duration::from_secs_f64(mean))?)
    }
}

/// Error returned for a process that cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// No route leads from one end to the other.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The TCP configuration of an end is invalid.
    #[error("invalid configuration of tcp: {0}")]
    Config(#[from] TcpConfigError),
    /// Flows would never begin, or all at once.
    #[error("flows need a rate above 0, or gaps with a mean above 0 and below a century")]
    Arrivals,
    /// A fabric other than the simulator's network cannot carry the flows.
    #[error("{0}")]
    Refused(String),
    /// The mean gap is not representable in nanoseconds.
    #[error("invalid gaps between flows: {0}")]
    Gaps(#[from] DistributionError),
}

/// Outcome of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowOutcome {
    /// All bytes have arrived and both ends have closed.
    Completed,
    /// The handshake was abandoned.
    Failed,
    /// An end has reset the connection.
    Reset,
    /// The flow has not ended.
    Open,
}

/// Record of a flow of a [`FlowProcess`], in 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    pub(crate) start: Time,
    // `Time::MAX` stands for none: an `Option<Time>` would take twice the size.
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
    /// Creates the record of a flow that began at `start`, from what its receiver and the TCP of its
    /// sender report.
    pub fn new(
        (number, size): (u32, Bytes),
        start: Time,
        received: &Reception,
        sent: &TcpStats,
        outcome: FlowOutcome,
    ) -> Self {
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            start,
            first_sent: Time::MAX,
            first_received: received.first_at.unwrap_or(Time::MAX),
            last_received: received.last_at.unwrap_or(Time::MAX),
            size,
            received: received.bytes,
            number,
            retransmissions: short(sent.retransmissions),
            timeouts: short(sent.timeouts),
            outcome,
        }
    }

    /// Returns the flow's index within its process, from 0 in order of arrival. Refused flows are
    /// counted.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the outcome of the flow.
    pub fn outcome(&self) -> FlowOutcome {
        self.outcome
    }

    /// Returns the time at which its client opened the connection.
    pub fn start(&self) -> Time {
        self.start
    }

    /// Returns the time at which the first segment with data left its sender.
    pub fn first_sent_at(&self) -> Option<Time> {
        known(self.first_sent)
    }

    /// Returns the time at which the first byte reached the other end's application.
    pub fn first_received_at(&self) -> Option<Time> {
        known(self.first_received)
    }

    /// Returns the time at which the latest byte reached the other end's application.
    pub fn last_received_at(&self) -> Option<Time> {
        known(self.last_received)
    }

    /// Returns the flow's transfer size.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Returns the bytes of the transfer that have arrived.
    pub fn received(&self) -> Bytes {
        self.received
    }

    /// Returns the number of segments that its sender retransmitted.
    pub fn retransmissions(&self) -> u32 {
        self.retransmissions
    }

    /// Returns the number of expiries of its sender's retransmission timer.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Returns the flow completion time, from opening to the arrival of the last byte, handshake
    /// included; `None` unless completed.
    pub fn completion(&self) -> Option<Duration> {
        (self.outcome == FlowOutcome::Completed).then(|| self.last_received - self.start)
    }
}

/// Counters of a process. At every moment `spawned = completed + failed + reset + open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Flows begun.
    pub spawned: u64,
    /// Flows refused because the bound on open flows was reached.
    pub refused: u64,
    /// Flows whose bytes have all arrived and whose ends have both closed.
    pub completed: u64,
    /// Flows whose handshake was abandoned.
    pub failed: u64,
    /// Flows that an end has reset.
    pub reset: u64,
    /// Flows open now.
    pub open: u64,
    /// Largest number of flows open at once.
    pub most_open: u64,
    /// Flows that have ended without a record.
    pub unrecorded: u64,
    /// Packets from the clients of ended flows, by outcome.
    pub from_clients: FlowTally,
    /// Packets from the servers of ended flows, by outcome.
    pub from_servers: FlowTally,
}

/// State of a [`FlowProcess`]: when its flows begin and how long they are, and those that have ended.
/// It has no clock and no connections.
pub struct Process {
    pub(crate) config: FlowProcess,
    /// Prefix of the names of its flows' random streams.
    pub(crate) name: String,
    gaps: Distribution<Duration>,
    arrivals: Stream,
    sizes: Stream,
    /// Flows that have arrived, refused ones included.
    arrived: u64,
    pub(crate) stats: ProcessStats,
    pub(crate) records: Vec<FlowRecord>,
}

/// Arrival of a flow of a [`Process`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowArrival {
    /// Time of the next arrival.
    pub next: Time,
    /// Number and size of the flow that begins now; `None` if it was refused.
    pub begun: Option<(u32, Bytes)>,
}

impl Process {
    /// Creates the process `name`, with random streams of that name.
    ///
    /// # Errors
    /// If a TCP configuration is invalid, or flows would never begin or all at once.
    pub fn new(config: FlowProcess, name: String, seed: Seed) -> Result<Self, SpawnError> {
        config.client_config.check()?;
        config.server_config.check()?;
        let gaps = config.gaps()?;
        let stream = |what: &str| seed.stream(&format!("{name}/{what}"));
        let (arrivals, sizes) = (stream("arrivals"), stream("sizes"));
        let (stats, records) = (ProcessStats::default(), Vec::new());
        Ok(Self { config, name, gaps, arrivals, sizes, arrived: 0, stats, records })
    }

    /// Configuration of the process.
    pub const fn config(&self) -> &FlowProcess {
        &self.config
    }

    /// Counters of the process.
    pub const fn stats(&self) -> ProcessStats {
        self.stats
    }

    /// Records of the flows that have ended, in the order in which they ended.
    pub fn records(&self) -> &[FlowRecord] {
        &self.records
    }

    /// Returns the time of the first arrival.
    pub fn first(&mut self, now: Time) -> Time {
        self.config.start.max(now) + self.gaps.draw(&mut self.arrivals)
    }

    /// Returns the flow that arrives now; `None` if none arrives any more.
    pub fn arrive(&mut self, now: Time) -> Option<FlowArrival> {
        if now >= self.config.stop || self.arrived >= self.config.most_flows {
            return None;
        }
        // Drawn for refused flows too, so that a refusal does not change the sizes of later flows.
        let size = self.config.sizes.draw(&mut self.sizes).max(Bytes::new(1));
        let next = now + self.gaps.draw(&mut self.arrivals);
        let number = u32::try_from(self.arrived).unwrap_or(u32::MAX);
        self.arrived += 1;
        let stats = &mut self.stats;
        if stats.open >= self.config.most_at_once {
            stats.refused += 1;
            return Some(FlowArrival { next, begun: None });
        }
        stats.spawned += 1;
        stats.open += 1;
        stats.most_open = stats.most_open.max(stats.open);
        Some(FlowArrival { next, begun: Some((number, size)) })
    }

    /// Counts a flow that has ended, and stores its record if there is room.
    pub fn note(&mut self, record: FlowRecord) {
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

/// Origin of a spawned flow: its process, and its index there.
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
