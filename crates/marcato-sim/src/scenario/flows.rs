//! Flows of a world, and the values measured of them.

use marcato_quic::Secrets;
use marcato_scenario::flow::{Feeder, FlowKind, Listed, Messages, PacketArrivals, Payload};
use marcato_scenario::quic::{Path, Quic};
use marcato_scenario::record::FlowMetric;
use marcato_scenario::traffic::{Arrivals, Coupling, Messaging, OnOff};
use marcato_sched::coupled::{Counters, Mode};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Stream, Time};

use super::error::BuildError;
use super::fabric::Fabric;
use super::messenger::Messenger;
use super::outcome::{Alone, Completion, FlowOutcome, LowLayerOutcome, Timed, Times};
use super::plugins::Plugins;
use super::quic::Look;
use super::{convert, messenger, quic, workload};
use crate::{
    App, Collector, Distribution, FlowArrivals, FlowError, FlowId, FlowProcess, FlowStreams, LinkId, NodeId,
    PacketSizes, ProcessId, RequestResponse, Requester, Route, RouteId, Side, Socket, Tag, TcpFlow, UdpFlow,
};

/// State of on and off spans.
#[derive(Clone, Debug)]
struct Spans {
    on: Distribution<Duration>,
    off: Distribution<Duration>,
    stream: Option<Stream>,
    is_on: bool,
}

/// Application that writes a number of bytes, or as many as it can until its stop, and then closes.
/// It may be on and off.
#[derive(Clone, Debug)]
struct Transfer {
    left: Bytes,
    stop: Time,
    priority: Priority,
    spans: Option<Spans>,
}

/// Bytes per write of an on-off transfer, small enough for a low watermark of unsent bytes to have
/// an effect.
const PIECE: Bytes = Bytes::new(16 << 10);
const STOP: u32 = 0;
const TURN: u32 = 1;

impl Transfer {
    fn turn(&mut self, socket: &mut Socket<'_>) {
        let Some(Spans { on, off, stream: Some(stream), is_on }) = &mut self.spans else { return };
        *is_on = !*is_on;
        // At least a nanosecond, so that time advances.
        let span = if *is_on { on.draw(stream) } else { off.draw(stream) }.max(Duration::from_nanos(1));
        socket.set_timer(socket.now() + span, TURN);
    }
}

impl App for Transfer {
    fn named(&mut self, streams: &FlowStreams<'_>) {
        if let Some(spans) = &mut self.spans {
            spans.stream = Some(streams.stream("onoff"));
        }
    }

    fn start(&mut self, socket: &mut Socket<'_>) {
        if self.stop < Time::MAX {
            socket.set_timer(self.stop, STOP);
        }
        self.turn(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        let most = match &self.spans {
            None => self.left,
            Some(spans) if spans.is_on => self.left.min(PIECE),
            Some(_) => return,
        };
        self.left -= socket.write(most, self.priority, Tag::default());
        if self.left.is_zero() {
            socket.close();
        }
    }

    fn timer(&mut self, token: u32, socket: &mut Socket<'_>) {
        if token == STOP {
            self.left = Bytes::ZERO;
            socket.close();
        } else if !self.left.is_zero() {
            self.turn(socket);
        }
    }
}

/// Requesting application that stops at a given time.
struct Asking {
    requester: Requester,
    stop: Time,
}

/// Timer of the stop; a [`Requester`] uses lower numbers.
const STOP_ASKING: u32 = u32::MAX;

impl App for Asking {
    fn named(&mut self, streams: &FlowStreams<'_>) {
        self.requester.named(streams);
    }

    fn start(&mut self, socket: &mut Socket<'_>) {
        if self.stop < Time::MAX {
            socket.set_timer(self.stop, STOP_ASKING);
        }
        self.requester.start(socket);
    }

    fn connected(&mut self, socket: &mut Socket<'_>) {
        self.requester.connected(socket);
    }

    fn failed(&mut self, socket: &mut Socket<'_>) {
        self.requester.failed(socket);
    }

