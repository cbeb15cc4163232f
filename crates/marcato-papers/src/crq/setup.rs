//! One run: transfers and floods that share one queue.
//!
//! Each parameter that an experiment varies is a field of [`Setup`], and each result that it needs
//! a field of [`Outcome`]. A run is a function of its setup and a seed.

use marcato_queue::trap::{Scores, Signal};
use marcato_queue::{
    Aqm, Buffer, Class, ClassConfig, Codel, CodelConfig, Crq, CrqConfig, Discipline, DropTail,
    DropTailConfig, FlowKey, FqCodel, FqCodelConfig, Limit, LimitError, Packet as Queueable,
};
use marcato_sched::LcmConfig;
use marcato_sim::quic::QuicHost;
use marcato_sim::{
    Arrivals, Bulk, Congestion, DatagramFlow, FlowId, LinkConfig, LinkId, LinkQueue, Mirror, Network, NodeId,
    Packet, PltConfig, Route, RouteId, Side, Sink, Tcp, TcpEnd, TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

use serde::{Deserialize, Serialize};

use super::flood::{Flood, Pulse, Spin, Victim};
use super::guest::{Answerer, Call, Turncoat, Viewer};
use super::published::{Control, Stack};
use super::quic::{self, Receiver};
use super::testbed::{IPERF3_TICK, TIMER_SLACK, Testbed, WIRE};
use super::watched::{Preset, Watched};
use crate::error::SimulationError;
use crate::plan::kept_as_json;

/// Bytes that Ethernet adds to an IP packet as counted by the testbed's shaper: its header.
pub(super) const FRAMING: Bytes = Bytes::new(14);
/// Window that limits nothing: the largest bandwidth-delay product is 12.5 MB.
const UNBOUNDED: Bytes = Bytes::new(64 << 20);
/// Queue larger than the bytes in flight of any connection of the testbed.
const OWN_QUEUE: Bytes = Bytes::new(256 << 20);
/// Longest frame of the testbed.
pub(super) const MTU: Bytes = Bytes::new(1514);
/// Payload of iperf3's datagrams on such a path, equal to TCP's segments.
const DATAGRAM: u64 = 1448;
/// Time after which the authors gave a run up.
const PATIENCE: Duration = Duration::from_secs(900);

/// Responsive sender: one of the paper's stacks, or another.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Responder {
    /// A stack of the paper.
    Stack(Stack),
    /// A stack of the paper, drawn from the seed.
    Drawn,
    /// TCP with another congestion controller, both ways if `true`.
    Tcp(Congestion, bool),
    /// TCP Reno with a low layer, as in PLT.
    Layered,
}

/// A transfer from a server to the client.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transfer {
    pub(super) by: Responder,
    pub(super) bytes: Bytes,
    /// Index of the sending one of the two servers.
    pub(super) server: usize,
}

/// Unresponsive traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unresponsive {
    /// Rate of the datagrams' payload, as iperf3 counts.
    pub(super) rate: Rate,
    pub(super) from: Duration,
    pub(super) server: usize,
    /// Spin bit of a flood that looks like QUIC; `None` for plain UDP.
    pub(super) spin: Option<Spin>,
    /// Pulses, for a flood that looks like QUIC.
    pub(super) pulse: Option<Pulse>,
}

impl Unresponsive {
    /// Traffic of iperf3's UDP.
    pub(super) const fn udp(rate: Rate, from: Duration, server: usize) -> Self {
        Self { rate, from, server, spin: None, pulse: None }
    }
}

/// A sender beyond the paper's, from the first server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Guest {
    /// A video call over TCP.
    Call,
    /// A flow that responds to signals except from the first time until the second.
    Turncoat(Duration, Duration),
}

/// Queue of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one for a whole run")]
pub(super) enum Bottleneck {
    /// One queue for all traffic.
    Plain(ClassConfig),
    /// One queue for all traffic, observed by traps, with additional random loss.
    Watched(ClassConfig, f64),
    /// Congestion-responsive queuing.
    Crq(CrqConfig),
    /// A queue for each flow.
    FqCodel(FqCodelConfig),
}

