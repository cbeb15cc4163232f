//! The path of CATS §III-A, as the authors ran it, and the schemes that share it.

use crate::carrier::Carrier;
use crate::error::SimulationError;
use marcato_queue::DropTail;
use marcato_report::World;
use marcato_sched::{Conductor, Config, Debt, Feeder};
use marcato_sim::{
    App, Collector, Conducted, Congestion, DelayedAck, FlowId, LinkConfig, LinkId, Loss, Network, NodeId,
    Packet, Planned, PriorityOption, Side, Tag, Tcp, TcpFlow, Writers,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

/// The dumbbell: access links at both ends, a bottleneck between them, and the same TCP at both
/// ends.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) bottleneck: Rate,
    /// One-way delay of the bottleneck alone.
    pub(super) delay: Duration,
    pub(super) access: Rate,
    /// One-way delay of each access link.
    pub(super) access_delay: Duration,
    /// Bytes that PPP adds to each packet.
    pub(super) framing: Bytes,
    /// Queue of the bottleneck.
    pub(super) queue: DropTail<Packet>,
    /// Loss on the bottleneck, in both directions.
    pub(super) loss: Loss,
    pub(super) tcp: Tcp,
    /// World in which the path is built.
    pub(super) world: World,
}

/// TCP as the authors ran it: buffers have 131 072 bytes and segments 1000, BBR, and every data segment
/// carries the authors' 4-byte option.
pub(crate) fn authors_tcp() -> Tcp {
    Tcp {
        mss: 1000,
        send_buffer: Bytes::new(131_072),
        receive_buffer: Bytes::new(131_072),
        delayed_ack: DelayedAck {
            every: 2,
            timeout: Duration::from_millis(200),
            first_at_once: true,
            urgent_at_once: false,
            quick: 0,
        },
        min_rto: Duration::from_secs(1),
        priority_option: Some(PriorityOption::Authors),
        // ns-3 undoes nothing.
        undo: false,
        congestion: Congestion::Bbr,
        ..Tcp::default()
    }
}

impl Path {
    /// The path as the authors ran it: 2 Mbit/s and 50 ms *one way*, access 10 Mbit/s and 5 ms. Its
    /// base round trip is 120 ms, where the text says 50.
    pub(super) fn authors() -> Self {
        Self {
            bottleneck: Rate::from_mbps(2),
            delay: Duration::from_millis(50),
            access: Rate::from_mbps(10),
            access_delay: Duration::from_millis(5),
            framing: Bytes::new(2),
            queue: DropTail::default(),
            loss: Loss::None,
            tcp: authors_tcp(),
            world: World::Virtual,
        }
    }

    /// Moves the path to a lab, where TCP is the kernel's. Segments carry no option, as the kernel has
    /// none for a priority.
    pub(super) fn in_lab(self) -> Self {
        let lab = Self { world: World::Lab, ..self };
        lab.with_tcp(|tcp| tcp.priority_option = None)
    }

    /// Applies `change` to the TCP configuration.
    pub(super) fn with_tcp(mut self, change: impl FnOnce(&mut Tcp)) -> Self {
        change(&mut self.tcp);
        self
    }

    /// Bytes of a full data segment on the bottleneck: 1058 on the authors' path.
    pub(super) fn segment_on_wire(&self) -> Bytes {
        let headers = 20 + 20 + if self.tcp.timestamps { 12 } else { 0 };
        // RFC 9293 §3.1: padding ends the TCP header on a 32-bit boundary.
        let option = self.tcp.priority_option.map_or(0, |form| form.bytes().next_multiple_of(4));
        Bytes::from(self.tcp.mss + headers + option) + self.framing
    }

    /// Largest chunk that a feeder hands over: a segment.
    pub(super) fn chunk(&self) -> Bytes {
        Bytes::from(self.tcp.mss)
    }

