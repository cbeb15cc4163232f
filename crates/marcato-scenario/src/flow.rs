//! Traffic from one node to another.

use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Time};

use crate::quic::{Path, Quic};
use crate::sizes::SizeList;
use crate::tcp::Tcp;
use crate::traffic::{Arrivals, Bulk, Message, OnOff, Pause, Preset, Size, Source};

/// Flow, or several instances of the same kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name of the flow.
    pub name: String,
    /// Name of the sending node. For QUIC, the client's end of the first path.
    pub from: String,
    /// Name of the receiving node. For QUIC, the server's end of the first path.
    pub to: String,
    /// Further pairs of nodes. Instances use `from` and `to` and these pairs in turn; there are
    /// fewer pairs than instances.
    pub also: Vec<[String; 2]>,
    /// Number of instances.
    pub count: u32,
    /// Delay between the starts of consecutive instances.
    pub stagger: Duration,
    /// Start of the first instance.
    pub start: Time,
    /// Exclusive upper bound of a random extra delay, drawn uniformly for each instance's start.
    pub start_jitter: Duration,
    /// Time from which nothing more is offered; `None` continues to the end of the run.
    pub stop: Option<Time>,
    /// Class in which the network serves the flow.
    pub layer: Layer,
    /// Kind of traffic, with its settings.
    pub kind: FlowKind,
}

impl Flow {
    /// Returns the names of the instances: the flow's name if there is one, else that name with
    /// `-1`, `-2` and so on appended.
    pub fn instances(&self) -> Vec<String> {
        match self.count {
            1 => vec![self.name.clone()],
            count => (1..=count).map(|n| format!("{}-{n}", self.name)).collect(),
        }
    }

    /// Returns the pairs of nodes over which instances are spread, `from` and `to` first.
    pub fn pairs(&self) -> impl Iterator<Item = [&str; 2]> + Clone {
        let also = self.also.iter().map(|[from, to]| [from.as_str(), to.as_str()]);
        std::iter::once([self.from.as_str(), self.to.as_str()]).chain(also)
    }

    /// Returns the nodes of an instance, counted from 0. Instances use the pairs in turn.
    pub fn ends_of(&self, instance: u32) -> [&str; 2] {
        match (instance as usize) % (self.also.len() + 1) {
            0 => [&self.from, &self.to],
            place => [&self.also[place - 1][0], &self.also[place - 1][1]],
        }
    }

    /// Returns the paths of an instance, counted from 0; none for other kinds than QUIC.
    pub fn paths_of(&self, instance: u32) -> Vec<Path> {
        let FlowKind::Quic(quic) = &self.kind else { return Vec::new() };
        if self.also.is_empty() {
            return quic.paths.clone();
        }
        // A flow with `paths` has a single pair of nodes. This one has none, so its only path uses
        // the flow's own layer.
        let [from, to] = self.ends_of(instance);
        vec![Path { from: from.to_owned(), to: to.to_owned(), layer: self.layer }]
    }

    /// Returns the start of an instance, counted from 0, before
    /// [`start_jitter`](Self::start_jitter) is added.
    pub fn start_of(&self, instance: u32) -> Time {
        self.start + self.stagger.saturating_mul(instance)
    }
}

/// Kind of traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// One TCP connection with data in one direction.
    Tcp(TcpFlow),
    /// UDP packets.
    Udp(UdpFlow),
    /// Process that opens new TCP connections, each with data to send.
    TcpProcess(TcpProcess),
    /// Repeated request, response and pause on one TCP connection.
    RequestResponse(RequestResponse),
    /// Prioritised messages over TCP, with or without a Conductor.
    Messages(Box<Messages>),
    /// Prioritised messages over multipath QUIC.
    Quic(Box<Quic>),
}

impl FlowKind {
    /// Returns the kind's name in a file.
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

    /// Returns the TCP settings of both ends; `None` if the flow uses no TCP.
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

/// TCP settings of the two ends of a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpEnds {
    /// End that opens the connection: `from`.
    pub from: Tcp,
    /// Other end: `to`. Its settings default to those of `from`.
    pub to: Tcp,
}

