//! Errors of `marcato run`.

use std::io;
use std::path::PathBuf;

use marcato_kernel::{GroupError, MarkError, Missing};
use thiserror::Error;

/// Error of a command whose sockets are marked.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    #[error("this system lacks what `marcato run` needs:{}\n{}", .0.iter().map(|it| format!("\n  {it}")).collect::<String>(), crate::doctor::HINT)]
    Missing(Vec<Missing>),
    #[error("the rules cannot be read: {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: {why}")]
    Rules { path: PathBuf, why: String },
    #[error("peers that refuse the option cannot be kept: {path}: {source}")]
    Peers { path: PathBuf, source: io::Error },
    #[error("{path}: line {line} is no peer: remove it")]
    Peer { path: PathBuf, line: usize },
    #[error("no command was given: write it behind `--`")]
    NoCommand,
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error("{0}\n{hint}", hint = crate::doctor::HINT)]
    Mark(#[from] MarkError),
    #[error("cannot pass signals on to the command: {0}")]
    Signals(io::Error),
    #[error("cannot wait for the command: {0}")]
    Wait(io::Error),
    #[error("cannot write to standard output: {0}")]
    Print(io::Error),
}
