//! Periodic samples of flows and links.

use marcato_scenario::Experiment;
use marcato_scenario::record::{LinkMetric, Series};
use marcato_units::{Duration, Time};

use super::error::BuildError;
use super::fabric::Fabric;
use super::flows::{Totals, Tracked, mbps};
use super::outcome::SeriesOutcome;
use super::world::Way;
use crate::{LinkCounters, LinkId, Load};

/// Source of a series.
enum Of {
    /// Index of a flow, and its counts at the previous sample.
    Flow(usize, Totals),
    /// Index of a direction of a link, and its counts at the previous sample.
    Link(usize, Before),
}

/// Counts of a link at the previous sample.
#[derive(Clone, Copy)]
struct Before {
    link: LinkCounters,
    load: Load,
    /// Packets that had left its queue, and the sum of their sojourn times.
    left: (u64, Duration),
}

impl Before {
    fn of(net: &dyn Fabric, link: LinkId) -> Self {
        let left = net.queue_delays(link).map(|delays| (delays.packets, delays.sum));
        Self { link: net.link_counters(link), load: net.link_load(link), left: left.unwrap_or_default() }
    }
}

/// Series being recorded, and the state of their sources.
pub(super) struct Sampler {
    pub(super) every: Duration,
    series: Vec<(Of, SeriesOutcome)>,
    last: Time,
}

impl Sampler {
    /// Creates the series that the experiment records of these flows and links.
    pub(super) fn new(experiment: &Experiment, flows: &[Tracked], ways: &[Way]) -> Result<Self, BuildError> {
        let mut series = Vec::new();
        for asked in &experiment.record.series {
            let empty = |of: &str, name: String| SeriesOutcome {
                series: asked.clone(),
                of: of.to_owned(),
                name,
                points: Vec::new(),
            };
            let before = series.len();
            match asked {
                Series::Flow { flow, metric } => {
                    for (place, it) in flows.iter().enumerate().filter(|(_, it)| it.flow == *flow) {
                        let name = format!("flow.{}.{}", it.name, metric.name());
                        series.push((Of::Flow(place, Totals::default()), empty(&it.name, name)));
                    }
                }
                Series::Link { link, back, .. } => {
                    let is_it = |way: &&Way| way.name == *link && way.back == *back;
                    for (place, way) in ways.iter().enumerate().filter(|(_, way)| is_it(way)) {
                        let (link, load) = (LinkCounters::default(), way.before.load());
                        let of = Of::Link(place, Before { link, load, left: (0, Duration::ZERO) });
                        series.push((of, empty(&way.name, asked.to_string())));
                    }
                }
            }
            if series.len() == before {
                return Err(BuildError::NothingToRecord(asked.to_string()));
            }
        }
        Ok(Self { every: experiment.record.every, series, last: Time::ZERO })
    }

    /// Returns the time of the next sample; `None` if there are no series.
    pub(super) fn next(&self) -> Option<Time> {
        (!self.series.is_empty() && !self.every.is_zero()).then(|| self.last + self.every)
    }

    /// Takes a sample of every series.
    pub(super) fn sample(&mut self, net: &dyn Fabric, flows: &[Tracked], ways: &[Way]) {
        let now = net.now();
        let span = now.since(self.last);
        for (of, series) in &mut self.series {
            let value = match (of, &series.series) {
                (Of::Flow(place, before), Series::Flow { metric, .. }) => {
                    let flow = &flows[*place];
                    let exists = flow.exists(net, self.last);
                    let value = flow.sample(net, *metric, before, span).filter(|_| exists);
                    *before = flow.totals(net);
                    value
                }
                (Of::Link(place, before), Series::Link { metric, .. }) => {
                    let way = &ways[*place];
                    let value = link(net, way, *metric, before, span);
                    *before = Before::of(net, way.id);
                    value
                }
                (Of::Flow(..), Series::Link { .. }) | (Of::Link(..), Series::Flow { .. }) => None,
            };
            series.points.push((now, value));
        }
        self.last = now;
    }

    /// Returns the recorded series.
    pub(super) fn finish(self) -> Vec<SeriesOutcome> {
        self.series.into_iter().map(|(_, series)| series).collect()
    }
}

fn link(net: &dyn Fabric, way: &Way, metric: LinkMetric, before: &Before, span: Duration) -> Option<f64> {
    let seen = Before::of(net, way.id);
    let (counters, Before { link: before, load, left: (packets_before, sum_before) }) = (seen.link, *before);
    let backlog = net.backlog(way.id);
    match metric {
        LinkMetric::Queue => Some(backlog.bytes.get() as f64),
        LinkMetric::QueuePackets => Some(backlog.packets as f64),
        LinkMetric::QueueDelay => {
            let (packets, sum) = seen.left;
            let packets = packets - packets_before;
            (packets > 0).then(|| (sum - sum_before).as_secs_f64() * 1e3 / packets as f64)
        }
        LinkMetric::Throughput => mbps(counters.delivered_bytes - before.delivered_bytes, span),
        LinkMetric::Utilisation => seen.load.utilisation_since(load),
        LinkMetric::Drops => Some(counters.dropped as f64),
        LinkMetric::Losses => Some(counters.lost as f64),
        LinkMetric::Marks => Some(net.marked(way.id) as f64),
    }
}