/// TCP connection that sends bulk data.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpFlow {
    /// TCP settings of both ends.
    pub tcp: TcpEnds,
    /// Bytes sent before the connection closes; `None` sends without end.
    pub size: Option<Bytes>,
    /// Priority of the data, where TCP carries a priority option.
    pub priority: Priority,
    /// Periods of sending and silence; `None` sends all the time.
    pub on_off: Option<OnOff>,
}

/// UDP packets at a given rate.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpFlow {
    /// Average rate of IP packets while the flow sends.
    pub rate: Rate,
    /// Bytes of payload in each packet.
    pub payload: Payload,
    /// Distribution of departure times.
    pub arrivals: PacketArrivals,
    /// Periods of sending and silence; `None` sends all the time.
    pub on_off: Option<OnOff>,
}

/// Payload of a UDP flow's packets.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// Constant size.
    Constant(Bytes),
    /// Independent draw for each packet from the flow's own random stream.
    Drawn {
        /// Distribution of sizes; results below 1 B count as 1 B.
        size: Size,
        /// Upper limit; larger draws are reduced to it.
        most: Bytes,
    },
    /// Sizes listed in a file.
    Listed(Listed),
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Constant(bytes)
    }
}

/// Sizes listed in a file.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Path of the file, relative to the scenario's.
    pub file: String,
    /// Draws a line at random for each packet if set. Otherwise packets use the lines in order, and
    /// start over after the last.
    pub is_random: bool,
    /// Contents of the file; `None` if it has not been read.
    pub list: Option<SizeList>,
}

/// Compares the path and the order of use. The file's contents do not count, so that an experiment
/// whose files have been read equals one whose files have not.
impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && self.is_random == other.is_random
    }
}

/// Distribution of the departure times of a UDP flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketArrivals {
    /// Equal intervals.
    #[default]
    Constant,
    /// Poisson process.
    Poisson,
    /// Clock ticks, at each of which the packets due at this rate leave in a burst, as in iperf3.
    Ticks {
        /// Interval between ticks.
        every: Duration,
    },
}

/// Process that opens new TCP connections.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpProcess {
    /// TCP settings of both ends of each connection.
    pub tcp: TcpEnds,
    /// Arrival process of connections.
    pub arrivals: Arrivals,
    /// Bytes sent on each connection before it closes.
    pub size: Size,
    /// Largest number of open connections. Further arrivals are not opened, but counted.
    pub most_open: u32,
}

impl TcpProcess {
    /// Returns the mean interval between two arrivals.
    pub fn mean_gap(&self) -> Duration {
        match self.arrivals {
            Arrivals::Every(gap) => gap,
            Arrivals::Load(load) => load.transmission_time(self.size.mean()),
        }
    }
}

/// Requests and responses on one TCP connection.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestResponse {
    /// TCP settings of both ends.
    pub tcp: TcpEnds,
    /// Bytes of a request, sent from `from` to `to`.
    pub request: Bytes,
    /// Bytes of a response, sent from `to` to `from`.
    pub response: Size,
    /// Think time: the client's pause between a response and its next request.
    pub think: Pause,
    /// Number of requests; `None` continues without end.
    pub requests: Option<u64>,
}

/// Prioritised messages over TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct Messages {
    /// TCP settings of both ends.
    pub tcp: TcpEnds,
    /// Component that orders the messages.
    pub feeder: Feeder,
    /// Rules of debt; used only with a Conductor.
    pub preset: Preset,
    /// Largest chunk that the Conductor grants.
    pub chunk: Bytes,
    /// Messages that are sent once, in order of time.
    pub messages: Vec<Message>,
    /// Sources of messages.
    pub sources: Vec<Source>,
    /// Bulk data, which fills all remaining room.
    pub bulk: Vec<Bulk>,
}

/// Component that orders messages before they reach the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feeder {
    /// Conductor that fills the send buffer as late as possible.
    #[default]
    Conductor,
    /// Conductor that fills the send buffer as far as possible, as the authors of CATS do.
    Greedy,
    /// No ordering: messages are written as they arrive.
    Fifo,
    /// No ordering, one writer per priority: the writers take turns at the socket.
    Writers,
}
