//! Sizes and times of application data.

use std::collections::HashSet;

use marcato_document::form::{
    Checked, Flag, Single, Small, SomeSize, SomeSpan, Span, Tables, Urgency, one_of, priority_text, table_of,
    tables,
};
use marcato_document::quantity::{size, span};
use marcato_document::{
    Faults, Form, Item, Key, Keyed as _, Keys, Pairs, Table, Value, WriteForm, array, keyed, quote,
};
use marcato_units::{Bytes, Duration, Priority, Word, words};

use crate::chosen::{Chosen, Kind, chosen_of};
use crate::kinded::{kind_of, kinds};
use crate::limit::{MAX_LIST, MAX_SOURCES};
use crate::names::check_name;
use crate::plugin::{Plugin, PluginKind};

/// Distribution of message and response sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Constant size.
    Constant(Bytes),
    /// Exponential distribution.
    Exponential {
        /// Mean.
        mean: Bytes,
    },
    /// Pareto distribution with an upper limit.
    Pareto {
        /// Tail index, above 1; lower values give a heavier tail. Files on the web have 1.1 to 1.3.
        shape: f64,
        /// Mean of the distribution without the upper limit.
        mean: Bytes,
        /// Upper limit; larger draws are reduced to it.
        most: Bytes,
    },
    /// Log-normal distribution.
    LogNormal {
        /// Mean of the sizes, not of their logarithms.
        mean: Bytes,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl Size {
    /// Returns the mean; for a Pareto distribution, without its upper limit.
    pub const fn mean(&self) -> Bytes {
        match *self {
            Self::Constant(mean)
            | Self::Exponential { mean }
            | Self::Pareto { mean, .. }
            | Self::LogNormal { mean, .. } => mean,
        }
    }
}

/// Distribution of pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Constant pause.
    Constant(Duration),
    /// Exponential distribution.
    Exponential {
        /// Mean.
        mean: Duration,
    },
}

impl Pause {
    /// Returns the mean.
    pub const fn mean(&self) -> Duration {
        match *self {
            Self::Constant(mean) | Self::Exponential { mean } => mean,
        }
    }
}

/// Alternating periods of sending and silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOff {
    /// Duration of a period of sending.
    pub on: Pause,
    /// Duration of a period of silence.
    pub off: Pause,
}

/// Rate of new connections, which arrive as a Poisson process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Mean interval between arrivals.
    Every(Duration),
    /// Mean offered load, from which the arrival rate follows by the mean size.
    Load(marcato_units::Rate),
}

/// Message that an application sends once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Name for a separate line in results; `None` reports the message with the others.
    pub name: Option<String>,
    /// Release time, from the start of the flow.
    pub after: Duration,
    /// Length.
    pub size: Bytes,
    /// Priority.
    pub priority: Priority,
    /// Lifetime; `None` if the message never expires.
    pub lifetime: Option<Duration>,
}

keyed! {
    Message, "a message", |_of: ()|;
    /// name under which results report its completion, on a line of its own
    "name" => name: MessageName, optional("together with the other messages");
    /// release, from the flow's start
    "after" => after: Span, or(Duration::ZERO);
    /// length, at least 16 B
    "size" => size: Length, need("state how long, for example size = \"10 kB\"");
    /// priority
    "priority" => priority: Urgency, or(Priority::default());
    /// time for which it is worth sending
    "lifetime" => lifetime: SomeSpan, optional("unlimited");
}

/// Name of a message.
struct MessageName;

impl Single<()> for MessageName {
    type Value = String;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<String> {
        let name = keys.string(key)?;
        if is_line_of_others(name) {
            keys.fault(key, format!("`{name}` is the name of other lines of the results: choose another"));
            return None;
        }
        check_name("message", name, keys.place(key), keys.faults).then(|| name.to_owned())
    }

    fn toml(&self, name: &String) -> String {
        quote(name)
    }
}

/// Returns whether results use this name for a line that is not about one message.
fn is_line_of_others(name: &str) -> bool {
    name == "messages" || ["source-", "bulk-", "messages-p"].iter().any(|one| name.starts_with(one))
}

/// Shortest message: 16 bytes at its start identify its sender and its release time.
pub const SHORTEST: Bytes = Bytes::new(16);

/// Length of a message.
struct Length;

impl Single<()> for Length {
    type Value = Bytes;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<Bytes> {
        let length = keys.size(key)?;
        if length < SHORTEST {
            let length = size(length);
            keys.fault(key, format!("`{key}` is at least 16 B, which identify the sender; not {length}"));
            return None;
        }
        Some(length)
    }

