//! Error of the loader.

/// Error returned when the programs cannot be loaded, or a map of theirs not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// This program was built without a compiler for eBPF.
    #[error("this build has no eBPF programs: install clang and libbpf-dev, and build again")]
    NotBuilt,
    /// The object cannot be loaded.
    #[error(
        "the kernel does not load the eBPF programs ({0}): run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, on Linux 5.15 or later with BTF"
    )]
    Object(#[from] aya::EbpfError),
    /// A program cannot be loaded or run.
    #[error("the eBPF program {name}: {source}")]
    Program {
        /// Name of the program.
        name: &'static str,
        /// Error of the loader.
        #[source]
        source: aya::programs::ProgramError,
    },
    /// A map cannot be read or written.
    #[error("the eBPF map {name}: {source}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// Error of the loader.
        #[source]
        source: aya::maps::MapError,
    },
    /// The object has no such program or map.
    #[error("the object has no {0}: build it from the sources of this version")]
    Missing(&'static str),
}
