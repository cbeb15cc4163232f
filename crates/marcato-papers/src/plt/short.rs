//! Fig. 9: flow completion time of short flows.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::{
    Congestion, Distribution, FlowArrivals, FlowProcess, FlowRecord, LinkConfig, Network, PltConfig,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};
use serde::{Deserialize, Serialize};

use super::published::{
    FLOW_PACKETS, FLOWS_PER_SECOND, LARGE_BUFFER, ONE_RTT_SHARE, PACKET, RATE, RTT, SMALL_BUFFER,
};
use super::scale::{Plan, Span};
use super::world::{self, PAYLOAD, bottleneck, plt};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Setup, Ticket, kept_as_json};
use crate::prose;

/// Packets of the longest flow.
const MAX_PACKETS: u64 = 100_000;

/// Short flows, each on a separate connection.
#[derive(Clone, Debug)]
struct Short {
    /// Shape of the Pareto distribution of sizes, in tenths.
    shape: u32,
    /// Initial window of TCP, or of the HCM, in packets.
    initial_window: u32,
    /// Load of the link, in tenths.
    load: u32,
    buffer: u64,
    plt: Option<PltConfig>,
    span: Span,
    /// Index of the draw among those derived from a seed; `None` for the seed itself.
    draw: Option<u64>,
}

/// Outcome of a run. Shares are in %.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Flows {
    /// Shares that took one round trip, and one round trip plus their transmission time.
    one: f64,
    one_and_own: f64,
    /// Share that an infinite queue would have delivered in that time, had each flow sent
    /// everything at once.
    fifo: f64,
    /// Bytes that the flows offered, over the rate of the link.
    offered: f64,
    /// Bytes that the link carried, over its rate.
    carried: f64,
    /// Size in packets of each flow that began in the measured span, with its completion time in
    /// round trips, if it completed.
    each: Vec<(f64, Option<f64>)>,
}

/// Lengths in seconds of the runs from an empty link: the paper does not give its own.
const RUNS: [u64; 3] = [1, 3, 10];

/// Time after the start of the last flow, for flows in progress to complete.
const REST: Duration = Duration::from_secs(10);

impl Setup for Short {
    type Outcome = Flows;

    kept_as_json!();

    fn cost(&self) -> u64 {
        // Connections cost more than packets.
        self.span.whole() * u64::from(self.load) / 10 * 2
    }

    fn run(&self, seed: u64) -> Result<Flows, SimulationError> {
        // Fewer than 1000 draws per seed, so that draws of two seeds never coincide.
        let seed = self.draw.map_or(seed, |draw| seed.wrapping_mul(1000).wrapping_add(draw));
        let mut net = Network::new(Seed::new(seed));
        let (client, server) = (net.node("client"), net.node("server"));
        let there = bottleneck(RTT / 2, self.buffer, 0.0)?;
        let (there, _) = net.link(client, server, there, LinkConfig::delay_only(RTT / 2));
        let payload = u64::from(PAYLOAD);
        let sizes = Distribution::truncated_pareto(
            f64::from(self.shape) / 10.0,
            Bytes::new(FLOW_PACKETS * payload),
            Bytes::new(MAX_PACKETS * payload),
        )?;
        let arrivals = FlowArrivals::PerSecond(FLOWS_PER_SECOND * f64::from(self.load) / 10.0);
        let mut config = world::tcp(self.plt, Congestion::Reno);
        config.tcp.initial_window = self.initial_window;
        let flows = FlowProcess::new(client, server, config, sizes, arrivals);
        let flows = net.spawn(flows.stop(self.span.until()).most_at_once(1_000_000))?;
        net.run_until(self.span.from());
        let before = net.link_counters(there).carried_bytes;
        net.run_until(self.span.until());
        let carried = net.link_counters(there).carried_bytes - before;
        net.run_until(self.span.until() + REST);

        let mut outcome = Flows::default();
        let (mut one, mut one_and_own, mut offered) = (0u64, 0u64, 0u64);
        let open = net.open_flows(flows);
        let all = net.flow_records(flows).iter().chain(&open);
        for flow in all.filter(|flow| flow.start() >= self.span.from()) {
            let packets = flow.size().get().div_ceil(payload);
            offered += flow.size().get() + 40 * packets;
            let done = flow.received() == flow.size();
            let took = match (flow.first_sent_at(), flow.last_received_at()) {
                (Some(first), Some(last)) if done => Some(last - first),
                _ => None,
            };
            let own = RATE.transmission_time(Bytes::new(packets * u64::from(PACKET)));
            one += u64::from(took.is_some_and(|took| took <= RTT));
            one_and_own += u64::from(took.is_some_and(|took| took <= RTT + own));
            let rtts = took.map(|took| took.as_secs_f64() / RTT.as_secs_f64());
            outcome.each.push((packets as f64, rtts));
        }
        outcome.fifo = 100.0 * fifo(net.flow_records(flows).iter().chain(&open), self.span.from());
        let count = outcome.each.len() as f64;
        outcome.one = 100.0 * one as f64 / count;
        outcome.one_and_own = 100.0 * one_and_own as f64 / count;
        let share =
            |bytes: Bytes| Rate::from_bytes_over(bytes, self.span.length).as_mbps_f64() / world::link();
        outcome.offered = 100.0 * share(Bytes::new(offered));
        outcome.carried = 100.0 * share(carried);
        let by = |&(packets, rtts): &(f64, Option<f64>)| (packets, rtts.unwrap_or(f64::INFINITY));
        outcome.each.sort_by(|a, b| by(a).partial_cmp(&by(b)).unwrap_or(std::cmp::Ordering::Equal));
        Ok(outcome)
    }
}