/// Place of a device that clears the ECN field of all packets to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bleached {
    /// Before the box, which finds nothing to mark, and drops.
    Before,
    /// Behind the box, whose marks are lost.
    Behind,
}

/// A run, apart from its seed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setup {
    pub(super) rate: Rate,
    pub(super) rtt: Duration,
    pub(super) bottleneck: Bottleneck,
    /// Delay with which the bottleneck's shaper wakes.
    pub(super) wakes_late: Duration,
    /// The authors' machines. `None`: the links and buffers of senders limit nothing, and UDP is
    /// evenly spaced.
    pub(super) testbed: Option<Testbed>,
    /// Percentage of the round trip that lies between the bottleneck's box and the client.
    pub(super) client_side: u32,
    /// True if TCP uses ECN. QUIC always does.
    pub(super) ecn: bool,
    pub(super) bleached: Option<Bleached>,
    /// Room of a queue for low layers alone, which is served when all others are empty. `None`: low
    /// packets go where the bottleneck puts packets that it cannot assess.
    pub(super) below: Option<Bytes>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) floods: Vec<Unresponsive>,
    /// Additional sender.
    pub(super) guest: Option<Guest>,
    /// Latest end of the run, which ends earlier when all transfers have completed.
    pub(super) at_most: Duration,
    /// Largest number of seeds.
    pub(super) seeds: usize,
}

impl Setup {
    /// Setup of this bottleneck without traffic.
    pub(super) const fn new(rate: Rate, rtt: Duration, bottleneck: Bottleneck, ecn: bool) -> Self {
        Self {
            rate,
            rtt,
            bottleneck,
            wakes_late: Duration::ZERO,
            testbed: None,
            client_side: 50,
            ecn,
            bleached: None,
            below: None,
            transfers: Vec::new(),
            floods: Vec::new(),
            guest: None,
            at_most: PATIENCE,
            seeds: usize::MAX,
        }
    }

    /// Adds a transfer.
    pub(super) fn transfer(mut self, by: Responder, bytes: Bytes, server: usize) -> Self {
        self.transfers.push(Transfer { by, bytes, server });
        self
    }

    /// Adds a flood.
    pub(super) fn flood(mut self, flood: Unresponsive) -> Self {
        self.floods.push(flood);
        self
    }

    /// Approximate work of a run, in megabytes transferred.
    pub(super) fn work(&self) -> u64 {
        let moved = |transfer: &Transfer| {
            let factor = match transfer.by {
                Responder::Stack(stack) if stack.is_quic() => 4,
                Responder::Drawn => 2,
                Responder::Stack(_) | Responder::Tcp(..) | Responder::Layered => 1,
            };
            transfer.bytes.get().min(self.rate.bytes_in(self.at_most).get()) * factor
        };
        let alone = if self.transfers.is_empty() { self.rate.bytes_in(self.at_most).get() } else { 0 };
        // Endless flows share the link.
        let most = self.rate.bytes_in(self.at_most).get().saturating_mul(4);
        (self.transfers.iter().map(moved).sum::<u64>().min(most) + alone) / 1_000_000 + 1
    }
}

impl crate::plan::Setup for Setup {
    type Outcome = Outcome;

    kept_as_json!();

    fn cost(&self) -> u64 {
        self.work()
    }

    fn seeds(&self) -> usize {
        self.seeds
    }

    fn run(&self, seed: u64) -> Result<Outcome, SimulationError> {
        run(self, seed)
    }
}

/// State of a flow in CRQ at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) scores: Scores,
    /// The queue of its last packet.
    pub(super) class: Class,
    /// Number of times that it changed its queue.
    pub(super) changes: u32,
}

/// Outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Transferred {
    /// Time from the connection to the last byte; `None` if not all bytes arrived.
    pub(super) fct: Option<Duration>,
    /// Bytes that arrived.
    pub(super) bytes: Bytes,
    /// State of the flow in CRQ at the end.
    pub(super) report: Option<Judged>,
    /// Scores by each set of rules, at a queue observed by traps.
    pub(super) scores: [Scores; Preset::ALL.len()],
}

impl Transferred {
    /// Completion time in ms. A transfer that was given up counts with `at_most`, the time waited
    /// for it.
    pub(super) fn ms(&self, at_most: Duration) -> f64 {
        self.fct.unwrap_or(at_most).as_secs_f64() * 1e3
    }

    /// Share of its cycles in which CRQ called it responsive to `signal`, in %; 0 without cycles.
    pub(super) fn responsive(&self, signal: Signal) -> f64 {
        let raw = self.report.and_then(|report| report.scores.raw(signal));
        f64::from(raw.unwrap_or(0)) / 10.0
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub(super) struct Outcome {
    pub(super) transfers: Vec<Transferred>,
    pub(super) floods: Vec<Transferred>,
    /// Delay of each frame of a call, in ms; infinite for one that never arrived.
    pub(super) frames: Vec<f64>,
    /// Bytes of the guest that arrived.
    pub(super) guest: Bytes,
    /// Changes of the queue of the guest's packets, with their times, sampled every 10 ms.
    pub(super) classes: Vec<(Time, Class)>,
    /// Connections that were skipped because their spin bit did not spin.
    pub(super) skipped: u64,
    /// Time until the last transfer ended, or the run did.
    pub(super) lasted: Duration,
}

impl Outcome {
    /// Goodput of all transfers over the whole run, in Mbit/s.
    pub(super) fn goodput(&self) -> f64 {
        let bytes: Bytes = self.transfers.iter().map(|it| it.bytes).sum();
        bytes.get() as f64 * 8e-6 / self.lasted.as_secs_f64()
    }
}

/// Serialised form of an [`Outcome`], in plain numbers: the queue's types do not implement serde.
#[derive(Serialize, Deserialize)]
struct Kept {
    transfers: Vec<KeptTransfer>,
    floods: Vec<KeptTransfer>,
    /// `None` for infinite delays.
    frames: Vec<Option<f64>>,
    guest: u64,
    classes: Vec<(u64, u8)>,
    skipped: u64,
    lasted: Duration,
}

#[derive(Serialize, Deserialize)]
struct KeptTransfer {
    fct: Option<Duration>,
    bytes: u64,
    report: Option<(KeptScores, u8, u32)>,
    scores: [KeptScores; Preset::ALL.len()],
}

#[derive(Serialize, Deserialize)]
struct KeptScores {
    cycles: u32,
    responsive: [u32; 2],
    unresponsive: [u32; 2],
}

impl From<Scores> for KeptScores {
    fn from(Scores { cycles, responsive, unresponsive }: Scores) -> Self {
        Self { cycles, responsive, unresponsive }
    }
}

impl From<KeptScores> for Scores {
    fn from(KeptScores { cycles, responsive, unresponsive }: KeptScores) -> Self {
        Self { cycles, responsive, unresponsive }
    }
}

impl From<Transferred> for KeptTransfer {
    fn from(it: Transferred) -> Self {
        let report = it.report.map(|it| (it.scores.into(), number_of(it.class), it.changes));
        Self { fct: it.fct, bytes: it.bytes.get(), report, scores: it.scores.map(Into::into) }
    }
}

impl From<KeptTransfer> for Transferred {
    fn from(it: KeptTransfer) -> Self {
        let judged = |(scores, class, changes): (KeptScores, u8, u32)| Judged {
            scores: scores.into(),
            class: class_of(class),
            changes,
        };
        Self {
            fct: it.fct,
            bytes: Bytes::new(it.bytes),
            report: it.report.map(judged),
            scores: it.scores.map(Into::into),
        }
    }
}

impl From<Outcome> for Kept {
    fn from(it: Outcome) -> Self {
        let transfers = |all: Vec<Transferred>| all.into_iter().map(Into::into).collect();
        Self {
            transfers: transfers(it.transfers),
            floods: transfers(it.floods),
            frames: it.frames.into_iter().map(|late| late.is_finite().then_some(late)).collect(),
            guest: it.guest.get(),
            classes: it.classes.into_iter().map(|(at, class)| (at.as_nanos(), number_of(class))).collect(),
            skipped: it.skipped,
            lasted: it.lasted,
        }
    }
}

impl From<Kept> for Outcome {
    fn from(it: Kept) -> Self {
        let transfers = |all: Vec<KeptTransfer>| all.into_iter().map(Into::into).collect();
        Self {
            transfers: transfers(it.transfers),
            floods: transfers(it.floods),
            frames: it.frames.into_iter().map(|late| late.unwrap_or(f64::INFINITY)).collect(),
            guest: Bytes::new(it.guest),
            classes: it
                .classes
                .into_iter()
                .map(|(at, class)| (Time::from_nanos(at), class_of(class)))
                .collect(),
            skipped: it.skipped,
            lasted: it.lasted,
        }
    }
}

const fn number_of(class: Class) -> u8 {
    class as u8
}

fn class_of(number: u8) -> Class {
    Class::ALL.into_iter().find(|&class| number_of(class) == number).unwrap_or(Class::Standard)
}

/// Builds one queue.
fn queue<P: Queueable + 'static>(
    class: ClassConfig,
    rate: Rate,
) -> Result<Box<dyn Discipline<P>>, SimulationError> {
    let limit = match class.buffer {
        Buffer::Packets(packets) => Limit::Packets(packets),
        Buffer::Bytes(bytes) | Buffer::FillRate { most: bytes, .. } => Limit::Bytes(bytes),
        Buffer::Bdp(rtt) => Limit::Bytes(rate.bytes_in(rtt)),
    };
    Ok(match class.aqm {
        Aqm::DropTail => Box::new(DropTail::new(DropTailConfig { limit })?),
        Aqm::Codel { target, interval, ecn } => {
            Box::new(Codel::new(CodelConfig { target, interval, limit, maxpacket: MTU, ecn })?)
        }
        Aqm::FqCodel { target, interval, ecn, flows } => {
            let codel = CodelConfig { target, interval, limit, maxpacket: MTU, ecn };
            Box::new(FqCodel::new(FqCodelConfig { codel, flows, quantum: MTU, perturbation: 0 })?)
        }
    })
}

/// Linux's TCP. Without a testbed, its buffers limit nothing.
fn tcp(congestion: Congestion, setup: &Setup) -> Tcp {
    let config = Tcp { congestion, ecn: setup.ecn, ..Tcp::default() };
    match setup.testbed {
        None => Tcp { send_buffer: UNBOUNDED, receive_buffer: UNBOUNDED, ..config },
        Some(testbed) => Tcp {
            send_buffer: testbed.send_buffer,
            receive_buffer: testbed.receive_window,
            segmentation_offload: Some(testbed.offload),
            ..config
        },
    }
}

/// A network with all senders and receivers.
struct Stage {
    net: Network,
    down: LinkId,
    transfers: Vec<(FlowId, bool)>,
    floods: Vec<(FlowId, Side)>,
    guest: Option<FlowId>,
    skipped: u64,
}

impl Stage {
    fn new(setup: &Setup, seed: u64) -> Result<Self, SimulationError> {
        let mut net = Network::new(Seed::new(seed));
        let [client, router] = ["client", "router"].map(|name| net.node(name));
        let servers = ["server/1", "server/2"].map(|name| net.node(name));
        // In the testbed the delay lies before the box, half of it on either side. Behind the box
        // there is none.
        let none = Duration::ZERO;
        let behind = setup.rtt * setup.client_side / 100;
        let before = setup.rtt.saturating_sub(behind);
        match setup.testbed {
            None => {
                for server in servers {
                    let there = LinkConfig::delay_only(before);
                    let bleaches = setup.bleached == Some(Bleached::Before);
                    let there = LinkConfig { bleaches, ..there };
                    net.link(server, router, there, LinkConfig::delay_only(none));
                }
            }
            Some(testbed) => {
                let wire = |delay, limit| {
                    let queue = DropTail::new(DropTailConfig { limit: Limit::Bytes(limit) })?;
                    Ok::<_, LimitError>(LinkConfig::new(testbed.wire, delay).framing(WIRE).queue(queue))
                };
                let switch = net.node("switch");
                // A sender's own queue drops nothing: Linux blocks the sender first.
                for server in servers {
                    net.link(server, switch, wire(none, OWN_QUEUE)?, LinkConfig::delay_only(none));
                }
                net.link(switch, router, wire(before, testbed.port_buffer)?, LinkConfig::delay_only(none));
            }
        }
        let queue: Box<dyn LinkQueue> = match setup.bottleneck {
            Bottleneck::Plain(class) => Box::new(queue::<Packet>(class, setup.rate)?),
            Bottleneck::Watched(class, loss) => {
                let stream = Seed::new(seed).stream("crq/loss");
                Box::new(Watched::new(queue(class, setup.rate)?, loss, stream))
            }
            Bottleneck::Crq(config) => Box::new(Crq::<Packet>::new(config)?),
            Bottleneck::FqCodel(config) => Box::new(FqCodel::<Packet>::new(config)?),
        };
        let there = LinkConfig { queue, ..LinkConfig::new(setup.rate, none) };
        let framing = if setup.testbed.is_some() { WIRE } else { FRAMING };
        let there = there.framing(framing).wakes_late(setup.wakes_late).observing();
        let there = match setup.below {
            None => there,
            Some(limit) => {
                there.preempt(DropTail::<Packet>::new(DropTailConfig { limit: Limit::Bytes(limit) })?)
            }
        };
        let back = LinkConfig::delay_only(behind);
        let (down, _) = if setup.bleached == Some(Bleached::Behind) {
            let access = net.node("access");
            net.link(access, client, LinkConfig::delay_only(none).bleaching(), LinkConfig::delay_only(none));
            net.link(router, access, there, back)
        } else {
            net.link(router, client, there, back)
        };
        let mut stage =
            Self { net, down, transfers: Vec::new(), floods: Vec::new(), guest: None, skipped: 0 };
        for (place, transfer) in setup.transfers.iter().enumerate() {
            stage.begin(setup, seed, place, transfer, [client, servers[transfer.server]])?;
        }
        for flood in &setup.floods {
            stage.flood(setup.testbed.is_some(), *flood, [client, servers[flood.server]])?;
        }
        let server = servers[0];
        stage.guest = match setup.guest {
            None => None,
            Some(Guest::Call) => {
                let config = Tcp { notsent_lowat: Some(Bytes::kb(64)), ..tcp(Congestion::CUBIC, setup) };
                let config = Tcp { send_buffer: Bytes::kb(256), ..config };
                let flow = TcpFlow::new(client, server, config, Viewer::default());
                Some(stage.net.tcp(flow.server_app(Call::new()))?)
            }
            Some(Guest::Turncoat(from, until)) => {
                let hosts = (Answerer::default(), Turncoat::new((Time::ZERO + from, Time::ZERO + until)));
                let route = Route::new(client, server);
                Some(stage.net.datagrams(DatagramFlow::new(hosts.0, hosts.1, vec![route]))?)
            }
        };
        Ok(stage)
    }