    fn toml(&self, length: &Bytes) -> String {
        quote(&size(*length))
    }
}

/// Periodic source of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Interval between messages.
    pub period: Duration,
    /// Bytes of each message.
    pub size: Bytes,
    /// Priority of the messages.
    pub priority: Priority,
    /// Release time of the first message, from the start of the flow.
    pub first: Duration,
    /// Timing of releases.
    pub release: Release,
    /// Redundancy across lanes; used by QUIC only.
    pub redundancy: Redundancy,
    /// Lifetime of each message; `None` if messages never expire.
    pub lifetime: Option<Duration>,
    /// Declares the source to the lane scheduler; used by QUIC only.
    pub declared: bool,
    /// Names the source in its messages, so that its period can be learned; used by QUIC only.
    pub named: bool,
}

/// Timing of a source's releases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// Equal intervals.
    #[default]
    Periodic,
    /// Equal intervals with a uniform deviation of up to this much, before or after.
    Jittered(Duration),
    /// Poisson process, with the period as its mean interval.
    Poisson,
}

words! {
    /// Redundancy of a message across lanes.
    #[derive(Default)]
    pub enum Redundancy {
        /// One lane.
        #[default]
        Once = "once",
        /// Whole copy on every lane that can take it.
        EveryLane = "every-lane",
    }
}

keyed! {
    Source, "a source", |_of: ()|, check jitter_is_below_half_the_period;
    /// time from one message to the next
    "period" => period: SomeSpan, need("state how often it sends, for example period = \"100 ms\"");
    /// length of each, at least 16 B
    "size" => size: Length, need("state how long, for example size = \"10 kB\"");
    /// priority
    "priority" => priority: Urgency, or(Priority::P0);
    /// release of the first, from the flow's start
    "first" => first: Span, or(Duration::ZERO);
    /// `"periodic"`, `"jittered"`, `"poisson"`
    "release",
    /// maximum deviation of a release, in either direction; less than half the period
    "jitter" => release: Releases, must("`\"periodic\"`, or `\"jittered\"` with `jitter`", "none");
    /// quic: `"once"`, or `"every-lane"`
    "redundancy" => redundancy: one_of::<Redundancy>(), or(Redundancy::Once);
    /// time for which each is worth sending
    "lifetime" => lifetime: SomeSpan, optional("unlimited");
    /// quic: whether the source is declared to the scheduler
    "declared" => declared: Flag, or(true);
    /// quic: whether its messages name it, so that it can be learned
    "named" => named: Flag, or(true);
}

fn jitter_is_below_half_the_period(source: &Source, keys: &Keys<'_>, _: &()) {
    if let Release::Jittered(jitter) = source.release
        && jitter.saturating_mul(2) >= source.period
    {
        keys.fault("jitter", "`jitter` is less than half the period, or releases could not be told apart");
    }
}

/// Timing of releases, and their jitter.
struct Releases;

const RELEASES: [Word<Release>; 3] = [
    ("periodic", Release::Periodic),
    ("jittered", Release::Jittered(Duration::ZERO)),
    ("poisson", Release::Poisson),
];

impl Form<()> for Releases {
    type Value = Release;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], _: &()) -> Option<Release> {
        let [release, jitter_name] = *names else { return None };
        let jitter = keys.some_span(jitter_name);
        Some(match keys.word(release, &RELEASES) {
            Some(Release::Jittered(_)) => {
                if keys.item(jitter_name).is_none() {
                    keys.fault(
                        release,
                        "a jittered release needs `jitter`: state by how much, for example jitter = \"5 ms\"",
                    );
                }
                Release::Jittered(jitter.unwrap_or_default())
            }
            None if jitter.is_some() && keys.item(release).is_none() => {
                Release::Jittered(jitter.unwrap_or_default())
            }
            Some(other) => {
                if keys.item(jitter_name).is_some() {
                    keys.fault(
                        jitter_name,
                        "only a jittered release has `jitter`: leave it out, or write release = \"jittered\"",
                    );
                }
                other
            }
            None => Release::Periodic,
        })
    }
}

impl WriteForm<()> for Releases {
    fn write(&self, release: &Release, names: &[&'static str], pairs: &mut Pairs) {
        let [name, jitter_name] = *names else { return };
        match release {
            Release::Periodic => pairs.text(name, "periodic"),
            Release::Jittered(jitter) => pairs.text(name, "jittered").text(jitter_name, span(*jitter)),
            Release::Poisson => pairs.text(name, "poisson"),
        };
    }
}

/// Bulk data that fills all remaining room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// Priority.
    pub priority: Priority,
    /// Bytes of each message.
    pub size: Bytes,
}