/// Share of the flows from `from` on that would complete within a round trip in an ideal queue.
/// Each flow sends everything at once into an infinite FIFO queue (Lindley's recursion). PLT would
/// reach this if its low layer had neither windows nor losses.
fn fifo<'a>(flows: impl Iterator<Item = &'a FlowRecord>, from: Time) -> f64 {
    let mut begun: Vec<(Time, Bytes)> = flows.map(|flow| (flow.start(), flow.size())).collect();
    begun.sort();
    let (mut free, mut within, mut count) = (Time::ZERO, 0u32, 0u32);
    for (start, size) in begun {
        let packets = size.get().div_ceil(u64::from(PAYLOAD));
        free = free.max(start) + RATE.transmission_time(Bytes::new(packets * u64::from(PACKET)));
        if start >= from {
            count += 1;
            within += u32::from(free - start <= RTT / 2);
        }
    }
    f64::from(within) / f64::from(count)
}

/// One reading of the paper, with runs of TCP and PLT.
struct Case {
    shape: u32,
    initial_window: u32,
    load: u32,
    buffer: u64,
    /// True if the LCM's minimum timeout is a second.
    patient: bool,
    /// Length in seconds of a run from an empty link; `None` for runs with a warm-up.
    run: Option<u64>,
    /// Runs with each draw.
    tcp: Vec<Ticket<Short>>,
    plt: Vec<Ticket<Short>>,
}

impl Case {
    fn plan(plan: &mut Plan, shape: u32, initial_window: u32, load: u32, buffer: u64) -> Self {
        let span = plan.scale.short;
        let mut add =
            |plt| vec![plan.add(Short { shape, initial_window, load, buffer, plt, span, draw: None })];
        let (tcp, plt) = (add(None), add(Some(plt())));
        Self { shape, initial_window, load, buffer, patient: false, run: None, tcp, plt }
    }

    /// The main reading of the paper, in a run of `seconds` that begins with an empty link.
    fn from_empty(plan: &mut Plan, seconds: u64) -> Self {
        let (shape, initial_window, load, buffer) = (12, 2, 10, LARGE_BUFFER);
        let span = Span::seconds(0, seconds);
        let mut add = |plt: Option<PltConfig>| -> Vec<_> {
            let short = |draw| Short { shape, initial_window, load, buffer, plt, span, draw: Some(draw) };
            (0..plan.scale.short_draws).map(|draw| plan.add(short(draw))).collect()
        };
        let (tcp, plt) = (add(None), add(Some(plt())));
        Self { shape, initial_window, load, buffer, patient: false, run: Some(seconds), tcp, plt }
    }

    /// Changes the LCM to give low packets up no sooner than after a second.
    fn patient(self, plan: &mut Plan) -> Self {
        let Self { shape, initial_window, load, buffer, .. } = self;
        let plt = Some(PltConfig { min_rto: Duration::from_secs(1), ..plt() });
        let span = plan.scale.short;
        let plt = vec![plan.add(Short { shape, initial_window, load, buffer, plt, span, draw: None })];
        Self { patient: true, plt, ..self }
    }

    /// Returns true for the main reading of the paper. It has the rate "just enough to saturate the
    /// pipe", the large buffer, and an initial window of its time. The shape is that of ns-2 and of
    /// most measurements of the Internet at that time.
    fn is_papers(&self) -> bool {
        (self.shape, self.initial_window, self.load, self.buffer, self.patient, self.run)
            == (12, 2, 10, LARGE_BUFFER, false, None)
    }

