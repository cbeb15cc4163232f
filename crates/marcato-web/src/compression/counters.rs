//! Counts of compression.

use std::sync::atomic::{AtomicU64, Ordering};

use marcato_units::Bytes;

use crate::encoding::Coding;

/// Counts of [`Compression`](super::Compression) since its start, and its present memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompressionCounters {
    /// Responses compressed by Zstandard.
    pub zstd: u64,
    /// Responses compressed by Brotli.
    pub brotli: u64,
    /// Responses compressed by gzip.
    pub gzip: u64,
    /// Content before compression.
    pub read: Bytes,
    /// Content after compression.
    pub written: Bytes,
    /// Responses sent as they were, because encoders had all of the memory.
    pub crowded: u64,
    /// Responses whose encoder failed.
    pub failed: u64,
    /// Encoders in use.
    pub encoders: u64,
    /// Bound of the memory of these encoders.
    pub memory: Bytes,
}

/// Counts that all clones share.
#[derive(Debug, Default)]
pub(super) struct Counts {
    zstd: AtomicU64,
    brotli: AtomicU64,
    gzip: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    crowded: AtomicU64,
    failed: AtomicU64,
    encoders: AtomicU64,
    memory: AtomicU64,
}

impl Counts {
    pub(super) fn compressed(&self, coding: Coding) {
        let count = match coding {
            Coding::Zstd => &self.zstd,
            Coding::Brotli => &self.brotli,
            Coding::Gzip => &self.gzip,
            Coding::Identity => return,
        };
        add(count, 1);
    }

    pub(super) fn passed(&self, read: usize, written: usize) {
        add(&self.read, read as u64);
        add(&self.written, written as u64);
    }

    pub(super) fn crowded(&self) {
        add(&self.crowded, 1);
    }

    pub(super) fn failed(&self) {
        add(&self.failed, 1);
    }

    /// Takes memory for an encoder out of a bound. Returns false if less is left.
    pub(super) fn take(&self, memory: Bytes, bound: Bytes) -> bool {
        let more = |used: u64| used.checked_add(memory.get()).filter(|sum| *sum <= bound.get());
        let taken = self.memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if taken {
            add(&self.encoders, 1);
        }
        taken
    }

    /// Gives the memory of an encoder back.
    pub(super) fn give(&self, memory: Bytes) {
        self.memory.fetch_sub(memory.get(), Ordering::Relaxed);
        self.encoders.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> CompressionCounters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CompressionCounters {
            zstd: of(&self.zstd),
            brotli: of(&self.brotli),
            gzip: of(&self.gzip),
            read: Bytes::new(of(&self.read)),
            written: Bytes::new(of(&self.written)),
            crowded: of(&self.crowded),
            failed: of(&self.failed),
            encoders: of(&self.encoders),
            memory: Bytes::new(of(&self.memory)),
        }
    }
}

/// Counts order no other memory, so that all accesses are relaxed.
fn add(count: &AtomicU64, number: u64) {
    count.fetch_add(number, Ordering::Relaxed);
}