    /// Delays of the call's frames, and bytes of the guest that arrived.
    fn frames(&self) -> (Vec<f64>, Bytes) {
        let Some(flow) = self.guest else { return (Vec::new(), Bytes::ZERO) };
        let (Some(call), Some(viewer)) =
            (self.net.app::<Call>(flow, Side::Server), self.net.app::<Viewer>(flow, Side::Client))
        else {
            let stats = self.net.route_stats(flow, Side::Server, RouteId::new(0));
            return (Vec::new(), stats.map_or(Bytes::ZERO, |stats| stats.bytes));
        };
        let late = call.written.iter().enumerate().map(|(frame, &written)| {
            viewer.last.get(frame).map_or(f64::INFINITY, |&last| last.since(written).as_secs_f64() * 1e3)
        });
        (late.collect(), viewer.bytes)
    }

    /// Queue of the guest's packets.
    fn class(&self) -> Option<Class> {
        let queue = self.net.queue::<Crq<Packet>>(self.down)?;
        Some(queue.flow(self.guest?.key(Side::Server))?.class)
    }

    fn begin(
        &mut self,
        setup: &Setup,
        seed: u64,
        place: usize,
        transfer: &Transfer,
        [client, server]: [NodeId; 2],
    ) -> Result<(), SimulationError> {
        let congestion = |control| match control {
            Control::Cubic => Congestion::CUBIC,
            Control::Bbr => Congestion::Bbr,
        };
        let bytes = transfer.bytes;
        let by = match transfer.by.clone() {
            Responder::Drawn => {
                let draw = Seed::new(seed).stream(&format!("crq/mix/{place}")).below(Stack::ALL.len() as u64);
                Responder::Stack(Stack::ALL[usize::try_from(draw).unwrap_or(0)])
            }
            other => other,
        };
        let mut plt = None;
        let (congestion, both) = match by {
            Responder::Drawn => return Err(SimulationError::Missing("stack")),
            Responder::Stack(Stack::Quic(control)) => {
                let (seeds, skipped) = quic::spinning(seed, place)?;
                self.skipped += skipped;
                let window = setup.testbed.map_or(UNBOUNDED, |testbed| testbed.quic_window);
                let flow = quic::transfer(control, bytes, window, [client, server], seeds)?;
                let flow = self.net.datagrams(flow)?;
                self.transfers.push((flow, true));
                return Ok(());
            }
            Responder::Stack(Stack::OneWay(control)) => (congestion(control), false),
            Responder::Stack(Stack::BothWays(control)) => (congestion(control), true),
            Responder::Tcp(congestion, both) => (congestion, both),
            Responder::Layered => {
                plt = Some(PltConfig::new(LcmConfig::paper()));
                (Congestion::Reno, false)
            }
        };
        let config = TcpEnd { plt, ..tcp(congestion, setup).into() };
        let flow = if both {
            TcpFlow::new(client, server, config, Mirror::half())
        } else {
            TcpFlow::new(client, server, config, Sink)
        };
        self.transfers.push((self.net.tcp(flow.server_app(Bulk::new(bytes)))?, false));
        Ok(())
    }

