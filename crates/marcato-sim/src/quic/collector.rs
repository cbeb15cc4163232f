//! Receiving application that records the completion of messages.

use std::collections::BTreeMap;

use marcato_quic::{MessageNumber, Piece};
use marcato_units::{Bytes, Priority, Time};

use super::app::{QuicApp, QuicContext};

/// Source number of background messages.
pub const SOURCE_BULK: u32 = u32::MAX;

/// Message that has been received in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Index of the source that released it.
    pub source: u32,
    /// Index of the message within its source.
    pub sequence: u32,
    /// Time at which the sender released it.
    pub created: Time,
    /// Arrival time of its last byte.
    pub completed: Time,
}

/// Length of the header of a message of [`Traffic`](super::Traffic): its source and its time.
pub(super) const HEADER: usize = 16;

/// Application that receives the messages of [`Traffic`](super::Traffic).
#[derive(Debug, Default)]
pub struct MessageCollector {
    /// Messages of periodic sources, in order of completion.
    pub completions: Vec<Completion>,
    /// Bytes of messages, by priority.
    pub bytes: [Bytes; Priority::COUNT],
    /// Number of background messages received in full.
    pub background: u64,
    /// Arrival time of the last of the counted bytes.
    pub last_at: Option<Time>,
    /// Time from which bytes count.
    from: Time,
    open: BTreeMap<MessageNumber, [u8; HEADER]>,
}

impl MessageCollector {
    /// Collector that counts bytes from a time on, and all messages.
    pub fn from(from: Time) -> Self {
        Self { from, ..Self::default() }
    }
}

impl QuicApp for MessageCollector {
    fn received(&mut self, piece: Piece, context: &mut QuicContext<'_>) {
        if context.now() >= self.from {
            self.bytes[piece.priority.index()] += Bytes::new(piece.bytes.len() as u64);
            self.last_at = Some(context.now());
        }
        let at = usize::try_from(piece.offset.get()).unwrap_or(usize::MAX);
        if at < HEADER {
            let header = self.open.entry(piece.message).or_default();
            for (to, from) in header[at..].iter_mut().zip(&piece.bytes) {
                *to = *from;
            }
        }
        if !piece.last {
            return;
        }
        let Some(header) = self.open.remove(&piece.message) else { return };
        let [source, sequence] =
            [0, 4].map(|at| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
        let mut nanos = [0; 8];
        nanos.copy_from_slice(&header[8..]);
        if source == SOURCE_BULK {
            self.background += 1;
            return;
        }
        self.completions.push(Completion {
            source,
            sequence,
            created: Time::from_nanos(u64::from_le_bytes(nanos)),
            completed: context.now(),
        });
    }
}
