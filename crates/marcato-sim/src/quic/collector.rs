//! What takes messages at the receiving end, and notes when each was complete.

use std::collections::BTreeMap;

use marcato_quic::{MessageNumber, Piece};
use marcato_units::{Bytes, Priority, Time};

use super::app::{QuicApp, QuicContext};

/// The source that background messages name.
pub const SOURCE_BULK: u32 = u32::MAX;

/// A message that has been received as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which source made it: its place among them.
    pub source: u32,
    /// Which of its messages it was.
    pub sequence: u32,
    /// When it was handed over at the sender.
    pub created: Time,
    /// When its last byte had arrived.
    pub completed: Time,
}

/// The first bytes of a message of [`Traffic`](super::Traffic): who made it and when.
pub(super) const HEADER: usize = 16;

/// Takes the messages of [`Traffic`](super::Traffic).
#[derive(Debug, Default)]
pub struct MessageCollector {
    /// Messages of periodic sources, as they became complete.
    pub completions: Vec<Completion>,
    /// Bytes of messages, by level.
    pub bytes: [Bytes; Priority::COUNT],
    /// Background messages that are complete.
    pub background: u64,
    /// When the last of the bytes that are counted arrived.
    pub last_at: Option<Time>,
    /// Count nothing before.
    from: Time,
    open: BTreeMap<MessageNumber, [u8; HEADER]>,
}

impl MessageCollector {
    /// A collector that counts bytes from a time on, and all messages.
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
