//! One run: two ends, the paths between them, and the traffic.
//!
//! Each parameter that an experiment varies is a field of [`Setup`], and each result that it needs
//! a field of [`Outcome`]. A run is a function of its setup and a seed.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_quic::{
    Batch, Congestion, Event, Growth, Identity, LaneRequest, LaneState, LaneStats, Pacing, PathScheduler,
    Piece, SessionConfig, SessionStats, SocketId, StreamUse, Trust,
};
use marcato_report::World;
use marcato_sched::conductor::{Config, Debt, Redundancy};
use marcato_sched::schedule::{CwrConfig, Unused};
use marcato_sim::quic::{
    Background, MessageCollector, Periodic, QuicApp, QuicContext, QuicHost, QuicRole, Traffic,
};
use marcato_sim::{
    DatagramFlow, FlowId, HostContext, LinkConfig, LinkId, Loss, Network, NodeId, Packet, Route, RouteId,
    Side,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

use super::growth::Windows;
use super::predict::{CHECKED_ON, Reduction};
use super::published::{self, LOSS, PACKET, RATE, Scheduler};
use super::watch::{Longest, Watch};
use crate::carrier::Carrier;
use crate::error::SimulationError;

/// A path between the two ends.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Round-trip time without queueing, half of it each way.
    pub(super) rtt: Duration,
    /// Rate in both directions.
    pub(super) rate: Rate,
    /// Share of packets that the wire loses in the direction of the data.
    pub(super) loss: f64,
    /// Share of packets that the wire loses in the direction of the acknowledgements.
    pub(super) ack_loss: f64,
    /// Packets that may wait before each transmitter.
    pub(super) queue: u64,
    /// Start and end of an outage in both directions, since the start of the run.
    pub(super) outage: Option<(Time, Time)>,
}

impl Path {
    /// Path as in the paper (§IV-A). The paper does not say whether acknowledgements are lost: here
    /// they are not. It does not give the queue either: here it is so long that nothing is dropped
    /// after slow start.
    pub(super) const fn paper(rtt: Duration) -> Self {
        Self { rtt, rate: RATE, loss: LOSS, ack_loss: 0.0, queue: 2000, outage: None }
    }
}

/// Times of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Time from the start of the run until slow start and its effects are over.
    pub(super) warm_up: Duration,
    /// Duration of the measurement after that.
    pub(super) length: Duration,
}

impl Span {
    fn begin(self) -> Time {
        Time::ZERO + self.warm_up
    }

    fn end(self) -> Time {
        self.begin() + self.length
    }
}

/// A run, apart from its seed.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Configuration of both ends. The server sends, so that its schedulers and controllers apply.
    pub(super) session: SessionConfig,
    /// Paths between the ends, in the order in which the client opens them.
    pub(super) paths: Vec<Path>,
    /// Sources that release messages at the server.
    pub(super) sources: Vec<Periodic>,
    /// Endless data in each of these levels.
    pub(super) background: Vec<Background>,
    /// Path that the receiver declares a backup, so that its acknowledgements take another path.
    pub(super) backup: Option<u32>,
    /// True if the receiver requests a lane that has gone again every second.
    pub(super) reopen: bool,
    /// Level whose waits are recorded.
    pub(super) watch: Option<Priority>,
    /// Largest number of seeds.
    pub(super) seeds: usize,
    /// Times of the measurement.
    pub(super) span: Span,
    /// World in which the paths are built.
    pub(super) world: World,
}

