//! Prioritised messages over multipath QUIC.
//!
//! To add a lane scheduler, implement it in `marcato-sched` and name it in `PathScheduler` of
//! `marcato-quic`. Then add its row to [`Scheduler`], and its name to the meaning of the key
//! `scheduler`. The simulator then does not compile until it converts the one to the other:
//! `marcato-sim/src/scenario/quic.rs`.

use marcato_document::form::{
    Checked, Class, Context, Flag, Number, Single, Size, Small, SomeSize, SomeSpan, Text, Urgency, one_of,
    table_of,
};
use marcato_document::quantity::size;
use marcato_document::schema::{self, Entry, Schema, Usual};
use marcato_document::{Item, Key, Keyed, Keys, Pairs, Table, Value, WriteKeyed, array, keyed, quote};
use marcato_units::{Bytes, Duration, Layer, Priority, words};

use crate::flow::Common;
use crate::kinded::{kind_of, kinds};
use crate::limit::MAX_PATHS;
use crate::plugin::Plugin;
use crate::traffic::Messaging;

/// Session of prioritised messages over multipath QUIC. The client opens it and sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Quic {
    /// Paths, each of which becomes a lane. The session begins on the first.
    pub paths: Vec<Path>,
    /// Lane scheduler.
    pub scheduler: Scheduler,
    /// Restricts low-layer paths to what high-layer paths have no room for (PLT).
    pub layered: bool,
    /// Congestion controller of each lane.
    pub controller: Controller,
    /// Initial window of each lane; `None` leaves the controller's default.
    pub initial_window: Option<Bytes>,
    /// Messages, and the Conductor that orders them.
    pub messaging: Messaging,
    /// Component that paces packets.
    pub pacing: Pacing,
    /// Growth of windows with a reserved part.
    pub growth: Growth,
    /// Streams that carry messages.
    pub streams: StreamUse,
    /// Number of packets handed to the engine at once.
    pub batch: u32,
    /// Initial UDP payload size.
    pub initial_mtu: Bytes,
    /// Enables path MTU discovery.
    pub mtu_discovery: bool,
    /// Packet threshold of loss detection: number of later packets after which one is declared
    /// lost.
    pub packet_threshold: u32,
    /// Time threshold of loss detection, in round-trip times.
    pub time_threshold: f64,
    /// Round-trip time assumed before the first measurement.
    pub initial_rtt: Duration,
}

/// Smallest UDP payload that a QUIC path must carry. RFC 9000 §14.
const LEAST_MTU: Bytes = Bytes::new(1200);
/// Largest UDP payload. RFC 9000 §18.2.
const MOST_MTU: Bytes = Bytes::new(65_527);

/// Nodes and layer of a flow, to which its paths default.
pub(crate) struct Ends {
    /// `from` and `to`, if the flow has them.
    pub(crate) nodes: Option<[String; 2]>,
    pub(crate) layer: Layer,
}

