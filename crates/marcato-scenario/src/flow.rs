//! Traffic from one node to another.

use marcato_document::form::{
    Class, Elsewhere, Instant, Single, Small, SomeRate, SomeSize, Span, Urgency, Whole, one_of, table_of,
};
use marcato_document::quantity::{rate, size, span};
use marcato_document::schema::{self, Entry, Schema, Usual};
use marcato_document::{Form, Key, Keyed, Keys, Pairs, Table, WriteForm, WriteKeyed, keyed, quote};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Time, words};

use crate::kinded::{Kinded as _, kinds};
use crate::limit::MAX_FLOWS;
use crate::names::check_name;
use crate::quic::{Ends, Path, Quic};
use crate::read::overlay;
use crate::read::traffic::{
    BothOrNeither, ListedSizes, Order, Pauses, Sizes, UdpPayload, UdpSizes, frequency, udp_sizes,
};
use crate::sizes::SizeList;
use crate::tcp::Tcp;
use crate::traffic::{Arrivals, CHUNK, Coupling, DebtRules, Messaging, OnOff, Pause, Size};

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
    /// Creates a flow of this kind without a name and nodes.
    pub(crate) const fn new(kind: FlowKind) -> Self {
        Self {
            name: String::new(),
            from: String::new(),
            to: String::new(),
            also: Vec::new(),
            count: 1,
            stagger: Duration::ZERO,
            start: Time::ZERO,
            start_jitter: Duration::ZERO,
            stop: None,
            layer: Layer::High,
            kind,
        }
    }

    /// Returns the keys that all flows have.
    pub(crate) fn common(&self) -> Common {
        let Self { count, stagger, start, start_jitter, stop, layer, .. } = *self;
        Common { name: self.name.clone(), elsewhere: (), count, stagger, start, start_jitter, stop, layer }
    }

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

/// Keys that all flows have.
pub(crate) struct Common {
    pub(crate) name: String,
    elsewhere: (),
    pub(crate) count: u32,
    pub(crate) stagger: Duration,
    pub(crate) start: Time,
    pub(crate) start_jitter: Duration,
    pub(crate) stop: Option<Time>,
    pub(crate) layer: Layer,
}

/// Largest number of instances.
#[expect(clippy::cast_possible_truncation, reason = "it is a few thousand")]
const MOST_INSTANCES: u32 = MAX_FLOWS as u32;

keyed! {
    Common, "a flow" kinded, |_of: ()|, check flow_starts_before_it_stops;
    /// name of the flow
    "name" => name: FlowName, need("state what it is called, for example name = \"bulk\""; String::new());
    /// node that sends and opens the connection. Or several: a list, or `"client-*"` for all
    /// matching names
    "from",
    /// node that receives; or several, as many as `from`, or one for all
    "to" => elsewhere: Elsewhere,
        must("required, except for quic with `paths`", "required, except for quic with `paths`");
    /// number of instances; they are called `name-1`, `name-2` and so on, and take the pairs of
    /// `from` and `to` in turn
    "count" => count: Small(1..=MOST_INSTANCES), or(1);
    /// time between the starts of two successive instances
    "stagger" => stagger: Span, or(Duration::ZERO);
    /// start of the first
    "start" => start: Instant, or(Time::ZERO);
    /// upper bound of an additional start delay of each instance, drawn uniformly from a stream
    /// named after it
    "start-jitter" => start_jitter: Span, or(Duration::ZERO);
    /// time after which nothing more is offered
    "stop" => stop: Instant, optional("end of the run");
    /// network layer that serves it
    "layer" => layer: Class, or(Layer::High);
}

fn flow_starts_before_it_stops(of: &Common, keys: &Keys<'_>, _: &()) {
    let Some(stop) = of.stop else { return };
    if stop <= of.start {
        keys.fault("stop", "the flow stops before it starts: set a later `stop`");
    } else if stop.since(Time::ZERO) < of.start.since(Time::ZERO).saturating_add(of.start_jitter) {
        keys.fault("start-jitter", "the flow might stop before it starts: lower it, or set a later `stop`");
    }
}

/// Name of a flow.
struct FlowName;

impl Single<()> for FlowName {
    type Value = String;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<String> {
        let name = keys.string(key)?;
        check_name("flow", name, keys.place(key), keys.faults).then(|| name.to_owned())
    }

