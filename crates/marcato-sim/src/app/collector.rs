//! Receiving application that records arrival times.

use std::collections::BTreeMap;

use marcato_units::{Bytes, Time};

use super::{App, Socket, Tag};

/// Data that arrived under one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Arrival time of its first byte.
    pub first_at: Time,
    /// Arrival time of its latest byte.
    pub last_at: Time,
    /// Bytes that arrived.
    pub bytes: Bytes,
}

/// Application that reads everything and records, for each label, when its first and latest bytes
/// arrived. It closes when the other end does.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    arrivals: BTreeMap<Tag, Arrival>,
    log: Option<Vec<(Time, Tag, Bytes)>>,
}

impl Collector {
    /// Collector that also logs every delivery, in order.
    pub fn logging() -> Self {
        Self { arrivals: BTreeMap::new(), log: Some(Vec::new()) }
    }

    /// Returns what arrived under `tag`.
    pub fn arrival(&self, tag: Tag) -> Option<Arrival> {
        self.arrivals.get(&tag).copied()
    }

    /// Returns the arrival time of the last of `len` bytes under `tag`; `None` if fewer have
    /// arrived.
    pub fn complete(&self, tag: Tag, len: Bytes) -> Option<Time> {
        self.arrival(tag).filter(|arrival| arrival.bytes >= len).map(|arrival| arrival.last_at)
    }

    /// Returns every delivery of a [`logging`](Self::logging) collector; otherwise none.
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