    fn reset(&mut self, socket: &mut Socket<'_>) {
        self.requester.reset(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        if socket.now() < self.stop {
            self.requester.writable(socket);
        }
    }

    fn received(&mut self, tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        self.requester.received(tag, bytes, socket);
    }

    fn timer(&mut self, token: u32, socket: &mut Socket<'_>) {
        if token == STOP_ASKING {
            socket.close();
        } else if socket.now() < self.stop {
            self.requester.timer(token, socket);
        }
    }

    fn finished(&mut self, socket: &mut Socket<'_>) {
        self.requester.finished(socket);
    }
}

/// Counts since the beginning of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) bytes: Bytes,
    sent: u64,
    pub(super) losses: u64,
    pub(super) retransmissions: u64,
    timeouts: u64,
    low: LowLayerOutcome,
    /// Refused flows of a process.
    refused: u64,
    /// Packets whose delay is known; `delay` is the sum of their delays.
    pub(super) timed: u64,
    pub(super) delay: Duration,
}

/// Current state of a flow's sender.
#[derive(Clone, Copy, Debug, Default)]
struct Gauges {
    cwnd: Option<Bytes>,
    ssthresh: Option<Bytes>,
    in_flight: Option<Bytes>,
    low_window: Option<Bytes>,
    srtt: Option<Duration>,
    pacing_rate: Option<Rate>,
}

enum What {
    Process(ProcessId),
    Exchange(FlowId),
    Tcp { flow: FlowId, size: Option<Bytes> },
    Udp(FlowId),
    Messages(FlowId),
    Quic { flow: FlowId, spec: Box<Quic>, lanes: Vec<String> },
}

/// One instance of a flow in a world.
pub(super) struct Tracked {
    /// Name of the flow in the experiment.
    pub(super) flow: String,
    /// Name of the instance.
    pub(super) name: String,
    kind: &'static str,
    start: Time,
    stop: Option<Time>,
    what: What,
    /// Counts at the end of the warm-up.
    before: Totals,
    /// Sum of the smoothed round-trip times sampled, in ms, and their number.
    srtt: (f64, u64),
}

/// Configuration of an instance of a flow.
pub(super) struct Instance<'a> {
    pub(super) flow: &'a marcato_scenario::flow::Flow,
    pub(super) name: String,
    pub(super) start: Time,
    /// End of the run.
    pub(super) end: Time,
    pub(super) ends: [NodeId; 2],
    /// Paths of a QUIC flow. `paths` has the ends of each.
    pub(super) spec: Vec<Path>,
    pub(super) paths: Vec<[NodeId; 2]>,
    /// Sink for the secrets of QUIC connections, if they are captured.
    pub(super) secrets: Option<&'a Secrets>,
    pub(super) plugins: &'a Plugins,
}

