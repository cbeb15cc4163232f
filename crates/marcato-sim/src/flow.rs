//! Flow: two ends, and the routes between them.

use marcato_scenario::sizes::SizeList;
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Stream, Time};

use crate::app::{App, Ledger, Sink, Socket};
use crate::datagram::Datagrams;
use crate::distribution::Distribution;
use crate::packet::{IPV4_HEADER, UDP_HEADER};
use crate::process::Spawned;
use crate::record::Watch;
use crate::route::{AddRouteError, Path};
use crate::tcp::{Connection, SynOptions, TcpConfigError, TcpEnd};
use crate::topology::{NodeId, RouteError};

/// Error returned for a flow that cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// No route leads from one end to the other.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The TCP configuration of an end is invalid.
    #[error("invalid configuration of tcp: {0}")]
    Config(#[from] TcpConfigError),
    /// The rate is zero, or a payload is empty or longer than 65 507 bytes.
    #[error("a udp flow needs a rate above 0 and a payload of 1 to 65507 bytes")]
    EmptyUdp,
    /// A datagram flow has no route.
    #[error("a datagram flow needs a route: add one")]
    NoRoute,
    /// A route of a datagram flow cannot be added.
    #[error(transparent)]
    AddRoute(#[from] AddRouteError),
    /// A fabric other than the simulator's network cannot carry the flow.
    #[error("{0}")]
    Refused(String),
}

/// Configuration of a TCP flow.
pub struct TcpFlow {
    /// Node of the client, which opens the connection.
    pub client: NodeId,
    /// Node of the server.
    pub server: NodeId,
    /// Time at which the client opens the connection.
    pub start: Time,
    /// TCP configuration of the client.
    pub client_config: TcpEnd,
    /// TCP configuration of the server.
    pub server_config: TcpEnd,
    /// Application at the client.
    pub client_app: Box<dyn App>,
    /// Application at the server.
    pub server_app: Box<dyn App>,
    /// Class in which the network serves the flow.
    pub layer: Layer,
}

impl TcpFlow {
    /// Flow whose client runs `app` from time zero and whose server reads everything. Both ends
    /// have the same configuration.
    pub fn new(client: NodeId, server: NodeId, config: impl Into<TcpEnd>, app: impl App) -> Self {
        let config = config.into();
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

    /// Sets the time at which the client opens the connection.
    #[must_use]
    pub fn start(self, start: Time) -> Self {
        Self { start, ..self }
    }

    /// Sets the application at the server.
    #[must_use]
    pub fn server_app(self, app: impl App) -> Self {
        Self { server_app: Box::new(app), ..self }
    }

    /// Sets the server's TCP configuration.
    #[must_use]
    pub fn server_config(self, config: impl Into<TcpEnd>) -> Self {
        Self { server_config: config.into(), ..self }
    }
}

/// Departure process of a UDP flow's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrivals {
    /// Constant gaps between packets.
    #[default]
    Constant,
    /// Poisson process: gaps are independent and exponentially distributed.
    Poisson,
    /// Constant gaps while on, and no packets while off. The first packet of an on span leaves at
    /// its beginning, so that the shortest span has one. It never leaves sooner after the last one
    /// than the rate allows. The flow begins with an on span.
    OnOff {
        /// Lengths of the on spans.
        on: Distribution<Duration>,
        /// Lengths of the off spans.
        off: Distribution<Duration>,
    },
    /// Bursts at each tick of a clock, each with the packets that the rate then owes. iperf3 sends
    /// UDP so, with a default tick of 1 ms. The first tick is the flow's beginning.
    Ticks {
        /// Time between ticks.
        every: Duration,
        /// Greatest lateness of a tick; each tick draws its own. Linux by default lets a sleeping
        /// process oversleep by up to 50 µs.
        slack: Duration,
    },
}

/// Varying payload sizes of UDP packets.
#[derive(Clone, Debug)]
pub enum PacketSizes {
    /// Independent draws for each packet.
    Drawn {
        /// Distribution of the payload.
        sizes: Distribution<Bytes>,
        /// Upper bound, which replaces larger draws. Draws below 1 B count as 1 B.
        most: Bytes,
    },
    /// Sizes from a list.
    Listed {
        /// Payload sizes.
        list: SizeList,
        /// Draws a random entry for each packet. If false, packets take the entries in order, and
        /// start over after the last.
        is_random: bool,
    },
}

/// Configuration of a UDP flow.
#[derive(Clone, Debug)]
pub struct UdpFlow {
    /// Sender.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    /// Time at which the first packet leaves.
    pub start: Time,
    /// Time from which no packet leaves.
    pub stop: Time,
    /// Average rate of the IP packets; with [`Arrivals::OnOff`], the average over on spans.
    pub rate: Rate,
    /// Departure process.
    pub arrivals: Arrivals,
    /// Payload of each packet, unless `sizes` is set.
    pub payload: Bytes,
    /// Varying payload sizes. The gap after each packet is the time that its own length takes at
    /// the rate.
    pub sizes: Option<PacketSizes>,
    /// Class in which the network serves the flow.
    pub layer: Layer,
}

impl UdpFlow {
    /// Flow of constant bit rate and payload, from time zero without end.
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

/// Counters of the packets that arrived of a UDP flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpStats {
    /// Packets.
    pub packets: u64,
    /// Payload bytes.
    pub bytes: Bytes,
    /// Sum of the one-way delays.
    pub delay_sum: Duration,
    /// Greatest one-way delay.
    pub delay_max: Duration,
    /// Arrival time of the last packet.
    pub last_at: Option<Time>,
}

impl UdpStats {
    /// Counts a packet with this payload, which took `delay` to arrive at `now`.
    pub fn arrived(&mut self, now: Time, payload: Bytes, delay: Duration) {
        self.packets += 1;
        self.bytes += payload;
        self.delay_sum += delay;
        self.delay_max = self.delay_max.max(delay);
        self.last_at = Some(now);
    }
}

/// Progress of what one end of a TCP flow has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Time at which the connection was established.
    pub connected_at: Option<Time>,
    /// Time at which the handshake was abandoned.
    pub failed_at: Option<Time>,
    /// Time at which the other end reset the connection or refused it.
    pub reset_at: Option<Time>,
    /// Bytes of the stream delivered in order.
    pub bytes: Bytes,
    /// Arrival time of the first of these bytes.
    pub first_at: Option<Time>,
    /// Arrival time of the latest of these bytes.
    pub last_at: Option<Time>,
    /// Time at which the other end's stream was complete.
    pub finished_at: Option<Time>,
}