impl Setup {
    /// The paper's experiment (§III and §IV): the given sources, most urgent, with endless
    /// background data.
    pub(super) fn paper(
        scheduler: Scheduler,
        rtts: [Duration; 2],
        sources: &[published::Periodic],
        span: Span,
    ) -> Self {
        let path_scheduler = match scheduler {
            Scheduler::LowRtt => PathScheduler::LowRtt,
            Scheduler::Cwr => PathScheduler::Cwr(CwrConfig::paper()),
            Scheduler::CwrRed => PathScheduler::CwrRed(CwrConfig::paper()),
        };
        let redundancy = match scheduler {
            Scheduler::LowRtt | Scheduler::Cwr => Redundancy::Once,
            Scheduler::CwrRed => Redundancy::EveryLane,
        };
        let source = |source: &published::Periodic| Periodic {
            redundancy,
            // Both lanes are open by then.
            first: Time::from_secs(1),
            ..Periodic::new(source.period, source.size)
        };
        let setup = Self {
            session: SessionConfig {
                path_scheduler,
                // Priority FIFO (§III-C): no debts.
                conductor: Config::with_debt(Debt::strict()),
                pacing: Pacing::Off,
                growth: Growth::Acknowledged,
                streams: StreamUse::PerMessage,
                batch: Batch::ONE,
                initial_mtu: u16::try_from(PACKET.get()).unwrap_or(u16::MAX),
                mtu_discovery: false,
                lane_idle_timeout: None,
                trace_windows: true,
                ..SessionConfig::default()
            },
            paths: rtts.into_iter().map(Path::paper).collect(),
            sources: sources.iter().map(source).collect(),
            background: vec![Background::default()],
            backup: None,
            reopen: false,
            watch: None,
            seeds: usize::MAX,
            span,
            world: World::Virtual,
        };
        setup.reduced_to(CHECKED_ON)
    }

    /// Sets NewReno with this reduction of windows.
    #[expect(clippy::cast_possible_truncation, reason = "a factor needs no more digits")]
    pub(super) fn reduced_to(mut self, reduction: Reduction) -> Self {
        let loss_reduction_factor = reduction.factor() as f32;
        self.session.congestion = Congestion::NewReno { loss_reduction_factor };
        self
    }

    /// Applies `change` to the session's configuration, at both ends.
    pub(super) fn with_session(mut self, change: impl FnOnce(&mut SessionConfig)) -> Self {
        change(&mut self.session);
        self
    }

    /// Applies `change` to every path.
    pub(super) fn with_paths(mut self, change: impl FnMut(&mut Path)) -> Self {
        self.paths.iter_mut().for_each(change);
        self
    }

    /// Applies `change` to every source.
    pub(super) fn with_sources(mut self, change: impl FnMut(&mut Periodic)) -> Self {
        self.sources.iter_mut().for_each(change);
        self
    }

    /// Moves the run to a lab.
    pub(super) fn in_lab(self) -> Self {
        Self { world: World::Lab, ..self }
    }

    /// Duration of the run.
    pub(super) fn duration(&self) -> Duration {
        self.span.warm_up + self.span.length + DRAIN
    }
}

/// Time for the last released messages to arrive.
const DRAIN: Duration = Duration::from_secs(1);

/// Record of a source's message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Released {
    /// Time at which the message was handed over at the sender.
    pub(super) at: Time,
    /// Time from the release until its last byte first left, in ms. Infinite if it never did, or if
    /// other data of its level was always waiting.
    pub(super) left: f64,
    /// Time from the release until its last byte was read at the receiver, in ms; infinite if it
    /// never was.
    pub(super) mct: f64,
}

impl Released {
    /// Returns true if a packet of the message was lost and retransmitted. Queues are negligible
    /// here, so nothing else keeps a message in flight for longer than a round trip.
    pub(super) fn was_repaired(&self, rtt: Duration) -> bool {
        self.mct - self.left > rtt.as_secs_f64() * 1e3
    }
}

/// Record of a lane during the measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LaneOutcome {
    /// Changes of its window.
    pub(super) windows: Windows,
    /// Mean of the smoothed round-trip times at the changes of its window, in ms.
    pub(super) srtt: f64,
    /// Counters of packets, losses, repairs and reductions.
    pub(super) stats: LaneStats,
    /// IP bytes that its path delivered in the direction of the data, and in the other.
    pub(super) wire: Bytes,
    pub(super) back: Bytes,
    /// Data packets that its wire lost, and that the queue before it dropped.
    pub(super) lost: u64,
    pub(super) dropped: u64,
}

impl crate::plan::Setup for Setup {
    type Outcome = Outcome;

    /// Cost in simulated seconds.
    fn cost(&self) -> u64 {
        self.duration().as_secs()
    }

    fn seeds(&self) -> usize {
        self.seeds
    }

