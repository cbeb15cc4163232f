//! Native half of the Python package `pymarcato`.
//!
//! It has what Python cannot do itself: reading scenarios, running them, passing results on as Arrow
//! data, and the live transport. Everything that users see is written in Python around it, in `pymarcato/`.
#![forbid(unsafe_code)]

mod error;
mod live;
mod papers;
mod plugin;
mod result;
mod rows;
mod scenario;
mod statistics;
mod table;
mod watch;

/// Native half of the package `pymarcato`; its classes and functions are internal.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::live::connection::{Connection, Pieces, Request, Sent, Writer};
    #[pymodule_export]
    use super::live::listener::{Listener, connect, listen};
    #[pymodule_export]
    use super::live::security::{Identity, Trust};
    #[pymodule_export]
    use super::live::shared::{Message, size_bytes, span_ns};
    #[pymodule_export]
    use super::live::waiting::{Operation, Wakeups, forked, live_tasks};
    #[pymodule_export]
    use super::papers::{experiment, papers};
    #[pymodule_export]
    use super::plugin::{Ack, Lane, Packet, Random, Start};
    #[pymodule_export]
    use super::result::Result;
    #[pymodule_export]
    use super::rows::{fingerprint, make_table, read_rows, unit, write_rows};
    #[pymodule_export]
    use super::scenario::{Scenario, setting};
    #[pymodule_export]
    use super::statistics::{bootstrap, mean, student_t};
    #[pymodule_export]
    use super::table::Table;

    /// Version of Marcato.
    #[pymodule_export]
    const VERSION: &str = marcato_report::VERSION;
    /// Largest seed.
    #[pymodule_export]
    const MOST_SEED: u64 = marcato_units::Seed::MAX;
    /// Commit that the package was built from.
    #[pymodule_export]
    const COMMIT: &str = marcato_report::COMMIT;
}
