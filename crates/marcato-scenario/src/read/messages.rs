//! Reader of prioritised messages, sources and bulk data.

use std::collections::HashSet;

use marcato_units::{Bytes, Duration, Priority};

use crate::document::{Item, Table, Value};
use crate::fault::Faults;
use crate::keys::{Keys, check_name};
use crate::limit::{MAX_LIST, MAX_SOURCES};
use crate::schema;
use crate::traffic::{Bulk, Message, Preset, Redundancy, Release, Source};

/// Settings that `messages` flows and QUIC flows share.
pub(super) struct Messaging {
    pub(super) preset: Preset,
    pub(super) chunk: Bytes,
    pub(super) messages: Vec<Message>,
    pub(super) sources: Vec<Source>,
    pub(super) bulk: Vec<Bulk>,
}

/// Default chunk, which is also the Conductor's: the payload of a TCP segment without options.
pub(super) const CHUNK: Bytes = Bytes::new(1460);
/// Lowest high watermark of every preset, that of P3. A larger chunk would put the level into debt
/// each time.
const LEAST_WATERMARK: Bytes = Bytes::kb(6);
/// Shortest message: 16 bytes at its start identify its sender and its release time.
const SHORTEST: Bytes = Bytes::new(16);

pub(super) fn messaging(keys: &Keys<'_>) -> Messaging {
    let faults = keys.faults;
    let presets = [("authors", Preset::Authors), ("paper", Preset::Paper), ("marcato", Preset::Marcato)];
    let chunk = keys.some_size("chunk").unwrap_or(CHUNK);
    if chunk > LEAST_WATERMARK {
        keys.fault("chunk", "`chunk` is above 6 kB, the least watermark of debt: lower it");
    }
    let mut messages: Vec<Message> =
        keys.tables("messages", MAX_LIST).filter_map(|table| message(table, faults)).collect();
    messages.sort_by_key(|message| message.after);
    let mut names = HashSet::new();
    for table in keys.tables("messages", MAX_LIST) {
        if let Some(name) = table.get("name").and_then(Item::as_str)
            && !names.insert(name)
        {
            faults.add(table.place_of("name"), format!("there are two messages `{name}`: rename one"));
        }
    }
    let sources = keys.tables("sources", MAX_SOURCES).filter_map(|table| source(table, faults)).collect();
    if ["messages", "sources", "bulk"].iter().all(|key| keys.item(key).is_none()) {
        faults
            .add(keys.here(), "this flow sends nothing: give it `messages`, `sources` or `bulk`".to_owned());
    }
    Messaging {
        preset: keys.word("preset", &presets).unwrap_or_default(),
        chunk,
        messages,
        sources,
        bulk: bulk(keys),
    }
}

fn long_enough(keys: &Keys<'_>) -> Option<Bytes> {
    keys.need("size", "say how long, for example size = \"10 kB\"");
    let size = keys.size("size")?;
    if size < SHORTEST {
        keys.fault(
            "size",
            format!("`size` is at least 16 B, which say whose it is; not {}", crate::quantity::size(size)),
        );
        return None;
    }
    Some(size)
}

fn message(table: &Table, faults: &Faults) -> Option<Message> {
    let keys = Keys::open(table, &schema::MESSAGE, faults);
    let priority = keys.priority("priority").unwrap_or_default();
    let (after, lifetime) = (keys.span("after").unwrap_or_default(), keys.some_span("lifetime"));
    let name = keys.string("name").filter(|name| {
        let is_taken = is_line_of_others(name);
        if is_taken {
            keys.fault("name", format!("`{name}` is the name of other lines of the results: choose another"));
        }
        !is_taken && check_name("message", name, keys.place("name"), faults)
    });
    Some(Message { name: name.map(str::to_owned), after, size: long_enough(&keys)?, priority, lifetime })
}

