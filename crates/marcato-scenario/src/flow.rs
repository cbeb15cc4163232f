//! A flow: what is sent from one node to another.

use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Time};

use crate::quic::{Path, Quic};
use crate::sizes::SizeList;
use crate::tcp::Tcp;
use crate::traffic::{Arrivals, Bulk, Message, OnOff, Pause, Preset, Size, Source};

/// A flow, or several of the same kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// What it is called.
    pub name: String,
    /// The node that sends, by name. Of QUIC, the client's end of the first path.
    pub from: String,
    /// The node that receives, by name. Of QUIC, the server's end of the first path.
    pub to: String,
    /// Further pairs of nodes: the instances take `from` and `to` and these in turn. No more than there are instances.
    pub also: Vec<[String; 2]>,
    /// How many of them there are.
    pub count: u32,
    /// By how much each of them begins later than the one before.
    pub stagger: Duration,
    /// When the first begins.
    pub start: Time,
    /// By less than how much each begins later than that says, drawn uniformly for each on its own.
    pub start_jitter: Duration,
    /// From when on nothing more is offered; `None`: to the end of the run.
    pub stop: Option<Time>,
    /// The class in which the network serves it.
    pub layer: Layer,
    /// What it is.
    pub kind: FlowKind,
}

impl Flow {
    /// The names of its instances: its own if there is one, else with `-1`, `-2` and so on behind it.
    pub fn instances(&self) -> Vec<String> {
        match self.count {
            1 => vec![self.name.clone()],
            count => (1..=count).map(|n| format!("{}-{n}", self.name)).collect(),
        }
    }

    /// The pairs of nodes over which its instances are spread: its own first.
    pub fn pairs(&self) -> impl Iterator<Item = [&str; 2]> + Clone {
        let also = self.also.iter().map(|[from, to]| [from.as_str(), to.as_str()]);
        std::iter::once([self.from.as_str(), self.to.as_str()]).chain(also)
    }

    /// The nodes of the instance with this number, counted from 0: the pairs are taken in turn.
    pub fn ends_of(&self, instance: u32) -> [&str; 2] {
        match (instance as usize) % (self.also.len() + 1) {
            0 => [&self.from, &self.to],
            place => [&self.also[place - 1][0], &self.also[place - 1][1]],
        }
    }

    /// The paths of the instance with this number, counted from 0; none of what is not QUIC.
    pub fn paths_of(&self, instance: u32) -> Vec<Path> {
        let FlowKind::Quic(quic) = &self.kind else { return Vec::new() };
        if self.also.is_empty() {
            return quic.paths.clone();
        }
        // Who says `paths` has but one pair; so there is one path, of the flow's own layer.
        let [from, to] = self.ends_of(instance);
        vec![Path { from: from.to_owned(), to: to.to_owned(), layer: self.layer }]
    }

    /// When the instance with this number begins, counted from 0, but for [`start_jitter`](Self::start_jitter).
    pub fn start_of(&self, instance: u32) -> Time {
        self.start + self.stagger.saturating_mul(instance)
    }
}

/// What a flow is.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// One TCP connection with data in one direction.
    Tcp(TcpFlow),
    /// UDP packets.
    Udp(UdpFlow),
    /// New TCP connections again and again, each with something to send.
    TcpProcess(TcpProcess),
    /// A request, an answer, a pause, and again, on one TCP connection.
    RequestResponse(RequestResponse),
    /// Prioritised messages over TCP, through a Conductor or as applications do without.
    Messages(Box<Messages>),
    /// Prioritised messages over multipath QUIC.
    Quic(Box<Quic>),
}

impl FlowKind {
    /// Its name, as a file has it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
            Self::TcpProcess(_) => "tcp-process",
            Self::RequestResponse(_) => "request-response",
            Self::Messages(_) => "messages",
            Self::Quic(_) => "quic",
        }
    }

    /// How both ends' TCP is set up; `None` if the flow uses none.
    pub fn tcp(&self) -> Option<&TcpEnds> {
        match self {
            Self::Tcp(flow) => Some(&flow.tcp),
            Self::TcpProcess(flow) => Some(&flow.tcp),
            Self::RequestResponse(flow) => Some(&flow.tcp),
            Self::Messages(flow) => Some(&flow.tcp),
            Self::Udp(_) | Self::Quic(_) => None,
        }
    }
}

