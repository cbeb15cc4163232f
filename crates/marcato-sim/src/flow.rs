//! A flow: two ends, and the routes between them.

use marcato_scenario::sizes::SizeList;
use marcato_units::{Bytes, Duration, Layer, Rate, Stream, Time};

use crate::app::{App, Ledger, Sink, Socket};
use crate::datagram::Datagrams;
use crate::distribution::Distribution;
use crate::packet::{IPV4_HEADER, UDP_HEADER};
use crate::process::Spawned;
use crate::record::Watch;
use crate::route::{AddRouteError, Path};
use crate::tcp::{Connection, SynOptions, TcpConfig, TcpConfigError};
use crate::topology::{NodeId, RouteError};

/// Why a flow cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// No route leads from one end to the other.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// An end of TCP cannot be configured so.
    #[error("tcp cannot be configured so: {0}")]
    Config(#[from] TcpConfigError),
    /// A constant bit rate of zero, or empty packets, never end.
    #[error("a udp flow needs a rate above 0 and a payload of 1 to 65507 bytes")]
    EmptyUdp,
    /// A datagram flow has nowhere to send.
    #[error("a datagram flow needs a route: add one")]
    NoRoute,
    /// A route of a datagram flow cannot be.
    #[error(transparent)]
    AddRoute(#[from] AddRouteError),
}

/// A TCP flow, as it shall be.
pub struct TcpFlow {
    /// Where the client lives: the end that opens the connection.
    pub client: NodeId,
    /// Where the server lives.
    pub server: NodeId,
    /// When the client opens the connection.
    pub start: Time,
    /// How the client's TCP behaves.
    pub client_config: TcpConfig,
    /// How the server's TCP behaves.
    pub server_config: TcpConfig,
    /// What runs at the client.
    pub client_app: Box<dyn App>,
    /// What runs at the server.
    pub server_app: Box<dyn App>,
    /// The class in which the network serves the flow.
    pub layer: Layer,
}

impl TcpFlow {
    /// A flow whose client runs `app` from time zero and whose server takes everything; both ends are configured
    /// alike.
    pub fn new(client: NodeId, server: NodeId, config: TcpConfig, app: impl App) -> Self {
        Self {
            client,
            server,
            start: Time::ZERO,
            client_config: config.clone(),
            server_config: config,
            client_app: Box::new(app),
            server_app: Box::new(Sink),
            layer: Layer::High,
        }
    }

    /// Opened at `start`.
    #[must_use]
    pub fn start(self, start: Time) -> Self {
        Self { start, ..self }
    }

    /// With this application at the server.
    #[must_use]
    pub fn server_app(self, app: impl App) -> Self {
        Self { server_app: Box::new(app), ..self }
    }

    /// With this configuration of the server's TCP.
    #[must_use]
    pub fn server_config(self, config: TcpConfig) -> Self {
        Self { server_config: config, ..self }
    }
}

/// When the packets of a UDP flow leave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrivals {
    /// One after the other at equal distances.
    #[default]
    Constant,
    /// As a Poisson process: the distances are independent and exponentially distributed.
    Poisson,
    /// At equal distances while on, and not at all while off. The first packet of an on span leaves at its beginning, so
    /// that the shortest span has one; but never sooner after the last than the rate allows. The flow begins with an
    /// on span.
    OnOff {
        /// How long the on spans are.
        on: Distribution<Duration>,
        /// How long the off spans are.
        off: Distribution<Duration>,
    },
    /// At each tick of a clock as many at once as the rate then owes: iperf3 sends its UDP so, by a clock of 1 ms unless
    /// told otherwise. The first tick is the flow's beginning.
    Ticks {
        /// From one to the next.
        every: Duration,
        /// How late each is at most, by a draw of its own: Linux lets a sleeper wait up to 50 us more than it asked.
        slack: Duration,
    },
}

/// Payloads of UDP packets that differ.
#[derive(Clone, Debug)]
pub enum PacketSizes {
    /// Drawn for each packet on its own.
    Drawn {
        /// The distribution.
        sizes: Distribution<Bytes>,
        /// What would be more is this much. Nothing is less than 1 B.
        most: Bytes,
    },
    /// Those of a list.
    Listed {
        /// The sizes.
        list: SizeList,
        /// Whether each packet draws one of them. If not, packets take them in order, and after the last the first.
        is_random: bool,
    },
}

