//! Time series of flows and links.

use std::collections::HashSet;

use marcato_units::{Bytes, Duration, Rate, Time};

use crate::link::LinkCounters;
use crate::network::Network;
use crate::packet::{FlowId, Side};
use crate::quic::QuicHost;
use crate::tcp::TcpStats;
use crate::topology::LinkId;

/// Error of a [`Series`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// The series has reached its greatest number of samples.
    #[error(
        "the series has reached its limit of {most} samples: raise most_samples, or take a longer interval"
    )]
    Full {
        /// Greatest number of samples.
        most: usize,
    },
    /// Another source has the same name.
    #[error("{name} is recorded already: choose another name")]
    NameTaken {
        /// Name.
        name: String,
    },
    /// A source was added after the first sample, so that its columns would be shorter.
    #[error("the series has started: choose the recorded values before the first sample")]
    Begun,
    /// The flow is no TCP flow.
    #[error("{name} is not a tcp flow: record a link on its path")]
    NotTcp {
        /// Name given to the flow.
        name: String,
    },
    /// The interval is 0.
    #[error("the interval is 0: set one above 0")]
    NoInterval,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Tcp { flow: FlowId, side: Side },
    Link { link: LinkId, last: LinkCounters, at: Time },
    Lanes { flow: FlowId, side: Side, lanes: usize },
}

const TCP_COLUMNS: [&str; 9] = [
    "cwnd_bytes",
    "ssthresh_bytes",
    "in_flight_bytes",
    "srtt_seconds",
    "rto_seconds",
    "pacing_rate_bps",
    "delivered_bytes",
    "retransmitted_segments",
    "loss_state",
];

const LINK_COLUMNS: [&str; 8] = [
    "queue_packets",
    "queue_bytes",
    "queue_seconds",
    "dropped_packets",
    "marked_packets",
    "lost_packets",
    "carried_bytes",
    "utilisation",
];

const LANE_COLUMNS: [&str; 3] = ["cwnd_bytes", "in_flight_bytes", "srtt_seconds"];

/// Periodic samples of flows and links, in columns.
///
/// - A TCP end called `bulk` has columns `flow.bulk.` and `cwnd_bytes`, `ssthresh_bytes`,
///   `in_flight_bytes`, `srtt_seconds`, `rto_seconds`, `pacing_rate_bps`, `delivered_bytes` and
///   `retransmitted_segments` (both since the beginning), and `loss_state`: 0 open, 1 a reduction
///   for ECN, 2 fast recovery, 3 after a timeout.
/// - A link called `bottleneck` has columns `link.bottleneck.` and `queue_packets`, `queue_bytes`,
///   `queue_seconds` (time in which the backlog leaves at the current rate), `dropped_packets`,
///   `marked_packets`, `lost_packets` (all since the beginning). Two columns cover the time since
///   the previous sample: `carried_bytes`, framing included, and `utilisation`, their share of what
///   the link could have carried at its current rate. A packet counts when it begins to leave, so a
///   short interval may show slightly more than 1.
/// - Lane n, counted from 0, of a QUIC session called `session` has columns `lane.session.n.` and
///   `cwnd_bytes`, `in_flight_bytes` and `srtt_seconds`.
///
/// A value that is not known, such as the pacing rate of a sender without pacing, is NaN
/// ([`f64::NAN`]).
///
/// ```
/// use marcato_sim::{Bulk, LinkConfig, Network, Series, Side, Tcp, TcpFlow};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
/// let (bottleneck, _) = net.link(client, server, link(), link());
/// let flow = net.tcp(TcpFlow::new(client, server, Tcp::default(), Bulk::endless()))?;
///
/// let mut series = Series::new(Duration::from_millis(100));
/// series.tcp("bulk", flow, Side::Client)?;
/// series.link("bottleneck", bottleneck)?;
/// series.run_until(&mut net, Time::from_secs(2))?;
///
/// assert_eq!(series.len(), 21);
/// for (name, values) in series.columns() {
///     assert_eq!(values.len(), 21, "{name}");
/// }
/// let used = series.column("link.bottleneck.utilisation").and_then(|used| used.last());
/// assert!(used.is_some_and(|&used| used > 0.95));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Series {
    interval: Duration,
    most_samples: usize,
    names: HashSet<String>,
    sources: Vec<Source>,
    /// Columns by name; the first is the time.
    columns: Vec<(String, Vec<f64>)>,
    next_at: Option<Time>,
}

