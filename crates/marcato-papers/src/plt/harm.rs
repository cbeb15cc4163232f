//! Harm that low layers do to other flows: the same high traffic with and without them.

use std::io;
use std::ops::Range;

use marcato_report::{Row, Unit};
use marcato_sim::{
    Bulk, Congestion, Distribution, FlowArrivals, FlowId, FlowProcess, LinkConfig, LinkId, Network, NodeId,
    PltConfig, Side, Tap, TcpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};
use serde::{Deserialize, Serialize};

use super::published::{RATE, SMALL_BUFFER};
use super::scale::{Plan, Span};
use super::world::{self, PAYLOAD, goodput, plt, queue, random, received, strict};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Setup, Ticket, kept_as_json};
use crate::prose;

/// Flows whose low layers are switched off and on.
const LAYERED: usize = 16;
/// Plain TCP flows that share the bottleneck with them.
const BYSTANDERS: usize = 24;
/// Short flows of plain TCP per second: with 25 packets on average, a tenth of the link.
const SHORT_PER_SECOND: f64 = 125.0;

/// Service of the bottleneck's low class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// A high packet waits for the rest of a low one in transmission.
    Residual,
    /// A high packet pre-empts a low one.
    PreEmptive,
}

/// Layered flows, bystanders and short flows at one bottleneck with the small buffer.
#[derive(Clone, Debug)]
pub(super) struct Harm {
    /// Share of packets that each flow's access link loses, in either class. Each flow and class
    /// draws separately: a high packet lost without low layers is lost with them as well. So only
    /// the bottleneck makes a difference.
    loss: f64,
    service: Service,
    plt: Option<PltConfig>,
    /// Index of the run among those derived from a seed.
    part: u64,
    span: Span,
}

/// Outcome of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Goodput of each bystander in Mbit/s.
    bystanders: Vec<f64>,
    /// Mean completion of the short flows, in ms.
    fct: f64,
    /// Segments that the layered flows sent at high priority.
    hcm: f64,
    /// Data of these flows that low packets carried, in Mbit/s.
    low: f64,
    high: Digest,
}

/// Digest of the high packets that left the bottleneck, times included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Digest {
    packets: u64,
    hash: u64,
    /// True once the file's header has been read.
    begun: bool,
    pending: Vec<u8>,
}

impl Digest {
    /// Lengths of the pcap file's header and of each packet's header.
    const FILE_HEADER: usize = 24;
    const HEADER: usize = 16;