    fn run(&self, seed: u64) -> Result<Outcome, SimulationError> {
        run(self, seed)
    }
}

/// Outcome of a run. Unless stated otherwise, values count from the end of the warm-up to the end
/// of the span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Messages that each source released, in order.
    pub(super) sources: Vec<Vec<Released>>,
    /// Bytes of messages that the receiver read, by level; each byte once.
    pub(super) bytes: [Bytes; Priority::COUNT],
    /// Bytes of messages that the receiver already had, mostly copies.
    pub(super) duplicates: Bytes,
    /// Lanes, in the order of their paths.
    pub(super) lanes: Vec<LaneOutcome>,
    /// Counters of the sending session, over the whole run.
    pub(super) stats: SessionStats,
    /// Window kept from background data, over the whole run.
    pub(super) unused: Unused,
    /// Messages that the sending session refused, over the whole run.
    pub(super) refused: u64,
    /// Messages that the receiver completed a second time, over the whole run.
    pub(super) again: u64,
    /// Lanes that the sender gave up, and lanes that it opened, over the whole run.
    pub(super) lanes_down: u64,
    pub(super) lanes_up: u64,
    /// Longest wait of the watched level.
    pub(super) waited: Longest,
    /// Duration of the measurement, and of the warm-up before it.
    pub(super) length: Duration,
    pub(super) warm_up: Duration,
}

impl Outcome {
    /// Completion times of a source's messages in ms.
    pub(super) fn mcts(&self, source: usize) -> impl Iterator<Item = f64> + '_ {
        self.sources.get(source).into_iter().flatten().map(|released| released.mct)
    }

    /// Rate at which `bytes` arrived, in Mbit/s.
    pub(super) fn rate(&self, bytes: Bytes) -> f64 {
        bytes.get() as f64 * 8e-6 / self.length.as_secs_f64()
    }

    /// Bytes of messages read, in Mbit/s.
    pub(super) fn goodput(&self) -> f64 {
        self.rate(self.bytes.into_iter().sum())
    }
}

/// The sending application: [`Traffic`], and observers of the lanes.
struct Sender {
    traffic: Traffic,
    span: Span,
    /// For each path: the window, the sum of the sampled smoothed round-trip times, and their
    /// number.
    lanes: Vec<(Windows, Duration, u32)>,
    /// Sampler of the waits of a level.
    watch: Option<Watch>,
    lanes_down: u64,
    lanes_up: u64,
    /// Priority of each source.
    levels: Vec<Priority>,
    /// For each source, the times at which its messages had left.
    left: Vec<Vec<Time>>,
}

impl Sender {
    /// Notes that released messages have left if nothing of their level waits.
    fn note_left(&mut self, context: &mut QuicContext<'_>) {
        let now = context.now();
        let counters = context.session().conducted();
        for ((left, releases), level) in self.left.iter_mut().zip(&self.traffic.releases).zip(&self.levels) {
            if left.len() < releases.len() && counters.level(*level).queued.bytes.is_zero() {
                left.resize(releases.len(), now);
            }
        }
    }
}

impl QuicApp for Sender {
    fn start(&mut self, now: Time, host: &HostContext<'_>) {
        self.traffic.start(now, host);
    }

    fn event(&mut self, event: &Event, context: &mut QuicContext<'_>) {
        self.traffic.event(event, context);
        self.lanes_down += u64::from(matches!(event, Event::LaneDown { .. }));
        self.lanes_up += u64::from(matches!(event, Event::LaneUp(_)));
        if let Event::Window { lane, at, change, window } = *event
            && let Some((view, ..)) = context.session().lanes().find(|(view, ..)| view.id == lane)
            && let Some((windows, srtt, count)) =
                usize::try_from(view.path.0).ok().and_then(|path| self.lanes.get_mut(path))
            && at < self.span.end()
        {
            windows.changed(at, change, window, at >= self.span.begin());
            if at >= self.span.begin() {
                *srtt += view.srtt;
                *count += 1;
            }
        }
    }

    fn received(&mut self, piece: Piece, context: &mut QuicContext<'_>) {
        self.traffic.received(piece, context);
    }

