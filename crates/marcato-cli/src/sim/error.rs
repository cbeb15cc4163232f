//! Why there are no results.

use std::io;
use std::path::{Path, PathBuf};

use marcato_papers::{SeedError, WriteError};
use marcato_scenario::ScenarioError;
use marcato_sim::scenario::BuildError;
use parquet::errors::ParquetError;
use thiserror::Error;

/// Why a scenario could not be run or its results not be handed over.
#[derive(Debug, Error)]
pub(crate) enum SimError {
    #[error("the scenario cannot be run:\n{0}")]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("the trace `{path}` cannot be read: {problem}")]
    Trace { path: String, problem: String },
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
    #[error("--resume needs --out, the directory of the runs that are done")]
    ResumeWhat,
    #[error("this scenario is one run: there is nothing to resume")]
    ResumeOne,
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Seed(#[from] SeedError),
    #[error("parquet: {0}")]
    Parquet(#[from] ParquetError),
    #[error("cannot write `{}`: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot write to standard output: {0}")]
    Print(io::Error),
}

impl SimError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::File { path: path.to_owned(), source }
    }
}