/// A UDP flow, as it shall be.
#[derive(Clone, Debug)]
pub struct UdpFlow {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// When the first packet leaves.
    pub start: Time,
    /// From when on no packet leaves.
    pub stop: Time,
    /// Rate of the IP packets, on average; with [`Arrivals::OnOff`], on average of the on spans.
    pub rate: Rate,
    /// When they leave.
    pub arrivals: Arrivals,
    /// Bytes of payload in each packet, unless `sizes` says otherwise.
    pub payload: Bytes,
    /// Sizes of payloads that differ. Behind each packet follows the distance that its own length takes at the rate.
    pub sizes: Option<PacketSizes>,
    /// The class in which the network serves the flow.
    pub layer: Layer,
}

impl UdpFlow {
    /// A flow of constant bit rate and this payload, from time zero and without end.
    pub fn new(from: NodeId, to: NodeId, rate: Rate, payload: Bytes) -> Self {
        Self {
            from,
            to,
            start: Time::ZERO,
            stop: Time::MAX,
            rate,
            arrivals: Arrivals::Constant,
            payload,
            sizes: None,
            layer: Layer::High,
        }
    }
}

/// What arrived of a UDP flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpStats {
    /// Packets.
    pub packets: u64,
    /// Payload.
    pub bytes: Bytes,
    /// Sum of the one-way delays.
    pub delay_sum: Duration,
    /// Greatest one-way delay.
    pub delay_max: Duration,
    /// When the last packet arrived.
    pub last_at: Option<Time>,
}

/// What one end of a TCP flow has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// When the connection was established.
    pub connected_at: Option<Time>,
    /// When the handshake was given up.
    pub failed_at: Option<Time>,
    /// When the other end reset the connection, or refused it.
    pub reset_at: Option<Time>,
    /// Bytes of the stream, in order.
    pub bytes: Bytes,
    /// When the first of them arrived.
    pub first_at: Option<Time>,
    /// When the last of them arrived.
    pub last_at: Option<Time>,
    /// When the other end was known to have finished.
    pub finished_at: Option<Time>,
}

pub(crate) struct End {
    pub(crate) tcp: Connection,
    pub(crate) app: Box<dyn App>,
    /// Labels of what this end wrote.
    pub(crate) ledger: Ledger,
    pub(crate) wants_to_write: bool,
    pub(crate) reception: Reception,
    /// When an event for each kind of timer is in the agenda.
    pub(crate) scheduled: [Option<Time>; 4],
    pub(crate) app_timers: Vec<(Time, u32)>,
    /// When the first segment with data left.
    pub(crate) first_sent_at: Option<Time>,
}

impl End {
    pub(crate) fn new(tcp: Connection, app: Box<dyn App>) -> Self {
        Self {
            tcp,
            app,
            ledger: Ledger::new(),
            wants_to_write: true,
            reception: Reception::default(),
            scheduled: [None; 4],
            app_timers: Vec::new(),
            first_sent_at: None,
        }
    }

    /// Lets the application see its connection.
    pub(crate) fn call(&mut self, now: Time, call: impl FnOnce(&mut dyn App, &mut Socket<'_>)) {
        let mut socket =
            Socket { now, tcp: &mut self.tcp, ledger: &mut self.ledger, timers: &mut self.app_timers };
        call(&mut *self.app, &mut socket);
    }
}

pub(crate) struct Udp {
    pub(crate) config: UdpFlow,
    gap: Duration,
    stream: Stream,
    /// What sizes are drawn from.
    sizes: Stream,
    /// How many packets have been sent.
    sent: usize,
    /// When the on span ends; `None` before the first begins.
    on_until: Option<Time>,
    /// Since when ticks are counted, how long after that the last packet was owed, and the last tick: its number, and
    /// how late it is.
    owed: Option<(Time, Duration)>,
    tick: (u128, Duration),
    pub(crate) stats: UdpStats,
}

impl Udp {
    pub(crate) fn new(config: UdpFlow, stream: Stream, sizes: Stream) -> Self {
        let gap = config.rate.transmission_time(Bytes::from(Self::len(config.payload)));
        Self {
            config,
            gap,
            stream,
            sizes,
            sent: 0,
            on_until: None,
            owed: None,
            tick: (0, Duration::ZERO),
            stats: UdpStats::default(),
        }
    }

