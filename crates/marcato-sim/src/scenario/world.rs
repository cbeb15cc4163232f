//! World: the network of an experiment, with all its recorders.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_quic::Secrets;
use marcato_scenario::record::{CaptureFormat, Pcap};
use marcato_units::{Bytes, Duration, Time};

use super::fabric::{Advance, Fabric};
use super::flows::{Tracked, mbps};
use super::group::GroupOutcome;
use super::observed::Observation;
use super::outcome::{Completion, FlowOutcome, LinkOutcome, Outcome};
use super::sampler::Sampler;
use super::warning::Warning;
use crate::{DelaySummary, FlowId, LinkCounters, LinkId, Load, Network, QueueDelays, Tap};

/// Interval between samples of round-trip times.
const LOOK: Duration = Duration::from_millis(10);

/// One direction of a link.
pub(super) struct Way {
    pub(super) name: String,
    pub(super) back: bool,
    pub(super) id: LinkId,
    pub(super) record: Rc<RefCell<Observation>>,
    /// Counts at the end of the warm-up.
    pub(super) before: Counted,
}

/// Counts since the beginning of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    link: LinkCounters,
    load: Load,
    /// Packets that the queue marked.
    marks: u64,
    /// Bytes offered to a queue that judges flows: of responsive flows, and of all.
    judged: Option<[Bytes; 2]>,
}

impl Counted {
    /// Counts at the beginning of the run.
    pub(super) fn beginning(load: Load) -> Self {
        Self { link: LinkCounters::default(), load, marks: 0, judged: None }
    }

    /// Returns the bytes that the link had carried, and those that it could have carried.
    pub(super) const fn load(&self) -> Load {
        self.load
    }
}

impl Way {
    fn counted(&self, net: &dyn Fabric) -> Counted {
        let judged = net.judged(self.id).or(self.record.borrow().judged);
        let (link, load) = (net.link_counters(self.id), net.link_load(self.id));
        Counted { link, load, marks: net.marked(self.id), judged }
    }

    fn begin(&mut self, net: &mut dyn Fabric) {
        self.before = self.counted(net);
        net.restart_queue_delays(self.id);
        self.record.borrow_mut().occupancy.restart(net.now());
    }

    fn outcome(&self, net: &mut dyn Fabric, from: Time) -> LinkOutcome {
        let now = net.now();
        let Counted { link: counters, load, marks, judged } = self.counted(net);
        let Counted { link: before, load: load_before, marks: marks_before, judged: judged_before } =
            self.before;
        let [responsive, all] = [0, 1].map(|of| {
            let bytes = |judged: Option<[Bytes; 2]>| judged.map_or(0, |judged| judged[of].get());
            (bytes(judged) - bytes(judged_before)) as f64
        });
        let bytes = counters.delivered_bytes - before.delivered_bytes;
        let observed = || self.record.borrow_mut().occupancy.until(now);
        let waiting = net.waiting(self.id).unwrap_or_else(observed);
        LinkOutcome {
            name: self.name.clone(),
            back: self.back,
            offered: counters.offered - before.offered,
            delivered: counters.delivered - before.delivered,
            bytes,
            throughput: mbps(bytes, now.since(from)).unwrap_or(0.0),
            utilisation: load.utilisation_since(load_before),
            waiting,
            queue_delay: net
                .queue_delays(self.id)
                .as_ref()
                .and_then(QueueDelays::spans)
                .and_then(DelaySummary::of),
            drops: counters.dropped - before.dropped,
            too_big: counters.too_big - before.too_big,
            marks: marks - marks_before,
            losses: counters.lost - before.lost,
            duplicates: counters.duplicated - before.duplicated,
            responsive: (all > 0.0).then(|| responsive / all),
        }
    }
}

/// Fabric of an experiment, by default the simulator's network, with all recorders, ready to run.
pub struct World<F = Network> {
    pub(super) net: F,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    pub(super) flows: Vec<Tracked>,
    pub(super) ways: Vec<Way>,
    pub(super) sampler: Sampler,
    /// Indices of the directions that are tapped.
    pub(super) taps: Vec<usize>,
    /// Configuration of the captures.
    pub(super) pcap: Pcap,
    /// Secrets of QUIC connections, if packets are captured.
    pub(super) secrets: Secrets,
    /// Warnings about the scenario itself.
    pub(super) warnings: Vec<String>,
}