// Defaults of loss detection: RFC 9002 §6.1.1, §6.1.2 and §6.2.2.
keyed! {
    Quic, "a quic flow" kinded, |of: Ends|, beside Common, |()|,
    flatten messaging: Messaging, |()| = (), check session_can_work;
    /// instead of `from` and `to`: at most 16 of `["from", "to"]` or of tables; the session begins
    /// on the first
    "paths" => paths: Paths, must("one");
    /// `"low-rtt"` (or `"lowrtt"`), `"round-robin"` (or `"rr"`), `"cwr"`, `"cwr-red"`, `"selective"`
    "scheduler" => scheduler: Context(kind_of::<Scheduler>()),
        or(Scheduler::Cwr(Reserving::MARCATO); "`\"cwr\"`");
    /// whether paths of the low layer carry only data that exceeds the room of the high ones (PLT);
    /// the high ones repair their losses
    "layered" => layered: Flag, or(false);
    /// `"new-reno"`, `"cubic"`, `"bbr3"`; bbr3 draws from the operating system, so its runs cannot
    /// be repeated to the byte
    "controller" => controller: Context(kind_of::<Controller>()), or(Controller::Cubic);
    /// initial window of each lane
    "initial-window" => initial_window: SomeSize, optional("the controller's choice");
    /// `"off"`; `"session"`: the session paces everything except p0; `"strict"`: the session paces
    /// everything
    "pacing" => pacing: one_of::<Pacing>(), or(Pacing::Session);
    /// growth of a partly reserved window: `"acknowledged"`, `"credited"`
    "growth" => growth: one_of::<Growth>(), or(Growth::Acknowledged);
    /// `"per-message"`, `"reuse"` (CWR §III-B)
    "streams" => streams: one_of::<StreamUse>(), or(StreamUse::PerMessage);
    /// number of packets handed to the engine at once
    "batch" => batch: Small(1..=64), or(10);
    /// initial UDP payload
    "initial-mtu" => initial_mtu: Checked(Size, is_a_quic_mtu), or(LEAST_MTU);
    /// whether it searches for a larger one
    "mtu-discovery" => mtu_discovery: Flag, or(true);
    /// number of later packets after which one is lost
    "packet-threshold" => packet_threshold: Small(1..=1_000_000), or(3);
    /// part of a round trip after which a packet is lost
    "time-threshold" => time_threshold: Number(1.0..=100.0), or(9.0 / 8.0);
    /// assumed round trip before the first measurement
    "initial-rtt" => initial_rtt: SomeSpan, or(Duration::from_millis(333));
}

fn is_a_quic_mtu(keys: &Keys<'_>, key: &'static str, mtu: &Bytes) {
    if !(LEAST_MTU..=MOST_MTU).contains(mtu) {
        keys.fault(key, format!("`{key}` is 1200 B to 65527 B, not {}", size(*mtu)));
    }
}

fn session_can_work(quic: &Quic, keys: &Keys<'_>, _: &Ends) {
    if quic.controller == Controller::Bbr3 && quic.pacing == Pacing::Off {
        keys.fault(
            "pacing",
            "bbr3 without pacing doubles the round-trip time: write \"session\" or \"strict\"",
        );
    }
    let lacks = |layer: Layer| quic.paths.iter().all(|path| path.layer != layer);
    if quic.layered && [Layer::High, Layer::Low].into_iter().any(lacks) {
        keys.fault(
            "layered",
            "two layers need a path each: for example paths = [[\"client\", \"server\"], { from = \"client\", to = \
             \"server\", layer = \"low\" }]",
        );
    }
}

/// Paths: the flow's own nodes, or a list.
struct Paths;

impl Single<Ends> for Paths {
    type Value = Vec<Path>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, of: &Ends) -> Option<Vec<Path>> {
        let Some(items) = keys.list(key, MAX_PATHS) else {
            let path = |[from, to]: [String; 2]| Path { from, to, layer: of.layer };
            return Some(of.nodes.clone().map(path).into_iter().collect());
        };
        if items.is_empty() {
            keys.fault(key, "a session needs a path: for example paths = [[\"client\", \"server\"]]");
        }
        let path = |item: &Item| match &item.value {
            Value::Array(_) => {
                let wrapped =
                    Table { entries: vec![(Key::new(key, item.place), item.clone())], place: item.place };
                let ends = Keys::trusting(&wrapped, &Quic::SCHEMA, keys.faults).strings(key, MAX_PATHS);
                match ends.as_slice() {
                    [(from, _), (to, _)] => {
                        Some(Path { from: (*from).to_owned(), to: (*to).to_owned(), layer: of.layer })
                    }
                    other => {
                        let many = other.len();
                        let problem = format!("a path leads from one node to another, not along {many}");
                        keys.faults.add(item.place, problem);
                        None
                    }
                }
            }
            Value::Table(table) => Path::read(&Keys::open(table, &Path::SCHEMA, keys.faults), of),
            other => {
                let what = other.what();
                keys.faults
                    .add(item.place, format!("a path is for example [\"client\", \"server\"], not {what}"));
                None
            }
        };
        Some(items.iter().filter_map(path).collect())
    }

    fn toml(&self, paths: &Vec<Path>) -> String {
        array(paths.iter().map(|path| Single::<Ends>::toml(&table_of::<Path>(), path)))
    }
}

