//! Counts of a file service.

use marcato_units::Bytes;

use crate::counter::counters;

counters! {
    /// Counts of a file service since its start, and the present size of its cache.
    #[derive(Copy, Hash)]
    pub struct FilesCounters;
    /// Counts that all clones of a service share.
    pub(super) struct Counts;
    counted {
        /// Requests answered from memory.
        hits: u64 => counter("files_hits", "Requests answered from memory"),
        /// Requests whose content was read from the file system.
        misses: u64 => counter("files_misses", "Requests whose content was read from the file system"),
        /// Checks of a file in memory against the file system.
        revalidations: u64 => counter("files_revalidations", "Checks of files in memory"),
        /// Files removed from memory to make room for others.
        evictions: u64 => counter("files_evictions", "Files removed from memory to make room"),
        /// Requests for something that does not exist.
        not_found: u64 => counter("files_not_found", "Requests for files that do not exist"),
        /// Requests refused for their path: its form, a dot-file, or a link that leaves the root.
        refused: u64 => counter("files_refused", "Requests refused for their path"),
        /// Requests that the operating system failed: permissions, too many open files, broken disks.
        failed: u64 => counter("files_failed", "Requests that the operating system failed"),
        /// Precompressed files that were older than their original, at each look at the file system.
        stale: u64 => counter("files_stale", "Precompressed files that were older than their original"),
        /// Requests and chunks that went to the blocking pool.
        blocking: u64 => counter("files_blocking", "Requests and chunks read by the blocking pool"),
    }
    present {
        /// Files in memory.
        cached_files: u64 => gauge("files_in_memory", "Files in memory"),
        /// Memory of those files.
        cached: Bytes => gauge("files_memory", "Memory of these files"),
    }
}