    /// Builds an empty network of this shape.
    pub(super) fn build(&self, seed: u64) -> Result<Dumbbell, SimulationError> {
        match self.world {
            World::Virtual => Ok(self.simulate(seed)),
            World::Lab => self.open_lab(seed),
        }
    }

    /// Returns whether the path is built in a lab.
    pub(super) fn is_in_lab(&self) -> bool {
        self.world == World::Lab
    }

    /// Scenario of this shape, for a lab.
    pub(super) fn scenario(&self, seed: u64) -> Result<String, SimulationError> {
        let Self { bottleneck, access, framing, .. } = self;
        let (rate, framing) = (bottleneck.as_bps(), framing.get());
        let (delay, access, access_delay) =
            (self.delay.as_nanos(), access.as_bps(), self.access_delay.as_nanos());
        let loss = match self.loss {
            Loss::None => String::new(),
            Loss::Random(loss) => format!(", loss = {{ kind = \"random\", probability = {loss} }}"),
            _ => return Err(SimulationError::Missing("bursts of losses in a lab")),
        };
        let edge =
            format!(r#"rate = "{access} bit/s", delay = "{access_delay} ns", framing = "{framing} B""#);
        Ok(format!(
            r#"
            name = "cats"
            duration = "1 s"
            seed = {seed}
            nodes = ["sender", "left", "right", "receiver"]
            link = [
                {{ name = "up", between = ["sender", "left"], {edge} }},
                {{ name = "bottleneck", between = ["left", "right"], rate = "{rate} bit/s",
                   delay = "{delay} ns", framing = "{framing} B"{loss} }},
                {{ name = "down", between = ["right", "receiver"], {edge} }},
            ]
            [[flow]]
            name = "page"
            kind = "tcp"
            from = "sender"
            to = "receiver"
            "#
        ))
    }

    /// Opens a lab of this shape.
    fn open_lab(&self, seed: u64) -> Result<Dumbbell, SimulationError> {
        let (net, start) = Carrier::lab(&self.scenario(seed)?)?;
        Ok(Dumbbell {
            net,
            sender: NodeId::new(0),
            receiver: NodeId::new(3),
            bottleneck: LinkId::new(2),
            start,
        })
    }

    fn simulate(&self, seed: u64) -> Dumbbell {
        let mut net = Network::new(Seed::new(seed));
        let [sender, left, right, receiver] =
            ["sender", "left", "right", "receiver"].map(|name| net.node(name));
        let access = || LinkConfig::new(self.access, self.access_delay).framing(self.framing);
        let bottleneck = || {
            let link = LinkConfig::new(self.bottleneck, self.delay).framing(self.framing);
            link.queue(self.queue.clone()).loss(self.loss.clone())
        };
        net.link(sender, left, access(), access());
        let (bottleneck, _) = net.link(left, right, bottleneck(), bottleneck());
        net.link(right, receiver, access(), access());
        let net = Carrier::from(net);
        Dumbbell { net, sender, receiver, bottleneck, start: Time::ZERO }
    }

    /// TCP configuration of a sender with this feeding.
    pub(super) fn tcp_for(&self, feeding: Feeding) -> Tcp {
        let notsent_lowat = match feeding {
            Feeding::Greedy => None,
            Feeding::Lean => Some(self.chunk()),
        };
        Tcp { notsent_lowat, ..self.tcp.clone() }
    }

    /// Creates an application that sends `plan` by `scheme`.
    pub(super) fn app(&self, scheme: Scheme, plan: Vec<Planned>) -> Result<Box<dyn App>, SimulationError> {
        Ok(match scheme {
            Scheme::Fifo => Box::new(Writers::fifo(plan)),
            Scheme::Writers(writer) => Box::new(Writers::new(plan, writer)),
            Scheme::Conductor(debt, feeding) => {
                let config = Config { chunk: self.chunk(), ..Config::with_debt(debt) };
                Box::new(self.conducted(config, feeding, plan)?)
            }
        })
    }

    /// Creates an application that sends `plan` through a Conductor of this configuration.
    pub(super) fn conducted(
        &self,
        config: Config,
        feeding: Feeding,
        plan: Vec<Planned>,
    ) -> Result<Conducted, SimulationError> {
        Ok(self.conducting(Conductor::new(config)?, feeding, plan))
    }

    /// Creates an application that sends `plan` through this Conductor.
    pub(super) fn conducting(&self, conductor: Conductor, feeding: Feeding, plan: Vec<Planned>) -> Conducted {
        let feeder = match feeding {
            Feeding::Greedy => Feeder::greedy(self.chunk()),
            Feeding::Lean => Feeder::lean(self.chunk()),
        };
        Conducted::new(conductor, feeder, plan)
    }

    /// Sends `plan` by `scheme` over this path, without other traffic, until `until`.
    pub(super) fn send(
        &self,
        scheme: Scheme,
        plan: &[Planned],
        until: Time,
        seed: u64,
    ) -> Result<Transfer, SimulationError> {
        let app = self.app(scheme, plan.to_vec())?;
        let mut transfer = self.open(scheme.feeding(), app, plan, seed)?;
        transfer.run_until(until)?;
        Ok(transfer)
    }

    /// Puts `app`, which sends `plan`, on this path without other traffic. The run has not started
    /// yet.
    pub(super) fn open(
        &self,
        feeding: Feeding,
        app: Box<dyn App>,
        plan: &[Planned],
        seed: u64,
    ) -> Result<Transfer, SimulationError> {
        let Dumbbell { mut net, sender, receiver, bottleneck, start } = self.build(seed)?;
        let flow = net.tcp(TcpFlow {
            client: sender,
            server: receiver,
            start,
            client_config: self.tcp_for(feeding).into(),
            server_config: self.tcp.clone().into(),
            client_app: app,
            server_app: Box::new(Collector::logging()),
            layer: marcato_units::Layer::High,
        })?;
        Ok(Transfer { net, flow, plan: plan.to_vec(), bottleneck, start })
    }
}

/// A network in the shape of a [`Path`].
pub(super) struct Dumbbell {
    pub(super) net: Carrier,
    pub(super) sender: NodeId,
    pub(super) receiver: NodeId,
    pub(super) bottleneck: LinkId,
    /// Time at which its flows begin.
    pub(super) start: Time,
}

/// Way in which an application's messages reach TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Written in the order of the application: the baseline.
    Fifo,
    /// Written by writers that share the socket, without a Conductor. The array maps each priority
    /// to its writer.
    Writers([usize; Priority::COUNT]),
    /// Sent through a Conductor with this debt configuration.
    Conductor(Debt, Feeding),
}