keyed! {
    Path, "a path", |flow: Ends|;
    /// the client's end
    "from" => from: Text, need("state where it begins"; String::new());
    /// the server's end
    "to" => to: Text, need("state where it ends"; String::new());
    /// network layer that serves it
    "layer" => layer: Class, or(flow.layer; "the flow's");
}

/// Path of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Name of the node at the client's end.
    pub from: String,
    /// Name of the node at the server's end.
    pub to: String,
    /// Class in which the network serves the path.
    pub layer: Layer,
}

kinds! {
    /// Lane scheduler: chooses lanes for packets.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Scheduler, (), fn name, plain "a lane scheduler", plugins Scheduler(Plugin):
    /// Lane of lowest round-trip time with room.
    "low-rtt" => LowRtt,
    /// Lanes in turn.
    "round-robin" => RoundRobin,
    /// Congestion window reservation.
    "cwr" => Cwr(Reserving),
    /// Congestion window reservation with redundancy.
    "cwr-red" => CwrRed(Reserving, "cwr-red"),
    /// Redundancy that ignores the window, for data of this level and above; for comparison only.
    "selective" => Selective(Selective),
}

/// Redundancy that ignores the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selective {
    /// Least urgent level that is sent on every lane.
    pub threshold: Priority,
}

keyed! {
    Selective, "the selective scheduler" kinded, |_of: ()|;
    /// messages at least this urgent are duplicated
    "threshold" => threshold: Urgency, or(Priority::P0);
}

/// Parameters of congestion window reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserving {
    /// Least urgent level that may use the reserved window.
    pub threshold: Priority,
    /// Part of each window, in thousandths, that reservations leave to background data.
    pub background_share: u32,
    /// Learns the periods of sources that are named but not declared.
    pub learn: bool,
    /// Limit on duplicate bytes; `None` for no limit.
    pub budget: Option<Budget>,
}

impl Reserving {
    /// Parameters of the paper.
    pub const PAPER: Self = Self { threshold: Priority::P0, background_share: 0, learn: false, budget: None };
    /// Parameters for use: at most half of a window is reserved, sources are learned, and
    /// duplicates have a budget.
    pub const MARCATO: Self =
        Self { threshold: Priority::P0, background_share: 500, learn: true, budget: Some(Budget::DEFAULT) };
}

keyed! {
    Reserving, "cwr" kinded, |preset: Reserving|;
    /// messages at least this urgent may use reserved room
    "threshold" => threshold: Urgency, or(preset.threshold; "`\"p0\"`");
    /// share of each window that reservations leave to background data, in thousandths
    "background-share" => background_share: Small(0..=1000), or(preset.background_share; "`500`; paper `0`");
    /// whether periods are learned from sources that are named but not declared
    "learn" => learn: Flag, or(preset.learn; "`true`; paper `false`");
    /// limit of redundant data: a table, or `"unlimited"`
    "budget" => budget: BudgetOrNone, or(preset.budget; "100 kB and a tenth; paper unlimited");
}

impl Keyed for Reserving {
    const ENTRIES: &'static [&'static [Entry]] = &[
        &[Entry {
            keys: &[schema::Key {
                name: "preset",
                meaning: " source of the other defaults: `\"paper\"` or `\"marcato\"`",
            }],
            usual: Usual::Text(&["`\"marcato\"`"]),
        }],
        <Self as Keyed<Self>>::ENTRIES[0],
    ];
    const SCHEMA: Schema = Schema { entries: <Self as Keyed<()>>::ENTRIES, ..<Self as Keyed<Self>>::SCHEMA };

    fn read(keys: &Keys<'_>, _: &()) -> Option<Self> {
        let presets = [("paper", Self::PAPER), ("marcato", Self::MARCATO)];
        Self::read(keys, &keys.word("preset", &presets).unwrap_or(Self::MARCATO))
    }
}