impl Series {
    /// Series of samples `interval` apart, of at most a million.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            most_samples: 1_000_000,
            names: HashSet::new(),
            sources: Vec::new(),
            columns: vec![("time_seconds".to_owned(), Vec::new())],
            next_at: None,
        }
    }

    /// Sets the greatest number of samples.
    #[must_use]
    pub fn most_samples(self, most_samples: usize) -> Self {
        Self { most_samples, ..self }
    }

    /// Adds an end of a TCP flow, as a sender.
    ///
    /// # Errors
    ///
    /// [`SeriesError`] if the name is taken, or after the first sample.
    pub fn tcp(&mut self, name: &str, flow: FlowId, side: Side) -> Result<(), SeriesError> {
        self.add(format!("flow.{name}"), Source::Tcp { flow, side }, &TCP_COLUMNS)
    }

    /// Adds a link.
    ///
    /// # Errors
    ///
    /// [`SeriesError`] if the name is taken, or after the first sample.
    pub fn link(&mut self, name: &str, link: LinkId) -> Result<(), SeriesError> {
        let source = Source::Link { link, last: LinkCounters::default(), at: Time::ZERO };
        self.add(format!("link.{name}"), source, &LINK_COLUMNS)
    }

    /// Adds the first `lanes` lanes of the session of a [`QuicHost`]. A host of another kind, and a
    /// missing lane, give NaN.
    ///
    /// # Errors
    ///
    /// [`SeriesError`] if the name is taken, or after the first sample.
    pub fn lanes(&mut self, name: &str, flow: FlowId, side: Side, lanes: usize) -> Result<(), SeriesError> {
        let columns: Vec<_> =
            (0..lanes).flat_map(|lane| LANE_COLUMNS.map(|column| format!("{lane}.{column}"))).collect();
        let columns: Vec<_> = columns.iter().map(String::as_str).collect();
        self.add(format!("lane.{name}"), Source::Lanes { flow, side, lanes }, &columns)
    }

    fn add(&mut self, stem: String, source: Source, columns: &[&str]) -> Result<(), SeriesError> {
        if !self.is_empty() {
            return Err(SeriesError::Begun);
        }
        if self.names.contains(&stem) {
            return Err(SeriesError::NameTaken { name: stem });
        }
        self.sources.push(source);
        self.columns.extend(columns.iter().map(|column| (format!("{stem}.{column}"), Vec::new())));
        self.names.insert(stem);
        Ok(())
    }

    /// Runs the network to `until`, with a sample at the beginning and after every interval.
    /// Consecutive calls give the same samples as one call.
    ///
    /// # Errors
    ///
    /// As for [`sample`](Self::sample); also if the interval is 0. Time then stays at the sample
    /// that could not be taken.
    pub fn run_until(&mut self, net: &mut Network, until: Time) -> Result<(), SeriesError> {
        if self.interval.is_zero() {
            return Err(SeriesError::NoInterval);
        }
        let mut at = self.next_at.unwrap_or(net.now());
        while at <= until {
            net.run_until(at);
            self.sample(net)?;
            at += self.interval;
            self.next_at = Some(at);
        }
        net.run_until(until);
        Ok(())
    }

    /// Takes a sample now.
    ///
    /// # Errors
    ///
    /// [`SeriesError`] if the series is full, or a flow is no TCP flow.
    pub fn sample(&mut self, net: &Network) -> Result<(), SeriesError> {
        if self.len() >= self.most_samples {
            return Err(SeriesError::Full { most: self.most_samples });
        }
        // All sources are checked before any column grows.
        let mut at = 1;
        for source in &self.sources {
            match source {
                Source::Tcp { flow, side } => {
                    if net.tcp_stats(*flow, *side).is_none() {
                        let column = &self.columns[at].0;
                        let name = column.strip_suffix(".cwnd_bytes").unwrap_or(column);
                        return Err(SeriesError::NotTcp { name: name.to_owned() });
                    }
                    at += TCP_COLUMNS.len();
                }
                Source::Link { .. } => at += LINK_COLUMNS.len(),
                Source::Lanes { lanes, .. } => at += lanes * LANE_COLUMNS.len(),
            }
        }
        let now = net.now();
        let mut columns = self.columns.iter_mut().map(|(_, values)| values);
        let mut push = |value: f64| {
            if let Some(column) = columns.next() {
                column.push(value);
            }
        };
        push(now.as_secs_f64());
        for source in &mut self.sources {
            match source {
                Source::Tcp { flow, side } => {
                    if let Some(stats) = net.tcp_stats(*flow, *side) {
                        tcp_values(&stats).into_iter().for_each(&mut push);
                    }
                }
                Source::Link { link, last, at } => {
                    let counters = net.link_counters(*link);
                    let span = now - *at;
                    let carried = counters.carried_bytes - last.carried_bytes;
                    link_values(net, *link, counters, carried, span).into_iter().for_each(&mut push);
                    (*last, *at) = (counters, now);
                }
                Source::Lanes { flow, side, lanes } => {
                    let session = net.host::<QuicHost>(*flow, *side).and_then(QuicHost::session);
                    for lane in 0..*lanes {
                        let mut views = session.into_iter().flat_map(|session| session.lanes());
                        let values = match views.find(|(view, _, _)| view.id.index() == lane) {
                            Some((view, _, _)) => {
                                [real(view.cwnd), real(view.in_flight), view.srtt.as_secs_f64()]
                            }
                            None => [f64::NAN; 3],
                        };
                        values.into_iter().for_each(&mut push);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.columns[0].1.len()
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the columns, in the order in which they were added; the first is `time_seconds`.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&str, &[f64])> {
        self.columns.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// Returns the column with this name.
    pub fn column(&self, name: &str) -> Option<&[f64]> {
        self.columns().find_map(|(known, values)| (known == name).then_some(values))
    }
}

fn real(bytes: Bytes) -> f64 {
    bytes.get() as f64
}

fn tcp_values(stats: &TcpStats) -> [f64; TCP_COLUMNS.len()] {
    [
        real(stats.cwnd),
        // There is no threshold before the first loss.
        if stats.ssthresh.get() == u64::MAX { f64::NAN } else { real(stats.ssthresh) },
        real(stats.in_flight),
        stats.srtt.map_or(f64::NAN, |srtt| srtt.as_secs_f64()),
        stats.rto.as_secs_f64(),
        stats.pacing_rate.map_or(f64::NAN, |rate| rate.as_bps() as f64),
        real(stats.delivered),
        stats.retransmissions as f64,
        f64::from(stats.state as u8),
    ]
}

fn link_values(
    net: &Network,
    link: LinkId,
    counters: LinkCounters,
    carried: Bytes,
    span: Duration,
) -> [f64; LINK_COLUMNS.len()] {
    let (queue, backlog) = net.queue_counters(link);
    let possible = net.link_rate(link).filter(|&rate| rate != Rate::ZERO && !span.is_zero());
    [
        backlog.packets as f64,
        real(backlog.bytes),
        net.queue_time(link).map_or(f64::NAN, |time| time.as_secs_f64()),
        counters.dropped as f64,
        queue.marked.packets as f64,
        counters.lost as f64,
        real(carried),
        possible.map_or(f64::NAN, |rate| real(carried) * 8.0 / (rate.as_bps() as f64 * span.as_secs_f64())),
    ]
}