impl Instance<'_> {
    /// Adds the instance to the network.
    pub(super) fn add(self, net: &mut dyn Fabric, seed: Seed) -> Result<Tracked, BuildError> {
        let Self { flow, name, start, end, ends: [from, to], spec: ways, paths, secrets, plugins } = self;
        let stop = flow.stop.unwrap_or(Time::MAX);
        let distributed = |source| BuildError::Distribution { flow: name.clone(), source };
        let refused = |source: FlowError| BuildError::Flow { flow: name.clone(), source };
        let opened = |tcp: &marcato_scenario::flow::TcpEnds, client: Box<dyn App>, server: Box<dyn App>| {
            Ok::<_, BuildError>(TcpFlow {
                client: from,
                server: to,
                start,
                client_config: convert::tcp(&name, &tcp.from, plugins)?,
                server_config: convert::tcp(&name, &tcp.to, plugins)?,
                client_app: client,
                server_app: server,
                layer: flow.layer,
            })
        };
        let released = |messaging: &Messaging| {
            let random = seed.stream(&format!("messages/{name}/workload"));
            workload::released(&name, messaging, plugins, [start, stop.min(end)], random)
        };
        let what = match &flow.kind {
            FlowKind::Tcp(tcp) => {
                let spans = match &tcp.on_off {
                    None => None,
                    Some(OnOff { on, off }) => Some(Spans {
                        on: convert::pause(on).map_err(distributed)?,
                        off: convert::pause(off).map_err(distributed)?,
                        stream: None,
                        is_on: false,
                    }),
                };
                let left = tcp.size.unwrap_or(Bytes::MAX);
                let app = Transfer { left, stop, priority: tcp.priority, spans };
                let reader: Box<dyn App> = match (tcp.read_rate, tcp.read_after) {
                    (None, Duration::ZERO) => Box::new(crate::Sink),
                    (rate, after) => Box::new(crate::SlowReader::new(rate, after)),
                };
                let flow = opened(&tcp.tcp, Box::new(app), reader)?;
                What::Tcp { flow: net.tcp(flow).map_err(refused)?, size: tcp.size }
            }
            FlowKind::TcpProcess(process) => {
                let arrivals = match process.arrivals {
                    Arrivals::Every(gap) => {
                        FlowArrivals::Gaps(Distribution::exponential(gap).map_err(distributed)?)
                    }
                    Arrivals::Load(rate) => FlowArrivals::Offering(rate),
                };
                let sizes = convert::size(&process.size).map_err(distributed)?;
                let client_config = convert::tcp(&name, &process.tcp.from, plugins)?;
                let process = FlowProcess {
                    server_config: convert::tcp(&name, &process.tcp.to, plugins)?,
                    start,
                    stop,
                    most_at_once: process.most_open.into(),
                    layer: flow.layer,
                    ..FlowProcess::new(from, to, client_config, sizes, arrivals)
                };
                let begun = |source| BuildError::Spawn { flow: name.clone(), source };
                What::Process(net.spawn(process).map_err(begun)?)
            }
            FlowKind::RequestResponse(it) => {
                let request = Distribution::constant(it.request);
                let response = convert::size(&it.response).map_err(distributed)?;
                let think = convert::pause(&it.think).map_err(distributed)?;
                let asked = RequestResponse::new(request, response, think);
                let asked = it.requests.map_or(asked, |requests| asked.exchanges(requests));
                let asking = Asking { requester: asked.client(), stop };
                let flow = opened(&it.tcp, Box::new(asking), Box::new(asked.server()))?;
                What::Exchange(net.tcp(flow).map_err(refused)?)
            }
            FlowKind::Udp(udp) => {
                let arrivals = match (udp.arrivals, &udp.on_off) {
                    (PacketArrivals::Constant, None) => crate::Arrivals::Constant,
                    (PacketArrivals::Poisson, None) => crate::Arrivals::Poisson,
                    (PacketArrivals::Ticks { every }, None) => {
                        crate::Arrivals::Ticks { every, slack: Duration::ZERO }
                    }
                    (PacketArrivals::Poisson | PacketArrivals::Ticks { .. }, Some(_)) => {
                        return Err(BuildError::ArrivalsOnOff(name));
                    }
                    (PacketArrivals::Constant, Some(OnOff { on, off })) => crate::Arrivals::OnOff {
                        on: convert::pause(on).map_err(distributed)?,
                        off: convert::pause(off).map_err(distributed)?,
                    },
                };
                let (payload, sizes) = match &udp.payload {
                    Payload::Constant(bytes) => (*bytes, None),
                    Payload::Drawn { size, most } => {
                        let sizes = convert::size(size).map_err(distributed)?;
                        (*most, Some(PacketSizes::Drawn { sizes, most: *most }))
                    }
                    Payload::Listed(Listed { file, is_random, list }) => {
                        let list = list
                            .clone()
                            .ok_or_else(|| BuildError::NoSizes { flow: name.clone(), file: file.clone() })?;
                        (list.largest().1, Some(PacketSizes::Listed { list, is_random: *is_random }))
                    }
                };
                let flow = UdpFlow {
                    start,
                    stop,
                    arrivals,
                    sizes,
                    layer: flow.layer,
                    ..UdpFlow::new(from, to, udp.rate, payload)
                };
                What::Udp(net.udp(flow).map_err(refused)?)
            }
            FlowKind::Messages(messages) => {
                let mut messages =
                    Messages { messaging: released(&messages.messaging)?, ..(**messages).clone() };
                let is_coupled = messages.messaging.coupled != Coupling::Off;
                if is_coupled {
                    messages.messaging.chunk =
                        whole_segments(messages.messaging.chunk, messages.tcp.from.mss.into());
                }
                let app = Messenger::new(&name, &messages, stop, seed)
                    .map_err(|source| BuildError::Debt { flow: name.clone(), source })?;
                let mut flow = opened(&messages.tcp, Box::new(app), Box::<Collector>::default())?;
                // The cap keeps less in flight than the window. A loss says nothing about what it does not use
                // (RFC 9002 §7.8, RFC 7661 §4.4).
                flow.client_config.tcp.reduce_window |= is_coupled;
                if messages.feeder == Feeder::Conductor {
                    // A lean feeder leaves a chunk unsent. Without a watermark, the socket would ask for the
                    // next one only at the next acknowledgement.
                    let lowat = &mut flow.client_config.tcp.notsent_lowat;
                    *lowat = lowat.or(messenger::lean(&messages).low_water());
                }
                What::Messages(net.tcp(flow).map_err(refused)?)
            }
            FlowKind::Quic(spec) => {
                let route = |(&[from, to], layer): (&[NodeId; 2], Layer)| Route::new(from, to).layer(layer);
                let layers = ways.iter().map(|path| path.layer);
                let routes = paths.iter().zip(layers).map(route).collect();
                let spec = Box::new(Quic { messaging: released(&spec.messaging)?, ..(**spec).clone() });
                let flow = quic::add(net, &name, &spec, routes, [start, stop], secrets, plugins)?;
                let lanes = ways.iter().map(|path| format!("{}>{}", path.from, path.to)).collect();
                What::Quic { flow, spec, lanes }
            }
        };
        Ok(Tracked {
            flow: flow.name.clone(),
            name,
            kind: flow.kind.name(),
            start,
            stop: flow.stop,
            what,
            before: Totals::default(),
            srtt: (0.0, 0),
        })
    }
}