/// Observer of a run.
pub trait Watcher {
    /// Reports the time that the run has reached.
    fn time(&mut self, now: Time);
    /// Receives a part of the capture of one direction of a link; the concatenated parts are a pcap
    /// file.
    fn captured(&mut self, link: &str, back: bool, part: &[u8]);

    /// Receives one completion, after the run, flow by flow. Completions are passed one by one, as
    /// there may be millions.
    fn completed(&mut self, _one: &Completion<'_>) {}

    /// Returns true to stop the run early; called from time to time. The results of a stopped run
    /// are meaningless.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Receives a part of the common capture of all tapped links; the concatenated parts are a
    /// pcapng file.
    fn captured_together(&mut self, _part: &[u8]) {}
    /// Receives secrets of QUIC connections whose packets are captured, as lines of an
    /// SSLKEYLOGFILE.
    fn secrets(&mut self, _lines: &str) {}
}

/// Observer that reports the time and discards captures.
impl<F: FnMut(Time)> Watcher for F {
    fn time(&mut self, now: Time) {
        self(now);
    }

    fn captured(&mut self, _link: &str, _back: bool, _part: &[u8]) {}
}

impl World {
    /// Returns the network, to inspect it.
    pub const fn network(&self) -> &Network {
        &self.net
    }
}

impl<F: Advance> World<F> {
    /// Returns the flow of this name; each of several instances has its own. `None` for a process.
    pub fn flow(&self, name: &str) -> Option<FlowId> {
        self.flows.iter().find(|flow| flow.name == name).and_then(Tracked::id)
    }

    /// Returns the directions of the link of this name: there, and back.
    pub fn link(&self, name: &str) -> Option<[LinkId; 2]> {
        let way = |back| self.ways.iter().find(|way| way.name == name && way.back == back).map(|way| way.id);
        Some([way(false)?, way(true)?])
    }

    /// Adds a warning to the results.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Returns the duration of the run in virtual time.
    pub const fn duration(&self) -> Duration {
        self.duration
    }

    /// Runs the experiment from beginning to end and returns its results. `watcher` receives the
    /// time at intervals, and all captures.
    ///
    /// # Errors
    /// If the fabric cannot go on. The simulator's cannot after a
    /// [`Standstill`](crate::Standstill): events that follow each other without end at one instant,
    /// on a cycle of links that takes no time.
    pub fn run(mut self, watcher: &mut dyn Watcher) -> Result<Outcome, F::Error> {
        for &place in &self.taps {
            let way = &self.ways[place];
            let snaplen = self.pcap.snaplen.and_then(|most| u32::try_from(most.get()).ok());
            let tap = Tap::default().snaplen(snaplen.unwrap_or(Tap::WHOLE));
            match self.pcap.format {
                CaptureFormat::Pcap => self.net.tap(way.id, tap),
                CaptureFormat::PcapNg => {
                    let name = format!("{} {}", way.name, if way.back { "back" } else { "there" });
                    self.net.tap_together(way.id, &name, tap);
                }
            }
        }
        let (begin, end) = (Time::ZERO + self.warm_up, Time::ZERO + self.duration);
        let mut look = Time::ZERO;
        let mut is_warm = false;
        loop {
            if !is_warm && self.net.now() >= begin.min(end) {
                is_warm = true;
                let net: &mut dyn Fabric = &mut self.net;
                self.flows.iter_mut().for_each(|flow| flow.begin(net));
                self.ways.iter_mut().for_each(|way| way.begin(net));
            }
            if self.net.now() >= end {
                break;
            }
            let sample = self.sampler.next().unwrap_or(Time::MAX);
            let change = if is_warm { end } else { begin.min(end) };
            self.net.advance((look + LOOK).min(sample).min(change).min(end))?;
            let now = self.net.now();
            if now >= look + LOOK {
                look = now;
                let net: &dyn Fabric = &self.net;
                self.flows.iter_mut().for_each(|flow| flow.look(net));
                watcher.time(now);
                self.drain(watcher);
                if watcher.is_stopped() {
                    break;
                }
            }
            if now >= sample {
                self.sampler.sample(&self.net, &self.flows, &self.ways);
            }
        }
        self.drain(watcher);
        // A stopped run may end before the warm-up does.
        let begin = begin.min(self.net.now());
        let links: Vec<LinkId> = self.ways.iter().map(|way| way.id).collect();
        let flows: Vec<FlowOutcome> = self
            .flows
            .iter()
            .map(|flow| flow.outcome(&self.net, &links, begin, &mut |one| watcher.completed(one)))
            .collect();
        Ok(Outcome {
            warnings: self.warnings(),
            events: self.net.events(),
            span: end.since(begin),
            groups: groups(&self.flows, &flows, &self.net, begin),
            flows,
            links: self.ways.iter().map(|way| way.outcome(&mut self.net, begin)).collect(),
            series: self.sampler.finish(),
        })
    }