    fn timer(&mut self, context: &mut QuicContext<'_>) {
        self.traffic.timer(context);
        let now = context.now();
        if let Some(watch) = &mut self.watch {
            watch.look(now, context.session().conducted());
        }
    }

    fn idle(&mut self, context: &mut QuicContext<'_>) -> bool {
        self.note_left(context);
        self.traffic.idle(context)
    }

    fn next_timer(&self) -> Option<Time> {
        let look = self.watch.as_ref().map(Watch::next).filter(|&at| at < self.span.end());
        self.traffic.next_timer().into_iter().chain(look).min()
    }
}

/// The receiving application: a [`MessageCollector`] that may declare a lane a backup, or request
/// lanes that have gone again.
struct Receiver {
    collector: MessageCollector,
    backup: Option<u32>,
    reopen: bool,
    /// Lanes that it can request.
    lanes: Vec<LaneRequest>,
    /// Time of its next request.
    ask: Option<Time>,
}

/// Time between two requests for a lane that has gone.
const ASK: Duration = Duration::from_secs(1);

impl QuicApp for Receiver {
    fn start(&mut self, _: Time, host: &HostContext<'_>) {
        let request = |route: RouteId| {
            let socket = SocketId(u8::try_from(route.index()).ok()?);
            Some(LaneRequest::new(socket, host.remote(route)?))
        };
        self.lanes = host.routes().filter_map(request).collect();
    }

    fn timer(&mut self, context: &mut QuicContext<'_>) {
        let now = context.now();
        if self.ask.is_none_or(|at| at > now) {
            return;
        }
        for &lane in &self.lanes {
            // A request for a lane that exists or is being opened is refused.
            let _ = context.session().add_lane(now, lane);
        }
        let kept = context.session().lanes().filter(|&(_, state, _)| state != LaneState::Closing).count();
        self.ask = (kept < self.lanes.len()).then(|| now + ASK);
    }

    fn next_timer(&self) -> Option<Time> {
        self.ask
    }

    fn event(&mut self, event: &Event, context: &mut QuicContext<'_>) {
        if let Event::LaneDown { .. } = event
            && self.reopen
        {
            self.ask = Some(context.now() + ASK);
        }
        // A backup needs a second lane: the first one would be the only lane.
        if let Event::LaneUp(_) = event
            && let Some(path) = self.backup
        {
            let now = context.now();
            let lane =
                context.session().lanes().find(|(view, ..)| view.path.0 == path).map(|(view, ..)| view.id);
            if let Some(lane) = lane
                && context.session().set_backup(now, lane, true).is_ok()
            {
                self.backup = None;
            }
        }
    }

    fn received(&mut self, piece: Piece, context: &mut QuicContext<'_>) {
        self.collector.received(piece, context);
    }
}

/// Counters since the start of the run, at one time.
#[derive(Clone, Default)]
struct Snapshot {
    bytes: [Bytes; Priority::COUNT],
    duplicates: Bytes,
    /// Counters of the lanes, by path.
    lanes: HashMap<usize, LaneStats>,
    /// Delivered bytes, lost and dropped packets in the direction of the data.
    links: Vec<(Bytes, u64, u64)>,
    /// Delivered bytes in the other direction.
    back: Vec<Bytes>,
}

/// Paths, without the ends.
struct Ways {
    net: Carrier,
    server: NodeId,
    clients: Vec<NodeId>,
    /// For each path, its link in the direction of the acknowledgements, and in that of the data.
    links: Vec<[LinkId; 2]>,
}

impl Ways {
    fn simulated(setup: &Setup, seed: u64) -> Result<Self, SimulationError> {
        let mut net = Network::new(Seed::new(seed));
        let server = net.node("server");
        let queue = |path: &Path| -> Result<DropTail<Packet>, SimulationError> {
            Ok(DropTail::new(DropTailConfig { limit: Limit::Packets(path.queue) })?)
        };
        let (mut clients, mut links) = (Vec::new(), Vec::new());
        for (index, path) in setup.paths.iter().enumerate() {
            let client = net.node(&format!("client/{index}"));
            let way = |loss: f64| -> Result<LinkConfig, SimulationError> {
                let link = LinkConfig::new(path.rate, path.rtt / 2).queue(queue(path)?);
                Ok(if loss > 0.0 { link.loss(Loss::Random(loss)) } else { link })
            };
            let (up, down) = net.link(client, server, way(path.ack_loss)?, way(path.loss)?);
            if let Some((from, until)) = path.outage {
                for link in [up, down] {
                    net.set_link_up_at(link, from, false);
                    if until < Time::MAX {
                        net.set_link_up_at(link, until, true);
                    }
                }
            }
            clients.push(client);
            links.push([up, down]);
        }
        Ok(Self { net: Carrier::from(net), server, clients, links })
    }