    fn record(&mut self, record: &[u8]) {
        // Low packets are left out. DSCP LE has the value 1 (RFC 8622 §4.2).
        if record[Self::HEADER + 1] >> 2 == 1 {
            return;
        }
        self.packets += 1;
        for &byte in record {
            // FNV-1a.
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl io::Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        let mut pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        if !self.begun && pending.len() >= Self::FILE_HEADER {
            (self.begun, at) = (true, Self::FILE_HEADER);
        }
        while self.begun
            && let Some(&[a, b, c, d]) = pending.get(at + 8..at + 12)
        {
            let end = at + Self::HEADER + u32::from_le_bytes([a, b, c, d]) as usize;
            let Some(record) = pending.get(at..end) else { break };
            self.record(record);
            at = end;
        }
        pending.drain(..at);
        self.pending = pending;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct World {
    net: Network,
    bottleneck: LinkId,
    layered: Vec<FlowId>,
    bystanders: Vec<FlowId>,
    web: marcato_sim::ProcessId,
}

impl Harm {
    fn build(&self, seed: u64) -> Result<World, SimulationError> {
        let mut net = Network::new(Seed::new(seed));
        let (left, right) = (net.node("left"), net.node("right"));
        let delay = Duration::from_millis(20);
        let there = LinkConfig::new(RATE, delay);
        let there = match self.service {
            Service::Residual => there.queue(strict(SMALL_BUFFER)?),
            Service::PreEmptive => there.queue(queue(SMALL_BUFFER)?).preempt(queue(SMALL_BUFFER)?),
        };
        let (bottleneck, _) = net.link(left, right, there, LinkConfig::delay_only(delay));
        let source = |net: &mut Network, name: &str, index: u32| -> Result<NodeId, SimulationError> {
            // Round trips of 60, 61.4, 62.8 ... ms, so that no two flows synchronise.
            let delay = Duration::from_micros(10_000 + 700 * u64::from(index));
            let node = net.node(name);
            let access = LinkConfig::new(Rate::from_mbps(10_000), delay)
                .queue(queue(100_000)?)
                .preempt(queue(100_000)?)
                .loss(random(self.loss));
            net.link(node, left, access, LinkConfig::delay_only(delay));
            Ok(node)
        };
        let mut flows = Vec::with_capacity(LAYERED + BYSTANDERS);
        for (index, number) in (0..LAYERED + BYSTANDERS).zip(0u32..) {
            let client = source(&mut net, &format!("source {index}"), number)?;
            let config = world::tcp(self.plt.filter(|_| index < LAYERED), Congestion::Reno);
            // Starts are spread, so that few flows lose packets to the slow starts of others.
            let start = Time::ZERO + self.span.warm_up * number / 50;
            flows.push(net.tcp(TcpFlow::new(client, right, config, Bulk::endless()).start(start))?);
        }
        let client = source(&mut net, "web", 14)?;
        let payload = u64::from(PAYLOAD);
        let sizes =
            Distribution::truncated_pareto(1.2, Bytes::new(25 * payload), Bytes::new(10_000 * payload))?;
        let arrivals = FlowArrivals::PerSecond(SHORT_PER_SECOND);
        let config = world::tcp(None, Congestion::Reno);
        let web = FlowProcess::new(client, right, config, sizes, arrivals).stop(self.span.until());
        let web = net.spawn(web)?;
        let bystanders = flows.split_off(LAYERED);
        Ok(World { net, bottleneck, layered: flows, bystanders, web })
    }
}

impl Setup for Harm {
    type Outcome = Seen;

    kept_as_json!();

    fn cost(&self) -> u64 {
        self.span.whole()
    }

    fn run(&self, seed: u64) -> Result<Seen, SimulationError> {
        // Fewer than 1000 parts per seed, so that parts of two seeds never coincide.
        let World { mut net, bottleneck, layered, bystanders, web } =
            self.build(seed.wrapping_mul(1000).wrapping_add(self.part))?;
        // The offset basis of FNV-1a, 64 bits.
        let mut high = Digest { hash: 0xcbf2_9ce4_8422_2325, ..Digest::default() };
        let watched = self.service == Service::PreEmptive;
        if watched {
            net.tap(bottleneck, Tap::default().snaplen(80));
        }
        let mut before = None;
        let each = |net: &Network| bystanders.iter().map(|&flow| received(net, flow)).collect::<Vec<_>>();
        let sent = |net: &Network| {
            let of =
                |flow: &FlowId| net.tcp_stats(*flow, Side::Client).map_or(0, |stats| stats.segments_sent);
            layered.iter().map(of).sum::<u64>()
        };
        let low = |net: &Network| {
            let of = |flow: &FlowId| {
                net.plt_stats(*flow, Side::Server).map_or(0, |stats| stats.received_low.get())
            };
            layered.iter().map(of).sum::<u64>()
        };
        let mut at = Time::ZERO;
        while at < self.span.until() {
            at += Duration::from_secs(1);
            net.run_until(at);
            if watched {
                net.drain_tap(bottleneck, &mut high)?;
            }
            if at >= self.span.from() && before.is_none() {
                before = Some((each(&net), sent(&net), low(&net)));
            }
        }
        let (bytes, segments, low_before) = before.ok_or(SimulationError::Missing("measured span"))?;
        let after = each(&net);
        let (hcm, low) = (sent(&net) - segments, low(&net) - low_before);
        // Compares the same flows in both arms: those that began in the measured span have 10 more
        // seconds to complete.
        net.run_until(self.span.until() + Duration::from_secs(10));
        let begun = self.span.from()..self.span.until();
        let (mut sum, mut count) = (0.0, 0u32);
        for flow in net.flow_records(web).iter().filter(|flow| begun.contains(&flow.start())) {
            if let Some(took) = flow.completion() {
                sum += took.as_secs_f64() * 1e3;
                count += 1;
            }
        }
        Ok(Seen {
            bystanders: after
                .iter()
                .zip(&bytes)
                .map(|(after, before)| goodput(after - before, self.span.length))
                .collect(),
            fct: sum / f64::from(count),
            hcm: hcm as f64,
            low: goodput(low, self.span.length),
            high,
        })
    }
}

/// Both arms, each with the runs derived from every seed.
pub(super) struct Arms {
    without: Vec<Ticket<Harm>>,
    with: Vec<Ticket<Harm>>,
    /// Runs without low layers and with other seeds, to show the effect of chance alone.
    other: Vec<Ticket<Harm>>,
}

/// Place of the losses.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Losses {
    /// Random loss of 0.1 % before the bottleneck, which is then not full: low layers carry much.
    /// The losses are numerous enough for their chances to even out to well below 1 %.
    Random,
    /// Loss at the bottleneck's queue alone, which high flows fill among themselves.
    Congestion,
}

impl Losses {
    const fn rate(self) -> f64 {
        match self {
            Self::Random => 1e-3,
            Self::Congestion => 0.0,
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Random => "",
            Self::Congestion => ".congested",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Random => "loss 0.1 % before the bottleneck",
            Self::Congestion => "no loss except at the queue",
        }
    }
}

/// Outcomes with all seeds.
fn all<'a>(runs: &'a Runs, tickets: &[Ticket<Harm>]) -> Vec<&'a Seen> {
    tickets.iter().flat_map(|&it| runs.of(it)).collect()
}