    fn flood(
        &mut self,
        testbed: bool,
        flood: Unresponsive,
        [client, server]: [NodeId; 2],
    ) -> Result<(), SimulationError> {
        let start = Time::ZERO + flood.from;
        let flow = match flood.spin {
            None => {
                // Converts the rate of payload to one with IP and UDP headers.
                let bps = flood.rate.as_bps() * (DATAGRAM + 28) / DATAGRAM;
                let udp = UdpFlow::new(server, client, Rate::from_bps(bps), Bytes::new(DATAGRAM));
                let arrivals = if testbed {
                    Arrivals::Ticks { every: IPERF3_TICK, slack: TIMER_SLACK }
                } else {
                    Arrivals::Constant
                };
                (self.net.udp(UdpFlow { start, arrivals, ..udp })?, Side::Client)
            }
            Some(spin) => {
                let hosts = (Victim::default(), Flood::new(flood.rate, spin, start).pulsed(flood.pulse));
                let route = Route::new(client, server);
                (self.net.datagrams(DatagramFlow::new(hosts.0, hosts.1, vec![route]))?, Side::Server)
            }
        };
        self.floods.push(flow);
        Ok(())
    }

    /// Receiving end of a transfer over QUIC.
    fn receiver(&self, flow: FlowId) -> Result<&Receiver, SimulationError> {
        for side in [Side::Client, Side::Server] {
            let host: &QuicHost = self.net.host(flow, side).ok_or(SimulationError::Missing("host"))?;
            if let Some(error) = host.error() {
                return Err(SimulationError::Begin(error.to_owned()));
            }
        }
        let host: &QuicHost = self.net.host(flow, Side::Client).ok_or(SimulationError::Missing("host"))?;
        host.app().ok_or(SimulationError::Missing("receiver"))
    }

