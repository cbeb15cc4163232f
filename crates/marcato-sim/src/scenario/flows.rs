//! The flows of a world, and what can be seen of them.

use marcato_scenario::flow::FlowKind;
use marcato_scenario::quic::Quic;
use marcato_scenario::record::FlowMetric;
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Time};

use super::error::BuildError;
use super::messenger::Messenger;
use super::outcome::{FlowOutcome, Times};
use super::quic::Look;
use super::{convert, quic};
use crate::{
    App, Collector, FlowError, FlowId, Network, NodeId, Route, RouteId, Side, Socket, Tag, TcpFlow, UdpFlow,
};

/// Writes so many bytes, or as many as are taken until its time is over, and then closes.
#[derive(Clone, Debug)]
struct Transfer {
    left: Bytes,
    stop: Time,
}

impl App for Transfer {
    fn start(&mut self, socket: &mut Socket<'_>) {
        if self.stop < Time::MAX {
            socket.set_timer(self.stop, 0);
        }
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.left -= socket.write(self.left, Priority::default(), Tag::default());
        if self.left.is_zero() {
            socket.close();
        }
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        self.left = Bytes::ZERO;
        socket.close();
    }
}

/// What has been counted since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) bytes: Bytes,
    sent: u64,
    pub(super) losses: u64,
    pub(super) retransmissions: u64,
    timeouts: u64,
    /// Packets whose delay is known, and the sum of these.
    pub(super) timed: u64,
    pub(super) delay: Duration,
}

/// How a flow's sender is now.
#[derive(Clone, Copy, Debug, Default)]
struct Gauges {
    cwnd: Option<Bytes>,
    ssthresh: Option<Bytes>,
    in_flight: Option<Bytes>,
    srtt: Option<Duration>,
    pacing_rate: Option<Rate>,
}

enum What {
    Tcp { flow: FlowId, size: Option<Bytes> },
    Udp(FlowId),
    Messages(FlowId),
    Quic { flow: FlowId, said: Box<Quic>, lanes: Vec<String> },
}

/// A flow of a world: one instance.
pub(super) struct Tracked {
    /// The flow's name in the experiment.
    pub(super) flow: String,
    /// Its own.
    pub(super) name: String,
    kind: &'static str,
    start: Time,
    stop: Option<Time>,
    what: What,
    /// What was counted when the warm-up ended.
    before: Totals,
    /// The sum of the smoothed round-trip times seen, in ms, and their number.
    srtt: (f64, u64),
}

/// An instance of a flow, as it is to be added.
pub(super) struct Instance<'a> {
    pub(super) flow: &'a marcato_scenario::flow::Flow,
    pub(super) name: String,
    pub(super) start: Time,
    pub(super) ends: [NodeId; 2],
    /// The ends of each path, of QUIC.
    pub(super) paths: Vec<[NodeId; 2]>,
}