/// Change in % of the mean goodput, over all seeds, of the bystander that loses most.
fn worst_of(before: &[&Seen], after: &[&Seen]) -> f64 {
    let sum = |seen: &[&Seen], flow: usize| seen.iter().map(|seen| seen.bystanders[flow]).sum::<f64>();
    (0..BYSTANDERS)
        .map(|flow| 100.0 * (sum(after, flow) / sum(before, flow) - 1.0))
        .fold(f64::INFINITY, f64::min)
}

impl Arms {
    fn plan(plan: &mut Plan, losses: Losses, service: Service, parts: u64, on: PltConfig) -> Self {
        let span = plan.scale.harm;
        let mut arm = |plt: Option<PltConfig>, parts: Range<u64>| {
            parts.map(|part| plan.add(Harm { loss: losses.rate(), service, plt, part, span })).collect()
        };
        let (without, with) = (arm(None, 0..parts), arm(Some(on), 0..parts));
        // Without random losses, the smallest delay changes which flow loses at the queue. Pairing
        // runs then no longer cancels chance.
        let chance = losses == Losses::Congestion && service == Service::Residual;
        Self { without, with, other: arm(None, if chance { parts..2 * parts } else { 0..0 }) }
    }

    /// Arms of a bottleneck that finishes a low packet in transmission.
    pub(super) fn residual(plan: &mut Plan, losses: Losses, on: PltConfig) -> Self {
        let parts = plan.scale.harm_seeds;
        Self::plan(plan, losses, Service::Residual, parts, on)
    }

