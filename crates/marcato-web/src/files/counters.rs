//! Counts of a file service.

use std::sync::atomic::{AtomicU64, Ordering};

use marcato_units::Bytes;

/// Counts of a file service since its start, and the present size of its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FilesCounters {
    /// Requests answered from memory.
    pub hits: u64,
    /// Requests whose content was read from the file system.
    pub misses: u64,
    /// Checks of a file in memory against the file system.
    pub revalidations: u64,
    /// Files removed from memory to make room for others.
    pub evictions: u64,
    /// Requests for something that does not exist.
    pub not_found: u64,
    /// Requests refused for their path: its form, a dot-file, or a link that leaves the root.
    pub refused: u64,
    /// Requests that the operating system failed: permissions, too many open files, broken disks.
    pub failed: u64,
    /// Precompressed files that were older than their original, at each look at the file system.
    pub stale: u64,
    /// Requests and chunks that went to the blocking pool.
    pub blocking: u64,
    /// Files in memory.
    pub cached_files: u64,
    /// Memory of those files.
    pub cached: Bytes,
}

/// Counts that all clones of a service share.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: Count,
    pub(super) misses: Count,
    pub(super) revalidations: Count,
    pub(super) evictions: Count,
    pub(super) not_found: Count,
    pub(super) refused: Count,
    pub(super) failed: Count,
    pub(super) stale: Count,
    pub(super) blocking: Count,
}

impl Counts {
    /// Returns the counts, for a cache of the given size.
    pub(super) fn snapshot(&self, cached_files: u64, cached: Bytes) -> FilesCounters {
        FilesCounters {
            hits: self.hits.get(),
            misses: self.misses.get(),
            revalidations: self.revalidations.get(),
            evictions: self.evictions.get(),
            not_found: self.not_found.get(),
            refused: self.refused.get(),
            failed: self.failed.get(),
            stale: self.stale.get(),
            blocking: self.blocking.get(),
            cached_files,
            cached,
        }
    }
}

/// Number that only grows. Counts order no other memory, so that all accesses are relaxed.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub(super) fn increment(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub(super) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
