//! Requests that are over: their number, and the times that their responses took.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::record::Record;

/// Upper edges of the buckets of times, in seconds.
const EDGES: [f64; 15] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Label of a level or status that a response does not have.
const NONE: &str = "none";

/// Labels of a request. There are six levels, eleven sources and six classes, the absent ones included.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    level: &'static str,
    source: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Level {
    level: &'static str,
}

/// Maker of the histograms of a family.
#[derive(Clone)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(EDGES)
    }
}

type Times = Family<Level, Histogram, Buckets>;

/// Requests that are over.
pub(super) struct Requests {
    ended: Family<Kind, Counter>,
    waited: Times,
    took: Times,
}

impl Requests {
    /// Creates the families, and adds them to a registry.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let new = Self {
            ended: Family::default(),
            waited: Family::new_with_constructor(Buckets),
            took: Family::new_with_constructor(Buckets),
        };
        registry.register("requests", "Requests that are over", new.ended.clone());
        registry.register_with_unit(
            "response_waited",
            "Time from the first byte that could be sent to the first that was granted",
            Unit::Seconds,
            new.waited.clone(),
        );
        registry.register_with_unit(
            "response_took",
            "Time from the request to the end of the response",
            Unit::Seconds,
            new.took.clone(),
        );
        new
    }

    pub(super) fn observe(&self, record: &Record) {
        let level = record.level.map_or(NONE, level_name);
        let status = record.status.map_or(NONE, |status| match status.as_u16() / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            5 => "5xx",
            _ => NONE,
        });
        self.ended.get_or_create(&Kind { level, source: record.decision.source.name(), status }).inc();
        self.took.get_or_create(&Level { level }).observe(record.took.as_secs_f64());
        if let Some(waited) = record.waited {
            self.waited.get_or_create(&Level { level }).observe(waited.as_secs_f64());
        }
    }
}

/// Name of a level in labels.
pub(super) const fn level_name(level: marcato_units::Priority) -> &'static str {
    ["P0", "P1", "P2", "P3", "P4"][level.index()]
}