pub(crate) struct End {
    pub(crate) tcp: Connection,
    pub(crate) app: Box<dyn App>,
    /// Labels of the data that this end wrote.
    pub(crate) ledger: Ledger,
    pub(crate) wants_to_write: bool,
    pub(crate) reception: Reception,
    /// Time of the event in the agenda for each kind of timer.
    pub(crate) scheduled: [Option<Time>; 4],
    pub(crate) app_timers: Vec<(Time, u32)>,
    /// Time at which the first segment with data left.
    pub(crate) first_sent_at: Option<Time>,
}

impl End {
    pub(crate) fn new(tcp: Connection, app: Box<dyn App>) -> Self {
        Self {
            tcp,
            app,
            ledger: Ledger::default(),
            wants_to_write: true,
            reception: Reception::default(),
            scheduled: [None; 4],
            app_timers: Vec::new(),
            first_sent_at: None,
        }
    }

    /// Calls the application with its socket.
    pub(crate) fn call(&mut self, now: Time, call: impl FnOnce(&mut dyn App, &mut Socket<'_>)) {
        let mut socket = Socket::new(now, &mut self.tcp, &mut self.ledger, &mut self.app_timers);
        call(&mut *self.app, &mut socket);
    }
}

/// Departures of a [`UdpFlow`]: when each packet leaves, and how long it is. It has no clock.
pub struct UdpSource {
    pub(crate) config: UdpFlow,
    gap: Duration,
    stream: Stream,
    /// Random stream of the sizes.
    sizes: Stream,
    /// Number of packets sent.
    sent: usize,
    /// End of the current on span; `None` before the first.
    on_until: Option<Time>,
    /// Beginning of the clock for [`Arrivals::Ticks`], and the time after it at which the last
    /// packet was owed.
    owed: Option<(Time, Duration)>,
    /// Last tick of [`Arrivals::Ticks`]: its number, and its lateness.
    tick: (u128, Duration),
    pub(crate) stats: UdpStats,
}

impl UdpSource {
    /// Creates the source of the flow `name`, with random streams of that name.
    ///
    /// # Errors
    /// If the rate is zero, or a payload is empty or too long.
    pub fn new(config: UdpFlow, name: &str, seed: Seed) -> Result<Self, FlowError> {
        let payload = match &config.sizes {
            Some(PacketSizes::Drawn { most, .. }) => most.get(),
            // A list never has payloads above 65 507 bytes, so only its presence counts.
            Some(PacketSizes::Listed { .. }) => 1,
            None => config.payload.get(),
        };
        if config.rate == Rate::ZERO || payload == 0 || payload > 65_507 {
            return Err(FlowError::EmptyUdp);
        }
        let [stream, sizes] = ["arrivals", "sizes"].map(|of| seed.stream(&format!("{name}/{of}")));
        let gap = config.rate.transmission_time(Bytes::from(Self::len(config.payload)));
        Ok(Self {
            config,
            gap,
            stream,
            sizes,
            sent: 0,
            on_until: None,
            owed: None,
            tick: (0, Duration::ZERO),
            stats: UdpStats::default(),
        })
    }

    /// Configuration of the flow.
    pub const fn config(&self) -> &UdpFlow {
        &self.config
    }

    /// Returns the time at which the packet after the one at `now` leaves.
    pub fn next_at(&mut self, now: Time) -> Time {
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

    /// Returns the length of the IP packet that leaves now, and sets the gap after it to that
    /// length's time at the rate.
    pub fn next_len(&mut self) -> u32 {
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

    /// Returns the length of the IP packet with this payload.
    fn len(payload: Bytes) -> u32 {
        u32::try_from(payload.get()).unwrap_or(u32::MAX).saturating_add(IPV4_HEADER + UDP_HEADER)
    }
}

pub(crate) enum Kind {
    Tcp(Box<[End; 2]>),
    Udp(Box<UdpSource>),
    Datagrams(Box<Datagrams>),
    /// Spawned flow that has ended.
    Gone,
}

pub(crate) struct Flow {
    pub(crate) kind: Kind,
    /// Links of its packets, by route. Only datagram flows have more than one route.
    pub(crate) paths: Vec<Path>,
    /// Nodes of its ends; on a datagram flow, those of its first route.
    pub(crate) nodes: [NodeId; 2],
    /// TCP options of each end's SYN.
    pub(crate) syn_options: Option<[SynOptions; 2]>,
    /// Time at which it begins.
    pub(crate) start: Time,
    /// Process that spawned it, if any.
    pub(crate) spawned: Option<Spawned>,
    /// Recorder of its packets, if it is watched.
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