    /// Suffix of a variant's rows.
    fn suffix(&self) -> String {
        if self.is_papers() {
            return String::new();
        }
        if let Some(seconds) = self.run {
            return format!(".run{seconds}");
        }
        let small = if self.buffer == LARGE_BUFFER { "" } else { ".small" };
        let patient = if self.patient { ".patient" } else { "" };
        format!(".a{}.iw{}.load{}{small}{patient}", self.shape, self.initial_window, self.load * 10)
    }

    fn name(&self) -> String {
        format!(
            "shape {:.1}, initial window {}, load {:.1}, buffer {} packets{}{}",
            f64::from(self.shape) / 10.0,
            self.initial_window,
            f64::from(self.load) / 10.0,
            self.buffer,
            if self.patient { ", least timeout of the LCM 1 s" } else { "" },
            self.run.map(|seconds| format!(", {seconds} s from an empty link")).unwrap_or_default()
        )
    }

    fn rows(&self, runs: &Runs, claims: bool) -> Vec<Row> {
        let (suffix, name) = (self.suffix(), self.name());
        let each = |tickets: &[Ticket<Short>], value: fn(&Flows) -> f64| -> Vec<f64> {
            tickets.iter().flat_map(|&ticket| runs.each(ticket, value)).collect()
        };
        let mut rows = Vec::new();
        for (who, protocol, tickets) in [("tcp", "TCP", &self.tcp), ("plt", "PLT", &self.plt)] {
            let row = |what: &str, text: &str, value: fn(&Flows) -> f64| {
                let text = format!("{text}, {protocol}, {name}");
                Row::new(format!("plt.fig9.{what}.{who}{suffix}"), text, Unit::Percent)
                    .samples(&each(tickets, value))
            };
            let one = row("one_rtt_share", "flows within 80 ms", |flows| flows.one);
            rows.push(match who {
                // "TCP takes two or more RTTs to complete flows with similar sizes" (PLT §4.3.1):
                // read as most flows.
                "tcp" if claims && self.is_papers() => one.at_most(50.0),
                _ => one,
            });
            rows.push(row(
                "one_rtt_and_own_share",
                "flows within 80 ms and their own transmission time",
                |flows| flows.one_and_own,
            ));
            rows.push(row("carried", "carried, of the link", |flows| flows.carried));
        }
        let offered = format!("realised load: offered of the link, {name}");
        let offered = Row::new(format!("plt.fig9.offered{suffix}"), offered, Unit::Percent);
        rows.push(offered.samples(&each(&self.plt, |flows| flows.offered)));
        let fifo = "flows within 80 ms if each sent everything at once into an unbounded queue";
        let fifo = Row::new(format!("plt.fig9.fifo_share{suffix}"), format!("{fifo}, {name}"), Unit::Percent)
            .samples(&each(&self.plt, |flows| flows.fifo));
        if let Some(seconds) = self.run {
            let what = format!("draws in which more than 90 % of the PLT flows take 80 ms, {name}");
            let above = each(&self.plt, |flows| if flows.one > 100.0 * ONE_RTT_SHARE { 100.0 } else { 0.0 });
            rows.push(
                Row::new(format!("plt.fig9.draws_above_90.run{seconds}"), what, Unit::Percent)
                    .samples(&above),
            );
        }
        // This bound is the reason that PLT's row has no band: at this load not even the ideal
        // queue reaches 90 %.
        rows.push(if claims && self.is_papers() { fifo.at_most(100.0 * ONE_RTT_SHARE) } else { fifo });
        rows
    }
}

fn text(span: Span, draws: u64) -> String {
    prose::text(&format!(
        include_str!("short.md"),
        measured = span.words(),
        length = span.length.as_secs_f64(),
        draws = draws,
    ))
}

/// Fig. 9: completion times of short flows, for several readings of the paper.
pub(super) fn short_flows(plan: &mut Plan) -> Ask {
    let (claims, span, draws) = (plan.scale.claims, plan.scale.short, plan.scale.short_draws);
    let mut cases = Vec::new();
    for shape in [12, 15] {
        for initial_window in [2, 10] {
            for load in [5, 8, 10] {
                cases.push(Case::plan(plan, shape, initial_window, load, LARGE_BUFFER));
            }
        }
    }
    cases.push(Case::plan(plan, 12, 2, 10, SMALL_BUFFER));
    cases.push(Case::plan(plan, 12, 2, 8, SMALL_BUFFER));
    for shape in [12, 15] {
        let case = Case::plan(plan, shape, 2, 8, LARGE_BUFFER).patient(plan);
        cases.push(case);
    }
    for seconds in RUNS {
        cases.push(Case::from_empty(plan, seconds));
    }
    cases.sort_by_key(|case| !case.is_papers());
    Box::new(move |runs| {
        let rows = cases.iter().flat_map(|case| case.rows(runs, claims)).collect();
        let mut answer = Answer::new("Fig. 9: completion of short flows", text(span, draws), rows);
        for case in cases.iter().filter(|case| case.is_papers()) {
            answer.section = answer.section.figure(by_size(runs, case)).figure(shares(runs, case));
        }
        answer
    })
}