    /// Returns the warnings of the run.
    fn warnings(&self) -> Vec<Warning> {
        let silent = self.flows.iter().filter(|flow| flow.totals(&self.net).bytes.is_zero());
        let silent = silent.map(|flow| Warning::NothingDelivered { flow: flow.name.clone() });
        let own = self.warnings.iter().cloned().chain(self.net.warnings());
        let mut warnings: Vec<Warning> = own.map(Warning::Scenario).chain(silent).collect();
        // MTU discovery sends packets above the MTU on purpose.
        if !self.flows.iter().any(Tracked::discovers_mtu) {
            warnings.extend(self.ways.iter().filter_map(|way| {
                let packets = self.net.link_counters(way.id).too_big;
                let (link, back) = (way.name.clone(), way.back);
                (packets > 0).then_some(Warning::TooBig { link, back, packets })
            }));
        }
        warnings
    }

    fn drain(&mut self, watcher: &mut dyn Watcher) {
        // The secrets since the last call belong to the packets captured since then.
        let secrets = self.secrets.take();
        if !secrets.is_empty() {
            watcher.secrets(&secrets);
        }
        if self.pcap.format == CaptureFormat::PcapNg {
            let part = self.net.take_taps(&secrets);
            if !part.is_empty() {
                watcher.captured_together(&part);
            }
            return;
        }
        for &place in &self.taps {
            let way = &self.ways[place];
            let part = self.net.take_tap(way.id);
            if !part.is_empty() {
                watcher.captured(&way.name, way.back, &part);
            }
        }
    }
}

/// Returns the joint results of each flow with several instances, and of each process.
fn groups(tracked: &[Tracked], flows: &[FlowOutcome], net: &dyn Fabric, from: Time) -> Vec<GroupOutcome> {
    let mut groups: Vec<GroupOutcome> = Vec::new();
    for all in tracked.chunk_by(|a, b| a.flow == b.flow) {
        let Some((one, rest)) = all.split_first() else { continue };
        if rest.is_empty() && !one.is_process() {
            continue;
        }
        let outcomes = tracked.iter().zip(flows).filter(|(flow, _)| flow.flow == one.flow);
        let mut group = GroupOutcome {
            name: one.flow.clone(),
            kind: one.kind(),
            goodput: 0.0,
            members: Vec::new(),
            completions: Vec::new(),
        };
        let mut bytes = Bytes::ZERO;
        let mut span: Option<[Time; 2]> = None;
        for (flow, outcome) in outcomes {
            group.completions.extend(outcome.completions());
            // A flow that was over before the measurement began has no goodput, not one of 0.
            let Some([begin, end]) = flow.measured(net, from) else { continue };
            bytes += outcome.bytes;
            span = Some(span.map_or([begin, end], |[first, last]| [first.min(begin), last.max(end)]));
            match flow.connections(net, from) {
                Some(goodputs) => group.members.extend(goodputs),
                None => group.members.push(outcome.goodput),
            }
        }
        group.goodput = span.and_then(|[begin, end]| mbps(bytes, end.since(begin))).unwrap_or(0.0);
        groups.push(group);
    }
    groups
}