keyed! {
    Bulk, "bulk data", |_of: ()|;
    /// priority
    "priority" => priority: BulkPriority, must("`\"p4\"`");
    /// size of each message; at most 16 MB
    "size" => size: BulkLength, must("`\"1 MB\"`");
}

/// Priority of bulk data. A wrong one leaves no bulk data, as it would collide with another's.
struct BulkPriority;

impl Single<()> for BulkPriority {
    type Value = Priority;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<Priority> {
        if keys.item(key).is_none() { Some(Priority::P4) } else { keys.priority(key) }
    }

    fn toml(&self, priority: &Priority) -> String {
        quote(&priority_text(*priority))
    }
}

/// Length of each message of bulk data.
struct BulkLength;

impl Single<()> for BulkLength {
    type Value = Bytes;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, of: &()) -> Option<Bytes> {
        if keys.item(key).is_none() {
            return Some(Bytes::kb(1000));
        }
        let length = Length.read_one(keys, key, of)?;
        if length > Bytes::kb(16_000) {
            keys.fault(
                key,
                "messages of bulk data are at most 16 MB: lower it, bulk data is unlimited anyway",
            );
        }
        Some(length)
    }

    fn toml(&self, length: &Bytes) -> String {
        quote(&size(*length))
    }
}

/// Prioritised messages of a flow, and the Conductor that orders them.
#[derive(Clone, Debug, PartialEq)]
pub struct Messaging {
    /// Rules of debt.
    pub preset: DebtRules,
    /// Largest chunk that the Conductor grants.
    pub chunk: Bytes,
    /// Coupled mode, which keeps background data out of the bottleneck's queue.
    pub coupled: Coupling,
    /// Messages that are sent once, in order of time.
    pub messages: Vec<Message>,
    /// Periodic sources.
    pub sources: Vec<Source>,
    /// Bulk data, which fills all remaining room.
    pub bulk: Vec<Bulk>,
    /// Workload of another crate, which releases further messages.
    pub workload: Option<Plugin>,
}

kinds! {
    /// Coupled mode of a flow.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Coupling, (), plain "coupled mode":
    /// The congestion control alone decides how much is in flight.
    #[default]
    "off" => Off,
    /// A governor bounds what is in flight by a rule like FAST's.
    "fast" => Fast(Fast),
}

/// Parameters of a governor's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fast {
    /// Packets of background data that may stand in the queue.
    pub queued_packets: u32,
}

keyed! {
    Fast, "fast" kinded, |_of: ()|;
    /// packets of background data that may stand in the bottleneck's queue: more of them cost urgent data delay,
    /// and save goodput where the link's rate varies
    "queued-packets" => queued_packets: Small(1..=1000), or(2);
}

/// Default chunk, which is also the Conductor's: the payload of a TCP segment without options.
pub(crate) const CHUNK: Bytes = Bytes::new(1460);
/// Lowest high watermark of every preset, that of P3. A larger chunk would put the level into debt
/// each time.
const LEAST_WATERMARK: Bytes = Bytes::kb(6);

keyed! {
    Messaging, "messages", |_of: ()|, check something_is_sent;
    /// the Conductor's rules of debt: `"authors"`, `"paper"`, `"marcato"`, `"strict"` (no debt)
    "preset" => preset: one_of::<DebtRules>(), or(DebtRules::Marcato);
    /// largest chunk that the Conductor grants, at most 6 kB; of a coupled flow over TCP, whole segments of it
    "chunk" => chunk: Checked(SomeSize, is_below_the_least_watermark), or(CHUNK);
    /// keeps the flow's own background (P2 to P4) out of the bottleneck's queue, so that urgent data finds it
    /// empty: `"fast"`, by a rule like FAST's, or [a table](#coupled-mode-coupled-mode-fast)
    "coupled" => coupled: kind_of::<Coupling>(), or(Coupling::Off; "`\"off\"`");
    /// [messages](#traffic) that are sent once
    "messages" => messages: InOrder, or(Vec::new(); "none");
    /// [sources](#traffic) of messages, at most 16
    "sources" => sources: tables::<Source>(MAX_SOURCES), or(Vec::new(); "none");
    /// [bulk data](#traffic): a priority, a table, or a list of them
    "bulk" => bulk: Bulks, or(Vec::new(); "none");
    /// [workload of your own](#your-own-congestion-control-queue-scheduler-or-workload), which releases further messages
    "workload" => workload: Workload, optional("none");
}

