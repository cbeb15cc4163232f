//! Counts of compression.

use marcato_units::Bytes;

use crate::counter::counters;
use crate::encoding::Coding;

counters! {
    /// Counts of [`Compression`](super::Compression) since its start, and its present memory.
    #[derive(Copy, Hash)]
    pub struct CompressionCounters;
    /// Counts that all clones share.
    pub(super) struct Counts;
    counted {
        /// Responses compressed by Zstandard.
        zstd: u64 => counter(
            "compressed_responses", "Responses compressed while they were sent", "coding" = ["zstd"]
        ),
        /// Responses compressed by Brotli.
        brotli: u64 => counter("compressed_responses", "", "coding" = ["br"]),
        /// Responses compressed by gzip.
        gzip: u64 => counter("compressed_responses", "", "coding" = ["gzip"]),
        /// Content before compression.
        read: Bytes => counter("compression_read", "Content before compression"),
        /// Content after compression.
        written: Bytes => counter("compression_written", "Content after compression"),
        /// Responses sent as they were, because encoders had all of the memory.
        crowded: u64 => counter(
            "compression_crowded", "Responses sent as they were, because encoders had all of the memory"
        ),
        /// Responses whose encoder failed.
        failed: u64 => counter("compression_failed", "Responses whose encoder failed"),
        /// Encoders in use.
        encoders: u64 => gauge("compression_encoders", "Encoders in use"),
        /// Bound of the memory of these encoders.
        memory: Bytes => gauge("compression_memory", "Bound of the memory of these encoders"),
    }
    present {}
}

impl Counts {
    pub(super) fn compressed(&self, coding: Coding) {
        match coding {
            Coding::Zstd => self.zstd.one(),
            Coding::Brotli => self.brotli.one(),
            Coding::Gzip => self.gzip.one(),
            Coding::Identity => {}
        }
    }

    pub(super) fn passed(&self, read: usize, written: usize) {
        self.read.add(read);
        self.written.add(written);
    }

    /// Takes memory for an encoder out of a bound. Returns false if less is left.
    pub(super) fn take(&self, memory: Bytes, bound: Bytes) -> bool {
        let taken = self.memory.add_within(memory.get(), bound.get());
        if taken {
            self.encoders.one();
        }
        taken
    }

    /// Gives the memory of an encoder back.
    pub(super) fn give(&self, memory: Bytes) {
        self.memory.less(memory.get());
        self.encoders.less(1);
    }
}