impl Tracked {
    /// Returns the identifier in the network; `None` for a process.
    pub(super) const fn id(&self) -> Option<FlowId> {
        match self.what {
            What::Tcp { flow, .. }
            | What::Udp(flow)
            | What::Messages(flow)
            | What::Exchange(flow)
            | What::Quic { flow, .. } => Some(flow),
            What::Process(_) => None,
        }
    }

    /// Returns true if the flow sends packets above the MTU on purpose, for MTU discovery.
    pub(super) const fn discovers_mtu(&self) -> bool {
        match &self.what {
            What::Quic { spec, .. } => spec.mtu_discovery,
            _ => false,
        }
    }

    pub(super) const fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns true for a process, whose connections come and go.
    pub(super) const fn is_process(&self) -> bool {
        matches!(self.what, What::Process(_))
    }

    /// Returns the goodput of each complete connection of a process that began at or after `from`,
    /// in Mbit/s; `None` for all other flows.
    pub(super) fn connections(&self, net: &dyn Fabric, from: Time) -> Option<Vec<f64>> {
        let What::Process(process) = self.what else { return None };
        let complete = net.flow_records(process).iter().filter(|flow| flow.start() >= from);
        Some(complete.filter_map(|flow| mbps(flow.received(), flow.completion()?)).collect())
    }

    /// Returns the end that sends what is measured; with requests and responses, the responder.
    const fn sender(&self) -> Side {
        match self.what {
            What::Exchange(_) => Side::Server,
            _ => Side::Client,
        }
    }