    /// When, after the packet that leaves at `now`, the next one leaves.
    pub(crate) fn next_at(&mut self, now: Time) -> Time {
        let next = now + self.gap;
        match self.config.arrivals {
            Arrivals::Constant => next,
            Arrivals::Poisson => now + self.stream.exponential(self.gap),
            Arrivals::OnOff { on, off } => {
                let ends = match self.on_until {
                    Some(at) => at,
                    None => now + on.draw(&mut self.stream),
                };
                self.on_until = Some(ends);
                if next < ends {
                    return next;
                }
                let begins = (ends + off.draw(&mut self.stream)).max(next);
                self.on_until = Some(begins + on.draw(&mut self.stream));
                begins
            }
            Arrivals::Ticks { every, slack } => {
                let (since, owed) = self.owed.unwrap_or((now, Duration::ZERO));
                let owed = owed + self.gap;
                self.owed = Some((since, owed));
                let every = every.as_nanos().max(1);
                let tick = owed.as_nanos().div_ceil(every);
                if tick != self.tick.0 {
                    let late = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
                    self.tick = (tick, Duration::from_nanos(self.stream.below(late.saturating_add(1))));
                }
                since + Duration::from_nanos(u64::try_from(tick * every).unwrap_or(u64::MAX)) + self.tick.1
            }
        }
    }

    /// The length of the IP packet that leaves now; the distance behind it is that at which its length makes up the rate.
    pub(crate) fn next_len(&mut self) -> u32 {
        let payload = match &self.config.sizes {
            None => return Self::len(self.config.payload),
            Some(PacketSizes::Drawn { sizes, most }) => {
                sizes.draw(&mut self.sizes).min(*most).max(Bytes::new(1))
            }
            Some(PacketSizes::Listed { list, is_random: true }) => {
                let number = self.sizes.below(list.len() as u64);
                list.get(usize::try_from(number).unwrap_or(0))
            }
            Some(PacketSizes::Listed { list, is_random: false }) => list.get(self.sent),
        };
        self.sent = self.sent.wrapping_add(1);
        let len = Self::len(payload);
        self.gap = self.config.rate.transmission_time(Bytes::from(len));
        len
    }

    /// Length of the IP packet with this payload.
    fn len(payload: Bytes) -> u32 {
        u32::try_from(payload.get()).unwrap_or(u32::MAX).saturating_add(IPV4_HEADER + UDP_HEADER)
    }
}

pub(crate) enum Kind {
    Tcp(Box<[End; 2]>),
    Udp(Box<Udp>),
    Datagrams(Box<Datagrams>),
    /// A spawned flow that has ended.
    Gone,
}

pub(crate) struct Flow {
    pub(crate) kind: Kind,
    /// The way of its packets, by route. All but datagram flows have one.
    pub(crate) paths: Vec<Path>,
    /// Where its ends are: of a datagram flow, those of its first route.
    pub(crate) nodes: [NodeId; 2],
    /// What each end's SYN says, if it is of TCP.
    pub(crate) syn_options: Option<[SynOptions; 2]>,
    /// When it begins.
    pub(crate) start: Time,
    /// The process that spawned it.
    pub(crate) spawned: Option<Spawned>,
    /// What is noted of each of its packets, if anything is.
    pub(crate) watch: Option<Box<Watch>>,
}

impl Flow {
    pub(crate) fn new(kind: Kind, paths: Vec<Path>, nodes: [NodeId; 2], start: Time) -> Self {
        let syn_options = match &kind {
            Kind::Tcp(ends) => Some([ends[0].tcp.syn_options(), ends[1].tcp.syn_options()]),
            Kind::Udp(_) | Kind::Datagrams(_) | Kind::Gone => None,
        };
        Self { kind, paths, nodes, syn_options, start, spawned: None, watch: None }
    }
}