    fn in_lab(setup: &Setup, seed: u64) -> Result<Self, SimulationError> {
        let mut nodes = String::from("\"server\"");
        let mut links = String::new();
        for (index, path) in setup.paths.iter().enumerate() {
            if path.outage.is_some() {
                return Err(SimulationError::Missing("outages in a lab"));
            }
            let loss = |share: f64| match share {
                0.0 => r#"{ kind = "none" }"#.to_owned(),
                _ => format!(r#"{{ kind = "random", probability = {share} }}"#),
            };
            nodes += &format!(", \"client{index}\"");
            links += &format!(
                r#"
                [[link]]
                name = "path{index}"
                between = ["client{index}", "server"]
                rate = "{rate} bit/s"
                delay = "{delay} ns"
                queue = {{ kind = "droptail", limit = "{queue} packets" }}
                loss = {up}
                back = {{ loss = {down} }}
                "#,
                rate = path.rate.as_bps(),
                delay = (path.rtt / 2).as_nanos(),
                queue = path.queue,
                up = loss(path.ack_loss),
                down = loss(path.loss),
            );
        }
        let text = format!(
            r#"
            name = "cwr"
            duration = "1 s"
            seed = {seed}
            nodes = [{nodes}]
            {links}
            [[flow]]
            name = "messages"
            kind = "tcp"
            from = "server"
            to = "client0"
            "#
        );
        let (net, _) = Carrier::lab(&text)?;
        let numbers = (0..).zip(&setup.paths).map(|(number, _)| number);
        let clients = numbers.clone().map(|number| NodeId::new(number + 1)).collect();
        let links = numbers.map(|number| [2 * number, 2 * number + 1].map(LinkId::new)).collect();
        Ok(Self { net, server: NodeId::new(0), clients, links })
    }
}

/// A network with both ends.
struct Stage {
    net: Carrier,
    flow: FlowId,
    down: Vec<LinkId>,
    up: Vec<LinkId>,
}

impl Stage {
    fn new(setup: &Setup, seed: u64) -> Result<Self, SimulationError> {
        let Ways { mut net, server, clients, links } = match setup.world {
            World::Virtual => Ways::simulated(setup, seed)?,
            World::Lab => Ways::in_lab(setup, seed)?,
        };
        let routes = clients.into_iter().map(|client| Route::new(client, server)).collect();
        let (up, down) = links.into_iter().map(|[up, down]| (up, down)).unzip();
        let identity = Identity::self_signed("server")?;
        let trust = Trust::Certificate(
            identity.certificate().ok_or(SimulationError::Missing("certificate"))?.clone(),
        );
        let traffic = Traffic::new(setup.sources.clone()).until(setup.span.end());
        let traffic =
            setup.background.iter().fold(traffic, |traffic, &background| traffic.background(background));
        let sender = Sender {
            traffic,
            span: setup.span,
            levels: setup.sources.iter().map(|source| source.priority).collect(),
            left: vec![Vec::new(); setup.sources.len()],
            lanes: setup.paths.iter().map(|path| (Windows::new(path.rtt), Duration::ZERO, 0)).collect(),
            watch: setup.watch.map(|level| Watch::new(level, setup.span.begin())),
            lanes_down: 0,
            lanes_up: 0,
        };
        let receiver = Receiver {
            collector: MessageCollector::default(),
            backup: setup.backup,
            reopen: setup.reopen,
            lanes: Vec::new(),
            ask: None,
        };
        // The engine needs instants, but nothing depends on their origin.
        let epoch = Instant::now();
        let role = QuicRole::Client { trust, name: "server".to_owned() };
        let client = QuicHost::new(role, setup.session.clone(), epoch, receiver);
        let server = QuicHost::new(QuicRole::Server { identity }, setup.session.clone(), epoch, sender);
        let flow = net.datagrams(DatagramFlow::new(client, server, routes))?;
        Ok(Self { net, flow, down, up })
    }