    pub(super) fn totals(&self, net: &dyn Fabric) -> Totals {
        let sender = self.sender();
        let common = self.id().map_or_else(Totals::default, |id| {
            let [here, there] = [sender, sender.peer()].map(|side| net.tally(id, side));
            Totals { sent: here.sent, losses: here.dropped + there.dropped, ..Totals::default() }
        });
        match &self.what {
            What::Tcp { flow, .. } | What::Messages(flow) | What::Exchange(flow) => {
                let [here, there] =
                    [sender, sender.peer()].map(|side| net.tcp_stats(*flow, side).unwrap_or_default());
                Totals {
                    bytes: net.reception(*flow, sender.peer()).bytes,
                    retransmissions: here.retransmissions + there.retransmissions,
                    timeouts: here.timeouts + there.timeouts,
                    low: self.low(net, *flow).unwrap_or_default(),
                    ..common
                }
            }
            What::Process(process) => {
                let stats = net.process_stats(*process);
                let open = net.open_flows(*process);
                let mut totals = Totals {
                    sent: stats.from_clients.sent,
                    losses: stats.from_clients.dropped + stats.from_servers.dropped,
                    refused: stats.refused,
                    ..common
                };
                for flow in net.flow_records(*process).iter().chain(&open) {
                    totals.bytes += flow.received();
                    totals.retransmissions += u64::from(flow.retransmissions());
                    totals.timeouts += u64::from(flow.timeouts());
                }
                totals
            }
            What::Udp(flow) => {
                let stats = net.udp_stats(*flow).unwrap_or_default();
                Totals { bytes: stats.bytes, timed: stats.packets, delay: stats.delay_sum, ..common }
            }
            What::Quic { flow, lanes, .. } => {
                let look = Look { net, flow: *flow };
                let mut totals = Totals { bytes: look.received().into_iter().sum(), ..common };
                for lane in look.lanes(lanes) {
                    totals.retransmissions += lane.repairs;
                }
                for route in 0..u8::try_from(lanes.len()).unwrap_or(u8::MAX) {
                    let stats = net.route_stats(*flow, Side::Client, RouteId::new(route)).unwrap_or_default();
                    // A fabric that cannot measure delays reports none.
                    if !stats.delay_sum.is_zero() {
                        totals.timed += stats.arrived;
                        totals.delay += stats.delay_sum;
                    }
                }
                totals
            }
        }
    }

    /// Returns the arrival time of the latest byte that counts.
    fn last_arrival(&self, net: &dyn Fabric) -> Option<Time> {
        match &self.what {
            What::Tcp { flow, .. } | What::Messages(flow) | What::Exchange(flow) => {
                net.reception(*flow, self.sender().peer()).last_at
            }
            What::Process(process) => {
                let open = net.open_flows(*process);
                let records = net.flow_records(*process).iter().chain(&open);
                records.filter_map(crate::FlowRecord::last_received_at).max()
            }
            What::Udp(flow) => net.udp_stats(*flow)?.last_at,
            What::Quic { flow, .. } => Look { net, flow: *flow }.collector()?.last_at,
        }
    }

    /// Returns the end of the span over which goodput is measured. It is the end of the run; for a
    /// flow that has ended or stopped its end, but no earlier than the arrival of its last byte.
    /// Data sent before `stop` may be queued for long after it.
    fn measured_until(&self, net: &dyn Fabric) -> Time {
        let now = net.now();
        match self.finished(net).or(self.stop) {
            Some(end) => self.last_arrival(net).map_or(end, |last| end.max(last)).min(now),
            None => now,
        }
    }

    /// Returns the span over which goodput is measured, from the end of the warm-up at the earliest.
    /// `None` if it is empty: the flow was over before, or has not begun.
    pub(super) fn measured(&self, net: &dyn Fabric, from: Time) -> Option<[Time; 2]> {
        let (begin, end) = (from.max(self.start), self.measured_until(net));
        (begin < end).then_some([begin, end])
    }

