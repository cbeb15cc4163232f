//! An application that notes what arrives when.

use std::collections::BTreeMap;

use marcato_units::{Bytes, Time};

use super::{App, Socket, Tag};

/// What arrived under one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its first byte did.
    pub first_at: Time,
    /// When its last byte did.
    pub last_at: Time,
    /// How much.
    pub bytes: Bytes,
}

/// Reads everything and notes, for each label, when its first and last bytes arrived. Closes when the other end
/// does.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    arrivals: BTreeMap<Tag, Arrival>,
    log: Option<Vec<(Time, Tag, Bytes)>>,
}

impl Collector {
    /// One that also keeps a line for every delivery, in order.
    pub fn logging() -> Self {
        Self { arrivals: BTreeMap::new(), log: Some(Vec::new()) }
    }

    /// What arrived under `tag`.
    pub fn arrival(&self, tag: Tag) -> Option<Arrival> {
        self.arrivals.get(&tag).copied()
    }

    /// When the last of `len` bytes under `tag` arrived; `None` if not all did.
    pub fn complete(&self, tag: Tag, len: Bytes) -> Option<Time> {
        self.arrival(tag).filter(|arrival| arrival.bytes >= len).map(|arrival| arrival.last_at)
    }

    /// Every delivery, if it was asked for.
    pub fn log(&self) -> &[(Time, Tag, Bytes)] {
        self.log.as_deref().unwrap_or(&[])
    }
}

impl App for Collector {
    fn received(&mut self, tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        let now = socket.now();
        let arrival =
            self.arrivals.entry(tag).or_insert(Arrival { first_at: now, last_at: now, bytes: Bytes::ZERO });
        arrival.last_at = now;
        arrival.bytes += bytes;
        if let Some(log) = &mut self.log {
            log.push((now, tag, bytes));
        }
    }

    fn finished(&mut self, socket: &mut Socket<'_>) {
        socket.close();
    }
}
