//! Fairness among PLT flows when losses make their low layers dominate (PLT §5).

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::{Bulk, Congestion, LinkConfig, Network, PltConfig, TcpFlow};
use marcato_units::{Duration, Seed, Time};
use serde::{Deserialize, Serialize};

use super::published::{RTT, SMALL_BUFFER};
use super::scale::{Plan, Span};
use super::world::{self, bottleneck, goodput, plt, received};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Setup, Ticket, kept_as_json};
use crate::prose;

/// Loss at which TCP alone would carry 4 Mbit/s: nearly everything is sent low.
const LOSS: f64 = 1e-3;

/// Several flows at one bottleneck.
#[derive(Clone, Debug)]
struct Several {
    flows: u32,
    /// True if all round trips are 80 ms; otherwise they range from 40 to 120.
    equal: bool,
    plt: Option<PltConfig>,
    /// Time between the starts of two flows.
    apart: Duration,
    /// Length of the windows over which goodputs are compared.
    window: Duration,
    span: Span,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Shares {
    /// End of each window, in s, with the flows' goodputs in it, in Mbit/s.
    windows: Vec<(f64, Vec<f64>)>,
    /// Goodputs over the last part of the run.
    last: Vec<f64>,
}

/// Jain's index: 1 if all values are equal, 1/n if one has everything.
fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (values.len() as f64 * squares)
}

impl Setup for Several {
    type Outcome = Shares;

    kept_as_json!();

    fn cost(&self) -> u64 {
        if self.plt.is_none() { self.span.whole() / 4 } else { self.span.whole() }
    }

    fn run(&self, seed: u64) -> Result<Shares, SimulationError> {
        let mut net = Network::new(Seed::new(seed));
        let (left, right) = (net.node("left"), net.node("right"));
        let delay = RTT / 8;
        net.link(left, right, bottleneck(delay, SMALL_BUFFER, LOSS)?, LinkConfig::delay_only(delay));
        let mut flows = Vec::new();
        for number in 0..self.flows {
            let rtt = if self.equal { RTT } else { RTT / 2 + RTT * number / (self.flows - 1) };
            let access = || LinkConfig::delay_only(rtt / 2 - delay);
            let client = net.node(&format!("client {number}"));
            net.link(client, left, access(), access());
            let config = world::tcp(self.plt, Congestion::Reno);
            let start = Time::ZERO + self.apart * number;
            flows.push(net.tcp(TcpFlow::new(client, right, config, Bulk::endless()).start(start))?);
        }
        let all = |net: &Network| flows.iter().map(|&flow| received(net, flow)).collect::<Vec<_>>();
        let since = |now: &[u64], then: &[u64], span: Duration| {
            now.iter().zip(then).map(|(now, then)| goodput(now - then, span)).collect::<Vec<_>>()
        };
        let mut shares = Shares::default();
        let (mut then, mut begun, mut at) = (all(&net), None, Time::ZERO);
        while at < self.span.until() {
            at += self.window;
            net.run_until(at);
            let now = all(&net);
            shares.windows.push((at.as_secs_f64(), since(&now, &then, self.window)));
            if at >= self.span.from() {
                begun.get_or_insert_with(|| now.clone());
            }
            then = now;
        }
        let begun = begun.ok_or(SimulationError::Missing("measured span"))?;
        shares.last = since(&then, &begun, self.span.length);
        Ok(shares)
    }
}

impl Shares {
    /// Index over the last part.
    fn jain(&self) -> f64 {
        jain(&self.last)
    }

    /// Index of the first window in which all flows send throughout.
    fn early(&self) -> f64 {
        let all = self.windows.iter().filter(|(_, shares)| shares.iter().all(|&share| share > 0.0));
        all.map(|(_, shares)| jain(shares)).nth(1).unwrap_or(f64::NAN)
    }