    /// Returns the counters of the low layer.
    fn low(&self, net: &dyn Fabric, flow: FlowId) -> Option<LowLayerOutcome> {
        let [here, there] = [self.sender(), self.sender().peer()].map(|side| net.plt_stats(flow, side));
        here.zip(there).map(|(here, there)| LowLayerOutcome {
            packets: here.low_sent,
            lost: here.low_lost,
            repairs: here.repairs,
            bytes: there.received_low,
        })
    }

    /// Returns the state of coupled mode: cap, mode and counts, if the flow has it. The cap of QUIC is
    /// the sum of its lanes' caps, as its window is, and so are the counts. The mode is that of the
    /// first lane.
    fn coupled(&self, net: &dyn Fabric) -> Option<(Option<Bytes>, Mode, Counters)> {
        match self.what {
            What::Messages(flow) => {
                let coupled = net.app::<Messenger>(flow, Side::Client)?.coupled()?;
                Some((coupled.cap(), coupled.mode(), coupled.counters()))
            }
            What::Quic { flow, .. } => {
                let look = Look { net, flow };
                Some((look.cap(), look.mode()?, look.counters()?))
            }
            _ => None,
        }
    }

    fn gauges(&self, net: &dyn Fabric) -> Gauges {
        match &self.what {
            What::Tcp { flow, .. } | What::Messages(flow) | What::Exchange(flow) => {
                net.tcp_stats(*flow, self.sender()).map_or_else(Gauges::default, |stats| Gauges {
                    cwnd: Some(stats.cwnd),
                    ssthresh: Some(stats.ssthresh).filter(|&at| at < Bytes::new(1 << 60)),
                    in_flight: Some(stats.in_flight),
                    low_window: net.plt_stats(*flow, self.sender()).map(|stats| stats.low_window),
                    srtt: stats.srtt,
                    pacing_rate: stats.pacing_rate,
                })
            }
            What::Udp(_) | What::Process(_) => Gauges::default(),
            What::Quic { flow, .. } => {
                let look = Look { net, flow: *flow };
                let Some(session) = look.sending().and_then(crate::quic::QuicHost::session) else {
                    return Gauges::default();
                };
                let views = || session.lanes().map(|(view, ..)| view);
                Gauges {
                    cwnd: Some(views().map(|view| view.cwnd).sum()),
                    in_flight: Some(views().map(|view| view.in_flight).sum()),
                    srtt: views().filter(|view| view.usable).map(|view| view.srtt).min(),
                    ..Gauges::default()
                }
            }
        }
    }

    /// Returns the time at which the flow was over: all data had arrived; for packets without a
    /// connection, its stop or the last arrival after it.
    fn over_at(&self, net: &dyn Fabric) -> Option<Time> {
        let silent = |last: Option<Time>| {
            let stop = self.stop.filter(|&stop| stop <= net.now())?;
            Some(last.map_or(stop, |last| last.max(stop)))
        };
        match &self.what {
            What::Tcp { .. } | What::Exchange(_) => self.finished(net),
            What::Messages(flow) => net.reception(*flow, Side::Server).finished_at,
            What::Udp(flow) => {
                let tally = net.tally(*flow, Side::Client);
                silent(self.last_arrival(net)).filter(|_| tally.sent == tally.arrived + tally.dropped)
            }
            What::Process(process) => {
                silent(self.last_arrival(net)).filter(|_| net.open_flows(*process).is_empty())
            }
            What::Quic { .. } => None,
        }
    }

    /// Returns true if there is something to sample: the flow has begun, and was not over at the
    /// previous sample, at `last`.
    pub(super) fn exists(&self, net: &dyn Fabric, last: Time) -> bool {
        net.now() > self.start && self.over_at(net).is_none_or(|over| over > last)
    }