/// How the two ends of a TCP connection behave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpEnds {
    /// The end that opens the connection: `from`.
    pub from: Tcp,
    /// The other end: `to`. Unless the file says otherwise it is set up like the first.
    pub to: Tcp,
}

/// One TCP connection that sends bulk data.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpFlow {
    /// How its ends behave.
    pub tcp: TcpEnds,
    /// How much it sends before it closes; `None`: without end.
    pub size: Option<Bytes>,
    /// What its data is labelled with, where TCP carries a priority option.
    pub priority: Priority,
    /// When it sends at all; `None`: always.
    pub on_off: Option<OnOff>,
}

/// UDP packets at a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpFlow {
    /// Rate of the IP packets while it sends, on average.
    pub rate: Rate,
    /// Bytes of payload in each packet.
    pub payload: Payload,
    /// When they leave.
    pub arrivals: PacketArrivals,
    /// When it sends at all; `None`: always.
    pub on_off: Option<OnOff>,
}

/// How much each packet of a UDP flow carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// Always the same.
    Constant(Bytes),
    /// Drawn for each packet on its own, by a random stream of the flow's.
    Drawn {
        /// The distribution; of what it gives, at least 1 B.
        size: Size,
        /// What would be more is this much.
        most: Bytes,
    },
    /// Those of a file.
    Listed(Listed),
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Constant(bytes)
    }
}

/// Sizes from a file.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The path of the file, relative to the scenario's.
    pub file: String,
    /// Whether each packet draws a line at random. If not, packets take the lines in order, and after the last the first.
    pub is_random: bool,
    /// What the file has; `None` if it has not been read.
    pub list: Option<SizeList>,
}

/// What the file has is no part of what is said.
impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && self.is_random == other.is_random
    }
}

/// When the packets of a UDP flow leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketArrivals {
    /// One after the other at equal distances.
    #[default]
    Constant,
    /// As a Poisson process.
    Poisson,
    /// At each tick of a clock as many at once as the rate then owes, as iperf3 does.
    Ticks {
        /// From one tick to the next.
        every: Duration,
    },
}

/// New TCP connections again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpProcess {
    /// How their ends behave.
    pub tcp: TcpEnds,
    /// How often they begin.
    pub arrivals: Arrivals,
    /// How much each sends before it closes.
    pub size: Size,
    /// How many may be open at once; those that would be more are not begun, and counted.
    pub most_open: u32,
}

impl TcpProcess {
    /// The mean distance between two beginnings.
    pub fn mean_gap(&self) -> Duration {
        match self.arrivals {
            Arrivals::Every(gap) => gap,
            Arrivals::Load(load) => load.transmission_time(self.size.mean()),
        }
    }
}

/// Requests and answers on one TCP connection.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestResponse {
    /// How its ends behave.
    pub tcp: TcpEnds,
    /// Bytes of a request, which travels from `from` to `to`.
    pub request: Bytes,
    /// Bytes of an answer, which travels back.
    pub response: Size,
    /// How long the client waits after an answer before it asks again.
    pub think: Pause,
    /// How often it asks; `None`: without end.
    pub requests: Option<u64>,
}

/// Prioritised messages over TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct Messages {
    /// How its ends behave.
    pub tcp: TcpEnds,
    /// What brings the messages into an order.
    pub feeder: Feeder,
    /// The rules of debt; a Conductor's only.
    pub preset: Preset,
    /// The largest chunk that the Conductor grants.
    pub chunk: Bytes,
    /// Messages that are sent once, in order of time.
    pub messages: Vec<Message>,
    /// Sources of messages.
    pub sources: Vec<Source>,
    /// Data that fills whatever room there is.
    pub bulk: Vec<Bulk>,
}

/// What brings messages into an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feeder {
    /// A Conductor, that fills the send buffer as late as it can.
    #[default]
    Conductor,
    /// A Conductor, that fills the send buffer as far as it can, as the authors of CATS do.
    Greedy,
    /// None: messages are written in the order in which they come.
    Fifo,
    /// None: a writer for each priority, which take turns at the socket.
    Writers,
}