    fn end(&self, side: Side) -> Result<&QuicHost, SimulationError> {
        let host: &QuicHost = self.net.host(self.flow, side).ok_or(SimulationError::Missing("host"))?;
        match host.error() {
            Some(error) => Err(SimulationError::Begin(error.to_owned())),
            None => Ok(host),
        }
    }

    fn receiver(&self) -> Result<&Receiver, SimulationError> {
        self.end(Side::Client)?.app().ok_or(SimulationError::Missing("receiver"))
    }

    fn snapshot(&self) -> Result<Snapshot, SimulationError> {
        let (Some(receiving), Some(sending)) =
            (self.end(Side::Client)?.session(), self.end(Side::Server)?.session())
        else {
            // The session does not exist yet.
            return Ok(Snapshot::default());
        };
        let inbox = receiving.received();
        let lanes =
            sending.lanes().filter_map(|(view, _, stats)| Some((view.path.0.try_into().ok()?, stats)));
        let links = self.down.iter().map(|&link| {
            let counters = self.net.link_counters(link);
            (counters.delivered_bytes, counters.lost, counters.dropped)
        });
        Ok(Snapshot {
            bytes: self.receiver()?.collector.bytes,
            duplicates: inbox.duplicate + inbox.late,
            lanes: lanes.collect(),
            links: links.collect(),
            back: self.up.iter().map(|&link| self.net.link_counters(link).delivered_bytes).collect(),
        })
    }
}

/// Difference of a lane's counters between two times.
fn between(from: &LaneStats, to: &LaneStats) -> LaneStats {
    LaneStats {
        packets: to.packets - from.packets,
        bytes: to.bytes - from.bytes,
        acked: to.acked - from.acked,
        lost: to.lost - from.lost,
        repairs: to.repairs - from.repairs,
        reductions: to.reductions - from.reductions,
        stalls: to.stalls - from.stalls,
    }
}

/// Messages that were released from `begin` on.
fn completed(sender: &Sender, collector: &MessageCollector, begin: Time) -> Vec<Vec<Released>> {
    let done: HashMap<_, _> =
        collector.completions.iter().map(|it| ((it.source, it.sequence), it.completed)).collect();
    let after = |at: Time, until: Option<&Time>| {
        until.map_or(f64::INFINITY, |until| until.since(at).as_secs_f64() * 1e3)
    };
    (0..)
        .zip(sender.traffic.releases.iter().zip(&sender.left))
        .map(|(source, (releases, left))| {
            let released = releases.iter().enumerate().map(|(place, &(sequence, at))| Released {
                at,
                left: after(at, left.get(place)),
                mct: after(at, done.get(&(source, sequence))),
            });
            released.filter(|released| released.at >= begin).collect()
        })
        .collect()
}

/// Number of completions of messages that had been completed before.
fn again(collector: &MessageCollector) -> u64 {
    let all = collector.completions.iter().map(|it| (it.source, it.sequence));
    (collector.completions.len() - all.collect::<HashSet<_>>().len()) as u64
}

/// Runs `setup`.
///
/// # Errors
///
/// Returns an error if the setup is impossible.
pub(super) fn run(setup: &Setup, seed: u64) -> Result<Outcome, SimulationError> {
    let mut stage = Stage::new(setup, seed)?;
    let (begin, end) = (setup.span.begin(), setup.span.end());
    stage.net.run_until(begin)?;
    let before = stage.snapshot()?;
    stage.net.run_until(end)?;
    let after = stage.snapshot()?;
    stage.net.run_until(end + DRAIN)?;

    let sending = stage.end(Side::Server)?;
    let sender: &Sender = sending.app().ok_or(SimulationError::Missing("sender"))?;
    let session = sending.session().ok_or(SimulationError::Missing("session"))?;
    let collector = &stage.receiver()?.collector;

    let lane = |index: usize| {
        let (windows, srtt, count) = sender.lanes[index].clone();
        let none = LaneStats::default();
        let earlier = before.lanes.get(&index).unwrap_or(&none);
        // The counters of a lane disappear with it.
        let later = after.lanes.get(&index).unwrap_or(earlier);
        let [link, last] =
            [&before, &after].map(|snapshot| snapshot.links.get(index).copied().unwrap_or_default());
        let back = |snapshot: &Snapshot| snapshot.back.get(index).copied().unwrap_or_default();
        LaneOutcome {
            windows: windows.until(end),
            srtt: srtt.as_secs_f64() * 1e3 / f64::from(count),
            stats: between(earlier, later),
            wire: last.0 - link.0,
            back: back(&after) - back(&before),
            lost: last.1 - link.1,
            dropped: last.2 - link.2,
        }
    };
    let mut bytes = after.bytes;
    for (level, before) in bytes.iter_mut().zip(before.bytes) {
        *level -= before;
    }
    Ok(Outcome {
        sources: completed(sender, collector, begin),
        bytes,
        duplicates: after.duplicates - before.duplicates,
        lanes: (0..setup.paths.len()).map(lane).collect(),
        stats: session.stats(),
        unused: session.unused(),
        refused: sender.traffic.refused,
        again: again(collector),
        lanes_down: sender.lanes_down,
        lanes_up: sender.lanes_up,
        waited: sender.watch.as_ref().map(Watch::longest).unwrap_or_default(),
        length: setup.span.length,
        warm_up: setup.span.warm_up,
    })
}

#[cfg(test)]
mod tests {
    use super::super::published::SAME_RTT;
    use super::*;