/// Returns whether results use this name for a line that is not about one message.
fn is_line_of_others(name: &str) -> bool {
    name == "messages" || name.starts_with("source-") || name.starts_with("bulk-")
}

fn source(table: &Table, faults: &Faults) -> Option<Source> {
    let keys = Keys::open(table, &schema::SOURCE, faults);
    keys.need("period", "say how often it sends, for example period = \"100 ms\"");
    let period = keys.some_span("period");
    let size = long_enough(&keys);
    let words = [
        ("periodic", Release::Periodic),
        ("jittered", Release::Jittered(Duration::ZERO)),
        ("poisson", Release::Poisson),
    ];
    let jitter = keys.some_span("jitter");
    let release = match keys.word("release", &words) {
        Some(Release::Jittered(_)) => {
            if keys.item("jitter").is_none() {
                keys.fault(
                    "release",
                    "a jittered release needs `jitter`: say by how much, for example jitter = \"5 ms\"",
                );
            }
            Release::Jittered(jitter.unwrap_or_default())
        }
        None if jitter.is_some() && keys.item("release").is_none() => {
            Release::Jittered(jitter.unwrap_or_default())
        }
        Some(other) => {
            if keys.item("jitter").is_some() {
                keys.fault(
                    "jitter",
                    "only a jittered release has `jitter`: leave it out, or say release = \"jittered\"",
                );
            }
            other
        }
        None => Release::Periodic,
    };
    if let (Release::Jittered(jitter), Some(period)) = (release, period)
        && jitter.saturating_mul(2) >= period
    {
        keys.fault("jitter", "`jitter` is less than half the period, or releases could not be told apart");
    }
    let redundancies = [("once", Redundancy::Once), ("every-lane", Redundancy::EveryLane)];
    let source = Source {
        period: period.unwrap_or_default(),
        size: size.unwrap_or_default(),
        priority: keys.priority("priority").unwrap_or(Priority::P0),
        first: keys.span("first").unwrap_or_default(),
        release,
        redundancy: keys.word("redundancy", &redundancies).unwrap_or_default(),
        lifetime: keys.some_span("lifetime"),
        declared: keys.boolean("declared").unwrap_or(true),
        named: keys.boolean("named").unwrap_or(true),
    };
    (period.is_some() && size.is_some()).then_some(source)
}

/// Reads `bulk`: a priority, a table, or a list of either.
fn bulk(keys: &Keys<'_>) -> Vec<Bulk> {
    let Some(item) = keys.item("bulk") else { return Vec::new() };
    let single;
    let items = match &item.value {
        Value::Array(_) => keys.list("bulk", Priority::COUNT).unwrap_or_default(),
        _ => {
            single = [item.clone()];
            &single
        }
    };
    let bulk: Vec<Bulk> = items.iter().filter_map(|item| one_bulk(item, keys.faults)).collect();
    for (index, one) in bulk.iter().enumerate() {
        if bulk[..index].iter().any(|other| other.priority == one.priority) {
            keys.fault(
                "bulk",
                format!("there is bulk data of priority {} twice: leave one out", one.priority),
            );
        }
    }
    bulk
}

fn one_bulk(item: &Item, faults: &Faults) -> Option<Bulk> {
    let wrapped;
    let table = match &item.value {
        Value::Table(table) => table,
        _ => {
            let key = super::renamed("priority", item);
            wrapped = Table { entries: vec![(key, item.clone())], place: item.place };
            &wrapped
        }
    };
    let keys = Keys::open(table, &schema::BULK, faults);
    let priority = keys.priority("priority");
    if keys.item("priority").is_some() && priority.is_none() {
        return None;
    }
    let size = if keys.item("size").is_some() { long_enough(&keys)? } else { Bytes::kb(1000) };
    if size > Bytes::kb(16_000) {
        keys.fault("size", "messages of bulk data are at most 16 MB: say less, it is endless all the same");
    }
    Some(Bulk { priority: priority.unwrap_or(Priority::P4), size })
}