    /// Returns the value of `metric`, given the counts of the previous sample, `span` ago.
    pub(super) fn sample(
        &self,
        net: &dyn Fabric,
        metric: FlowMetric,
        before: &Totals,
        span: Duration,
    ) -> Option<f64> {
        let bytes = |bytes: Bytes| bytes.get() as f64;
        match metric {
            FlowMetric::Cwnd => self.gauges(net).cwnd.map(bytes),
            FlowMetric::Ssthresh => self.gauges(net).ssthresh.map(bytes),
            FlowMetric::InFlight => self.gauges(net).in_flight.map(bytes),
            FlowMetric::LowWindow => self.gauges(net).low_window.map(bytes),
            FlowMetric::Cap => self.coupled(net).and_then(|(cap, ..)| cap).map(bytes),
            FlowMetric::Mode => self.coupled(net).map(|(_, mode, _)| f64::from(mode as u8)),
            FlowMetric::Srtt => self.gauges(net).srtt.map(ms),
            FlowMetric::PacingRate => self.gauges(net).pacing_rate.map(Rate::as_mbps_f64),
            FlowMetric::Throughput => mbps(self.totals(net).bytes - before.bytes, span),
            FlowMetric::Retransmissions => Some(self.totals(net).retransmissions as f64),
            FlowMetric::Losses => Some(self.totals(net).losses as f64),
            FlowMetric::Delay => mean_delay(before, &self.totals(net)),
        }
    }

    /// Starts the measurement at the end of the warm-up.
    pub(super) fn begin(&mut self, net: &mut dyn Fabric) {
        if let Some(flow) = self.id() {
            net.watch(flow);
        }
        self.before = self.totals(net);
        self.srtt = (0.0, 0);
    }

    /// Samples the round-trip time of a QUIC session. TCP's measurements are recorded individually.
    pub(super) fn look(&mut self, net: &dyn Fabric) {
        if !matches!(self.what, What::Quic { .. }) || net.now() < self.start {
            return;
        }
        if let Some(srtt) = self.gauges(net).srtt {
            self.srtt.0 += ms(srtt);
            self.srtt.1 += 1;
        }
    }

    fn finished(&self, net: &dyn Fabric) -> Option<Time> {
        match &self.what {
            What::Tcp { flow, .. } => net.reception(*flow, Side::Server).finished_at,
            What::Exchange(flow) => net.reception(*flow, Side::Server).finished_at,
            What::Udp(_) | What::Messages(_) | What::Quic { .. } | What::Process(_) => None,
        }
    }

    /// Returns the time from the start to the first byte of payload, in ms.
    fn first_byte(&self, net: &dyn Fabric) -> Option<f64> {
        match &self.what {
            What::Tcp { flow, .. } | What::Messages(flow) | What::Exchange(flow) => {
                let first = net.reception(*flow, self.sender().peer()).first_at?;
                Some(ms(first.since(self.start)))
            }
            What::Udp(_) | What::Quic { .. } | What::Process(_) => None,
        }
    }

    fn times(&self, net: &dyn Fabric, from: Time, timed: &mut Timed<'_>) -> Vec<Times> {
        match &self.what {
            What::Tcp { size: None, .. } | What::Udp(_) => Vec::new(),
            What::Tcp { .. } if self.start >= timed.until => Vec::new(),
            What::Tcp { size: Some(size), .. } => {
                let mut times = Times::empty("transfer".into(), None);
                let completed = self.finished(net);
                times.judge(Completion::of(*size, self.start, completed), timed);
                times.alone = Some(Alone { released: self.start, completed });
                vec![times]
            }
            What::Process(process) => {
                let mut times = Times::empty("transfer".into(), None);
                let open = net.open_flows(*process);
                for flow in net.flow_records(*process).iter().chain(&open) {
                    if flow.start() >= from && flow.start() < timed.until {
                        let done = flow.completion().map(|took| flow.start() + took);
                        times.judge(Completion::of(flow.size(), flow.start(), done), timed);
                    }
                }
                times.refused = self.totals(net).refused - self.before.refused;
                times.released += times.refused;
                vec![times]
            }
            What::Exchange(flow) => {
                let mut times = Times::empty("response".into(), None);
                let Some(Asking { requester, .. }) = net.app(*flow, Side::Client) else { return Vec::new() };
                let unanswered = requester.unanswered();
                for (it, is_done) in requester
                    .exchanges()
                    .iter()
                    .map(|it| (it, true))
                    .chain(unanswered.iter().map(|it| (it, false)))
                {
                    if it.asked_at >= from && it.asked_at < timed.until {
                        let done = is_done.then_some(it.answered_at);
                        times.judge(Completion::of(it.response, it.asked_at, done), timed);
                    }
                }
                vec![times]
            }
            What::Messages(flow) => {
                let sender: Option<&Messenger> = net.app(*flow, Side::Client);
                let collector: Option<&Collector> = net.app(*flow, Side::Server);
                sender.zip(collector).map_or_else(Vec::new, |(it, seen)| it.times(seen, from, timed))
            }
            What::Quic { flow, spec, .. } => Look { net, flow: *flow }.times(spec, from, timed),
        }
    }