impl Instance<'_> {
    /// Adds it to the network.
    pub(super) fn add(self, net: &mut Network, seed: Seed) -> Result<Tracked, BuildError> {
        let Self { flow, name, start, ends: [from, to], paths } = self;
        let stop = flow.stop.unwrap_or(Time::MAX);
        let refused = |source: FlowError| BuildError::Flow { flow: name.clone(), source };
        let opened =
            |tcp: &marcato_scenario::flow::TcpEnds, client: Box<dyn App>, server: Box<dyn App>| TcpFlow {
                client: from,
                server: to,
                start,
                client_config: convert::tcp(&tcp.from),
                server_config: convert::tcp(&tcp.to),
                client_app: client,
                server_app: server,
                layer: flow.layer,
            };
        let what = match &flow.kind {
            FlowKind::Tcp(tcp) => {
                let app = Transfer { left: tcp.size.unwrap_or(Bytes::MAX), stop };
                let flow = opened(&tcp.tcp, Box::new(app), Box::new(crate::Sink));
                What::Tcp { flow: net.tcp(flow).map_err(refused)?, size: tcp.size }
            }
            FlowKind::Udp(udp) => {
                let flow = UdpFlow {
                    start,
                    stop,
                    arrivals: convert::arrivals(udp.arrivals),
                    layer: flow.layer,
                    ..UdpFlow::new(from, to, udp.rate, udp.payload)
                };
                What::Udp(net.udp(flow).map_err(refused)?)
            }
            FlowKind::Messages(messages) => {
                let app = Messenger::new(&name, messages, stop, seed)
                    .map_err(|source| BuildError::Debt { flow: name.clone(), source })?;
                let flow = opened(&messages.tcp, Box::new(app), Box::new(Collector::default()));
                What::Messages(net.tcp(flow).map_err(refused)?)
            }
            FlowKind::Quic(said) => {
                let route = |(&[from, to], layer): (&[NodeId; 2], Layer)| Route::new(from, to).layer(layer);
                let layers = said.paths.iter().map(|path| path.layer);
                let routes = paths.iter().zip(layers).map(route).collect();
                let flow = quic::add(net, &name, said, routes, start, stop)?;
                let lanes = said.paths.iter().map(|path| format!("{}>{}", path.from, path.to)).collect();
                What::Quic { flow, said: said.clone(), lanes }
            }
            FlowKind::TcpProcess(_) | FlowKind::RequestResponse(_) => {
                return Err(BuildError::Session { flow: name, problem: "not built yet".into() });
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
    /// Its name in the network.
    pub(super) const fn id(&self) -> FlowId {
        match self.what {
            What::Tcp { flow, .. } | What::Udp(flow) | What::Messages(flow) | What::Quic { flow, .. } => flow,
        }
    }

    pub(super) fn totals(&self, net: &Network) -> Totals {
        let id = self.id();
        let [client, server] = [Side::Client, Side::Server].map(|side| net.tally(id, side));
        let common =
            Totals { sent: client.sent, losses: client.dropped + server.dropped, ..Totals::default() };
        match &self.what {
            What::Tcp { flow, .. } | What::Messages(flow) => {
                let stats = net.tcp_stats(*flow, Side::Client).unwrap_or_default();
                Totals {
                    bytes: net.reception(*flow, Side::Server).bytes,
                    retransmissions: stats.retransmissions,
                    timeouts: stats.timeouts,
                    ..common
                }
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
                    totals.timed += stats.arrived;
                    totals.delay += stats.delay_sum;
                }
                totals
            }
        }
    }

    fn gauges(&self, net: &Network) -> Gauges {
        match &self.what {
            What::Tcp { flow, .. } | What::Messages(flow) => {
                net.tcp_stats(*flow, Side::Client).map_or_else(Gauges::default, |stats| Gauges {
                    cwnd: Some(stats.cwnd),
                    ssthresh: Some(stats.ssthresh).filter(|&at| at < Bytes::new(1 << 60)),
                    in_flight: Some(stats.in_flight),
                    srtt: stats.srtt,
                    pacing_rate: stats.pacing_rate,
                })
            }
            What::Udp(_) => Gauges::default(),
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

    /// What can be sampled of it, given what was counted at the sample before and how long ago that was.
    pub(super) fn sample(
        &self,
        net: &Network,
        metric: FlowMetric,
        before: &Totals,
        span: Duration,
    ) -> Option<f64> {
        let bytes = |bytes: Bytes| bytes.get() as f64;
        match metric {
            FlowMetric::Cwnd => self.gauges(net).cwnd.map(bytes),
            FlowMetric::Ssthresh => self.gauges(net).ssthresh.map(bytes),
            FlowMetric::InFlight => self.gauges(net).in_flight.map(bytes),
            FlowMetric::Srtt => self.gauges(net).srtt.map(ms),
            FlowMetric::PacingRate => self.gauges(net).pacing_rate.map(Rate::as_mbps_f64),
            FlowMetric::Throughput => mbps(self.totals(net).bytes - before.bytes, span),
            FlowMetric::Retransmissions => Some(self.totals(net).retransmissions as f64),
            FlowMetric::Losses => Some(self.totals(net).losses as f64),
            FlowMetric::Delay => mean_delay(before, &self.totals(net)),
        }
    }

    /// The warm-up is over.
    pub(super) fn begin(&mut self, net: &Network) {
        self.before = self.totals(net);
        self.srtt = (0.0, 0);
    }

    /// Looks at the round-trip time.
    pub(super) fn look(&mut self, net: &Network) {
        if net.now() < self.start || self.finished(net).is_some() {
            return;
        }
        if let Some(srtt) = self.gauges(net).srtt {
            self.srtt.0 += ms(srtt);
            self.srtt.1 += 1;
        }
    }

    fn finished(&self, net: &Network) -> Option<Time> {
        match &self.what {
            What::Tcp { flow, .. } => net.reception(*flow, Side::Server).finished_at,
            What::Udp(_) | What::Messages(_) | What::Quic { .. } => None,
        }
    }

    fn times(&self, net: &Network, from: Time, until: Time) -> Vec<Times> {
        match &self.what {
            What::Tcp { size: None, .. } | What::Udp(_) => Vec::new(),
            What::Tcp { .. } if self.start >= until => Vec::new(),
            What::Tcp { .. } => {
                let mut times = Times::empty("transfer".into(), None);
                times.judge(self.start, until, false, self.finished(net).as_ref());
                vec![times]
            }
            What::Messages(flow) => {
                let sender: Option<&Messenger> = net.app(*flow, Side::Client);
                let collector: Option<&Collector> = net.app(*flow, Side::Server);
                sender.zip(collector).map_or_else(Vec::new, |(it, seen)| it.times(seen, from, until))
            }
            What::Quic { flow, said, .. } => Look { net, flow: *flow }.times(said, from, until),
        }
    }

    /// What became of it, measured from `from` until now.
    pub(super) fn outcome(&self, net: &Network, from: Time) -> FlowOutcome {
        let now = net.now();
        let totals = self.totals(net);
        let finished = self.finished(net);
        let end = finished.or(self.stop).map_or(now, |end| end.min(now));
        let bytes = totals.bytes - self.before.bytes;
        let min_rtt = match &self.what {
            What::Tcp { flow, .. } | What::Messages(flow) => {
                net.tcp_stats(*flow, Side::Client).and_then(|stats| stats.min_rtt)
            }
            What::Udp(_) | What::Quic { .. } => None,
        };
        FlowOutcome {
            name: self.name.clone(),
            kind: self.kind,
            start: self.start,
            finished,
            bytes,
            goodput: mbps(bytes, end.since(from.max(self.start))).unwrap_or(0.0),
            sent: totals.sent - self.before.sent,
            losses: totals.losses - self.before.losses,
            // A lane that has gone takes its counters with it.
            retransmissions: totals.retransmissions.saturating_sub(self.before.retransmissions),
            timeouts: totals.timeouts - self.before.timeouts,
            srtt: (self.srtt.1 > 0).then(|| self.srtt.0 / self.srtt.1 as f64),
            min_rtt: min_rtt.map(ms),
            delay: mean_delay(&self.before, &totals),
            times: self.times(net, from, now),
            lanes: match &self.what {
                What::Quic { flow, lanes, .. } => Look { net, flow: *flow }.lanes(lanes),
                _ => Vec::new(),
            },
        }
    }
}

/// In ms.
pub(super) fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// In Mbit/s; `None` over no time.
pub(super) fn mbps(bytes: Bytes, span: Duration) -> Option<f64> {
    (!span.is_zero()).then(|| bytes.get() as f64 * 8e-6 / span.as_secs_f64())
}

/// The mean delay of what arrived between two counts, in ms.
fn mean_delay(before: &Totals, after: &Totals) -> Option<f64> {
    let packets = after.timed.saturating_sub(before.timed);
    (packets > 0).then(|| ms(after.delay.saturating_sub(before.delay)) / packets as f64)
}