    /// Least goodput over the fair share.
    fn least(&self) -> f64 {
        let mean = self.last.iter().sum::<f64>() / self.last.len() as f64;
        self.last.iter().copied().fold(f64::INFINITY, f64::min) / mean
    }
}

struct Case {
    flows: u32,
    equal: bool,
    plt: Ticket<Several>,
    tcp: Ticket<Several>,
}

impl Case {
    fn rows(&self, runs: &Runs, span: Span) -> Vec<Row> {
        let kind = if self.equal { "equal" } else { "unequal" };
        let of = format!("{} flows, {kind} round trips, loss 0.1 %", self.flows);
        let at = format!("plt.fairness.{}.{kind}", self.flows);
        let mut rows = Vec::new();
        for (who, protocol, ticket) in [("plt", "PLT", self.plt), ("tcp", "TCP", self.tcp)] {
            let row = |what: &str, text: &str, unit, value: fn(&Shares) -> f64| {
                Row::new(format!("{at}.{what}.{who}"), format!("{text}, {protocol}, {of}"), unit)
                    .samples(&runs.each(ticket, value))
            };
            let late = format!("Jain's index of goodputs, last {} s", span.length.as_secs_f64());
            rows.push(row("jain", &late, Unit::Ratio, Shares::jain));
            rows.push(row(
                "early",
                "Jain's index just after the last flow began",
                Unit::Ratio,
                Shares::early,
            ));
            rows.push(row("least", "least goodput over the mean", Unit::Ratio, Shares::least));
            rows.push(row("total", "total goodput", Unit::MbitPerS, |shares| shares.last.iter().sum()));
        }
        rows
    }
}

fn text(span: Span, apart: Duration, window: Duration) -> String {
    let (apart, window) = (apart.as_secs_f64(), window.as_secs_f64());
    let (length, whole) = (span.length.as_secs_f64(), span.whole());
    prose::text(&format!(
        include_str!("fairness.md"),
        apart = apart,
        window = window,
        length = length,
        whole = whole,
    ))
}

/// Fairness among PLT flows.
pub(super) fn fairness(plan: &mut Plan) -> Ask {
    let (span, divisor) = (plan.scale.fairness, plan.scale.apart_divisor);
    let (apart, window) = if divisor == 1 {
        (Duration::from_secs(10), Duration::from_secs(10))
    } else {
        (Duration::from_millis(100), Duration::from_millis(500))
    };
    let mut cases = Vec::new();
    for equal in [true, false] {
        for flows in [2, 5, 10] {
            let mut add = |plt| plan.add(Several { flows, equal, plt, apart, window, span });
            cases.push(Case { flows, equal, plt: add(Some(plt())), tcp: add(None) });
        }
    }
    Box::new(move |runs| {
        let rows = cases.iter().flat_map(|case| case.rows(runs, span)).collect();
        let mut answer = Answer::new("Fairness among PLT flows", text(span, apart, window), rows);
        for equal in [true, false] {
            let kind = if equal { "equal" } else { "unequal" };
            let chart = LineChart::new(
                format!("Jain's index over time, {kind} round trips"),
                Axis::new("time", "s"),
                Axis::new("Jain's index", "").range(0.0, 1.0),
            );
            let chart = cases.iter().filter(|case| case.equal == equal).fold(chart, |chart, case| {
                let windows = runs.first(case.plt).map_or(&[][..], |shares| &shares.windows);
                let points = windows.iter().map(|(at, shares)| (*at, jain(shares)));
                chart.series(Series::line(format!("{} flows", case.flows), points))
            });
            answer.section = answer.section.figure(Figure::new(
                format!("fairness-{kind}"),
                chart,
                format!("Goodputs in each {} s, including flows that have not begun.", window.as_secs_f64()),
            ));
        }
        answer
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_1_for_equal_shares_and_1_over_n_for_one_taker() {
        assert!((jain(&[3.0; 5]) - 1.0).abs() < 1e-12);
        assert!((jain(&[7.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }
}