    /// Returns the results from `from` until now. `each` receives every completion.
    pub(super) fn outcome(
        &self,
        net: &dyn Fabric,
        links: &[LinkId],
        from: Time,
        each: &mut dyn FnMut(&Completion<'_>),
    ) -> FlowOutcome {
        let now = net.now();
        let totals = self.totals(net);
        let finished = self.finished(net);
        let bytes = totals.bytes - self.before.bytes;
        let goodput = self.measured(net, from).and_then(|[begin, end]| mbps(bytes, end.since(begin)));
        let summary = self.id().map(|flow| net.summary(flow, self.sender())).unwrap_or_default();
        let stats = self.id().and_then(|flow| net.tcp_stats(flow, self.sender()));
        let report = |flow| links.iter().find_map(|&link| net.flow_report(link, flow, self.sender()));
        let looked = (self.srtt.1 > 0).then(|| self.srtt.0 / self.srtt.1 as f64);
        FlowOutcome {
            name: self.name.clone(),
            kind: self.kind,
            start: self.start,
            finished,
            first_byte: self.first_byte(net),
            bytes,
            goodput: goodput.unwrap_or(0.0),
            sent: totals.sent - self.before.sent,
            losses: totals.losses - self.before.losses,
            // A lane that was removed takes its counters with it.
            retransmissions: totals.retransmissions.saturating_sub(self.before.retransmissions),
            timeouts: totals.timeouts - self.before.timeouts,
            rtt: summary.rtt.map_or(looked, |rtt| Some(ms(rtt.mean))),
            rtt_p95: summary.rtt.map(|rtt| ms(rtt.p95)),
            min_rtt: stats.and_then(|stats| stats.min_rtt).map(ms),
            delay: summary.delay.map(|delay| ms(delay.mean)),
            delay_p95: summary.delay.map(|delay| ms(delay.p95)),
            times: self.times(net, from, &mut Timed { flow: &self.name, until: now, each }),
            low: self.id().and_then(|flow| self.low(net, flow)).map(|low| low - self.before.low),
            lanes: match &self.what {
                What::Quic { flow, lanes, .. } => Look { net, flow: *flow }.lanes(lanes),
                _ => Vec::new(),
            },
            report: self.id().and_then(report),
            coupled: self.coupled(net).map(|(.., counters)| counters),
        }
    }
}

/// Converts to ms.
pub(super) fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Returns the rate in Mbit/s; `None` for an empty span.
pub(super) fn mbps(bytes: Bytes, span: Duration) -> Option<f64> {
    (!span.is_zero()).then(|| bytes.get() as f64 * 8e-6 / span.as_secs_f64())
}

/// Returns the mean delay of packets that arrived between two counts, in ms.
fn mean_delay(before: &Totals, after: &Totals) -> Option<f64> {
    let packets = after.timed.saturating_sub(before.timed);
    (packets > 0).then(|| ms(after.delay.saturating_sub(before.delay)) / packets as f64)
}

/// Chunk of as many whole segments as fit, and one at least: the rest of a chunk would be a small segment between full
/// ones.
fn whole_segments(chunk: Bytes, mss: u64) -> Bytes {
    Bytes::new(mss * (chunk.get() / mss.max(1)).max(1))
}