    /// Outcomes of both arms, paired by seed.
    fn pairs<'a>(&self, runs: &'a Runs) -> Vec<(&'a Seen, &'a Seen)> {
        all(runs, &self.without).into_iter().zip(all(runs, &self.with)).collect()
    }

    /// Change of a value in % by low layers, for each seed.
    fn changes(&self, runs: &Runs, value: impl Fn(&Seen) -> f64) -> Vec<f64> {
        self.pairs(runs)
            .into_iter()
            .map(|(without, with)| 100.0 * (value(with) / value(without) - 1.0))
            .collect()
    }

    /// Rows about harm.
    pub(super) fn rows(&self, runs: &Runs, stem: &str, of: &str, suffix: &str, claims: bool) -> Vec<Row> {
        let row = |what: &str, text: &str, samples: &[f64]| {
            Row::new(format!("{stem}.{what}{suffix}"), format!("{text}, {of}"), Unit::Percent)
                .samples(samples)
        };
        let near = |row: Row| if claims { row.within(-1.0, 1.0) } else { row };
        let total = self.changes(runs, |seen| seen.bystanders.iter().sum());
        let fct = self.changes(runs, |seen| seen.fct);
        let hcm = self.changes(runs, |seen| seen.hcm);
        let pairs = self.pairs(runs);
        let changed = "change of the mean goodput of the bystander that fares worst";
        let worst_row = |what: &str, text: &str, worst: f64| {
            Row::new(format!("{stem}.{what}{suffix}"), format!("{text}, {of}"), Unit::Percent).measured(worst)
        };
        let worst = worst_row("worst", changed, worst_of(&all(runs, &self.without), &all(runs, &self.with)));
        let other = all(runs, &self.other);
        let by_chance = (!other.is_empty()).then(|| {
            let worst = worst_of(&all(runs, &self.without), &other);
            worst_row("worst.chance", "the same between two sets of seeds, both without low layers", worst)
        });
        let low = pairs.iter().map(|pair| pair.1.low).sum::<f64>() / pairs.len() as f64;
        let mut rows = vec![
            near(row("total", "change of the bystanders' total goodput", &total)),
            near(row("fct", "change of the mean completion time of short flows", &fct)),
            // Chance alone has the same effect there, so that nothing can be claimed.
            if claims && by_chance.is_none() { worst.at_least(-3.0) } else { worst },
            near(row("hcm", "change of the packets that the layered flows send high", &hcm)),
            Row::new(
                format!("{stem}.low{suffix}"),
                format!("carried by low packets meanwhile, {of}"),
                Unit::MbitPerS,
            )
            .measured(low),
        ];
        rows.extend(by_chance);
        rows
    }

    /// Rows of a link that pre-empts: nothing may differ at all.
    fn exact(&self, runs: &Runs, losses: Losses) -> Vec<Row> {
        let pairs = self.pairs(runs);
        let same = pairs.iter().all(|(without, with)| {
            without.high == with.high
                && without.bystanders == with.bystanders
                && without.hcm == with.hcm
                && without.fct == with.fct
        });
        let (id, of) = (|what: &str| format!("plt.harm.preempted.{what}{}", losses.suffix()), losses.name());
        let packets: f64 = pairs.iter().map(|pair| pair.0.high.packets as f64).sum();
        let low: f64 = pairs.iter().map(|pair| pair.1.low).sum::<f64>() / pairs.len() as f64;
        vec![
            Row::verdict(
                id("same"),
                format!(
                    "high packets leave a pre-emptive bottleneck the same to the byte and nanosecond, {of}"
                ),
                same && packets > 0.0,
            ),
            Row::new(id("packets"), format!("high packets compared, {of}"), Unit::Count).measured(packets),
            Row::new(id("low"), format!("carried by low packets beside them, {of}"), Unit::MbitPerS)
                .measured(low),
        ]
    }
}

fn text(seeds: u64) -> String {
    prose::text(&format!(include_str!("harm.md"), seeds = seeds))
}

/// Harm to other flows.
pub(super) fn harm(plan: &mut Plan) -> Ask {
    let (claims, seeds) = (plan.scale.claims, plan.scale.harm_seeds);
    let scenarios = [Losses::Random, Losses::Congestion].map(|losses| {
        let exact = Arms::plan(plan, losses, Service::PreEmptive, 1, plt());
        (losses, exact, Arms::residual(plan, losses, plt()))
    });
    Box::new(move |runs| {
        let mut rows = Vec::new();
        for (losses, exact, residual) in &scenarios {
            rows.extend(residual.rows(runs, "plt.harm", losses.name(), losses.suffix(), claims));
            rows.extend(exact.exact(runs, *losses));
        }
        Answer::new("Harm to others", text(seeds), rows)
    })
}