fn is_below_the_least_watermark(keys: &Keys<'_>, key: &'static str, chunk: &Bytes) {
    if *chunk > LEAST_WATERMARK {
        keys.fault(key, "`chunk` is above 6 kB, the least watermark of debt: lower it");
    }
}

fn something_is_sent(_: &Messaging, keys: &Keys<'_>, _: &()) {
    if ["messages", "sources", "bulk", "workload"].iter().all(|key| keys.item(key).is_none()) {
        let problem = "this flow sends nothing: give it `messages`, `sources` or `bulk`";
        keys.faults.add(keys.here(), problem.to_owned());
    }
}

/// Workload, which is always a plug-in.
struct Workload;

impl Single<()> for Workload {
    type Value = Plugin;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<Plugin> {
        let item = keys.item(key)?;
        if keys.faults.kinds().of(PluginKind::Workload.noun()).next().is_none() {
            let problem = "no workload is registered, and none is built in: read the file in a program that \
                           registers it, or give `messages` or `sources`";
            keys.fault(key, problem);
            return None;
        }
        let none: &[Kind<()>] = &[];
        match chosen_of(key, item, none, Some(PluginKind::Workload), keys.faults)? {
            Chosen::BuiltIn((), _) => None,
            Chosen::Plugin(plugin) => Some(plugin),
        }
    }

    fn toml(&self, plugin: &Plugin) -> String {
        plugin.toml()
    }
}

/// Messages in order of time, with a name at most once each.
struct InOrder;

const MESSAGES: Tables<Message> = tables(MAX_LIST);

impl Single<()> for InOrder {
    type Value = Vec<Message>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, of: &()) -> Option<Vec<Message>> {
        let mut messages = MESSAGES.read_one(keys, key, of)?;
        messages.sort_by_key(|message| message.after);
        let mut names = HashSet::new();
        let items = keys.list(key, MAX_LIST).unwrap_or_default();
        for table in items.iter().filter_map(Item::as_table) {
            if let Some(name) = table.get("name").and_then(Item::as_str)
                && !names.insert(name)
            {
                let problem = format!("there are two messages `{name}`: rename one");
                keys.faults.add(table.place_of("name"), problem);
            }
        }
        Some(messages)
    }

    fn toml(&self, messages: &Vec<Message>) -> String {
        Single::<()>::toml(&MESSAGES, messages)
    }
}

/// Bulk data: a priority, a table, or a list of either.
struct Bulks;

impl Single<()> for Bulks {
    type Value = Vec<Bulk>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<Vec<Bulk>> {
        let item = keys.item(key)?;
        let items = match &item.value {
            Value::Array(_) => keys.list(key, Priority::COUNT).unwrap_or_default(),
            _ => std::slice::from_ref(item),
        };
        let bulk: Vec<Bulk> = items.iter().filter_map(|item| one_bulk(item, keys.faults)).collect();
        for (index, one) in bulk.iter().enumerate() {
            if bulk[..index].iter().any(|other| other.priority == one.priority) {
                keys.fault(
                    key,
                    format!("there is bulk data of priority {} twice: leave one out", one.priority),
                );
            }
        }
        Some(bulk)
    }

    fn toml(&self, bulk: &Vec<Bulk>) -> String {
        array(bulk.iter().map(|one| Single::<()>::toml(&table_of::<Bulk>(), one)))
    }
}

fn one_bulk(item: &Item, faults: &Faults) -> Option<Bulk> {
    let wrapped;
    let table = match &item.value {
        Value::Table(table) => table,
        _ => {
            let key = Key::new("priority", item.place);
            wrapped = Table { entries: vec![(key, item.clone())], place: item.place };
            &wrapped
        }
    };
    Bulk::read(&Keys::open(table, &Bulk::SCHEMA, faults), &())
}

words! {
    /// Rules by which levels run up and pay back debt (CATS §II-E).
    #[derive(Default)]
    pub enum DebtRules {
        /// Rules of this project; debt run up while nothing less urgent waited is forgiven.
        #[default]
        Marcato = "marcato",
        /// Rules as run by the authors.
        Authors = "authors",
        /// Rules as printed in the paper.
        Paper = "paper",
        /// No debt: a more urgent level always goes first.
        Strict = "strict",
    }
}

words! {
    /// Rules by which flows are judged (CRQ §III).
    #[derive(Default)]
    pub enum Preset {
        /// Rules of this project.
        #[default]
        Marcato = "marcato",
        /// Rules as run by the authors.
        Authors = "authors",
        /// Rules as printed in the paper.
        Paper = "paper",
    }
}
