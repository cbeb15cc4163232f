//! Errors of a trial.

use std::io;

use marcato_lab::{HostError, LabError};
use marcato_sim::scenario::BuildError;

/// Error returned if a trial cannot be opened, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The lab cannot be opened.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A host has ended.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The flows cannot be added to the lab.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Two flows of one host need different settings of its kernel.
    #[error(
        "the host of `{node}` cannot have `{key}` both on and off, as its flows ask: give them the same, or other hosts"
    )]
    Settings {
        /// Node of the host.
        node: String,
        /// Key of the flows' `tcp`.
        key: &'static str,
    },
    /// A setting of a host's kernel cannot be changed.
    #[error("cannot set {setting} on the host of `{node}`: {source}")]
    Setting {
        /// Node of the host.
        node: String,
        /// Name of the setting.
        setting: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The system refuses a call that the trial needs.
    #[error("the trial cannot go on: {what}: {source}")]
    System {
        /// Action that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}
