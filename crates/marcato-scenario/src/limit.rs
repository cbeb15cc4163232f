//! How large a scenario may be. Each of these is an error with its number in it, not a silent cut.

/// The longest file, in bytes.
pub const MAX_FILE: usize = 1 << 20;
/// The longest trace, in bytes.
pub const MAX_TRACE: usize = 64 << 20;
/// The longest name of a node, link or flow, in bytes.
pub const MAX_NAME: usize = 64;
/// The most nodes, those of a topology included.
pub const MAX_NODES: usize = 1024;
/// The most links, those of a topology included.
pub const MAX_LINKS: usize = 2048;
/// The most flows, each instance counted.
pub const MAX_FLOWS: usize = 10_000;
/// The most messages, sources and kinds of bulk data of one flow, and the most changes of one link.
pub const MAX_LIST: usize = 10_000;
/// The most lanes of one QUIC session.
pub const MAX_PATHS: usize = 16;
/// The most periodic sources of one QUIC session, of which each may be declared.
pub const MAX_SOURCES: usize = 16;
/// The most connections that a process may be expected to begin in a run.
pub const MAX_CONNECTIONS: u64 = 1_000_000;
/// The most samples that the series of one run may have, all together.
pub const MAX_SAMPLES: u64 = 10_000_000;
/// The most runs of a grid, seeds counted.
pub const MAX_RUNS: usize = 10_000;
/// The longest run, in seconds: thirty days.
pub const MAX_SECONDS: u64 = 30 * 86_400;
/// How many faults are told at once; how many more there are is said.
pub const MAX_FAULTS: usize = 50;
