//! Keys of each table, as declared where the table is read. `docs/scenarios.md` repeats their rows
//! word for word, which a test holds.

use crate::amount::Transmitter;
use crate::flow::{Messages, RequestResponse, TcpFlow, TcpProcess, UdpFlow};
use crate::grid::GRID;
use crate::keyed::{Keyed, Kinded};
use crate::link::{CHANGE, Direction, Exponential, JitterKind, LINK, Loss, Normal, Uniform};
use crate::queue::Queue;
use crate::quic::{Budget, Controller, Path, Quic, Scheduler};
use crate::read::ROOT;
use crate::read::record::RECORD;
use crate::read::traffic::{
    ConstantPause, ConstantSize, ExponentialPause, ExponentialSize, ListedSizes, LogNormalSize, ParetoSize,
};
use crate::tcp::{Congestion, DelayedAck, GROWTH_BY_ACKS, GrowthByBytes, LowLayer, NO_LOW_LAYER, Tcp};
use crate::topology::{ASYMMETRIC, DUMBBELL, MULTIPATH, MULTIPATH_PATH, PARKING_LOT};
use crate::traffic::{Bulk, Coupling, Message, Source};

/// Keys of a table.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// Name of the table with its article, for error messages.
    pub what: &'static str,
    /// Keys without further description, in groups.
    pub keys: &'static [&'static [&'static str]],
    /// Keys with their meanings and defaults, in groups.
    pub entries: &'static [&'static [Entry]],
}

/// Keys that are read together: in most cases one.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Keys.
    pub keys: &'static [Key],
    /// Value without the keys.
    pub usual: Usual,
}

/// Key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name.
    pub name: &'static str,
    /// Meaning, as in the reference.
    pub meaning: &'static str,
}

/// Value of keys that a file omits.
#[derive(Clone, Copy, Debug)]
pub enum Usual {
    /// Description for each key.
    Text(&'static [&'static str]),
    /// Value of a single key, as in a file.
    Value(fn() -> String),
}

impl Entry {
    /// Returns the row of each key in the tables of the reference: name, meaning and default.
    pub fn rows(&self) -> Vec<String> {
        let row = |(index, key): (usize, &Key)| {
            let usual = match self.usual {
                Usual::Text(texts) => texts.get(index).copied().unwrap_or("none").to_owned(),
                Usual::Value(write) => format!("`{}`", write()),
            };
            format!("| `{}` | {} | {usual} |", key.name, key.meaning.trim())
        };
        self.keys.iter().enumerate().map(row).collect()
    }
}

impl Schema {
    /// Returns the keys of a kind without settings.
    pub(crate) const fn plain(what: &'static str) -> Self {
        Self { what, keys: &[&["kind"]], entries: &[] }
    }

    /// Returns all keys.
    pub fn all(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        let described = self.entries.iter().flat_map(|group| group.iter());
        let described = described.flat_map(|entry| entry.keys.iter().map(|key| key.name));
        self.keys.iter().flat_map(|group| group.iter().copied()).chain(described)
    }

    /// Returns whether the table has this key.
    pub fn has(&self, key: &str) -> bool {
        self.all().any(|one| one == key)
    }
}

/// Tables of the format that belong to no enum in [`tables`].
const PLAIN: &[Schema] = &[
    ROOT,
    LINK,
    Direction::SCHEMA,
    CHANGE,
    JitterKind::PLAIN,
    Uniform::SCHEMA,
    Normal::SCHEMA,
    Exponential::SCHEMA,
    DUMBBELL,
    PARKING_LOT,
    MULTIPATH,
    MULTIPATH_PATH,
    ASYMMETRIC,
    TcpFlow::SCHEMA,
    UdpFlow::SCHEMA,
    TcpProcess::SCHEMA,
    RequestResponse::SCHEMA,
    Messages::SCHEMA,
    Quic::SCHEMA,
    Path::SCHEMA,
    Budget::SCHEMA,
    Message::SCHEMA,
    Source::SCHEMA,
    Bulk::SCHEMA,
    ConstantSize::SCHEMA,
    ExponentialSize::SCHEMA,
    ParetoSize::SCHEMA,
    LogNormalSize::SCHEMA,
    ListedSizes::SCHEMA,
    ConstantPause::SCHEMA,
    ExponentialPause::SCHEMA,
    Tcp::SCHEMA,
    GrowthByBytes::SCHEMA,
    GROWTH_BY_ACKS,
    NO_LOW_LAYER,
    <LowLayer as Keyed<LowLayer>>::SCHEMA,
    DelayedAck::SCHEMA,
    RECORD,
    GRID,
];

/// Returns all tables of the format. Kinds without keys share one.
pub fn tables() -> impl Iterator<Item = Schema> {
    fn kinds<C: 'static, T: Kinded<C>>() -> impl Iterator<Item = Schema> {
        T::KINDS.iter().map(|(.., schema)| **schema)
    }
    let plain = PLAIN.iter().copied().chain(kinds::<Transmitter, Queue>()).chain(kinds::<_, Loss>());
    plain
        .chain(kinds::<_, Congestion>())
        .chain(kinds::<_, Scheduler>())
        .chain(kinds::<_, Controller>())
        .chain(kinds::<_, Coupling>())
}
