//! Errors that prevent results.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use marcato_results::{FileError, TraceFileError};
use marcato_scenario::ScenarioError;
use marcato_sim::Standstill;
use marcato_sim::scenario::BuildError;
use parquet::errors::ParquetError;
use thiserror::Error;

use super::handover::HandoverError;

/// Error of running a scenario or of writing its results.
#[derive(Debug, Error)]
pub(crate) enum SimError {
    #[error("the scenario cannot be run:\n{0}")]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Handover(#[from] HandoverError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Standstill(#[from] Standstill),
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Trial(#[from] marcato_trial::TrialError),
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    #[error("the run {id} failed: {problem}")]
    Run { id: String, problem: String },
    #[error("the run {0} ended in a panic, which is a defect of this program")]
    Panic(String),
    #[error("{} of {count} runs failed:\n  {}", problems.len(), problems.join("\n  "))]
    Runs { count: usize, problems: Vec<String> },
    #[error("`{}` has results of another scenario, or of other settings: give another directory", .0.display())]
    OtherScenario(PathBuf),
    #[error(
        "`{}` has results of another version of this program ({theirs}; this is {ours}): give another directory",
        path.display()
    )]
    OtherVersion { path: PathBuf, theirs: String, ours: String },
    #[error("`{}` has nothing to resume: leave out --resume", .0.display())]
    NothingToResume(PathBuf),
    #[error("interrupted: {0}")]
    Interrupted(Kept),
    /// Error of writing a run of a grid to the directory.
    #[error("{source}\n{kept}")]
    Unkept { source: Box<Self>, kept: Kept },
    #[error("--explain prints text, or JSON with --format json, but no table: leave out --format csv")]
    ExplainTable,
    #[error("there is no claim {0}")]
    NoClaim(String),
    #[error("this scenario has no claims: leave out --claims, or add [[claim]] to the file")]
    NoClaims,
    #[error("cannot listen for interrupts: {0}")]
    Interrupt(io::Error),
    #[error("--resume needs --out, the directory of the completed runs")]
    ResumeWhat,
    #[error("this scenario is one run: there is nothing to resume")]
    ResumeOne,
    #[error("parquet: {0}")]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot write to standard output: {0}")]
    Print(io::Error),
}

/// Results kept of an interrupted scenario, with the way to resume.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Single run, of which nothing is kept.
    Nothing {
        /// Simulated seconds.
        seconds: u64,
        /// Seconds to simulate.
        of: u64,
    },
    /// Grid without a directory, of which nothing is kept either.
    NoDirectory {
        /// Completed runs.
        done: usize,
        /// Number of runs.
        of: usize,
    },
    /// Grid with a directory, which keeps the completed runs.
    Runs {
        /// Directory of the results.
        directory: PathBuf,
        /// Completed runs.
        done: usize,
        /// Number of runs.
        of: usize,
    },
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { seconds, of } => write!(
                f,
                "after {seconds} of {of} simulated seconds: nothing was written; the same command starts again from the beginning"
            ),
            Self::NoDirectory { done, of } => write!(
                f,
                "after {done} of {of} runs: nothing is kept; with --out DIR, completed runs are kept, and \
                 the same command continues from there"
            ),
            Self::Runs { directory, done, of } => write!(
                f,
                "{done} of {of} runs are complete and kept in `{}`: run the same command again to continue",
                directory.display()
            ),
        }
    }
}

impl SimError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::File(FileError { path: path.to_owned(), source })
    }
}
