//! Limits on the size of a scenario. A scenario beyond a limit is an error that states the limit;
//! nothing is cut silently.

/// Largest file, in bytes.
pub const MAX_FILE: usize = 1 << 20;
/// Largest trace, in bytes.
pub const MAX_TRACE: usize = 64 << 20;
/// Longest name of a node, link or flow, in bytes.
pub const MAX_NAME: usize = 64;
/// Largest number of nodes, including those of a topology.
pub const MAX_NODES: usize = 1024;
/// Largest number of links, including those of a topology.
pub const MAX_LINKS: usize = 2048;
/// Largest number of flows, counting each instance.
pub const MAX_FLOWS: usize = 10_000;
/// Largest number of messages, sources and kinds of bulk data of one flow, and of changes of one
/// link.
pub const MAX_LIST: usize = 10_000;
/// Largest number of lanes of one QUIC session.
pub const MAX_PATHS: usize = 16;
/// Largest number of periodic sources of one QUIC session, each of which may be declared.
pub const MAX_SOURCES: usize = 16;
/// Largest number of connections that a process may be expected to open in a run.
pub const MAX_CONNECTIONS: u64 = 1_000_000;
/// Largest number of samples in all series of one run together.
pub const MAX_SAMPLES: u64 = 10_000_000;
/// Largest number of claims of a scenario.
pub const MAX_CLAIMS: usize = 1000;
/// Largest number of runs of a grid, counting seeds.
pub const MAX_RUNS: usize = 10_000;
/// Longest run, in seconds: thirty days.
pub const MAX_SECONDS: u64 = 30 * 86_400;
/// Largest number of faults in one report. The number of further ones follows.
pub const MAX_FAULTS: usize = marcato_document::MAX_FAULTS;