impl WriteKeyed for Reserving {
    fn write(&self, pairs: &mut Pairs) {
        WriteKeyed::<Self>::write(self, pairs);
    }
}

/// Limit on duplicate bytes, or none.
struct BudgetOrNone;

impl Single<Reserving> for BudgetOrNone {
    type Value = Option<Budget>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &Reserving) -> Option<Option<Budget>> {
        let item = keys.item(key)?;
        if item.as_str() == Some("unlimited") {
            return Some(None);
        }
        let Some(table) = item.as_table() else {
            keys.fault(
                key,
                "`budget` is \"unlimited\" or a table, for example { allowance = \"100 kB\", share = 100 }",
            );
            return Some(None);
        };
        Some(Budget::read(&Keys::open(table, &Budget::SCHEMA, keys.faults), &()))
    }

    fn toml(&self, budget: &Option<Budget>) -> String {
        budget.map_or_else(|| quote("unlimited"), |budget| Single::<()>::toml(&table_of::<Budget>(), &budget))
    }
}

/// Limit on duplicate bytes: a fixed allowance plus a share of first transmissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes allowed in any case.
    pub allowance: Bytes,
    /// Further bytes allowed, in thousandths of the bytes sent for the first time.
    pub share: u32,
}

impl Budget {
    /// 100 kB plus a tenth of first transmissions.
    pub const DEFAULT: Self = Self { allowance: Bytes::kb(100), share: 100 };
}

// The upper limit of `share` allows one copy on each of fifteen other lanes.
keyed! {
    Budget, "a budget", |_of: ()|;
    /// fixed part
    "allowance" => allowance: Size, or(Budget::DEFAULT.allowance);
    /// additional part of the data sent for the first time, in thousandths
    "share" => share: Small(0..=15_000), or(Budget::DEFAULT.share);
}

/// Congestion controller of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Controller {
    /// NewReno (RFC 9002 §7).
    NewReno(NewReno),
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 3. It needs pacing.
    Bbr3,
}

kinds! {
    Controller, (), fn name, plain "a controller":
    "new-reno" => NewReno(NewReno),
    "cubic" => Cubic,
    "bbr3" => Bbr3,
}

/// Parameters of NewReno.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewReno {
    /// Factor applied to the window after a loss.
    pub loss_reduction: f64,
}

// RFC 9002 §7.3.2: half.
keyed! {
    NewReno, "new-reno" kinded, |_of: ()|;
    /// factor of the window after a loss
    "loss-reduction" => loss_reduction: Number(0.01..=0.99), or(0.5);
}

words! {
    /// Component that spreads packets over a round trip.
    #[derive(Default)]
    pub enum Pacing {
        /// No pacing.
        Off = "off",
        /// Pacing by the session, except for data of the most urgent level.
        #[default]
        Session = "session",
        /// Pacing by the session, for data of every level.
        Strict = "strict",
    }
}

words! {
    /// Growth of a lane's window while a part of it must stay empty for a reservation.
    #[derive(Default)]
    pub enum Growth {
        /// Growth by acknowledged bytes.
        #[default]
        Acknowledged = "acknowledged",
        /// Growth as if the acknowledged bytes had filled the reserved part as well.
        Credited = "credited",
    }
}

words! {
    /// Streams that carry messages.
    #[derive(Default)]
    pub enum StreamUse {
        /// New stream for each copy of each message.
        #[default]
        PerMessage = "per-message",
        /// Stream reused once the receiver has acknowledged its message (CWR §III-B).
        Reuse = "reuse",
    }
}
