//! Figures of recorded series and of completion times.

use marcato_report::chart::{Axis, LineChart, Series as Line};
use marcato_report::{Figure, Percentile};
use marcato_scenario::record::{FlowMetric, LinkMetric, Series};
use marcato_sim::scenario::{FlowOutcome, Outcome, SeriesOutcome};

use crate::tables::direction;

/// Smallest number of samples of which a distribution is drawn.
const FEW: usize = 10;

/// Kind of chart: its name, vertical axis and unit, and the divisor of its values.
struct Kind {
    id: &'static str,
    title: &'static str,
    unit: &'static str,
    scale: f64,
}

fn kind(series: &Series) -> Kind {
    let kind = |id, title, unit, scale| Kind { id, title, unit, scale };
    match series {
        Series::Flow { metric, .. } => match metric {
            FlowMetric::Cwnd => kind("cwnd", "congestion window", "kB", 1e3),
            FlowMetric::Ssthresh => kind("ssthresh", "slow-start threshold", "kB", 1e3),
            FlowMetric::InFlight => kind("in-flight", "in flight", "kB", 1e3),
            FlowMetric::LowWindow => kind("low-window", "window of the low layer", "kB", 1e3),
            FlowMetric::Cap => kind("cap", "bound of coupled mode", "kB", 1e3),
            FlowMetric::Mode => kind("mode", "mode of the governor", "number", 1.0),
            FlowMetric::Srtt => kind("srtt", "smoothed round-trip time", "ms", 1.0),
            FlowMetric::PacingRate => kind("pacing-rate", "pacing rate", "Mbit/s", 1.0),
            FlowMetric::Throughput => kind("goodput", "goodput", "Mbit/s", 1.0),
            FlowMetric::Retransmissions => kind("retransmissions", "retransmissions so far", "count", 1.0),
            FlowMetric::Losses => kind("flow-losses", "packets lost so far", "count", 1.0),
            FlowMetric::Delay => kind("delay", "one-way delay", "ms", 1.0),
        },
        Series::Link { metric, .. } => match metric {
            LinkMetric::Queue => kind("queue", "queue", "kB", 1e3),
            LinkMetric::QueuePackets => kind("queue-packets", "queue", "packets", 1.0),
            LinkMetric::QueueDelay => kind("queue-delay", "delay in queues", "ms", 1.0),
            LinkMetric::Throughput => kind("link-throughput", "throughput of links", "Mbit/s", 1.0),
            LinkMetric::Utilisation => kind("utilisation", "utilisation of links", "%", 0.01),
            LinkMetric::Drops => kind("drops", "packets dropped so far", "count", 1.0),
            LinkMetric::Losses => kind("link-losses", "packets lost on the wire so far", "count", 1.0),
            LinkMetric::Marks => kind("marks", "packets marked so far", "count", 1.0),
        },
    }
}

fn label(series: &SeriesOutcome) -> String {
    match series.series {
        Series::Link { back: true, .. } => format!("{} {}", series.of, direction(true)),
        _ => series.of.clone(),
    }
}

/// Returns a chart for each recorded metric, with a line for each flow or link.
pub fn series(outcome: &Outcome) -> Vec<Figure> {
    overlaid("", &[("", outcome)])
}

/// Returns the charts of several outcomes of one experiment, laid over each other. Lines have the name
/// of their outcome behind their own, and those of all but the first are dashed. Names of figures begin
/// with `prefix`.
pub fn overlaid(prefix: &str, outcomes: &[(&str, &Outcome)]) -> Vec<Figure> {
    let mut charts: Vec<(Kind, LineChart)> = Vec::new();
    let all = outcomes
        .iter()
        .enumerate()
        .flat_map(|(place, (name, outcome))| outcome.series.iter().map(move |one| (place > 0, *name, one)));
    for (is_dashed, name, one) in all {
        let of = kind(&one.series);
        let points = one
            .points
            .iter()
            .map(|&(at, value)| (at.as_secs_f64(), value.map_or(f64::NAN, |value| value / of.scale)));
        // Lines of one flow or link have its colour in every chart.
        let line = Line::line(label(one) + name, points).like(label(one));
        let line = if is_dashed { line.dashed() } else { line };
        match charts.iter_mut().find(|(other, _)| other.id == of.id) {
            Some((_, chart)) => *chart = chart.clone().series(line),
            None => {
                let chart = LineChart::new(of.title, Axis::new("time", "s"), Axis::new(of.title, of.unit));
                charts.push((of, chart.series(line)));
            }
        }
    }
    let figure = |(of, chart): (Kind, LineChart)| Figure::new(format!("{prefix}{}", of.id), chart, "");
    charts.into_iter().map(figure).collect()
}

/// Returns the CCDF of completion times, with a line for each flow and kind. Bulk data is excluded.
pub fn completions(flows: &[FlowOutcome]) -> Option<Figure> {
    completions_overlaid("", &[("", flows)])
}

/// Returns the CCDFs of completion times of several outcomes, laid over each other as by [`overlaid`].
pub fn completions_overlaid(prefix: &str, outcomes: &[(&str, &[FlowOutcome])]) -> Option<Figure> {
    let axis = Axis::new("completion time", "ms").log();
    let mut chart = LineChart::ccdf("CCDF of completion times", axis, true);
    let mut few = Vec::new();
    let mut any = false;
    for (place, (name, flows)) in outcomes.iter().enumerate() {
        for flow in *flows {
            let drawn: Vec<(&str, Vec<f64>)> = flow
                .times
                .iter()
                .filter(|times| !times.name.starts_with("bulk-"))
                .map(|times| (times.name.as_str(), times.samples().collect()))
                .filter(|(_, samples): &(&str, Vec<f64>)| samples.len() >= FEW)
                .collect();
            for (what, samples) in &drawn {
                any = true;
                let kind = format!("{} {what}", flow.name);
                if Percentile::P99.of_few(samples.len(), "").is_some() {
                    few.push(format!("{kind}{name} ({})", samples.len()));
                }
                // A flow with one line here has the colour of its other charts.
                let like = if drawn.len() == 1 { flow.name.clone() } else { kind.clone() };
                let line = Line::ccdf(kind + name, samples.iter().copied()).like(like);
                chart = chart.series(if place > 0 { line.dashed() } else { line });
            }
        }
    }
    let caption = match few.is_empty() {
        true => "Transfers or messages of each flow.".to_owned(),
        false => format!(
            "Transfers or messages of each flow. Fewer than 500 samples, of which the 99 % is one of the five longest: {}.",
            few.join(", ")
        ),
    };
    any.then(|| Figure::new(format!("{prefix}completion"), chart, caption))
}