/// Amount of data that the feeder hands to TCP in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feeding {
    /// Fills the send buffer, as the authors' code does.
    Greedy,
    /// Keeps about one chunk unsent.
    Lean,
}

impl Scheme {
    /// CATS as the authors ran it.
    pub(super) const fn cats() -> Self {
        Self::Conductor(Debt::authors(), Feeding::Greedy)
    }

    /// The authors' feeder with strict order: no level ever runs into debt.
    pub(super) const fn strict() -> Self {
        Self::Conductor(Debt::strict(), Feeding::Greedy)
    }

    /// Feeding of the scheme: without a Conductor, the application fills the send buffer.
    pub(super) const fn feeding(self) -> Feeding {
        match self {
            Self::Fifo | Self::Writers(_) => Feeding::Greedy,
            Self::Conductor(_, feeding) => feeding,
        }
    }
}

/// A plan that was sent over a path.
pub(super) struct Transfer {
    pub(super) net: Carrier,
    pub(super) flow: FlowId,
    plan: Vec<Planned>,
    pub(super) bottleneck: LinkId,
    /// Time of `connect`.
    start: Time,
}

/// Interval at which a lab is asked whether everything has arrived.
const LOOK: Duration = Duration::from_millis(50);

impl Transfer {
    /// The receiving application.
    pub(super) fn collector(&self) -> Result<&Collector, SimulationError> {
        self.net
            .app(self.flow, Side::Server)
            .ok_or_else(|| SimulationError::Incomplete("the receiver".into()))
    }

