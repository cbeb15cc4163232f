//! What a run looks like over time.

use std::collections::HashSet;

use marcato_units::{Bytes, Duration, Rate, Time};

use crate::link::LinkCounters;
use crate::network::Network;
use crate::packet::{FlowId, Side};
use crate::quic::QuicHost;
use crate::tcp::TcpStats;
use crate::topology::LinkId;

/// Why a [`Series`] cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// It has as many samples as it may.
    #[error(
        "the series holds {most} samples, all that it may: raise most_samples, or take a longer interval"
    )]
    Full {
        /// How many it may have.
        most: usize,
    },
    /// Something else has the name.
    #[error("{name} is recorded already: choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// What is to be recorded must be named before the first sample, so that all columns are of one length.
    #[error("the series has begun: say what to record before the first sample")]
    Begun,
    /// The flow is not of TCP.
    #[error("{name} is no tcp flow: record the link that it passes")]
    NotTcp {
        /// The name that it was given.
        name: String,
    },
    /// The interval is 0.
    #[error("the interval is 0: samples would never end")]
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

/// Samples of flows and links at equal distances in time, column by column.
///
/// The columns of a TCP end called `bulk` are `flow.bulk.` and `cwnd_bytes`, `ssthresh_bytes`, `in_flight_bytes`,
/// `srtt_seconds`, `rto_seconds`, `pacing_rate_bps`, `delivered_bytes` and `retransmitted_segments` (both since the
/// beginning), and `loss_state`: 0 open, 1 a reduction for ECN, 2 fast recovery, 3 after a timeout.
///
/// Those of a link called `bottleneck` are `link.bottleneck.` and `queue_packets`, `queue_bytes`, `queue_seconds` (what
/// the backlog takes to leave at the present rate), `dropped_packets`, `marked_packets`, `lost_packets` (all since the
/// beginning), and of the time since the sample before: `carried_bytes`, framing included, and `utilisation`, their
/// share in what the link could have carried at its present rate. A packet counts when it begins to leave, so that a
/// short interval may show slightly more than 1.
///
/// Those of lane n, counted from 0, of a QUIC session called `session` are `lane.session.n.` and `cwnd_bytes`, `in_flight_bytes`
/// and `srtt_seconds`.
///
/// What is not known at a time, such as a pace that there is not, is not a number ([`f64::NAN`]).
///
/// ```
/// use marcato_sim::{Bulk, LinkConfig, Network, Series, Side, TcpConfig, TcpFlow};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
/// let (bottleneck, _) = net.link(client, server, link(), link());
/// let flow = net.tcp(TcpFlow::new(client, server, TcpConfig::default(), Bulk::endless()))?;
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
    /// The first is the time.
    columns: Vec<(String, Vec<f64>)>,
    next_at: Option<Time>,
}

impl Series {
    /// A series of samples `interval` apart, of at most a million.
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

    /// With at most so many samples.
    #[must_use]
    pub fn most_samples(self, most_samples: usize) -> Self {
        Self { most_samples, ..self }
    }

    /// Records an end of a TCP flow as a sender.
    ///
    /// # Errors
    ///
    /// If the name is taken, or the first sample has been.
    pub fn tcp(&mut self, name: &str, flow: FlowId, side: Side) -> Result<(), SeriesError> {
        self.add(format!("flow.{name}"), Source::Tcp { flow, side }, &TCP_COLUMNS)
    }

    /// Records a link.
    ///
    /// # Errors
    ///
    /// If the name is taken, or the first sample has been.
    pub fn link(&mut self, name: &str, link: LinkId) -> Result<(), SeriesError> {
        let source = Source::Link { link, last: LinkCounters::default(), at: Time::ZERO };
        self.add(format!("link.{name}"), source, &LINK_COLUMNS)
    }

    /// Records the first `lanes` lanes of the session of a [`QuicHost`]. A host of another kind, and a lane that there is
    /// not, have no numbers.
    ///
    /// # Errors
    ///
    /// If the name is taken, or the first sample has been.
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

    /// Moves time on to `until`, and takes a sample at the beginning and then every interval. Called again, it goes on
    /// as if there had been one call.
    ///
    /// # Errors
    ///
    /// As [`sample`](Self::sample); or if the interval is 0. Time then stands where the sample could not be taken.
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
    /// If the series is full, or a flow is not of TCP.
    pub fn sample(&mut self, net: &Network) -> Result<(), SeriesError> {
        if self.len() >= self.most_samples {
            return Err(SeriesError::Full { most: self.most_samples });
        }
        // Nothing is written before everything is known to be there.
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

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.columns[0].1.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns, in the order in which they were asked for; the first is `time_seconds`.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&str, &[f64])> {
        self.columns.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// The column with this name.
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
        // Before the first loss there is no threshold.
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