    fn setup(scheduler: Scheduler) -> Setup {
        let span = Span { warm_up: Duration::from_secs(3), length: Duration::from_secs(3) };
        let source = published::Periodic { period: Duration::from_millis(50), size: Bytes::kb(10) };
        Setup::paper(scheduler, SAME_RTT, &[source], span)
    }

    #[test]
    fn the_same_seed_gives_the_same_outcome_and_another_another() {
        let setup = setup(Scheduler::CwrRed);
        let [once, again, other] = [7, 7, 8].map(|seed| run(&setup, seed).unwrap());
        assert_eq!(once, again);
        assert_ne!(once, other);
    }

    #[test]
    fn only_messages_released_during_the_measurement_are_counted() {
        let outcome = run(&setup(Scheduler::Cwr), 1).unwrap();
        let [released] = &*outcome.sources else { panic!("one source") };
        assert_eq!(released.len(), 60);
        assert_eq!(released[0].at, Time::from_secs(3));
        assert!(released.iter().all(|it| it.mct.is_finite() && it.left <= it.mct));
        assert_eq!((outcome.refused, outcome.duplicates), (0, Bytes::ZERO));
        // The last messages may be partly read after the end.
        assert!((590_000..=600_000).contains(&outcome.bytes[0].get()), "{:?}", outcome.bytes);
    }

    #[test]
    fn data_of_a_dead_path_goes_over_the_other() {
        let mut setup = setup(Scheduler::Cwr);
        setup.paths[1].outage = Some((Time::from_secs(4), Time::MAX));
        let outcome = run(&setup, 1).unwrap();
        assert!(outcome.mcts(0).all(f64::is_finite));
        assert!(outcome.lanes[1].wire < outcome.lanes[0].wire);
    }

    #[test]
    fn a_message_is_repaired_after_the_time_that_the_paper_gives() {
        let mut setup = setup(Scheduler::Cwr)
            .with_session(|session| session.packet_threshold = u32::MAX)
            .with_paths(|path| path.loss = 0.01);
        setup.span.length = Duration::from_secs(10);
        let outcome = run(&setup, 1).unwrap();
        let repaired = || outcome.sources[0].iter().filter(|it| it.was_repaired(SAME_RTT[0]));
        assert!(repaired().count() >= 5);
        assert!(repaired().all(|it| it.mct >= published::REPAIRED.as_secs_f64() * 1e3));
    }
}