/// Figure of the mean completion of flows of about one size, by size.
fn by_size(runs: &Runs, case: &Case) -> Figure {
    let mean = |tickets: &[Ticket<Short>]| {
        let mut bins: Vec<(f64, f64, f64)> = Vec::new();
        let flows = tickets.first().and_then(|&ticket| runs.first(ticket));
        for &(packets, rtts) in flows.map_or(&[][..], |flows| &flows.each) {
            let Some(rtts) = rtts else { continue };
            // Four bins for each doubling; the flows are sorted by size.
            let bin = libm::exp2(libm::round(4.0 * libm::log2(packets)) / 4.0);
            match bins.last_mut() {
                Some(last) if last.0 == bin => (last.1, last.2) = (last.1 + rtts, last.2 + 1.0),
                _ => bins.push((bin, rtts, 1.0)),
            }
        }
        bins.into_iter().map(|(bin, sum, count)| (bin, sum / count)).collect::<Vec<_>>()
    };
    let chart = LineChart::new(
        "Completion of short flows by size",
        Axis::new("size", "packets").log(),
        Axis::new("mean completion", "RTT").log(),
    )
    .series(Series::line("PLT", mean(&case.plt)).marks())
    .series(Series::line("TCP", mean(&case.tcp)).marks());
    Figure::new("fig9", chart, format!("As Fig. 9; {}.", case.name()))
}

/// Figure of the distribution of completions.
fn shares(runs: &Runs, case: &Case) -> Figure {
    let rtts = |tickets: &[Ticket<Short>]| {
        let flows = tickets.first().and_then(|&ticket| runs.first(ticket));
        let flows = flows.map_or(&[][..], |flows| &flows.each).iter();
        flows.map(|flow| flow.1.unwrap_or(f64::INFINITY)).collect::<Vec<_>>()
    };
    let chart =
        LineChart::ccdf("Completion of short flows", Axis::new("completion", "RTT").window(0.0, 12.0), true)
            .down_to(1e-4)
            .series(Series::ccdf("PLT", rtts(&case.plt)).paper([(1.0, 1.0 - ONE_RTT_SHARE)]))
            .series(Series::ccdf("TCP", rtts(&case.tcp)));
    Figure::new("fig9-shares", chart, format!("CCDF in round trips; {}.", case.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "takes minutes: 20 draws of 1, 3 and 10 s"]
    fn the_text_has_the_numbers_of_runs_from_an_empty_link() {
        let text = include_str!("short.md").split_whitespace().collect::<Vec<_>>().join(" ");
        let [one, three, ten] = RUNS.map(|seconds| {
            let run = |draw| {
                let (span, buffer, draw) = (Span::seconds(0, seconds), LARGE_BUFFER, Some(draw));
                let plt = Some(plt());
                Short { shape: 12, initial_window: 2, load: 10, buffer, plt, span, draw }.run(1).unwrap()
            };
            (0..20).map(run).collect::<Vec<Flows>>()
        });
        let mean = |flows: &[Flows]| flows.iter().map(|flow| flow.one).sum::<f64>() / flows.len() as f64;
        let most = |flows: &[Flows]| flows.iter().map(|flow| flow.one).fold(0.0, f64::max);
        let offers = |flows: &[Flows]| {
            let offered = || flows.iter().map(|flow| flow.offered);
            (offered().fold(f64::INFINITY, f64::min), offered().fold(0.0, f64::max))
        };
        let (in_one, in_three) = (offers(&one), offers(&three));
        for statement in [
            format!("1 s offers {:.0} to {:.0} % of", in_one.0, in_one.1),
            format!("3 s offer {:.0} to {:.0} %.", in_three.0, in_three.1),
            format!("runs of 1 s, {:.0} % of the PLT flows take a round trip on average", mean(&one)),
            format!("in 3 s {:.0} %, in 10 s {:.0} %", mean(&three), mean(&ten)),
            format!("of 10 s none does, the best has {:.0} %", most(&ten)),
        ] {
            assert!(text.contains(&statement), "{statement}");
        }
        assert!(most(&one) > 90.0 && most(&three) > 90.0 && most(&ten) < 90.0);
    }
}