    fn toml(&self, name: &String) -> String {
        quote(name)
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

kinds! {
    FlowKind, Ends, fn name:
    "tcp" => Tcp(TcpFlow),
    "udp" => Udp(UdpFlow),
    "tcp-process" => TcpProcess(TcpProcess),
    "request-response" => RequestResponse(RequestResponse),
    "messages" => Messages(Box<Messages>),
    "quic" => Quic(Box<Quic>),
}

impl FlowKind {
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

impl Keyed for TcpEnds {
    const ENTRIES: &'static [&'static [Entry]] = &[&[Entry {
        keys: &[
            schema::Key { name: "congestion", meaning: " congestion control of both ends, as in `tcp`" },
            schema::Key { name: "tcp", meaning: " [TCP's options](#tcp) at both ends" },
            schema::Key { name: "tcp-to", meaning: " options of the end at `to` that differ" },
        ],
        usual: Usual::Text(&["`\"cubic\"`", "the defaults", "none"]),
    }]];
    const SCHEMA: Schema = Schema { what: "both ends of tcp", keys: &[], entries: Self::ENTRIES };

    fn read(flow: &Keys<'_>, of: &()) -> Option<Self> {
        let faults = flow.faults;
        let tcp = |table: &Table| Tcp::read(&Keys::open(table, &Tcp::SCHEMA, faults), of).unwrap_or_default();
        let mut table = flow.table("tcp").cloned().unwrap_or_else(|| Table::empty(flow.here()));
        if let Some(congestion) = flow.item("congestion") {
            if table.get("congestion").is_some() {
                flow.fault("congestion", "`congestion` is said here and in `tcp`: leave one of them out");
            }
            table.set(Key::new("congestion", congestion.place), congestion.clone());
        }
        let from = tcp(&table);
        let to = match flow.table("tcp-to") {
            Some(to) => tcp(&overlay(&table, to, |_| true, ["", ""])),
            None => from.clone(),
        };
        if from.low_layer.is_some() != to.low_layer.is_some() {
            let problem = "one end has a low layer and the other does not: both need one, or neither";
            flow.fault("tcp-to", problem);
        }
        Some(Self { from, to })
    }
}

impl WriteKeyed for TcpEnds {
    fn write(&self, pairs: &mut Pairs) {
        let tcp = |tcp: &Tcp| Single::<()>::toml(&table_of::<Tcp>(), tcp);
        pairs.raw("tcp", tcp(&self.from));
        if self.to != self.from {
            pairs.raw("tcp-to", tcp(&self.to));
        }
    }
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
    /// Rate at which the receiving application reads; `None` reads at once.
    pub read_rate: Option<Rate>,
    /// Time from the flow's start until the receiving application begins to read.
    pub read_after: Duration,
}

impl TcpFlow {
    /// Creates a flow without end, whose receiver reads at once.
    pub fn new(tcp: TcpEnds) -> Self {
        Self {
            tcp,
            size: None,
            priority: Priority::default(),
            on_off: None,
            read_rate: None,
            read_after: Duration::ZERO,
        }
    }
}

keyed! {
    TcpFlow, "a tcp flow" kinded, |_of: Ends|, beside Common, |()|,
    flatten tcp: TcpEnds, |()| = (), flatten on_off: Option<OnOff>, |BothOrNeither| = BothOrNeither,
    check slow_readers_have_one_layer;
    /// bytes to send before it closes
    "size" => size: SomeSize, optional("unlimited");
    /// label of its data, if `priority-option` carries one
    "priority" => priority: Urgency, or(Priority::default());
    /// rate at which the receiving application reads, in pieces of at most 16 KiB; what it has not
    /// read closes the window. Not with a `low-layer`
    "read-rate" => read_rate: SomeRate, optional("all at once");
    /// time from the flow's start until the receiving application begins to read. Not with a
    /// `low-layer`
    "read-after" => read_after: Span, or(Duration::ZERO);
}

fn slow_readers_have_one_layer(of: &TcpFlow, keys: &Keys<'_>, _: &Ends) {
    let slow = [("read-rate", of.read_rate.is_some()), ("read-after", !of.read_after.is_zero())];
    for (key, _) in slow.into_iter().filter(|(_, slow)| *slow && of.tcp.from.low_layer.is_some()) {
        keys.fault(key, format!("a connection with a `low-layer` is read at once: leave `{key}` out"));
    }
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

keyed! {
    UdpFlow, "a udp flow" kinded, |_of: Ends|, beside Common, |()|,
    flatten on_off: Option<OnOff>, |BothOrNeither| = BothOrNeither, check silences_are_for_equal_distances;
    /// mean rate of its IP packets while it sends
    "rate" => rate: SomeRate,
        need("state how fast it sends, for example rate = \"1 Mbit/s\""; Rate::from_bps(1));
    /// payload of each packet: a [size, or sizes from a file](#traffic). If sizes differ, the gap
    /// after each packet is proportional to its length, so that the rate holds
    "payload",
    /// maximum of payloads that are drawn; larger ones are cut to it
    "most-payload" => payload: Payloads,
        or(Payload::Constant(Bytes::new(1200)); "`\"1200 B\"`", "`\"1472 B\"`");
    /// `"constant"`: at equal distances; `"poisson"`; `"ticks"`: all packets that are due at each
    /// tick of a clock, as in iperf3
    "arrivals",
    /// ticks: time between two ticks
    "tick" => arrivals: Departures, or(PacketArrivals::Constant; "`\"constant\"`", "`\"1 ms\"`");
}

fn silences_are_for_equal_distances(of: &UdpFlow, keys: &Keys<'_>, _: &Ends) {
    if of.on_off.is_some() && of.arrivals != PacketArrivals::Constant {
        keys.fault(
            "arrivals",
            "packets that are on and off leave at equal distances: leave `arrivals` out, or `on` and `off`",
        );
    }
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

keyed! {
    TcpProcess, "a tcp-process" kinded, |_of: Ends|, beside Common, |()|, flatten tcp: TcpEnds, |()| = ();
    /// frequency of new connections
    "arrivals",
    /// instead: their mean total rate
    "load" => arrivals: Connections,
        or(Arrivals::Every(Duration::from_secs(1_000_000)); "required, or `load`", "none");
    /// bytes of each connection: a [size](#traffic)
    "size" => size: Sizes,
        need("state how much each connection sends, for example size = \"100 kB\""; Size::Constant(Bytes::kb(1)));
    /// maximum of open connections; those beyond it are not begun, and counted
    "most-open" => most_open: Small(1..=100_000), or(1000);
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

keyed! {
    RequestResponse, "a request-response flow" kinded, |_of: Ends|, beside Common, |()|,
    flatten tcp: TcpEnds, |()| = ();
    /// bytes of a request
    "request" => request: SomeSize, or(Bytes::new(200));
    /// bytes of a response: a [size](#traffic)
    "response" => response: Sizes,
        need("state how long an answer is, for example response = \"100 kB\""; Size::Constant(Bytes::kb(1)));
    /// [pause](#traffic) after a response
    "think" => think: Pauses, or(Pause::Constant(Duration::ZERO));
    /// number of requests
    "requests" => requests: Whole(1..=u64::MAX), optional("unlimited");
}

/// Prioritised messages over TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct Messages {
    /// TCP settings of both ends.
    pub tcp: TcpEnds,
    /// Component that orders the messages.
    pub feeder: Feeder,
    /// Messages, and the settings of the Conductor, if there is one.
    pub messaging: Messaging,
}

keyed! {
    Messages, "a messages flow" kinded, |_of: Ends|, beside Common, |()|,
    flatten tcp: TcpEnds, |()| = (), flatten messaging: Messaging, |()| = (), check only_conductors_have_keys;
    /// `"conductor"`: by priority, with debt, as late as possible; `"greedy"`: the same, but fills
    /// the send buffer, as the authors of CATS do; `"fifo"`: in order of release; `"writers"`: one
    /// writer per priority, in turn
    "feeder" => feeder: one_of::<Feeder>(), or(Feeder::Conductor);
}

fn only_conductors_have_keys(of: &mut Messages, keys: &Keys<'_>, _: &Ends) {
    if of.feeder.has_conductor() {
        return;
    }
    (of.messaging.preset, of.messaging.chunk) = (DebtRules::default(), CHUNK);
    of.messaging.coupled = Coupling::Off;
    for key in ["preset", "chunk", "coupled"] {
        // A grid over feeders has the keys of every feeder in one file, so only keys given by
        // `--set` are refused.
        if keys.is_set(key) {
            let problem = format!(
                "`{key}` is the conductor's, and this feeder has none: leave it out, or vary both in one, for example \
                 \"flow.NAME\" = [{{ feeder = \"fifo\" }}, {{ feeder = \"conductor\", {key} = … }}]"
            );
            keys.fault(key, problem);
        } else if keys.item(key).is_some() && !keys.is_chosen("feeder") {
            keys.fault(key, format!("`{key}` is the conductor's, and this feeder has none: leave it out"));
        }
    }
}

words! {
    /// Component that orders messages before they reach the socket.
    #[derive(Default)]
    pub enum Feeder {
        /// Conductor that fills the send buffer as late as possible.
        #[default]
        Conductor = "conductor",
        /// Conductor that fills the send buffer as far as possible, as the authors of CATS do.
        Greedy = "greedy",
        /// No ordering: messages are written as they arrive.
        Fifo = "fifo",
        /// No ordering, one writer per priority: the writers take turns at the socket.
        Writers = "writers",
    }
}

impl Feeder {
    /// Returns whether a Conductor orders the messages.
    pub const fn has_conductor(self) -> bool {
        matches!(self, Self::Conductor | Self::Greedy)
    }
}

/// Largest payload of a UDP packet over IPv4. RFC 768, RFC 791.
const MOST_PAYLOAD: Bytes = Bytes::new(SizeList::LARGEST as u64);
/// Default upper limit of drawn payloads: with 28 B of headers they fill Ethernet's 1500 B.
const USUAL_MOST: Bytes = Bytes::new(1472);

/// Payload of a UDP flow's packets, and the maximum of payloads that are drawn.
struct Payloads;

impl Form<Ends> for Payloads {
    type Value = Payload;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], _: &Ends) -> Option<Payload> {
        let [name, most_name] = *names else { return None };
        let most = keys.some_size(most_name);
        let (key, payload) = match udp_sizes(keys, name)? {
            UdpPayload::Drawn(Size::Constant(bytes)) => (name, Payload::Constant(bytes)),
            UdpPayload::Drawn(size) => {
                let most = most.unwrap_or(USUAL_MOST);
                let key = if keys.item(most_name).is_some() { most_name } else { name };
                (key, Payload::Drawn { size, most })
            }
            UdpPayload::Listed(ListedSizes { file, order }) => {
                let is_random = order == Order::Random;
                (name, Payload::Listed(Listed { file, is_random, list: None }))
            }
        };
        if !matches!(payload, Payload::Drawn { .. }) && keys.item(most_name).is_some() {
            keys.fault(most_name, "`most-payload` applies to drawn payloads only: remove it");
        }
        let most = match payload {
            Payload::Constant(bytes) => bytes,
            Payload::Drawn { most, .. } => most,
            Payload::Listed(_) => Bytes::ZERO,
        };
        if most > MOST_PAYLOAD {
            keys.fault(key, "a udp packet carries at most 65507 B: lower it");
        }
        Some(payload)
    }
}

impl WriteForm<Ends> for Payloads {
    fn write(&self, payload: &Payload, names: &[&'static str], pairs: &mut Pairs) {
        let [name, most_name] = *names else { return };
        match payload {
            Payload::Constant(bytes) => pairs.text(name, size(*bytes)),
            Payload::Drawn { size: drawn, most } => {
                pairs.raw(name, Single::<()>::toml(&Sizes, drawn)).text(most_name, size(*most))
            }
            Payload::Listed(Listed { file, is_random, .. }) => {
                let order = if *is_random { Order::Random } else { Order::InTurn };
                pairs.raw(name, UdpSizes::Listed(ListedSizes { file: file.clone(), order }).toml())
            }
        };
    }
}

/// Departure times of a UDP flow's packets, and the interval of its clock.
struct Departures;

impl Form<Ends> for Departures {
    type Value = PacketArrivals;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], _: &Ends) -> Option<PacketArrivals> {
        let [name, tick_name] = *names else { return None };
        let tick = keys.some_span(tick_name).unwrap_or(Duration::from_millis(1));
        let words = [
            ("constant", PacketArrivals::Constant),
            ("poisson", PacketArrivals::Poisson),
            ("ticks", PacketArrivals::Ticks { every: tick }),
        ];
        let arrivals = keys.word(name, &words).unwrap_or_default();
        if keys.item(tick_name).is_some() && !matches!(arrivals, PacketArrivals::Ticks { .. }) {
            keys.fault(tick_name, "`tick` applies to arrivals by a clock only: set arrivals = \"ticks\"");
        }
        Some(arrivals)
    }
}

impl WriteForm<Ends> for Departures {
    fn write(&self, arrivals: &PacketArrivals, names: &[&'static str], pairs: &mut Pairs) {
        let [name, tick_name] = *names else { return };
        match arrivals {
            PacketArrivals::Constant => pairs.text(name, "constant"),
            PacketArrivals::Poisson => pairs.text(name, "poisson"),
            PacketArrivals::Ticks { every } => pairs.text(name, "ticks").text(tick_name, span(*every)),
        };
    }
}

/// Arrivals of connections: their frequency, or the load that they make.
struct Connections;

impl Form<Ends> for Connections {
    type Value = Arrivals;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], _: &Ends) -> Option<Arrivals> {
        let [name, load] = *names else { return None };
        match (keys.item(name), keys.item(load)) {
            (Some(_), Some(_)) => {
                keys.fault(load, "write `arrivals` or `load`, not both: each follows from the other");
                None
            }
            (None, None) => {
                keys.need(name, "state how often one begins, for example arrivals = \"5 /s\"; or `load`");
                None
            }
            (Some(_), None) => frequency(keys, name).map(Arrivals::Every),
            (None, Some(_)) => keys.some_rate(load).map(Arrivals::Load),
        }
    }
}

impl WriteForm<Ends> for Connections {
    fn write(&self, arrivals: &Arrivals, names: &[&'static str], pairs: &mut Pairs) {
        let [name, load_name] = *names else { return };
        match arrivals {
            Arrivals::Every(gap) => pairs.text(name, span(*gap)),
            Arrivals::Load(load) => pairs.text(load_name, rate(*load)),
        };
    }
}