    /// Start of a transfer, its bytes that have arrived, and the arrival of the last of them.
    fn progress(
        &self,
        (flow, quic): (FlowId, bool),
    ) -> Result<(Option<Time>, Bytes, Option<Time>), SimulationError> {
        if quic {
            let receiver = self.receiver(flow)?;
            return Ok((receiver.connected_at, receiver.bytes, receiver.last_at));
        }
        let reception = self.net.reception(flow, Side::Client);
        Ok((reception.connected_at, reception.bytes, reception.last_at))
    }

    fn judged(&self, key: FlowKey) -> (Option<Judged>, [Scores; Preset::ALL.len()]) {
        let report = self.net.queue::<Crq<Packet>>(self.down).and_then(|queue| queue.flow(key));
        let report = report.map(|it| Judged { scores: it.scores, class: it.class, changes: it.changes });
        let scores = self.net.queue::<Watched>(self.down).map(|queue| queue.scores(key)).unwrap_or_default();
        (report, scores)
    }
}

/// Runs `setup`.
///
/// # Errors
///
/// Returns an error if the setup is impossible.
fn run(setup: &Setup, seed: u64) -> Result<Outcome, SimulationError> {
    let step = Duration::from_millis(if setup.guest.is_some() { 10 } else { 50 });
    let mut stage = Stage::new(setup, seed)?;
    let end = Time::ZERO + setup.at_most;
    let mut classes: Vec<(Time, Class)> = Vec::new();
    let is_done = |stage: &Stage| -> Result<bool, SimulationError> {
        for (&flow, transfer) in stage.transfers.iter().zip(&setup.transfers) {
            if stage.progress(flow)?.1 < transfer.bytes {
                return Ok(false);
            }
        }
        Ok(!setup.transfers.is_empty())
    };
    loop {
        let now = stage.net.now();
        if now >= end || is_done(&stage)? {
            break;
        }
        stage.net.run_until((now + step).min(end));
        if let Some(class) = stage.class()
            && classes.last().is_none_or(|&(_, last)| last != class)
        {
            classes.push((stage.net.now(), class));
        }
    }
    let mut transfers = Vec::new();
    for (&flow, transfer) in stage.transfers.iter().zip(&setup.transfers) {
        let (from, bytes, until) = stage.progress(flow)?;
        let fct = from.zip(until).filter(|_| bytes >= transfer.bytes).map(|(from, until)| until - from);
        let (report, scores) = stage.judged(flow.0.key(Side::Server));
        transfers.push(Transferred { fct, bytes, report, scores });
    }
    let floods = stage.floods.iter().map(|&(flow, from)| {
        let datagrams = || stage.net.route_stats(flow, from, RouteId::new(0)).map(|route| route.bytes);
        let bytes = stage.net.udp_stats(flow).map(|udp| udp.bytes).or_else(datagrams).unwrap_or(Bytes::ZERO);
        let (report, scores) = stage.judged(flow.key(from));
        Transferred { fct: None, bytes, report, scores }
    });
    let (frames, guest) = stage.frames();
    Ok(Outcome {
        frames,
        guest,
        classes,
        floods: floods.collect(),
        transfers,
        skipped: stage.skipped,
        lasted: stage.net.now().since(Time::ZERO),
    })
}