    /// Runs until `until` after `connect`. A lab, whose time is real, stops as soon as everything has
    /// arrived.
    pub(super) fn run_until(&mut self, until: Time) -> Result<(), SimulationError> {
        let end = self.start + until.since(Time::ZERO);
        if self.net.simulator().is_ok() {
            return self.net.run_until(end);
        }
        while self.net.now() < end && !self.is_complete() {
            let next = self.net.now() + LOOK;
            self.net.run_until(next.min(end))?;
        }
        Ok(())
    }

    /// Returns whether all messages have arrived.
    fn is_complete(&self) -> bool {
        let Ok(collector) = self.collector() else { return false };
        let mut plan = (0..).zip(&self.plan);
        plan.all(|(place, planned)| collector.complete(Tag(place), planned.message.len).is_some())
    }

    /// Time since `connect`, in ms.
    fn since_connect(&self, at: Time) -> f64 {
        at.since(self.start).as_secs_f64() * 1e3
    }

    /// Time at which a message was offered.
    pub(super) fn offered(&self, place: usize) -> Time {
        self.start + self.plan[place].after
    }

    /// Plan of the sender.
    pub(super) fn plan(&self) -> &[Planned] {
        &self.plan
    }

    /// The sending application, if it is an `A`.
    pub(super) fn sender<A: App>(&self) -> Result<&A, SimulationError> {
        self.net.app(self.flow, Side::Client).ok_or_else(|| SimulationError::Incomplete("the sender".into()))
    }

    /// Bytes of message `place` that have arrived.
    pub(super) fn arrived(&self, place: usize) -> Result<Bytes, SimulationError> {
        Ok(self.collector()?.arrival(Tag(place as u64)).map_or(Bytes::ZERO, |arrival| arrival.bytes))
    }

    /// Time from the offer of message `place` to its last byte at the receiver, in ms; infinite if
    /// it has not arrived.
    pub(super) fn delay(&self, place: usize) -> Result<f64, SimulationError> {
        let Planned { after, message } = self.plan[place];
        let at = self.collector()?.complete(Tag(place as u64), message.len);
        Ok(at.map_or(f64::INFINITY, |at| self.since_connect(at) - after.as_secs_f64() * 1e3))
    }

    /// Arrival of the first data byte, in ms since `connect`.
    pub(super) fn first_byte(&self) -> Result<f64, SimulationError> {
        let first = self.net.reception(self.flow, Side::Server).first_at;
        let incomplete = || SimulationError::Incomplete("the first byte".into());
        first.map(|at| self.since_connect(at)).ok_or_else(incomplete)
    }

    /// Completion of message `place` of the plan, in ms since `connect`.
    pub(super) fn complete(&self, place: usize) -> Result<f64, SimulationError> {
        let len = self.plan[place].message.len;
        let at = self.collector()?.complete(Tag(place as u64), len);
        let incomplete = || SimulationError::Incomplete(format!("message {place}"));
        at.map(|at| self.since_connect(at)).ok_or_else(incomplete)
    }

    /// Every delivery: ms since the first byte, place in the plan, bytes.
    pub(super) fn deliveries(&self) -> Result<Vec<(f64, usize, Bytes)>, SimulationError> {
        let origin = self.first_byte()?;
        let place = |tag: Tag| usize::try_from(tag.0).unwrap_or(usize::MAX);
        let log = self.collector()?.log();
        let since = |at: Time| self.since_connect(at) - origin;
        Ok(log.iter().map(|&(at, tag, bytes)| (since(at), place(tag), bytes)).collect())
    }
}
